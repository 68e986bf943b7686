"""The configuration of the channel between robots. Imports no torch."""

from __future__ import annotations

import dataclasses
import math

from mast_swarm.errors import MastError


@dataclasses.dataclass(frozen=True)
class Channel:
    """How messages travel: how long a hop takes and what can go wrong.

    Loss and failures are not in the paper. They are drawn from `seed` and the environment's own seed alone,
    so an environment meets the same losses whatever batch it runs in.
    """

    delay: float = 0.0
    """Seconds a message takes for one hop (tau); 0: everything that can arrive arrives at once."""
    loss: float = 0.0
    """Probability that one transmission over one link, in one direction, is lost."""
    failure: float = 0.0
    """Probability that a robot fails in one control period; it then stands still and is silent for good."""
    seed: int = 0
    """Seed of losses and failures."""

    def __post_init__(self) -> None:
        for name in ("delay", "loss", "failure"):
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                raise MastError(f"{name} is {value!r}: expected a finite number")
        if self.delay < 0:
            raise MastError(f"delay is {self.delay} s a hop: expected 0 or more")
        for name in ("loss", "failure"):
            if not 0 <= getattr(self, name) <= 1:
                raise MastError(f"{name} is {getattr(self, name)}: expected a probability from 0 to 1")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise MastError(f"seed is {self.seed!r}: expected a whole number")
