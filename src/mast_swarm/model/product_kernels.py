"""Products of many rows with a layer's weights on a GPU (Triton), and what is done to their results on the way out.

A library's product writes its result to memory, where an activation or a rotation reads it, changes it and writes it
again: of a million rows these passes take as long as the products. Here a program holds some rows from end to end. For
half precision and no gradients, which is how large teams run.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

_PROCESSORS = 128  # about as many as a large GPU has: fewer rows than fill them are cut finer
_MOST_ROWS = 128  # of a program
_WIDEST = 256  # numbers of a row that a program holds
_PROJECTED = 128, 64, 2  # rows and columns at a time of queries, keys and values, and stages
_CHUNK, _STAGES = 64, 2  # numbers of a hidden layer that are made at a time, and of how many the weights are on the way
_KEPT = False  # whether the norm in a block's middle stays in registers
Pair = tuple[Tensor, Tensor]  # weight and bias
Normed = tuple[Tensor, Tensor, float]  # weight, bias and eps


@triton.jit
def _feed(
    x, w1, b1, w2, b2, y, rows, x_stride, slope,
    INPUTS: tl.constexpr, HIDDEN: tl.constexpr, OUTPUTS: tl.constexpr, IN: tl.constexpr, OUT: tl.constexpr,
    CHUNK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Two layers with a leaky ReLU between them: the hidden ones are made, bent and used up some at a time."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    wide, out = tl.arange(0, IN), tl.arange(0, OUT)
    given = (row[:, None] < rows) & (wide[None, :] < INPUTS)
    h = tl.load(x + row[:, None] * x_stride + wide[None, :], mask=given, other=0.0).to(w1.dtype.element_ty)
    total = tl.zeros([ROWS, OUT], tl.float32)
    for first in range(0, HIDDEN, CHUNK):
        hidden = first + tl.arange(0, CHUNK)
        into = tl.load(w1 + hidden[None, :] * INPUTS + wide[:, None], mask=wide[:, None] < INPUTS, other=0.0)
        t = tl.dot(h, into) + tl.load(b1 + hidden).to(tl.float32)[None, :]
        t = tl.where(t > 0, t, t * slope)
        back = tl.load(w2 + out[None, :] * HIDDEN + hidden[:, None], mask=out[None, :] < OUTPUTS, other=0.0)
        total = tl.dot(t.to(w2.dtype.element_ty), back, total)
    total += tl.load(b2 + out, mask=out < OUTPUTS, other=0.0).to(tl.float32)[None, :]
    there = (row[:, None] < rows) & (out[None, :] < OUTPUTS)
    tl.store(y + row[:, None] * OUTPUTS + out[None, :], total.to(y.dtype.element_ty), mask=there)


@triton.jit
def _norm(v, weight, bias, wide, eps, WIDTH: tl.constexpr):
    """Layer norm of rows v [ROWS, WIDTH]."""
    mean = tl.sum(v, 1) / WIDTH
    off = v - mean[:, None]
    scale = tl.rsqrt(tl.sum(off * off, 1) / WIDTH + eps)
    h = tl.fma(v, scale[:, None], (-mean * scale)[:, None])  # of v itself: `off` need not be kept
    return h * tl.load(weight + wide)[None, :] + tl.load(bias + wide)[None, :]


@triton.jit
def _after(
    answer, x, wo, bo, weight2, bias2, w1, b1, w2, b2, weight, bias, total, normed, rows, slope, eps2, eps,
    KEPT: tl.constexpr, WIDTH: tl.constexpr, HIDDEN: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """What follows attention in a block, row by row: total = x + wo @ answer + bo, to it two layers of its norm with a
    leaky ReLU between them are added, and normed is the norm of that. The sum never leaves the registers: products add
    to it. `normed` may be `answer`, and `total` may be x. KEPT: the norm between stays in registers too, or is written
    to `normed` and read again, from the cache."""
    begin = tl.program_id(0).to(tl.int64) * ROWS
    answer, x, total, normed = answer + begin * WIDTH, x + begin * WIDTH, total + begin * WIDTH, normed + begin * WIDTH
    row, wide, some = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, CHUNK)
    there = row[:, None] < rows - begin
    at = row[:, None] * WIDTH + wide[None, :]
    half = normed.dtype.element_ty
    v = tl.load(x + at, mask=there, other=0.0).to(tl.float32) + tl.load(bo + wide).to(tl.float32)[None, :]
    for first in range(0, WIDTH, CHUNK):
        part = tl.load(answer + row[:, None] * WIDTH + (first + some)[None, :], mask=there, other=0.0)
        v = tl.dot(part, tl.load(wo + wide[None, :] * WIDTH + (first + some)[:, None]), v)
    h = _norm(v, weight2, bias2, wide, eps2, WIDTH).to(half)
    if not KEPT:
        tl.store(normed + at, h, mask=there)
        tl.debug_barrier()  # other threads read what was written
        h = tl.load(normed + at, mask=there, other=0.0)
    v += tl.load(b2 + wide).to(tl.float32)[None, :]
    for first in range(0, HIDDEN, CHUNK):
        hidden = first + some
        t = tl.dot(h, tl.load(w1 + hidden[None, :] * WIDTH + wide[:, None]))
        t += tl.load(b1 + hidden).to(tl.float32)[None, :]
        t = tl.where(t > 0, t, t * slope)
        v = tl.dot(t.to(half), tl.load(w2 + wide[None, :] * HIDDEN + hidden[:, None]), v)
    tl.store(total + at, v, mask=there)
    tl.store(normed + at, _norm(v, weight, bias, wide, eps, WIDTH).to(half), mask=there)


@triton.jit
def _project(
    h, w, b, cos, sin, qkv, rows,
    WIDTH: tl.constexpr, E: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Queries, keys and values of some rows; real and imaginary parts of the first two are made apart, and turned."""
    begin = tl.program_id(0).to(tl.int64) * ROWS
    h, cos, sin, qkv = h + begin * WIDTH, cos + begin * E, sin + begin * E, qkv + begin * (3 * WIDTH)
    row, wide, some = tl.arange(0, ROWS), tl.arange(0, WIDTH), tl.arange(0, BLOCK)
    there = row[:, None] < rows - begin
    x = tl.load(h + row[:, None] * WIDTH + wide[None, :], mask=there, other=0.0)
    half = qkv.dtype.element_ty
    for first in range(0, WIDTH, BLOCK):  # complex elements of queries, then of keys
        c = first + some
        real = tl.dot(x, tl.load(w + c[None, :] * WIDTH + wide[:, None]))
        imaginary = tl.dot(x, tl.load(w + WIDTH * WIDTH + c[None, :] * WIDTH + wide[:, None]))
        real += tl.load(b + c).to(tl.float32)[None, :]
        imaginary += tl.load(b + WIDTH + c).to(tl.float32)[None, :]
        phase = row[:, None] * E + (c % E)[None, :]
        co, si = tl.load(cos + phase, mask=there, other=0.0), tl.load(sin + phase, mask=there, other=0.0)
        at = qkv + row[:, None] * (3 * WIDTH) + (c // E * (2 * E) + c % E)[None, :]
        tl.store(at, (real * co - imaginary * si).to(half), mask=there)
        tl.store(at + E, (real * si + imaginary * co).to(half), mask=there)
    for first in range(0, WIDTH, BLOCK):
        c = 2 * WIDTH + first + some
        value = tl.dot(x, tl.load(w + c[None, :] * WIDTH + wide[:, None])) + tl.load(b + c).to(tl.float32)[None, :]
        tl.store(qkv + row[:, None] * (3 * WIDTH) + c[None, :], value.to(half), mask=there)


@cache
def _room(device: torch.device) -> int:
    """Bytes of shared memory that a program may have."""
    if device.type != "cuda":
        return 2**30  # Triton's interpreter has no such limit
    which = torch.cuda.current_device() if device.index is None else device.index
    return triton.runtime.driver.active.utils.get_device_properties(which)["max_shared_mem"]


def _rows(count: int, most: int | None = None) -> dict[str, int]:
    """Rows of a program, and its warps."""
    rows = min(most or _MOST_ROWS, max(16, triton.next_power_of_2(triton.cdiv(count, _PROCESSORS))))
    return {"ROWS": rows, "num_warps": 8 if rows > 64 else 4}


def _power(number: int) -> int:
    """What a product takes for so many numbers: a power of two, 16 at least."""
    return max(16, triton.next_power_of_2(number))


def _chunk(hidden: int) -> int:
    """Hidden numbers that are made at a time."""
    return 64 if hidden % 64 == 0 else 32


def takes_feed(inputs: int, hidden: int, outputs: int, device: torch.device) -> bool:
    """Whether `feed` takes layers of these widths: what a program holds of rows and weights must fit."""
    wide, out, chunk = _power(inputs), _power(outputs), _chunk(hidden)
    held = 2 * (_MOST_ROWS * wide + 2 * chunk * (wide + out))
    return max(wide, out) <= _WIDEST and hidden % 32 == 0 and held <= _room(device)


def feed(
    x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor, slope: float, given: torch.dtype | None = None
) -> Tensor:
    """w2 @ leaky_relu(w1 @ x + b1) + b2 for rows x [n, inputs] of any precision -> [n, outputs] in the precision
    `given`, None: in that of the weights w1 [hidden, inputs], w2 [outputs, hidden], b1, b2."""
    x = x if x.stride(1) == 1 else x.contiguous()
    (hidden, inputs), outputs = w1.shape, len(w2)
    y = torch.empty((len(x), outputs), dtype=given or w1.dtype, device=x.device)
    shape = _rows(len(x))
    _feed[(triton.cdiv(len(x), shape["ROWS"]),)](
        x, w1.contiguous(), b1, w2.contiguous(), b2, y, len(x), x.stride(0), slope,
        INPUTS=inputs, HIDDEN=hidden, OUTPUTS=outputs, IN=_power(inputs), OUT=_power(outputs),
        CHUNK=_chunk(hidden), num_stages=2, **shape,
    )  # fmt: skip
    return y


def takes_after(width: int, hidden: int, device: torch.device) -> bool:
    """Whether `after` takes a block of this width."""
    return width in (64, 128, 256) and hidden % 64 == 0 and takes_feed(width, hidden, width, device)


def after(
    x: Tensor, answer: Tensor, out: Pair, norm2: Normed, first: Pair, last: Pair, norm: Normed, slope: float,
    spare: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """x + out(answer), to it two layers of its norm2 added, and the norm of that.

    x [n, d] of any precision; answer [n, d] and the weights and biases of the layers in half precision; weight, bias
    and eps of the norms in fp32 -> [n, d] fp32 and [n, d] in half precision, written over the answer. spare: the first
    may be written over x.
    """
    n, d = answer.shape
    x, answer = x.contiguous(), answer.contiguous()
    total = x if spare and x.dtype == torch.float32 else torch.empty((n, d), dtype=torch.float32, device=x.device)
    shape = _rows(n)
    _after[(triton.cdiv(n, shape["ROWS"]),)](
        answer, x, *out, *norm2[:2], *first, *last, *norm[:2], total, answer, n, slope, norm2[2], norm[2],
        KEPT=_KEPT, WIDTH=d, HIDDEN=len(first[0]), CHUNK=_CHUNK, num_stages=_STAGES, **shape,
    )  # fmt: skip
    return total, answer


def takes_project(width: int, heads: int, device: torch.device) -> bool:
    """Whether `project` takes rows of this width."""
    return width in (64, 128, 256) and width % (2 * heads) == 0 and takes_feed(width, width, width, device)


def parted(qkv: Tensor) -> Tensor:
    """Weights [3 d, d] or biases [3 d] of queries, keys and values as `project` takes them: of the first two the real
    parts of all complex elements come first, then the imaginary ones."""
    d = len(qkv) // 3
    return torch.cat((qkv[: 2 * d : 2], qkv[1 : 2 * d : 2], qkv[2 * d :]))


def project(h: Tensor, weight: Tensor, bias: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Queries, keys and values [n, 3 d] of rows h [n, d], the first two turned by the phases cos, sin [n, d_a/2] of
    their rows. weight and bias are `parted`. In each head of queries and of keys the real parts come first, then the
    imaginary ones, which is all the same to their products."""
    n, d = h.shape
    qkv = torch.empty((n, 3 * d), dtype=h.dtype, device=h.device)
    most, block, stages = _PROJECTED
    shape = _rows(n, most)
    _project[(triton.cdiv(n, shape["ROWS"]),)](
        h.contiguous(), weight, bias, cos.contiguous(), sin.contiguous(), qkv, n,
        WIDTH=d, E=cos.shape[1], BLOCK=min(d, block), num_stages=stages, **shape,
    )  # fmt: skip
    return qkv
