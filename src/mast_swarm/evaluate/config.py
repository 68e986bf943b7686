"""Settings of an evaluation. No torch here: the command line reads these for its help."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mast_swarm.errors import MastError
from mast_swarm.world.config import CoverageConfig, NavigationConfig

_MOST = 1_000_000  # episodes of one seed, and seeds: no two share a start state, and training draws from 2**40 up
_UNSET = tyro.conf.arg(help_behavior_hint="")  # the help says what happens without a value
# The command line has the settings of the one that the defaults hold.
_World = Annotated[NavigationConfig | CoverageConfig, tyro.conf.arg(name=""), tyro.conf.AvoidSubcommands]


@dataclass(frozen=True)
class EvaluateConfig:
    """Roll policies out on the same start states; write tables, a summary and curves to a folder."""

    world: _World = field(default_factory=NavigationConfig)
    """The world."""
    policy: tuple[str, ...] = ("lsap", "dhba-4")
    """Controllers and shipped policies (see `mast list`), or policy folders."""
    episodes: int = 54
    """Start states; navigation's scenario `clusters` goes round its nine pairs of cluster sizes."""
    steps: int = 200
    """Control periods an episode. (Coverage's time average after 600 is over the instants 0..599 where they begin.)"""
    delay: Annotated[float | None, _UNSET, tyro.conf.DisallowNone] = None
    """Seconds a message takes for one hop: every robot decides alone. Unset: learned policies run centrally."""
    loss: float = 0.0
    """Probability that a link loses a transmission (with --delay)."""
    failure: float = 0.0
    """Probability that a robot fails in one control period (with --delay)."""
    seed: int = 0
    """Chooses the start states (training never sees any of them), losses and failures."""
    record: int = 0
    """Keep this many episodes for `mast replay`."""
    out: Annotated[Path | None, _UNSET, tyro.conf.DisallowNone] = None
    """Folder for the results; unset: a new one under runs/."""
    resume: bool = False
    """Go on with a run that was stopped: what is finished in --out is kept."""
    batch: Annotated[int | None, _UNSET, tyro.conf.DisallowNone] = None
    """Environments at once; unset: chosen from the team's size and the device."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where worlds and learned policies run."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of learned policies' products (positions and phases stay fp32). bf16 is faster on GPUs, and on CPUs
    that have instructions for it."""

    def __post_init__(self) -> None:
        if not self.policy:
            raise MastError("no policy was given: name at least one, see `mast list`")
        if len(set(self.policy)) != len(self.policy):
            raise MastError(f"a policy was given twice: {' '.join(self.policy)}")
        for name, value, least, most in (
            ("episodes", self.episodes, 1, _MOST),
            ("steps", self.steps, 1, None),
            ("record", self.record, 0, None),
            ("seed", self.seed, 0, _MOST),
            ("batch", 1 if self.batch is None else self.batch, 1, None),
        ):
            if value < least or (most is not None and value > most):
                limits = f"{least} or more" if most is None else f"{least} to {most}"
                raise MastError(f"--{name} is {value}: give a whole number, {limits}")
        if self.delay is not None and not (math.isfinite(self.delay) and self.delay >= 0):
            raise MastError(f"--delay is {self.delay}: give seconds a hop, 0 or more")
        for name, share in (("loss", self.loss), ("failure", self.failure)):
            if not 0 <= share <= 1:
                raise MastError(f"--{name} is {share}: give a probability from 0 to 1")
        if self.delay is None and (self.loss or self.failure):
            raise MastError("--loss and --failure act on messages between robots: give --delay too (0 for instant)")
        if self.resume and self.out is None:
            raise MastError("--resume needs to know which run: give its folder with --out")

    def seeds(self) -> list[int]:
        """One seed an episode. Those of two values of `seed` never overlap."""
        return [self.seed * _MOST + episode for episode in range(self.episodes)]

    def scenarios(self) -> list[str]:
        """One scenario an episode, as the world has it for tests."""
        return self.world.scenarios(self.episodes)


# What `mast evaluate` does of each task where nothing else is said.
DEFAULTS: dict[str, EvaluateConfig] = {
    "navigation": EvaluateConfig(),
    "coverage": EvaluateConfig(world=CoverageConfig(), policy=("clairvoyant", "d-cvt"), episodes=100, steps=600),
}


@dataclass(frozen=True)
class DemoConfig:
    """Two policies on the same start state, side by side in a replay that opens in any browser."""

    task: str = "navigation"
    """What the team does: navigation or coverage, each with options of its own."""
    world: _World = field(default_factory=lambda: NavigationConfig(scenario="clusters-5-5"))
    """The world."""
    steps: int = 300
    """Control periods."""
    seed: int = 0
    """Chooses the start state."""
    out: Annotated[Path | None, _UNSET, tyro.conf.DisallowNone] = None
    """Folder for the replay; unset: runs/demo, made anew each time."""


@dataclass(frozen=True)
class Demo:
    """What the demo of a task shows."""

    config: DemoConfig
    pair: tuple[str, str]  # policies side by side; the first is a trained one, and every robot decides alone
    outcome: str  # what a policy did, from its last metrics

    def evaluation(self, config: DemoConfig, out: Path) -> EvaluateConfig:
        """The evaluation of one episode that makes the demo."""
        return EvaluateConfig(
            world=config.world,
            policy=self.pair,
            delay=config.world.dt,
            episodes=1,
            steps=config.steps,
            seed=config.seed,
            record=1,
            out=out,
        )


DEMOS: dict[str, Demo] = {
    "navigation": Demo(DemoConfig(), ("mast-m", "dhba-8"), outcome="reached {success_rate:.0%} of the goals"),
    "coverage": Demo(
        DemoConfig(task="coverage", world=CoverageConfig(), steps=600),
        ("mast-m", "d-cvt"),
        outcome="brought the cost to {cost:.3f} of its start ({cost_time_average:.3f} on average)",
    ),
}
