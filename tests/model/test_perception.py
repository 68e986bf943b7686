"""The CNN: robots are treated one by one wherever nothing is learned, and its batch norm learns where something is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from mast_swarm.comms import Channel, DecentralPolicy
from mast_swarm.errors import MastError
from mast_swarm.model import Policy, PolicyConfig
from mast_swarm.space import Graph, components, radius_graph
from mast_swarm.tasks.coverage.recipes import MAST as COVERAGE

SMALL = replace(COVERAGE, layers=2, heads=2, head_dim=8, message_dim=6, observation_dim=(2, 9, 8))


@dataclass(frozen=True)
class Seen:
    features: Tensor
    positions: Tensor
    graph: Graph

    @property
    def landmark(self) -> Tensor:
        return torch.zeros_like(self.positions)


def make(config: PolicyConfig = SMALL) -> Policy:
    """A policy that has learned for a moment, so that the statistics of its batch norm are not those of birth."""
    policy = Policy(config, seed=2)
    policy.train()
    with torch.no_grad():
        for seed in range(3):
            policy.perceive(team(seed, 4, 3).features * 2 + 1)
    return policy.eval().requires_grad_(False)


def team(seed: int, batch: int, robots: int) -> Seen:
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(batch, robots, 2, 9, 8, generator=rng)
    positions = torch.rand(batch, robots, 2, generator=rng) * 1024
    return Seen(features, positions, radius_graph(positions, 256.0))


def norms(policy: Policy) -> Iterator[nn.BatchNorm2d]:
    return (module for module in policy.modules() if isinstance(module, nn.BatchNorm2d))


def test_the_coverage_policy_is_the_papers() -> None:
    policy = Policy(COVERAGE)
    cnn = 32 * 9 * (4 + 32 + 32) + 3 * 2 * 32 + 26 * 26 * 32 * 32 + 32
    assert sum(p.numel() for p in policy.perception.parameters()) == cnn
    assert sum(p.numel() for p in policy.parameters()) == 5_070_434
    assert policy.perceive(torch.zeros(1, 2, 4, 32, 32)).shape == (1, 2, 32)
    assert (COVERAGE.width, COVERAGE.message_width, COVERAGE.observation_shape) == (256, 32, (4, 32, 32))


def test_it_is_three_convolutions_each_with_batch_norm_and_a_linear_layer() -> None:
    policy = make()
    x = y = team(0, 2, 3).features.flatten(0, 1)
    weights = policy.perception.state_dict()
    for n in (0, 3, 6):
        y = torch.nn.functional.conv2d(y, weights[f"convolutions.{n}.weight"])
        mean, var, scale, bias = (
            weights[f"convolutions.{n + 1}.{name}"][:, None, None]
            for name in ("running_mean", "running_var", "weight", "bias")
        )
        y = (y - mean) / (var + 1e-5).sqrt() * scale + bias
        y = torch.where(y > 0, y, 0.01 * y)
    y = y.flatten(1) @ weights["linear.weight"].T + weights["linear.bias"]
    assert torch.allclose(policy.perceive(x.view(2, 3, 2, 9, 8)).flatten(0, 1), y, atol=1e-5)


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 2**31), st.integers(2, 6))
def test_a_robot_is_perceived_by_itself(seed: int, robots: int) -> None:
    policy, features = make(), team(seed, 2, robots).features
    changed = features.clone()
    changed[:, 0] = 100 * torch.randn(2, 2, 9, 8, generator=torch.Generator().manual_seed(seed)) + 7
    before, after = policy.perceive(features), policy.perceive(changed)
    assert torch.equal(before[:, 1:], after[:, 1:])
    assert not torch.allclose(before[:, 0], after[:, 0])
    alone = torch.cat([policy.perceive(features[:, i : i + 1]) for i in range(robots)], dim=1)
    assert torch.allclose(alone, before, atol=1e-5)
    policy.train()  # what the test would show of a policy left in training mode
    assert not torch.equal(policy.perceive(features)[:, 1:], policy.perceive(changed)[:, 1:])


def test_other_components_have_no_influence() -> None:
    policy, seen = make(), team(3, 1, 8)
    component = torch.tensor([[0, 0, 0, 3, 3, 3, 3, 3]])
    changed = seen.features.clone()
    changed[:, 3:] += 10.0
    difference = policy(seen.features, seen.positions, component) - policy(changed, seen.positions, component)
    assert (difference[:, :3] == 0).all() and difference[:, 3:].abs().max() > 1e-6


def test_permuting_robots_permutes_commands() -> None:
    policy, seen = make(), team(4, 2, 7)
    order = torch.randperm(7, generator=torch.Generator().manual_seed(0))
    component = components(seen.graph)
    straight = policy(seen.features, seen.positions, component)
    permuted = policy(seen.features[:, order], seen.positions[:, order], component[:, order])
    assert torch.allclose(straight[:, order], permuted, atol=1e-5)


def test_statistics_move_in_training_alone() -> None:
    policy = Policy(SMALL)
    assert not policy.training  # from birth: only who trains it says otherwise
    features = team(5, 3, 4).features + 2.0
    born = [norm.running_mean.clone() for norm in norms(policy)]
    policy.perceive(features)
    assert all(torch.equal(norm.running_mean, old) for norm, old in zip(norms(policy), born, strict=True))
    policy.train()
    first = policy.perception.convolutions[0](features.flatten(0, 1)).mean((0, 2, 3))
    policy.perceive(features)
    assert torch.allclose(next(norms(policy)).running_mean, 0.1 * first, atol=1e-6)
    assert all(not torch.equal(norm.running_mean, old) for norm, old in zip(norms(policy), born, strict=True))


def test_gradients_reach_every_parameter() -> None:
    policy = Policy(SMALL).train()
    seen = team(6, 2, 5)
    policy(seen.features, seen.positions).square().sum().backward()
    assert not [name for name, p in policy.named_parameters() if p.grad is None or not p.grad.abs().sum() > 1e-9]


def test_bf16_autocast_gives_messages_in_fp32() -> None:
    policy, seen = Policy(SMALL).train(), team(7, 2, 6)
    exact = policy(seen.features, seen.positions)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        message, rough = policy.perceive(seen.features), policy(seen.features, seen.positions)
    assert message.dtype == rough.dtype == torch.float32
    assert torch.allclose(exact, rough, atol=0.05) and not torch.equal(exact, rough)
    rough.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in policy.perception.parameters())


@pytest.mark.parametrize("training", [False, True])
def test_it_compiles_to_one_graph(training: bool) -> None:
    perception = Policy(SMALL).perception.train(training)
    features = team(8, 2, 3).features
    compiled = torch.compile(perception, backend="eager", fullgraph=True, dynamic=False)
    assert torch.equal(compiled(features), perception(features))


def test_robots_that_exchange_messages_of_images_act_as_the_team_does() -> None:
    policy = make()
    run = DecentralPolicy(policy, Channel(delay=0.0), 0.2)
    run.start([1, 2])
    for seed in (9, 10):
        seen = team(seed, 2, 8)
        central = policy(seen.features, seen.positions, components(seen.graph))
        assert torch.allclose(run.act(seen), central, atol=1e-5)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"observation_dim": 14}, "perception cnn takes images .* observation_dim is 14"),
        ({"observation_dim": (4, 32, 6)}, r"more than 6 x 6 pixels, but observation_dim is \(4, 32, 6\)"),
        ({"perception": "mlp"}, r"mlp takes numbers, but observation_dim is \(2, 9, 8\): set perception to cnn"),
        ({"observation_dim": (4, 32)}, r"observation_dim is \(4, 32\): expected a whole number, or three"),
        ({"observation_dim": (4, 0, 32)}, "observation_dim is 0"),
        ({"observation_dim": "4"}, "observation_dim is '4'"),
        ({"observation_dim": True}, "observation_dim is True"),
    ],
)
def test_wrong_configs_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(MastError, match=message):
        Policy(replace(SMALL, **fields))


@pytest.mark.parametrize("shape", [(2, 9, 8), (1, 3, 2, 8, 9), (1, 3, 14)])
def test_wrong_features_are_named(shape: tuple[int, ...]) -> None:
    with pytest.raises(MastError, match=r"features have shape .*expected \[B, N, 2, 9, 8\]"):
        make().perceive(torch.zeros(shape))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_an_update_can_be_captured_on_a_gpu() -> None:
    policy = Policy(SMALL).train().cuda()
    seen = team(11, 4, 6)
    features, positions = seen.features.cuda(), seen.positions.cuda()

    def step() -> Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = policy(features, positions).square().mean()
        loss.backward()
        return loss

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    policy.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    before = next(norms(policy)).num_batches_tracked.item()
    graph.replay()
    assert loss.isfinite() and next(norms(policy)).num_batches_tracked.item() == before + 1
