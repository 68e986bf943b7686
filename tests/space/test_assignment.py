"""The assignment solver against scipy: the same least total, whatever the points and whatever the start."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mast_swarm.errors import MastError
from mast_swarm.space.assignment import Warm, assign


def costs(points: torch.Tensor, goals: torch.Tensor) -> np.ndarray:
    return cdist(points.double().numpy(), goals.double().numpy(), "sqeuclidean")


def check(points: torch.Tensor, goals: torch.Tensor, warm: Warm | None = None) -> tuple[torch.Tensor, Warm]:
    """Solve, and hold the answer against scipy's in every environment."""
    goal, after = assign(points, goals, warm)
    n, m = points.shape[1], goals.shape[1]
    assert goal.shape == points.shape[:2] and goal.dtype == torch.int64
    for b in range(len(points)):
        held = goal[b].numpy()
        rows = np.nonzero(held >= 0)[0]
        assert len(rows) == min(n, m)
        assert len(set(held[rows])) == len(rows)
        assert (held < m).all() and (held >= -1).all()
        matrix = costs(points[b], goals[b])
        least = matrix[linear_sum_assignment(matrix)].sum()
        assert matrix[rows, held[rows]].sum() == pytest.approx(least, rel=1e-9, abs=1e-12)
    return goal, after


def scatter(kind: str, rng: np.random.Generator, batch: int, number: int) -> torch.Tensor:
    """Points [batch, number, 2] in metres, float32."""
    if kind == "uniform":
        points = rng.uniform(-500, 500, (batch, number, 2))
    elif kind == "clusters":
        centres = rng.uniform(-500, 500, (batch, -(-number // 10), 2)).repeat(10, axis=1)[:, :number]
        points = centres + rng.normal(0, 30, (batch, number, 2))
    elif kind == "grid":  # many equal costs
        points = rng.integers(0, 6, (batch, number, 2)) * 10.0
    elif kind == "line":  # all x equal
        points = np.stack([np.full((batch, number), 7.0), rng.uniform(-500, 500, (batch, number))], axis=-1)
    else:  # "heap": all in one place
        points = np.full((batch, number, 2), 3.0)
    return torch.tensor(points, dtype=torch.float32)


KINDS = st.sampled_from(["uniform", "clusters", "grid", "line", "heap"])


@settings(deadline=None, max_examples=120)
@given(KINDS, KINDS, st.integers(1, 40), st.integers(1, 40), st.integers(0, 10**6))
def test_least_total(points_kind: str, goals_kind: str, n: int, m: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    check(scatter(points_kind, rng, 2, n), scatter(goals_kind, rng, 2, m))


@settings(deadline=None, max_examples=120)
@given(KINDS, KINDS, st.integers(1, 40), st.integers(1, 40), st.integers(0, 10**6), st.booleans())
def test_start_from_an_unrelated_problem(one: str, other: str, n: int, m: int, seed: int, square: bool) -> None:
    rng = np.random.default_rng(seed)
    m = n if square else m
    _, warm = assign(scatter(one, rng, 2, n), scatter(one, rng, 2, m))
    check(scatter(other, rng, 2, n), scatter(other, rng, 2, m), warm)


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 60), st.integers(1, 60), st.booleans(), st.integers(0, 10**6), st.sampled_from([0.1, 5, 60]))
def test_start_from_a_similar_problem(n: int, m: int, square: bool, seed: int, step: float) -> None:
    rng = np.random.default_rng(seed)
    m = n if square else m
    points, goals = scatter("uniform", rng, 3, n), scatter("clusters", rng, 3, m)
    warm = None
    for _ in range(6):
        _, warm = check(points, goals, warm)
        points = points + step * torch.tensor(rng.normal(0, 1, points.shape), dtype=torch.float32)
        goals = goals + 0.1 * step * torch.tensor(rng.normal(0, 1, goals.shape), dtype=torch.float32)


@pytest.mark.parametrize("points_kind", ["uniform", "clusters"])
@pytest.mark.parametrize("goals_kind", ["uniform", "clusters"])
@pytest.mark.parametrize("n, m", [(100, 100), (60, 100), (100, 60)])
def test_along_the_experts_way(points_kind: str, goals_kind: str, n: int, m: int) -> None:
    """Until all have arrived: from long ways down to costs of exactly nothing."""
    rng = np.random.default_rng(4)
    points, goals = scatter(points_kind, rng, 2, n), scatter(goals_kind, rng, 2, m)
    warm = None
    for _ in range(120):
        goal, warm = check(points, goals, warm)
        way = goals.gather(1, goal.clamp(min=0).unsqueeze(-1).expand(-1, -1, 2)) - points
        way[goal < 0] = 0.0
        points = points + way * (10.0 / way.norm(dim=-1, keepdim=True).clamp(min=10.0))


def test_a_thousand() -> None:
    rng = np.random.default_rng(5)
    points, goals = 3 * scatter("uniform", rng, 1, 1000), 3 * scatter("clusters", rng, 1, 1000)
    goal, warm = check(points, goals)
    points = points + (goals[0, goal[0]] - points) * 0.05
    check(points + torch.tensor(rng.normal(0, 1, points.shape), dtype=torch.float32), goals, warm)


def test_the_warm_start_is_left_as_it_was() -> None:
    rng = np.random.default_rng(6)
    points, goals = scatter("uniform", rng, 2, 30), scatter("uniform", rng, 2, 30)
    goal, warm = assign(points, goals)
    kept = [a.copy() for a in (warm.prices, warm.partner, warm.order, warm.spent)]
    goal[:] = -1
    assign(points + 20, goals.flip(1), warm)
    for then, now in zip(kept, (warm.prices, warm.partner, warm.order, warm.spent), strict=True):
        assert (then == now).all()


def test_a_start_of_another_shape_is_not_used() -> None:
    rng = np.random.default_rng(7)
    _, warm = assign(scatter("uniform", rng, 2, 30), scatter("uniform", rng, 2, 30))
    check(scatter("uniform", rng, 3, 30), scatter("uniform", rng, 3, 20), warm)


def test_float64_and_strides() -> None:
    rng = np.random.default_rng(8)
    points, goals = scatter("uniform", rng, 2, 25).double(), scatter("uniform", rng, 2, 25)
    check(points.transpose(0, 1).contiguous().transpose(0, 1), goals)


def test_nothing_to_assign() -> None:
    goal, warm = assign(torch.zeros(2, 3, 2), torch.zeros(2, 0, 2))
    assert (goal == -1).all() and goal.shape == (2, 3)
    assert assign(torch.zeros(2, 3, 2), torch.zeros(2, 0, 2), warm)[0].shape == (2, 3)
    assert assign(torch.zeros(2, 0, 2), torch.zeros(2, 3, 2))[0].shape == (2, 0)


def test_bad_points_are_named() -> None:
    points, goals = torch.zeros(2, 5, 2), torch.zeros(2, 5, 2)
    points[1, 3, 0] = torch.nan
    with pytest.raises(MastError, match=r"points .*number 3 of environment 1"):
        assign(points, goals)
    with pytest.raises(MastError, match="goals"):
        assign(goals[:1], torch.full((1, 5, 2), torch.inf))
    with pytest.raises(MastError, match="points"):
        assign(torch.full((1, 5, 2), 1e200, dtype=torch.float64), goals[:1])
    with pytest.raises(MastError, match="shape"):
        assign(torch.zeros(5, 2), goals)
    with pytest.raises(MastError, match="environments"):
        assign(torch.zeros(3, 5, 2), goals)
