"""Who hears whom: communication graphs, their connected components, and hops.

An edge carries information from `source`, the robot that is heard, to `target`, the robot that hears.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.kernels import on_gpu, tried
from mast_swarm.space import dense
from mast_swarm.space._checks import check_positions, check_radius, squared
from mast_swarm.space.neighbours import choose, pairs_within

CUDA_DENSE = 2048  # robots up to which graphs by radius, and components, on CUDA are N x N matrices: nothing waits
MOST_HOPS = torch.iinfo(torch.int16).max


@dataclass(frozen=True)
class Graph:
    """Edges of B graphs of N robots each, in flat numbering b * N + i. Edges may repeat and may be loops."""

    source: Tensor  # [E] int64, the robot that is heard
    target: Tensor  # [E] int64, the robot that hears
    batch: int
    nodes: int
    directed: bool = False  # whether links may carry one way only

    @property
    def device(self) -> torch.device:
        return self.source.device

    def among(self, chosen: Tensor) -> Graph:
        """The links between robots that are chosen, [B, N] bool."""
        kept = chosen.reshape(-1)[self.source] & chosen.reshape(-1)[self.target]
        return Graph(self.source[kept], self.target[kept], self.batch, self.nodes, self.directed)

    def adjacency(self) -> Tensor:
        """[B, N, N] bool: element b, i, j says that i hears j."""
        matrix = torch.zeros(self.batch * self.nodes**2, dtype=torch.bool, device=self.source.device)
        if self.nodes > 0:
            matrix.index_fill_(0, self.target * self.nodes + self.source % self.nodes, True)
        return matrix.view(self.batch, self.nodes, self.nodes)


class _Unlisted(Graph):
    """A graph whose edges, source and target [E], are listed when somebody asks for them."""

    @cached_property
    @abstractmethod
    def _edges(self) -> tuple[Tensor, Tensor]: ...

    @property
    def source(self) -> Tensor:
        return self._edges[0]

    @property
    def target(self) -> Tensor:
        return self._edges[1]


class MatrixGraph(_Unlisted):
    """A graph kept as its matrix [B, N, N] bool: element b, i, j says that i hears j.

    Its edges, sorted by (target, source), are listed when somebody asks for them. Only the data know how many there
    are, so that listing waits for the device; whoever needs the matrix alone never waits.
    """

    def __init__(self, matrix: Tensor) -> None:
        object.__setattr__(self, "matrix", matrix)
        object.__setattr__(self, "batch", matrix.shape[0])
        object.__setattr__(self, "nodes", matrix.shape[1])

    matrix: Tensor

    @cached_property
    def _edges(self) -> tuple[Tensor, Tensor]:
        b, i, j = self.matrix.nonzero().unbind(-1)
        return b * self.nodes + j, b * self.nodes + i

    @property
    def device(self) -> torch.device:
        return self.matrix.device

    def adjacency(self) -> Tensor:
        return self.matrix.clone()


class NearestGraph(_Unlisted):
    """A graph kept as whom each robot has nearest, [B, N, k] int64: it hears these, and they hear it unless links are
    directed. A missing neighbour (-1) gives a loop, so that the number of edges depends on shapes alone.

    Its edges are listed when somebody asks for them: of a small team on a GPU that is a dozen kernels, and whoever
    needs the components alone does not.
    """

    def __init__(self, index: Tensor, directed: bool) -> None:
        object.__setattr__(self, "index", index)
        object.__setattr__(self, "batch", index.shape[0])
        object.__setattr__(self, "nodes", index.shape[1])
        object.__setattr__(self, "directed", directed)

    index: Tensor

    @cached_property
    def _edges(self) -> tuple[Tensor, Tensor]:
        index, n = self.index, self.nodes
        flat = torch.arange(self.batch * n, device=index.device).view(self.batch, n, 1)
        target = flat.expand_as(index)
        source = torch.where(index < 0, target, index + flat[:, :1])
        if self.directed:
            return source.reshape(-1), target.reshape(-1)
        # One environment's edges stay together, so that environments touch separate memory.
        return torch.cat([source, target], -1).reshape(-1), torch.cat([target, source], -1).reshape(-1)

    @property
    def device(self) -> torch.device:
        return self.index.device

    def adjacency(self) -> Tensor:
        matrix = super().adjacency()
        matrix.diagonal(dim1=1, dim2=2).fill_(False)  # where a neighbour is missing there is a loop
        return matrix


def neighbour_graph(index: Tensor, *, directed: bool = False) -> Graph:
    """Each robot hears its nearest, index [B, N, k]; links carry both ways unless directed (SPEC 3)."""
    if index.dim() != 3 or index.dtype != torch.int64:
        raise MastError(
            f"index is {index.dtype} {list(index.shape)}, expected int64 [environments, robots, k] as nearest gives it"
        )
    return NearestGraph(index, directed)


def radius_graph(points: Tensor, radius: float, *, method: str = "auto") -> Graph:
    """All pairs i != j with |p_i - p_j| < radius hear each other; edges sorted by (target, source).

    points: [B, N, 2], radius: metres.
    """
    check_positions("points", points)
    check_radius(radius)
    n = points.shape[1]
    if on_gpu(points) and n <= CUDA_DENSE and choose(method, points, n, CUDA_DENSE) == "dense":
        return MatrixGraph(dense.near(points.detach(), squared(radius, points.dtype)))
    source, target = pairs_within(points.detach(), radius, method)
    return Graph(source, target, points.shape[0], points.shape[1])


def components(graph: Graph) -> Tensor:
    """[B, N] int64: lowest index of the weakly connected component that each robot is in."""
    if graph.nodes == 0:
        return torch.zeros((graph.batch, 0), dtype=torch.int64, device=graph.device)
    if on_gpu(graph):
        few = dense.link_kernels is not None and dense.link_kernels.takes_few_linked(graph.nodes)
        if few and isinstance(graph, NearestGraph):
            plain = dense.labels
            return tried(
                "components",
                lambda: dense.link_kernels.labels_of_nearest(graph.index),
                lambda: plain(graph.adjacency()),
            )
        # Edges are dear where they have to be listed first, which waits, and where a kernel holds all pairs.
        dear = isinstance(graph, MatrixGraph) or dense.link_kernels is None or few
        if dear and graph.nodes <= CUDA_DENSE:
            return dense.labels(graph.adjacency())
        if dense.link_kernels is None:
            return spread_labels(graph)
        given = (graph.source, graph.target, graph.batch, graph.nodes)
        return tried("components", lambda: dense.link_kernels.labels(*given), lambda: spread_labels(graph))
    from mast_swarm.space import _cpu_graph

    label = np.empty(graph.batch * graph.nodes, np.int64)
    if isinstance(graph, NearestGraph):  # without listing its edges
        _cpu_graph.union_nearest(graph.index.contiguous().numpy(), label)
    else:
        source, target = graph.source.contiguous().numpy(), graph.target.contiguous().numpy()
        _cpu_graph.union_find(source, target, graph.nodes, label)
    return torch.from_numpy(label).view(graph.batch, graph.nodes)


def spread_labels(graph: Graph) -> Tensor:
    """As components, for many robots: every edge offers each end's label to the other end and to the other's
    label, then labels jump to their label's label, until nothing changes. Waits for the device once a
    round."""
    label = torch.arange(graph.batch * graph.nodes, device=graph.device)
    while True:
        old = label
        a, b = old[graph.source], old[graph.target]
        where = torch.cat([graph.source, graph.target, a, b])
        label = old.scatter_reduce(0, where, torch.cat([b, a, b, a]), "amin")
        label = label[label]
        label = label[label]
        if torch.equal(label, old):
            return (label % graph.nodes).view(graph.batch, graph.nodes)


def reachable(graph: Graph) -> Tensor:
    """[B, N, N] bool: element b, i, j says that information can flow from j to i; every robot reaches itself."""
    matrix = graph.adjacency()
    if on_gpu(graph):
        return dense.closure(matrix)
    from mast_swarm.space import _cpu_graph

    _cpu_graph.closure(matrix.numpy())
    return matrix


def hops(graph: Graph, limit: int | None = None) -> Tensor:
    """[B, N, N] int16: fewest links from j to i, 0 on the diagonal, -1 where there is no way (or none within
    limit).
    """
    if graph.nodes - 1 > MOST_HOPS:
        raise MastError(f"{graph.nodes} robots, expected at most {MOST_HOPS + 1}: hops are an N x N table of int16")
    if limit is not None and limit < 0:
        raise MastError(f"limit is {limit} hops, expected 0 or more")
    if on_gpu(graph):
        return dense.hops(graph.adjacency(), limit)
    from mast_swarm.space import _cpu_graph

    steps = torch.empty((graph.batch, graph.nodes, graph.nodes), dtype=torch.int16)
    most = graph.nodes if limit is None else min(limit, graph.nodes)
    _cpu_graph.hops(graph.adjacency().numpy(), most, steps.numpy())
    return steps
