"""Robots alone whose views are given a fixed room decide as they do otherwise, or say that it is outgrown."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from devices import DEVICE, few, plainly
from mast_swarm import Channel, DecentralPolicy, Policy, PolicyConfig, steady
from mast_swarm.comms import decentral, wide
from mast_swarm.comms.held import RelayState
from mast_swarm.observation import Observation
from mast_swarm.space import Graph, nearest, neighbour_graph
from mast_swarm.steady import Steady

WINDOWS = {
    radius: Policy(PolicyConfig(layers=3, heads=2, head_dim=16, attention_radius=radius), seed=1).to(DEVICE)
    for radius in (60.0, None)
}


def heard(policy: Policy, channel: Channel, seed: int, batch: int, robots: int, steps: int) -> list[RelayState]:
    """What robots that wander hold at the first instants."""
    rng, found = torch.Generator().manual_seed(seed), []
    positions = torch.rand(batch, robots, 2, generator=rng) * 200 + 4e6
    alone = DecentralPolicy(policy, channel, 1.0)
    alone.start(range(batch))
    for _ in range(steps):
        positions = positions + torch.randn(batch, robots, 2, generator=rng) * 10
        with plainly():
            graph = neighbour_graph(nearest(positions, positions, 2, exclude_self=True)[1])
        links = Graph(graph.source.to(DEVICE), graph.target.to(DEVICE), batch, robots)
        features = torch.randn(batch, robots, 14, generator=rng).to(DEVICE)
        alone.listen(Observation(features=features, positions=positions.to(DEVICE), graph=links))
        assert isinstance(alone.state, RelayState)
        found.append(alone.state)
    return found


def rooms(asked: Steady) -> list[int]:
    return [room for kept in asked.answers if isinstance(kept, tuple) for room in kept[0]]


@pytest.mark.kernels
@settings(deadline=None, max_examples=few(40, 3))
@given(
    seed=st.integers(0, 99),
    batch=st.integers(1, 2),
    robots=st.integers(1, few(40, 3)),
    asked=st.integers(0, 3),
    room=st.sampled_from([0.5, 1.0, 3.0]),
    more=st.sampled_from([0, 5, 2048]),
    failure=st.sampled_from([0.0, 0.3]),
    radius=st.sampled_from(list(WINDOWS)),
)
@example(seed=0, batch=1, robots=3, asked=3, room=1.0, more=0, failure=0.0, radius=60.0)  # just enough
@example(seed=0, batch=1, robots=3, asked=0, room=1.0, more=0, failure=0.0, radius=60.0)  # before anybody was heard
@example(seed=0, batch=1, robots=3, asked=0, room=1.0, more=2048, failure=1.0, radius=60.0)  # all have failed since
@example(seed=1, batch=1, robots=4, asked=2, room=0.5, more=0, failure=0.0, radius=60.0)  # more below than room
def test_rows_that_are_nobodys_change_nothing(
    seed: int, batch: int, robots: int, asked: int, room: float, more: int, failure: float, radius: float | None
) -> None:
    policy = WINDOWS[radius]
    states = heard(policy, Channel(1.0, failure=failure), seed, batch, robots, 4)
    expected = decentral.decide(policy, states[-1])
    work, exact = Steady(DEVICE, room), Steady(DEVICE, 1.0)

    def spare(places: int) -> mock._patch:
        return mock.patch.multiple(steady, MORE=places)

    with torch.inference_mode(), mock.patch.object(decentral, "_WIDER", 0):
        with spare(more), work.asking():
            decentral.decide(policy, states[asked])
        with spare(0), exact.asking():  # with just as many places as are needed
            found: Tensor = decentral.decide(policy, states[-1])
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
        with work.granted():
            found = decentral.decide(policy, states[-1])
    fits = all(there >= needed for there, needed in zip(rooms(work), rooms(exact), strict=True))
    assert bool(work.outgrown) == (not fits)
    if fits:
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.kernels
def test_views_of_whole_teams_have_a_limit() -> None:
    with_window, without = (DecentralPolicy(WINDOWS[radius], Channel(1.0), 1.0) for radius in (60.0, None))
    assert with_window.unsteady(100_000) is None and without.unsteady(4096) is None
    assert "no attention window" in str(without.unsteady(4097))


@settings(deadline=None)
@given(
    seed=st.integers(0, 999),
    views=st.integers(1, 12),
    levels=st.integers(1, 4),
    room=st.sampled_from([0.3, 0.7, 1.0, 1.25]),
)
def test_a_row_that_finds_no_room_is_in_no_layer_above(seed: int, views: int, levels: int, room: float) -> None:
    """A view's rows of a layer are the first of its rows in the layer below: nothing may be read beyond those."""
    rng = torch.Generator().manual_seed(seed)

    def drawn() -> tuple[Tensor, Tensor]:
        more = torch.randint(0, 8, (levels + 1, views), generator=rng, dtype=torch.int32)
        reached = more.cumsum(0, dtype=torch.int32)
        reached[0].clamp_max_(1)  # the robot itself
        return torch.zeros(views, 40, dtype=torch.int64), reached

    work = Steady("cpu", room)
    with mock.patch.object(steady, "MORE", 0), mock.patch.object(wide, "ROWS", 100):
        with work.asking():
            asked = list(wide._parts(*drawn()))
        with work.granted():
            found = list(wide._parts(*drawn()))
    assert len(found) == len(asked)
    for part in found:
        assert (part.reached[:-1] <= part.reached[1:]).all()
        for level, rows in enumerate(part.rows):
            assert (part.begin[level] + part.reached[level] <= rows).all()
