"""Lists of those within the relay radius on a GPU, and decisions from them, are what the table of all pairs gives."""

from __future__ import annotations

import copy
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from devices import DEVICE, HALF, few, plainly
from mast_swarm import Channel, DecentralPolicy, Policy, PolicyConfig
from mast_swarm.comms import Relay, padded, views, wide
from mast_swarm.comms import relay as relays
from mast_swarm.comms.held import RelayState, slot_of
from mast_swarm.comms.near import NearState
from mast_swarm.comms.padded import PaddedState
from mast_swarm.comms.relay import Held
from mast_swarm.model.lists import Lists, attend_lists, turn_rows
from mast_swarm.observation import Observation
from mast_swarm.space import Graph, nearest, neighbour_graph
from relaying import Network, Story, batched

pytestmark = pytest.mark.kernels

POLICY = Policy(PolicyConfig(layers=3, heads=2, head_dim=16, attention_radius=60.0), seed=1).to(DEVICE)


def walk(seed: int, batch: int, robots: int, steps: int, directed: bool) -> list[tuple[Tensor, Graph]]:
    rng, found = torch.Generator().manual_seed(seed), []
    positions = torch.rand(batch, robots, 2, generator=rng) * 250 + 4e6  # far from the origin, as UTM coordinates are
    for _ in range(steps):
        positions = positions + torch.randn(batch, robots, 2, generator=rng) * 12
        with plainly():
            graph = neighbour_graph(nearest(positions, positions, 2, exclude_self=True)[1], directed=directed)
        found.append((positions, graph))
    return found


def states(channel: Channel, walked: list[tuple[Tensor, Graph]], device: str) -> list[Held]:
    """What robots hold after each sample; messages say whose they are and when."""
    relay, found = Relay(channel, 1.0), []
    batch, robots, _ = walked[0][0].shape
    state = relay.start(range(batch), robots, 2, like=torch.empty(0, device=device))
    for positions, graph in walked:
        links = Graph(graph.source.to(device), graph.target.to(device), batch, robots)
        state = relay.exchange(state, links)  # the first before anybody has sampled
        message = torch.stack((torch.arange(robots), torch.full((robots,), state.step)), -1).float()
        state = relay.sample(state, message.expand(batch, -1, -1).to(device), positions.to(device), links)
        found.append(state)
    return found


def against_the_table(channel: Channel, walked: list[tuple[Tensor, Graph]]) -> PaddedState:
    with mock.patch.object(relays, "LISTED", 1):
        listed = states(channel, walked, DEVICE)
    with plainly(), mock.patch.object(relays, "LISTED", 10**9):
        tables = states(channel, walked, "cpu")
    for lists, table in zip(listed, tables, strict=True):
        assert isinstance(lists, PaddedState) and isinstance(table, RelayState)
        for name in ("stamps", "alive", "transmissions", "entries"):
            assert torch.equal(getattr(lists, name).cpu(), getattr(table, name)), name
        assert torch.equal(lists.places.cpu()[table.alive], table.places[table.alive])
    last = listed[-1]
    assert isinstance(last, PaddedState)
    b, i, j = (last.newest >= 0).nonzero().unbind(1)  # what the slots hold is what was said
    said = last.messages[b, slot_of(last.newest[b, i, j]), j]
    assert torch.equal(said, torch.stack((j, last.stamps[b, i, j]), -1).float())
    return last


@settings(deadline=None, max_examples=few(60, 8))
@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 2),
    robots=st.integers(1, few(40, 5)),
    delay=st.sampled_from([1.0, 0.5, 1 / 3, 0.7, 1.5, 2.0]),
    radius=st.sampled_from([15.0, 60.0, 130.0, 1000.0]),
    age=st.sampled_from([None, 0.9, 2.5, 5.0]),
    trouble=st.sampled_from([(0.0, 0.0), (0.3, 0.08)]),
    directed=st.booleans(),
)
def test_lists_against_the_table(
    seed: int,
    batch: int,
    robots: int,
    delay: float,
    radius: float,
    age: float | None,
    trouble: tuple[float, float],
    directed: bool,
) -> None:
    channel = Channel(delay, *trouble, relay_radius=radius, max_age=age)
    against_the_table(channel, walk(seed, batch, robots, few(14, 5), directed))


