"""What a robot's hardware, or whatever stands for it, has to offer. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np


@dataclass(frozen=True)
class Sensed:
    """What a robot senses at one moment."""

    position: Any
    """Where it is, [2] metres in a frame that the whole team shares."""
    features: np.ndarray
    """What the policy perceives, in the order, the units and the scales of the manifest."""
    landmark: Any = (0.0, 0.0)
    """The nearest thing of interest, [2] metres relative to the robot; for policies that explore."""
    neighbours: Collection[int] | None = None
    """The robots that hear this one now, by their numbers; None: all that it has an address of."""
    robots: Any = None
    """Where others are, all within the safety layer's sensing radius, [K, 2] metres relative to this robot; None: it
    cannot tell, and runs no safety layer."""
    sights: Any = None
    """The nearest things of interest that it senses, [K, 2] metres relative to it, the farthest last, infinite where
    there is nothing more to sense; for policies with a map. None: it cannot tell."""
    reach: float = math.inf
    """Metres within which it would sense any such thing; for policies with a map."""


@runtime_checkable
class Body(Protocol):
    """A robot as its policy sees it: two methods. It may have two more: `close()`, which is called at the end, and
    `waits_for()`, which says in a few words what it waits for while `sense` gives None."""

    def sense(self) -> Sensed | None:
        """What the robot senses now; None where it has nothing new to say yet, for example before the first fix."""

    def command(self, velocity: np.ndarray) -> None:
        """Go at this velocity, [2] m/s, until the next command. Zeros: stop."""
