"""Nearest points and points within a radius, for every query of every environment.

`method` is "dense" (every pair), "cells" (cell lists, linear in N) or "auto", which takes the faster for the
size. On the CPU the work is done by numba kernels, on CUDA by torch and Triton. All of them find the same points in the
same order, for d2 = dx*dx + dy*dy is the same number everywhere (type of the positions, nothing fused) and
ties go to the lowest index; the root of d2 may differ in the last bit between libraries.
The kernels are imported where they are called: numba takes half a second to load, and CUDA does without it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from mast_swarm import steady
from mast_swarm.errors import MastError, unknown
from mast_swarm.kernels import on_gpu, tried
from mast_swarm.space import cells, dense
from mast_swarm.space._checks import LARGEST, check_finite, check_pair, check_radius, squared

# Where cells overtake every pair, by the number of points: measured on the CPU, and on CUDA in steady work, where a
# captured step of 300 robots took 0.31 ms by every pair and 0.37 by cells, of 600 0.48 and 0.42, and of 1,000 0.75 and
# 0.49 (an H200, benchmarks/results/neighbours). Other work on CUDA would wait for the sizes of cells,
# and could not be captured with them: it looks at every pair for longer, as memory allows.
CPU_DENSE = 1024
CUDA_DENSE = 2048
STEADY_DENSE = 512
_FEW = 16  # neighbours that a kernel holds in registers with ease: of more, cells begin where they have to
SORTED_QUERIES = 2**17  # from here on queries in no order miss the cache too often


def choose(method: str, points: Tensor, queries: int, most: int | None = None) -> str:
    """Dense or cells for points [B, N, 2] and so many queries per environment: by shape, device, and whether the work
    is steady. most: points per environment up to which every pair is looked at on CUDA, where it is not as usual."""
    if method not in ("auto", "dense", "cells"):
        raise unknown("method", method, ("auto", "dense", "cells"))
    batch, n, _ = points.shape
    if n == 0:
        return "dense"
    if method != "auto":
        return method
    if on_gpu(points):
        if most is None:
            most = STEADY_DENSE if steady.running() else CUDA_DENSE
        return "dense" if n <= most and batch * queries * n <= 16 * dense.PAIRS else "cells"
    return "dense" if n <= CPU_DENSE else "cells"


def _array(positions: Tensor) -> np.ndarray:
    return positions.detach().contiguous().numpy()


def _visit(queries: Tensor, points: Tensor, order: np.ndarray) -> np.ndarray:
    """[B, M] the order in which to take the queries: by cell where that order is known or repays finding it."""
    if queries is points:
        return order
    batch, m, _ = queries.shape
    if m >= SORTED_QUERIES:
        return cells.build_cpu(_array(queries))[0]
    return np.broadcast_to(np.arange(m, dtype=np.int32), (batch, m)).copy()


def _check_finite(points: Tensor, *queries: Tensor) -> None:
    """As check_finite, of points and of queries that are others; on CUDA with one wait for the device where all is
    well, and not at all in steady work, where whoever looks at the results finds out."""
    if not steady.may_ask():
        return
    if on_gpu(points) and bool((torch.cat([points, *queries], 1).abs() < LARGEST).all()):
        return
    check_finite("position", points)
    for query in queries:
        check_finite("query", query)


def nearest(
    queries: Tensor, points: Tensor, k: int, *, exclude_self: bool = False, method: str = "auto"
) -> tuple[Tensor, Tensor]:
    """The k nearest points of each query, nearest first, ties by lowest index.

    queries: [B, M, 2], points: [B, N, 2] metres. exclude_self: query i is point i and not its own neighbour
    (M == N). Returns distance [B, M, k] in metres and index [B, M, k] int64; where fewer than k exist, inf
    and -1.
    """
    distance, index, _ = _nearest(queries, points, k, exclude_self, method)
    return distance, index


def nearest_both(points: Tensor, others: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Of each point the k nearest other points, and the k nearest of `others`, by index: as `nearest` twice, but on
    a GPU the second search takes the points by the cells of the first, so that it reads together what lies together.

    points: [B, N, 2], others: [B, M, 2] metres. Returns [B, N, k] int64 each, -1 where fewer than k exist.
    """
    _, own, order = _nearest(points, points, k, True, "auto")
    _, seen, _ = _nearest(points, others, k, False, "auto", order)
    return own, seen


