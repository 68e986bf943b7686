"""Attention over lists on a GPU (Triton), both ways, and what goes with it: lists, rotations, sums with norms.

A warp works on a row and reads keys and values where they lie, mostly from the cache; gathering them first, as plain
torch must, moves each as often as it is listed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mast_swarm import steady
from mast_swarm.space._gpu import apart

_BLOCK, _TABLE_BLOCK = 4, 8  # keys at a time, without a table and with one: each the faster there
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _attend(
    q, asks, kv, rows, start, count, table, view, answer, logsum, q_stride, kv_stride, columns, scale,
    THROUGH: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row, by one warp: each thread holds the same few numbers of every key, so that sums over keys cost nothing
    and sums over a head's width a few shuffles."""
    WIDTH: tl.constexpr = HEADS * D
    r = tl.program_id(0).to(tl.int64)
    first, n = tl.load(start + r), tl.load(count + r)
    across = tl.arange(0, WIDTH)
    query = tl.load(q + tl.load(asks + r) * q_stride + across).to(tl.float32) * (scale * _LOG2E)
    top = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    y = tl.zeros([HEADS, D], tl.float32)
    for done in range(0, n, BLOCK):
        place = done + tl.arange(0, BLOCK)
        inside = place < n
        row = tl.load(rows + first + place, mask=inside, other=0).to(tl.int64)
        if THROUGH:
            row = tl.load(table + tl.load(view + r) * columns + row, mask=inside, other=0)
        at = kv + row[:, None] * kv_stride + across[None, :]  # [BLOCK, H D]
        keys = tl.load(at, mask=inside[:, None], other=0.0).to(tl.float32)
        values = tl.load(at + WIDTH, mask=inside[:, None], other=0.0).to(tl.float32)
        score = tl.sum(tl.reshape(keys * query[None, :], [BLOCK, HEADS, D]), 2)
        score = tl.where(inside[:, None], score, float("-inf"))  # [BLOCK, H]
        above = tl.maximum(top, tl.max(score, 0))  # finite: somebody is in it
        p = tl.exp2(score - above[None, :])
        keep = tl.exp2(top - above)
        total = total * keep + tl.sum(p, 0)
        y = y * keep[:, None] + tl.sum(p[:, :, None] * tl.reshape(values, [BLOCK, HEADS, D]), 0)
        top = above
    total = tl.where(n > 0, total, 1.0)  # a list is empty only where it found no room, which somebody will see
    y = tl.reshape(y / total[:, None], [WIDTH])
    tl.store(answer + r * WIDTH + across, y.to(answer.dtype.element_ty))
    tl.store(logsum + r * HEADS + tl.arange(0, HEADS), top + tl.log2(total))


