"""The block is written once: change it in one place, and every way to run a policy still gives the same commands."""

from __future__ import annotations

import inspect
import re
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mast_swarm.comms import Channel, DecentralPolicy, decentral, views
from mast_swarm.model import Policy, PolicyConfig, mast, windowed
from mast_swarm.model import policy as policy_module
from mast_swarm.model.lists import add_normed
from mast_swarm.model.mast import Block
from mast_swarm.space import components, nearest, neighbour_graph

PATHS = windowed.PATHS
CONFIG = PolicyConfig(layers=3, heads=2, head_dim=16, attention_radius=100.0, observation_dim=5)


class Gated(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.up, self.gate, self.down = nn.Linear(d, 2 * d), nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, h: Tensor) -> Tensor:
        return self.down(self.up(h) * torch.sigmoid(self.gate(h)))


class OtherBlock(Block):
    """Another architecture: RMS norms, a gated MLP, and a norm of each half's result before it is added."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        d = config.width
        self.norm1, self.norm2, self.mlp = nn.RMSNorm(d), nn.RMSNorm(d), Gated(d)  # type: ignore[assignment]
        self.norm3, self.norm4 = nn.LayerNorm(d), nn.LayerNorm(d)

    def after_attention(self, x: Tensor, answer: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        x, h = add_normed(x, rows, self.norm3(self.attention.out(answer)), self.norm2)
        return x, self.norm4(self.mlp(h))


def team(kind: torch.dtype = torch.float32) -> SimpleNamespace:
    rng = torch.Generator().manual_seed(0)
    positions = (torch.rand(2, 150, 2, generator=rng, dtype=torch.float64) * 700).to(kind)
    features = torch.randn(2, 150, 5, generator=rng).to(kind)
    graph = neighbour_graph(nearest(positions, positions, 3, exclude_self=True)[1])
    return SimpleNamespace(
        features=features, positions=positions, graph=graph, landmark=torch.zeros_like(positions), goals=None
    )


def every_way(policy: Policy, seen: SimpleNamespace) -> dict[str, Tensor]:
    """The commands of one team by every path, with and without gradients, and of every robot alone without delay."""
    found = {}
    for path in PATHS:
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                found[f"{path} {grad}"] = policy(**policy.inputs(seen), path=path).detach()
    run = DecentralPolicy(policy, Channel(delay=0.0), 1.0)
    run.start([1, 2])
    return found | {"decentralized": run.act(seen)}


@pytest.mark.parametrize("rows", [4096, 64])
@pytest.mark.parametrize("block", [Block, OtherBlock])
def test_a_change_of_the_block_reaches_every_path(block: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowed, "_CPU_ROWS", rows)
    usual = Policy(CONFIG, seed=1)
    monkeypatch.setattr(mast, "Block", block)  # the one edit
    policy, seen = Policy(CONFIG, seed=1), team()
    assert len(components(seen.graph).unique()) > 2
    found = every_way(policy, seen)
    for way, command in found.items():
        assert torch.allclose(command, found["dense False"], atol=1e-5), way
    same = torch.allclose(found["dense False"], usual(**usual.inputs(seen)), atol=1e-3)
    assert same == (block is Block)


def test_no_path_writes_a_norm_a_projection_or_an_mlp() -> None:
    for module in (windowed, decentral, views, policy_module):
        source = inspect.getsource(module)
        assert not re.search(r"norm\d|\.norm\b|LayerNorm|F\.linear|\.mlp\b|attention\.out", source), module.__name__


@pytest.mark.parametrize("encoding", ["rope-g", "ape-l", "mlp"])
@pytest.mark.parametrize("given", [torch.float32, torch.float64])
def test_policies_run_in_double_precision(encoding: str, given: torch.dtype) -> None:
    config = PolicyConfig(layers=2, heads=2, head_dim=16, attention_radius=100.0, observation_dim=5, encoding=encoding)
    policy = Policy(config, seed=1).double()
    found = every_way(policy, team(given))
    tolerance = 1e-9 if given == torch.float64 else 1e-6  # the MLP encoding scales positions as they are given
    for way, command in found.items():
        assert command.dtype == torch.float64
        assert torch.allclose(command, found["dense False"], rtol=0, atol=tolerance), way
    policy(**policy.inputs(team(given)), path="kernel").square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float64 for p in policy.parameters())


def test_the_dense_path_compiles_to_one_graph() -> None:
    policy, seen = Policy(CONFIG, seed=1), team()
    compiled = torch.compile(policy, backend="eager", fullgraph=True, dynamic=False)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            given = policy.inputs(seen)
            found, plain = compiled(**given, path="dense"), policy(**given, path="dense")
            torch.testing.assert_close(found, plain, rtol=1e-5, atol=1e-6)