def _nearest(
    queries: Tensor, points: Tensor, k: int, exclude_self: bool, method: str, order: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As nearest; and of a GPU the order of the queries by cell, where it was found on the way. order: such a one."""
    check_pair(queries, points)
    batch, m, _ = queries.shape
    if k < 1:
        raise MastError(f"k is {k}, expected at least 1 neighbour")
    if exclude_self and m != points.shape[1]:
        raise MastError(
            f"exclude_self needs as many queries as points, given {m} and {points.shape[1]}: pass the points as queries"
        )
    chosen = choose(method, points, m, None if k <= _FEW else CUDA_DENSE)
    queries, points, same = queries.detach(), points.detach(), queries is points
    if chosen == "cells" or not on_gpu(queries):
        _check_finite(points, *([] if same else [queries]))
    if on_gpu(queries):
        if chosen == "cells":
            return cells.nearest_cells(queries, points, k, exclude_self, order)
        return *dense.nearest_dense(queries, points, k, exclude_self), None
    from mast_swarm.space import _cpu, _cpu_cells

    distance = torch.empty((batch, m, k), dtype=queries.dtype)
    index = torch.empty((batch, m, k), dtype=torch.int64)
    into = distance.numpy(), index.numpy()
    if chosen == "cells":
        grid = cells.build_cpu(_array(points))
        visit = _visit(points if same else queries, points, grid[0])
        _cpu_cells.nearest_cells(_array(queries), visit, exclude_self, grid, *into)
    elif queries.dtype == torch.float32:
        _cpu.nearest_dense32(_array(queries), _array(points), k, exclude_self, *into)
    else:
        _cpu.nearest_dense64(_array(queries), _array(points), k, exclude_self, *into)
    return distance, index, None


def offsets(queries: Tensor, points: Tensor, index: Tensor) -> Tensor:
    """Where the points that `index` [B, M, k] names lie as seen from the queries: [B, M, k, 2]; 0 where it is -1.

    queries: [B, M, 2], points: [B, N, 2], as they were given to `nearest`.
    """
    check_pair(queries, points)
    batch, count, k = index.shape
    if not on_gpu(queries):
        from mast_swarm.space import _cpu

        out = torch.empty((batch, count, k, 2), dtype=queries.dtype)
        _cpu.offsets(*(tensor.contiguous().numpy() for tensor in (queries, points, index, out)))
        return out

    def plain() -> Tensor:
        flat = index.clamp_min(0).reshape(batch, count * k, 1).expand(-1, -1, 2)
        found = points.gather(1, flat).reshape(batch, count, k, 2) - queries[:, :, None]
        return torch.where((index >= 0)[..., None], found, 0.0)

    if cells.gpu is None or queries.requires_grad or points.requires_grad:
        return plain()
    return tried("offsets", lambda: cells.gpu.offsets(queries, points, index), plain)


def counts_within(points: Tensor, *asked: tuple[Tensor, float]) -> list[Tensor]:
    """How many points lie nearer to each query than a radius, [B, M] int64, for each pair of queries and radius asked.

    points: [B, N, 2], queries: [B, M, 2], radius: metres, all alike. A query that is a point counts itself. For all
    questions that go by cells the points are sorted once.
    """
    for queries, radius in asked:
        check_pair(queries, points)
        check_radius(radius)
    by_cells = [choose("auto", points, queries.shape[1]) == "cells" for queries, _ in asked]
    if any(by_cells) or not on_gpu(points):
        _check_finite(points, *(queries for queries, _ in asked if queries is not points))
    limits = [squared(radius, points.dtype) for _, radius in asked]
    if not on_gpu(points):
        sorted_points = cells.build_cpu(_array(points)) if any(by_cells) else ()
        return [
            _within_cpu(queries, points, radius, sorted_points if by_cell else (), exclude_self=False)[0]
            for (queries, radius), by_cell in zip(asked, by_cells, strict=True)
        ]
    reach = max((radius for (_, radius), by_cell in zip(asked, by_cells, strict=True) if by_cell), default=0.0)
    grid = cells.reaching(points, reach) if any(by_cells) else None
    return [
        dense.count_dense(queries, points, limit)
        if grid is None or not by_cell
        else cells.count_cells(queries, radius, limit, grid)
        for (queries, radius), limit, by_cell in zip(asked, limits, by_cells, strict=True)
    ]


def _within_cpu(
    queries: Tensor,
    points: Tensor,
    radius: float,
    grid: tuple[np.ndarray, ...],
    *,
    exclude_self: bool,
    names: bool = False,
) -> tuple[Tensor, Tensor]:
    """Count [B, M] of the points within the radius and, if asked for names, which: flat b * N + j, by query
    and index. grid: the points' cells (`build_cpu`); empty: every pair is looked at.
    """
    from mast_swarm.space import _cpu, _cpu_cells

    batch, m, _ = queries.shape
    count = np.zeros((batch, m), np.int64)
    offset = np.zeros(batch * m + 1, np.int64)
    found = np.empty(0, np.int64)
    asked, given = _array(queries), _array(points)
    limit = given.dtype.type(squared(radius, points.dtype))
    for naming in (False, True) if names else (False,):
        if naming:  # the second pass knows how many there are of each
            np.cumsum(count.reshape(-1), out=offset[1:])
            found = np.empty(offset[-1], np.int64)
            if found.size == 0:
                break
        if grid:
            visit = _visit(queries, points, grid[0])
            _cpu_cells.within_cells(asked, visit, float(radius), limit, exclude_self, grid, offset, found, count)
        else:
            _cpu.within_dense(asked, given, limit, exclude_self, offset, found, count)
    return torch.from_numpy(count), torch.from_numpy(found)


def pairs_within(points: Tensor, radius: float, method: str) -> tuple[Tensor, Tensor]:
    """Flat (source, target) [E] of all ordered pairs of different points nearer than the radius, by (target,
    source).
    """
    chosen = choose(method, points, points.shape[1])
    check_finite("position", points)
    if not on_gpu(points):
        grid = cells.build_cpu(_array(points)) if chosen == "cells" else ()
        count, source = _within_cpu(points, points, radius, grid, exclude_self=True, names=True)
        return source, torch.repeat_interleave(count.reshape(-1))
    if chosen == "cells":
        return cells.pairs_cells(points, radius, squared(radius, points.dtype))
    return dense.pairs_within(points, squared(radius, points.dtype))
