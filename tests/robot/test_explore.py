"""Exploration of one robot in numpy: the same numbers as for whole teams in torch."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm import chance
from mast_swarm import explore as teams
from mast_swarm.robot import explore

INTEGERS = st.integers(-(2**70), 2**70)


@given(seed=INTEGERS, counters=st.lists(st.integers(-(2**62), 2**62), max_size=3))
def test_chance_is_the_same(seed: int, counters: list[int]) -> None:
    key = chance.combine(chance.as_tensor([seed]), *counters)
    own = explore.combine(explore.whole(seed), *(explore.whole(one) for one in counters))
    assert own.astype(np.int64).tolist() == key.tolist()
    assert explore.uniform(own).tolist() == chance.uniform(key).tolist()


@settings(deadline=None)
@given(seed=INTEGERS, robot=st.integers(0, 300), time=st.floats(0, 1000))
def test_headings_are_the_same(seed: int, robot: int, time: float) -> None:
    moment = torch.tensor([time], dtype=torch.float64)
    expected = teams.heading(chance.as_tensor([seed]), moment, robot + 1)[0, robot].numpy()
    knots = [explore.heading(seed, robot, float(int(time) + k)) for k in (0, 1)]
    if np.dot(*knots) > -0.9:  # where the next heading lies opposite, rounding decides which way it turns
        assert np.abs(explore.heading(seed, robot, time) - expected).max() < 1e-6


@given(
    way=st.floats(0, 7),
    x=st.floats(-1e4, 1e4),
    y=st.floats(-1e4, 1e4),
    reach=st.floats(10, 1000),
    prediction=st.tuples(*[st.floats(-2, 2, width=32)] * 3),
)
def test_leash_and_filling_are_the_same(
    way: float, x: float, y: float, reach: float, prediction: tuple[float, float, float]
) -> None:
    heading = np.array([np.cos(way), np.sin(way)], np.float32)
    landmark = np.array([x, y], np.float32)
    given_, mark = torch.from_numpy(heading), torch.from_numpy(landmark)
    leashed, expected = explore.leashed(heading, landmark, reach), teams.leashed(given_, mark, reach)
    distance = max(float(np.hypot(x, y)), 1e-9)
    if np.dot(heading, landmark) / distance > -0.9:
        assert np.abs(leashed - expected.numpy()).max() < 1e-6
    filled = explore.fill(np.array(prediction, np.float32), heading)
    assert np.abs(filled - teams.fill(torch.tensor(prediction), given_).numpy()).max() < 1e-6


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    places=st.integers(1, 6),
    spread=st.floats(20, 500),
    dt=st.sampled_from([0.2, 1.0, 2.5]),
    push=st.floats(0.1, 10),
)
def test_memory_is_the_same(seed: int, places: int, spread: float, dt: float, push: float) -> None:
    path = np.cumsum(np.random.default_rng(seed).normal(0, 5, (60, 2)), axis=0)
    team, one = teams.Trail(places, spread, dt), explore.Trail(places, spread)
    way = np.array([0.6, 0.8], np.float32)
    for instant, place in enumerate(path):
        expected = team.away(torch.from_numpy(place)[None, None])
        away = one.away(place, instant * dt)
        np.testing.assert_allclose(away, expected[0, 0].numpy(), atol=1e-9)
        there = teams.turned(torch.from_numpy(way), expected[0, 0], push)
        np.testing.assert_allclose(explore.turned(way, away, push), there.numpy(), atol=1e-5)
