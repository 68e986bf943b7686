"""Nearest points and points within a radius, against scipy and against each other."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from torch import Tensor

from devices import DEVICE, GPU, few, plainly
from mast_swarm import steady
from mast_swarm.errors import MastError
from mast_swarm.space import cells as torch_cells
from mast_swarm.space import counts_within, nearest, nearest_both, offsets, radius_graph
from mast_swarm.space import dense as torch_dense
from mast_swarm.space._checks import squared
from mast_swarm.space.neighbours import _within_cpu

KINDS = ("uniform", "integers", "clusters", "pile", "piles", "line", "outlier", "apart", "far", "mixed")


def scatter(kind: str, batch: int, n: int, seed: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Positions [B, N, 2] of one kind of unevenness."""
    g = np.random.default_rng(seed)
    p = g.uniform(-500, 500, (batch, n, 2))
    if kind == "integers":  # a few sites on a grid: many ties, many duplicates
        p = g.integers(0, max(2, round(math.sqrt(n))), (batch, n, 2)).astype(float)
    elif kind == "clusters":
        centre = g.uniform(-5000, 5000, (batch, max(1, n // 10), 2))
        p = centre[:, g.integers(0, centre.shape[1], n)] + g.normal(size=(batch, n, 2))
    elif kind == "pile":
        p[:] = p[:, :1]
    elif kind == "piles":
        p = p[:, :3][:, g.integers(0, min(3, n), n)]
    elif kind == "line":
        p[..., 1] = 7.0
    elif kind == "outlier":
        p[:, -1] = 1e9
    elif kind == "apart":
        p[:, n // 2 :] = p[:, n // 2 :] / 100 + 1e6
    elif kind == "far":
        p = p * 1e12 + 1e15
    elif kind == "mixed":  # environments of different density
        p *= 10.0 ** g.integers(-2, 4, (batch, 1, 1))
    return torch.tensor(p, dtype=dtype)


def expected(queries: Tensor, points: Tensor, k: int, exclude_self: bool) -> tuple[np.ndarray, np.ndarray]:
    """Every pair, by numpy: sorted by d2 in the type of the positions and then by index."""
    q, p = queries.numpy(), points.numpy()
    dx = p[:, None, :, 0] - q[:, :, None, 0]
    dy = p[:, None, :, 1] - q[:, :, None, 1]
    d2 = dx * dx + dy * dy
    if exclude_self:
        i = np.arange(q.shape[1])
        d2[:, i, i] = np.inf
    index = np.argsort(d2, axis=-1, kind="stable")
    d2 = np.take_along_axis(d2, index, -1)
    index[np.isinf(d2)] = -1
    short = max(0, k - p.shape[1])
    index = np.pad(index, ((0, 0), (0, 0), (0, short)), constant_values=-1)[..., :k]
    return np.sqrt(np.pad(d2, ((0, 0), (0, 0), (0, short)), constant_values=np.inf)[..., :k]), index


def ways(queries: Tensor, points: Tensor, k: int, exclude_self: bool) -> dict[str, tuple[Tensor, Tensor]]:
    """The same question asked of the four versions."""
    return {
        "numba dense": nearest(queries, points, k, exclude_self=exclude_self, method="dense"),
        "numba cells": nearest(queries, points, k, exclude_self=exclude_self, method="cells"),
        "torch dense": torch_dense.nearest_dense(queries, points, k, exclude_self),
        "torch cells": torch_cells.nearest_cells(queries, points, k, exclude_self)[:2],
    }


def count_within(queries: Tensor, points: Tensor, radius: float) -> Tensor:
    """One question alone."""
    return counts_within(points, (queries, radius))[0]


def counted(queries: Tensor, points: Tensor, radius: float, squared: float) -> Tensor:
    """How many points are near, by cells that torch makes."""
    return torch_cells.count_cells(queries, radius, squared, torch_cells.wide(points, radius))


def assert_nearest(queries: Tensor, points: Tensor, k: int, exclude_self: bool) -> None:
    distance, index = expected(queries, points, k, exclude_self)
    for name, (d, i) in ways(queries, points, k, exclude_self).items():
        assert i.dtype == torch.int64 and d.dtype == queries.dtype
        np.testing.assert_array_equal(i.numpy(), index, err_msg=name)
        np.testing.assert_allclose(d.numpy(), distance, rtol=3e-7, err_msg=name)


teams = st.tuples(
    st.sampled_from(KINDS), st.integers(1, 3), st.integers(1, 60), st.integers(1, 6), st.integers(0, 2**32 - 1)
)


@settings(deadline=None, max_examples=50)
@given(teams, st.booleans())
def test_nearest_among_themselves(team, exclude_self):
    kind, batch, n, k, seed = team
    points = scatter(kind, batch, n, seed)
    assert_nearest(points, points, k, exclude_self)


@settings(deadline=None, max_examples=40)
@given(teams, st.sampled_from(KINDS), st.integers(1, 40))
def test_nearest_of_other_points(team, other, m):
    kind, batch, n, k, seed = team
    assert_nearest(scatter(other, batch, m, seed + 1), scatter(kind, batch, n, seed), k, False)


@pytest.mark.parametrize("kind", KINDS)
def test_nearest_of_many(kind):
    """Enough points for grids inside grids and for several rounds."""
    points = scatter(kind, 2, 700, 5)
    assert_nearest(points, points, 3, True)
    assert_nearest(points[:, :50] + 3.0, points, 4, False)


def test_nearest_float64():
    for kind in ("uniform", "integers", "far"):
        points = scatter(kind, 2, 90, 3, torch.float64)
        assert_nearest(points, points, 3, True)


def test_nearest_of_nested_clusters():
    """Clusters of clusters of clusters: three scales, a million to one."""
    g = np.random.default_rng(0)
    p = sum(s * g.integers(0, 4, (1, 4000, 2)) for s in (1e6, 1e4, 1e2)) + g.uniform(0, 1, (1, 4000, 2))
    points = torch.tensor(p, dtype=torch.float64)
    tree = cKDTree(p[0])
    for method in ("dense", "cells"):
        distance, index = nearest(points, points, 3, exclude_self=True, method=method)
        d, i = tree.query(p[0], 4)
        np.testing.assert_allclose(distance[0].numpy(), d[:, 1:])
        np.testing.assert_array_equal(index[0].numpy(), i[:, 1:])


@pytest.mark.parametrize("method", ["dense", "cells", "auto"])
def test_nearest_against_kd_tree(method):
    points = scatter("clusters", 2, 2000, 11)
    distance, index = nearest(points, points, 3, exclude_self=True, method=method)
    for b in range(2):
        d, _ = cKDTree(points[b].double().numpy()).query(points[b].double().numpy(), 4)
        # What float32 rounds away in a difference of coordinates of some thousand metres.
        np.testing.assert_allclose(distance[b].numpy(), d[:, 1:], rtol=1e-6)
        own = torch.linalg.vector_norm(points[b][index[b]] - points[b][:, None], dim=-1)
        torch.testing.assert_close(own, distance[b])


def test_one_robot_and_more_neighbours_than_robots():
    for n in (1, 2):
        points = scatter("uniform", 2, n, 0)
        distance, index = nearest(points, points, 3, exclude_self=True)
        assert (index[..., n - 1 :] == -1).all() and torch.isinf(distance[..., n - 1 :]).all()
        assert (index[..., : n - 1] >= 0).all()
    none = torch.zeros((2, 0, 2))
    distance, index = nearest(points, none, 2)
    assert (index == -1).all() and index.shape == (2, 2, 2) and torch.isinf(distance).all()
    assert nearest(none, points, 2)[1].shape == (2, 0, 2)
    assert nearest(none, points, 2, method="cells")[1].shape == (2, 0, 2)


def test_ties_go_to_the_lowest_index():
    points = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0], [0.5, 0.0], [1.0, 0.0]]])
    for name, (_, index) in ways(torch.zeros((1, 1, 2)), points, 4, False).items():
        assert index.flatten().tolist() == [4, 0, 1, 2], name