def test_lists_are_those_of_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the density, radius and speed of large teams."""
    monkeypatch.setattr(relays, "LISTED", 1)
    robots, steps, rng = few(2000, 8), few(30, 3), torch.Generator().manual_seed(0)
    channel, walked = Channel(1.0, 0.05, 0.001, relay_radius=few(1100.0, 150.0)), []
    positions = torch.rand(1, robots, 2, generator=rng) * 100 * robots**0.5
    for _ in range(steps):
        positions = positions + 5 * torch.randn(1, robots, 2, generator=rng)
        with plainly():
            walked.append((positions, neighbour_graph(nearest(positions, positions, 3, exclude_self=True)[1])))
    with plainly():
        expected = states(channel, walked, "cpu")
    for found, other in zip(states(channel, walked, DEVICE), expected, strict=True):
        assert isinstance(found, PaddedState) and isinstance(other, NearState)
        for name in ("stamps", "alive", "places", "transmissions", "entries"):
            assert torch.equal(getattr(found, name).cpu(), getattr(other, name)), name


def test_lists_that_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the columns nor the room for what is new are enough at first, and nothing is lost."""
    monkeypatch.setattr(padded, "STEP", 2)
    monkeypatch.setattr(padded, "_ROOM", 1)
    last = against_the_table(Channel(1.0, relay_radius=200.0), walk(3, 1, few(60, 9), few(10, 4), False))
    assert last.origin.shape[1] > 4 and last.room > 1


