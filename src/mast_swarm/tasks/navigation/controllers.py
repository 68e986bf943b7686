"""Controllers of the navigation task: the LSAP expert, which sees everything, DHBA-k, which knows what k hops bring
it, and their rivals of a learned policy: robots that explore, and robots whose news is late."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mast_swarm.chance import as_tensor
from mast_swarm.errors import MastError
from mast_swarm.explore import Trail, explored, pulled
from mast_swarm.observation import Heard
from mast_swarm.space import components, offsets
from mast_swarm.space.assignment import FARTHEST, Warm, as_array, assign, not_finite
from mast_swarm.survey import Survey
from mast_swarm.tasks.navigation.components import part_idle, solve_components
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.relayed import solve_heard
from mast_swarm.tasks.navigation.visible import Knowledge, solve_views
from mast_swarm.tasks.navigation.world import NavigationObservation, NavigationState


class _ToGoal:
    """What both share: straight to the goal, as far as speed and time allow."""

    def __init__(self, *, dt: float, max_speed: float) -> None:
        for name, value in (("dt", dt), ("max_speed", max_speed)):
            if not 0.0 < value < float("inf"):
                raise MastError(f"{name} is {value}: expected a positive number")
        self.dt, self.max_speed = dt, max_speed

    def start(self, seeds: Sequence[int] = ()) -> None:
        """New episodes begin."""

    def _towards(self, goal: Tensor, state: NavigationState) -> Tensor:
        """Command [B, N, 2] in units of u_max for goal numbers [B, N]; robots without one (-1) stand still."""
        positions = state.positions
        goal = goal.to(positions.device).unsqueeze(-1)
        if state.goals.shape[1] == 0:
            return torch.zeros_like(positions)
        way = state.goals.gather(1, goal.clamp(min=0).expand(-1, -1, 2)) - positions
        way = torch.where(goal >= 0, way, 0.0) / (self.dt * self.max_speed)
        return way / torch.linalg.vector_norm(way, dim=-1, keepdim=True).clamp(min=1.0)

    def _moved(
        self, goal: Tensor, state: NavigationState, observation: NavigationObservation, heard: Heard | None = None
    ) -> Tensor:
        """What robots with these goals do, [B, N, 2] in units of u_max."""
        return self._towards(goal, state)

    def _plan(self, goal: Tensor, state: NavigationState) -> Tensor:
        """Command and speed of every robot, [B, N, 3] in units of u_max; one without a goal (-1) has speed alone."""
        goal = goal.to(state.positions.device)
        command = self._towards(goal, state)
        speed = torch.where(goal < 0, 1.0, torch.linalg.vector_norm(command, dim=-1))
        return torch.cat((command, speed[..., None]), dim=-1)


_CELL = 25.0  # m, of a map


@dataclass(eq=False)
class _Exploration:
    """What robots without a goal do: a heading of their own that turns slowly, on a leash (as learned policies).

    A record, so that a checkpoint of a training can hold what an expert has in mind."""

    dt: float
    time: float
    reach: float
    memory: int = 0  # places that robots remember and turn away from
    push: float = 2.0  # of all these places at most, against a heading of length 1
    survey: Survey | None = None  # the maps of robots that share one of where they have looked
    seeds: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    trail: Trail | None = None

    def start(self, seeds: Sequence[int]) -> None:
        self.seeds = as_tensor(seeds)
        self.trail = Trail(self.memory, 150.0, self.dt) if self.memory else None
        self.survey = None if self.survey is None else Survey(side=self.survey.side, cell=self.survey.cell)

    def command(
        self, plan: Tensor, state: NavigationState, observation: NavigationObservation, heard: Heard | None = None
    ) -> Tensor:
        """Commands [B, N, 2] of a plan [B, N, 3]. heard: what robots hold that talk; their maps are as late."""
        seeds, time = self.seeds.to(state.positions.device), state.step * (self.dt / self.time)
        away = None if self.trail is None else self.trail.away(state.positions)
        command = explored(plan, observation.landmark, seeds, time, self.reach, away, self.push)
        if self.survey is None:
            return command
        if heard is None:
            return self.survey.commanded(command, plan, observation)
        return heard.searched(command, plan)


class _Exploring(_ToGoal):
    """Robots that are left without a goal explore. In front of another controller it adds this to that one."""

    def __init__(
        self,
        *hops: int,
        dt: float,
        max_speed: float,
        exploration_time: float = 100.0,
        exploration_reach: float = 300.0,
        exploration_memory: int = 0,
        exploration_push: float = 2.0,
    ) -> None:
        super().__init__(*hops, dt=dt, max_speed=max_speed)
        self._exploration = _Exploration(dt, exploration_time, exploration_reach, exploration_memory, exploration_push)

    def start(self, seeds: Sequence[int] = ()) -> None:
        super().start(seeds)
        self._exploration.start(seeds)

    def _moved(
        self, goal: Tensor, state: NavigationState, observation: NavigationObservation, heard: Heard | None = None
    ) -> Tensor:
        return self._exploration.command(self._plan(goal, state), state, observation, heard)


class _Mapped(_Exploring):
    """In front of a controller whose robots explore: they search by a map of where they have looked, and explore where
    nothing is left to search. All of a component share the map at once; robots that talk hand it on, hop by hop."""

    def __init__(self, *numbers: int, dt: float, max_speed: float, config: NavigationConfig) -> None:
        super().__init__(*numbers, dt=dt, max_speed=max_speed)
        self._exploration.survey = Survey(side=config.side, cell=_CELL)

    @property
    def survey(self) -> Survey | None:
        """The robots' maps: those of the episode that was started last."""
        return self._exploration.survey


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
    """Decentralized Hungarian-based assignment: each robot solves LSAP on all that the robots within k hops
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
        return self._moved(self.goals(state, observation), state, observation)

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


class DhbaExplore(_Exploring, Dhba):
    """As dhba-K, with no delay, but robots that are left without a goal explore, by the rule of learned policies."""


_ANY_AGE = 2**40  # hops: news of any age counts


class DhbaRelay(_ToGoal):
    """As dhba-K, but over the same late relay as learned policies (--delay): each robot solves LSAP on the newest news
    that has reached it, of an age that K hops explain. Without delay news has no age: all of the component counts."""

    horizon = math.inf
    parting: tuple[float, float] = (0.0, 150.0)

    def __init__(self, k: int, *, dt: float, max_speed: float) -> None:
        super().__init__(dt=dt, max_speed=max_speed)
        if k < 0:
            raise MastError(f"DHBA over {k} hops: expected 0 or more")
        self.k = k
        self._known: tuple[np.ndarray, ...] | None = None

    def start(self, seeds: Sequence[int] = ()) -> None:
        super().start(seeds)
        self._known = None

    def tell(self, state: NavigationState, observation: NavigationObservation) -> Tensor:
        """What each robot says: its place, its neighbours by number with their places, the goals it senses by number.
        [B, N, 2 + 3 K + L], -1 for what is missing."""
        batch, n, k = observation.neighbours.shape
        index = observation.neighbours.clamp(min=0).flatten(1)[..., None].expand(-1, -1, 2)
        places = state.positions.gather(1, index).view(batch, n, k, 2)
        near = torch.cat((observation.neighbours[..., None].to(places.dtype), places), dim=-1).flatten(2)
        return torch.cat((state.positions, near, observation.goals_seen.to(places.dtype)), dim=-1)

    def solved(
        self, state: NavigationState, observation: NavigationObservation, heard: Heard
    ) -> tuple[Tensor, np.ndarray]:
        """The goal that each robot takes for its own, [B, N] int64 on the CPU, -1: none is left for it; and what parts
        those from each other, [B, N, 2]."""
        age, news, goals = (np.ascontiguousarray(t.numpy(force=True)) for t in (heard.age, heard.news, state.goals))
        near, oldest = observation.neighbours.shape[2], heard.oldest(self.k)
        own, push, self._known = solve_heard(age, news, goals, near, oldest, self.horizon, self.parting, self._known)
        return torch.from_numpy(own), push

    def goals(self, state: NavigationState, observation: NavigationObservation, heard: Heard) -> Tensor:
        """The first of what `solved` gives."""
        return self.solved(state, observation, heard)[0]

    def act(self, state: NavigationState, observation: NavigationObservation, heard: Heard) -> Tensor:
        return self._moved(self.goals(state, observation, heard), state, observation, heard)


class DhbaRelayExplore(_Exploring, DhbaRelay):
    """As dhba-K-relay, but robots without a goal explore: all that a learned policy has but the network."""


class _Searching(_Exploring):
    """Near goals may come first, and robots without a goal may part from each other.

    horizon: metres beyond which goals cost alike, see `match`. parting: how much robots without a goal part from others
    that have none either, and over how many metres, see `parted`."""

    def __init__(
        self,
        *hops: int,
        dt: float,
        max_speed: float,
        horizon: float = math.inf,
        parting: tuple[float, float] = (0.0, 150.0),
        **exploration: Any,
    ) -> None:
        super().__init__(*hops, dt=dt, max_speed=max_speed, **exploration)
        if not horizon > 0:
            raise MastError(f"a horizon of {horizon} m: expected more than 0")
        self.horizon, self.parting = float(horizon), parting

    def _searched(self, goal: Tensor, push: np.ndarray, state: NavigationState, seen: Tensor) -> Tensor:
        """The plan [B, N, 3] of robots with these goals [B, N], -1 for none, and what parts those without, [B, N, 2].
        seen [B, N, K]: which goals they sense; the nearest holds them back."""
        plan = self._plan(goal, state)
        if self.parting[0]:
            landmark = offsets(state.positions, state.goals, seen[..., :1])[:, :, 0]
            free = 1 - pulled(landmark, self._exploration.reach)
            plan[..., :2] += free * torch.from_numpy(push).to(plan.device)
        return plan


class Explorer(_Searching):
    """Each component thinks as one, with no delay: LSAP over its robots and the goals they sense. Robots that are left
    without a goal explore. What a robot does here depends on nothing that its component does not know."""

    reads: ClassVar[tuple[str, ...]] = ("positions", "goals", "goals_seen", "component")

    def act(self, state: NavigationState, observation: NavigationObservation) -> Tensor:
        if observation.graph.directed:
            raise MastError(
                "explorer and searcher-K need links that carry both ways: leave --directed away, or use dhba-K"
            )
        plan = self.plan(state, observation, components(observation.graph))
        return self._exploration.command(plan, state, observation)

    def plan(self, state: NavigationState, observation: NavigationObservation, component: Tensor) -> Tensor:
        """Command and speed of every robot, [B, N, 3] in units of u_max; one that shall explore has full speed, and a
        command that is shorter, or none.

        component [B, N]: the lowest robot of each robot's component."""
        positions, goals, labels, goals_seen = (
            np.ascontiguousarray(array.numpy(force=True))
            for array in (state.positions, state.goals, component, observation.goals_seen)
        )
        own, push = np.empty(labels.shape, np.int64), np.zeros((*labels.shape, 2), np.float32)
        solve_components(positions, goals, labels, goals_seen, self.horizon, own)
        if self.parting[0]:
            part_idle(positions, labels, own, *self.parting, push)
        return self._searched(torch.from_numpy(own), push, state, observation.goals_seen)


