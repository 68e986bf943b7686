"""Attention over lists on a GPU (Triton): a program a row, which reads its keys and values where they lie.

Gathering them first, as plain torch must, moves each many times over; here a key is read once for each row that lists
it, mostly from the cache.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 16  # keys at a time
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _attend(q, asks, kv, rows, start, count, answer, scale, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr):
    WIDTH: tl.constexpr = HEADS * D
    r = tl.program_id(0).to(tl.int64)
    first, n = tl.load(start + r), tl.load(count + r)
    across = tl.arange(0, HEADS)[:, None] * D + tl.arange(0, D)[None, :]  # [H, D]
    query = tl.load(q + tl.load(asks + r) * WIDTH + across).to(tl.float32) * (scale * _LOG2E)
    top = tl.full([HEADS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS], tl.float32)
    y = tl.zeros([HEADS, D], tl.float32)
    for done in range(0, n, BLOCK):
        place = done + tl.arange(0, BLOCK)
        inside = place < n
        row = tl.load(rows + first + place, mask=inside, other=0)
        at = kv + row[:, None, None] * (2 * WIDTH) + across[None, :, :]  # [BLOCK, H, D]
        keys = tl.load(at, mask=inside[:, None, None], other=0.0).to(tl.float32)
        score = tl.where(inside[:, None], tl.sum(keys * query[None, :, :], 2), float("-inf"))  # [BLOCK, H]
        above = tl.maximum(top, tl.max(score, 0))  # finite: a list is never empty
        p = tl.exp2(score - above[None, :])
        keep = tl.exp2(top - above)
        total = total * keep + tl.sum(p, 0)
        values = tl.load(at + WIDTH, mask=inside[:, None, None], other=0.0).to(tl.float32)
        y = y * keep[:, None] + tl.sum(p[:, :, None] * values, 0)
        top = above
    tl.store(answer + r * WIDTH + across, (y / total[:, None]).to(answer.dtype.element_ty))


def takes(width: int, heads: int) -> bool:
    """Whether the kernel takes these sizes: powers of two."""
    return heads & (heads - 1) == 0 and (width // heads) & (width // heads - 1) == 0


def attend_lists(q: Tensor, asks: Tensor, kv: Tensor, rows: Tensor, start: Tensor, count: Tensor, heads: int) -> Tensor:
    """As `lists.attend_lists`: q [m, d], asks [n], kv [k, 2 d], list r is rows[start[r] : start[r] + count[r]]."""
    answer = torch.empty((len(asks), q.shape[1]), dtype=q.dtype, device=q.device)
    width = q.shape[1] // heads
    q, kv = q.contiguous(), kv.contiguous()
    _attend[(len(asks),)](
        q, asks, kv, rows, start, count, answer, width**-0.5, HEADS=heads, D=width, BLOCK=_BLOCK
    )  # fmt: skip
    return answer
