"""B environments in fixed buffers on a device, driven by a policy: what training rolls out and validation measures."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from mast_swarm.model.policy import Policy
from mast_swarm.space import components
from mast_swarm.train.config import MOST_ENVIRONMENTS, MOST_EPOCHS, TrainConfig
from mast_swarm.train.graphs import captured
from mast_swarm.world.navigation import Navigation, NavigationState

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


class Team:
    """The state lives in the same tensors for good, so that work on it can be captured as a CUDA graph."""

    def __init__(self, config: TrainConfig, policy: Policy, device: torch.device, count: int) -> None:
        self.config, self.policy, self.device, self.count = config, policy, device, count
        self.world = Navigation(config.world, device)
        n = config.world.agents
        zeros = torch.zeros((count, n, 2), device=device)
        self.state = self.world.state(zeros, zeros.clone())
        self.seeds = torch.zeros(count, dtype=torch.int64, device=device)  # of exploration
        self.landmark = torch.zeros_like(zeros)
        self.component = torch.zeros((count, n), dtype=torch.int64, device=device)
        self.goals_seen = torch.zeros((count, n, config.world.observed), dtype=torch.int64, device=device)
        self.command = torch.zeros_like(zeros)  # what the policy wants, in units of u_max
        self.seen = {
            name: torch.zeros((count, *shape), dtype=kind, device=device)
            for name, (shape, kind) in inputs(config).items()
        }

    def load(self, fresh: NavigationState, places: Tensor | None = None) -> None:
        """Put start states in place: in all environments, or in those that `places` [n] int64 names."""
        for name, ours in vars(self.state).items():
            if places is None:
                ours.copy_(getattr(fresh, name))
            else:
                ours.index_copy_(0, places.to(self.device), getattr(fresh, name).to(self.device))

    @torch.no_grad()
    def sense(self) -> None:
        """Observe and decide: fills `seen` (what the policy was given), what the expert may know, and `command`."""
        observation = self.world.observe(self.state)
        self.landmark.copy_(observation.landmark)
        self.goals_seen.copy_(observation.goals_seen)
        seen = self.policy.inputs(observation, directed=self.config.world.directed, goals=self.state.goals)
        for name, buffer in self.seen.items():
            buffer.copy_(seen[name])
        labels = seen.get("component")  # the expert's too, unless links are directed or the policy has no such mask
        self.component.copy_(components(observation.graph) if labels is None or labels.ndim == 3 else labels)
        half = self.config.precision == "bf16" and self.device.type == "cuda"
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=half):
            prediction = self.policy(**seen)
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


def inputs(config: TrainConfig) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """What the policy is given, for one environment: field -> shape, dtype."""
    n = config.world.agents
    fields: dict[str, tuple[tuple[int, ...], torch.dtype]] = {
        "features": ((n, config.world.observation_dim), torch.float32),
        "positions": ((n, 2), torch.float32),
    }
    if config.policy.component_mask and config.world.directed:  # who can be heard
        fields["component"] = ((n, n), torch.bool)
    elif config.policy.component_mask:
        fields["component"] = ((n,), torch.int16 if n < 2**15 else torch.int32)
    if config.policy.variant == "C":
        fields["goals"] = ((n, 2), torch.float32)
    return fields


class Validator:
    """The same start states after each epoch, driven by the policy alone."""

    def __init__(self, config: TrainConfig, policy: Policy, device: torch.device) -> None:
        self.config = config
        self.team = Team(config, policy, device, config.validation)
        seeds = validation_seeds(config)
        self.starts = Navigation(config.world).reset(seeds)
        self.team.load(self.starts)
        self.team.seeds.copy_(torch.tensor(seeds))
        self._step = captured(self._forward, device)

    def _forward(self) -> None:
        self.team.sense()
        self.team.advance(self.team.command)

    def success_rate(self) -> float:
        """Mean success rate at the end of the rollout."""
        self.team.load(self.starts)
        for _ in range(self.config.validation_steps):
            self._step()
        return float(self.team.world.metrics(self.team.state)["success_rate"].mean())
