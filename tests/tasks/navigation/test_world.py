"""The navigation world: start states, sensing, motion, metrics."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import cdist

from mast_swarm.errors import MastError
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation


def world(**fields) -> Navigation:
    return Navigation(NavigationConfig(**fields))


@pytest.mark.parametrize("scenario", ["clusters", "clusters-5", "clusters-10-1", "circle", "two-lines", "text:MAST"])
def test_a_seed_gives_the_same_start_in_any_batch(scenario):
    w = world(agents=30, scenario=scenario)
    together = w.reset([3, 11, 7])
    for place, seed in enumerate([3, 11, 7]):
        alone = w.reset([seed])
        assert torch.equal(alone.positions[0], together.positions[place])
        assert torch.equal(alone.goals[0], together.goals[place])
    assert not torch.equal(together.goals[0], together.goals[1])


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**60), agents=st.integers(1, 12), observed=st.integers(1, 4))
def test_observation_against_scipy(seed, agents, observed):
    w = world(agents=agents, observed=observed, scenario="clusters-1")
    rng = np.random.default_rng(seed)
    state = w.step(w.reset([seed]), torch.from_numpy(rng.uniform(-1, 1, (1, agents, 2)).astype(np.float32)))
    seen = w.observe(state)
    p, g = state.positions[0].numpy().astype(float), state.goals[0].numpy().astype(float)
    others = cdist(p, p)
    np.fill_diagonal(others, np.inf)
    for robot in range(agents):
        expected = [*state.velocity[0, robot].tolist()]
        for table, points, available in ((cdist(p, g), g, agents), (others, p, agents - 1)):
            order = np.argsort(table[robot], kind="stable")[: min(observed, available)]
            near = [(points[j] - p[robot]) / w.config.length_scale for j in order]
            near += [np.zeros(2)] * (observed - len(order))
            expected += np.concatenate(near).tolist()
        assert seen.features[0, robot].tolist() == pytest.approx(expected, abs=1e-4)


def test_fourteen_numbers_and_links_to_three_nearest():
    w = world()
    seen = w.observe(w.reset([0, 1]))
    assert seen.features.shape == (2, 100, 14)
    adjacency = seen.graph.adjacency()
    assert torch.equal(adjacency, adjacency.transpose(1, 2))
    assert adjacency.gather(2, seen.neighbours).all()
    directed = Navigation(NavigationConfig(directed=True))
    assert directed.observe(directed.reset([0])).graph.adjacency().sum(-1).eq(3).all()


def test_a_long_command_is_scaled_back_not_clipped():
    w = world(agents=2)
    state = w.reset([0])
    after = w.step(state, torch.tensor([[[3.0, 4.0], [0.3, 0.0]]]))
    moved = after.positions - state.positions
    assert torch.allclose(moved, torch.tensor([[[3.0, 4.0], [1.5, 0.0]]]), atol=1e-4)
    assert torch.allclose(after.travelled, torch.tensor([[5.0, 1.5]]), atol=1e-4)
    assert after.step.tolist() == [1]


def test_metrics_count_goals_pairs_and_metres():
    w = world(agents=3)
    robots = torch.tensor([[[0.0, 0.0], [4.0, 0.0], [100.0, 0.0]]])
    goals = torch.tensor([[[1.0, 0.0], [50.0, 0.0], [104.9, 0.0]]])
    measured = w.metrics(w.state(robots, goals))
    assert measured["success_rate"].tolist() == pytest.approx([2 / 3])
    assert measured["collisions"].tolist() == [1.0]
    assert measured["distance"].tolist() == [0.0]
    exactly = w.state(torch.tensor([[[0.0, 0.0]]]), torch.tensor([[[5.0, 0.0]]]))
    assert w.metrics(exactly)["success_rate"].tolist() == [0.0]  # nearer than 5 m, not at 5 m


@pytest.mark.parametrize("agents", [1, 2])
def test_smallest_teams(agents):
    w = world(agents=agents)
    state = w.reset([0])
    seen = w.observe(state)
    assert torch.isfinite(seen.features).all()
    assert (seen.neighbours >= 0).sum(-1).eq(agents - 1).all()
    assert w.step(state, torch.zeros(1, agents, 2)).step.item() == 1


def test_bad_commands_and_states_say_what_is_wrong():
    w = world(agents=4)
    state = w.reset([0])
    with pytest.raises(MastError, match=r"shape \[1, 3, 2\]: expected \[1, 4, 2\]"):
        w.step(state, torch.zeros(1, 3, 2))
    broken = torch.zeros(1, 4, 2)
    broken[0, 2, 1] = float("nan")
    with pytest.raises(MastError, match="robot 2 in environment 0"):
        w.step(state, broken)
    with pytest.raises(MastError, match="positions of environment 0, row 1"):
        w.state(torch.tensor([[[0.0, 0.0], [float("inf"), 0.0]]]), torch.zeros(1, 2, 2))
    with pytest.raises(MastError, match="expected \\[environments, points, 2\\]"):
        w.state(torch.zeros(4, 2), torch.zeros(1, 4, 2))


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"agents": 0}, "at least 1 robot"),
        ({"dt": 0.0}, "dt is 0.0"),
        ({"width": float("nan")}, "width is nan"),
        ({"observed": 0}, "at least 1 neighbour"),
        ({"separation": -1.0}, "separation is -1.0"),
    ],
)
def test_bad_settings(fields, said):
    with pytest.raises(MastError, match=said):
        NavigationConfig(**fields)


def test_density_is_kept_as_the_team_grows():
    assert NavigationConfig(agents=100).side == 1000
    assert NavigationConfig(agents=400).side == 2000
    assert dataclasses.replace(NavigationConfig(), width=300.0).side == 300


def test_memory_is_estimated_from_the_settings():
    assert NavigationConfig(agents=100).bytes == 210_000
