"""Controllers of the navigation task: the LSAP expert, which sees everything, and DHBA-k, which knows what k
hops bring it."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from mast_swarm.controllers.assignment import FARTHEST, Warm, as_array, assign, not_finite
from mast_swarm.controllers.registry import register
from mast_swarm.controllers.visible import Views, solve_views
from mast_swarm.errors import MastError


class State(Protocol):
    @property
    def positions(self) -> Tensor: ...  # [B, N, 2] metres
    @property
    def goals(self) -> Tensor: ...  # [B, M, 2] metres


class Links(Protocol):
    @property
    def source(self) -> Tensor: ...  # [E] int64, b * N + i: the robot that is heard
    @property
    def target(self) -> Tensor: ...  # [E] int64: the robot that hears


class Sight(Protocol):
    @property
    def neighbours(self) -> Tensor: ...  # [B, N, 3] int64: the nearest robots, -1 missing
    @property
    def goals_seen(self) -> Tensor: ...  # [B, N, 3] int64: the nearest goals, -1 missing
    @property
    def graph(self) -> Links: ...


class _ToGoal:
    """What both share: straight to the goal, as far as speed and time allow."""

    def __init__(self, *, dt: float, max_speed: float) -> None:
        for name, value in (("dt", dt), ("max_speed", max_speed)):
            if not 0.0 < value < float("inf"):
                raise MastError(f"{name} is {value}: expected a positive number")
        self.dt, self.max_speed = dt, max_speed

    def _towards(self, goal: Tensor, state: State) -> Tensor:
        """Command [B, N, 2] in units of u_max for goal numbers [B, N]; robots without one (-1) stand still."""
        positions = state.positions
        goal = goal.to(positions.device).unsqueeze(-1)
        if state.goals.shape[1] == 0:
            return torch.zeros_like(positions)
        way = state.goals.gather(1, goal.clamp(min=0).expand(-1, -1, 2)) - positions
        way = torch.where(goal >= 0, way, 0.0) / (self.dt * self.max_speed)
        return way / torch.linalg.vector_norm(way, dim=-1, keepdim=True).clamp(min=1.0)


@register("lsap")
class Lsap(_ToGoal):
    """The expert: least total squared distance over all robots and goals, solved anew at each step."""

    def __init__(self, *, dt: float, max_speed: float) -> None:
        super().__init__(dt=dt, max_speed=max_speed)
        self._warm: Warm | None = None

    def start(self) -> None:
        self._warm = None

    def act(self, state: State, observation: object = None) -> Tensor:
        goal, self._warm = assign(state.positions, state.goals, self._warm)
        return self._towards(goal, state)


@register("dhba-K")
class Dhba(_ToGoal):
    """Decentralised Hungarian-based assignment: each robot solves LSAP on all that the robots within k hops
    observe, with no delay."""

    def __init__(self, k: int, *, dt: float, max_speed: float) -> None:
        super().__init__(dt=dt, max_speed=max_speed)
        if k < 0:
            raise MastError(f"DHBA over {k} hops: expected 0 or more")
        self.k = k
        self._views: Views | None = None

    def start(self) -> None:
        self._views = None

    def act(self, state: State, observation: Sight) -> Tensor:
        return self._towards(self.goals(state, observation), state)

    def goals(self, state: State, observation: Sight) -> Tensor:
        """The goal that each robot takes for its own, [B, N] int64 on the CPU; -1: none is left for it."""
        positions, goals = as_array("positions", state.positions), as_array("goals", state.goals)
        if not ((np.abs(positions) < FARTHEST).all() and (np.abs(goals) < FARTHEST).all()):
            raise not_finite(positions=positions, goals=goals)
        n = positions.shape[1]
        neighbours, goals_seen, source, target = (
            np.ascontiguousarray(index.cpu().numpy())
            for index in (
                observation.neighbours,
                observation.goals_seen,
                observation.graph.source,
                observation.graph.target,
            )
        )
        heard = source[np.argsort(target, kind="stable")] % n
        first = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=positions.shape[0] * n))])
        # No path is longer than N - 1 hops.
        hops = min(self.k, n - 1)
        goal, self._views = solve_views(positions, goals, neighbours, goals_seen, (heard, first), hops, self._views)
        return torch.from_numpy(goal)
