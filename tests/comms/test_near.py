"""Lists of those within the relay radius hold what the table of all pairs holds."""

from __future__ import annotations

from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm import Channel, DecentralPolicy, Policy, PolicyConfig
from mast_swarm.comms import padded
from mast_swarm.comms import relay as relays
from mast_swarm.comms.held import RelayState
from mast_swarm.comms.near import NearState
from mast_swarm.comms.relay import Relay
from mast_swarm.observation import Observation
from mast_swarm.space import nearest, neighbour_graph
from relaying import Network, Story, batched

POLICY = Policy(PolicyConfig(layers=2, heads=2, head_dim=8, attention_radius=60.0), seed=1)


def walk(seed: int, batch: int, robots: int, steps: int, directed: bool) -> list[Observation]:
    rng, found = torch.Generator().manual_seed(seed), []
    positions = torch.rand(batch, robots, 2, generator=rng) * 250 + 4e6  # far from the origin, as UTM coordinates are
    for _ in range(steps):
        positions = positions + torch.randn(batch, robots, 2, generator=rng) * 12
        graph = neighbour_graph(nearest(positions, positions, 2, exclude_self=True)[1], directed=directed)
        features = torch.randn(batch, robots, 14, generator=rng)
        found.append(Observation(features=features, positions=positions, graph=graph))
    return found


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 3),
    robots=st.integers(1, 17),
    ratio=st.sampled_from([1.0, 0.5, 1 / 3, 0.1]),
    radius=st.sampled_from([15.0, 60.0, 130.0, 1000.0]),
    trouble=st.sampled_from([(0.0, 0.0), (0.3, 0.05)]),
    directed=st.booleans(),
)
def test_lists_against_the_table(
    seed: int, batch: int, robots: int, ratio: float, radius: float, trouble: tuple[float, float], directed: bool
) -> None:
    channel, runs = Channel(ratio, *trouble, relay_radius=radius), []
    for listed in (1, 10**9):
        with mock.patch.object(relays, "LISTED", listed):
            run = DecentralPolicy(POLICY, channel, 1.0)
            run.start(range(seed, seed + batch))
            seen: list[tuple[Any, ...]] = []
            for observation in walk(seed, batch, robots, 12, directed):  # more steps than there are slots at first
                command, state = run.act(observation), run.state
                assert isinstance(state, NearState if listed == 1 else RelayState)
                seen.append((command, state.stamps, state.places, state.alive, state.transmissions, state.entries))
            runs.append(seen)
    for near, table in zip(*runs, strict=True):
        assert torch.allclose(near[0], table[0], atol=1e-5)
        assert all(torch.equal(a, b) for a, b in zip(near[1:], table[1:], strict=True))


@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_lists_are_a_network_of_robots(ratio: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relays, "LISTED", 1)
    story = Story(5, robots=8, steps=12, dt=0.2, share=0.3)
    channel = Channel(delay=ratio * 0.2, loss=0.2, relay_radius=60.0)
    assert batched(story, channel) == list(Network(story, channel).run())


def test_which_relays_keep_lists() -> None:
    assert Relay(Channel(0.5, relay_radius=50.0), 1.0).lists(relays.LISTED, "cpu")
    assert not Relay(Channel(0.5, relay_radius=50.0), 1.0).lists(relays.LISTED - 1, "cpu")
    for other in (Channel(0.5), Channel(0.7, relay_radius=50.0), Channel(0.5, relay_radius=50.0, max_age=3.0)):
        assert not Relay(other, 1.0).lists(relays.LISTED, "cpu")
    assert not Relay(Channel(0.0, relay_radius=50.0), 1.0).lists(relays.LISTED, "cpu")


def test_a_gpu_keeps_lists_where_there_are_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of every channel with a relay radius and a delay."""
    monkeypatch.setattr(padded, "kernels", None)
    assert not Relay(Channel(0.5, relay_radius=50.0), 1.0).lists(relays.LISTED, "cuda")
    monkeypatch.setattr(padded, "kernels", object())
    for channel in (Channel(0.5, relay_radius=50.0), Channel(0.7, relay_radius=50.0, max_age=3.0)):
        assert Relay(channel, 1.0).lists(relays.LISTED, "cuda")
        assert not Relay(channel, 1.0).lists(relays.LISTED - 1, "cuda")
    for channel in (Channel(0.5), Channel(0.0, relay_radius=50.0)):
        assert not Relay(channel, 1.0).lists(relays.LISTED, "cuda")
