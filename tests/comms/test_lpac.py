"""LPAC over the channel: without delay the central policy, with delay as old as its exchanges make it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from mast_swarm.comms import Channel
from mast_swarm.comms.lpac import DecentralLPAC
from mast_swarm.errors import MastError
from mast_swarm.model import LPAC, LPACConfig
from mast_swarm.model.lpac import GraphLayer
from mast_swarm.space import Graph, radius_graph


@dataclass(frozen=True)
class Seen:
    features: Tensor
    positions: Tensor
    graph: Graph


def make(layers: int = 2) -> LPAC:
    config = LPACConfig(
        layers=layers, hops=2, width=12, head_width=5, message_dim=6, observation_dim=4, perception="mlp"
    )
    policy = LPAC(config, seed=1).double()
    with torch.no_grad():
        for layer in policy.layers:
            layer.linear.weight.mul_(2.0)
            layer.linear.bias.fill_(0.1)
    return policy.requires_grad_(False)


def row(robots: int, seed: int = 0, batch: int = 1) -> Seen:
    """Robots on a line, each linked to the one before it and the one after."""
    features = torch.randn(batch, robots, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    place = torch.arange(robots, dtype=torch.float64) * 100
    positions = torch.stack((place, torch.zeros_like(place)), -1).expand(batch, robots, 2)
    return Seen(features, positions, radius_graph(positions.contiguous(), 150.0))


def test_without_delay_it_is_the_central_policy() -> None:
    policy = make()
    run = DecentralLPAC(policy, Channel(delay=0.0), 0.2)
    run.start([1, 2])
    for seed in range(3):
        seen = row(7, seed, batch=2)
        assert torch.equal(run.act(seen), policy(**policy.inputs(seen)))


@pytest.mark.parametrize(("delay", "needed"), [(0.2, 4), (0.1, 2), (0.05, 1), (0.4, 8), (0.03, 1)])
def test_in_a_still_world_it_comes_to_the_central_commands_after_all_exchanges(delay: float, needed: int) -> None:
    policy, seen = make(), row(8)  # L K = 4 exchanges
    central = policy(**policy.inputs(seen))
    run = DecentralLPAC(policy, Channel(delay=delay), 0.2)
    run.start([0])
    commands = [run.act(seen) for _ in range(needed + 2)]
    assert not torch.allclose(commands[needed - 1], central, atol=1e-9)
    assert all(torch.allclose(command, central, atol=1e-12) for command in commands[needed:])


@pytest.mark.parametrize(("delay", "periods"), [(1.0, [0, 1, 2, 3, 4]), (0.5, [0, 1, 1, 2, 2]), (2.0, [0, 2, 4, 6, 8])])
def test_news_is_as_old_as_the_exchanges_it_took(delay: float, periods: list[int]) -> None:
    policy, changes = make(), 3  # robot 0 sees something else from instant 3 on
    runs = []
    for moved in (False, True):
        run = DecentralLPAC(policy, Channel(delay=delay), 1.0)
        run.start([0])
        commands = []
        for instant in range(15):
            seen = row(6)
            if moved and instant >= changes:
                seen.features[:, 0] += 5.0
            commands.append(run.act(seen)[0])
        runs.append(torch.stack(commands))  # [instants, N, 2]
    differs = (runs[0] - runs[1]).abs().amax(-1) > 0
    first = [int(differs[:, robot].nonzero()[0]) - changes for robot in range(5)]
    assert first == periods
    assert not differs[:, 5].any()  # five links away, four exchanges


def test_the_graph_is_that_of_the_instant_at_which_an_exchange_begins() -> None:
    policy, seen = make(), row(2)
    apart = Seen(seen.features, seen.positions, radius_graph(seen.positions.contiguous(), 50.0))
    alone = policy(**policy.inputs(apart))
    run = DecentralLPAC(policy, Channel(delay=0.2), 0.2)
    run.start([0])
    for _ in range(6):
        run.act(seen)
    assert not torch.allclose(run.act(apart), alone, atol=1e-9)  # what was sent before the link broke arrives
    for _ in range(5):
        last = run.act(apart)
    assert torch.allclose(last, alone, atol=1e-12)


@pytest.mark.parametrize("delay", [0.0, 0.2])
def test_bf16_autocast_reads_positions_in_fp32(delay: float, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, seen, combine = make().float(), row(8), GraphLayer.combine
    first: list[Tensor] = []  # what the layer that reads positions gives

    def recorded(layer: GraphLayer, shifted: Tensor) -> Tensor:
        found = combine(layer, shifted)
        if layer is policy.layers[0]:
            first.append(found)
        return found

    def last(moved: float) -> Tensor:
        run = DecentralLPAC(policy, Channel(delay=delay), 0.2)
        run.start([0])
        here = Seen(seen.features.float(), (seen.positions + moved).float(), seen.graph)
        return [run.act(here) for _ in range(6)][-1]

    message = policy.perceive(seen.features.float())
    monkeypatch.setattr(policy, "perceive", lambda features: message)  # in half precision it would differ itself
    monkeypatch.setattr(GraphLayer, "combine", recorded)
    exact = last(0.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = last(0.0)
    # The first layer is as exact as without autocast, and so tells positions half a metre apart.
    assert first[-1].dtype == torch.float32 and torch.equal(first[-1], first[len(first) // 2 - 1])
    assert torch.allclose(rough, exact, atol=0.05) and not torch.equal(rough, exact)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        last(0.5)
    assert not torch.equal(first[-1], first[len(first) // 3 - 1])


def test_start_forgets() -> None:
    run = DecentralLPAC(make(), Channel(delay=0.2), 0.2)
    run.start([0])
    first = [run.act(row(5)) for _ in range(3)]
    run.start([0])
    assert all(torch.equal(run.act(row(5)), before) for before in first)


def test_what_cannot_be_run_is_named() -> None:
    for channel in (Channel(loss=0.1), Channel(failure=0.1)):
        with pytest.raises(MastError, match="channels with delay alone"):
            DecentralLPAC(make(), channel, 0.2)
    run = DecentralLPAC(make(), Channel(delay=0.2), 0.2)
    with pytest.raises(MastError, match="1 environments are observed but 0 were started"):
        run.act(row(4))
    run.start([0])
    run.act(row(4))
    with pytest.raises(MastError, match="5 robots, but the run began with 4"):
        run.act(row(5))
