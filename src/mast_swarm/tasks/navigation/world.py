"""Decentralized assignment and navigation: N robots find N goals, each seeing only what is near (SPEC 4).

Symbols: B environments, N robots, M goals, K = config.observed (3 in the paper).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.observation import Observation, Observed
from mast_swarm.space import counts_within, nearest_both, neighbour_graph, offsets
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.scenarios import sample
from mast_swarm.tasks.world import State, World


@dataclass(frozen=True, kw_only=True)
class NavigationState(State):
    """All there is to know about B environments at one instant, besides positions and step."""

    goals: Tensor  # [B, M, 2] m
    velocity: Tensor  # [B, N, 2] last command, in units of u_max
    travelled: Tensor  # [B, N] m


@dataclass(frozen=True, kw_only=True)
class NavigationObservation(Observation):
    """Which robots and goals each robot senses too: nearest first, -1 where there are fewer than K.

    features [B, N, 2 + 4 K]; the landmark is the nearest goal.
    """

    neighbours: Tensor  # [B, N, K] int64
    goals_seen: Tensor  # [B, N, K] int64

    @property
    def sights(self) -> Tensor:
        """The goals that each robot senses, [B, N, K, 2] m, relative, nearest first; infinite where there are fewer."""
        assert self.goals is not None  # a world of navigation says where they are
        seen = offsets(self.positions, self.goals, self.goals_seen)
        return seen.masked_fill(self.goals_seen[..., None] < 0, torch.inf)


class Navigation(World[NavigationConfig, NavigationState]):
    """The world of the navigation task, for any number of environments, on CPU or CUDA."""

    def __init__(self, config: NavigationConfig | None = None, device: torch.device | str = "cpu") -> None:
        super().__init__(config or NavigationConfig(), device)

    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        """Where robots [N, 2] and goals [M, 2] are, metres."""
        return sample(scenario, self.config, seed)

    def begin(self, *drawn: Tensor) -> NavigationState:
        """The start state of what was drawn."""
        return self.state(*drawn)

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
        neighbours, goals_seen = nearest_both(positions, state.goals, k)
        goals = offsets(positions, state.goals, goals_seen).flatten(2)  # [B, N, 2K]
        robots = offsets(positions, positions, neighbours).flatten(2)
        scale = self.config.length_scale
        return NavigationObservation(
            features=torch.cat([state.velocity, goals / scale, robots / scale], dim=-1),  # [B, N, 2 + 2K + 2K]
            positions=positions,
            graph=neighbour_graph(neighbours, directed=self.config.directed),
            landmark=goals[..., :2],
            goals=state.goals,
            neighbours=neighbours,
            goals_seen=goals_seen,
        )

    def step(self, state: NavigationState, command: Tensor) -> NavigationState:
        """First-order motion, p <- p + u dt (Eq. 4)."""
        command, moved = self.moved(state, command)
        return replace(
            state,
            positions=state.positions + moved,
            velocity=command,
            travelled=state.travelled + torch.linalg.vector_norm(moved, dim=-1),
            step=state.step + 1,
        )

    def metrics(self, state: NavigationState) -> dict[str, Tensor]:
        """success_rate: share of goals reached (Eq. 14); collisions: pairs; distance: mean per robot, m."""
        places = state.positions
        near_goals, touching = counts_within(
            places, (state.goals, self.config.success_radius), (places, 2 * self.config.robot_radius)
        )
        return {
            "success_rate": (near_goals > 0).float().mean(dim=1),
            "collisions": (touching.sum(dim=1) - state.positions.shape[1]).float() / 2,  # less each robot itself
            "distance": state.travelled.mean(dim=1),
        }

    def frame(self, state: NavigationState, observation: Observed) -> dict[str, Tensor]:
        """neighbours: the robots each robot links to; goals_seen: the goals it senses; -1 where missing."""
        assert isinstance(observation, NavigationObservation)
        return {"neighbours": observation.neighbours.int(), "goals_seen": observation.goals_seen.int()}

    def scene(self, state: NavigationState, track: Tensor) -> dict[str, Tensor]:
        """goals: [R, M, 2] m."""
        return {"goals": state.goals[: len(track)]}
