"""What every function of the package asks of the positions it is given."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from mast_swarm.errors import MastError

# Beyond this many metres d2 no longer fits a float32.
LARGEST = 1e18


def check_positions(name: str, positions: Tensor) -> None:
    """positions must be [B, N, 2] float32 or float64."""
    if positions.dim() != 3 or positions.shape[-1] != 2:
        raise MastError(f"{name} has shape {list(positions.shape)}, expected [environments, {name}, 2] in metres")
    if positions.dtype not in (torch.float32, torch.float64):
        raise MastError(f"{name} is {positions.dtype}, expected float32 or float64: convert it with .float()")


def check_pair(queries: Tensor, points: Tensor) -> None:
    """queries and points must be positions of the same environments, of one type, on one device."""
    check_positions("queries", queries)
    check_positions("points", points)
    if queries.shape[0] != points.shape[0]:
        raise MastError(
            f"queries has {queries.shape[0]} environments and points {points.shape[0]}: give both the same number"
        )
    if queries.dtype != points.dtype or queries.device != points.device:
        raise MastError(
            f"queries is {queries.dtype} on {queries.device} and points {points.dtype} on {points.device}: "
            "give both the same type and device"
        )


def check_finite(name: str, positions: Tensor) -> None:
    """Refuses NaN, infinite and absurdly large positions. Reads values: waits for the device on CUDA."""
    if positions.device.type == "cpu":
        from mast_swarm.space import _cpu

        bad = int(_cpu.first_bad(positions.detach().reshape(-1).numpy(), LARGEST))
    else:
        wrong = ~(positions.detach().reshape(-1).abs() < LARGEST)
        bad = int(wrong.to(torch.uint8).argmax()) if bool(wrong.any()) else -1
    if bad >= 0:
        robot = bad // 2
        b, i = divmod(robot, positions.shape[1])
        at = positions[b, i].tolist()
        raise MastError(
            f"{name} of environment {b}, robot {i} is ({at[0]:g}, {at[1]:g}), "
            f"expected numbers below {LARGEST:g} m: check the command or file it came from"
        )


def check_radius(radius: float) -> None:
    """A radius is a number of metres, 0 or more; inf means everything."""
    if math.isnan(radius) or radius < 0:
        raise MastError(f"radius is {radius:g} m, expected 0 or more")


def squared(radius: float, dtype: torch.dtype) -> float:
    """The squared radius rounded to dtype, so that every method compares d2 with the same number."""
    with np.errstate(over="ignore"):  # a radius that means everybody: its square is inf
        return float(np.float32(radius * radius)) if dtype == torch.float32 else radius * radius