radii = st.sampled_from([0.0, 1.0, math.sqrt(2.0), 2.0, 30.0, 150.0, 1e4, math.inf])


@settings(deadline=None, max_examples=40)
@given(teams, radii)
def test_radius(team, radius):
    kind, batch, n, _, seed = team
    points = scatter(kind, batch, n, seed)
    queries = scatter(kind, batch, n + 3, seed + 1)
    q, p = queries.numpy(), points.numpy()
    limit = np.float32(radius * radius)
    d2 = ((p[:, None] - q[:, :, None]) ** 2).sum(-1, dtype=np.float32)
    count = (d2 < limit).sum(-1)
    squared = float(limit)
    np.testing.assert_array_equal(count_within(queries, points, radius).numpy(), count)
    by_cells, _ = _within_cpu(queries, points, radius, torch_cells.build_cpu(p), exclude_self=False)
    np.testing.assert_array_equal(by_cells.numpy(), count)
    np.testing.assert_array_equal(torch_dense.count_dense(queries, points, squared).numpy(), count)
    np.testing.assert_array_equal(counted(queries, points, radius, squared).numpy(), count)

    d2 = ((p[:, None] - p[:, :, None]) ** 2).sum(-1, dtype=np.float32)
    b, i, j = np.nonzero((d2 < limit) & ~np.eye(n, dtype=bool))
    for method in ("dense", "cells"):
        graph = radius_graph(points, radius, method=method)
        np.testing.assert_array_equal(graph.target.numpy(), b * n + i, err_msg=method)
        np.testing.assert_array_equal(graph.source.numpy(), b * n + j, err_msg=method)
    for source, target in (
        torch_dense.pairs_within(points, squared),
        torch_cells.pairs_cells(points, radius, squared),
    ):
        np.testing.assert_array_equal(target.numpy(), b * n + i)
        np.testing.assert_array_equal(source.numpy(), b * n + j)


