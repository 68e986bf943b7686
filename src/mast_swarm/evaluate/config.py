"""Settings of an evaluation. No torch here: the command line reads these for its help."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mast_swarm.errors import MastError
from mast_swarm.world.config import NavigationConfig


@dataclass(frozen=True)
class EvaluateConfig:
    """Roll policies out on the same start states; write tables, a summary and curves to a folder."""

    world: Annotated[NavigationConfig, tyro.conf.arg(name="")] = field(default_factory=NavigationConfig)
    """The world."""
    policy: tuple[str, ...] = ("lsap", "dhba-4")
    """Controllers, shipped policies or policy folders; see `mast list`."""
    episodes: int = 54
    """Start states; scenario `clusters` goes round its nine pairs of cluster sizes."""
    steps: int = 200
    """Control periods an episode."""
    delay: float | None = None
    """Seconds a message takes for one hop: every robot decides alone. Unset: learned policies run centrally."""
    loss: float = 0.0
    """Probability that a link loses a transmission (with --delay)."""
    failure: float = 0.0
    """Probability that a robot fails in one control period (with --delay)."""
    seed: int = 0
    """Chooses the start states; training never sees any of them."""
    record: int = 0
    """Keep this many episodes for `mast replay`."""
    out: Path | None = None
    """Folder for the results; unset: a new one under runs/."""
    resume: bool = False
    """Go on with a run that was stopped: finished parts in --out are kept."""
    batch: int | None = None
    """Environments at once; unset: chosen from the team's size and the device."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where worlds and learned policies run."""

    def __post_init__(self) -> None:
        if not self.policy:
            raise MastError("no policy was given: name at least one, see `mast list`")
        if len(set(self.policy)) != len(self.policy):
            raise MastError(f"a policy was given twice: {' '.join(self.policy)}")
        for name, value, least in (
            ("episodes", self.episodes, 1),
            ("steps", self.steps, 1),
            ("record", self.record, 0),
            ("seed", self.seed, 0),
            ("batch", 1 if self.batch is None else self.batch, 1),
        ):
            if value < least:
                raise MastError(f"--{name} is {value}: give a whole number, {least} or more")
        if self.delay is not None and not (math.isfinite(self.delay) and self.delay >= 0):
            raise MastError(f"--delay is {self.delay}: give seconds a hop, 0 or more")
        if self.delay is None and (self.loss or self.failure):
            raise MastError("--loss and --failure act on messages between robots: give --delay too (0 for instant)")

    def seeds(self) -> list[int]:
        """One seed an episode. Those of two values of `seed` never overlap; training draws from 2**40 up."""
        return [self.seed * 1_000_000 + episode for episode in range(self.episodes)]

    def scenarios(self) -> list[str]:
        """One scenario an episode: `clusters` is stratified over its pairs (robots, goals) of cluster sizes."""
        if self.world.scenario != "clusters":
            return [self.world.scenario] * self.episodes
        sizes = [size for size in (1, 5, 10) if size <= self.world.agents]
        pairs = [f"clusters-{robots}-{goals}" for robots in sizes for goals in sizes]
        return [pairs[episode % len(pairs)] for episode in range(self.episodes)]
