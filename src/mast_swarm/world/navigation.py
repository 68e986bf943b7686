"""Decentralised assignment and navigation: N robots find N goals, each seeing only what is near (SPEC 4).

Symbols: B environments, N robots, M goals, K = config.observed (3 in the paper).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.space import Graph, count_within, nearest, neighbour_graph, offsets
from mast_swarm.world.base import checked_command, limited, task
from mast_swarm.world.config import NavigationConfig
from mast_swarm.world.scenarios import sample, scenarios


@dataclass(frozen=True)
class NavigationState:
    """All there is to know about B environments at one instant."""

    positions: Tensor  # [B, N, 2] m
    goals: Tensor  # [B, M, 2] m
    velocity: Tensor  # [B, N, 2] last command, in units of u_max
    travelled: Tensor  # [B, N] m
    step: Tensor  # [B] int64, control periods since the start


@dataclass(frozen=True)
class NavigationObservation:
    """An `Observation`, and which robots and goals each senses: nearest first, -1 where there are fewer than K."""

    features: Tensor  # [B, N, 2 + 4 K]
    positions: Tensor  # [B, N, 2] m
    graph: Graph
    landmark: Tensor  # [B, N, 2] m, relative: the nearest goal or robot
    neighbours: Tensor  # [B, N, K] int64
    goals_seen: Tensor  # [B, N, K] int64


@task
class Navigation:
    """The world of the navigation task, for any number of environments, on CPU or CUDA."""

    task: ClassVar[str] = "navigation"
    Config: ClassVar[type] = NavigationConfig
    starts: ClassVar = ("scenarios", scenarios)

    def __init__(self, config: NavigationConfig | None = None, device: torch.device | str = "cpu") -> None:
        self.config = config or NavigationConfig()
        self.device = torch.device(device)

    def reset(self, seeds: Sequence[int], scenarios: Sequence[str] | None = None) -> NavigationState:
        """Start states. `scenarios` names one a seed where they differ (stratified tests)."""
        return self.begin(*self.draw(seeds, scenarios))

    def draw(self, seeds: Sequence[int], scenarios: Sequence[str] | None = None) -> tuple[Tensor, Tensor]:
        """Where robots [B, N, 2] and goals [B, M, 2] are, metres, on the CPU."""
        names = [self.config.scenario] * len(seeds) if scenarios is None else list(scenarios)
        if len(names) != len(seeds):
            raise MastError(f"{len(names)} scenarios for {len(seeds)} seeds: give one a seed")
        starts = [sample(name, self.config, seed) for name, seed in zip(names, seeds, strict=True)]
        robots = np.stack([robots for robots, _ in starts])
        goals = np.stack([goals for _, goals in starts])
        return torch.from_numpy(robots), torch.from_numpy(goals)

    def begin(self, positions: Tensor, goals: Tensor) -> NavigationState:
        """The start state of what was drawn."""
        return self.state(positions, goals)

    def state(self, positions: Tensor, goals: Tensor) -> NavigationState:
        """A start state from positions [B, N, 2] and goals [B, M, 2] in metres."""
        for name, points in (("positions", positions), ("goals", goals)):
            if points.ndim != 3 or points.shape[-1] != 2 or points.shape[1] == 0:
                raise MastError(f"{name} have shape {list(points.shape)}: expected [environments, points, 2]")
            if not bool(torch.isfinite(points).all()):
                environment, point = torch.nonzero(~torch.isfinite(points).all(-1))[0].tolist()
                raise MastError(f"{name} of environment {environment}, row {point} are not finite numbers")
        if len(positions) != len(goals):
            raise MastError(f"{len(positions)} environments of positions but {len(goals)} of goals: give as many")
        positions = positions.to(self.device, torch.float32)
        return NavigationState(
            positions=positions,
            goals=goals.to(self.device, torch.float32),
            velocity=torch.zeros_like(positions),
            travelled=positions.new_zeros(positions.shape[:2]),
            step=torch.zeros(len(positions), dtype=torch.int64, device=self.device),
        )

    def observe(self, state: NavigationState) -> NavigationObservation:
        """What each robot senses: last command, K nearest goals, K nearest robots, all relative."""
        k, positions = self.config.observed, state.positions
        _, goals_seen = nearest(positions, state.goals, k)
        _, neighbours = nearest(positions, positions, k, exclude_self=True)
        goals = offsets(positions, state.goals, goals_seen).flatten(2)  # [B, N, 2K]
        robots = offsets(positions, positions, neighbours).flatten(2)
        scale = self.config.length_scale
        return NavigationObservation(
            features=torch.cat([state.velocity, goals / scale, robots / scale], dim=-1),  # [B, N, 2 + 2K + 2K]
            positions=positions,
            graph=neighbour_graph(neighbours, directed=self.config.directed),
            landmark=goals[..., :2],
            neighbours=neighbours,
            goals_seen=goals_seen,
        )

    def step(self, state: NavigationState, command: Tensor) -> NavigationState:
        """First-order motion, p <- p + u dt (Eq. 4)."""
        command = limited(checked_command(command, tuple(state.positions.shape)))
        moved = command * (self.config.max_speed * self.config.dt)
        return replace(
            state,
            positions=state.positions + moved,
            velocity=command,
            travelled=state.travelled + torch.linalg.vector_norm(moved, dim=-1),
            step=state.step + 1,
        )

    def metrics(self, state: NavigationState) -> dict[str, Tensor]:
        """success_rate: share of goals reached (Eq. 14); collisions: pairs; distance: mean a robot, m."""
        reached = count_within(state.goals, state.positions, self.config.success_radius) > 0
        touching = count_within(state.positions, state.positions, 2 * self.config.robot_radius)
        return {
            "success_rate": reached.float().mean(dim=1),
            "collisions": (touching.sum(dim=1) - state.positions.shape[1]).float() / 2,  # less each robot itself
            "distance": state.travelled.mean(dim=1),
        }

    def frame(self, state: NavigationState, observation: NavigationObservation) -> dict[str, Tensor]:
        """neighbours: the robots each robot links to; goals_seen: the goals it senses; -1 where missing."""
        return {"neighbours": observation.neighbours.int(), "goals_seen": observation.goals_seen.int()}

    def scene(self, state: NavigationState, track: Tensor) -> dict[str, Tensor]:
        """goals: [R, M, 2] m."""
        return {"goals": state.goals[: len(track)]}

    def pack(self, features: Tensor) -> Tensor:
        """The features themselves: they are few numbers."""
        return features

    def unpack(self, packed: Tensor, positions: Tensor) -> Tensor:
        """The features that `pack` gave back."""
        return packed
