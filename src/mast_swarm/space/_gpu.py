"""What teams ask of a GPU (Triton): nearest points, and points within a radius.

Of large teams cells say where to look (`cells.Cells`: a run of sorted points for each row of cells near a query); a
thread finds one query's runs and looks at their points one after the other, the best in registers. Plain torch would
write every candidate pair to memory, several times over, in a hundred small steps. Of small teams (`few`) a program
holds all pairs in registers, where plain torch takes a dozen kernels. Launches forbid fused multiply and add, so that
cells and d2 are the same numbers as everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl
from torch import Tensor

if TYPE_CHECKING:
    from mast_swarm.space.cells import Cells

REACH = 4  # cells that `nearest` looks away from a query's own, at most: a power of two
_QUERIES = 32  # a program, which is one warp: it waits for none but its own longest
_FEW, _PAIRS = 512, 1024  # points of a small team at most, and pairs that a program holds


@triton.jit
def apart(x, y, from_x, from_y):
    """Squared distances as plain torch rounds them, in launches that forbid fused multiply and add."""
    return (x - from_x) * (x - from_x) + (y - from_y) * (y - from_y)


@triton.jit
def _keys(
    points, low, high, wanted, share, origin, side, size, key, count, n, AXIS: tl.constexpr, POINTS: tl.constexpr
):  # fmt: skip
    """The key of each point's cell, and the grid of each environment: as `Cells.build` says it in torch.

    An environment with NaN or infinity in it has no cells to look in; its keys stay between those of the others."""
    p = tl.program_id(0).to(tl.int64) * POINTS + tl.arange(0, POINTS)
    p = tl.minimum(p, count - 1)  # past the end the last one again
    b = p // n
    west, south = tl.load(low + 2 * b).to(tl.float64), tl.load(low + 2 * b + 1).to(tl.float64)
    width = tl.load(high + 2 * b).to(tl.float64) - west
    height = tl.load(high + 2 * b + 1).to(tl.float64) - south
    step, longer = tl.load(wanted + b).to(tl.float64), tl.maximum(width, height)
    if share is not None:
        step = tl.maximum(step, longer * tl.load(share + b))
    step = tl.maximum(step, longer / (2**AXIS - 2))
    step = tl.maximum(step, 1e-290)
    finite = width + height < float("inf")
    columns = tl.where(finite, tl.floor(width / step).to(tl.int64) + 1, 0)
    rows = tl.where(finite, tl.floor(height / step).to(tl.int64) + 1, 0)
    x, y = tl.load(points + 2 * p).to(tl.float64) - west, tl.load(points + 2 * p + 1).to(tl.float64) - south
    column = tl.maximum(tl.minimum(tl.floor(x / step).to(tl.int64), columns - 1), 0)
    row = tl.maximum(tl.minimum(tl.floor(y / step).to(tl.int64), rows - 1), 0)
    tl.store(key + p, ((b << AXIS | row) << AXIS | column).to(key.dtype.element_ty))
    first = p == b * n
    tl.store(origin + 2 * b, west, mask=first)
    tl.store(origin + 2 * b + 1, south, mask=first)
    tl.store(side + b, step, mask=first)
    tl.store(size + 2 * b, columns, mask=first)
    tl.store(size + 2 * b + 1, rows, mask=first)


@triton.jit
def _cell(place, side, cells):
    """The cell so far from the grid's corner along an axis: the nearest where that is outside, the first of NaN."""
    at = tl.floor(place / side)
    return tl.minimum(tl.where(at > 0, at, 0.0), (cells - 1).to(tl.float64)).to(tl.int64)


@triton.jit
def _grid(origin, side, size, b, x, y):
    """The grid of environment b, and how far positions lie from its corner: side, columns, rows, along x and y."""
    east, north = x.to(tl.float64) - tl.load(origin + 2 * b), y.to(tl.float64) - tl.load(origin + 2 * b + 1)
    return tl.load(side + b), tl.load(size + 2 * b), tl.load(size + 2 * b + 1), east, north


