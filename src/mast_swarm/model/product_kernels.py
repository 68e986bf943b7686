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


@cache
def _room(device: torch.device) -> int:
    """Bytes of shared memory that a program may have."""
    if device.type != "cuda":
        return 2**30  # Triton's interpreter has no such limit
    which = torch.cuda.current_device() if device.index is None else device.index
    return triton.runtime.driver.active.utils.get_device_properties(which)["max_shared_mem"]


def _rows(count: int) -> dict[str, int]:
    """Rows of a program, and its warps."""
    rows = min(_MOST_ROWS, max(16, triton.next_power_of_2(triton.cdiv(count, _PROCESSORS))))
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
