"""B environments in fixed buffers on a device, driven by a policy: what training rolls out and validation measures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from mast_swarm.model.learned import Learned
from mast_swarm.model.policy import make as make_policy
from mast_swarm.train.config import MOST_ENVIRONMENTS, MOST_EPOCHS, TrainConfig
from mast_swarm.train.graphs import captured
from mast_swarm.world import coverage, navigation  # noqa: F401  they register their task
from mast_swarm.world.base import World
from mast_swarm.world.base import make as make_world

# Where the seeds of start states begin. Tests draw from below 2**40, so no policy has ever trained on a test's.
TRAINING_SEEDS = 2**40
VALIDATION_SEEDS = 2**50


def start_seeds(config: TrainConfig, epoch: int, environments: Iterable[int]) -> list[int]:
    """The seeds of an epoch's start states, one an environment (numbered over all processes).

    No two runs of different `seed`, epochs or environments share one: see the limits in train/config.py.
    """
    base = TRAINING_SEEDS + (config.seed * MOST_EPOCHS + epoch) * MOST_ENVIRONMENTS
    return [base + environment for environment in environments]


def validation_seeds(config: TrainConfig) -> list[int]:
    """The seeds of the validation start states, the same for all runs."""
    return [VALIDATION_SEEDS + episode for episode in range(config.validation)]


def world_of(config: TrainConfig, device: torch.device | str = "cpu") -> World:
    """The world of a run, on a device."""
    return make_world(config.world.task, config.world, device)


class Team:
    """The state lives in the same tensors for good, so that work on it can be captured as a CUDA graph."""

    def __init__(self, config: TrainConfig, policy: Learned, device: torch.device, count: int) -> None:
        self.config, self.policy, self.device, self.count = config, policy, device, count
        self.world = world_of(config, device)
        policy.enter(config.world.side)
        state, seen = example(config)

        def blank(like: Tensor) -> Tensor:
            return torch.zeros((count, *like.shape[1:]), dtype=like.dtype, device=device)

        self.state = type(state)(**{name: blank(value) for name, value in vars(state).items()})
        self.seen = {name: blank(value) for name, value in seen.items()}  # what the policy was given
        self.seeds = torch.zeros(count, dtype=torch.int64, device=device)  # of exploration
        self.landmark = torch.zeros_like(self.state.positions)
        self.command = torch.zeros_like(self.state.positions)  # what the policy wants, in units of u_max

    def load(self, fresh: Any, places: Tensor | None = None) -> None:
        """Put start states in place: in all environments, or in those that `places` [n] int64 names."""
        for name, ours in vars(self.state).items():
            if places is None:
                ours.copy_(getattr(fresh, name))
            else:
                ours.index_copy_(0, places.to(self.device), getattr(fresh, name).to(self.device))

    @torch.no_grad()
    def observe(self) -> Any:
        """Fills `seen`; gives the observation."""
        observation = self.world.observe(self.state)
        self.landmark.copy_(observation.landmark)
        seen = given(self.policy, self.world, self.state, observation)
        for name, buffer in self.seen.items():
            buffer.copy_(seen[name])
        return observation

    @torch.no_grad()
    def decide(self) -> None:
        """Fills `command` from what was seen."""
        half = self.config.precision == "bf16" and self.device.type == "cuda"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
            prediction = self.policy(**self.seen)
        self.command.copy_(self.commanded(prediction))

    def commanded(self, prediction: Tensor) -> Tensor:
        """What the robots do, given what the policy (or the expert in its place) predicts."""
        time = self.state.step * self.config.world.dt
        return self.policy.command(prediction, self.landmark, self.seeds, time)

    @torch.no_grad()
    def advance(self, command: Tensor) -> None:
        """One control period."""
        after = self.world.step(self.state, command)
        for name, ours in vars(self.state).items():
            ours.copy_(getattr(after, name))


def given(policy: Learned, world: World, state: Any, observation: Any) -> dict[str, Tensor]:
    """What a policy is given of an observation, by name, each [B, N, ...]."""
    directed, goals = getattr(world.config, "directed", False), getattr(state, "goals", None)
    return policy.inputs(observation, directed=directed, goals=goals)


def example(config: TrainConfig) -> tuple[Any, dict[str, Tensor]]:
    """The start state of one environment, and what a policy is given of it: for their shapes and types."""
    world = world_of(config)
    state = world.reset(start_seeds(config, 0, [0]))
    return state, given(make_policy(config.policy), world, state, world.observe(state))


class Validator:
    """The same start states after each epoch, driven by the policy alone."""

    def __init__(self, config: TrainConfig, policy: Learned, device: torch.device) -> None:
        self.config = config
        self.team = Team(config, policy, device, config.validation)
        seeds = validation_seeds(config)
        self.starts = self.team.world.reset(seeds)
        self.team.load(self.starts)
        self.team.seeds.copy_(torch.tensor(seeds))
        self._step = captured(self._forward, device)

    def _forward(self) -> None:
        self.team.observe()
        self.team.decide()
        self.team.advance(self.team.command)

    def headline(self) -> float:
        """Mean of the metric that says how well a policy does, at the end of the rollout."""
        self.team.load(self.starts)
        for _ in range(self.config.validation_steps):
            self._step()
        return float(self.team.world.metrics(self.team.state)[self.config.world.headline].mean())
