"""What decentralised execution does for every row, on a GPU (Triton): windows, rotations, attention over lists.

Plain torch makes a pair-by-pair matrix of every view to find windows, and gathers each key as often as it is listed;
here distances live in registers, and a key is read where it lies, mostly from the cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 8  # keys at a time
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _attend(q, asks, kv, rows, start, count, answer, scale, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    """One row, by one warp: each thread holds the same few numbers of every key, so that sums over keys cost nothing
    and sums over a head's width a few shuffles."""
    WIDTH: tl.constexpr = HEADS * D
    r = tl.program_id(0).to(tl.int64)
    first, n = tl.load(start + r), tl.load(count + r)
    across = tl.arange(0, WIDTH)
    query = tl.load(q + tl.load(asks + r) * WIDTH + across).to(tl.float32) * (scale * _LOG2E)
    top = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    y = tl.zeros([HEADS, D], tl.float32)
    for done in range(0, n, BLOCK):
        place = done + tl.arange(0, BLOCK)
        inside = place < n
        row = tl.load(rows + first + place, mask=inside, other=0)
        at = kv + row[:, None] * (2 * WIDTH) + across[None, :]  # [BLOCK, H D]
        keys = tl.load(at, mask=inside[:, None], other=0.0).to(tl.float32)
        values = tl.load(at + WIDTH, mask=inside[:, None], other=0.0).to(tl.float32)
        score = tl.sum(tl.reshape(keys * query[None, :], [BLOCK, HEADS, D]), 2)
        score = tl.where(inside[:, None], score, float("-inf"))  # [BLOCK, H]
        above = tl.maximum(top, tl.max(score, 0))  # finite: a list is never empty
        p = tl.exp2(score - above[None, :])
        keep = tl.exp2(top - above)
        total = total * keep + tl.sum(p, 0)
        y = y * keep[:, None] + tl.sum(p[:, :, None] * tl.reshape(values, [BLOCK, HEADS, D]), 0)
        top = above
    y = tl.reshape(y / total[:, None], [WIDTH])
    tl.store(answer + r * WIDTH + across, y.to(answer.dtype.element_ty))


@triton.jit
def _apart(x, y, from_x, from_y):
    """Squared distances as plain torch rounds them: the launches below forbid fused multiply and add."""
    return (x - from_x) * (x - from_x) + (y - from_y) * (y - from_y)


