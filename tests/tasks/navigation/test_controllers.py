"""LSAP and DHBA-k against plain slow code."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.space import Graph, components, nearest, neighbour_graph
from mast_swarm.tasks.navigation.controllers import Dhba, Explorer, Lsap, Searcher
from mast_swarm.tasks.registry import find

SPEED = {"dt": 1.0, "max_speed": 5.0}


@dataclass(frozen=True)
class State:
    positions: Tensor
    goals: Tensor


@dataclass(frozen=True)
class Observation:
    neighbours: Tensor
    goals_seen: Tensor
    graph: Graph


def observe(state: State, directed: bool = False) -> Observation:
    neighbours = nearest(state.positions, state.positions, 3, exclude_self=True)[1]
    goals_seen = nearest(state.positions, state.goals, 3)[1]
    return Observation(neighbours, goals_seen, neighbour_graph(neighbours, directed=directed))


def start(rng: np.random.Generator, batch: int, n: int, m: int, clusters: int, width: float = 300.0) -> State:
    """Robots about `clusters` places, which leaves the 3-nearest graph in parts, and goals everywhere; float32."""
    centres = rng.uniform(-width, width, (batch, clusters, 2))[:, rng.integers(0, clusters, n)]
    positions = centres + rng.normal(0, width / 20, (batch, n, 2))
    goals = rng.uniform(-width, width, (batch, m, 2))
    return State(*(torch.tensor(a, dtype=torch.float32) for a in (positions, goals)))


def move(state: State, command: Tensor) -> State:
    """One step. Of robots that end up in one place all but the first are nudged: which of them holds a goal is a tie,
    and any answer to it is right."""
    positions = state.positions + 5.0 * command
    n = positions.shape[1]
    same = (torch.cdist(positions, positions, compute_mode="donot_use_mm_for_euclid_dist") < 1e-3).tril(-1)
    nudge = 0.1 + 0.01 * torch.arange(n, dtype=positions.dtype)
    return State(positions + torch.where(same.any(dim=2), nudge, 0.0)[..., None], state.goals)


def slow_dhba(state: State, observation: Observation, k: int, b: int, i: int) -> np.ndarray:
    """What robot i of environment b commands, by breadth-first search and scipy."""
    n = state.positions.shape[1]
    hears: dict[int, list[int]] = {j: [] for j in range(n)}
    for source, target in zip(observation.graph.source.tolist(), observation.graph.target.tolist(), strict=True):
        if target // n == b:
            hears[target % n].append(source % n)
    hops = {i: 0}
    queue = deque([i])
    while queue:
        j = queue.popleft()
        for h in hears[j]:
            if h not in hops and hops[j] < k:
                hops[h] = hops[j] + 1
                queue.append(h)
    robots = sorted(set(hops) | {x for j in hops for x in observation.neighbours[b, j].tolist() if x >= 0})
    goals = sorted({x for j in hops for x in observation.goals_seen[b, j].tolist() if x >= 0})
    p = state.positions[b].double().numpy()
    g = state.goals[b].double().numpy()
    rows, columns = linear_sum_assignment(cdist(p[robots], g[goals], "sqeuclidean"))
    for row, column in zip(rows, columns, strict=True):
        if robots[row] == i:
            way = (g[goals[column]] - p[i]) / 5.0
            return way / max(1.0, np.linalg.norm(way))
    return np.zeros(2)


def check_dhba(state: State, k: int, controller: Dhba, directed: bool = False) -> Tensor:
    observation = observe(state, directed)
    command = controller.act(state, observation)
    assert command.shape == state.positions.shape and command.dtype == state.positions.dtype
    for b in range(len(state.positions)):
        for i in range(state.positions.shape[1]):
            expected = slow_dhba(state, observation, k, b, i)
            assert command[b, i].numpy() == pytest.approx(expected, abs=1e-5), (b, i)
    return command


@settings(deadline=None, max_examples=60)
@given(
    n=st.integers(1, 24),
    m=st.integers(1, 24),
    k=st.integers(0, 5),
    clusters=st.integers(1, 5),
    directed=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_dhba_is_what_it_says(n: int, m: int, k: int, clusters: int, directed: bool, seed: int) -> None:
    state = start(np.random.default_rng(seed), 2, n, m, clusters)
    check_dhba(state, k, Dhba(k, **SPEED), directed)


@pytest.mark.parametrize("n, m", [(1, 1), (2, 2), (2, 5), (5, 2), (70, 70), (90, 40), (40, 130)])
def test_dhba_along_the_way(n: int, m: int) -> None:
    """One controller with all that it remembers, step after step, until most robots stand; more than a word of bits."""
    rng = np.random.default_rng(n)
    state = start(rng, 2, n, m, max(1, n // 9), width=60.0)
    controller = Dhba(3, **SPEED)
    for _ in range(8 if n > 50 else 20):
        state = move(state, check_dhba(state, 3, controller))


@pytest.mark.parametrize("k", [0, 2, 8])
def test_what_dhba_remembers_changes_nothing(k: int) -> None:
    """A hundred steps: remembering against forgetting at every step, and surprises in between."""
    rng = np.random.default_rng(k)
    state = start(rng, 3, 80, 80, 20, width=150.0)
    remembers, forgets = Dhba(k, **SPEED), Dhba(k, **SPEED)
    stood = 0
    for step in range(100):
        observation = observe(state)
        command = remembers.act(state, observation)
        forgets.start()
        assert torch.allclose(command, forgets.act(state, observation), atol=1e-6), step
        still = (command == 0).all(dim=-1)
        stood += int(still.sum())
        state = move(state, command)
        if step == 50:  # some robots are carried off
            state = State(state.positions + (torch.arange(80) % 7 == 0)[:, None] * 8.0, state.goals)
        if step == 60:  # other goals
            state = State(state.positions, state.goals.flip(1) + 3.0)
    assert stood > 100  # robots did come to rest, so that old answers were used


def test_dhba_memory_of_another_size_is_not_used() -> None:
    rng = np.random.default_rng(1)
    controller = Dhba(2, **SPEED)
    for batch, n, m in [(2, 20, 20), (3, 20, 20), (3, 15, 20), (3, 15, 10)]:
        check_dhba(start(rng, batch, n, m, 3), 2, controller)


def test_dhba_over_any_number_of_hops_is_lsap_in_one_component() -> None:
    state = start(np.random.default_rng(2), 1, 30, 30, 1, width=100.0)
    line = torch.arange(29)
    chain = Graph(torch.cat([line, line + 1]), torch.cat([line + 1, line]), 1, 30)
    goals_seen = torch.arange(30).reshape(1, 30, 1).expand(1, 30, 3)
    observation = Observation(torch.full((1, 30, 3), -1), goals_seen, chain)
    lsap = Lsap(**SPEED).act(state)
    assert torch.allclose(Dhba(29, **SPEED).act(state, observation), lsap, atol=1e-6)
    assert torch.allclose(Dhba(10**6, **SPEED).act(state, observation), lsap, atol=1e-6)
    assert not torch.allclose(Dhba(1, **SPEED).act(state, observation), lsap, atol=1e-6)


def test_listening_is_directed() -> None:
    """Robot 0 hears robot 1, not the other way round: only 0 learns of the goal that 1 sees."""
    positions = torch.tensor([[[0.0, 0.0], [10.0, 0.0]]])
    goals = torch.tensor([[[0.0, 20.0], [12.0, 0.0]]])
    alone = torch.full((1, 2, 3), -1)
    graph = Graph(torch.tensor([1]), torch.tensor([0]), 1, 2)
    seen = torch.tensor([[[-1, -1, -1], [0, 1, -1]]])
    command = Dhba(1, **SPEED).act(State(positions, goals), Observation(alone, seen, graph))
    assert command[0, 0].tolist() == [0.0, 1.0]  # leaves the nearer goal to robot 1
    seen = torch.tensor([[[0, 1, -1], [-1, -1, -1]]])
    command = Dhba(1, **SPEED).act(State(positions, goals), Observation(alone, seen, graph))
    assert command[0, 1].tolist() == [0.0, 0.0]  # knows of no goal


@pytest.mark.parametrize("name", ["lsap", "dhba-0", "dhba-4"])
def test_commands_fit_the_unit_disk_and_robots_at_goals_stand(name: str) -> None:
    state = start(np.random.default_rng(3), 4, 60, 60, 8)
    controller = find("navigation").make_controller(name, **SPEED)
    command = controller.act(state, observe(state))
    assert command.norm(dim=-1).max() <= 1.0 + 1e-6
    assert command.norm(dim=-1).max() > 0.9
    at_goals = State(state.goals.flip(1), state.goals)
    assert (controller.act(at_goals, observe(at_goals)) == 0).all()


def test_the_last_step_ends_on_the_goal() -> None:
    state = State(torch.tensor([[[0.0, 0.0], [100.0, 0.0]]]), torch.tensor([[[1.0, 2.0], [100.0, 50.0]]]))
    command = Lsap(dt=0.5, max_speed=10.0).act(state)
    assert torch.allclose(state.positions[0, 0] + command[0, 0] * 10.0 * 0.5, state.goals[0, 0])
    assert command[0, 1].tolist() == [0.0, 1.0]


def test_more_robots_than_goals() -> None:
    state = start(np.random.default_rng(4), 2, 20, 5, 3)
    assert ((Lsap(**SPEED).act(state) != 0).any(dim=-1).sum(dim=1) == 5).all()
    none = State(state.positions, state.goals[:, :0])
    assert (Lsap(**SPEED).act(none) == 0).all()


def test_lsap_brings_every_robot_home() -> None:
    state = start(np.random.default_rng(5), 3, 50, 50, 5)
    controller = Lsap(**SPEED)
    for _ in range(200):
        state = State(state.positions + 5.0 * controller.act(state), state.goals)
    assert (nearest(state.goals, state.positions, 1)[0] < 1e-3).all()


def test_names() -> None:
    assert {"lsap", "dhba-K"} <= set(find("navigation").controller_names)
    dhba = find("navigation").make_controller("dhba-12", **SPEED)
    assert isinstance(dhba, Dhba) and dhba.k == 12
    assert isinstance(find("navigation").make_controller("lsap", **SPEED), Lsap)
    for wrong in ("lsapp", "dhba", "dhba-", "dhba-x", "dhba--1", "dhba-1.5"):
        with pytest.raises(MastError, match=f"unknown controller '{wrong}'"):
            find("navigation").make_controller(wrong, **SPEED)
    with pytest.raises(MastError, match="did you mean lsap"):
        find("navigation").make_controller("lsapp", **SPEED)
    with pytest.raises(MastError):
        find("coverage").make_controller("lsap", **SPEED)


def test_bad_settings_and_positions_are_refused() -> None:
    for bad in ({"dt": 0.0, "max_speed": 5.0}, {"dt": 1.0, "max_speed": float("nan")}):
        with pytest.raises(MastError, match="expected a positive number"):
            Lsap(**bad)
    with pytest.raises(MastError, match="hops"):
        Dhba(-1, **SPEED)
    state = start(np.random.default_rng(6), 2, 10, 10, 2)
    observation = observe(state)
    state.positions[1, 4, 1] = torch.nan
    with pytest.raises(MastError, match=r"positions .*number 4 of environment 1"):
        Dhba(1, **SPEED).act(state, observation)
    with pytest.raises(MastError, match="number 4 of environment 1"):
        Lsap(**SPEED).act(state)


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 24),
    m=st.integers(1, 24),
    clusters=st.integers(1, 5),
    horizon=st.sampled_from([30.0, 250.0, float("inf")]),
    seed=st.integers(0, 10**6),
)
def test_a_component_solves_the_costs_of_its_horizon(n: int, m: int, clusters: int, horizon: float, seed: int) -> None:
    """By scipy; and those without a goal part from each other, by plain numpy."""
    state = start(np.random.default_rng(seed), 2, n, m, clusters)
    observation = observe(state)
    labels = components(observation.graph)
    plan = Explorer(**SPEED, horizon=horizon, parting=(5.0, 150.0)).plan(state, observation, labels).numpy()
    for b in range(2):
        places, goals = state.positions[b].double().numpy(), state.goals[b].double().numpy()
        for label in labels[b].unique().tolist():
            robots = np.flatnonzero(labels[b].numpy() == label)
            known = np.unique([g for g in observation.goals_seen[b, robots].flatten().tolist() if g >= 0])
            squared = cdist(places[robots], goals[known], "sqeuclidean")
            cost = squared if horizon == float("inf") else squared / (squared + horizon**2)
            rows, columns = linear_sum_assignment(cost)
            idle = np.delete(robots, rows)
            assert (plan[b, idle, 2] == 1).all()
            for i in idle:
                away = places[i] - places[idle[idle != i]]
                distance = np.linalg.norm(away, axis=1, keepdims=True)
                push = (5 * away / np.maximum(distance, 1) * np.exp(-distance / 150)).sum(0)
                nearest_goal = np.linalg.norm(goals - places[i], axis=1).min()
                free = 1 - np.clip(2 * nearest_goal / 300 - 1, 0, 1)
                assert plan[b, i, :2] == pytest.approx(free * push / (1 + np.linalg.norm(push)), abs=1e-4)
            for row, column in zip(rows, columns, strict=True):
                way = (goals[known[column]] - places[robots[row]]) / 5.0
                expected = way / max(1.0, np.linalg.norm(way))
                assert plan[b, robots[row], :2] == pytest.approx(expected, abs=1e-4)
                assert plan[b, robots[row], 2] == pytest.approx(np.linalg.norm(expected), abs=1e-4)


def test_a_searcher_has_a_horizon() -> None:
    searcher = find("navigation").make_controller("searcher-250", **SPEED)
    assert isinstance(searcher, Searcher) and searcher.horizon == 250
    with pytest.raises(MastError, match="a horizon of 0 m: expected more than 0"):
        Searcher(0, **SPEED)
