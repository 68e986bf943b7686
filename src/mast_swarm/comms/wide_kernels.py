"""Views of hundreds of entries on a GPU (Triton): what `comms.wide` asks, one program per view."""

# ruff: noqa: RUF005 (Triton adds tuples, and knows no star)
# mypy: disable-error-code="assignment, attr-defined, var-annotated"
from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from mast_swarm.model.encoding import Rotation
from mast_swarm.model.list_kernels import looked, turned_aside
from mast_swarm.space._gpu import apart

MOST_COLUMNS = 4096  # of a view that one program holds
_FRONT = 8  # entries of the last level at a time
# Queries, keys and heads of a program at a time, and its warps, in half precision, where views have more than so many
# rows each: large blocks read keys less often, and small ones see fewer levels and are less padded. Warps that share
# fewer queries than a head is wide would divide keys among themselves, which takes sums across warps.
_SHAPES = {96: (64, 32, 2, 4), 0: (16, 16, 2, 1)}
_BLOCK = 128  # rows of a view that are listed at a time
_EXACT = {"enable_fp_fusion": False}  # distances as plain torch rounds them


@triton.jit(do_not_specialize=["level", "views"])
def _further(
    entry, own, positions, sorted_entry, reached, columns, views, level, squared,
    COLUMNS: tl.constexpr, FRONT: tl.constexpr,
):  # fmt: skip
    """One view: the entries in whose window one of the level before is come after those of lower level, and then the
    others, all in the order in which they were. Level 0 is the robot's own entry."""
    view = tl.program_id(0).to(tl.int64)
    entry, sorted_entry, reached = entry + view * columns, sorted_entry + view * columns, reached + view
    column = tl.arange(0, COLUMNS)
    e = tl.load(entry + column, mask=column < columns, other=-1)
    held = e >= 0
    known = tl.zeros([], tl.int32)
    if level == 0:
        seen = held & (e == tl.load(own + view))
    else:
        x = tl.load(positions + 2 * e, mask=held, other=0.0)
        y = tl.load(positions + 2 * e + 1, mask=held, other=0.0)
        known = tl.load(reached + (level - 1) * views)
        begin = tl.load(reached + (level - 2) * views, mask=level > 1, other=0)
        found = tl.zeros([COLUMNS], tl.int32)
        for first in range(begin, known, FRONT):
            i = first + tl.arange(0, FRONT)
            front = tl.load(entry + i, mask=i < known, other=0)
            from_x, from_y = tl.load(positions + 2 * front), tl.load(positions + 2 * front + 1)
            near = apart(x[:, None], y[:, None], from_x[None, :], from_y[None, :]) < squared
            found += tl.sum((near & (i < known)[None, :]).to(tl.int32), 1)
        seen = held & (column >= known) & (found > 0)
    rest = (column >= known) & (seen == 0)
    count = tl.sum(seen.to(tl.int32), 0)
    place = tl.where(seen, known + tl.cumsum(seen.to(tl.int32), 0) - 1, column)
    place = tl.where(rest, known + count + tl.cumsum(rest.to(tl.int32), 0) - 1, place)
    tl.store(sorted_entry + place, e, mask=place < columns)
    tl.store(reached + level * views, known + count)


