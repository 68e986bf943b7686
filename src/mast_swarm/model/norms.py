"""The residual sum and the layer norm that follows on it, as one GPU kernel each way (Triton).

Why by hand: these are bound by memory, and every layer has two. The backward pass reads and writes each row once, and
on the way takes the sums over rows that the gradients of the norm's weight and bias and of y's bias are, for which a
compiler makes passes of their own. A row stays within a warp: nothing in the loop over rows waits for another.

Symbol: d width.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_WARPS = 8
_PROGRAMS = 3 * 132  # at most: as many as an H200 holds at a time of those for d = 256
_PARTS = tl.constexpr(512)  # at least as many: partial sums of a column
_COLUMNS = tl.constexpr(16)  # that a program finishes


def takes(width: int) -> bool:
    """Whether the kernels take rows of so many elements."""
    return 32 <= width <= 512 and width & (width - 1) == 0


@triton.jit
def _places(WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Columns [d/128, 1, 128] (or [1, 1, d]) and rows [ROWS] of a tile.

    The slices of a row come first, so that a thread has four neighbouring numbers of each slice of one row: reads and
    writes of both precisions are then whole and laid out alike, and a row stays within its warp.
    """
    SLICE: tl.constexpr = min(WIDTH, 128)
    across = tl.max_contiguous(tl.arange(0, SLICE), 4)
    column = tl.arange(0, WIDTH // SLICE)[:, None, None] * SLICE + across[None, None, :]
    return column, tl.arange(0, ROWS)


@triton.jit
def _mean(a, WIDTH: tl.constexpr):
    """Means of rows: [d/128, ROWS, 128] -> [1, ROWS, 1]."""
    return tl.sum(tl.sum(a, 2), 0)[None, :, None] / WIDTH


@triton.jit
def _centred(v, eps, WIDTH: tl.constexpr):
    """Rows less their means, and one over their deviations [1, ROWS, 1]."""
    v -= _mean(v, WIDTH)
    return v, tl.rsqrt(_mean(v * v, WIDTH) + eps)


@triton.jit
def _forward(
    x, y, y_bias, weight, bias, total, normed, rows, eps,
    ADDED: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    column, row = _places(WIDTH, ROWS)
    at = row[None, :, None] * WIDTH + column
    gain, shift = tl.load(weight + column), tl.load(bias + column)
    if ADDED:
        constant = tl.load(y_bias + column)
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        there = (start + row < rows)[None, :, None]
        first = tl.cast(start, tl.int64) * WIDTH
        v = tl.load(x + first + at, mask=there, other=0.0)
        if ADDED:
            v += tl.load(y + first + at, mask=there, other=0.0).to(tl.float32) + constant
        tl.store(total + first + at, v, mask=there)
        v, scale = _centred(v, eps, WIDTH)
        v = v * scale * gain + shift
        tl.store(normed + first + at, v.to(normed.dtype.element_ty), mask=there)


@triton.jit
def _backward(
    d_total, d_normed, total, weight, dx, dy, part, rows, eps,
    ONWARD: tl.constexpr, ADDED: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Gradients of rows, and the program's share of three sums over rows; ONWARD: total has a gradient too."""
    column, row = _places(WIDTH, ROWS)
    at = row[None, :, None] * WIDTH + column
    gain = tl.load(weight + column)
    y_bias_sum = tl.zeros(at.shape, tl.float32)  # summed within threads; over the tile's rows only at the end
    weight_sum, bias_sum = y_bias_sum, y_bias_sum
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        there = (start + row < rows)[None, :, None]
        first = tl.cast(start, tl.int64) * WIDTH
        v = tl.load(total + first + at, mask=there, other=0.0)
        g = tl.load(d_normed + first + at, mask=there, other=0.0).to(tl.float32)
        if ONWARD:  # asked for here, with the others, though needed last
            residual = tl.load(d_total + first + at, mask=there, other=0.0)
        v, scale = _centred(v, eps, WIDTH)
        v *= scale  # normed, before weight and bias
        bias_sum += g
        weight_sum += g * v
        g *= gain
        g = (g - v * _mean(g * v, WIDTH) - _mean(g, WIDTH)) * scale
        if ONWARD:
            g += residual
        y_bias_sum += g
        tl.store(dx + first + at, g, mask=there)
        if ADDED:
            tl.store(dy + first + at, g.to(dy.dtype.element_ty), mask=there)
    into = part + tl.program_id(0) * (3 * WIDTH) + column
    tl.store(into, tl.sum(y_bias_sum, 1)[:, None, :])
    tl.store(into + WIDTH, tl.sum(weight_sum, 1)[:, None, :])
    tl.store(into + 2 * WIDTH, tl.sum(bias_sum, 1)[:, None, :])


@triton.jit
def _finish(part, sums, parts, WIDTH: tl.constexpr):
    """Sums over the programs: [parts, WIDTH] -> [WIDTH]. All are read at once, since there are few."""
    row, column = tl.arange(0, _PARTS), tl.program_id(0) * _COLUMNS + tl.arange(0, _COLUMNS)
    a = tl.load(part + row[:, None] * WIDTH + column[None, :], mask=row[:, None] < parts, other=0.0)
    tl.store(sums + column, tl.sum(a, 0))


def _shape(rows: int, width: int) -> tuple[int, int]:
    """Rows of a tile and programs, such that all programs have the same number of tiles, give or take one."""
    tile = max(_WARPS, 256 * _WARPS // width)
    tiles = max(1, triton.cdiv(rows, tile))
    return tile, triton.cdiv(tiles, triton.cdiv(tiles, _PROGRAMS))


@torch.library.custom_op("mast::add_norm", mutates_args=())
def add_norm(
    x: Tensor, y: Tensor | None, y_bias: Tensor | None, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """x + y + y_bias and its layer norm.

    x [..., d] fp32; y [..., d] bf16 and y_bias [d] fp32, both None for nothing to add; weight, bias [d] fp32, of the
    norm -> the sum [..., d] fp32, and its norm [..., d] bf16.
    """
    x = x.contiguous()
    width = x.shape[-1]
    rows = x.numel() // width
    total, normed = torch.empty_like(x), torch.empty_like(x, dtype=torch.bfloat16)
    tile, programs = _shape(rows, width)
    _forward[(programs,)](
        x, x if y is None else y.contiguous(), weight if y_bias is None else y_bias, weight, bias, total, normed,
        rows, eps, ADDED=y is not None, WIDTH=width, ROWS=tile, num_warps=_WARPS,
    )  # fmt: skip
    return total, normed


@add_norm.register_fake
def _(
    x: Tensor, y: Tensor | None, y_bias: Tensor | None, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), x.new_empty(x.shape, dtype=torch.bfloat16)


@torch.library.custom_op("mast::add_norm_backward", mutates_args=())
def add_norm_backward(
    d_total: Tensor | None, d_normed: Tensor, total: Tensor, weight: Tensor, eps: float, added: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x [..., d] fp32, of y [..., d] bf16 (empty where nothing was added), and of y_bias, weight and bias
    [3, d] fp32, from those of the sum (None where it is not used) and of its norm."""
    width = total.shape[-1]
    rows = total.numel() // width
    tile, programs = _shape(rows, width)
    dx, dy, sums = _gradients_of(total, added)
    part = total.new_empty((programs, 3, width))
    _backward[(programs,)](
        total if d_total is None else d_total.contiguous(), d_normed.contiguous(), total, weight, dx, dy, part,
        rows, eps, ONWARD=d_total is not None, ADDED=added, WIDTH=width, ROWS=tile, num_warps=_WARPS,
    )  # fmt: skip
    _finish[(3 * width // _COLUMNS.value,)](part, sums, programs, WIDTH=3 * width, num_warps=_WARPS)
    return dx, dy, sums


@add_norm_backward.register_fake
def _(
    d_total: Tensor | None, d_normed: Tensor, total: Tensor, weight: Tensor, eps: float, added: bool
) -> tuple[Tensor, Tensor, Tensor]:
    return _gradients_of(total, added)


def _gradients_of(total: Tensor, added: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Room for what `add_norm_backward` gives."""
    dy = total.new_empty(total.shape if added else 0, dtype=torch.bfloat16)
    return torch.empty_like(total), dy, total.new_empty((3, total.shape[-1]))


def _keep(ctx, inputs, output) -> None:
    _, y, _, weight, _, ctx.eps = inputs
    ctx.added = y is not None
    ctx.save_for_backward(output[0], weight)
    ctx.set_materialize_grads(False)  # the last sum of a stack has no gradient: zeros need not be read


def _gradient(ctx, d_total: Tensor | None, d_normed: Tensor | None):
    total, weight = ctx.saved_tensors
    if d_normed is None:
        d_normed = torch.zeros_like(total, dtype=torch.bfloat16)
    dx, dy, sums = add_norm_backward(d_total, d_normed, total, weight, ctx.eps, ctx.added)
    d_y_bias, d_weight, d_bias = sums.unbind(0)
    return dx, dy if ctx.added else None, d_y_bias if ctx.added else None, d_weight, d_bias, None


add_norm.register_autograd(_gradient, setup_context=_keep)
