"""Whom a policy imitates: what a policy is to predict in a state.

A teacher is an object with start() and label(state, component, goals_seen) -> [B, N, 2 or 3], as a prediction of the
policy: the command in units of u_max, and for a policy that explores the speed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor

from mast_swarm.controllers.navigation import Explorer, Lsap
from mast_swarm.train.config import TrainConfig
from mast_swarm.world.navigation import NavigationState


class Teacher(Protocol):
    def start(self) -> None: ...
    def label(self, state: NavigationState, component: Tensor, goals_seen: Tensor) -> Tensor: ...


class Clairvoyant:
    """The paper's expert, which sees everything."""

    def __init__(self, config: TrainConfig) -> None:
        self.expert = Lsap(dt=config.world.dt, max_speed=config.world.max_speed)
        self.explores = config.policy.exploration_time is not None

    def start(self) -> None:
        self.expert.start()

    def label(self, state: NavigationState, component: Tensor, goals_seen: Tensor) -> Tensor:
        command = self.expert.act(state)
        if not self.explores:
            return command
        return torch.cat((command, torch.linalg.vector_norm(command, dim=-1, keepdim=True)), dim=-1)


class Informed:
    """Knows what a robot's component knows and no more, so that a policy can learn to do the same."""

    def __init__(self, config: TrainConfig) -> None:
        self.expert = Explorer(dt=config.world.dt, max_speed=config.world.max_speed)
        self.explores = config.policy.exploration_time is not None

    def start(self) -> None:
        """Nothing is kept from step to step."""

    def label(self, state: NavigationState, component: Tensor, goals_seen: Tensor) -> Tensor:
        plan = self.expert.plan(state, component, goals_seen)
        return plan if self.explores else plan[..., :2]


TEACHERS: dict[str, Callable[[TrainConfig], Teacher]] = {"clairvoyant": Clairvoyant, "informed": Informed}