@pytest.mark.parametrize("kind", ["uniform", "clusters", "piles", "outlier", "apart"])
def test_radius_of_many_against_scipy(kind):
    points = scatter(kind, 1, 1500, 2, torch.float64)
    near = cdist(points[0], points[0]) < 20.0
    np.testing.assert_array_equal(count_within(points, points, 20.0)[0].numpy(), near.sum(-1))
    np.fill_diagonal(near, False)
    for method in ("dense", "cells"):
        np.testing.assert_array_equal(
            radius_graph(points, 20.0, method=method).adjacency()[0].numpy(), near, err_msg=method
        )


@settings(deadline=None, max_examples=40)
@given(teams, st.lists(radii, min_size=1, max_size=3), st.sampled_from([0, 10**9]))
def test_several_questions_about_the_same_points_are_each_answered_as_alone(team, asked, dense_up_to):
    """By every pair, and by cells, which are sorted once for the widest of the radii."""
    kind, batch, n, k, seed = team
    points, others = scatter(kind, batch, n, seed), scatter(kind, batch, n + 2, seed + 1)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mast_swarm.space.neighbours.CPU_DENSE", dense_up_to)
        own, seen = nearest_both(points, others, k)
        questions = [(queries, radius) for radius in asked for queries in (points, others)]
        together = counts_within(points, *questions)
    assert torch.equal(own, nearest(points, points, k, exclude_self=True)[1])
    assert torch.equal(seen, nearest(points, others, k)[1])
    for count, (queries, radius) in zip(together, questions, strict=True):
        assert torch.equal(count, count_within(queries, points, radius))
    assert counts_within(points) == []


