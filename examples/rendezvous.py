"""Rendezvous: robots that hear only those nearby come together in one place. A task of your own in one file.

mast check examples/rendezvous.py:TASK
mast evaluate examples/rendezvous.py:TASK --policy to_the_middle to_those_heard --record 1
mast train examples/rendezvous.py:TASK --out runs/rendezvous
mast evaluate examples/rendezvous.py:TASK --policy runs/rendezvous/best to_those_heard --delay 1
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

import mast_swarm


@dataclass(frozen=True)
class Config(mast_swarm.WorldConfig):
    """Robots meet. They start anywhere in the square."""

    agents: int = 16
    """Number of robots."""
    reach: float = 160.0
    """A robot hears those nearer than this, m."""
    observed: int = 3
    """How many of the nearest robots a robot senses."""


@dataclass(frozen=True, kw_only=True)
class State(mast_swarm.State):
    """Where robots are (positions, step), and what they did last."""

    velocity: Tensor  # [B, N, 2] in units of max_speed


class Rendezvous(mast_swarm.World[Config, State]):
    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        """One environment: robots [N, 2], metres."""
        half = self.config.side / 2
        return (np.random.default_rng(seed).uniform(-half, half, (self.config.agents, 2)).astype(np.float32),)

    def begin(self, *drawn: Tensor) -> State:
        positions = drawn[0].to(self.device)  # [B, N, 2]
        step = torch.zeros(len(positions), dtype=torch.int64, device=self.device)
        return State(positions=positions, step=step, velocity=torch.zeros_like(positions))

    def observe(self, state: State) -> mast_swarm.Observation:
        """A robot senses its last command and the nearest robots, relative to itself."""
        away, found = mast_swarm.nearest(state.positions, state.positions, self.config.observed, exclude_self=True)
        near = mast_swarm.offsets(state.positions, state.positions, found) / self.config.reach  # [B, N, K, 2]
        near = torch.where(away[..., None] < self.config.reach, near, 0.0)  # those too far are not sensed
        return mast_swarm.Observation(
            features=torch.cat([state.velocity, near.flatten(2)], dim=-1),
            positions=state.positions,
            graph=mast_swarm.radius_graph(state.positions, self.config.reach),
        )

    def step(self, state: State, command: Tensor) -> State:
        velocity, moved = self.moved(state, command)
        return replace(state, positions=state.positions + moved, step=state.step + 1, velocity=velocity)

    def metrics(self, state: State) -> dict[str, Tensor]:
        middle = state.positions.mean(dim=1, keepdim=True)
        return {"spread": (state.positions - middle).norm(dim=-1).mean(dim=1)}


def to_the_middle(state: State, observation: mast_swarm.Observation) -> Tensor:
    """The expert: straight to the middle of the whole team, slower over the last 10 m."""
    return (state.positions.mean(dim=1, keepdim=True) - state.positions) / 10.0


def to_those_heard(state: State, observation: mast_swarm.Observation) -> Tensor:
    """What a robot can do that sees no farther than its neighbours: to the middle of those it hears."""
    hears = observation.graph.adjacency().to(state.positions.dtype)  # [B, N, N]
    hears = hears + torch.eye(hears.shape[-1], device=hears.device)
    return (hears @ state.positions / hears.sum(-1, keepdim=True) - state.positions) / 10.0


TASK = mast_swarm.Task(
    "rendezvous",
    Config,
    Rendezvous,
    metric=mast_swarm.Metric("spread", unit="m", lower_is_better=True, limits=(0.0, float("inf")), digits=1),
    controllers={"to_the_middle": to_the_middle, "to_those_heard": to_those_heard},
    expert="to_the_middle",
    episodes=32,
    steps=60,
)
