"""Arrays as the replay page reads them.

Each is {dtype, shape, delta, data}, data being base64 of a zlib stream of little-endian numbers. With `delta`, each
frame is stored as its difference to the frame before (integers that wrap): robots move little and neighbours change
rarely, so that the differences compress well.
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np

# Positions are kept finely enough for this speed, m/s, and for this part of the world; or as 16 bits allow where the
# world is large.
FINEST_SPEED, FINEST_PART = 0.1, 1 / 4000
INT16_MAX = 32767


def packed(values: np.ndarray, *, delta: bool = False) -> dict[str, Any]:
    """An array as JSON can hold it; `delta`: its first axis is time and its numbers are integers."""
    stored = values.copy()
    if delta:
        stored[1:] -= values[:-1]
    raw = stored.astype(stored.dtype.newbyteorder("<")).tobytes()
    return {
        "dtype": values.dtype.name,
        "shape": list(values.shape),
        "delta": delta,
        "data": base64.b64encode(zlib.compress(raw, 9)).decode("ascii"),
    }


def from_one(index: np.ndarray, among: int) -> np.ndarray:
    """Indices counted from 1, 0 for missing, in the smallest unsigned type that holds them."""
    return (index + 1).astype(np.uint16 if among < 2**16 else np.uint32)


def finite(value: float | None) -> float | None:
    """The value, or None: JSON has no infinity, and a window without an end is no window."""
    return value if value is not None and np.isfinite(value) else None


class Ruler:
    """Points in metres as 16-bit integers: metres = origin + unit * integer."""

    def __init__(self, dt: float, *points: np.ndarray) -> None:
        """Made to measure for the points [..., 2] given, m; dt: seconds between two frames."""
        rows = np.concatenate([part.reshape(-1, 2) for part in points]).astype(np.float64)
        low, high = rows.min(axis=0), rows.max(axis=0)
        self.origin = (low + high) / 2  # [2] m
        extent = float((high - low).max())  # m
        finest = min(FINEST_SPEED * dt, FINEST_PART * extent) if extent else FINEST_SPEED * dt
        self.unit = max(finest, extent / 2 / INT16_MAX)  # m

    def measured(self, points: np.ndarray) -> np.ndarray:
        """[..., 2] m -> [..., 2] int16."""
        return np.rint((points.astype(np.float64) - self.origin) / self.unit).astype(np.int16)