@triton.jit
def _free(place, cell, side, cells, reach):
    """How far it is along an axis to what lies outside the cells up to `reach` away; inf where nothing does."""
    low = tl.where(cell <= reach, float("inf"), place - (cell - reach) * side)
    high = tl.where(cell + reach + 1 >= cells, float("inf"), (cell + reach + 1) * side - place)
    return tl.minimum(low, high)


@triton.jit
def _run(key, b, n, row, rows, west, east, columns, bits, AXIS: tl.constexpr):
    """Begin and end of the points in the cells of a row from column `west` to `east`: none where there is no such row.

    By bisection, both ends at once; n, points an environment, has so many bits.
    """
    kept = tl.minimum(tl.maximum(row, 0), rows - 1)
    base = (b << AXIS | kept) << AXIS
    west, east = base | tl.maximum(west, 0), base | tl.minimum(east, columns - 1)
    stop = b * n + n
    begin, end = b * n, b * n
    for bit in range(bits):
        half = tl.full([], 1, tl.int64) << (bits - 1 - bit)
        ahead, beside = begin + half, end + half
        below = (ahead <= stop) & (tl.load(key + ahead - 1, mask=ahead <= stop, other=0) < west)
        until = (beside <= stop) & (tl.load(key + beside - 1, mask=beside <= stop, other=0) <= east)
        begin, end = tl.where(below, ahead, begin), tl.where(until, beside, end)
    return begin, tl.where(row == kept, end, begin)


