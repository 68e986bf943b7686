"""The HTML replay: one self-contained file that plays recordings side by side in a browser, with no network.

The page (page/*) is put together here with the data, which is JSON: facts as plain values, and every array as
{dtype, shape, delta, data}, data being base64 of a zlib stream of little-endian numbers. With `delta`, each
frame is stored as its difference to the frame before (integers that wrap): robots move little and neighbours
change rarely, so that the differences compress well.
"""

from __future__ import annotations

import base64
import html
import json
import re
import zlib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.files import whole_file
from mast_swarm.view import scene
from mast_swarm.view.style import SCENE, policy_colour

SCRIPTS = (
    "data.js",
    "curve.js",
    "navigation.js",
    "replay.js",
)  # in the order in which they build on each other
FINEST_UNIT = 0.1  # m: positions are kept to this, or coarser where the world is too large for 16 bits
INT16_MAX = 32767


def write_replay(path: Path, recordings: Sequence[Recording], title: str = "MAST replay") -> Path:
    """Write the replay of one or more recordings to `path` (what was there is replaced); the path again."""
    if not recordings:
        raise MastError("a replay needs at least one recording, none was given")
    for recording in recordings:
        scene.check(recording)
    data = {
        "palette": [policy_colour(number) for number in range(len(recordings))],
        "recordings": [_navigation(recording) for recording in recordings],
    }
    text = _page(title, data)
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return Path(path)


def _navigation(recording: Recording) -> dict[str, Any]:
    """A navigation recording as the page's painter of the same name takes it."""
    frames, robots = recording.positions.shape[:2]
    goals = len(recording.goals)
    points = np.concatenate([recording.positions.reshape(-1, 2), recording.goals]).astype(np.float64)
    low, high = points.min(axis=0), points.max(axis=0)
    origin = (low + high) / 2  # m
    unit = max(FINEST_UNIT, float((high - low).max()) / 2 / INT16_MAX)  # m

    def quantised(values: np.ndarray) -> np.ndarray:
        return np.rint((values.astype(np.float64) - origin) / unit).astype(np.int16)

    reached = np.stack([scene.reached(recording, frame) for frame in range(frames)])
    return {
        "task": "navigation",
        "policy": recording.policy,
        "facts": [
            "navigation",
            recording.scenario,
            f"{robots} robots, {goals} goals" if robots != goals else f"{robots} robots",
            f"seed {recording.seed}",
            "no delay" if recording.delay is None else f"delay {recording.delay:g} s a hop",
        ],
        "dt": recording.dt,
        "width": recording.width,
        "success_radius": recording.success_radius,
        # JSON has no infinity: a window without an end is no window.
        "attention_radius": _finite(recording.attention_radius),
        "frames": frames,
        "robots": robots,
        "goals": goals,
        "origin": origin.tolist(),
        "unit": unit,
        "arrays": {
            "positions": _packed(quantised(recording.positions), delta=True),
            "goals": _packed(quantised(recording.goals)),
            "neighbours": _packed(_from_one(recording.neighbours, robots), delta=True),
            "goals_seen": _packed(_from_one(recording.goals_seen, goals), delta=True),
            "reached": _packed(np.packbits(reached, axis=1, bitorder="little"), delta=True),
            "success_rate": _packed(recording.success_rate.astype(np.float32)),
        },
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and np.isfinite(value) else None


def _from_one(index: np.ndarray, among: int) -> np.ndarray:
    """Indices counted from 1, 0 for missing, in the smallest unsigned type that holds them."""
    return (index + 1).astype(np.uint16 if among < 2**16 else np.uint32)


def _packed(values: np.ndarray, *, delta: bool = False) -> dict[str, Any]:
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


def _page(title: str, data: dict[str, Any]) -> str:
    folder = resources.files("mast_swarm.view") / "page"

    def part(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    # "<" written as an escape keeps any text in the data from closing the script element.
    values = {
        "title": html.escape(title),
        "style": _filled(part("replay.css"), SCENE),
        "script": "\n".join(part(name) for name in SCRIPTS),
        "data": json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"),
    }
    return _filled(part("replay.html"), values)


def _filled(template: str, values: dict[str, str]) -> str:
    """Every {{name}} replaced in one pass, so that no value is itself searched for names."""
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)
