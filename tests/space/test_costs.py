"""Assignment by any costs, against scipy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

from mast_swarm.space.costs import solve_costs


@settings(deadline=None, max_examples=200)
@given(seed=st.integers(0, 10**6), rows=st.integers(0, 12), more=st.integers(0, 8), few=st.booleans())
def test_the_least_total_cost(seed: int, rows: int, more: int, few: bool) -> None:
    """few: of few different values, so that there are many ties."""
    rng, shape = np.random.default_rng(seed), (rows, rows + more)
    cost = rng.integers(-2, 3, shape).astype(float) if few else rng.normal(0, 1e3, shape)
    partner = np.empty(rows, np.int64)
    solve_costs(cost, partner)
    assert len(set(partner.tolist())) == rows
    assert cost[np.arange(rows), partner].sum() == pytest.approx(cost[linear_sum_assignment(cost)].sum(), abs=1e-9)
