"""Exploration in one kernel: the commands of the plain functions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from devices import DEVICE, few, plainly
from mast_swarm import explore

pytestmark = pytest.mark.kernels


@settings(deadline=None, max_examples=few(100, 15))
@given(
    seed=st.integers(-(2**63), 2**63 - 1),
    batch=st.integers(1, 3),
    robots=st.integers(1, few(1000, 150)),
    instant=st.integers(0, 10**5),
    reach=st.floats(1.0, 500.0),
    remembers=st.booleans(),
)
def test_commands_of_explorers(seed: int, batch: int, robots: int, instant: int, reach: float, remembers: bool) -> None:
    rng = torch.Generator().manual_seed(seed % 2**32)
    prediction = torch.randn(batch, robots, 3, generator=rng)
    landmark, away = (torch.randn(batch, robots, 2, generator=rng) * scale for scale in (300.0, 3.0))
    landmark[:, ::3] = 0.0
    seeds, time = torch.full((batch,), seed) ^ torch.arange(batch), torch.full((batch,), instant) * 0.37
    given_ = (prediction, landmark, seeds, time, reach, away if remembers else None)
    with plainly():
        expected = explore.explored(*given_)
    there = (t.to(DEVICE) if isinstance(t, torch.Tensor) else t for t in given_)
    found = explore.explored(*there).cpu()
    # A heading against the pull of the landmark may come out as next to nothing before it is made a unit again.
    off = torch.linalg.vector_norm(found - expected, dim=-1)
    assert float(off.median()) < 1e-6 and float(off.quantile(0.99)) < 1e-4 and float((off > 1e-2).sum()) <= 1
