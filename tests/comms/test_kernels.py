"""The GPU kernels of decentralized execution compute what the plain functions compute."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest
import torch
from torch import Tensor

from devices import DEVICE, HALF, few
from mast_swarm.comms import Channel, Relay, RelayState, decentral, views
from mast_swarm.model.lists import attend_lists
from mast_swarm.space import nearest, neighbour_graph, radius_graph

pytestmark = pytest.mark.kernels

CASES = few(
    [(30, 250.0, 4), (100, 120.0, 3), (5, None, 2), (1, None, 1)],
    [(33, 250.0, 3), (5, None, 2), (1, None, 1)],
)


VIEWS, INSTANTS = few(40, 4), few(25, 9)


def some_views(columns: int) -> tuple[Tensor, Tensor, Tensor]:
    """Entries of V views with gaps [V, columns], their own ones [V] (one has none), and positions of 150 entries."""
    rng = torch.Generator().manual_seed(columns)
    positions = torch.rand(150, 2, generator=rng) * 600
    entry = torch.stack([torch.randperm(150, generator=rng)[:columns] for _ in range(VIEWS)])
    entry[torch.rand(entry.shape, generator=rng) < 0.2] = -1
    entry[:, 0] = torch.arange(VIEWS)
    own = entry[:, 0].clone()
    own[2] = -1
    return entry.to(DEVICE), own.to(DEVICE), positions.to(DEVICE)


@pytest.mark.parametrize(("columns", "radius", "layers"), CASES)
def test_windows(columns: int, radius: float | None, layers: int) -> None:
    from mast_swarm.comms import kernels

    entry, own, positions = some_views(columns)
    fast = kernels.Sight(entry, own, positions, radius, layers)
    assert torch.equal(fast.entry.sort(1).values, entry.sort(1).values)
    assert torch.equal(fast.level, fast.level.sort(1).values)
    assert ((fast.level > layers) == (fast.entry < 0)).all()
    plain = views.Sight(fast.entry, own, positions, radius, layers)  # of the entries in the order that it found
    assert torch.equal(plain.level, fast.level.clamp_max(layers).long())
    view, column = (plain.level < layers).nonzero(as_tuple=True)
    for a, b in zip(plain.windows(view, column), fast.windows(view, column), strict=True):
        assert torch.equal(a, b.long())


@pytest.mark.parametrize(("columns", "radius", "layers"), CASES)
def test_attention_within_views(columns: int, radius: float | None, layers: int) -> None:
    from mast_swarm.comms import kernels

    found = views.look(*some_views(columns), radius, layers)
    heads, width = 2, 64
    work: Any = None
    for layer in range(1, layers + 1):
        work = views.nodes(found, work, 10**9)
        below = 150 if layer == 1 else found.rows[layer - 1]
        q, kv = (torch.randn(below, size, device=DEVICE).to(HALF) for size in (width, 2 * width))
        assert kernels.takes(found, q, heads)
        lists = views._lists(found, layer, work.below)
        expected = attend_lists(q.float(), work.itself, kv.float(), lists, heads)
        assert torch.allclose(views.attend(q, kv, found, work, heads).float(), expected, atol=0.03)


def a_state(delay: float, robots: int) -> RelayState:
    relay, rng = Relay(Channel(delay, loss=0.2, failure=0.05, seed=1), 1.0), torch.Generator().manual_seed(robots)
    state = relay.start([1, 2, 3], robots, 4, like=torch.empty(0, device=DEVICE))
    for step in range(few(9, 4)):
        positions = torch.rand(3, robots, 2, generator=rng).to(DEVICE) * 700
        graph = neighbour_graph(nearest(positions, positions, 3, exclude_self=True)[1])
        state = relay.exchange(state, graph) if step else state
        state = relay.sample(state, torch.zeros(3, robots, 4, device=DEVICE), positions, graph)
    return state


@pytest.mark.parametrize(
    ("delay", "reach", "robots", "block"),
    few(
        [(1.0, 500.0, 40, 2048), (1.0, 500.0, 40, 8), (2.5, 300.0, 33, 2048), (0.0, None, 7, 2)],
        [(1.0, 500.0, 5, 2), (2.5, 300.0, 3, 2048), (0.0, None, 6, 4)],
    ),
)
def test_entries(delay: float, reach: float | None, robots: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from mast_swarm.comms import kernels

    monkeypatch.setattr(kernels, "_BLOCK", block)
    state = a_state(delay, robots)
    positions = decentral._local(state, torch.float32)
    fast = decentral._entries(state, positions, reach)
    monkeypatch.setattr(decentral, "kernels", None)
    for a, b in zip(fast, decentral._entries(state, positions, reach), strict=True):
        assert torch.equal(a, b)


def an_episode(channel: Channel, dt: float, robots: int, graphs: str) -> list[RelayState]:
    """The states of some instants, before and after sampling; the first hops are made before anybody has sampled."""
    relay, rng = Relay(channel, dt), torch.Generator().manual_seed(robots)
    state = relay.start([1, 2, 3], robots, 5, like=torch.empty(0, device=DEVICE))
    states = []
    positions = torch.rand(3, robots, 2, generator=rng) * 300
    for _ in range(INSTANTS):
        positions = positions + torch.randn(3, robots, 2, generator=rng) * 20
        here, message = positions.to(DEVICE), torch.randn(3, robots, 5, generator=rng).to(DEVICE)
        if graphs == "radius":
            graph = radius_graph(here, 60.0)
        else:
            near = nearest(here, here, 3, exclude_self=True)[1]
            graph = neighbour_graph(near, directed=graphs == "directed")
        states.append(relay.exchange(state, graph))
        states.append(relay.sample(states[-1], message, here, graph))
        state = states[-1]
    return states


RELAYED = [  # the channel, dt, launches of hops by kernel, whether samples are too
    (Channel(1.0), 1.0, INSTANTS, True),
    (Channel(1.0, failure=0.03), 1.0, INSTANTS, True),
    (Channel(0.1, failure=0.03), 0.3, INSTANTS, True),
    (Channel(1.0, loss=0.3, failure=0.03), 1.0, INSTANTS, True),
    (Channel(1.0, failure=0.03, max_age=2.0), 1.0, INSTANTS, True),
    (Channel(0.1, loss=0.3, max_age=0.5), 0.3, 3 * INSTANTS, True),
    (Channel(1.0, max_age=0.9), 1.0, INSTANTS, True),
    (Channel(2.5, failure=0.03), 1.0, 0, False),
    (Channel(0.1, failure=0.03), 0.25, 0, False),
    (Channel(1.0, failure=0.03, relay_radius=80.0, max_age=4.0), 1.0, 0, False),
]


@pytest.mark.parametrize(("channel", "dt", "hops", "samples"), few(RELAYED, RELAYED[1:7]))
@pytest.mark.parametrize("graphs", few(["both ways", "directed", "radius"], ["directed"]))
@pytest.mark.parametrize(
    ("robots", "block"), few([(1, 2048), (5, 2), (33, 2048), (33, 8), (100, 2048), (100, 16)], [(1, 2048), (5, 4)])
)
def test_relay(
    channel: Channel,
    dt: float,
    hops: int,
    samples: bool,
    graphs: str,
    robots: int,
    block: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from mast_swarm.comms import kernels, relay

    monkeypatch.setattr(kernels, "_BLOCK", block)  # entries at a time: of large teams several
    calls = Counter[str]()

    def counted(name: str, kernel: Any) -> Any:
        def call(*given: Any) -> Any:
            calls[name] += 1
            return kernel(*given)

        return call

    for name in ("hop", "sample"):
        monkeypatch.setattr(kernels, name, counted(name, getattr(kernels, name)))
    channel = dataclasses.replace(channel, seed=4)
    fast = an_episode(channel, dt, robots, graphs)
    # Plain torch does the rest, and samples where a store is full.
    assert calls["hop"] == hops and (calls["sample"] >= 8 if samples else calls["sample"] == 0)
    monkeypatch.setattr(relay, "kernels", None)
    # Compared when all is over, so that no state has been changed by a later one. The stores are equal even where no
    # entry refers to them: robots that have failed write to a free slot too.
    for a, b in zip(fast, an_episode(channel, dt, robots, graphs), strict=True):
        assert (a.step, a.spare) == (b.step, b.spare)
        for field in ("table", "messages", "positions", "alive", "transmissions", "entries"):
            assert torch.equal(getattr(a, field), getattr(b, field)), (a.step, field)


@pytest.mark.parametrize("block", [16, 2048])
def test_slots_where_many_are_taken(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Robots hold 67 stamps of everyone; a slot of a robot's own is free where nobody else refers to it."""
    from mast_swarm.comms import kernels, relay

    monkeypatch.setattr(kernels, "_BLOCK", block)
    rules, robots, rng = Relay(Channel(1.0), 1.0), 72, torch.Generator().manual_seed(1)
    state = rules.start([1], robots, 3, like=torch.empty(0, device=DEVICE))
    assert isinstance(state, RelayState)
    held = torch.arange(robots)
    table = held.where(held < 67, -1)[torch.stack([torch.randperm(robots, generator=rng) for _ in held], 1)]
    state = dataclasses.replace(
        state,
        table=table.to(DEVICE)[None, None],
        messages=state.messages.repeat(1, 16, 1, 1),
        positions=state.positions.repeat(1, 16, 1, 1),
        alive=torch.rand(1, robots, generator=rng).to(DEVICE) < 0.8,
        spare=1,
        step=3,
    )
    given = torch.ones(1, robots, 3, device=DEVICE), torch.ones(1, robots, 2, device=DEVICE)
    graph = radius_graph(given[1], 1.0)
    fast = rules.sample(state, *given, graph)
    monkeypatch.setattr(relay, "kernels", None)
    plain = rules.sample(dataclasses.replace(state, spare=0), *given, graph)
    assert isinstance(fast, RelayState) and isinstance(plain, RelayState)
    for field in ("table", "messages", "positions"):
        assert torch.equal(getattr(fast, field), getattr(plain, field)), field