def test_radius_is_strict():
    points = torch.tensor([[[0.0, 0.0], [5.0, 0.0], [0.0, 4.999]]])
    assert count_within(points[:, :1], points, 5.0).item() == 2
    assert radius_graph(points, 5.0).target.tolist() == [0, 2]


def test_blocks_give_the_same(monkeypatch):
    """Where memory bounds the pairs taken at once, several blocks give what one gives."""
    points = scatter("integers", 3, 50, 1)
    whole = ways(points, points, 3, True), torch_dense.pairs_within(points, 4.0)
    monkeypatch.setattr(torch_dense, "PAIRS", 700)
    monkeypatch.setattr(torch_cells, "PAIRS", 700)
    again = ways(points, points, 3, True), torch_dense.pairs_within(points, 4.0)
    for name in ("torch dense", "torch cells"):
        assert all(torch.equal(a, b) for a, b in zip(whole[0][name], again[0][name], strict=True))
    assert all(torch.equal(a, b) for a, b in zip(whole[1], again[1], strict=True))
    squared = counted(points, points, 2.0, 4.0)
    assert torch.equal(squared, torch_dense.count_dense(points, points, 4.0))


def test_many_queries_are_sorted_first(monkeypatch):
    points, queries = scatter("clusters", 2, 300, 1), scatter("clusters", 2, 400, 2)
    plain = nearest(queries, points, 3, method="cells")
    monkeypatch.setattr("mast_swarm.space.neighbours.SORTED_QUERIES", 1)
    ordered = nearest(queries, points, 3, method="cells")
    assert torch.equal(plain[0], ordered[0]) and torch.equal(plain[1], ordered[1])


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("batch", "kind_of_keys"), [(3, torch.int64), (2, torch.int32)])
@pytest.mark.parametrize("kind", few(KINDS, ("integers", "outlier")))
def test_kernels_build_the_same_cells(kind, batch, kind_of_keys, dtype):
    """With narrow keys too, which only two environments may have."""
    half = few(100, 15)
    points = scatter(kind, batch, 3 * half, 8, dtype)
    points[1] *= 20  # environments of different extents
    queries = torch.cat([points[:, :half], scatter("uniform", batch, half, 9, dtype) * 1000], 1).reshape(-1, 2)
    environment = torch.arange(batch).repeat_interleave(2 * half)
    shares = None, torch.tensor([0.5, 1.0, 0.01], dtype=torch.float64)[:batch]
    sides = torch.tensor([50.0, 0.3, 1e5]), torch.zeros(3), torch.full((3,), 7.0, dtype=torch.float64)
    for side, share in itertools.product(sides, shares):
        side = side[:batch]
        with plainly():
            cells = torch_cells.Cells.build(points, side, share=share, narrow=True)
            here = cells.block(queries, environment)
        on_device = None if share is None else share.to(DEVICE)
        there = torch_cells.Cells.build(points.to(DEVICE), side.to(DEVICE), share=on_device, narrow=True)
        assert there.key.dtype == kind_of_keys
        for name in ("origin", "side", "size", "key", "order", "there"):
            assert torch.equal(getattr(there, name).cpu(), getattr(cells, name)), name
        for a, b in zip(here, there.block(queries.to(DEVICE), environment.to(DEVICE)), strict=True):
            assert torch.equal(a, b.cpu())


