"""AdamW over all weights at once on a GPU (Triton): `optimiser.FlatAdamW` says what is computed."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

_NUMBERS = 2048  # of a program


@triton.jit
def _gradient(half, rest, at, border, size):
    """Of numbers `at`, the first `border` of which have theirs in half precision."""
    first = tl.load(half + at, mask=at < border, other=0.0).to(tl.float32)
    other = tl.load(rest + (at - border), mask=(at >= border) & (at < size), other=0.0).to(tl.float32)
    return first + other  # one of them is 0


@triton.jit(do_not_specialize=["border", "size"])
def _squares(half, rest, sums, border, size, NUMBERS: tl.constexpr):
    """The sum of the squares of each program's numbers."""
    at = tl.program_id(0) * NUMBERS + tl.arange(0, NUMBERS)
    g = _gradient(half, rest, at, border, size)
    tl.store(sums + tl.program_id(0), tl.sum(g * g, 0))


@triton.jit(do_not_specialize=["border", "size", "programs"])
def _adamw(
    half_gradient, rest_gradient, weights, mean, square, half, average, rate, steps, sums,
    border, size, programs, decay, clip, moves, new1, keep2, new2, log1: tl.float64, log2: tl.float64, eps,
    CLIPPED: tl.constexpr, AVERAGED: tl.constexpr, SUMS: tl.constexpr, NUMBERS: tl.constexpr,
):  # fmt: skip
    at = tl.program_id(0) * NUMBERS + tl.arange(0, NUMBERS)
    there = at < size
    g = _gradient(half_gradient, rest_gradient, at, border, size)
    if CLIPPED:
        part = tl.arange(0, SUMS)
        norm = tl.sqrt(tl.sum(tl.load(sums + part, mask=part < programs, other=0.0), 0))
        g *= tl.minimum(clip / (norm + 1e-6), 1.0)
    lr, done = tl.load(rate).to(tl.float32), tl.load(steps).to(tl.float64)
    of_mean, of_square = (1 - tl.exp(done * log1)).to(tl.float32), (1 - tl.exp(done * log2)).to(tl.float32)
    m, v = tl.load(mean + at, mask=there, other=0.0), tl.load(square + at, mask=there, other=0.0)
    m += (g - m) * new1
    v = v * keep2 + g * g * new2
    w = tl.load(weights + at, mask=there, other=0.0) * (1 - lr * decay)
    w -= m / (tl.sqrt(v / of_square) + eps) * (lr / of_mean)
    tl.store(mean + at, m, mask=there)
    tl.store(square + at, v, mask=there)
    tl.store(weights + at, w, mask=there)
    tl.store(half + at, w.to(half.dtype.element_ty), mask=at < border)
    if AVERAGED:
        a = tl.load(average + at, mask=there, other=0.0)
        tl.store(average + at, a + (w - a) * moves, mask=there)


def adamw(
    gradient: tuple[Tensor, Tensor], weights: Tensor, mean: Tensor, square: Tensor, half: Tensor,
    average: Tensor | None, rate: Tensor, steps: Tensor, decay: float, clip: float | None, stays: float,
    betas: tuple[float, float], eps: float,
) -> None:  # fmt: skip
    """One step, in place: gradient [H] and [P - H]; weights, mean, square, average [P] fp32; half [H]; rate and steps
    are scalars on the device."""
    border, size = len(half), len(weights)
    programs = triton.cdiv(size, _NUMBERS)
    sums = torch.empty(programs, device=weights.device)
    if clip is not None:
        _squares[(programs,)](*gradient, sums, border, size, NUMBERS=_NUMBERS)
    _adamw[(programs,)](
        *gradient, weights, mean, square, half, weights if average is None else average, rate, steps, sums,
        border, size, programs, decay, clip or 0.0, 1 - stays, 1 - betas[0], betas[1], 1 - betas[1],
        *(math.log(beta) for beta in betas), eps,
        CLIPPED=clip is not None, AVERAGED=average is not None, SUMS=triton.next_power_of_2(programs),
        NUMBERS=_NUMBERS, num_warps=8,
    )  # fmt: skip
