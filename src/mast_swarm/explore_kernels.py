"""Exploration on a GPU (Triton): from predictions to commands in one kernel.

`explore` says what is computed, in a hundred small steps on tensors of two numbers per robot: of a small team they took
longer to launch than the whole network.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROBOTS = 128  # of a program


@triton.jit
def _mix(x, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """As `chance.mix`."""
    x = (x ^ (x.to(tl.uint64) >> 30).to(tl.int64)) * FIRST
    x = (x ^ (x.to(tl.uint64) >> 27).to(tl.int64)) * SECOND
    return x ^ (x.to(tl.uint64) >> 31).to(tl.int64)


@triton.jit
def combine(key, counter, GOLDEN: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """As `chance.combine`, of one counter."""
    return _mix(key + GOLDEN + _mix(counter * GOLDEN, FIRST, SECOND), FIRST, SECOND)


@triton.jit
def _direction(key, robot, GOLDEN: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr):
    """The unit vector that chance gives a robot."""
    key = combine(key, robot, GOLDEN, FIRST, SECOND)
    share = ((key.to(tl.uint64) >> 11).to(tl.float64) * 1.1102230246251565e-16).to(tl.float32)
    angle = share * 6.283185307179586
    return tl.cos(angle), tl.sin(angle)


@triton.jit
def _length(x, y):
    return tl.sqrt(x * x + y * y)


@triton.jit
def _explored(
    prediction, landmark, away, seeds, time, out, count, robots, reach, push,
    AWAY: tl.constexpr, GOLDEN: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, ROBOTS: tl.constexpr,
):  # fmt: skip
    """As `explore.explored`."""
    r = tl.program_id(0).to(tl.int64) * ROBOTS + tl.arange(0, ROBOTS)
    there = r < count
    b = r // robots
    seed, now = tl.load(seeds + b, mask=there, other=0), tl.load(time + b, mask=there, other=0.0)
    knot = tl.floor(now)
    share = now - knot
    robot, at = r % robots, knot.to(tl.int64)
    x, y = _direction(combine(seed, at, GOLDEN, FIRST, SECOND), robot, GOLDEN, FIRST, SECOND)
    x2, y2 = _direction(combine(seed, at + 1, GOLDEN, FIRST, SECOND), robot, GOLDEN, FIRST, SECOND)
    step = share * share * (3 - 2 * share)
    x, y = x + (x2 - x) * step, y + (y2 - y) * step
    length = tl.maximum(_length(x, y), 1e-3)
    x, y = x / length, y / length
    if AWAY:
        away_x, away_y = tl.load(away + 2 * r, mask=there, other=0.0), tl.load(away + 2 * r + 1, mask=there, other=0.0)
        weight = push / (1 + _length(away_x, away_y))
        x, y = x + weight * away_x, y + weight * away_y
        length = tl.maximum(_length(x, y), 1e-3)
        x, y = x / length, y / length
    to_x = tl.load(landmark + 2 * r, mask=there, other=0.0)
    to_y = tl.load(landmark + 2 * r + 1, mask=there, other=0.0)
    far = _length(to_x, to_y)
    pull = tl.minimum(tl.maximum(2 * far / reach - 1, 0.0), 1.0)
    near = tl.maximum(far, 1e-6)
    x, y = x + pull * (to_x / near - x), y + pull * (to_y / near - y)
    length = tl.maximum(_length(x, y), 1e-3)
    x, y = x / length, y / length
    mean_x = tl.load(prediction + 3 * r, mask=there, other=0.0)
    mean_y = tl.load(prediction + 3 * r + 1, mask=there, other=0.0)
    speed = tl.minimum(tl.maximum(tl.load(prediction + 3 * r + 2, mask=there, other=0.0), 0.0), 1.0)
    more = speed * tl.maximum(speed - _length(mean_x, mean_y), 0.0)
    tl.store(out + 2 * r, mean_x + more * x, mask=there)
    tl.store(out + 2 * r + 1, mean_y + more * y, mask=there)


def explored(
    prediction: Tensor, landmark: Tensor, seeds: Tensor, time: Tensor, reach: float, away: Tensor | None, push: float,
    mixing: tuple[int, int, int],
) -> Tensor:  # fmt: skip
    """As `explore.explored`, in fp32. mixing: the numbers of `chance.combine` and `chance.mix`."""
    batch, robots, _ = prediction.shape
    out = torch.empty((batch, robots, 2), dtype=torch.float32, device=prediction.device)
    golden, first, second = mixing
    given = (prediction, landmark, prediction if away is None else away)
    _explored[(triton.cdiv(batch * robots, _ROBOTS),)](
        *(t.contiguous() for t in (*given, seeds, time)), out, batch * robots, robots, reach, push,
        AWAY=away is not None, GOLDEN=golden, FIRST=first, SECOND=second, ROBOTS=_ROBOTS,
    )  # fmt: skip
    return out
