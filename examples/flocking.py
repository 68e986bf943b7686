"""Flocking: robots that hear only those nearby agree on one heading and keep their distance. A task in one file.

mast check examples/flocking.py:TASK
mast evaluate examples/flocking.py:TASK --policy flock boids --record 1
mast train examples/flocking.py:TASK --out runs/flocking
mast evaluate examples/flocking.py:TASK --policy runs/flocking/best boids --delay 0.5
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

import mast_swarm

SPACING = 30.0  # m, the distance that robots like to keep


@dataclass(frozen=True)
class Config(mast_swarm.WorldConfig):
    """Robots start with headings of their own; commands are taken up slowly, as by something that has mass."""

    agents: int = 24
    """Number of robots."""
    dt: float = 0.5
    """Seconds between two control instants."""
    side: float = 250.0
    """Side of the square where they start, m."""
    reach: float = 80.0
    """A robot hears and senses those nearer than this, m."""
    inertia: float = 0.7
    """Share of its velocity that a robot keeps in a control period."""


@dataclass(frozen=True, kw_only=True)
class State(mast_swarm.State):
    """Where robots are (positions, step), and how they move."""

    velocity: Tensor  # [B, N, 2] in units of max_speed


class Flocking(mast_swarm.World[Config, State]):
    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        """One environment: positions [N, 2] in metres and velocities [N, 2]."""
        chance, half = np.random.default_rng(seed), self.config.side / 2
        angle = chance.uniform(0, 2 * np.pi, self.config.agents)
        places = chance.uniform(-half, half, (self.config.agents, 2))
        return places.astype(np.float32), np.stack([np.cos(angle), np.sin(angle)], axis=1).astype(np.float32)

    def begin(self, *drawn: Tensor) -> State:
        positions, velocity = (part.to(self.device) for part in drawn)
        step = torch.zeros(len(positions), dtype=torch.int64, device=self.device)
        return State(positions=positions, step=step, velocity=velocity)

    def observe(self, state: State) -> mast_swarm.Observation:
        """A robot senses its velocity, how the robots in reach move on average, and where they push it."""
        graph = mast_swarm.radius_graph(state.positions, self.config.reach)
        features = torch.cat([state.velocity, *_neighbours(state, graph.adjacency())], dim=-1)
        return mast_swarm.Observation(features=features, positions=state.positions, graph=graph)

    def step(self, state: State, command: Tensor) -> State:
        command, _ = self.moved(state, command)
        velocity = torch.lerp(command, state.velocity, self.config.inertia)
        positions = state.positions + velocity * (self.config.max_speed * self.config.dt)
        return replace(state, positions=positions, step=state.step + 1, velocity=velocity)

    def metrics(self, state: State) -> dict[str, Tensor]:
        mean = state.velocity.mean(dim=1, keepdim=True)
        apart, _ = mast_swarm.nearest(state.positions, state.positions, 1, exclude_self=True)
        return {"disagreement": (state.velocity - mean).norm(dim=-1).mean(dim=1), "nearest": apart[..., 0].mean(dim=1)}


def _neighbours(state: State, among: Tensor) -> tuple[Tensor, Tensor]:
    """Of the robots in `among` [B, N, N] bool: their mean velocity, and a push that keeps robots SPACING apart."""
    others = (among & ~torch.eye(among.shape[-1], dtype=torch.bool, device=among.device)).to(state.velocity.dtype)
    count = others.sum(-1, keepdim=True).clamp(min=1)  # [B, N, 1]
    way = state.positions[:, None] - state.positions[:, :, None]  # [b, i, j]: from i to j
    away = way.norm(dim=-1).clamp(min=1.0)
    pull = others * (1 - SPACING / away).clamp(-1, 0.2) / away  # away from those too near, a little to those too far
    return others @ state.velocity / count, (pull[..., None] * way).sum(2) / count


def _steer(state: State, among: Tensor) -> Tensor:
    heading, push = _neighbours(state, among)
    return torch.nn.functional.normalize(heading + 0.1 * state.velocity, dim=-1) * 0.8 + push


def flock(state: State, observation: mast_swarm.Observation) -> Tensor:
    """The expert: every robot turns to the mean heading of the whole team, and keeps its distance to those nearby."""
    everyone = torch.ones_like(observation.graph.adjacency())
    heading = _neighbours(state, everyone)[0].mean(dim=1, keepdim=True).expand_as(state.velocity)
    push = _neighbours(state, observation.graph.adjacency())[1]
    return torch.nn.functional.normalize(heading, dim=-1) * 0.8 + push


def boids(state: State, observation: mast_swarm.Observation) -> Tensor:
    """Reynolds' rules: alignment, cohesion and separation among those that a robot hears."""
    return _steer(state, observation.graph.adjacency())


TASK = mast_swarm.Task(
    "flocking",
    Config,
    Flocking,
    metric=mast_swarm.Metric("disagreement", lower_is_better=True, limits=(0.0, 2.0)),
    others=(mast_swarm.Metric("nearest", label="distance to the nearest", unit="m", digits=1),),
    controllers={"flock": flock, "boids": boids},
    expert="flock",
    episodes=32,
    steps=100,
)