@triton.jit
def _rows(entry, count, above, below, itself, of, columns, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    """One view: what its rows of a layer are in the layer below, and the entries that they stand for."""
    view = tl.program_id(0).to(tl.int64)
    entry += view * columns
    above, below, n = tl.load(above + view), tl.load(below + view), tl.load(count + view)
    for first in range(0, n, BLOCK):
        i = first + tl.arange(0, BLOCK)
        there = i < n
        e = tl.load(entry + i, mask=there, other=0)
        tl.store(of + above + i, e, mask=there)
        if not FIRST:
            tl.store(itself + above + i, below + i, mask=there)


@triton.jit(do_not_specialize=["level", "stride", "parts"])
def _attend(
    q, kv, cos, sin, entry, positions, reached, above, below, answer, q_stride, kv_stride, columns, levels, stride,
    level, parts, squared, scale,
    FIRST: tl.constexpr, HEADS: tl.constexpr, EACH: tl.constexpr, D: tl.constexpr, LEVELS: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """EACH heads of some rows of one view, which share the work of finding who is near whom: of `parts` programs each
    takes every so many blocks of its rows. Rows of level <= `level` attend to those of one level more. above, below:
    where the view's rows begin in this layer and in the one below. The programs of a view follow each other: they read
    the same keys at about the same time.

    Beyond the last row that one asks again, and beyond the last key that one is read again, and nobody is near it.
    """
    WIDTH: tl.constexpr = HEADS * D
    GROUPS: tl.constexpr = HEADS // EACH
    group, part = tl.program_id(0) % GROUPS, tl.program_id(0) // GROUPS % parts
    view = (tl.program_id(0) // GROUPS // parts).to(tl.int64)
    entry, reached = entry + view * columns, reached + view
    above, below = tl.load(above + view), tl.load(below + view)
    each = tl.arange(0, LEVELS)
    ends = tl.load(reached + each * stride, mask=each < levels, other=2147483647)
    asking, known = tl.load(reached + level * stride), tl.load(reached + (level + 1) * stride)
    across = group * (EACH * D) + tl.arange(0, D)[None, :]
    for first in range(part * QUERIES, asking, parts * QUERIES):
        row = first + tl.arange(0, QUERIES)
        i = tl.minimum(row, asking - 1)
        e = tl.load(entry + i)
        asks = q + (e if FIRST else below + i)[:, None] * q_stride + across
        given = ()
        for head in tl.static_range(EACH):
            given = given + (tl.load(asks + head * D),)
        if cos is not None:
            phase = e[:, None] * (D // 2) + tl.arange(0, D // 2)[None, :]
            c, s = tl.load(cos + phase), tl.load(sin + phase)
        x, y = tl.load(positions + 2 * e), tl.load(positions + 2 * e + 1)
        tl.debug_barrier()  # or the compiler reads queries when it needs them, and waits twice
        # A row sees none that is more than one level away from its own.
        lowest = tl.sum((ends <= first).to(tl.int32), 0)
        furthest = tl.sum((ends <= tl.minimum(first + QUERIES, asking) - 1).to(tl.int32), 0)
        begin = tl.load(reached + (lowest - 2) * stride, mask=lowest > 1, other=0)
        end = tl.minimum(tl.load(reached + tl.minimum(furthest + 1, levels - 1) * stride), known)
        queries, highest, total, found = (), (), (), ()
        for head in tl.static_range(EACH):
            query = given[head]
            if cos is not None:
                query = turned_aside(query, c, s, columns)
            queries = queries + (query,)
            highest = highest + (tl.full([QUERIES], -1e30, tl.float32),)
            total = total + (tl.zeros([QUERIES], tl.float32),)
            found = found + (tl.zeros([QUERIES, D], tl.float32),)
        for start in range(begin, end, KEYS):
            key = start + tl.arange(0, KEYS)
            limit = tl.where(key < end, squared, 0.0)
            j = tl.minimum(key, end - 1)
            other = tl.load(entry + j)
            from_x, from_y = tl.load(positions + 2 * other), tl.load(positions + 2 * other + 1)
            near = apart(x[:, None], y[:, None], from_x[None, :], from_y[None, :]) < limit[None, :]
            bias = tl.where(near | (i[:, None] == key[None, :]), 0.0, float("-inf"))
            source = kv + (other if FIRST else below + j)[:, None] * kv_stride + across
            tops, sums, sights = (), (), ()
            for head in tl.static_range(EACH):
                keys = tl.load(source + head * D)
                values = tl.load(source + WIDTH + head * D)
                top, weight, seen = looked(
                    queries[head], keys, values, scale, bias, highest[head], total[head], found[head]
                )
                tops, sums, sights = tops + (top,), sums + (weight,), sights + (seen,)
            highest, total, found = tops, sums, sights
        into = answer + (above + i)[:, None] * WIDTH + across
        for head in tl.static_range(EACH):
            sight = found[head] * (1.0 / total[head][:, None])
            tl.store(into + head * D, sight.to(answer.dtype.element_ty), mask=(row < asking)[:, None])


def fits(width: int, heads: int) -> bool:
    """Whether the kernels take a policy of this width."""
    powers = heads & (heads - 1) == 0 and (width // heads) & (width // heads - 1) == 0
    return powers and width >= 16 * heads


def levels(entry: Tensor, own: Tensor, positions: Tensor, radius: float, layers: int) -> tuple[Tensor, Tensor]:
    """Entries of views [V, C] in the order of their level, and how many of level 0..L each view has or of lower ones,
    [L + 1, V] int32; at level L all the others count. own: the robots' own entries [V]."""
    reached = torch.empty((layers + 1, len(entry)), dtype=torch.int32, device=entry.device)
    reached[layers] = (entry >= 0).sum(1)
    given, width = entry.contiguous(), max(32, triton.next_power_of_2(entry.shape[1]))
    for level in range(layers):
        into = torch.empty_like(given)
        _further[(len(entry),)](
            given, own.contiguous(), positions, into, reached, entry.shape[1], len(entry), level, radius * radius,
            COLUMNS=width, FRONT=_FRONT, num_warps=min(8, max(1, width // 128)), **_EXACT,
        )  # fmt: skip
        given = into
    return given, reached


def rows(entry: Tensor, reached: Tensor, begin: Tensor, layer: int, count: int) -> tuple[Tensor, Tensor]:
    """Of the `count` rows of a layer the row of the layer below that each is, in the first layer its entry; and the
    entry that it stands for: [count] int64 each, 0 for those that no view has. The rest as in `attend`."""
    level = len(reached) - 1 - layer
    of = torch.zeros(count, dtype=torch.int64, device=entry.device)
    itself = of if layer == 1 else torch.zeros_like(of)
    _rows[(len(entry),)](
        entry, reached[level], begin[level], begin[level + 1], itself, of, entry.shape[1],
        FIRST=layer == 1, BLOCK=_BLOCK, num_warps=1,
    )  # fmt: skip
    return itself, of


def attend(
    q: Tensor,
    kv: Tensor,
    rotation: Rotation | None,
    entry: Tensor,
    reached: Tensor,
    begin: Tensor,
    positions: Tensor,
    layer: int,
    count: int,
    radius: float,
    heads: int,
) -> Tensor:
    """Every row's query over the keys and values of those that it sees: [count, d]; of rows that no view has anything.

    entry [V, C] and reached [L + 1, V] as `levels` gives them. begin [L + 1, V] int64: where each view's rows of a
    level and lower ones begin. q and kv are those of the rows below, in the first layer of entries. rotation: the
    phases of entries [U, d_a/2] that queries are turned by here, and keys have been (None: by nothing).
    """
    level, d, levels = len(reached) - 1 - layer, q.shape[1], len(reached)
    answer, each = torch.empty((count, d), dtype=q.dtype, device=q.device), count / len(entry)
    cos, sin = (None, None) if rotation is None else (table.contiguous() for table in rotation)
    shape = _shape(each, heads, d // heads, q.dtype)
    parts = math.ceil(each / shape["QUERIES"])
    _attend[(len(entry) * (heads // shape["EACH"]) * parts,)](
        q, kv, cos, sin, entry, positions, reached, begin[level], begin[level + 1], answer, q.stride(0), kv.stride(0),
        entry.shape[1], levels, reached.stride(0), level, parts, radius * radius, (d // heads) ** -0.5 / math.log(2),
        FIRST=layer == 1, HEADS=heads, D=d // heads, LEVELS=triton.next_power_of_2(levels), **shape, **_EXACT,
    )  # fmt: skip
    return answer


def _shape(each: float, heads: int, width: int, dtype: torch.dtype) -> dict[str, int]:
    """Queries, keys and heads of a program at a time, and its warps, where views have so many rows each and heads are
    so wide."""
    if dtype == torch.float32:
        queries = min(64, max(16, triton.next_power_of_2(math.ceil(each))))
        return {"QUERIES": queries, "KEYS": 32, "EACH": 1, "num_warps": 2 if queries == 16 else 4}
    queries, keys, most, warps = next(shape for rows, shape in _SHAPES.items() if each > rows)
    most = min(heads, most if width <= 64 else 1)  # wider ones find no room in registers
    return {"QUERIES": queries, "KEYS": keys, "EACH": most, "num_warps": warps, "num_stages": 2}