@pytest.mark.kernels
@settings(deadline=None, max_examples=few(100, 5))
@given(
    teams, st.sampled_from([None, *KINDS]), st.integers(0, 90), radii, st.sampled_from([torch.float32, torch.float64])
)
def test_kernels_find_the_same(team, other, m, radius, dtype):
    """Nearest among themselves (other is None) or to other points, often far outside the box, and those in a radius."""
    kind, batch, n, k, seed = team
    points = scatter(kind, batch, n, seed, dtype)
    queries = points if other is None else scatter(other, batch, max(m, 1), seed + 1, dtype)[:, :m]
    distance, index, _ = torch_cells.nearest_cells(queries.to(DEVICE), points.to(DEVICE), k, other is None)
    d, i = expected(queries, points, k, other is None)
    np.testing.assert_array_equal(index.cpu().numpy(), i)
    np.testing.assert_allclose(distance.cpu().numpy(), d, rtol=3e-7)
    limit = squared(radius, dtype)
    count = counted(queries.to(DEVICE), points.to(DEVICE), radius, limit)
    assert torch.equal(count.cpu(), torch_dense.count_dense(queries, points, limit))


@pytest.mark.kernels
@pytest.mark.parametrize("kind", few(KINDS, ("integers", "apart")))
def test_kernels_find_the_same_among_many(kind):
    """Enough points that some cells are crowded and some queries look again with larger ones."""
    points = scatter(kind, 2, few(1500, 50), 7)
    for queries, exclude_self in ((points, True), (points[:, : few(500, 10)] + 1e5, False)):
        distance, index = nearest(queries.to(DEVICE), points.to(DEVICE), 4, exclude_self=exclude_self, method="cells")
        d, i = expected(queries, points, 4, exclude_self)
        np.testing.assert_array_equal(index.cpu().numpy(), i)
        np.testing.assert_allclose(distance.cpu().numpy(), d, rtol=3e-7)
        count = counted(queries.to(DEVICE), points.to(DEVICE), 0.7, squared(0.7, points.dtype))
        assert torch.equal(count.cpu(), torch_dense.count_dense(queries, points, squared(0.7, points.dtype)))


@pytest.mark.kernels
@pytest.mark.parametrize("kind", few(KINDS, ("integers", "outlier")))
def test_kernels_answer_several_questions_about_the_same_points(kind, monkeypatch):
    """One sort serves both radii, and the order of the robots by cell the search for goals."""
    monkeypatch.setattr("mast_swarm.space.neighbours.CUDA_DENSE", 0)
    robots, goals = scatter(kind, 2, few(900, 40), 5), scatter(kind, 2, few(700, 30), 6)
    there, aims = robots.to(DEVICE), goals.to(DEVICE)
    for found, queries, points, alone in zip(
        nearest_both(there, aims, 3), (robots, robots), (robots, goals), (True, False), strict=True
    ):
        np.testing.assert_array_equal(found.cpu().numpy(), expected(queries, points, 3, alone)[1])
    counts = counts_within(there, (aims, 2.0), (there, 5.0))
    for count, queries, radius in zip(counts, (goals, robots), (2.0, 5.0), strict=True):
        assert torch.equal(count.cpu(), torch_dense.count_dense(queries, robots, radius**2))


@pytest.mark.kernels
@pytest.mark.parametrize("batch", [1, 2, 3])
@pytest.mark.parametrize("radius", [0.7, 2.0, 30.0, math.inf])
@pytest.mark.parametrize("kind", few(KINDS, ("integers", "apart")))
def test_kernels_count_points_by_the_cells_that_were_searched_for_the_nearest(kind, radius, batch, monkeypatch):
    """Where positions stay as they are, and the cells are wide enough; of others nothing is kept."""
    monkeypatch.setattr("mast_swarm.space.neighbours.CUDA_DENSE", 0)
    robots, goals = scatter(kind, batch, few(900, 40), 5), scatter(kind, batch, few(700, 30), 6)
    there, aims = robots.to(DEVICE), goals.to(DEVICE)
    with torch_cells.still(there, aims):
        nearest_both(there, aims, 3)
        cells, other = torch_cells.known(there), torch_cells.known(aims)
        assert cells is not None and other is not None
        assert (torch_cells.reaching(there, radius) is cells) == bool((cells.side >= radius).all())
        counts = counts_within(there, (aims, radius), (there, radius / 2))
        nearest(there.clone(), there.clone(), 3, exclude_self=True)
        assert torch_cells.known(there.clone()) is None and torch_cells.known(there[:, 1:]) is None
    assert torch_cells.known(there) is None
    nearest(there, there, 3, exclude_self=True)
    assert torch_cells.known(there) is None
    for count, queries, limit in zip(counts, (goals, robots), (radius, radius / 2), strict=True):
        expected = torch_dense.count_dense(queries, robots, squared(limit, robots.dtype))
        assert torch.equal(count.cpu(), expected)


