"""Cell lists: points sorted by square cells of one size an environment, for large teams.

`Cells` is the torch version, for CUDA (and the CPU): a sparse grid, the points sorted by the key of their
cell, so that cells next to each other in a row are one run of points, found by bisection; empty cells cost
nothing. On a GPU kernels find the same in a few launches: see `_gpu`. The CPU has its own version, in numba,
which nests grids where points crowd: see `_cpu_cells`. `build_cpu` gives its arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from mast_swarm import steady
from mast_swarm.kernels import USABLE, on_gpu
from mast_swarm.space.dense import squared_distance

gpu: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.space import _gpu as gpu

PAIRS = 2**25  # candidate pairs looked at together, which bounds memory
CROWD = 32  # points a cell above which the first grid is made finer


def _by_kernel(points: Tensor) -> bool:
    """Whether GPU kernels do the work: they find the same as the plain torch below, in fewer launches."""
    return gpu is not None and on_gpu(points)


@dataclass(frozen=True)
class Cells:
    """Points [B, N, 2] sorted by cell. Coordinates of cells are float64, so that cell borders are sharp."""

    # Bits of a cell's column and of its row, by the type of keys.
    AXIS: ClassVar[dict[torch.dtype, int]] = {torch.int64: 20, torch.int32: 15}
    SLACK: ClassVar[float] = 1e-6  # share of a side, beyond the rounding of cell borders and of d2 in float32

    points: Tensor  # [B, N, 2] metres
    origin: Tensor  # [B, 2] lower corner of the points' box, metres
    side: Tensor  # [B] side of a cell, metres
    size: Tensor  # [B, 2] columns and rows; 0 where a position is NaN or infinite, so that nobody is found
    key: Tensor  # [B * N] sorted (environment, row, column) of each point's cell
    order: Tensor  # [B * N] flat b * N + j of the point at that place; within a cell by index

    @classmethod
    def build(
        cls,
        points: Tensor,
        side: Tensor,
        box: tuple[Tensor, Tensor] | None = None,
        *,
        share: Tensor | None = None,
        narrow: bool = False,
    ) -> Cells:
        """Sorts points [B, N, 2], N > 0, into cells of side [B] or larger: where 2**20 cells an axis do not suffice,
        and where that is less than a share [B] of the longer side of their box. box: their lowest and highest
        coordinates [B, 2] each, where they are known. narrow: of one or two environments, 2**15 cells an axis have to
        do: their keys have 32 bits, which a GPU sorts in half the time.
        """
        kind = torch.int32 if narrow and len(points) <= 2 else torch.int64
        axis = cls.AXIS[kind]
        low, high = points.aminmax(dim=1) if box is None else box
        if _by_kernel(points):
            origin, side, size, key = gpu.keys(points, low, high, side, share, axis, kind)
        else:
            origin = low.double()
            extent = high.double() - origin
            if share is not None:
                side = torch.fmax(side, extent.amax(-1) * share)
            side = torch.maximum(side.double(), extent.amax(-1) / (2**axis - 2)).clamp_min(1e-290)
            size = torch.where(extent.sum(-1, True) < math.inf, (extent / side[:, None]).floor().long() + 1, 0)
            cell = ((points.double() - origin[:, None]) / side[:, None, None]).floor().long()
            cell = torch.minimum(cell, size[:, None] - 1).clamp_min(0)
            environment = torch.arange(len(points), device=points.device)[:, None]
            key = ((environment << axis | cell[..., 1]) << axis | cell[..., 0]).reshape(-1).to(kind)
        key, order = key.sort(stable=True)
        return cls(points, origin, side, size, key, order)

    @property
    def axis(self) -> int:
        """Bits of a cell's column and of its row."""
        return self.AXIS[self.key.dtype]

    @cached_property
    def there(self) -> Tensor:
        """[B * N, 2] the points in that order."""
        return self.points.reshape(-1, 2)[self.order]

    def block(self, queries: Tensor, environment: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The 3 x 3 cells around each of Q queries [Q, 2].

        Returns begin and end [Q, 3] of the runs of `order` that hold them, one a row of cells, and the
        distance [Q] in metres within which no point can lie outside them.
        """
        if _by_kernel(queries):
            return gpu.block(self, queries, environment)
        side = self.side[environment, None]
        size = self.size[environment]
        place = queries.double() - self.origin[environment]
        cell = torch.minimum((place / side).floor().clamp_min(0), size - 1.0).long()
        low = place - (cell - 1) * side
        high = (cell + 2) * side - place
        # Beyond the first and the last cell there is nothing.
        gap = torch.minimum(low.masked_fill(cell <= 1, math.inf), high.masked_fill(cell + 2 >= size, math.inf)).amin(-1)
        gap = gap - self.SLACK * side[:, 0]
        row = cell[:, 1:] + torch.arange(-1, 2, device=queries.device)  # [Q, 3]
        kept = torch.minimum(row.clamp_min(0), size[:, 1:] - 1)
        base = (environment[:, None] << self.axis | kept) << self.axis
        west = (cell[:, :1] - 1).clamp_min(0)
        east = torch.minimum(cell[:, :1] + 1, size[:, :1] - 1)
        begin = torch.searchsorted(self.key, (base | west).to(self.key.dtype))
        end = torch.searchsorted(self.key, (base | east).to(self.key.dtype), right=True)
        return begin, torch.where(row == kept, end, begin), gap

    def candidates(self, begin: Tensor, end: Tensor) -> Iterator[tuple[slice, Tensor, Tensor]]:
        """The points in the runs begin .. end [Q, 3], for blocks of queries small enough for memory.

        Yields the block and, for every candidate pair, the query (counted from the block's first) and the
        flat point.
        """
        length = end - begin
        total = length.sum(-1).cumsum(0)
        pairs = int(total[-1]) if total.numel() else 0
        marks = torch.arange(1, pairs // PAIRS + 1, device=total.device) * PAIRS
        cuts = sorted({0, *torch.searchsorted(total, marks, right=True).tolist(), total.numel()})
        for first, last in pairwise(cuts):
            run = length[first:last].reshape(-1)
            which = torch.repeat_interleave(run)  # [P] the run of each pair
            before = run.cumsum(0) - run
            at = torch.arange(which.numel(), device=which.device) - before[which]
            yield slice(first, last), which // 3, self.order[begin[first:last].reshape(-1)[which] + at]


@dataclass(frozen=True)
class _Still:
    """Points that stay as they are for a while, and the cells of those that kernels have searched."""

    points: tuple[Tensor, ...]
    cells: list[Cells]


_still: ContextVar[_Still | None] = ContextVar("still", default=None)


@contextmanager
def still(*points: Tensor) -> Iterator[None]:
    """In here nobody writes into these tensors. So points among them that were sorted to find the nearest need not be
    sorted again to count those within a radius: see `known`."""
    token = _still.set(_Still(points, []))
    try:
        yield
    finally:
        _still.reset(token)


def _keep(cells: Cells) -> None:
    """For `known`, if the points are `still`."""
    here = _still.get()
    if here is not None and any(_same(points, cells.points) for points in here.points):
        here.cells.append(cells)


def known(points: Tensor) -> Cells | None:
    """The cells of points that are `still`, where the nearest of them were searched by kernels."""
    here = _still.get()
    found = [] if here is None else [cells for cells in here.cells if _same(points, cells.points)]
    return found[0] if found else None


def _same(points: Tensor, others: Tensor) -> bool:
    """Whether both are the same numbers in the same memory."""
    return points.dtype == others.dtype and points.is_set_to(others)


def _extent(box: tuple[Tensor, Tensor]) -> Tensor:
    """Width and height [B, 2] of each environment's bounding box, metres."""
    return (box[1] - box[0]).double()


def _fine(points: Tensor, box: tuple[Tensor, Tensor]) -> Cells:
    """The first grid: cells of about two points where they are spread evenly over their box, smaller where some cell
    of the environment is crowded. Waits for the device for each size tried; in steady work the sizes are those that
    were found at first, for they decide how quick a search is and not what it finds. Where robots have spread over a
    larger box since, as from a depot, cells grow with it."""
    if steady.may_ask():
        cells = _fitting(points, box)
        if steady.running():
            share = cells.side / _extent(box).amax(-1).clamp_min(1e-290)
            share = share.clamp_max(max(1, points.shape[1] // 2) ** -0.5)  # of a square, and where all are on one spot
            steady.answer(lambda: (cells.side, share, cells.key.dtype == torch.int32))
        return cells
    side, share, narrow = steady.answer(lambda: (points.new_zeros(0), points.new_zeros(0), False))
    return Cells.build(points, side, box, share=share, narrow=narrow)


def _fitting(points: Tensor, box: tuple[Tensor, Tensor]) -> Cells:
    """The first sizes tried have narrow keys. Crowded teams need all the cells there may be."""
    batch, n, _ = points.shape
    extent = _extent(box)
    longer, wanted = extent.amax(-1), max(1, n // 2)
    side = torch.maximum((extent.prod(-1) / wanted).sqrt(), longer / wanted)
    narrow = True
    while True:
        cells = Cells.build(points, side, box, narrow=narrow)
        key = cells.key.view(batch, n)
        crowded = (key[:, CROWD:] == key[:, :-CROWD]).any(1)
        if not bool(crowded.any()):
            return cells
        finer = crowded & (cells.side / 4 > longer / 2 ** Cells.AXIS[torch.int64]) & (longer > 0)
        if not bool(finer.any()):
            return cells
        narrow = False
        side = torch.where(finer, cells.side / 4, cells.side)


def _nearest_by_kernel(
    queries: Tensor, points: Tensor, k: int, exclude_self: bool, order: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As nearest_cells: each query looks a few cells far, the rest go again with larger cells. In steady work each
    looks as far as it must: the few that are far from all others take longer, and nobody asks if there are any."""
    batch, m, _ = queries.shape
    near = queries.new_empty((batch * m, k))
    index = torch.empty((batch * m, k), dtype=torch.int64, device=queries.device)
    unproven = torch.empty(batch * m, dtype=torch.uint8, device=queries.device)
    box = points.aminmax(dim=1)
    cells = _fine(points, box)
    _keep(cells)
    order = waiting = cells.order if exclude_self else order  # neighbours look at the same together
    while True:
        reach = gpu.REACH if steady.may_ask() else 2**cells.axis
        gpu.nearest(cells, queries, waiting, exclude_self, near, index, unproven, reach)
        waiting = unproven.nonzero().flatten() if steady.may_ask() else None
        if waiting is None or not waiting.numel():
            return near.sqrt_().view(batch, m, k), index.view(batch, m, k), order
        cells = Cells.build(points, cells.side * (2 * gpu.REACH), box)


def nearest_cells(
    queries: Tensor, points: Tensor, k: int, exclude_self: bool, order: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """As neighbours.nearest, N > 0; and the flat order of the queries by cell, where there is one. Each query looks at
    3 x 3 cells; those whose k-th nearest is not proven by that go again with cells twice as wide, until a block of
    cells covers all points. Waits for the device once a round. order: such a one [B * M]; it changes no result."""
    if _by_kernel(points):
        return _nearest_by_kernel(queries, points, k, exclude_self, order)
    batch, m, _ = queries.shape
    n = points.shape[1]
    place = queries.reshape(-1, 2)
    spots = points.reshape(-1, 2)
    distance = queries.new_full((batch * m, k), math.inf)
    index = torch.full((batch * m, k), -1, dtype=torch.int64, device=queries.device)
    waiting = torch.arange(batch * m, device=queries.device)
    box = points.aminmax(dim=1)
    cells = _fine(points, box)
    own = m if exclude_self else None
    while waiting.numel():
        begin, end, gap = cells.block(place[waiting], waiting // m)
        near = distance[waiting]
        for block, query, point in cells.candidates(begin, end):
            near[block], index[waiting[block]] = _smallest(place, spots, waiting[block], query, point, k, n, own)
        distance[waiting] = near.sqrt()
        # Proven: nearer than anything outside the block of cells.
        proven = (near[:, -1] * (1 + Cells.SLACK) < gap.clamp_min(0) ** 2) | (gap == math.inf)
        waiting = waiting[~proven]
        if waiting.numel():
            cells = Cells.build(points, cells.side * 2, box)
    return distance.view(batch, m, k), index.view(batch, m, k), None


def _smallest(
    place: Tensor, spots: Tensor, who: Tensor, query: Tensor, point: Tensor, k: int, n: int, m: int | None
) -> tuple[Tensor, Tensor]:
    """d2 and index [Q, k] of the k nearest of each query's candidates, ties to the lowest index. m: drop the
    query's own.
    """
    d2 = squared_distance(place[who[query]], spots[point])
    name = point % n
    if m is not None:
        d2 = d2.masked_fill(name == who[query] % m, math.inf)
    near = d2.new_full((who.numel(), k), math.inf)
    index = torch.full((who.numel(), k), -1, dtype=torch.int64, device=d2.device)
    for rank in range(k):
        best = d2.new_full((who.numel(),), math.inf).scatter_reduce_(0, query, d2, "amin")
        tied = d2 == best[query]
        first = torch.full_like(best, n, dtype=torch.int64)
        first.scatter_reduce_(0, query, torch.where(tied, name, n), "amin")
        near[:, rank] = best
        index[:, rank] = first.masked_fill(best == math.inf, -1)
        d2 = d2.masked_fill(name == first[query], math.inf)
    return near, index


def _near_pairs(
    queries: Tensor, points: Tensor, cells: Cells, squared_radius: float
) -> Iterator[tuple[Tensor, Tensor]]:
    """Flat (query, point) pairs nearer than the radius, in blocks."""
    place = queries.reshape(-1, 2)
    spots = points.reshape(-1, 2)
    who = torch.arange(len(place), device=queries.device)
    begin, end, _ = cells.block(place, who // queries.shape[1])
    for block, query, point in cells.candidates(begin, end):
        flat = who[block][query]
        near = squared_distance(place[flat], spots[point]) < squared_radius
        yield flat[near], point[near]


def reaching(points: Tensor, radius: float) -> Cells:
    """The points in cells as wide as the radius or wider: known ones that are. To ask if they are waits for the device;
    in steady work they never become narrower than they were at first."""
    cells = known(points)
    if cells is not None and steady.answer(lambda: bool((cells.side >= radius).all())):
        return cells
    return wide(points, radius)


def wide(points: Tensor, radius: float) -> Cells:
    """The points in cells as wide as the radius: all that are near a query lie in the 3 x 3 around it."""
    box = points.aminmax(dim=1)
    # Where the radius is larger than the box, inf too, one cell holds all.
    side = (_extent(box).amax(-1) + 1.0).clamp_max(radius * (1 + Cells.SLACK))
    return Cells.build(points, side, box)


def count_cells(queries: Tensor, radius: float, squared_radius: float, cells: Cells) -> Tensor:
    """As neighbours.counts_within of one question, N > 0. cells: the points', as wide as the radius or wider."""
    (batch, m, _), points = queries.shape, cells.points
    if _by_kernel(points):
        visited = cells if queries is points else known(queries)  # neighbours look at the same together
        return gpu.count_within(cells, queries, None if visited is None else visited.order, radius, squared_radius)
    count = torch.zeros(batch * m, dtype=torch.int64, device=queries.device)
    for query, _ in _near_pairs(queries, points, cells, squared_radius):
        count.scatter_add_(0, query, torch.ones_like(query))
    return count.view(batch, m)


def pairs_cells(points: Tensor, radius: float, squared_radius: float) -> tuple[Tensor, Tensor]:
    """As dense.pairs_within, N > 0."""
    n = points.shape[1]
    found = [torch.stack(pair) for pair in _near_pairs(points, points, wide(points, radius), squared_radius)]
    target, source = torch.cat(found, 1) if found else torch.zeros((2, 0), dtype=torch.int64, device=points.device)
    different = target != source
    target, source = target[different], source[different]
    by_both = (target * n + source % n).argsort()
    return source[by_both], target[by_both]


def build_cpu(points: np.ndarray) -> tuple[np.ndarray, ...]:
    """The nested cell lists of points [B, N, 2], N > 0; `_cpu_cells` says what each array holds."""
    from mast_swarm.space import _cpu_cells

    batch, n, _ = points.shape
    room = 4 * n + 16  # one grid takes at most 1.5 N + 2 entries; what finds no more room stays undivided
    grids = n // 8 + 2
    cells = (
        np.empty((batch, n), np.int32),
        np.empty((batch, n), points.dtype),
        np.empty((batch, n), points.dtype),
        np.empty((batch, room), np.int32),
        np.empty((batch, room), np.int32),
        np.empty((batch, grids, 3), np.float64),
        np.empty((batch, grids, 5), np.int64),
    )
    _cpu_cells.build(points, cells)
    return cells
