"""The GPU kernels of decentralised execution compute what the plain functions compute."""

from __future__ import annotations

import pytest
import torch

from mast_swarm.comms import views

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


@pytest.mark.parametrize(("columns", "radius", "layers"), [(30, 250.0, 4), (100, 120.0, 3), (5, None, 2)])
def test_windows(columns: int, radius: float | None, layers: int) -> None:
    from mast_swarm.comms import kernels

    rng = torch.Generator().manual_seed(columns)
    entries, count = 150, 40
    positions = torch.rand(entries, 2, generator=rng) * 600
    entry = torch.stack([torch.randperm(entries, generator=rng)[:columns] for _ in range(count)])
    entry[torch.rand(entry.shape, generator=rng) < 0.2] = -1
    entry[:, 0] = torch.arange(count)
    own = entry[:, 0].clone()
    plain = views.Sight(entry, own, positions, radius, layers)
    fast = kernels.Sight(entry.cuda(), own.cuda(), positions.cuda(), radius, layers)
    assert torch.equal(plain.level, fast.level.long().cpu())
    view, column = (plain.level < layers).nonzero(as_tuple=True)
    for a, b in zip(plain.windows(view, column), fast.windows(view.cuda(), column.cuda()), strict=True):
        assert torch.equal(a, b.cpu().long())