@pytest.mark.kernels
@pytest.mark.parametrize("side", few((0.3, 5.0, 80.0, 2000.0), (5.0, 80.0, 2000.0)))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernels_count_by_cells_of_any_size(side, dtype):
    """Wider than the radius, or much smaller."""
    points, radius = scatter("uniform", 2, few(1000, 60), 3, dtype), 60.0
    queries = torch.cat([points[:, :10], scatter("uniform", 2, few(300, 30), 4, dtype) * 1.2], 1)
    limit = squared(radius, dtype)
    cells = torch_cells.Cells.build(points.to(DEVICE), torch.full((2,), side, device=DEVICE), narrow=True)
    count = torch_cells.count_cells(queries.to(DEVICE), radius, limit, cells)
    assert torch.equal(count.cpu(), torch_dense.count_dense(queries, points, limit))


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_even_teams_have_narrow_keys_and_crowded_ones_all_cells(device):
    for kind, keys in (("uniform", torch.int32), ("apart", torch.int64)):
        points = scatter(kind, 1, 300, 3).to(device)
        for batch, width in ((1, keys), (3, torch.int64)):
            teams = points.repeat(batch, 1, 1)
            assert torch_cells._fine(teams, teams.aminmax(dim=1)).key.dtype == width


@pytest.mark.kernels
@pytest.mark.parametrize("kind", ["uniform", "apart"])
def test_steady_work_keeps_the_sizes_of_cells_and_the_width_of_keys(kind, monkeypatch):
    monkeypatch.setattr("mast_swarm.space.neighbours.STEADY_DENSE", 0)
    points, radius = scatter(kind, 1, few(900, 80), 3), 4.0
    there, work = points.to(DEVICE), steady.Steady(DEVICE)
    for _ in range(3):
        with work.granted() if work.answers else work.asking(), torch_cells.still(there):
            _, index = nearest(there, there, 3, exclude_self=True)
            cells = torch_cells.known(there)
            assert cells is not None and cells.key.dtype == (torch.int32 if kind == "uniform" else torch.int64)
            (count,) = counts_within(there, (there, radius))
        np.testing.assert_array_equal(index.cpu().numpy(), expected(points, points, 3, True)[1])
        assert torch.equal(count.cpu(), torch_dense.count_dense(points, points, radius**2))
        points = points + torch.randn(points.shape, generator=torch.Generator().manual_seed(1))
        there.copy_(points)


@pytest.mark.kernels
@pytest.mark.parametrize("packed", [1.0, 0.0], ids=["depot", "one point"])
def test_cells_grow_with_a_team_that_spreads_from_a_depot(packed, monkeypatch):
    """So that a search does not walk through rows and rows of empty cells."""
    monkeypatch.setattr("mast_swarm.space.neighbours.STEADY_DENSE", 0)
    n = few(900, 60)
    spread, work = scatter("uniform", 2, n, 3), steady.Steady(DEVICE)
    points = torch.stack((packed * spread[0] / 1000, spread[1]))
    there = points.to(DEVICE)
    for moved in (points, spread):
        there.copy_(moved)
        with work.granted() if work.answers else work.asking(), torch_cells.still(there):
            _, index = nearest(there, there, 3, exclude_self=True)
            cells = torch_cells.known(there)
        np.testing.assert_array_equal(index.cpu().numpy(), expected(moved, moved, 3, True)[1])
    assert cells is not None and int(cells.size.max()) <= 2 * math.sqrt(n)


