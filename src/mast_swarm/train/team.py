"""B environments in fixed buffers on a device, driven by a policy: what training rolls out and validation measures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import Central
from mast_swarm.evaluate.graphs import captured
from mast_swarm.evaluate.loop import Loop
from mast_swarm.model.learned import Learned
from mast_swarm.model.policy import make as make_policy
from mast_swarm.model.windowed import DENSE
from mast_swarm.observation import Observed
from mast_swarm.tasks.registry import task_of
from mast_swarm.tasks.world import State, World
from mast_swarm.train.config import MOST_ENVIRONMENTS, MOST_EPOCHS, TrainConfig
from mast_swarm.train.optimiser import alike, in_half

# Where the seeds of start states begin. Tests draw from below 2**40, so no policy has ever trained on a test's.
TRAINING_SEEDS = 2**40
VALIDATION_SEEDS = 2**50


def start_seeds(config: TrainConfig, epoch: int, environments: Iterable[int]) -> list[int]:
    """The seeds of an epoch's start states, one per environment (numbered over all processes).

    No two runs of different `seed`, epochs or environments share one: see the limits in train/config.py.
    """
    base = TRAINING_SEEDS + (config.seed * MOST_EPOCHS + epoch) * MOST_ENVIRONMENTS
    return [base + environment for environment in environments]


def start_scenarios(config: TrainConfig, seeds: Sequence[int]) -> list[str]:
    """How the start states of training with these seeds start."""
    names = config.scenarios or (config.world.scenario,)
    return [names[seed % len(names)] for seed in seeds]


def validation_seeds(config: TrainConfig) -> list[int]:
    """The seeds of the validation start states, the same for all runs."""
    return [VALIDATION_SEEDS + episode for episode in range(config.validation)]


def world_of(config: TrainConfig, device: torch.device | str = "cpu") -> World[Any, Any]:
    """The world of a run, on a device."""
    return task_of(config.world).make(config.world, device)


def in_half_precision(config: TrainConfig, device: torch.device) -> bool:
    """Whether products are taken in half precision there."""
    return config.precision == "bf16" and device.type == "cuda"


class Team(Loop):
    """A loop whose state lives in the same tensors for good, so that work on it can be captured as a CUDA graph."""

    actor: Central

    def __init__(self, config: TrainConfig, policy: Learned, device: torch.device, count: int) -> None:
        most = DENSE["cuda"]
        if device.type == "cuda" and config.world.agents > most and config.policy.attention_radius is not None:
            raise MastError(
                f"training on a GPU takes teams of up to {most:,} robots, whose windows are masks of all pairs, and "
                f"--agents is {config.world.agents:,}: train a smaller team (the policy runs in any), or --device cpu"
            )
        world, half = world_of(config, device), in_half_precision(config, device)
        super().__init__(world, Central(policy, world), precision="bf16" if half else "fp32")
        self.config, self.policy, self.device, self.count = config, policy, device, count
        state, _, given = example(config)

        def blank(like: Tensor) -> Tensor:
            return torch.zeros((count, *like.shape[1:]), dtype=like.dtype, device=device)

        self.state = type(state)(**{name: blank(value) for name, value in vars(state).items()})
        self.given = {name: blank(value) for name, value in given.items()}  # what the policy was given
        self.seeds = torch.zeros(count, dtype=torch.int64, device=device)  # of exploration
        self.actor.seeds = self.seeds
        self.landmark = torch.zeros_like(self.state.positions)
        self.command = torch.zeros_like(self.state.positions)  # what the policy wants, in units of u_max

    def put(self, fresh: State, places: Tensor | None = None) -> None:
        """Put start states in place: in all environments, or in those that `places` [n] int64 names."""
        for name, ours in vars(self.state).items():
            if places is None:
                ours.copy_(getattr(fresh, name))
            else:
                ours.index_copy_(0, places.to(self.device), getattr(fresh, name).to(self.device))

    @torch.no_grad()
    def sense(self) -> Observed:
        """Fills `given` and `landmark` too."""
        observation = super().sense()
        self.landmark.copy_(observation.landmark)
        given = self.actor.given(observation)
        for name, buffer in self.given.items():
            buffer.copy_(given[name])
        return observation

    @torch.no_grad()
    def decide(self) -> Tensor:
        """Fills `command` from what the policy was given."""
        with self.autocast():
            prediction = self.actor.predict(self.given)
        return self.command.copy_(self.commanded(prediction))

    def commanded(self, prediction: Tensor) -> Tensor:
        """What the robots do, given what the policy (or the expert in its place) predicts."""
        return self.actor.command(prediction, self.landmark, self.state.step)

    @torch.no_grad()
    def move(self, command: Tensor) -> None:
        """One control period, in place."""
        self.world.advance(self.state, command)


def copied(state: State, copies: int) -> State:
    """A state with all its environments so many times, one copy after the other."""
    if copies == 1:
        return state
    return type(state)(**{name: value.repeat(copies, *[1] * (value.ndim - 1)) for name, value in vars(state).items()})


def example(config: TrainConfig) -> tuple[State, Observed, dict[str, Tensor]]:
    """The start state of one environment, what robots sense in it, and what a policy is given of that: for their shapes
    and types."""
    world = world_of(config)
    state = world.reset(start_seeds(config, 0, [0]))
    observation = world.observe(state)
    return state, observation, Central(make_policy(config.policy), world).given(observation)


class Validator:
    """The same start states after each epoch, driven by the policy alone."""

    def __init__(
        self,
        config: TrainConfig,
        policy: Learned,
        device: torch.device,
        stop: Callable[[], bool] = lambda: False,
        copies: int = 1,
    ) -> None:
        """stop: is asked after every step; copies: each start state is there so many times, once for each member of a
        family."""
        self.config, self.stop, self.copies = config, stop, copies
        self.driver = in_half(policy, torch.bfloat16) if in_half_precision(config, device) else policy
        self._handed = alike(None if self.driver is policy else self.driver, policy)
        self.team = Team(config, self.driver, device, copies * config.validation)
        seeds = validation_seeds(config)
        self.starts = copied(self.team.world.reset(seeds), copies)
        self.team.put(self.starts)
        self.team.seeds.copy_(torch.tensor(seeds).repeat(copies))
        self._step = captured(self.team.step, device)

    def headlines(self) -> list[float] | None:
        """Mean of the metric that says how well a policy does, at the end of the rollout, for each copy; None if it was
        stopped."""
        self.team.put(self.starts)
        if self._handed[0]:
            with torch.no_grad():
                torch._foreach_copy_(*self._handed)
        for _ in range(self.config.validation_steps):
            self._step()
            if self.stop():
                return None
        found = self.team.world.metrics(self.team.state)[task_of(self.config.world).metric.name]
        return found.view(self.copies, -1).mean(1).tolist()
