"""The GPU's torch versions and kernels: the same as on the CPU, and captured in a CUDA graph where they promise it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from devices import DEVICE, few, plainly
from mast_swarm.space import (
    Graph,
    components,
    counts_within,
    hops,
    nearest,
    neighbour_graph,
    offsets,
    radius_graph,
    reachable,
)
from mast_swarm.space import cells as torch_cells
from mast_swarm.space import dense as torch_dense
from mast_swarm.space.graph import spread_labels


def team(n: int, batch: int = 4) -> torch.Tensor:
    """Clustered positions [B, N, 2] with some duplicates."""
    g = torch.Generator().manual_seed(n)
    p = torch.rand((batch, n, 2), generator=g).mul(1000).round()
    p[:, n // 2 :] /= 50
    return p


def count_within(queries: torch.Tensor, points: torch.Tensor, radius: float) -> torch.Tensor:
    """One question alone."""
    return counts_within(points, (queries, radius))[0]


@pytest.mark.kernels
@pytest.mark.parametrize("n", few([1, 2, 17, 100, 128, 500, 1500], [1, 2, 33]))
def test_same_as_on_the_cpu(n):
    points = team(n)
    there = points.to(DEVICE)
    with plainly():
        distance, index = torch_dense.nearest_dense(points, points, 3, True)
    for method in ("dense", "cells", "auto"):
        d, i = nearest(there, there, 3, exclude_self=True, method=method)
        assert torch.equal(i.cpu(), index)
        torch.testing.assert_close(d.cpu(), distance, rtol=3e-7, atol=0)
    count = torch_dense.count_dense(points, points, 400.0)
    assert torch.equal(count_within(there, there, 20.0).cpu(), count)
    assert torch.equal(torch_cells.count_cells(there, 20.0, 400.0, torch_cells.wide(there, 20.0)).cpu(), count)
    source, target = torch_dense.pairs_within(points, 400.0)
    for method in ("dense", "cells"):
        graph = radius_graph(there, 20.0, method=method)
        assert torch.equal(graph.source.cpu(), source) and torch.equal(graph.target.cpu(), target)
    graph = neighbour_graph(index, directed=True)
    copy = Graph(graph.source.to(DEVICE), graph.target.to(DEVICE), graph.batch, graph.nodes)
    with plainly():
        label = torch_dense.labels(graph.adjacency())
    assert torch.equal(components(copy).cpu(), label) and torch.equal(spread_labels(copy).cpu(), label)
    if torch_dense.link_kernels is not None:
        assert torch.equal(torch_dense.link_kernels.labels(copy.source, copy.target, copy.batch, n).cpu(), label)
    assert torch.equal(reachable(copy).cpu(), torch_dense.closure(graph.adjacency()))
    for limit in (None, 4):
        assert torch.equal(hops(copy, limit).cpu(), torch_dense.hops(graph.adjacency(), limit))


@pytest.mark.kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 3, 5])
def test_offsets(dtype: torch.dtype, k: int) -> None:
    """-1 where there are fewer than k."""
    g = torch.Generator().manual_seed(k)
    queries, points = (torch.rand((3, n, 2), generator=g, dtype=dtype) * 100 for n in (7, 4))
    index = torch.randint(-1, 4, (3, 7, k), generator=g)
    with plainly():
        expected = offsets(queries, points, index)
    assert torch.equal(offsets(queries.to(DEVICE), points.to(DEVICE), index.to(DEVICE)).cpu(), expected)


def lowest_by_scipy(source: np.ndarray, target: np.ndarray, count: int) -> np.ndarray:
    """The lowest node of each node's component."""
    links = coo_array((np.ones(len(source), bool), (source, target)), (count, count))
    parts, name = connected_components(links, directed=False)
    lowest = np.full(parts, count)
    np.minimum.at(lowest, name, np.arange(count))
    return lowest[name]


SHAPES = ("sparse", "dense", "chain", "star", "ladder", "none")


