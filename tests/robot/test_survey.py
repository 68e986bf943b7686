"""The map of one robot in numpy: the same marks, choices and ways as for whole teams in torch."""

from __future__ import annotations

import math
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm import survey as teams
from mast_swarm.comms import handed as team_handed
from mast_swarm.comms.config import Channel
from mast_swarm.comms.timing import Timing
from mast_swarm.errors import MastError
from mast_swarm.robot import survey
from mast_swarm.robot.handed import Handed
from mast_swarm.robot.survey import SEARCHED, WORTH, Survey

PERIOD = 12  # ticks
NONE = np.full((1, 2), np.inf)


def test_the_constants_are_the_same() -> None:
    for name, theirs in (("LEASH", "LEASH"), ("BORDER", "BORDER"), ("IDLE", "IDLE")):
        assert getattr(survey, name) == getattr(teams, theirs)
    assert (survey.RIVALS, survey.YIELD, survey.STAY) == (teams._RIVALS, teams._YIELD, teams._STAY)


class Story:
    """What happens to a small team: where robots are, what they sense, who hears whom, who is idle."""

    def __init__(self, seed: int, robots: int, side: float, steps: int) -> None:
        rng = np.random.default_rng(seed)
        self.robots, self.steps = robots, steps
        start, walk = rng.uniform(-side, side, (robots, 2)), rng.normal(0, side / 8, (steps, robots, 2))
        self.positions = (start / 2 + walk.cumsum(0)).astype(np.float32)  # [n, N, 2]
        goals = rng.uniform(-side, side, (3 * robots, 2)).astype(np.float32) / 2
        sights = goals - self.positions[:, :, None]
        order = (sights**2).sum(-1).argsort(-1)[:, :, :2]
        self.sights = np.take_along_axis(sights, order[..., None], 2)  # [n, N, 2, 2]: the two nearest
        self.sights[rng.random((steps, robots)) < 0.05, 1] = np.inf  # nothing more to sense
        self.hears = rng.random((steps, robots, robots)) < 0.4  # [n, N, N]: i hears j
        busy = rng.random((steps, robots)) < 0.3
        speed = rng.uniform(0.2, 1.2, (steps, robots)).astype(np.float32)
        self.predictions = np.stack((np.where(busy, speed, 0), np.zeros_like(speed), speed), -1, dtype=np.float32)


def batched(story: Story, side: float, cell: float, tau: float) -> tuple[teams.Survey, Any]:
    """The maps of the team, and what gives its commands instant by instant."""
    timing = Timing(Channel(delay=tau), 1.0)
    now = SimpleNamespace(step=-1)
    relay: Any = SimpleNamespace(timing=timing, heard=lambda *_: torch.from_numpy(story.hears[now.step])[None])
    maps = teams.Survey(side=side, cell=cell)
    handed = team_handed.Handed(maps, relay)
    alive = torch.ones(1, story.robots, dtype=torch.bool)

    def commands() -> torch.Tensor:
        if now.step >= 0:
            handed.hear(now, relay)  # type: ignore[arg-type]
        now.step += 1
        n = now.step
        positions, sights, prediction = (
            torch.from_numpy(given[n])[None] for given in (story.positions, story.sights, story.predictions)
        )
        handed.look(now, SimpleNamespace(positions=positions, sights=sights))  # type: ignore[arg-type]
        return handed.searched(torch.full_like(positions, 0.5), prediction, alive, positions)[0]

    return maps, commands


