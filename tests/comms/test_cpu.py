"""What the CPU does in its own way gives what the plain way gives."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm import Channel, DecentralPolicy, Policy, PolicyConfig
from mast_swarm.comms import _cpu, decentral, views
from mast_swarm.observation import Observation
from mast_swarm.space import nearest, neighbour_graph


@settings(deadline=None)
@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 5),
    columns=st.integers(1, 70),
    radius=st.none() | st.floats(1, 900),
    layers=st.integers(1, 5),
    double=st.booleans(),
)
def test_windows(seed: int, count: int, columns: int, radius: float | None, layers: int, double: bool) -> None:
    rng = torch.Generator().manual_seed(seed)
    positions = torch.rand(90, 2, generator=rng, dtype=torch.float64 if double else torch.float32) * 600
    positions[torch.rand(90, generator=rng) < 0.05] = torch.nan
    entry = torch.stack([torch.randperm(90, generator=rng)[:columns] for _ in range(count)])
    entry[torch.rand(entry.shape, generator=rng) < 0.2] = -1
    own = entry[torch.arange(count), torch.randint(columns, (count,), generator=rng)]  # -1: a robot that has failed
    plain = views.Sight(entry, own, positions, radius, layers)
    quick = _cpu.Sight(entry, own, positions, radius, layers)
    assert torch.equal(plain.level, quick.level)
    rows = (plain.level < layers).nonzero(as_tuple=True)
    for expected, found in zip(plain.windows(*rows), quick.windows(*rows), strict=True):
        assert torch.equal(expected, found)


@pytest.mark.parametrize("together", [1, 7, 10**9])
def test_a_few_rows_at_a_time_and_memory_used_again(together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(PolicyConfig(layers=3, heads=2, head_dim=8, attention_radius=200.0), seed=3)
    run, rng = DecentralPolicy(policy, Channel(0.7, loss=0.1, failure=0.05), 1.0), torch.Generator().manual_seed(0)
    run.start([1, 2])
    positions = torch.rand(2, 14, 2, generator=rng) * 500
    for step in range(8):
        features = torch.randn(2, 14, 14, generator=rng)
        positions = positions + torch.randn(2, 14, 2, generator=rng) * 20
        graph = neighbour_graph(nearest(positions, positions, 3, exclude_self=True)[1])
        monkeypatch.setattr(decentral, "_TOGETHER", together)
        with torch.inference_mode(step % 2 == 0):  # the memory of one mode serves the other
            found = run.act(Observation(features=features, positions=positions, graph=graph))
        assert run.state is not None
        monkeypatch.setattr(decentral, "_TOGETHER", 4096)
        expected = decentral.decide(policy, run.state)[..., :2] * run.state.alive[..., None]
        assert torch.allclose(found, expected, atol=1e-5)
