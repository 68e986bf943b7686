"""Gradients of norms and activations on a GPU (Triton), and of what is summed over rows on the way.

A bias's gradient is the sum of a layer's gradient over all rows, and so are those of a norm's weights. To sum is to
read: a kernel that has a gradient in its registers sums it there too. Each program walks over many rows, and leaves its
sums to `summed`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_NORMED, _BENT = 8, 4  # rows of a program at a time
_PROGRAMS = 264  # at most: two for each processor of an H200, where it was the fastest of 264, 400, 534 and 800
_PARTS, _COLUMNS = 64, 32  # that `_summed` holds


@triton.jit
def _normed_backward(
    total, grad_normed, grad_total, weight, grad, parts, rows, width, columns, of_weight, of_grad, eps,
    STREAM: tl.constexpr, ROWS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """The statistics are those of the rows themselves, which are here anyway. A row waits for two rounds of sums, each
    of two that wait for nothing of each other."""
    across = tl.arange(0, WIDTH)[None, :]
    inside = across < width
    w = tl.load(weight + across, mask=inside, other=0.0).to(tl.float32)
    weights, biases = tl.zeros([ROWS, WIDTH], tl.float32), tl.zeros([ROWS, WIDTH], tl.float32)
    grads = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        there, at = (row < rows) & inside, row.to(tl.int64) * width + across
        v = tl.load(total + at, mask=there, other=0.0).to(tl.float32)
        dh = tl.load(grad_normed + at, mask=there, other=0.0).to(tl.float32)
        if STREAM:  # asked for with the others: a sum waits for all that was asked for before
            stream = tl.load(grad_total + at, mask=there, other=0.0).to(tl.float32)
        dw = dh * w
        mean, of_dw = tl.sum(v, 1)[:, None] / width, tl.sum(dw, 1)[:, None] / width
        off = tl.where(inside, v - mean, 0.0)
        square, along = tl.sum(off * off, 1)[:, None] / width, tl.sum(dw * off, 1)[:, None] / width
        scale = tl.rsqrt(square + eps)
        h = off * scale
        dx = (dw - of_dw - h * (along * scale)) * scale
        if STREAM:
            dx += stream
        tl.store(grad + at, dx.to(grad.dtype.element_ty), mask=there)
        weights += dh * h
        biases += dh
        grads += dx  # 0 in rows past the end
    parts += tl.program_id(0).to(tl.int64) * columns + tl.arange(0, WIDTH)
    inside = tl.arange(0, WIDTH) < width
    tl.store(parts + of_weight, tl.sum(weights, 0), mask=inside)
    tl.store(parts + of_weight + width, tl.sum(biases, 0), mask=inside)
    tl.store(parts + of_grad, tl.sum(grads, 0), mask=inside)


@triton.jit
def _bent_backward(
    bent, grad, parts, rows, width, columns, of_grad, slope, ROWS: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    across = tl.arange(0, WIDTH)[None, :]
    grads = tl.zeros([ROWS, WIDTH], tl.float32)
    for first in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = first + tl.arange(0, ROWS)[:, None]
        there, at = (row < rows) & (across < width), row.to(tl.int64) * width + across
        g = tl.load(grad + at, mask=there, other=0.0)
        g = tl.where(tl.load(bent + at, mask=there, other=0.0) > 0, g.to(tl.float32), g.to(tl.float32) * slope)
        tl.store(grad + at, g.to(grad.dtype.element_ty), mask=there)
        grads += g
    column = tl.arange(0, WIDTH)
    at = parts + tl.program_id(0).to(tl.int64) * columns + of_grad + column
    tl.store(at, tl.sum(grads, 0), mask=column < width)


@triton.jit
def _summed(parts, sums, more, count, columns, border, PARTS: tl.constexpr, COLUMNS: tl.constexpr):
    """Some columns of parts [., count, columns], the first `border` of which go to `sums` and the others to `more`."""
    blocks = tl.cdiv(columns, COLUMNS)
    which = (tl.program_id(0) // blocks).to(tl.int64)
    column = tl.program_id(0) % blocks * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros([PARTS, COLUMNS], tl.float32)
    for first in range(0, count, PARTS):
        part = first + tl.arange(0, PARTS)
        there = (part[:, None] < count) & (column[None, :] < columns)
        total += tl.load(parts + (which * count + part[:, None]) * columns + column[None, :], mask=there, other=0.0)
    found = tl.sum(total, 0)
    tl.store(sums + which * border + column, found.to(sums.dtype.element_ty), mask=column < border)
    at = more + which * (columns - border) + column - border
    tl.store(at, found.to(more.dtype.element_ty), mask=(column >= border) & (column < columns))


def parts_of(rows: int, columns: int, device: torch.device) -> Tensor:
    """Where programs leave their sums of so many columns over so many rows, [P, columns] fp32."""
    return torch.empty((min(triton.cdiv(rows, _NORMED), _PROGRAMS), columns), dtype=torch.float32, device=device)


def normed_backward(
    total: Tensor, grad_normed: Tensor, grad_total: Tensor | None, weight: Tensor, eps: float, grad: Tensor,
    parts: Tensor, of_weight: int, of_grad: int,
) -> None:  # fmt: skip
    """Writes to `grad` the gradient of `total` [n, d], from those of its layer norm and (None: nothing) of itself.

    Sums over rows go to columns of parts [P, columns]: the gradients of the norm's weight and bias from `of_weight` on,
    the sum of `grad` from `of_grad` on.
    """
    rows, width = total.shape
    _normed_backward[(len(parts),)](
        total, grad_normed, total if grad_total is None else grad_total, weight, grad, parts, rows, width,
        parts.shape[1], of_weight, of_grad, eps,
        STREAM=grad_total is not None, ROWS=_NORMED, WIDTH=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip


def bent_backward(bent: Tensor, grad: Tensor, slope: float, parts: Tensor, of_grad: int) -> None:
    """Makes of the gradient of what a leaky ReLU gave, bent [n, w], that of what it was given, in place; its sum over
    rows goes to columns of parts [P, columns] from `of_grad` on."""
    rows, width = bent.shape
    _bent_backward[(len(parts),)](
        bent, grad, parts, rows, width, parts.shape[1], of_grad, slope,
        ROWS=_BENT, WIDTH=triton.next_power_of_2(width), num_warps=4,
    )  # fmt: skip


def summed(parts: Tensor, border: int, half: torch.dtype) -> tuple[Tensor, Tensor]:
    """The sums over parts [., P, columns]: [., border] in fp32, and those of the other columns in half precision."""
    batch, count, columns = parts.shape
    sums = torch.empty((batch, border), dtype=torch.float32, device=parts.device)
    more = torch.empty((batch, columns - border), dtype=half, device=parts.device)
    _summed[(triton.cdiv(columns, _COLUMNS) * batch,)](
        parts, sums, more, count, columns, border, PARTS=_PARTS, COLUMNS=_COLUMNS, num_warps=4
    )
    return sums, more
