"""LPAC-K3: the graph filter against plain matrices, its symmetries, and how far information travels."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.model import LPAC, LPACConfig
from mast_swarm.model.lpac import GraphLayer, graph_shift
from mast_swarm.space import Graph, components, neighbour_graph, radius_graph

quick = settings(deadline=None, max_examples=15)
seeds = st.integers(0, 2**31)
SMALL = LPACConfig(width=12, head_width=5, message_dim=6, observation_dim=4, perception="mlp")


@dataclass(frozen=True)
class Seen:
    features: Tensor
    positions: Tensor
    graph: Graph


def make(config: LPACConfig = SMALL) -> LPAC:
    """A small policy in fp64, so that only real effects show, and with weights large enough that they do."""
    policy = LPAC(config, seed=3).double()
    with torch.no_grad():
        for layer in policy.layers:
            layer.linear.weight.mul_(2.0)
            layer.linear.bias.fill_(0.1)
    return policy.requires_grad_(False)


def team(seed: int, batch: int, robots: int, reach: float = 300.0) -> Seen:
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(batch, robots, 4, generator=rng, dtype=torch.float64)
    positions = torch.rand(batch, robots, 2, generator=rng, dtype=torch.float64) * 1024
    return Seen(features, positions, radius_graph(positions, reach))


def act(policy: LPAC, seen: Seen, **changed: Tensor) -> Tensor:
    return policy(**policy.inputs(seen) | changed)


def line(robots: int) -> Tensor:
    """Each robot hears the one before it and the one after, [1, robots, robots]."""
    place = torch.arange(robots)
    return ((place[:, None] - place).abs() == 1)[None]


def test_it_has_1_8_million_parameters() -> None:
    policy = LPAC()
    cnn = 32 * 9 * (4 + 32 + 32) + 3 * 2 * 32 + 26 * 26 * 32 * 32 + 32
    graph = 4 * 34 * 256 + 256 + 4 * (4 * 256 * 256 + 256)
    head = 256 * 32 + 32 + 32 * 2 + 2
    assert sum(p.numel() for p in policy.parameters()) == cnn + graph + head == 1_804_994
    assert policy.config.exchanges == 15
    rng = torch.Generator().manual_seed(0)
    features, positions = torch.rand(1, 3, 4, 32, 32, generator=rng), torch.rand(1, 3, 2, generator=rng) * 1024
    assert policy(features, positions, line(3)).shape == (1, 3, 2)


@quick
@given(seeds, st.integers(1, 9), st.integers(1, 4))
def test_a_layer_is_the_sum_of_powers_of_the_normalised_adjacency(seed: int, robots: int, hops: int) -> None:
    rng = np.random.default_rng(seed)
    adjacency = np.triu(rng.random((2, robots, robots)) < 0.4, 1)
    adjacency |= adjacency.transpose(0, 2, 1)
    x = rng.normal(size=(2, robots, 3))
    layer = GraphLayer(3, 5, hops).double()
    weight, bias = (tensor.detach().numpy() for tensor in (layer.linear.weight, layer.linear.bias))
    loops = rng.random((2, robots)) < 0.5  # a loop is no link
    given_adjacency = torch.from_numpy(adjacency | (np.eye(robots, dtype=bool) & loops[:, :, None]))
    with torch.no_grad():
        found = layer(torch.from_numpy(x), graph_shift(given_adjacency).double()).numpy()
    for b in range(2):
        degree = adjacency[b].sum(1)
        root = np.diag([d**-0.5 if d else 0.0 for d in degree])
        shift = root @ adjacency[b] @ root
        total = bias + sum(
            np.linalg.matrix_power(shift, k) @ x[b] @ weight[:, 3 * k : 3 * k + 3].T for k in range(hops + 1)
        )
        assert np.allclose(found[b], np.maximum(total, 0), atol=1e-6)  # the shift is made in fp32


@quick
@given(seeds, st.integers(1, 12))
def test_permuting_robots_permutes_commands(seed: int, robots: int) -> None:
    policy, seen = make(), team(seed, 1, robots)
    order = torch.randperm(robots, generator=torch.Generator().manual_seed(seed))
    adjacency = seen.graph.adjacency()
    straight = act(policy, seen)
    permuted = policy(seen.features[:, order], seen.positions[:, order], adjacency[:, order][:, :, order])
    assert torch.allclose(straight[:, order], permuted, atol=1e-9)


@pytest.mark.parametrize("robots", [1, 2, 7, 40])
def test_any_number_of_robots(robots: int) -> None:
    command = act(make(), team(4, 3, robots))
    assert command.shape == (3, robots, 2)
    assert torch.isfinite(command).all()


@quick
@given(seeds, st.integers(2, 12))
def test_other_components_have_no_influence(seed: int, robots: int) -> None:
    policy, seen = make(), team(seed, 1, robots)
    component = components(seen.graph)
    touched = component == component[0, 0]
    features, positions = seen.features.clone(), seen.positions.clone()
    features[touched] += 1.0
    positions[touched] += 50.0
    difference = (act(policy, seen, features=features, positions=positions) - act(policy, seen)).abs()
    assert (difference[~touched] == 0).all()
    assert difference[touched].max() > 1e-9


def test_an_isolated_robot_acts_as_if_it_were_alone() -> None:
    policy, seen = make(), team(5, 1, 6)
    adjacency = torch.ones(1, 6, 6, dtype=torch.bool)
    adjacency[:, 2, :] = adjacency[:, :, 2] = False
    command = act(policy, seen, adjacency=adjacency)
    alone = policy(seen.features[:, 2:3], seen.positions[:, 2:3], torch.zeros(1, 1, 1, dtype=torch.bool))
    assert torch.allclose(command[:, 2:3], alone, atol=1e-12)
    assert (graph_shift(adjacency)[0, 2] == 0).all()


def test_information_travels_15_links_and_no_farther() -> None:
    policy, seen = make(), team(6, 1, 18)
    features = seen.features.clone()
    features[:, 0] += 5.0
    adjacency = line(18)
    difference = act(policy, seen, adjacency=adjacency, features=features) - act(policy, seen, adjacency=adjacency)
    moved = difference[0].abs().amax(-1) > 0
    assert moved[:16].all() and not moved[16:].any()


def test_a_one_way_link_carries_one_way() -> None:
    policy, seen = make(), team(7, 1, 2)
    hears = torch.tensor([[[False, True], [False, False]]])  # 0 hears 1
    before = act(policy, seen, adjacency=hears)
    for changed, moved in ((0, [True, False]), (1, [True, True])):
        features = seen.features.clone()
        features[:, changed] += 1.0
        difference = (act(policy, seen, adjacency=hears, features=features) - before).abs().amax(-1)[0]
        assert (difference > 1e-9).tolist() == moved


def test_repeated_edges_and_loops_of_a_graph_change_nothing() -> None:
    policy, seen = make(), team(8, 2, 5)
    index = torch.tensor([[1], [0], [1], [-1], [3]]).expand(2, 5, 1)  # 3 lacks a neighbour: a loop in its place
    graph = neighbour_graph(index)
    doubled = Graph(graph.source.repeat(2), graph.target.repeat(2), 2, 5)
    plain = torch.zeros(2, 5, 5, dtype=torch.bool)
    for i, j in ((0, 1), (1, 2), (3, 4)):
        plain[:, i, j] = plain[:, j, i] = True
    assert torch.equal(act(policy, replace(seen, graph=doubled)), act(policy, seen, adjacency=plain))


def test_positions_count_in_units_of_the_world_and_commands_in_units_of_one_deviation() -> None:
    policy, seen = make(), team(9, 1, 6)
    twice = make(replace(SMALL, position_scale=2048.0, action_scale=0.25))
    assert torch.allclose(act(twice, seen, positions=2 * seen.positions), 0.25 * act(policy, seen), atol=1e-12)
    assert not torch.allclose(act(policy, seen, positions=2 * seen.positions), act(policy, seen), atol=1e-6)
    expected = act(policy, seen)
    given = policy.inputs(seen) | {"positions": 2 * seen.positions}
    assert torch.allclose(policy(**given, **policy.surroundings(2048.0)), expected, atol=1e-12)  # a world twice as wide


def test_environments_of_a_batch_do_not_mix() -> None:
    policy, seen = make(), team(10, 3, 6)
    inputs = policy.inputs(seen)
    together = policy(**inputs)
    for b in range(3):
        one = {name: value[b : b + 1] for name, value in inputs.items()}
        assert torch.allclose(together[b : b + 1], policy(**one), atol=1e-12)


def test_the_cnn_leaks_nothing_between_components() -> None:
    policy = LPAC(replace(SMALL, observation_dim=(2, 8, 8), perception="cnn"))
    features = torch.randn(1, 4, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    changed = features.clone()
    changed[:, 2:] += 3.0
    positions, adjacency = torch.zeros(1, 4, 2), torch.eye(2, dtype=torch.bool).repeat_interleave(2, 0)
    adjacency = adjacency.repeat_interleave(2, 1)[None]
    difference = policy(features, positions, adjacency) - policy(changed, positions, adjacency)
    assert (difference[:, :2] == 0).all() and difference[:, 2:].abs().max() > 1e-6


def test_gradients_reach_every_parameter() -> None:
    policy = LPAC(replace(SMALL, observation_dim=(2, 8, 8), perception="cnn", width=32)).train()
    rng = torch.Generator().manual_seed(1)
    features, positions = torch.randn(4, 6, 2, 8, 8, generator=rng), torch.rand(4, 6, 2, generator=rng) * 1024
    policy(features, positions, line(6).expand(4, 6, 6)).square().sum().backward()
    assert not [name for name, p in policy.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]


def test_bf16_autocast_reads_positions_in_fp32() -> None:
    policy, seen = make().float(), team(12, 1, 8)
    seen = replace(seen, features=seen.features.float(), positions=seen.positions.float())
    exact = act(policy, seen)
    moved = seen.positions + 0.5  # bf16 could not tell at 1000 m
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = act(policy, seen)
        x = policy.node_features(policy.perceive(seen.features), seen.positions)
    assert rough.dtype == x.dtype == torch.float32
    assert torch.allclose(exact, rough, atol=0.05) and not torch.equal(exact, rough)
    first: list[Tensor] = []
    handle = policy.layers[0].register_forward_hook(lambda module, given, found: first.append(found))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        act(policy, seen), act(policy, seen, positions=moved)
    handle.remove()
    assert first[0].dtype == torch.float32 and not torch.equal(first[0], first[1])


def test_initial_weights_come_from_the_seed_and_leave_the_global_state_alone() -> None:
    before = torch.get_rng_state()
    a, b, c = LPAC(SMALL, seed=1), LPAC(SMALL, seed=1), LPAC(SMALL, seed=2)
    assert torch.equal(before, torch.get_rng_state()) and not a.training
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.layers[1].linear.weight, c.layers[1].linear.weight)


def test_it_compiles_to_one_graph() -> None:
    policy, seen = make(), team(13, 2, 4)
    compiled = torch.compile(policy, backend="eager", fullgraph=True, dynamic=False)
    assert torch.equal(compiled(**policy.inputs(seen)), act(policy, seen))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": torch.zeros(4, 2)}, r"positions have shape \(4, 2\)"),
        ({"positions": torch.full((1, 4, 2), float("nan"))}, "positions hold NaN"),
        ({"features": torch.zeros(1, 4, 5)}, r"features have shape .*\[B, N, 4\]"),
        ({"features": torch.zeros(1, 5, 4)}, r"messages have shape .*expected \(1, 4, 6\)"),
        ({"features": torch.full((1, 4, 4), float("inf"))}, "messages hold NaN or infinity"),
        ({"adjacency": torch.zeros(1, 4, 5, dtype=torch.bool)}, r"expected bool \(1, 4, 4\)"),
        ({"adjacency": torch.zeros(1, 4, 4)}, r"adjacency is torch.float32 \(1, 4, 4\)"),
    ],
)
def test_wrong_input_is_named(change: dict[str, Tensor], message: str) -> None:
    given = {"features": torch.zeros(1, 4, 4), "positions": torch.zeros(1, 4, 2), "adjacency": line(4), **change}
    with pytest.raises(MastError, match=message):
        make().float()(**given)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hops": 0}, "hops is 0"),
        ({"message_dim": None}, "message_dim is None"),
        ({"action_scale": float("inf")}, "action_scale is inf"),
        ({"position_scale": -1.0}, "position_scale is -1.0"),
        ({"perception": "cn"}, "unknown perception 'cn'"),
    ],
)
def test_wrong_configs_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(MastError, match=message):
        LPAC(replace(SMALL, **fields))
