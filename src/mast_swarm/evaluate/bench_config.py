"""Settings of the benchmarks. No torch here: the command line reads these for its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import tyro

from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import Precision, precision_on
from mast_swarm.tasks import DEFAULT

_UNSET = tyro.conf.arg(help_behavior_hint="")  # the help says what happens without a value
_PAIRS = tyro.conf.arg(help_behavior_hint="", metavar="BxN [BxN ...]")


@dataclass(frozen=True)
class TaskBenchConfig:
    """What all benchmarks of teams share."""

    task: str = DEFAULT
    """The task, as `mast list` shows it, or path/to/file.py:TASK."""


@dataclass(frozen=True)
class PolicyBenchConfig(TaskBenchConfig):
    """What benchmarks of a policy share."""

    policy: Annotated[str, _UNSET] = ""
    """A MAST policy, by name or folder; unset: the task's mast-m, or an untrained one if none is shipped."""
    precision: Precision = "auto"
    """Arithmetic of the policy's products; auto: bf16 on a GPU, fp32 on the CPU."""

    def arithmetic(self, device: str) -> str:
        """fp32 or bf16, on a kind of device."""
        return precision_on(device, self.precision)

    def suffix(self, device: str) -> str:
        """What names of files end in: the arithmetic where it is not the usual one."""
        chosen = self.arithmetic(device)
        return "" if chosen == PolicyBenchConfig().arithmetic(device) else f"-{chosen}"


@dataclass(frozen=True)
class ScaleConfig(PolicyBenchConfig):
    """Time and memory of a closed-loop step against the size of the team."""

    teams: ClassVar[dict[str, tuple[int, ...]]] = {
        "cpu": (100, 300, 1_000, 3_000, 10_000, 20_000, 40_000),
        "cuda": (100, 300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000),
    }

    agents: Annotated[tuple[int, ...], _UNSET] = ()
    """Sizes of the team; unset: as many as the device does in a minute or two."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""
    out: Path = Path("runs/bench")
    """Folder for the files, which bear the machine's name; those that the docs show are in benchmarks/results."""

    def __post_init__(self) -> None:
        for agents in self.agents:
            if agents < 1:
                raise MastError(f"--agents has {agents}: give whole numbers from 1")

    def sizes(self, device: str) -> tuple[int, ...]:
        """The sizes to measure on a kind of device, ascending, each once."""
        return tuple(sorted(set(self.agents or self.teams[device])))


@dataclass(frozen=True)
class _TeamsConfig:
    """Several environments x robots, each measured."""

    teams: ClassVar[dict[str, tuple[str, ...]]]

    sizes: Annotated[tuple[str, ...], _PAIRS] = ()
    """Environments x robots of each measurement, as 100x1000; unset: chosen for the device."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""
    out: Path = Path("runs/bench")
    """Folder for the files, which bear the machine's name; those that the docs show are in benchmarks/results."""

    def __post_init__(self) -> None:
        self.pairs("cpu")

    def pairs(self, device: str) -> list[tuple[int, int]]:
        """(environments, robots) to measure on a kind of device."""
        return [_pair(word) for word in self.sizes or self.teams[device]]


def _pair(word: str) -> tuple[int, int]:
    parts = word.split("x")
    if len(parts) != 2 or not all(part.isdecimal() and int(part) > 0 for part in parts):
        raise MastError(f"--sizes has '{word}': give environments x robots, as 100x1000")
    return int(parts[0]), int(parts[1])


@dataclass(frozen=True)
class WorldBenchConfig(TaskBenchConfig, _TeamsConfig):
    """A step of the world alone: motion, observation and metrics, without a policy."""

    teams: ClassVar[dict[str, tuple[str, ...]]] = {
        "cpu": ("256x100", "1x1000", "1x10000", "1x100000"),
        "cuda": ("256x100", "4096x100", "1x10000", "1x100000", "1x1000000"),
    }

    def suffix(self, device: str) -> str:
        """As for benchmarks of a policy; a world has one arithmetic."""
        return ""


@dataclass(frozen=True)
class DecentralBenchConfig(PolicyBenchConfig, _TeamsConfig):
    """A step in which every robot decides alone, a message taking one control period per hop."""

    teams: ClassVar[dict[str, tuple[str, ...]]] = {
        "cpu": ("1x100", "9x100", "1x300", "1x1000"),
        "cuda": ("100x100", "1x1000", "1x10000"),
    }
    relay_radius: Annotated[float | Literal["auto"] | None, _UNSET, tyro.conf.DisallowNone] = None
    """Metres: robots neither keep nor pass on news from farther away; auto: as far as the policy looks, and what robots
    move meanwhile. Unset: from anywhere."""

    def suffix(self, device: str) -> str:
        """As for all benchmarks of a policy, and whether there is a relay radius."""
        return super().suffix(device) + ("" if self.relay_radius is None else "-near")