@pytest.mark.kernels
@pytest.mark.parametrize("k", [16, 17])
def test_many_neighbours_of_a_small_team_are_found_among_all_pairs(k, monkeypatch):
    """In steady work too: each query's neighbours are held in registers where cells are searched."""
    monkeypatch.setattr("mast_swarm.space.neighbours.STEADY_DENSE", 0)
    points, work = scatter("uniform", 1, 40, 3), steady.Steady(DEVICE)
    there = points.to(DEVICE)
    with work.asking(), torch_cells.still(there):
        _, index = nearest(there, there, k, exclude_self=True)
        assert (torch_cells.known(there) is None) == (k > 16)
    np.testing.assert_array_equal(index.cpu().numpy(), expected(points, points, k, True)[1])


@pytest.mark.kernels
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numpy's, in the interpreter
@pytest.mark.parametrize("batch", [2, 3])  # with narrow keys, and with wide ones
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_steady_work_on_one_environment_with_a_bad_position_leaves_the_others_right(bad, batch, monkeypatch):
    """Nobody asks there whether positions are finite."""
    monkeypatch.setattr("mast_swarm.space.neighbours.STEADY_DENSE", 0)
    points, radius = scatter("uniform", batch, few(300, 20), 3), 200.0
    there, work = points.to(DEVICE), steady.Steady(DEVICE)
    for _ in range(2):
        with work.granted() if work.answers else work.asking(), torch_cells.still(there):
            _, index = nearest(there, there, 3, exclude_self=True)
            (count,) = counts_within(there, (there, radius))
        there[1, 7, 0] = bad
    good = [environment for environment in range(batch) if environment != 1]
    np.testing.assert_array_equal(index.cpu().numpy()[good], expected(points[good], points[good], 3, True)[1])
    assert torch.equal(count.cpu()[good], torch_dense.count_dense(points[good], points[good], radius**2))
    assert (index[1] == -1).all() and not count[1].any()


@pytest.mark.kernels
def test_kernels_compare_with_the_radius_in_the_type_of_the_positions():
    points = torch.tensor([[[0.0, 0.0], [0.3, 0.0]]], dtype=torch.float64).to(DEVICE)
    count = counted(points, points, 0.3, squared(0.3, torch.float64))
    assert count.tolist() == [[1, 1]]  # the square rounded to float32 is larger


@pytest.mark.kernels
def test_kernels_take_strided_positions():
    points = scatter("uniform", 2, few(200, 40), 0)
    strided = points.to(DEVICE).repeat(1, 1, 2)[..., :2]
    assert not strided.is_contiguous()
    _, index = nearest(strided, strided, 3, exclude_self=True, method="cells")
    np.testing.assert_array_equal(index.cpu().numpy(), expected(points, points, 3, True)[1])
    count = counted(strided, strided, 100.0, 1e4)
    assert torch.equal(count.cpu(), torch_dense.count_dense(points, points, 1e4))


@pytest.mark.parametrize("kind", ["uniform", "clusters", "pile", "outlier", "apart"])
def test_cells_never_outgrow_the_points(kind):
    """However uneven the points, almost all of them lie in cells of few, and cells number no more than O(N)."""
    n = 20000
    points = scatter(kind, 1, n, 4).numpy()
    order, _, _, start, child, _, shape = torch_cells.build_cpu(points)
    assert sorted(order[0].tolist()) == list(range(n))
    scanned = 0
    todo = [0]
    while todo:
        columns, rows, first = shape[0, todo.pop(), :3]
        for c in range(first, first + columns * rows):
            if child[0, c] >= 0:
                todo.append(int(child[0, c]))
            elif child[0, c] == -1:
                scanned += int(start[0, c + 1] - start[0, c]) ** 2
    assert scanned < 20 * n
    assert start.shape[1] <= 4 * n + 16