@settings(deadline=None, max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    robots=st.integers(1, 8),
    side=st.floats(50, 2500),
    cell=st.sampled_from([25.0, 40.0, 63.7]),
    hop=st.sampled_from([4, 6, 12, 18, 24]),
)
def test_a_team_of_such_robots_is_the_batched_one(seed: int, robots: int, side: float, cell: float, hop: int) -> None:
    """hop: ticks, of which a control period has 12."""
    story = Story(seed, robots, side, steps=6)
    maps, commands = batched(story, side, cell, float(Fraction(hop, PERIOD)))
    team = [Handed(Survey(cell, side), hop=hop, again=hop) for _ in range(robots)]
    for n in range(story.steps):
        expected = commands()
        for i, one in enumerate(team):
            given = story.positions[n, i], story.sights[n, i], np.full(2, 0.5), story.predictions[n, i]
            done = one.searched(n * PERIOD, *given)
            assert (one.survey.marks.reshape(2, -1) == maps.maps[0, i].numpy()).all()
            assert one.survey.searching == bool(maps.searching[0, i])
            chosen = one.survey.along**2 if one.survey.chosen is None else one.survey.chosen
            assert chosen == maps.chosen[0, i] and np.abs(done - expected[i].numpy()).max() < 1e-5
        for now in range(n * PERIOD + 1, (n + 1) * PERIOD + 1):
            offered = [one.offer(now) for one in team]
            assert all((marks is not None) == (now % hop == 0) for marks in offered)
            for i, j in np.argwhere(story.hears[n] & ~np.eye(robots, dtype=bool)):
                other, marks = team[j], offered[j]
                if marks is not None:
                    team[i].hear(now, j, other.position, other.survey.searching, marks)


def test_far_from_the_origin_the_middle_is_what_counts() -> None:
    far, near, east = np.array([500_000.0, 4_000_000.0]), np.array([10.25, 20.5]), np.array([351.0, 0.0])
    here, there = Survey(25.0, 400.0), Survey(25.0, 400.0, far)
    for one, place in ((here, near), (there, far + near)):
        one.look(place, [[30.0, 0.0], [0.0, 60.0]])
    assert (here.marks == there.marks).all() and here.marks.any()
    assert (here.way(near, True) == there.way(far + near, True)).all()
    assert here.frame != there.frame and here.frame == Survey(25.0, 400.0).frame
    assert there.covers(far + 349) and not there.covers(far + east) and not there.covers((0.0, 0.0))


def test_who_senses_too_little_has_searched_as_far_as_it_senses() -> None:
    all_of_it, near = Survey(25.0, 400.0), Survey(25.0, 400.0)
    all_of_it.look((0.0, 0.0), NONE)
    near.look((0.0, 0.0), NONE, reach=60.0)
    assert all_of_it.marks[SEARCHED].all() and not near.marks[WORTH].any()
    assert 0 < near.marks[SEARCHED].sum() <= math.pi * 60**2 / 25**2 + 4


def test_what_is_handed_on_waits_and_is_bounded() -> None:
    one, marks = Handed(Survey(25.0, 400.0), hop=10, again=30, recent=50), np.zeros((2, 28, 28), bool)
    assert one.offer(0) is None  # it has not looked yet
    one.searched(5, (0.0, 0.0), NONE, np.zeros(2), np.array([1.0, 0.0, 1.0]), reach=1.0)
    assert one.offer(14) is None
    first = one.offer(15)
    assert first is not None and first.any() and one.offer(44) is None
    for tick in range(100):
        marks.reshape(-1)[tick] = True
        one.hear(20 + tick // 10, 7, np.zeros(2), True, marks.copy())
    assert len(one._waiting) == 16 and one.survey.marks[0].sum() == 100
    assert len(one.rivals(40)) == 1 and one.rivals(79) == []
    later = one.offer(45)
    assert later is not None and later[0].sum() == 100
    assert one.offer(0) is not None  # the clock was set back
    one.drop(7)
    assert one.rivals(40) == []


@pytest.mark.parametrize(
    ("given", "error"),
    [((0.0, 400.0), "expected positive numbers"), ((25.0, 400.0, (0.0, math.nan)), "expected two numbers, metres")],
)
def test_mistakes(given: Any, error: str) -> None:
    with pytest.raises(MastError, match=error):
        Survey(*given)
