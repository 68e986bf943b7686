"""What every task offers: explicit state in, explicit state out, and what each robot senses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from mast_swarm.errors import MastError, unknown
from mast_swarm.space import Graph


class Observation(Protocol):
    """What the robots of B environments sense at one control instant."""

    @property
    def features(self) -> Tensor: ...  # [B, N, ...] what perception eats
    @property
    def positions(self) -> Tensor: ...  # [B, N, 2] metres; a robot knows where it is
    @property
    def graph(self) -> Graph: ...  # who hears whom now
    @property
    def landmark(self) -> Tensor: ...  # [B, N, 2] metres, relative: the nearest thing of interest that each senses


class Start(Protocol):
    """A registered way in which environments start."""

    @property
    def usage(self) -> str: ...  # as on the command line, with capitals for what is to be filled in
    @property
    def summary(self) -> str: ...


class World(Protocol):
    """A task. State is a frozen dataclass of tensors [B, N, ...]; a world keeps nothing between calls."""

    task: ClassVar[str]
    starts: ClassVar[tuple[str, Callable[[], Sequence[Start]]]]  # what lists call the ways to start, and all of them
    config: Any
    device: torch.device

    def reset(self, seeds: Sequence[int], scenarios: Sequence[str] | None = None) -> Any:
        """Start states, one environment a seed; the state of a seed does not depend on the others."""

    def draw(self, seeds: Sequence[int], scenarios: Sequence[str] | None = None) -> tuple[Tensor, ...]:
        """What chance decides of start states, on the CPU: little to move to a device."""

    def begin(self, *drawn: Tensor) -> Any:
        """The start states of what `draw` gave, on the world's device. Both together are `reset`."""

    def observe(self, state: Any) -> Any:
        """An Observation of the state."""

    def step(self, state: Any, command: Tensor) -> Any:
        """The state one control period later; command [B, N, 2] in units of u_max."""

    def metrics(self, state: Any) -> Mapping[str, Tensor]:
        """Named numbers of the state, each [B]."""

    def weights(self, state: Any) -> Tensor:
        """How much of the task rests on each robot where it is now, [B, N], 1 on average. Where `config.trains` has
        weighted."""

    def mirrored(self, sample: dict[str, Tensor], how: Tensor) -> dict[str, Tensor]:
        """Samples for learning, features packed, as if the world lay otherwise: how [B] int64, 0 to 7, one of the ways
        in which a square fits on itself, 0 as it is. Where `config.trains` has mirrored."""

    def pack(self, features: Tensor) -> Tensor:
        """Features [B, N, ...] as training keeps very many of them: small, without what positions tell anyway."""

    def unpack(self, packed: Tensor, positions: Tensor) -> Tensor:
        """The features that were packed, but for rounding; positions [B, N, 2] metres of the robots that sensed."""

    def frame(self, state: Any, observation: Any) -> Mapping[str, Tensor]:
        """What a recording keeps of every instant besides the robots' positions, each [B, ...]."""

    def scene(self, state: Any, track: Tensor) -> Mapping[str, Tensor]:
        """What a recording keeps once, each [R, ...], of the first R environments.

        state: the last one; track: [R, T+1, N, 2] metres on the CPU, where the robots were at every instant.
        """


_WORLDS: dict[str, Any] = {}


def task(cls: Any) -> Any:
    """Class decorator: registers a world under its `task` name."""
    _WORLDS[cls.task] = cls
    return cls


def tasks() -> list[str]:
    """Names of the registered tasks."""
    return sorted(_WORLDS)


def find(name: str) -> Any:
    """The class of a task's world by name."""
    if name not in _WORLDS:
        raise unknown("task", name, _WORLDS)
    return _WORLDS[name]


def make(name: str, *args: Any, **kwargs: Any) -> World:
    """The world of a task by name."""
    return find(name)(*args, **kwargs)


def limited(command: Tensor) -> Tensor:
    """A command longer than 1 is scaled back to length 1, not clipped per axis. [..., 2] -> [..., 2]"""
    length = torch.linalg.vector_norm(command, dim=-1, keepdim=True)
    return command / length.clamp_min(1.0)


def checked_command(command: Tensor, expected: tuple[int, ...]) -> Tensor:
    """The command itself if its shape is right and (on the CPU, where asking is free) it is finite."""
    if tuple(command.shape) != expected:
        raise MastError(f"command has shape {list(command.shape)}: expected {list(expected)} (environments, robots, 2)")
    if command.device.type == "cpu" and not bool(torch.isfinite(command).all()):
        environment, robot = torch.nonzero(~torch.isfinite(command).all(-1))[0].tolist()
        raise MastError(f"command of robot {robot} in environment {environment} is not finite: check the policy")
    return command
