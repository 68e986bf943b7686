"""Controllers of the navigation task: the LSAP expert, which sees everything, and DHBA-k, which knows what k
hops bring it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from mast_swarm.chance import as_tensor
from mast_swarm.errors import MastError
from mast_swarm.explore import fill, heading, leashed
from mast_swarm.space import components
from mast_swarm.space.assignment import FARTHEST, Warm, as_array, assign, not_finite
from mast_swarm.tasks.navigation.components import solve_components, solve_rest
from mast_swarm.tasks.navigation.visible import Knowledge, solve_views
from mast_swarm.tasks.navigation.world import NavigationObservation, NavigationState


class _ToGoal:
    """What both share: straight to the goal, as far as speed and time allow."""

    def __init__(self, *, dt: float, max_speed: float) -> None:
        for name, value in (("dt", dt), ("max_speed", max_speed)):
            if not 0.0 < value < float("inf"):
                raise MastError(f"{name} is {value}: expected a positive number")
        self.dt, self.max_speed = dt, max_speed

    def _towards(self, goal: Tensor, state: NavigationState) -> Tensor:
        """Command [B, N, 2] in units of u_max for goal numbers [B, N]; robots without one (-1) stand still."""
        positions = state.positions
        goal = goal.to(positions.device).unsqueeze(-1)
        if state.goals.shape[1] == 0:
            return torch.zeros_like(positions)
        way = state.goals.gather(1, goal.clamp(min=0).expand(-1, -1, 2)) - positions
        way = torch.where(goal >= 0, way, 0.0) / (self.dt * self.max_speed)
        return way / torch.linalg.vector_norm(way, dim=-1, keepdim=True).clamp(min=1.0)


class Lsap(_ToGoal):
    """The expert: least total squared distance over all robots and goals, solved anew at each step."""

    reads: ClassVar[tuple[str, ...]] = ("positions", "goals")

    def __init__(self, *, dt: float, max_speed: float) -> None:
        super().__init__(dt=dt, max_speed=max_speed)
        self._warm: Warm | None = None

    def start(self, seeds: Sequence[int] = ()) -> None:
        self._warm = None

    def act(self, state: NavigationState, observation: object = None) -> Tensor:
        goal, self._warm = assign(state.positions, state.goals, self._warm)
        return self._towards(goal, state)


class Dhba(_ToGoal):
    """Decentralised Hungarian-based assignment: each robot solves LSAP on all that the robots within k hops
    observe, with no delay."""

    def __init__(self, k: int, *, dt: float, max_speed: float) -> None:
        super().__init__(dt=dt, max_speed=max_speed)
        if k < 0:
            raise MastError(f"DHBA over {k} hops: expected 0 or more")
        self.k = k
        self._known: Knowledge | None = None

    def start(self, seeds: Sequence[int] = ()) -> None:
        self._known = None

    def act(self, state: NavigationState, observation: NavigationObservation) -> Tensor:
        return self._towards(self.goals(state, observation), state)

    def goals(self, state: NavigationState, observation: NavigationObservation) -> Tensor:
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
        goal, self._known = solve_views(positions, goals, neighbours, goals_seen, (heard, first), hops, self._known)
        return torch.from_numpy(goal)


class Explorer(_ToGoal):
    """Each component thinks as one, with no delay: LSAP over its robots and the goals they sense. Robots that are left
    without a goal explore. What a robot does here depends on nothing that its component does not know."""

    reads: ClassVar[tuple[str, ...]] = ("positions", "goals", "goals_seen", "component")

    def __init__(
        self, *, dt: float, max_speed: float, exploration_time: float = 100.0, exploration_reach: float = 300.0
    ) -> None:
        super().__init__(dt=dt, max_speed=max_speed)
        self.time, self.reach = exploration_time, exploration_reach
        self._seeds = torch.zeros(0, dtype=torch.int64)

    def start(self, seeds: Sequence[int] = ()) -> None:
        self._seeds = as_tensor(seeds)

    def act(self, state: NavigationState, observation: NavigationObservation) -> Tensor:
        if observation.graph.directed:
            raise MastError("explorer needs links that carry both ways: leave --directed away, or use dhba-K")
        device, robots = state.positions.device, state.positions.shape[1]
        plan = self.plan(state, observation, components(observation.graph))
        headings = heading(self._seeds.to(device), state.step * (self.dt / self.time), robots)
        return fill(plan, leashed(headings, observation.landmark, self.reach))

    def plan(self, state: NavigationState, observation: NavigationObservation, component: Tensor) -> Tensor:
        """Command and speed of every robot, [B, N, 3] in units of u_max; one that shall explore has speed alone.

        component [B, N]: the lowest robot of each robot's component."""
        own = self._assigned(state, observation, component)
        goal = torch.from_numpy(own).to(state.positions.device)
        command = self._towards(goal, state)
        speed = torch.where(goal < 0, 1.0, torch.linalg.vector_norm(command, dim=-1))
        return torch.cat((command, speed[..., None]), dim=-1)

    def _assigned(self, state: NavigationState, observation: NavigationObservation, component: Tensor) -> np.ndarray:
        """The goal that each robot's component gives it, [B, N]; -1: none is left for it."""
        positions, goals, labels, goals_seen = (
            np.ascontiguousarray(array.numpy(force=True))
            for array in (state.positions, state.goals, component, observation.goals_seen)
        )
        own = np.empty(labels.shape, np.int64)
        solve_components(positions, goals, labels, goals_seen, own)
        return own


class Guided(Explorer):
    """As `Explorer`, but robots without a goal are told where one is that nobody has: what a robot can learn from it is
    where such goals tend to be."""

    def plan(self, state: NavigationState, observation: NavigationObservation, component: Tensor) -> Tensor:
        """As there. A robot without a goal of its component goes to one that nobody has, and has full speed."""
        own = self._assigned(state, observation, component)
        alone = torch.from_numpy(own < 0).to(state.positions.device)
        places = (np.ascontiguousarray(array.numpy(force=True)) for array in (state.positions, state.goals))
        solve_rest(*places, own)
        command = self._towards(torch.from_numpy(own).to(state.positions.device), state)
        speed = torch.where(alone, 1.0, torch.linalg.vector_norm(command, dim=-1))
        return torch.cat((command, speed[..., None]), dim=-1)