def test_positions_may_need_gradients_and_be_strided():
    points = scatter("uniform", 2, 20, 0).repeat(1, 1, 2)[..., 1:3].requires_grad_()
    distance, index = nearest(points, points, 3, exclude_self=True)
    assert not distance.requires_grad
    np.testing.assert_array_equal(
        index.numpy(), expected(points.detach().contiguous(), points.detach().contiguous(), 3, True)[1]
    )
    assert radius_graph(points, 300.0).source.numel() > 0
    assert count_within(points, points, 300.0).min() >= 1


@pytest.mark.parametrize("method", ["dense", "cells"])
@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
def test_bad_positions_are_named(method, bad):
    points = scatter("uniform", 3, 10, 0)
    points[2, 7, 1] = bad
    with pytest.raises(MastError, match="environment 2, robot 7"):
        nearest(points, points, 3, method=method)
    with pytest.raises(MastError, match="environment 2, robot 7"):
        radius_graph(points, 3.0, method=method)
    with pytest.raises(MastError, match="environment 2, robot 7"):
        count_within(points[:, :8], points[:, :3], 3.0)


@pytest.mark.kernels
@pytest.mark.parametrize("bad", [math.nan, -math.inf, 1e30])
def test_bad_positions_are_named_on_cuda(bad):
    points = scatter("uniform", 3, 5000, 0)
    wrong = points.clone()
    wrong[2, 7, 1] = bad
    with pytest.raises(MastError, match="position of environment 2, robot 7"):
        nearest(wrong.to(DEVICE), wrong.to(DEVICE), 3)
    with pytest.raises(MastError, match="query of environment 2, robot 7"):
        count_within(wrong.to(DEVICE), points.to(DEVICE), 3.0)


def test_bad_arguments_are_refused():
    points = scatter("uniform", 2, 5, 0)
    with pytest.raises(MastError, match=r"shape \[5, 2\]"):
        nearest(points[0], points, 1)
    with pytest.raises(MastError, match="shape"):
        radius_graph(points[..., :1], 1.0)
    with pytest.raises(MastError, match="float32 or float64"):
        nearest(points.long(), points, 1)
    with pytest.raises(MastError, match="same type"):
        nearest(points.double(), points, 1)
    with pytest.raises(MastError, match="environments"):
        nearest(points[:1], points, 1)
    with pytest.raises(MastError, match="k is 0"):
        nearest(points, points, 0)
    with pytest.raises(MastError, match="exclude_self"):
        nearest(points[:, :3], points, 1, exclude_self=True)
    with pytest.raises(MastError, match="did you mean cells"):
        nearest(points, points, 1, method="cell")
    for radius in (-1.0, math.nan):
        with pytest.raises(MastError, match="radius"):
            count_within(points, points, radius)
        with pytest.raises(MastError, match="radius"):
            radius_graph(points, radius)


def test_offsets_are_differences_and_zero_where_nothing_is() -> None:
    rng = torch.Generator().manual_seed(0)
    queries, points = torch.rand(3, 7, 2, generator=rng), torch.rand(3, 5, 2, generator=rng)
    index = torch.randint(-1, 5, (3, 7, 4), generator=rng)
    found = offsets(queries, points, index)
    for b, i, c in itertools.product(range(3), range(7), range(4)):
        j = int(index[b, i, c])
        expected = points[b, j] - queries[b, i] if j >= 0 else torch.zeros(2)
        assert torch.equal(found[b, i, c], expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("radius", [1e25, math.inf])
def test_a_radius_whose_square_fp32_cannot_hold_means_everybody(radius: float) -> None:
    points = torch.rand(2, 5, 2) * 1e9
    assert squared(radius, torch.float32) == math.inf and squared(1.1, torch.float32) == np.float32(1.1 * 1.1)
    assert (count_within(points, points, radius) == 5).all() and radius_graph(points, radius).adjacency().sum() == 40
