"""Settings of a swarm of processes. No torch here: the command line reads these for its help."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.tasks.base import Task, WorldConfig

_UNSET = tyro.conf.arg(help_behavior_hint="")  # the help says what happens without a value
_MOST = 500  # robots, each a process
_ROUNDING = 1e-3  # metres: the world keeps places in fp32, and is at most a few km wide


@dataclass(frozen=True)
class SwarmConfig:
    """A swarm of processes on this machine: each robot is one, without torch, on loopback. Times are the mission's."""

    world: Annotated[WorldConfig, tyro.conf.arg(name="")]
    """The world."""
    task: str
    """What the team does, as `mast list` shows it, or path/to/file.py:TASK; each has options of its own."""
    policy: str
    """A shipped policy, a policy folder (exported first, to runs/exports), or a folder that `mast export` wrote."""
    robots: int = 16
    """Robots that start. The world has these and those that join."""
    transport: Literal["udp", "zenoh"] = "udp"
    """What carries their messages."""
    rate: Annotated[float | None, _UNSET, tyro.conf.DisallowNone] = None
    """Control instants per real second; unset: 1 / dt, so that the mission runs in real time."""
    delay: Annotated[float | None, _UNSET, tyro.conf.DisallowNone] = None
    """Seconds per hop: a robot passes on what it knows in rounds this far apart; unset: one control period."""
    loss: float = 0.0
    """Probability that a datagram is lost on its way."""
    kill: tuple[str, ...] = ()
    """COUNT@SECONDS: kill so many robots then, drawn from the seed; their processes get SIGKILL."""
    join: tuple[str, ...] = ()
    """COUNT@SECONDS: start so many more robots then. Until then they stand at their places, silent."""
    partition: tuple[str, ...] = ()
    """FROM:TO, seconds: the western half of the team and the eastern one do not hear each other."""
    relay_radius: Annotated[float | None, _UNSET, tyro.conf.DisallowNone] = None
    """Metres: robots neither keep nor pass on news from farther away. Unset: from anywhere."""
    max_age: Annotated[float | None, _UNSET, tyro.conf.DisallowNone] = None
    """Seconds: robots forget older news and do not pass it on. Unset: news of any age counts."""
    safe: bool = False
    """Every robot runs the safety layer after its policy: none hits another that did not touch it at the start."""
    steps: int = 200
    """Control periods."""
    seed: int = 0
    """Chooses the start state, as in `mast evaluate`, who is killed, and what is lost."""
    episode: int = 0
    """Which of the start states that `mast evaluate` would take of this seed."""
    unsigned: bool = False
    """Neither sign nor verify messages."""
    out: Annotated[Path | None, _UNSET, tyro.conf.DisallowNone] = None
    """Folder for the results; unset: a new one under runs/."""

    def __post_init__(self) -> None:
        self.world.check_apart("mast swarm", vars(self))
        if not 1 <= self.robots <= _MOST:
            raise MastError(f"--robots is {self.robots}: give a whole number, 1 to {_MOST}")
        if self.steps < 1 or self.episode < 0:
            raise MastError(f"--steps is {self.steps}, --episode {self.episode}: give 1 or more, and 0 or more")
        for name in ("rate", "delay"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise MastError(f"--{name} is {value}: give a positive number")
        if not 0 <= self.loss <= 1:
            raise MastError(f"--loss is {self.loss}: give a probability from 0 to 1")
        present = self.robots
        events = [(t, -count) for t, count in self.kills] + [(t, count) for t, count in self.joins]
        for t, change in sorted(events):
            present += change
            if present < 1:
                raise MastError(f"--kill leaves nobody alive at {t:g} s: kill fewer robots, or start more")
        if self.safe and self.apart is None:
            raise MastError(f"--safe needs to know how large robots are, and {self.task} does not say it: leave it out")
        planned: dict[str, Sequence[tuple[float, float]]] = {"kill": self.kills, "join": self.joins}
        planned["partition"] = self.partitions
        for option, times in planned.items():
            for text, (begin, _) in zip(getattr(self, option), times, strict=True):
                if math.ceil(begin / self.dt - 1e-9) >= self.steps:
                    ends = f"the mission ends at {self.steps * self.dt:g} s"
                    raise MastError(f"--{option} {text}: {ends}: give an earlier time, or more --steps")
        if self.robots + self.joining > _MOST:
            raise MastError(f"{self.robots + self.joining} robots in all: give at most {_MOST}")

    @property
    def kills(self) -> list[tuple[float, int]]:
        """Seconds, and how many robots."""
        return [_counted("--kill", text) for text in self.kill]

    @property
    def joins(self) -> list[tuple[float, int]]:
        """Seconds, and how many robots."""
        return [_counted("--join", text) for text in self.join]

    @property
    def joining(self) -> int:
        """Robots that join later."""
        return sum(count for _, count in self.joins)

    @property
    def partitions(self) -> list[tuple[float, float]]:
        """Seconds, from and to."""
        found = []
        for text in self.partition:
            begin, _, end = text.partition(":")
            try:
                times = float(begin), float(end)
            except ValueError:
                times = (0.0, 0.0)
            if math.inf > times[0] >= times[1] > 0:
                raise MastError(f"--partition {text}: FROM has to be smaller than TO, as {end}:{begin}")
            if not 0 <= times[0] < times[1] < math.inf:
                raise MastError(f"--partition {text}: expected FROM:TO in seconds, as 40:80")
            found.append(times)
        return found

    @property
    def apart(self) -> float | None:
        """Metres that the safety layer keeps centres of robots apart; None: there is no layer, or no known size."""
        radius = getattr(self.world, "robot_radius", None)
        return 2 * radius + _ROUNDING if self.safe and radius is not None else None

    @property
    def dt(self) -> float:
        """Seconds of the mission between two control instants."""
        return self.world.dt

    @property
    def hertz(self) -> float:
        """Control instants per real second."""
        return 1 / self.dt if self.rate is None else self.rate

    @property
    def speed(self) -> float:
        """Seconds of the mission per real second."""
        return self.hertz * self.dt

    @property
    def hop(self) -> float:
        """Seconds of the mission per hop."""
        return self.dt if self.delay is None else self.delay

    def completed(self, given: Sequence[str]) -> SwarmConfig:
        """The same settings, those that follow from a file taken from it: as many robots as it has, with those that
        join. given: names of those that people set."""
        named = [*given, "agents"] if "robots" in given else given
        world = self.settled.completed(named)
        return replace(self, world=world, robots=world.agents - self.joining)

    @property
    def settled(self) -> WorldConfig:
        """The world's settings, with a place for every robot."""
        return replace(self.world, agents=self.robots + self.joining)

    def start(self) -> tuple[int, str]:
        """Seed and scenario of the start state."""
        like = EvaluateConfig(self.settled, (), episodes=self.episode + 1, seed=self.seed)
        return like.seeds()[-1], like.scenarios()[-1]


def swarm_defaults(task: Task, name: str) -> SwarmConfig:
    """What `mast swarm` runs of a task, which the command line calls `name`, where nothing else is said."""
    learned = [one for one in task.default_demo.policies if not task.has_controller(one)]
    return SwarmConfig(task.Config(), name, learned[0] if learned else "", steps=task.steps)


def _counted(option: str, text: str) -> tuple[float, int]:
    count, _, when = text.partition("@")
    try:
        found = float(when), int(count)
    except ValueError:
        found = (-1.0, 0)
    if not (0 <= found[0] < math.inf and found[1] >= 1):
        raise MastError(f"{option} {text}: expected COUNT@SECONDS, as 3@60")
    return found
