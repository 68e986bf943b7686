"""Exploration: headings, the leash, and what fills the gap in a command."""

from __future__ import annotations

import math

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm.chance import as_tensor
from mast_swarm.explore import EVERY, Trail, fill, heading, leashed, turned


def test_a_heading_is_a_function_of_seed_robot_and_time():
    seeds, time = torch.tensor([3, 11]), torch.tensor([0.4, 7.9])
    together = heading(seeds, time, 6)
    assert torch.equal(heading(seeds[1:], time[1:], 6), together[1:])
    assert torch.equal(heading(seeds, time, 4), together[:, :4])
    assert torch.allclose(torch.linalg.vector_norm(together, dim=-1), torch.ones(2, 6), atol=1e-5)


def test_headings_drift_without_a_jump_and_forget():
    time = torch.arange(0, 60, 0.01)
    path = heading(torch.full((len(time),), 5), time, 40)  # [T, 40, 2]
    turn = torch.linalg.vector_norm(path[1:] - path[:-1], dim=-1)
    # A heading whose next one lies opposite turns fast for a moment; all others change by little in a hundredth.
    assert turn.median() < 0.03
    assert (turn > 0.5).float().mean() < 2e-3
    later = (path[:-200] * path[200:]).sum(-1).mean()  # two units on
    assert abs(float(later)) < 0.1
    assert path.mean(dim=(0, 1)).abs().max() < 0.1  # no favourite direction


@settings(deadline=None, max_examples=50)
@given(angle=st.floats(0, 2 * math.pi), away=st.floats(1, 2000), to=st.floats(0, 2 * math.pi), reach=st.floats(50, 500))
def test_the_leash_holds_beyond_its_reach_and_not_within_half(angle, away, to, reach):
    way = torch.tensor([math.cos(angle), math.sin(angle)])
    mark = away * torch.tensor([math.cos(to), math.sin(to)])
    turned = leashed(way, mark, reach)
    if away <= reach / 2:
        assert torch.allclose(turned, way, atol=1e-5)
    if away >= reach:
        assert torch.allclose(turned, mark / away, atol=1e-4)
    assert torch.linalg.vector_norm(turned) <= 1 + 1e-5


def test_only_what_the_policy_leaves_open_is_filled():
    east, north = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    assert torch.equal(fill(torch.tensor([1.0, 0.0, 1.0]), north), east)  # sure
    assert torch.equal(fill(torch.tensor([0.0, 0.0, 0.0]), north), torch.zeros(2))  # on its goal
    assert torch.equal(fill(torch.tensor([0.0, 0.0, 1.0]), north), north)  # knows nothing
    assert torch.linalg.vector_norm(fill(torch.tensor([0.5, 0.0, 1.0]), north)) <= 1


def test_a_robot_turns_away_from_where_it_has_been():
    trail, east = Trail(3, 100.0, dt=5.0), torch.tensor([[[1.0, 0.0]]])
    assert EVERY == 10 and trail.every == 2
    for instant in range(4):  # at 0, 5, 10, 15 m; the first and the third are remembered
        away = trail.away(torch.tensor([[[5.0 * instant, 0.0]]]))
    assert trail.past[0, 0, 1:].tolist() == [[0.0, 0.0], [10.0, 0.0]]
    by_hand = math.exp(-0.15) + math.exp(-0.05)
    assert torch.allclose(away, torch.tensor([[[by_hand, 0.0]]]))
    assert torch.allclose(turned(east, away, 2.0), east)
    back, strong = -east + torch.tensor([0.0, 0.1]), 10 * away
    west = turned(back, strong, 2.0)  # it would go back
    assert west[0, 0, 0] > 0 > turned(back, strong, 0.5)[0, 0, 0]  # unless places weigh little
    for instant in range(4, 12):
        trail.away(torch.tensor([[[5.0 * instant, 0.0]]]))
    assert trail.past[0, 0, :, 0].tolist() == [30.0, 40.0, 50.0]  # the last three
    trail.begin(torch.ones(1, 1, 2))
    assert not trail.away(torch.ones(1, 1, 2)).any()  # where it stands does not push it


def test_without_memory_of_anything_a_heading_stays():
    way = heading(torch.tensor([1]), torch.tensor([0.2]), 5)
    assert torch.allclose(turned(way, torch.zeros_like(way), 2.0), way, atol=1e-6)


def test_any_integer_is_a_seed():
    seeds = [0, 5, -1, 2**63 - 1, 2**63, 2**64 - 1, 2**70 + 5]
    found = as_tensor(seeds)
    assert found.dtype == torch.int64 and found.tolist() == [0, 5, -1, 2**63 - 1, -(2**63), -1, 5]
    assert torch.equal(as_tensor(torch.tensor(seeds[:4])), found[:4])
    assert torch.isfinite(heading(found, torch.zeros(len(seeds)), 3)).all()


def test_precisions_mix():
    """Positions in float64, headings in float32, as in a coverage world whose state was given in float64."""
    way, mark = heading(torch.tensor([1]), torch.zeros(1), 4), torch.full((1, 4, 2), 250.0, dtype=torch.float64)
    found = fill(torch.zeros(1, 4, 3) + 0.5, leashed(way, mark, 300.0))
    assert found.dtype == torch.float32
    assert torch.equal(found, fill(torch.zeros(1, 4, 3) + 0.5, leashed(way, mark.float(), 300.0)))