@triton.jit(do_not_specialize=["queries", "bits"])
def _block(
    place, environment, key, origin, side, size, begin, end, gap, queries, n, bits,
    AXIS: tl.constexpr, SLACK: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """As `Cells.block`."""
    q = tl.minimum(tl.program_id(0).to(tl.int64) * QUERIES + tl.arange(0, QUERIES), queries - 1)
    b = tl.load(environment + q)
    x, y = tl.load(place + 2 * q), tl.load(place + 2 * q + 1)
    step, columns, rows, east, north = _grid(origin, side, size, b, x, y)
    column, row = _cell(east, step, columns), _cell(north, step, rows)
    free = tl.minimum(_free(east, column, step, columns, 1), _free(north, row, step, rows, 1))
    tl.store(gap + q, free - SLACK * step)
    for run in range(3):
        first, last = _run(key, b, n, row + run - 1, rows, column - 1, column + 1, columns, bits, AXIS)
        tl.store(begin + 3 * q + run, first)
        tl.store(end + 3 * q + run, last)


@triton.jit(do_not_specialize=["queries", "bits"])
def _nearest(
    place, who, there, order, key, origin, side, size, near, index, unproven, queries, m, n, bits,
    AXIS: tl.constexpr, SLACK: tl.constexpr, EXCLUDE: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr,
    REACH: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """The K nearest points of each query, ties to the lowest index; slots beyond K hold nothing.

    Those whose K-th nearest the cells next to their own do not prove look 2 cells far, then 4, up to REACH.
    """
    q = tl.minimum(tl.program_id(0).to(tl.int64) * QUERIES + tl.arange(0, QUERIES), queries - 1)
    w = q if who is None else tl.load(who + q)
    b = w // m
    x, y = tl.load(place + 2 * w), tl.load(place + 2 * w + 1)
    step, columns, rows, east, north = _grid(origin, side, size, b, x, y)
    column, row = _cell(east, step, columns), _cell(north, step, rows)
    slot = tl.arange(0, SLOTS)[:, None]  # a thread has all slots of its query
    # A slot that must stay empty is better than any candidate, so that it is never the worst.
    empty = tl.where(slot < K, float("inf"), float("-inf")) + tl.zeros([SLOTS, QUERIES], x.dtype)
    nobody = tl.zeros([SLOTS, QUERIES], tl.int64) + 2**62
    best, names, open, reach = empty, nobody, q >= 0, 1
    while (reach <= REACH) & (tl.max(open.to(tl.int32), 0) > 0):
        best, names = tl.where(open[None, :], empty, best), tl.where(open[None, :], nobody, names)
        for run in range(-reach, reach + 1):
            first, last = _run(key, b, n, row + run, rows, column - reach, column + reach, columns, bits, AXIS)
            length = tl.where(open, last - first, 0)
            for at in range(0, tl.max(length, 0)):
                inside = at < length
                x2 = tl.load(there + 2 * (first + at), mask=inside, other=0.0)
                y2 = tl.load(there + 2 * (first + at) + 1, mask=inside, other=0.0)
                name = tl.load(order + first + at, mask=inside, other=0) - b * n
                d = apart(x, y, x2, y2)
                if EXCLUDE:
                    inside = inside & (name != w - b * m)
                worst = tl.max(best, 0)
                latest = tl.max(tl.where(best == worst[None, :], names, -1), 0)
                better = inside & ((d < worst) | ((d == worst) & (name < latest)))
                # The place of the worst: of several that are empty, the first.
                is_worst = (best == worst[None, :]) & (names == latest[None, :])
                where = tl.min(tl.where(is_worst, slot, SLOTS), 0)
                put = better[None, :] & (slot == where[None, :])
                best = tl.where(put, d[None, :], best)
                names = tl.where(put, name[None, :], names)
        # Proven: nearer than anything outside the cells looked at.
        free = tl.minimum(_free(east, column, step, columns, reach), _free(north, row, step, rows, reach))
        gap = tl.maximum(free - SLACK * step, 0.0)
        open = open & (tl.max(best, 0) * (1 + SLACK) >= gap * gap) & (free < float("inf"))
        reach *= 2
    tl.store(unproven + w, open.to(tl.uint8))
    for rank in tl.static_range(K):
        found = tl.where(slot < K, best, float("inf"))
        d = tl.min(found, 0)
        name = tl.min(tl.where((found == d[None, :]) & (slot < K), names, 2**62), 0)
        tl.store(near + w * K + rank, d)
        tl.store(index + w * K + rank, tl.where(d == float("inf"), -1, name))
        taken = (names == name[None, :]) & (d < float("inf"))[None, :]
        best = tl.where(taken, float("inf"), best)
        names = tl.where(taken, 2**62, names)


@triton.jit
def _offsets(queries, points, index, out, count, each, n, k, NUMBERS: tl.constexpr):
    """As `neighbours.offsets`: one number of one neighbour each."""
    at = tl.program_id(0).to(tl.int64) * NUMBERS + tl.arange(0, NUMBERS)
    there = at < count
    who, axis = at // 2, at % 2
    found = tl.load(index + who, mask=there, other=-1)
    known = there & (found >= 0)
    place = tl.load(points + 2 * (who // each * n + found) + axis, mask=known, other=0.0)
    own = tl.load(queries + 2 * (who // k) + axis, mask=known, other=0.0)
    tl.store(out + at, tl.where(known, place - own, 0.0), mask=there)


@triton.jit(do_not_specialize=["bits"])
def _count(
    place, who, there, key, origin, side, size, count, queries, m, n, bits, radius: tl.float64, squared: tl.float64,
    AXIS: tl.constexpr, SLACK: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """How many points are nearer to each query than the radius, in those cells alone that its circle may touch."""
    q = tl.minimum(tl.program_id(0).to(tl.int64) * QUERIES + tl.arange(0, QUERIES), queries - 1)
    q = q if who is None else tl.load(who + q)
    b = q // m
    x, y = tl.load(place + 2 * q), tl.load(place + 2 * q + 1)
    step, columns, rows, east, north = _grid(origin, side, size, b, x, y)
    far = radius * (1 + SLACK) + SLACK * step
    first_column, last_column = _cell(east - far, step, columns), _cell(east + far, step, columns)
    first_row, last_row = _cell(north - far, step, rows), _cell(north + far, step, rows)
    limit = tl.full([], squared, x.dtype)
    found = tl.zeros([QUERIES], tl.int64)
    for run in range(0, tl.max(last_row - first_row, 0) + 1):
        row = tl.minimum(first_row + run, last_row)
        first, last = _run(key, b, n, row, rows, first_column, last_column, columns, bits, AXIS)
        length = tl.where(first_row + run <= last_row, last - first, 0)
        for at in range(0, tl.max(length, 0)):
            inside = at < length
            x2 = tl.load(there + 2 * (first + at), mask=inside, other=0.0)
            y2 = tl.load(there + 2 * (first + at) + 1, mask=inside, other=0.0)
            found += (inside & (apart(x, y, x2, y2) < limit)).to(tl.int64)
    tl.store(count + q, found)


@triton.jit
def _nearest_of_few(
    queries, points, distance, index, m, n,
    EXCLUDE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """The K nearest points of some queries of one environment, ties to the lowest index."""
    blocks = tl.cdiv(m, ROWS)
    environment = (tl.program_id(0) // blocks).to(tl.int64)  # one axis, for the others end at 65,535
    row, other = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS), tl.arange(0, POINTS)
    queries += 2 * environment * m
    points += 2 * environment * n
    x, y = tl.load(queries + 2 * row, mask=row < m, other=0.0), tl.load(queries + 2 * row + 1, mask=row < m, other=0.0)
    x2 = tl.load(points + 2 * other, mask=other < n, other=0.0)
    y2 = tl.load(points + 2 * other + 1, mask=other < n, other=0.0)
    d = apart(x[:, None], y[:, None], x2[None, :], y2[None, :])
    out = (other >= n)[None, :]
    if EXCLUDE:
        out = out | (other[None, :] == row[:, None])
    d = tl.where(out, float("inf"), d)
    # A float that is not negative sorts like its bits; with the index in the low half, ties go to the lowest.
    key = (d.to(tl.int32, bitcast=True).to(tl.int64) << 32) | other[None, :]
    at = (environment * m + row) * K
    for rank in tl.static_range(K):
        best = tl.min(key, 1)
        near = (best >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        tl.store(distance + at + rank, tl.sqrt_rn(near), mask=row < m)
        tl.store(index + at + rank, tl.where(near == float("inf"), -1, best & 0xFFFFFFFF), mask=row < m)
        key = tl.where(key == best[:, None], 2**63 - 1, key)


def takes_few(points: Tensor, k: int) -> bool:
    """Whether `nearest_of_few` takes points [B, N, 2]."""
    return points.dtype == torch.float32 and max(points.shape[1], k) <= _FEW


def nearest_of_few(queries: Tensor, points: Tensor, k: int, exclude_self: bool) -> tuple[Tensor, Tensor]:
    """As neighbours.nearest, for queries [B, M, 2] among few points [B, N, 2]."""
    (batch, m, _), n = queries.shape, points.shape[1]
    distance = torch.empty((batch, m, k), dtype=torch.float32, device=points.device)
    index = torch.empty((batch, m, k), dtype=torch.int64, device=points.device)
    size = max(16, triton.next_power_of_2(max(n, k)))
    if batch * m:
        _nearest_of_few[(triton.cdiv(m, _PAIRS // size) * batch,)](
            queries.contiguous(), points.contiguous(), distance, index, m, n,
            EXCLUDE=exclude_self, K=k, ROWS=_PAIRS // size, POINTS=size, enable_fp_fusion=False,
        )  # fmt: skip
    return distance, index


def keys(
    points: Tensor, low: Tensor, high: Tensor, wanted: Tensor, share: Tensor | None, axis: int, kind: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """origin, side, size and the keys, not sorted yet, of `Cells.build`, for points whose box is low, high [B, 2]."""
    batch, n, _ = points.shape
    origin = torch.empty((batch, 2), dtype=torch.float64, device=points.device)
    side = torch.empty(batch, dtype=torch.float64, device=points.device)
    size = torch.empty((batch, 2), dtype=torch.int64, device=points.device)
    key = torch.empty(batch * n, dtype=kind, device=points.device)
    _keys[(triton.cdiv(batch * n, 128),)](
        points.contiguous(), low.contiguous(), high.contiguous(), wanted, share, origin, side, size, key, batch * n, n,
        AXIS=axis, POINTS=128, enable_fp_fusion=False,
    )  # fmt: skip
    return origin, side, size, key


def block(cells: Cells, queries: Tensor, environment: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """As `Cells.block`."""
    begin = torch.empty((len(queries), 3), dtype=torch.int64, device=queries.device)
    end = torch.empty_like(begin)
    gap = torch.empty(len(queries), dtype=torch.float64, device=queries.device)
    n = len(cells.key) // max(1, len(cells.side))
    _block[(triton.cdiv(len(queries), _QUERIES),)](
        queries.contiguous(), environment.contiguous(), cells.key, cells.origin, cells.side, cells.size,
        begin, end, gap, len(queries), n, n.bit_length(),
        AXIS=cells.axis, SLACK=cells.SLACK, QUERIES=_QUERIES, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    return begin, end, gap


def nearest(
    cells: Cells, queries: Tensor, who: Tensor | None, exclude_self: bool,
    near: Tensor, index: Tensor, unproven: Tensor, reach: int = REACH,
) -> None:  # fmt: skip
    """Writes d2 and index [B * M, k] of the k nearest points that the cells up to `reach` away from each query hold,
    ties to the lowest index, inf and -1 where there are fewer, and whether what is farther off could be nearer.

    queries: [B, M, 2], who: the flat queries to do, all if None, unproven: [B * M] uint8.
    """
    (_, m, _), n, k = queries.shape, cells.points.shape[1], near.shape[1]
    count = len(near) if who is None else len(who)
    _nearest[(triton.cdiv(count, _QUERIES),)](
        queries.contiguous(), who, cells.there, cells.order,
        cells.key, cells.origin, cells.side, cells.size, near, index, unproven, count, m, n, n.bit_length(),
        AXIS=cells.axis, SLACK=cells.SLACK, EXCLUDE=exclude_self, K=k, SLOTS=triton.next_power_of_2(k),
        REACH=reach, QUERIES=_QUERIES, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip


def offsets(queries: Tensor, points: Tensor, index: Tensor) -> Tensor:
    """As neighbours.offsets."""
    (_, m, k), n = index.shape, points.shape[1]
    out = torch.empty((*index.shape, 2), dtype=queries.dtype, device=queries.device)
    if out.numel():
        _offsets[(triton.cdiv(out.numel(), 512),)](
            queries.contiguous(), points.contiguous(), index.contiguous(), out, out.numel(), m * k, n, k, NUMBERS=512
        )
    return out


def count_within(cells: Cells, queries: Tensor, who: Tensor | None, radius: float, squared: float) -> Tensor:
    """How many of the cells' points are nearer to each query [B, M, 2] than the radius: [B, M]. squared: what d2 is
    compared with. who: all flat queries in the order in which they are done; None: as they come."""
    (batch, m, _), n = queries.shape, cells.points.shape[1]
    count = torch.empty((batch, m), dtype=torch.int64, device=queries.device)
    _count[(triton.cdiv(batch * m, _QUERIES),)](
        queries.contiguous(), who, cells.there,
        cells.key, cells.origin, cells.side, cells.size, count, batch * m, m, n, n.bit_length(), float(radius), squared,
        AXIS=cells.axis, SLACK=cells.SLACK, QUERIES=_QUERIES, num_warps=1, enable_fp_fusion=False,
    )  # fmt: skip
    return count