_SEARCH: dict[str, Any] = {"parting": (5.0, 150.0), "exploration_memory": 80, "exploration_push": 4.0}


class Searcher(Explorer):
    """As explorer, and faster: a goal much farther than K metres costs no more than others as far; robots without a
    goal part from each other and remember where they have been."""

    def __init__(self, horizon: int, *, dt: float, max_speed: float) -> None:
        super().__init__(dt=dt, max_speed=max_speed, horizon=horizon, **_SEARCH)


class DhbaMap(_Mapped, DhbaExplore):
    """As dhba-K-explore, with no delay, but robots that are left without a goal search by a map that they share."""


class SearcherMap(_Mapped, Searcher):
    """As searcher-K, but robots without a goal that hardly push each other search by a map that they share."""


class SearcherRelay(_Searching, DhbaRelay):
    """As searcher-K, but over the same late relay as learned policies (--delay): each robot decides alone, on the
    newest news of every robot that has ever reached it."""

    def __init__(self, horizon: int, *, dt: float, max_speed: float) -> None:
        super().__init__(_ANY_AGE, dt=dt, max_speed=max_speed, horizon=horizon, **_SEARCH)

    def act(self, state: NavigationState, observation: NavigationObservation, heard: Heard) -> Tensor:
        plan = self._searched(*self.solved(state, observation, heard), state, observation.goals_seen)
        return self._exploration.command(plan, state, observation, heard)


class DhbaRelayMap(_Mapped, DhbaRelayExplore):
    """As dhba-K-relay-explore, but robots without a goal search by a map that they hand on, one hop per tau."""


class SearcherRelayMap(_Mapped, SearcherRelay):
    """As searcher-K-relay, but robots without a goal that hardly push each other search by a map that they hand on, one
    hop per tau."""
