"""The GPU's torch versions and kernels: the same as on the CPU, and captured in a CUDA graph where they promise it."""

from __future__ import annotations

import pytest
import torch

from devices import DEVICE, few, plainly
from mast_swarm.space import Graph, components, count_within, hops, nearest, neighbour_graph, radius_graph, reachable
from mast_swarm.space import cells as torch_cells
from mast_swarm.space import dense as torch_dense
from mast_swarm.space.graph import spread_labels


def team(n: int, batch: int = 4) -> torch.Tensor:
    """Clustered positions [B, N, 2] with some duplicates."""
    g = torch.Generator().manual_seed(n)
    p = torch.rand((batch, n, 2), generator=g).mul(1000).round()
    p[:, n // 2 :] /= 50
    return p


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
    assert torch.equal(torch_cells.count_cells(there, there, 20.0, 400.0).cpu(), count)
    source, target = torch_dense.pairs_within(points, 400.0)
    for method in ("dense", "cells"):
        graph = radius_graph(there, 20.0, method=method)
        assert torch.equal(graph.source.cpu(), source) and torch.equal(graph.target.cpu(), target)
    graph = neighbour_graph(index, directed=True)
    copy = Graph(graph.source.to(DEVICE), graph.target.to(DEVICE), graph.batch, graph.nodes)
    with plainly():
        label = torch_dense.labels(graph.adjacency())
    assert torch.equal(components(copy).cpu(), label) and torch.equal(spread_labels(copy).cpu(), label)
    if torch_cells.gpu is not None:
        lowest = torch_cells.gpu.labels(copy.source, copy.target, copy.batch * n)
        assert torch.equal((lowest % n).view(-1, n).cpu(), label)
    assert torch.equal(reachable(copy).cpu(), torch_dense.closure(graph.adjacency()))
    for limit in (None, 4):
        assert torch.equal(hops(copy, limit).cpu(), torch_dense.hops(graph.adjacency(), limit))


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
    assert torch.equal(torch_cells.count_cells(wide, wide, 20.0, 400.0).cpu(), count)


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
