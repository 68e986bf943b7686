"""The safety layer: nobody is hit, steps change as little as they must, and one robot alone computes the same."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from torch import Tensor

from mast_swarm import MastError
from mast_swarm.robot import apart as alone
from mast_swarm.space.apart import keep_apart, sensing_radius

DISTANCE, LONGEST = 5.0, 5.0


def packed(robots: int, spacing: float, where: float, seed: int) -> Tensor:
    """Robots [1, N, 2] on a lattice of triangles whose sides are `spacing` metres, in any order, `where` metres off."""
    k = torch.arange(math.ceil(math.sqrt(robots)), dtype=torch.float64)
    y, x = torch.meshgrid(k, k, indexing="ij")
    lattice = torch.stack(((x + y % 2 / 2) * spacing, y * spacing * math.sqrt(0.75)), dim=-1).view(-1, 2)
    order = torch.randperm(len(lattice), generator=torch.Generator().manual_seed(seed))[:robots]
    return (lattice[order] + where).float()[None]


def least_distance(positions: Tensor) -> float:
    apart = torch.cdist(positions.double(), positions.double(), compute_mode="donot_use_mm_for_euclid_dist")
    apart.diagonal(dim1=1, dim2=2).fill_(torch.inf)
    return float(apart.min())


def wishes(kind: str, positions: Tensor, generator: torch.Generator) -> Tensor:
    """What robots want, [B, N, 2] metres and no longer than LONGEST."""
    middle = positions.mean(1, keepdim=True) - positions
    noise = torch.randn(positions.shape, generator=generator) * 4
    turned = torch.stack((-middle[..., 1], middle[..., 0]), dim=-1)
    wanted = {
        "in": middle,
        "noise": noise,
        "round": turned,
        "both": middle + noise,
        "swap": positions.flip(1) - positions,
    }
    length = torch.linalg.vector_norm(wanted[kind], dim=-1, keepdim=True)
    return wanted[kind] * (LONGEST / length.clamp_min(LONGEST))


@settings(deadline=None, max_examples=15)
@given(
    robots=st.integers(2, 60),
    spacing=st.floats(5.0005, 12.0),
    where=st.sampled_from([0.0, 700.0, -20_000.0]),
    kind=st.sampled_from(["in", "noise", "round", "both", "swap"]),
    seed=st.integers(0, 10**6),
)
def test_nobody_is_ever_hit(robots: int, spacing: float, where: float, kind: str, seed: int) -> None:
    positions, generator = packed(robots, spacing, where, seed), torch.Generator().manual_seed(seed)
    if least_distance(positions) < DISTANCE:  # far away fp32 cannot hold places so near each other
        return
    for _ in range(30):
        steps = keep_apart(positions, wishes(kind, positions, generator), DISTANCE, LONGEST)
        assert torch.linalg.vector_norm(steps, dim=-1).max() <= LONGEST * (1 + 1e-6)
        # Between the instants too: both ends of a straight way lie in one convex set, and so does the rest of it.
        for share in (0.3, 0.7, 1.0):
            assert least_distance(positions.double() + share * steps.double()) >= DISTANCE
        positions = positions + steps
        assert least_distance(positions) >= DISTANCE


def test_with_the_team_that_obeys_stand_robots_that_have_failed() -> None:
    positions, generator = packed(40, 5.2, 300.0, 1), torch.Generator().manual_seed(1)
    failed = torch.arange(40) % 3 == 0
    for _ in range(60):
        steps = keep_apart(positions, wishes("both", positions, generator), DISTANCE, LONGEST)
        positions = positions + steps * ~failed[None, :, None]
        assert least_distance(positions) >= DISTANCE


def test_steps_that_hurt_nobody_are_left_as_they_are() -> None:
    positions = torch.tensor([[[0.0, 0.0], [30.0, 0.0], [40.0, 0.0]]])
    steps = torch.tensor([[[3.0, 4.0], [-5.0, 0.0], [0.0, 5.0]]])
    assert torch.equal(keep_apart(positions, steps, DISTANCE, LONGEST), steps)
    assert sensing_radius(DISTANCE, LONGEST) == alone.sensing_radius(DISTANCE, LONGEST) == 15.0
    with_another = torch.cat((positions, torch.tensor([[[100.0, 0.0]]])), dim=1)
    more = torch.cat((steps, torch.ones(1, 1, 2)), dim=1)
    assert torch.equal(keep_apart(with_another, more, DISTANCE, LONGEST), more)


def test_two_that_run_at_each_other_share_the_way() -> None:
    positions = torch.tensor([[[0.0, 0.0], [11.0, 0.0]]])
    steps = torch.tensor([[[5.0, 0.0], [-5.0, 0.0]]])
    taken = keep_apart(positions, steps, DISTANCE, LONGEST)
    assert taken[0, :, 0].tolist() == pytest.approx([3.0, -3.0], abs=1e-3) and not taken[..., 1].any()
    # Whoever stands in the way beside it is passed: what is left of a step goes along the line.
    beside = keep_apart(torch.tensor([[[0.0, 0.0], [6.0, 1.0]]]), steps, DISTANCE, LONGEST)
    assert beside[0, 0, 1] < -0.5 and 0 < beside[0, 0, 0] < 2


@settings(deadline=None, max_examples=40)
@given(robots=st.integers(2, 12), spacing=st.floats(5.1, 9.0), seed=st.integers(0, 10**6))
def test_the_change_is_the_least_that_a_solver_finds(robots: int, spacing: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    positions = packed(robots, spacing, 0.0, seed)
    wanted = wishes("both", positions, generator)
    taken = keep_apart(positions, wanted, DISTANCE, LONGEST)[0].double().numpy()
    places, wanted = positions[0].double().numpy(), wanted[0].double().numpy()
    for i in range(min(robots, 4)):
        way = np.delete(places, i, 0) - places[i]
        apart = np.hypot(*way.T)
        normals, limits = way / apart[:, None], (apart - DISTANCE) / 2
        assert (normals @ taken[i] <= limits + 1e-6).all()
        found = minimize(
            lambda x, i=i: ((x - wanted[i]) ** 2).sum(),
            np.zeros(2),
            jac=lambda x, i=i: 2 * (x - wanted[i]),
            method="SLSQP",
            constraints={
                "type": "ineq",
                "fun": lambda x, n=normals, b=limits: b - n @ x,
                "jac": lambda x, n=normals: -n,
            },
            options={"ftol": 1e-12},
        )
        assert np.hypot(*(taken[i] - wanted[i])) <= math.sqrt(found.fun) + 2e-3  # but for what is left to rounding


@settings(deadline=None, max_examples=30)
@given(robots=st.integers(1, 20), spacing=st.floats(5.01, 14.0), seed=st.integers(0, 10**6))
def test_one_robot_alone_takes_the_same_step(robots: int, spacing: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    positions = packed(robots, spacing, 100.0, seed)
    wanted = wishes("both", positions, generator)
    taken = keep_apart(positions, wanted, DISTANCE, LONGEST)[0].numpy()
    places = positions[0].numpy()
    for i in range(robots):
        step = alone.keep_apart(places[i], wanted[0, i].numpy(), np.delete(places, i, 0), DISTANCE, LONGEST)
        assert np.abs(step - taken[i]).max() < 2e-3


def test_where_there_is_no_room_robots_stand_still() -> None:
    ring = [[5 * math.cos(a), 5 * math.sin(a)] for a in np.arange(6) * math.pi / 3]
    positions = torch.tensor([[[0.0, 0.0], *ring]])
    steps = torch.zeros_like(positions)
    steps[0, 0] = torch.tensor([4.0, 1.0])
    assert not keep_apart(positions, steps, DISTANCE, LONGEST).any()
    assert not alone.keep_apart([0, 0], [4, 1], ring, DISTANCE, LONGEST).any()
    assert alone.keep_apart([0, 0], [4, 1], [], DISTANCE, LONGEST).tolist() == [4, 1]


def test_bad_input_is_refused() -> None:
    with pytest.raises(MastError, match="a distance of 0 m and steps of 5 m: expected positive numbers"):
        keep_apart(torch.zeros(1, 2, 2), torch.zeros(1, 2, 2), 0, 5)
    with pytest.raises(MastError, match="expected positive numbers"):
        alone.keep_apart([0, 0], [1, 0], [], 5, -1)
    with pytest.raises(MastError, match="expected finite numbers"):
        alone.keep_apart([0, 0], [1, 0], [[math.nan, 0]], 5, 5)
