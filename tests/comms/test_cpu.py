"""What the CPU does in its own way gives what the plain way gives."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm.comms import _cpu, views


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
