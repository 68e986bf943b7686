"""Whom a policy imitates: any controller, asked in every state that is kept.

Controllers that say what they read (`reads`) work on the CPU, where assignments and polygons are quick, while a GPU
learns: what they read is sent over at each step. Others are asked where the worlds are.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from mast_swarm.errors import MastError, unknown
from mast_swarm.model.config import ModelConfig
from mast_swarm.observation import Observed
from mast_swarm.space import components, radius_graph
from mast_swarm.tasks.base import Controller, FunctionController
from mast_swarm.tasks.registry import task_of
from mast_swarm.tasks.world import State, World, checked_command, limited
from mast_swarm.train import memory
from mast_swarm.train.config import TrainConfig


class Teacher:
    """The expert of a run: what the policy is to predict in a state."""

    def __init__(
        self,
        config: TrainConfig,
        world: World[Any, Any],
        state: State,
        observation: Observed,
        given: dict[str, Tensor],
    ) -> None:
        """state, observation and what a policy is given of it: one example of each."""
        self.config, self.world, self.limit, self.task = config, world, config.target_limit, task_of(config.world)
        self.expert = expert_of(config)
        self.reads: tuple[str, ...] | None = getattr(self.expert, "reads", None)
        self.explores = config.policy.exploration_time is not None
        # Whether it must know what the robots sense. Where the state is enough, those whom nobody keeps need not sense.
        self.observes = self.reads is None or any(not hasattr(state, name) for name in self.reads)
        told = vars(observation).items()
        self.scales = {name: value for name, value in told if isinstance(value, int | float)}  # the same in every state
        self.asks(state, observation, given)  # what cannot be answered is refused before anything is written

    def start(self, seeds: Sequence[int]) -> None:
        """Forget what is kept from step to step; one seed per environment."""
        self.expert.start(seeds)

    def kept(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """What the expert keeps from step to step; raises `memory.Unkept` where no file can hold it."""
        return memory.keep(self.expert)

    def restore(self, kept: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Take up what `kept()` gave."""
        memory.give_back(self.expert, kept, tensors)

    def asks(self, state: State, observation: Observed | None, given: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the expert reads, by name, each [B, ...]: found on the device, without waiting for it.

        observation: None where nobody has looked; given: what the policy was given of it.
        """
        found: dict[str, Tensor] = {}
        for name in self.reads or ():
            if name == "component" and observation is not None:
                found[name] = thinks_as_one(self.config.policy, observation, given)
            else:
                found[name] = getattr(state if hasattr(state, name) else observation, name)
        return found

    def label(self, told: dict[str, Tensor], state: State) -> Tensor:
        """What the policy is to predict, [B, N, 2 or 3]: the command in units of u_max, not longer than `target_limit`,
        and for a policy that explores the speed. told: what was asked for, on the CPU, of all environments or of some;
        state: where it was asked."""
        shown: Any = SimpleNamespace(**told, **self.scales)
        seen: Any = shown
        if self.reads is None:
            shown, seen = state, self.world.observe(state)
        if hasattr(self.expert, "plan"):
            takes = "component" in told and "component" in inspect.signature(self.expert.plan).parameters
            plan = self.limit * self.expert.plan(shown, seen, **({"component": told["component"]} if takes else {}))
            return plan if self.explores else plan[..., :2]
        batch = len(next(iter(told.values()))) if told else len(state.positions)
        command = self.limit * checked_command(self.expert.act(shown, seen), (batch, *state.positions.shape[1:]))
        if isinstance(self.expert, FunctionController):  # which knows no limit
            command = limited(command)
        if not self.explores:
            return command
        return torch.cat((command, torch.linalg.vector_norm(command, dim=-1, keepdim=True)), dim=-1)


def expert_of(config: TrainConfig) -> Controller:
    """The controller that a run imitates. For targets longer than u_max it believes that robots are so many times as
    fast: its commands times `target_limit` are then in units of the world's u_max, and at most so long."""
    task, world, limit = task_of(config.world), config.world, config.target_limit
    wanted = config.expert or task.expert
    if wanted is None:
        known = f"give --expert one of {', '.join(task.controllers)}" if task.controllers else "declare one"
        raise MastError(f"task {task.name} has no expert: {known}")
    found = task.controller(task.experts.get(wanted, wanted))
    if found is None:
        raise unknown("expert", wanted, [*task.experts, *task.controllers])
    expert = found(dt=world.dt, max_speed=limit * world.max_speed, config=world)
    if hasattr(expert, "tell"):
        raise MastError(f"expert '{wanted}' acts on late news, labels are for one instant: give another --expert")
    if limit != 1 and isinstance(expert, FunctionController):
        raise MastError(f"--target-limit {limit:g}: expert '{wanted}' is a function and knows no limit; leave it out")
    if limit != 1 and getattr(expert, "parting", (0.0,))[0]:
        raise MastError(
            f"--target-limit {limit:g}: robots without a goal, which expert '{wanted}' moves too, know no limit; leave "
            "it out"
        )
    return expert


def thinks_as_one(policy: ModelConfig, observation: Observed, given: dict[str, Tensor]) -> Tensor:
    """The lowest robot of those whose information a policy shares in training, for each robot, [B, N] int64.

    A policy with the component mask shares what a component knows. One without shares what a chain of its windows
    joins, or everything if it has no window.
    """
    labels = given.get("component")
    if labels is not None or not hasattr(policy, "component_mask"):
        if observation.graph.directed:
            raise MastError(
                "an expert that knows what a robot's component knows needs links that carry both ways: leave "
                "--directed away, or take another --expert"
            )
        return components(observation.graph) if labels is None else labels
    if policy.attention_radius is None:
        return torch.zeros_like(observation.positions[..., 0], dtype=torch.int64)
    return components(radius_graph(observation.positions, policy.attention_radius))
