"""Graphs, components, reachability and hops, against scipy.sparse.csgraph."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components, shortest_path

from mast_swarm.errors import MastError
from mast_swarm.space import (
    Graph,
    components,
    hops,
    nearest,
    neighbour_graph,
    radius_graph,
    reachable,
)
from mast_swarm.space import dense as torch_dense
from mast_swarm.space.graph import MatrixGraph, spread_labels


@st.composite
def graphs(draw) -> Graph:
    """Any edges, repeated ones and loops among them."""
    batch = draw(st.integers(1, 3))
    n = draw(st.sampled_from([1, 2, 3, 7, 20, 64, 65, 70]))
    count = draw(st.integers(0, 3 * n))
    g = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    b = g.integers(0, batch, count) * n
    if draw(st.booleans()):  # a path in random order: the longest way round
        order = g.permutation(n)
        i, j, b = order[1:], order[:-1], np.zeros(n - 1, np.int64)
    else:
        i, j = g.integers(0, n, count), g.integers(0, n, count)
    return Graph(torch.from_numpy(b + j), torch.from_numpy(b + i), batch, n)


def sparse(graph: Graph, b: int) -> coo_matrix:
    """scipy's matrix of one environment: element j, i is the edge j -> i, as information flows."""
    n = graph.nodes
    here = (graph.source // n == b).numpy()
    source, target = graph.source.numpy()[here] % n, graph.target.numpy()[here] % n
    return coo_matrix((np.ones(len(source)), (source, target)), shape=(n, n)).tocsr()


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("robots", [1, 3, 4])
def test_no_robot_hears_itself_however_few_there_are(robots: int, directed: bool) -> None:
    points = torch.rand(2, robots, 2, generator=torch.Generator().manual_seed(1))
    links = neighbour_graph(nearest(points, points, 3, exclude_self=True)[1], directed=directed).adjacency()
    assert links.sum() == 2 * robots * (robots - 1) and not links.diagonal(dim1=1, dim2=2).any()


@settings(deadline=None, max_examples=50)
@given(graphs())
def test_components(graph):
    label = components(graph)
    for b in range(graph.batch):
        _, group = connected_components(sparse(graph, b), directed=True, connection="weak")
        lowest = np.array([np.flatnonzero(group == g)[0] for g in group])
        np.testing.assert_array_equal(label[b].numpy(), lowest)
    assert torch.equal(torch_dense.labels(graph.adjacency()), label)
    assert torch.equal(spread_labels(graph), label)


@settings(deadline=None, max_examples=50)
@given(graphs(), st.one_of(st.none(), st.integers(0, 8)))
def test_hops_and_reachability(graph, limit):
    steps = hops(graph, limit)
    reach = reachable(graph)
    assert steps.dtype == torch.int16 and reach.dtype == torch.bool
    for b in range(graph.batch):
        length = shortest_path(sparse(graph, b), directed=True, unweighted=True).T  # [i, j]: from j to i
        np.testing.assert_array_equal(reach[b].numpy(), np.isfinite(length))
        within = length <= (np.inf if limit is None else limit)
        known = np.isfinite(length) & within
        np.testing.assert_array_equal(steps[b].numpy(), np.where(known, length, -1))
    assert torch.equal(torch_dense.closure(graph.adjacency()), reach)
    assert torch.equal(torch_dense.hops(graph.adjacency(), limit), steps)


def test_long_path():
    """Labels and hops travel the whole length of a chain."""
    n = 1500
    g = np.random.default_rng(0).permutation(n)
    graph = Graph(torch.from_numpy(g[:-1]), torch.from_numpy(g[1:]), 1, n)
    assert (components(graph) == 0).all() and (spread_labels(graph) == 0).all()
    steps = hops(graph)[0].numpy()
    assert steps[g[-1], g[0]] == n - 1 and steps[g[0], g[-1]] == -1
    np.testing.assert_array_equal(steps >= 0, reachable(graph)[0].numpy())


@pytest.mark.parametrize("n", [1, 2, 40])
def test_a_graph_kept_as_its_matrix_is_the_same_graph(n):
    points = torch.rand((3, n, 2), generator=torch.Generator().manual_seed(n)) * 100
    edges, matrix = radius_graph(points, 20.0), MatrixGraph(torch_dense.near(points, 400.0))
    assert (matrix.batch, matrix.nodes, matrix.device) == (3, n, edges.device)
    assert torch.equal(matrix.adjacency(), edges.adjacency())
    assert torch.equal(matrix.source, edges.source) and torch.equal(matrix.target, edges.target)
    for question in (components, reachable, hops, torch_dense.labels):
        asked = [graph.adjacency() if question is torch_dense.labels else graph for graph in (edges, matrix)]
        assert torch.equal(question(asked[0]), question(asked[1]))
    assert torch.equal(matrix.adjacency(), edges.adjacency())  # nobody has written into it
    if n == 40:
        assert edges.source.numel() > 0 and len(components(edges).unique()) > 1  # so that the test can fail


def test_adjacency_says_who_hears_whom():
    graph = Graph(torch.tensor([1, 1, 5]), torch.tensor([0, 0, 4]), 2, 3)
    assert graph.adjacency().nonzero().tolist() == [[0, 0, 1], [1, 1, 2]]


def test_neighbour_graph():
    points = torch.tensor([[[0.0, 0.0], [1.0, 0.0], [3.0, 0.0], [50.0, 0.0]]])
    index = nearest(points, points, 1, exclude_self=True)[1]
    directed = neighbour_graph(index, directed=True)
    assert directed.adjacency()[0].nonzero().tolist() == [[0, 1], [1, 0], [2, 1], [3, 2]]
    both = neighbour_graph(index)
    assert torch.equal(both.adjacency(), directed.adjacency() | directed.adjacency().transpose(1, 2))
    assert (components(directed) == 0).all()
    # Along the directed reading nobody hears the last robot, which hears everybody in the end.
    assert reachable(directed)[0, 3].all() and not reachable(directed)[0, :3, 3].any()


@pytest.mark.parametrize("batch", [1, 4])
def test_neighbour_graph_keeps_environments_apart_and_its_size(batch):
    points = torch.rand((batch, 9, 2), generator=torch.Generator().manual_seed(0))
    graph = neighbour_graph(nearest(points, points, 3, exclude_self=True)[1])
    assert graph.source.numel() == batch * 9 * 3 * 2
    assert torch.equal(graph.source // 9, graph.target // 9)
    lone = neighbour_graph(nearest(points[:, :1], points[:, :1], 3, exclude_self=True)[1])
    assert lone.source.numel() == batch * 6 and torch.equal(lone.source, lone.target)
    assert (components(lone) == 0).all() and (hops(lone) == 0).all()


@settings(deadline=None)
@given(st.integers(1, 3), st.integers(1, 12), st.integers(1, 4), st.booleans(), st.integers(0, 10**6))
def test_components_of_nearest_lists_are_those_of_their_edges(batch, robots, k, directed, seed):
    rng = torch.Generator().manual_seed(seed)
    index = torch.randint(-1, robots, (batch, robots, k), generator=rng)
    graph = neighbour_graph(index, directed=directed)
    pairs = coo_matrix(
        (np.ones(graph.source.numel()), (graph.source.numpy(), graph.target.numpy())), (batch * robots,) * 2
    )
    which = connected_components(pairs, directed=False)[1]
    first = np.array([np.flatnonzero(which == one)[0] for one in which])
    assert components(graph).flatten().tolist() == (first % robots).tolist()


def test_radius_components():
    points = torch.tensor([[[0.0, 0.0], [100.0, 0.0], [3.0, 0.0], [104.0, 0.0], [50.0, 50.0]]])
    assert components(radius_graph(points, 5.0)).tolist() == [[0, 1, 0, 1, 4]]


def test_no_robots():
    graph = radius_graph(torch.zeros((2, 0, 2)), 1.0)
    assert components(graph).shape == (2, 0)
    assert hops(graph).shape == reachable(graph).shape == (2, 0, 0)


def test_bad_arguments_are_refused():
    with pytest.raises(MastError, match=r"int64 \[environments"):
        neighbour_graph(torch.zeros((2, 3)))
    edge = torch.zeros(1, dtype=torch.int64)
    with pytest.raises(MastError, match="limit"):
        hops(Graph(edge, edge, 1, 1), -1)
    with pytest.raises(MastError, match="40000 robots"):
        hops(Graph(edge, edge, 1, 40000))