@triton.jit
def _attend_backward(
    qkv, y, grad, logsum, delta, rows, start, count, back_rows, back_start, back_count, grad_qkv, scale,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The gradients of one row, by one warp: of its query over the keys it lists, of its key and value over the
    queries that list it. Rows of qkv are 3 H D wide."""
    WIDTH: tl.constexpr = HEADS * D
    r = tl.program_id(0).to(tl.int64)
    across, head = tl.arange(0, WIDTH), tl.arange(0, HEADS)
    own = qkv + r * 3 * WIDTH + across
    q, k, v = tl.load(own).to(tl.float32), tl.load(own + WIDTH).to(tl.float32), tl.load(own + 2 * WIDTH).to(tl.float32)
    dy = tl.load(grad + r * WIDTH + across).to(tl.float32)
    lse, off = tl.load(logsum + r * HEADS + head), tl.load(delta + r * HEADS + head)
    dq = tl.zeros([HEADS, D], tl.float32)
    first, n = tl.load(start + r), tl.load(count + r)
    for done in range(0, n, BLOCK):
        inside = done + tl.arange(0, BLOCK) < n
        row = tl.load(rows + first + done + tl.arange(0, BLOCK), mask=inside, other=0)
        at = qkv + row[:, None] * (3 * WIDTH) + WIDTH + across[None, :]
        keys = tl.load(at, mask=inside[:, None], other=0.0).to(tl.float32)
        values = tl.load(at + WIDTH, mask=inside[:, None], other=0.0).to(tl.float32)
        score = tl.sum(tl.reshape(keys * q[None, :], [BLOCK, HEADS, D]), 2) * (scale * _LOG2E)
        p = tl.where(inside[:, None], tl.exp2(score - lse[None, :]), 0.0)  # [BLOCK, H]
        dp = tl.sum(tl.reshape(values * dy[None, :], [BLOCK, HEADS, D]), 2)
        ds = p * (dp - off[None, :]) * scale
        dq += tl.sum(ds[:, :, None] * tl.reshape(keys, [BLOCK, HEADS, D]), 0)
    dk, dv = tl.zeros([HEADS, D], tl.float32), tl.zeros([HEADS, D], tl.float32)
    first, n = tl.load(back_start + r), tl.load(back_count + r)
    for done in range(0, n, BLOCK):
        inside = done + tl.arange(0, BLOCK) < n
        row = tl.load(back_rows + first + done + tl.arange(0, BLOCK), mask=inside, other=0)
        at = row[:, None]
        queries = tl.load(qkv + at * (3 * WIDTH) + across[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
        theirs = tl.load(grad + at * WIDTH + across[None, :], mask=inside[:, None], other=0.0).to(tl.float32)
        lses = tl.load(logsum + at * HEADS + head[None, :], mask=inside[:, None], other=0.0)
        offs = tl.load(delta + at * HEADS + head[None, :], mask=inside[:, None], other=0.0)
        score = tl.sum(tl.reshape(queries * k[None, :], [BLOCK, HEADS, D]), 2) * (scale * _LOG2E)
        p = tl.where(inside[:, None], tl.exp2(score - lses), 0.0)
        dv += tl.sum(p[:, :, None] * tl.reshape(theirs, [BLOCK, HEADS, D]), 0)
        dp = tl.sum(tl.reshape(theirs * v[None, :], [BLOCK, HEADS, D]), 2)
        ds = p * (dp - offs) * scale
        dk += tl.sum(ds[:, :, None] * tl.reshape(queries, [BLOCK, HEADS, D]), 0)
    into = grad_qkv + r * 3 * WIDTH + across
    tl.store(into, tl.reshape(dq, [WIDTH]).to(grad_qkv.dtype.element_ty))
    tl.store(into + WIDTH, tl.reshape(dk, [WIDTH]).to(grad_qkv.dtype.element_ty))
    tl.store(into + 2 * WIDTH, tl.reshape(dv, [WIDTH]).to(grad_qkv.dtype.element_ty))


@triton.jit(do_not_specialize=["room"])
def _neighbours(
    positions, label, begin, end, start, count, rows, squared, room,
    FILL: tl.constexpr, LABELLED: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The points of three runs that are near one point, by one warp: how many, or (FILL) which, ascending."""
    r = tl.program_id(0).to(tl.int64)
    x, y = tl.load(positions + 2 * r), tl.load(positions + 2 * r + 1)
    own = tl.load(label + r) if LABELLED else 0
    found = tl.load(start + r) if FILL else tl.zeros([], tl.int64)
    for run in range(3):
        last = tl.load(end + 3 * r + run)
        for first in range(tl.load(begin + 3 * r + run), last, BLOCK):
            at = first + tl.arange(0, BLOCK)
            inside = at < last
            there_x = tl.load(positions + 2 * at, mask=inside, other=0.0)
            there_y = tl.load(positions + 2 * at + 1, mask=inside, other=0.0)
            near = inside & (apart(there_x, there_y, x, y) < squared)
            if LABELLED:
                near = near & (tl.load(label + at, mask=inside, other=0) == own)
            near = inside & (near | (at == r))  # everyone sees itself, in the run that it is in
            if FILL:
                place = found + tl.cumsum(near.to(tl.int32), 0) - 1
                tl.store(rows + place, at, mask=near & (place < room))
            found += tl.sum(near.to(tl.int32), 0)
    if not FILL:
        tl.store(count + r, found)


@triton.jit
def turned(x, cos, sin):
    """Rows x [ROWS, 2 E] turned by phases [ROWS, E], in the precision of x. Whole rows are read before, and split into
    real and imaginary parts in registers: reading every other number is slow."""
    real, imaginary = tl.split(tl.reshape(x, [cos.shape[0], cos.shape[1], 2]))
    both = tl.join(real * cos - imaginary * sin, real * sin + imaginary * cos)
    return tl.reshape(both, x.shape).to(x.dtype)


@triton.jit
def turned_aside(query, cos, sin, rows):
    """Queries turned, behind a branch that is always taken. Where Triton sees that an operand of a product is joined of
    two parts, it lays out both operands for other numbers, and a sixth of the loop would be moves."""
    if rows > 0:
        query = turned(query, cos, sin)
    return query


@triton.jit
def looked(query, keys, values, scale, bias, highest, total, found):
    """What queries have found when they have looked at some more keys: the highest score of each, the sum of its
    weights, and of the values times these. Weights are powers of 2. bias: 0 where a query sees a key, elsewhere
    -infinity; the highest score is finite from the start, for the first keys may all be out of sight."""
    # The precision is that of products of fp32: half precision is what it is.
    score = tl.fma(tl.dot(query, tl.trans(keys), input_precision="ieee"), scale, bias)
    top = tl.maximum(highest, tl.max(score, 1))
    p = tl.exp2(score - top[:, None])
    keep = tl.exp2(highest - top)
    found = tl.dot(p.to(values.dtype), values, found * keep[:, None], input_precision="ieee")
    return top, total * keep + tl.sum(p, 1), found


@triton.jit
def _turn(x, cos, sin, entry, rows, stride, HEADS: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row[:, None] < rows
    at = x + row[:, None] * stride + tl.arange(0, 2 * HEADS * E)[None, :]
    phase = tl.load(entry + row, mask=row < rows, other=0)[:, None] * E + (tl.arange(0, HEADS * E) % E)[None, :]
    c, s = tl.load(cos + phase, mask=there, other=0.0), tl.load(sin + phase, mask=there, other=0.0)
    tl.store(at, turned(tl.load(at, mask=there, other=0.0), c, s), mask=there)


@triton.jit
def _phases(positions, omega, cos, sin, count, K: tl.constexpr, WIDE: tl.constexpr, ROWS: tl.constexpr):
    """As `encoding.Rotary.rotation`: phases in fp64, up to whole turns."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDE)[None, :]
    there = (row[:, None] < count) & (column < 2 * K)
    along = tl.load(positions + 2 * row[:, None] + column % 2, mask=there, other=0.0).to(tl.float64)
    turns = along * tl.load(omega + column // 2, mask=column < 2 * K, other=0.0).to(tl.float64) / 6.283185307179586
    angle = ((turns - tl.floor(turns)) * 6.283185307179586).to(tl.float32)
    at = row[:, None] * (2 * K) + column
    tl.store(cos + at, tl.cos(angle), mask=there)
    tl.store(sin + at, tl.sin(angle), mask=there)


@triton.jit
def _add_normed(
    x, asks, y, weight, bias, total, normed, rows, width, eps,
    ASKED: tl.constexpr, ADDED: tl.constexpr, SUMMED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    across = tl.arange(0, WIDTH)[None, :]
    there = (row[:, None] < rows) & (across < width)
    source = tl.load(asks + row, mask=row < rows, other=0) if ASKED else row
    at = row[:, None] * width + across
    v = tl.load(x + source[:, None] * width + across, mask=there, other=0.0).to(tl.float32)
    if ADDED:
        v += tl.load(y + at, mask=there, other=0.0).to(tl.float32)
    if SUMMED:
        tl.store(total + at, v.to(total.dtype.element_ty), mask=there)
    mean = tl.sum(v, 1)[:, None] / width
    off = tl.where(across < width, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(off * off, 1)[:, None] / width + eps)
    h = off * scale * tl.load(weight + across, mask=across < width, other=0.0)
    h += tl.load(bias + across, mask=across < width, other=0.0)
    tl.store(normed + at, h.to(normed.dtype.element_ty), mask=there)


def takes(rows: Tensor, heads: int) -> bool:
    """Whether the kernels take rows [n, d], each in one piece: heads and their widths powers of two, and no more
    precise than fp32."""
    width = rows.shape[1] // heads
    powers = heads & (heads - 1) == 0 and width & (width - 1) == 0
    return powers and rows.dtype != torch.float64 and rows.stride(1) == 1


def turn_rows(x: Tensor, cos: Tensor, sin: Tensor, entry: Tensor, heads: int) -> None:
    """As `lists.turn_rows`: x [n, d] whose rows may lie apart, cos and sin [U, d_a/2], entry [n]."""
    rows, (cos, sin, entry) = 8, (t.contiguous() for t in (cos, sin, entry))
    _turn[(triton.cdiv(len(x), rows),)](
        x, cos, sin, entry, len(x), x.stride(0), HEADS=heads, E=cos.shape[1], ROWS=rows
    )  # fmt: skip


def phases(positions: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
    """Cosine and sine of the phases of positions [..., 2] metres for frequencies omega [K] rad/m: [..., 2 K] fp32."""
    wide, count = 2 * len(omega), positions.numel() // 2
    cos, sin = (torch.empty((*positions.shape[:-1], wide), device=positions.device) for _ in range(2))
    columns = triton.next_power_of_2(wide)
    rows = max(1, 1024 // columns)
    if count:
        _phases[(triton.cdiv(count, rows),)](
            positions.contiguous(), omega, cos, sin, count, K=wide // 2, WIDE=columns, ROWS=rows
        )
    return cos, sin


def attend_lists(
    q: Tensor,
    asks: Tensor,
    kv: Tensor,
    rows: Tensor,
    start: Tensor,
    count: Tensor,
    heads: int,
    table: Tensor | None = None,
    view: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """As `lists.attend_lists`: q [m, d], asks [n], kv [k, 2 d] (rows may lie apart), list r is
    rows[start[r] : start[r] + count[r]] -> [n, d], and the log2 of each softmax's denominator [n, H]."""
    d = kv.shape[1] // 2
    asks, rows, start, count = (t.contiguous() for t in (asks, rows, start, count))
    kv = kv if kv.stride(1) == 1 else kv.contiguous()
    answer = torch.empty((len(asks), d), dtype=q.dtype, device=q.device)
    logsum = torch.empty((len(asks), heads), dtype=torch.float32, device=q.device)
    width = d // heads
    _attend[(len(asks),)](
        q, asks, kv, rows, start, count,
        rows if table is None else table.contiguous(), rows if view is None else view.contiguous(),
        answer, logsum, q.stride(0), kv.stride(0), 0 if table is None else table.shape[1], width**-0.5,
        THROUGH=table is not None, HEADS=heads, D=width, BLOCK=_BLOCK if table is None else _TABLE_BLOCK, num_warps=1,
    )  # fmt: skip
    return answer, logsum


def attend_backward(
    qkv: Tensor, y: Tensor, grad: Tensor, logsum: Tensor, lists: tuple[Tensor, ...], back: tuple[Tensor, ...]
) -> Tensor:
    """The gradient [n, 3 d] of turned queries, keys and values from that of y [n, d].

    lists: rows, start, count of who is listed by each row; back: of who lists it.
    """
    heads, width = logsum.shape[1], y.shape[1] // logsum.shape[1]
    delta = (grad.float() * y.float()).unflatten(-1, (heads, width)).sum(-1)  # [n, H]
    grad_qkv = torch.empty_like(qkv)
    _attend_backward[(len(qkv),)](
        qkv, y, grad.contiguous(), logsum, delta, *lists, *back, grad_qkv, width**-0.5,
        HEADS=heads, D=width, BLOCK=_BLOCK, num_warps=1,
    )  # fmt: skip
    return grad_qkv


def neighbours(
    positions: Tensor, label: Tensor | None, begin: Tensor, end: Tensor, squared: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Who is near whom among points [n, 2] sorted so that all near one are in its three runs begin, end [n, 3]; of
    equal label [n] where there are labels -> rows, start, count of the lists, each with its own point in it."""
    count = torch.empty(len(positions), dtype=torch.int64, device=positions.device)
    given = (positions, positions if label is None else label, begin, end)
    shape = {"LABELLED": label is not None, "BLOCK": 32, "num_warps": 1, "enable_fp_fusion": False}
    _neighbours[(len(positions),)](*given, count, count, count, squared, 0, FILL=False, **shape)
    ends = count.cumsum(0)
    start = ends - count
    rows = torch.empty(steady.room_for(ends[-1:]), dtype=torch.int64, device=positions.device)
    if not steady.may_ask():  # what finds no room is left out, and nothing is read or written beyond it
        start = start.clamp_max(len(rows))
        count = torch.minimum(count, len(rows) - start)
    _neighbours[(len(positions),)](*given, start, count, rows, squared, len(rows), FILL=True, **shape)
    return rows, start, count


def add_normed(
    x: Tensor, asks: Tensor | None, y: Tensor | None, weight: Tensor, bias: Tensor, eps: float, summed: bool = True,
    given: torch.dtype | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """As `lists.add_normed`: x [m, d] -> [n, d] and its norm, both in the precision `given`, None: in that of autocast;
    sums inside are fp32. summed: whether the first will be read; if not, it is x."""
    asks = None if asks is None else asks.contiguous()
    count, width = len(x) if asks is None else len(asks), x.shape[1]
    kind = x.device.type
    half = given or (torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype)
    normed = torch.empty((count, width), dtype=half, device=x.device)
    summed = summed and not (asks is None and y is None)
    total = torch.empty_like(normed) if summed else x
    rows = 4
    _add_normed[(triton.cdiv(count, rows),)](
        x.contiguous(), asks, total if y is None else y.contiguous(), weight, bias, total, normed, count, width, eps,
        ASKED=asks is not None, ADDED=y is not None, SUMMED=summed, ROWS=rows, WIDTH=triton.next_power_of_2(width),
    )  # fmt: skip
    return total, normed