@triton.jit
def _levels(
    entry, own, positions, level, count, columns, squared,
    LAYERS: tl.constexpr, WINDOWED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One view: how many windows each entry is away from the robot itself, and how many entries its window holds."""
    view = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    e = tl.load(entry + view * columns + column, mask=column < columns, other=-1)
    held = e >= 0
    sees = held[:, None] & held[None, :]
    if WINDOWED:
        x = tl.load(positions + 2 * e, mask=held, other=0.0)
        y = tl.load(positions + 2 * e + 1, mask=held, other=0.0)
        near = _apart(x[:, None], y[:, None], x[None, :], y[None, :]) < squared
        sees = sees & (near | (column[:, None] == column[None, :]))
    reached = held & (e == tl.load(own + view))
    away = tl.full([COLUMNS], LAYERS, tl.int32)
    for windows in range(LAYERS):
        away = tl.where(reached & (away == LAYERS), windows, away)
        reached = tl.max((sees & reached[None, :]).to(tl.int32), 1) > 0
    at = view * columns + column
    tl.store(level + at, away, mask=column < columns)
    tl.store(count + at, tl.sum(sees.to(tl.int32), 1), mask=column < columns)


@triton.jit
def _windows(
    entry, positions, view, column, start, window, columns, squared, WINDOWED: tl.constexpr, COLUMNS: tl.constexpr
):
    """One row: the columns in its window, ascending."""
    r = tl.program_id(0).to(tl.int64)
    entry += tl.load(view + r) * columns
    own = tl.load(column + r)
    other = tl.arange(0, COLUMNS)
    e = tl.load(entry + other, mask=other < columns, other=-1)
    sees = e >= 0
    if WINDOWED:
        itself = tl.load(entry + own)
        x, y = tl.load(positions + 2 * e, mask=sees, other=0.0), tl.load(positions + 2 * e + 1, mask=sees, other=0.0)
        near = _apart(x, y, tl.load(positions + 2 * itself), tl.load(positions + 2 * itself + 1)) < squared
        sees = sees & (near | (other == own))
    place = tl.cumsum(sees.to(tl.int32), 0) - 1
    tl.store(window + tl.load(start + r) + place, other.to(tl.int64), mask=sees)


@triton.jit
def _turn(x, cos, sin, entry, rows, stride, HEADS: tl.constexpr, E: tl.constexpr, ROWS: tl.constexpr):
    """Whole rows are read and split into real and imaginary parts in registers: reading every other number is slow."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row[:, None] < rows
    at = x + row[:, None] * stride + tl.arange(0, 2 * HEADS * E)[None, :]
    real, imaginary = tl.split(tl.reshape(tl.load(at, mask=there, other=0.0), [ROWS, HEADS * E, 2]))
    phase = tl.load(entry + row, mask=row < rows, other=0)[:, None] * E + (tl.arange(0, HEADS * E) % E)[None, :]
    c, s = tl.load(cos + phase, mask=there, other=0.0), tl.load(sin + phase, mask=there, other=0.0)
    turned = tl.join(real * c - imaginary * s, real * s + imaginary * c)
    tl.store(at, tl.reshape(turned, [ROWS, 2 * HEADS * E]).to(x.dtype.element_ty), mask=there)


@triton.jit
def _add_normed(
    x, asks, y, weight, bias, total, normed, rows, width, eps,
    ASKED: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    across = tl.arange(0, WIDTH)[None, :]
    there = (row[:, None] < rows) & (across < width)
    source = tl.load(asks + row, mask=row < rows, other=0) if ASKED else row
    at = row[:, None] * width + across
    v = tl.load(x + source[:, None] * width + across, mask=there, other=0.0)
    v += tl.load(y + at, mask=there, other=0.0).to(tl.float32)
    tl.store(total + at, v, mask=there)
    mean = tl.sum(v, 1)[:, None] / width
    off = tl.where(across < width, v - mean, 0.0)
    scale = tl.rsqrt(tl.sum(off * off, 1)[:, None] / width + eps)
    h = off * scale * tl.load(weight + across, mask=across < width, other=0.0)
    h += tl.load(bias + across, mask=across < width, other=0.0)
    tl.store(normed + at, h.to(normed.dtype.element_ty), mask=there)


def takes(rows: Tensor, heads: int) -> bool:
    """Whether the kernels take rows [n, d]: heads and their widths powers of two, and no more precise than fp32."""
    width = rows.shape[1] // heads
    return heads & (heads - 1) == 0 and width & (width - 1) == 0 and rows.dtype != torch.float64


def turn_rows(x: Tensor, cos: Tensor, sin: Tensor, entry: Tensor, heads: int) -> None:
    """As `lists.turn_rows`: x [n, d] whose rows may lie apart, cos and sin [U, d_a/2], entry [n]."""
    rows = 8
    _turn[(triton.cdiv(len(x), rows),)](
        x, cos, sin, entry, len(x), x.stride(0), HEADS=heads, E=cos.shape[1], ROWS=rows
    )  # fmt: skip


def attend_lists(q: Tensor, asks: Tensor, kv: Tensor, rows: Tensor, start: Tensor, count: Tensor, heads: int) -> Tensor:
    """As `lists.attend_lists`: q [m, d], asks [n], kv [k, 2 d], list r is rows[start[r] : start[r] + count[r]]."""
    answer = torch.empty((len(asks), q.shape[1]), dtype=q.dtype, device=q.device)
    width = q.shape[1] // heads
    q, kv = q.contiguous(), kv.contiguous()
    _attend[(len(asks),)](
        q, asks, kv, rows, start, count, answer, width**-0.5, HEADS=heads, D=width, BLOCK=_BLOCK, num_warps=1
    )  # fmt: skip
    return answer


def add_normed(
    x: Tensor, asks: Tensor | None, y: Tensor, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """As `lists.add_normed`: x [m, d] fp32 -> [n, d] fp32, and its norm in the precision of y [n, d]."""
    y = y.contiguous()
    total, normed = torch.empty_like(y, dtype=torch.float32), torch.empty_like(y)
    count, width = y.shape
    rows = 4
    _add_normed[(triton.cdiv(count, rows),)](
        x.contiguous(), asks, y, weight, bias, total, normed, count, width, eps,
        ASKED=asks is not None, ROWS=rows, WIDTH=triton.next_power_of_2(width),
    )  # fmt: skip
    return total, normed


MOST_COLUMNS = 128  # of a view that one program holds


class Sight:
    """As `views.Sight`, for views of at most MOST_COLUMNS entries at positions in fp32; the matrix is never kept."""

    def __init__(self, entry: Tensor, own: Tensor, positions: Tensor, radius: float | None, layers: int) -> None:
        self.entry, self.positions = entry.contiguous(), positions.contiguous()
        self.squared, self.windowed = (0.0, False) if radius is None else (radius * radius, True)
        self.columns = max(16, triton.next_power_of_2(entry.shape[1]))
        self.level, self.count = (torch.empty(entry.shape, dtype=torch.int32, device=entry.device) for _ in range(2))
        _levels[(len(entry),)](
            self.entry, own, self.positions, self.level, self.count, entry.shape[1], self.squared,
            LAYERS=layers, WINDOWED=self.windowed, COLUMNS=self.columns, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip

    def windows(self, view: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """As there: [E] and [R] int64."""
        count = self.count[view, column].long()
        ends = count.cumsum(0)
        window = torch.empty(int(ends[-1]), dtype=torch.int64, device=count.device)
        _windows[(len(view),)](
            self.entry, self.positions, view, column, ends - count, window, self.entry.shape[1], self.squared,
            WINDOWED=self.windowed, COLUMNS=self.columns, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
        return window, count
