"""Whom a policy imitates: what a policy is to predict in a state.

Teachers work on the CPU, where assignments and polygons are quick, while a GPU learns. What they need of the worlds is
little and is sent over at each step.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from mast_swarm.controllers import coverage, navigation
from mast_swarm.errors import unknown
from mast_swarm.space import components, radius_graph
from mast_swarm.train.config import TrainConfig


class Teacher(Protocol):
    """Made from a TrainConfig."""

    observes: ClassVar[bool]
    """Whether it must know what the robots sense; otherwise the state is enough."""

    def start(self) -> None:
        """Forget what is kept from step to step."""

    def asks(self, state: Any, observation: Any, seen: dict[str, Tensor]) -> dict[str, Tensor]:
        """What it must know, by name, each [B, ...]: found on the device, without waiting for it.

        observation: None where nobody has looked; seen: what the policy was given of it.
        """

    def label(self, told: dict[str, Tensor]) -> Tensor:
        """What the policy is to predict, [B, N, 2 or 3], from what was asked for, on the CPU: the command in units of
        u_max, not longer than `target_limit`, and for a policy that explores the speed."""


class Lsap:
    """Navigation's clairvoyant expert, the paper's: it sees every robot and goal."""

    observes: ClassVar[bool] = False

    def __init__(self, config: TrainConfig) -> None:
        self.expert, self.limit = _unhurried(navigation.Lsap, config), config.target_limit
        self.explores = config.policy.exploration_time is not None

    def start(self) -> None:
        self.expert.start()

    def asks(self, state: Any, observation: Any, seen: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"positions": state.positions, "goals": state.goals}

    def label(self, told: dict[str, Tensor]) -> Tensor:
        return _prediction(self.limit * self.expert.act(_as_object(told)), self.explores)


class Informed:
    """Knows what a robot's component knows and no more, so that a policy can learn to do the same. A policy without the
    component mask sees in training all that a chain of windows joins, and so does its teacher."""

    observes: ClassVar[bool] = True

    def __init__(self, config: TrainConfig) -> None:
        self.expert, self.limit = _unhurried(navigation.Explorer, config), config.target_limit
        self.explores = config.policy.exploration_time is not None
        self.window = config.policy.attention_radius

    def start(self) -> None:
        """Nothing is kept from step to step."""

    def asks(self, state: Any, observation: Any, seen: dict[str, Tensor]) -> dict[str, Tensor]:
        labels = seen.get("component")
        if labels is None and self.window is not None:
            labels = components(radius_graph(state.positions, self.window))
        elif labels is None or labels.ndim == 3:  # no mask of any kind, or of directed links
            labels = components(observation.graph)
        return {
            "positions": state.positions,
            "goals": state.goals,
            "component": labels,
            "goals_seen": observation.goals_seen,
        }

    def label(self, told: dict[str, Tensor]) -> Tensor:
        plan = self.limit * self.expert.plan(_as_object(told), told["component"], told["goals_seen"])
        return plan if self.explores else plan[..., :2]


class Cvt:
    """Coverage's clairvoyant expert: it knows the whole density. The world has its moments over every cell already."""

    observes: ClassVar[bool] = False

    def __init__(self, config: TrainConfig) -> None:
        self.expert, self.limit = _unhurried(coverage.Clairvoyant, config), config.target_limit
        self.explores = config.policy.exploration_time is not None
        self.world: Any = config.world

    def start(self) -> None:
        """Nothing is kept from step to step."""

    def asks(self, state: Any, observation: Any, seen: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"positions": state.positions, "moments": state.moments}

    def label(self, told: dict[str, Tensor]) -> Tensor:
        cells = self.world.cells
        size = torch.empty((0, cells, cells))  # of the density it asks no more than how large it is
        state, scales = _as_object({**told, "density": size}), _as_object({"resolution": self.world.resolution})
        return _prediction(self.limit * self.expert.act(state, scales), self.explores)


TEACHERS: dict[str, dict[str, Any]] = {
    "navigation": {"clairvoyant": Lsap, "informed": Informed},
    "coverage": {"clairvoyant": Cvt},
}


def make_teacher(config: TrainConfig) -> Teacher:
    """The expert of a run."""
    found = TEACHERS[config.world.task]
    if config.expert not in found:
        raise unknown("expert", config.expert, found)
    return found[config.expert](config)


def _unhurried(controller: Any, config: TrainConfig) -> Any:
    """A controller whose commands, times `target_limit`, are in units of the world's u_max and as long as that at most:
    it believes that robots are so many times as fast."""
    return controller(dt=config.world.dt, max_speed=config.target_limit * config.world.max_speed)


def _prediction(command: Tensor, explores: bool) -> Tensor:
    """A command [B, N, 2] as the policy predicts it: with its length where the policy explores."""
    if not explores:
        return command
    return torch.cat((command, torch.linalg.vector_norm(command, dim=-1, keepdim=True)), dim=-1)


def _as_object(fields: dict[str, Any]) -> Any:
    """What a controller reads of a state or an observation."""
    return SimpleNamespace(**fields)