def test_lists_that_grow_too_long_become_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of a period too: the delay is half of it."""
    monkeypatch.setattr(padded, "STEP", 2)
    monkeypatch.setattr(padded, "MOST", 4)
    channel, walked = Channel(0.5, 0.1, relay_radius=1000.0), walk(3, 1, few(20, 7), 4, False)
    monkeypatch.setattr(relays, "LISTED", 1)
    found = states(channel, walked, DEVICE)
    assert isinstance(found[0], PaddedState) and isinstance(found[-1], RelayState)
    monkeypatch.setattr(relays, "LISTED", 10**9)
    with plainly():
        tables = states(channel, walked, "cpu")
    for one, other in zip(found, tables, strict=True):
        assert all(torch.equal(getattr(one, n).cpu(), getattr(other, n)) for n in ("stamps", "entries"))


@pytest.mark.parametrize("ratio", few([0.5, 1.5], [1.5]))
def test_lists_are_a_network_of_robots(ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "LISTED", 1)
    story = Story(5, robots=5, steps=few(12, 5), dt=0.2, share=0.3)
    channel = Channel(delay=ratio * 0.2, loss=0.2, relay_radius=60.0)
    assert batched(story, channel) == list(Network(story, channel).run())


def some_views(columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Entries of views [V, columns], moved to the left, their own ones (one has none), and positions [U, 2]."""
    rng = torch.Generator().manual_seed(columns)
    positions = torch.rand(3 * columns, 2, generator=rng) * 500
    positions[7] = torch.nan
    entry = torch.stack([torch.randperm(3 * columns, generator=rng)[:columns] for _ in range(few(50, 3))])
    entry[1, columns // 2 :] = -1
    own = entry[:, columns // 3].clone()
    own[2], entry[2] = -1, -1
    return entry.to(DEVICE), own.to(DEVICE), positions.to(DEVICE)


@pytest.mark.parametrize(("columns", "radius", "layers"), [(40, 120.0, 3), (few(300, 70), 90.0, 4), (5, 1e4, 1)])
def test_levels(columns: int, radius: float, layers: int) -> None:
    entry, own, positions = some_views(columns)
    ordered, reached = wide.kernels.levels(entry, own, positions, radius, layers)
    assert torch.equal(ordered.sort(1).values, entry.sort(1).values)
    plain = views.Sight(ordered, own, positions, radius, layers)
    for level in range(layers):
        assert torch.equal(reached[level].long(), (plain.level <= level).sum(1))
        first = torch.arange(columns, device=DEVICE) < reached[level, :, None]
        assert torch.equal(first, plain.level <= level)
    assert torch.equal(reached[layers].long(), (entry >= 0).sum(1))


@pytest.mark.parametrize("dtype", [torch.float32, HALF])
@pytest.mark.parametrize(
    ("columns", "radius", "layers", "rotary"), [(few(300, 40), 120.0, 3, True), (5, 1e4, 1, False)]
)
def test_attention_within_views(
    columns: int, radius: float, layers: int, rotary: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    if few(False, True):  # several blocks of either, in views that are small
        shape = {"QUERIES": 16, "KEYS": 16, "EACH": 2 if dtype == HALF else 1, "num_warps": 4}
        monkeypatch.setattr(wide.kernels, "_shape", lambda *_: shape)
    entry, own, positions = some_views(columns)
    positions = positions.nan_to_num(250.0)
    ordered, reached = wide.kernels.levels(entry, own, positions, radius, layers)
    plain, heads, width = views.Sight(ordered, own, positions, radius, layers), 2, 32
    phase = torch.rand(len(positions), width // heads // 2, device=DEVICE) * 7
    rotation = (phase.cos(), phase.sin()) if rotary else None
    (part,) = wide._parts(ordered, reached)
    for layer in range(1, layers + 1):
        level = layers - layer
        given, below, needed = (part.entry, part.reached, part.begin), part.begin[level + 1], part.rows[level]
        view, place = (plain.level <= level).nonzero(as_tuple=True)
        rows = len(positions) if layer == 1 else part.rows[level + 1]
        q, kv = (torch.randn(rows, size, device=DEVICE).to(dtype) for size in (width, 2 * width))
        found = wide.kernels.attend(q, kv, rotation, *given, positions, layer, needed, radius, heads)
        window, count = plain.windows(view, place)
        seen = view.repeat_interleave(count)
        keys = ordered[seen, window] if layer == 1 else below[seen] + window
        itself = ordered[view, place] if layer == 1 else below[view] + place
        for one, other in zip(wide.kernels.rows(*given, layer, needed), (itself, ordered[view, place]), strict=True):
            assert torch.equal(one, other)
        lists = Lists(keys, count.cumsum(0) - count, count)
        asking = q[itself].float()
        if rotary:  # each query by the phases of the entry that it stands for
            turn_rows(asking, (phase.cos(), phase.sin()), ordered[view, place], heads)
        expected = attend_lists(asking, torch.arange(len(asking), device=DEVICE), kv.float(), lists, heads)
        assert torch.allclose(found.float(), expected, atol=1e-5 if dtype == torch.float32 else 0.03)


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize(("batch", "robots", "rows"), few([(1, 400, 10**6), (2, 300, 2000)], [(2, 5, 9)]))
def test_decisions_from_lists(batch: int, robots: int, rows: int, half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every robot decides as it does on the CPU from a table, whatever parts the views are cut into."""
    channel, runs = Channel(0.5, 0.1, 0.02, relay_radius=170.0), []
    monkeypatch.setattr(wide, "NARROW", 1)
    monkeypatch.setattr(wide, "ROWS", rows)
    for device, listed in ((DEVICE, 1), ("cpu", 10**9)):
        monkeypatch.setattr(relays, "LISTED", listed)
        arithmetic = torch.autocast(DEVICE, HALF, enabled=half) if listed == 1 else plainly()
        with arithmetic:
            alone = DecentralPolicy(copy.deepcopy(POLICY).to(device), channel, 1.0)
            alone.start(range(batch))
            rng, found = torch.Generator().manual_seed(0), []
            for positions, graph in walk(4, batch, robots, few(12, 3), False):
                graph = Graph(graph.source.to(device), graph.target.to(device), batch, robots)
                features = torch.randn(batch, robots, 14, generator=rng).to(device)
                seen = Observation(features=features, positions=positions.to(device), graph=graph)
                found.append(alone.act(seen).cpu())
            runs.append(torch.stack(found))
    assert torch.allclose(*runs, atol=0.03 if half else 1e-5)
    assert runs[1].std() > 0.1  # it is more than what half precision leaves
