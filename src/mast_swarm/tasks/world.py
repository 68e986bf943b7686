"""The world of a task: explicit state in, explicit state out, and what each robot senses.

Symbols: B environments, N robots.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.kernels import on_gpu
from mast_swarm.observation import Observed
from mast_swarm.space.apart import keep_apart
from mast_swarm.tasks.base import WorldConfig


@dataclass(frozen=True, kw_only=True)
class State:
    """What every state has. A world's own state extends it by further tensors [B, ...] and is a value: no step changes
    one, and a world keeps nothing between calls."""

    positions: Tensor  # [B, N, 2] metres
    step: Tensor  # [B] int64, control periods since the start


class Unlike(MastError, RuntimeError):  # the second is what work ends with that cannot be captured
    """A step gives a state of other types or shapes than it was given."""


def overwrite(state: State, after: State) -> None:
    """What `after` has goes into the tensors of `state`, which are of one type and shape for good. Of these it may have
    some itself, under other names: a world may remember where robots were."""
    for name, part in vars(state).items():
        before, now = (f"{one.dtype} {list(one.shape)}" for one in (part, getattr(after, name)))
        if before != now:
            raise Unlike(f"{name} of the state was {before} and is {now} after a step: keep type and shape")
    held = {part.untyped_storage().data_ptr() for part in vars(state).values()}
    new = {name: part for name, part in vars(after).items() if part is not getattr(state, name)}
    new = {name: part.clone() if part.untyped_storage().data_ptr() in held else part for name, part in new.items()}
    for name, part in new.items():
        getattr(state, name).copy_(part)


ConfigT = TypeVar("ConfigT", bound=WorldConfig)
StateT = TypeVar("StateT", bound=State)


class World(ABC, Generic[ConfigT, StateT]):
    """A world says how environments start, what robots sense, how they move and what is measured: five methods. All
    else here has a default."""

    drawers: ClassVar[int] = 1
    """Start states that are drawn at a time. Threads help where `draw` spends its time in numpy on large arrays; where
    it runs Python they only keep others, such as a training beside them, from running."""

    def __init__(self, config: ConfigT, device: torch.device | str = "cpu") -> None:
        self.config = config
        self.device = torch.device(device)

    @abstractmethod
    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        """What chance decides of one environment's start: arrays that depend on the seed and the scenario alone.

        For example robots [N, 2] and goals [M, 2]. Every environment has its own seed, so that the same start state
        can be given to every policy, in any batch and on any device.
        """

    @abstractmethod
    def begin(self, *drawn: Tensor) -> StateT:
        """The start state of what `draw` gave: each array of B environments as one tensor [B, ...] on the CPU."""

    @abstractmethod
    def observe(self, state: StateT) -> Observed:
        """What each robot senses, and who hears whom."""

    @abstractmethod
    def step(self, state: StateT, command: Tensor) -> StateT:
        """The state one control period later; command [B, N, 2] in units of max_speed. `moved` limits it."""

    def advance(self, state: StateT, command: Tensor) -> None:
        """As `step`, but in place: what it gives is in the tensors of `state` afterwards. For those who alone use them,
        as training does; a world may spare them copies of what is large and hardly changes."""
        overwrite(state, self.step(state, command))

    @abstractmethod
    def metrics(self, state: StateT) -> Mapping[str, Tensor]:
        """Named numbers of the state, each [B]."""

    # Start states.

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.config.task

    def reset(self, seeds: Sequence[int], scenarios: Sequence[str] | None = None) -> StateT:
        """Start states, one environment per seed; scenarios: one per seed where they differ."""
        return self.begin(*self.draw_all(seeds, scenarios))

    def draw_all(self, seeds: Sequence[int], scenarios: Sequence[str] | None = None) -> tuple[Tensor, ...]:
        """What `draw` gives for each seed, as tensors [B, ...] on the CPU."""
        names = [self.config.scenario] * len(seeds) if scenarios is None else list(scenarios)
        if not len(seeds) or len(names) != len(seeds):
            raise MastError(f"{len(names)} scenarios for {len(seeds)} seeds: give one per seed, and one seed or more")
        for seed in seeds:
            if seed < 0:
                raise MastError(f"seed is {seed}: give a whole number, 0 or more")
        first = tuple(np.asarray(part) for part in self.draw(int(seeds[0]), names[0]))
        drawn = tuple(np.empty((len(seeds), *part.shape), part.dtype) for part in first)

        def fill(number: int) -> None:
            made = first if number == 0 else self.draw(int(seeds[number]), names[number])
            expected, found = _kinds(first), _kinds(made)
            if expected != found:
                raise MastError(
                    f"draw gives {expected} for seed {seeds[0]} and {found} for seed {seeds[number]}: environments of "
                    "one batch are alike"
                )
            for all_of_it, part in zip(drawn, made, strict=True):
                all_of_it[number] = part

        threads = min(self.drawers, len(seeds))
        if threads == 1:
            for number in range(len(seeds)):
                fill(number)
        else:
            with ThreadPoolExecutor(threads) as pool:
                list(pool.map(fill, range(len(seeds))))
        return tuple(torch.from_numpy(part) for part in drawn)

    # Motion.

    def moved(self, state: StateT, command: Tensor) -> tuple[Tensor, Tensor]:
        """The command as robots can follow it, and how far that takes them in one control period (m): [B, N, 2] each.

        First-order motion, p <- p + u dt (Eq. 4). A command of the wrong shape, or not finite, is an error.
        """
        command = self._followed(state, command)
        return command, command * (self.config.max_speed * self.config.dt)

    def kept_apart(self, state: StateT, command: Tensor) -> Tensor:
        """The command [B, N, 2] that robots follow in place of this one so that none hits another: the safety layer,
        which every robot runs by itself (`space.apart`, docs/safety.md)."""
        radius = getattr(self.config, "robot_radius", None)
        if radius is None:
            raise MastError(f"{self.task} does not say how large robots are: the safety layer needs a robot_radius")
        longest = self.config.max_speed * self.config.dt
        wanted = self._followed(state, command) * longest
        return keep_apart(state.positions, wanted, 2 * radius, longest) / longest

    def _followed(self, state: StateT, command: Tensor) -> Tensor:
        """The command as robots can follow it, in the precision of the world whatever that of the policy is."""
        checked = checked_command(command, tuple(state.positions.shape))
        return limited(checked.to(state.positions.dtype))

    # Learning.

    def shown(self, observation: Observed, shape: tuple[int, ...]) -> Observed:
        """The observation with features of the shape that a policy takes, which `config.shows`."""
        return observation

    def weights(self, state: StateT) -> Tensor:
        """How much of the task rests on each robot where it is now, [B, N], 1 on average (--weighted)."""
        raise MastError(f"{self.task} has no weights for --weighted: leave it out")

    def mirrored(self, sample: dict[str, Tensor], how: Tensor) -> dict[str, Tensor]:
        """Samples for learning, features packed, as if the world lay otherwise (--mirrored): how [B] int64, 0 to 7, one
        of the ways in which a square fits on itself, 0 as it is."""
        raise MastError(f"{self.task} has no mirror images for --mirrored: leave it out")

    def pack(self, features: Tensor) -> Tensor:
        """Features [B, N, ...] as training keeps very many of them. A world may leave out what positions tell."""
        return features

    def unpack(self, packed: Tensor, positions: Tensor) -> Tensor:
        """The features that were packed, but for rounding; positions [B, N, 2] metres of the robots that sensed."""
        return packed

    # Recordings.

    def frame(self, state: StateT, observation: Observed) -> Mapping[str, Tensor]:
        """What a recording keeps of every instant besides the robots' positions, each [B, ...].

        links: [B, N, ceil(N / 8)] uint8, who hears whom, a bit per pair; element i's bit j says that i hears j.
        """
        return {"links": packed_bits(observation.graph.adjacency())}

    def scene(self, state: StateT, track: Tensor) -> Mapping[str, Tensor]:
        """What a recording keeps once, each [R, ...], of the first R environments.

        state: the last one; track: [R, T+1, N, 2] metres on the CPU, where the robots were at every instant.
        """
        return {}


def _kinds(arrays: Sequence[np.ndarray]) -> str:
    return ", ".join(f"{part.dtype} {list(part.shape)}" for part in map(np.asarray, arrays))


def packed_bits(mask: Tensor) -> Tensor:
    """[..., N] bool -> [..., ceil(N / 8)] uint8; bit j % 8 of byte j // 8 is element j."""
    room = -mask.shape[-1] % 8
    bits = torch.nn.functional.pad(mask.to(torch.uint8), (0, room)).unflatten(-1, (-1, 8))
    weights = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=mask.device)
    return (bits * weights).sum(-1, dtype=torch.uint8)


def limited(command: Tensor) -> Tensor:
    """A command longer than 1 is scaled back to length 1, not clipped per axis. [..., 2] -> [..., 2]"""
    length = torch.linalg.vector_norm(command, dim=-1, keepdim=True)
    return command / length.clamp_min(1.0)


def checked_command(command: Tensor, expected: tuple[int, ...]) -> Tensor:
    """The command itself if its shape is right and (on the CPU, where asking is free) it is finite."""
    if not isinstance(command, Tensor):
        advice = "; torch.from_numpy makes one of an array" if isinstance(command, np.ndarray) else ""
        raise MastError(f"command is {type(command).__name__}: expected a torch tensor {list(expected)}{advice}")
    if tuple(command.shape) != expected:
        raise MastError(f"command has shape {list(command.shape)}: expected {list(expected)} (environments, robots, 2)")
    if command.device.type == "cpu" and not on_gpu(command) and not bool(torch.isfinite(command).all()):
        environment, robot = torch.nonzero(~torch.isfinite(command).all(-1))[0].tolist()
        raise MastError(f"command of robot {robot} in environment {environment} is not finite: check the policy")
    return command
