"""Exploration for one robot, in plain numpy: what `mast_swarm.explore` does for whole teams in torch, the same numbers.

An exploring policy predicts a mean command and the speed that an expert would have. The robot fills the gap between the
two with a heading of its own, which turns slowly at random. That chance has no state: a heading is a function of the
episode's seed, the robot's number and the time.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIERS = ((np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB)))
_LOW_64 = (1 << 64) - 1


def mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64, a bijection of uint64 that leaves no pattern; an array, which wraps around."""
    for bits, multiplier in _MULTIPLIERS:
        x = (x ^ (x >> bits)) * multiplier
    return x ^ (x >> np.uint64(31))


def combine(key: np.ndarray, *counters: np.ndarray) -> np.ndarray:
    """A new key from a key and integers that name an event: uint64 arrays that broadcast together."""
    for counter in counters:
        key = mix(key + _GOLDEN + mix(counter * _GOLDEN))
    return key


def uniform(key: np.ndarray) -> np.ndarray:
    """The number in [0, 1) of a key, float64."""
    return (key >> np.uint64(11)).astype(np.float64) * 2.0**-53


def whole(*numbers: int) -> np.ndarray:
    """Integers as [n] uint64; of each its 64 low bits count, so that any integer is a seed."""
    return np.array([number & _LOW_64 for number in numbers], dtype=np.uint64)


def heading(seed: int, robot: int, time: float) -> np.ndarray:
    """A unit vector [2] float32 that drifts with time, which is in units of the exploration time: over one unit a
    heading turns to the next of an endless row of random ones."""
    knot = math.floor(time)
    key = combine(whole(seed), whole(knot, knot + 1), whole(robot))  # [2]: this knot and the next
    angle = uniform(key).astype(np.float32) * np.float32(2 * math.pi)
    here, there = np.stack((np.cos(angle), np.sin(angle)), axis=-1)
    share = np.float32(time - knot)
    return _unit(here + (there - here) * (share * share * (3 - 2 * share)))  # smoothstep: no sudden turn at a knot


EVERY = 10.0  # seconds between two places that a robot remembers


class Trail:
    """Where the robot has been: its last `places` places, one every `EVERY` seconds."""

    def __init__(self, places: int, spread: float) -> None:
        """spread: metres over which a place loses its effect."""
        self.spread = spread
        self._past: deque[np.ndarray] = deque(maxlen=places)
        self._next = -math.inf

    def away(self, position: Any, time: float) -> np.ndarray:
        """What pushes the robot at a position [2] metres away from where it has been, [2], at a time in seconds."""
        here = np.array(position, np.float64)
        if time >= self._next:
            self._past.append(here)
            self._next = time + EVERY * (1 - 1e-9)
        way = here - np.stack(self._past)
        distance = np.hypot(*way.T)[:, None]
        return (way / np.maximum(distance, 1.0) * np.exp(-distance / self.spread)).sum(0)


def turned(heading: np.ndarray, away: np.ndarray, most: float) -> np.ndarray:
    """A heading [2] turned by a push [2]: little by a weak one, and by a strong one nearly to where it points.

    most: of any push, against a heading of length 1."""
    return _unit((heading + most * away / (1 + np.hypot(*away))).astype(np.float32))


def leashed(heading: np.ndarray, landmark: np.ndarray, reach: float) -> np.ndarray:
    """A heading [2] that turns towards the landmark [2] (relative, metres), the more the farther it is: not at all up
    to half the reach (metres), wholly beyond it."""
    distance = float(np.hypot(*landmark))
    pull = min(max(2 * distance / reach - 1, 0.0), 1.0)
    way = np.asarray(landmark, np.float32) / np.float32(max(distance, 1e-6))
    return _unit(heading + np.float32(pull) * (way - heading))


def fill(prediction: np.ndarray, heading: np.ndarray) -> np.ndarray:
    """Command [2] from a prediction [3] (mean command, expected speed) and a heading [2]."""
    mean, speed = prediction[:2], np.clip(prediction[2], 0, 1)
    gap = np.maximum(speed - _length(mean), 0)
    return mean + speed * gap * heading  # times the speed once more: one that may well be on its goal stays there


def _length(vector: np.ndarray) -> np.ndarray:
    return np.sqrt(vector[0] * vector[0] + vector[1] * vector[1])


def _unit(vector: np.ndarray) -> np.ndarray:
    return vector / np.maximum(_length(vector), np.float32(1e-3))