@pytest.mark.kernels
@settings(deadline=None, max_examples=few(200, 12), suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 3),
    nodes=st.integers(1, few(3000, 90)),
    shape=st.sampled_from(SHAPES),
    shuffled=st.booleans(),
)
def test_components_of_any_graph(seed: int, batch: int, nodes: int, shape: str, shuffled: bool) -> None:
    """Edges in any order, one way or both, repeated, and loops; long chains, whose numbers run along them or not."""
    rng, every = np.random.default_rng(seed), np.arange(nodes)
    ends = {
        "sparse": (rng.integers(0, nodes, nodes // 2), rng.integers(0, nodes, nodes // 2)),
        "dense": (rng.integers(0, nodes, 3 * nodes), rng.integers(0, nodes, 3 * nodes)),
        "chain": (every[1:], every[:-1]),
        "star": (np.full(nodes, nodes - 1), every),
        "ladder": (np.r_[every[2:], every[1::2]], np.r_[every[:-2], every[1::2] - 1]),
        "none": (every[:0], every[:0]),
    }[shape]
    name = rng.permutation(nodes) if shuffled else every
    a, b = (np.concatenate([b * nodes + name[end] for b in range(batch)]) for end in ends)
    again = rng.random(len(a)) < 0.5
    a, b = np.r_[a, b[again]], np.r_[b, a[again]]
    order = rng.permutation(len(a))
    source, target = (torch.from_numpy(end[order].astype(np.int64)).to(DEVICE) for end in (a, b))
    label = torch_dense.link_kernels.labels(source, target, batch, nodes).cpu().numpy()
    expected = lowest_by_scipy(a, b, batch * nodes) % nodes
    assert (label.reshape(-1) == expected).all()


@pytest.mark.kernels
@settings(deadline=None, max_examples=few(100, 12), suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    batch=st.integers(1, 3),
    nodes=st.integers(1, few(128, 40)),
    k=st.integers(1, 4),
    directed=st.booleans(),
)
def test_components_of_whom_robots_have_nearest(seed: int, batch: int, nodes: int, k: int, directed: bool) -> None:
    index = torch.randint(-1, nodes, (batch, nodes, k), generator=torch.Generator().manual_seed(seed))
    graph = neighbour_graph(index.to(DEVICE), directed=directed)
    expected = lowest_by_scipy(graph.source.cpu().numpy(), graph.target.cpu().numpy(), batch * nodes) % nodes
    assert (components(graph).cpu().numpy().reshape(-1) == expected).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("order", ["as they lie", "at random"])
def test_components_of_a_million(order: str) -> None:
    """Again and again: threads meet in another order each time."""
    n = 1_000_000
    g = torch.Generator().manual_seed(3)
    points = torch.rand((1, n, 2), generator=g) * 100_000
    if order == "as they lie":  # neighbours have near numbers, so that chains are long
        points = points[:, points[0, :, 0].argsort()]
    graph = neighbour_graph(nearest(points.cuda(), points.cuda(), 3, exclude_self=True)[1])
    expected = lowest_by_scipy(graph.source.cpu().numpy(), graph.target.cpu().numpy(), n)
    for _ in range(5):
        assert (components(graph)[0].cpu().numpy() == expected).all()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_more_environments_than_an_axis_of_a_grid_has_programs():
    points = torch.rand((70_000, 3, 2), generator=torch.Generator().manual_seed(0)) * 100
    distance, index = torch_dense.nearest_dense(points, points, 2, True)
    d, i = nearest(points.cuda(), points.cuda(), 2, exclude_self=True)
    assert torch.equal(i.cpu(), index)
    torch.testing.assert_close(d.cpu(), distance, rtol=3e-7, atol=0)


@pytest.mark.kernels
def test_positions_that_do_not_lie_in_one_piece():
    points = team(few(500, 10))
    wide = torch.cat((points, points + 7.0), -1).to(DEVICE)[..., :2]
    assert not wide.is_contiguous()
    with plainly():
        index, count = nearest(points, points, 3)[1], count_within(points, points, 20.0)
    for method in ("dense", "cells"):
        assert torch.equal(nearest(wide, wide, 3, method=method)[1].cpu(), index)
    assert torch.equal(torch_cells.count_cells(wide, 20.0, 400.0, torch_cells.wide(wide, 20.0)).cpu(), count)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_captured_in_a_cuda_graph():
    there = team(100).cuda()

    def work():
        distance, index = nearest(there, there, 3, exclude_self=True)
        graph = neighbour_graph(index)
        near = count_within(there, there, 5.0)
        heard = radius_graph(there, 20.0)
        return distance, index, components(graph), reachable(graph), hops(graph, 5), near, components(heard)

    work()
    torch.cuda.synchronize()
    capture = torch.cuda.CUDAGraph()
    with torch.cuda.graph(capture):
        captured = work()
    there.copy_(team(100).flip(0).mul(3.0))
    capture.replay()
    torch.cuda.synchronize()
    for replayed, again in zip(captured, work(), strict=True):
        assert torch.equal(replayed, again)
