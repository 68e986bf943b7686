"""Attention over lists: each query attends to its own short list of keys, wherever they are stored.

The meaning is that of `model.attention.attend`; what differs is that queries of many views share one store of
keys and values. On the CPU a compiled loop reads them in place, and on a GPU a kernel where there is Triton; elsewhere
they are gathered and padded. `model.windowed` makes such lists of a whole team, and `comms` of every robot's view.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor, nn

from mast_swarm import steady
from mast_swarm.errors import MastError
from mast_swarm.kernels import INTERPRETED, USABLE, on_gpu, tried
from mast_swarm.model import cpu_products
from mast_swarm.model.attention import Attention, attend, half_of, in_half, linear
from mast_swarm.model.cpu_products import Layer
from mast_swarm.model.encoding import Rotation, rotate
from mast_swarm.threads import compiled

# Numbers from which a kernel of our own is taken: torch's are quicker to start. (`mast bench scale` on an H200: a pass
# of 1,000 robots, 256,000 numbers, took 2.9 ms with it and 2.1 ms without.)
_WORTH_A_KERNEL = 1 << 20
kernels: Any = None  # the modules of GPU kernels, where there is a GPU and Triton
products: Any = None
if USABLE:
    from mast_swarm.model import list_kernels as kernels
    from mast_swarm.model import product_kernels as products

_GATHERED = 1 << 26  # floats of keys and values that are gathered at a time


@dataclass(frozen=True)
class Lists:
    """n lists of row numbers: list r is rows[start[r] : start[r] + count[r]], never empty.

    With a table, what is listed are its columns: column c of list r stands for the row table[view[r], c].
    """

    rows: Tensor  # [E] whole numbers
    start: Tensor  # [n] int64
    count: Tensor  # [n] int64
    table: Tensor | None = None  # [V, C] int64
    view: Tensor | None = None  # [n] int64

    def plain(self) -> Lists:
        """The same lists without a table."""
        if self.table is None or self.view is None:
            return self
        view = self.view.repeat_interleave(self.count, output_size=len(self.rows))
        return Lists(self.table[view, self.rows], self.start, self.count)


def attend_lists(q: Tensor, asks: Tensor, kv: Tensor, lists: Lists, heads: int) -> Tensor:
    """Query q[asks[r]] over keys and values kv[list r], softmax over the list, per head.

    q [m, d]; asks [n] int64; kv [k, 2 d], keys then values, each head by head -> [n, d].
    """
    if not len(asks):  # nobody asks where all robots have failed
        return q.new_empty(0, q.shape[1])
    if q.device.type == "cpu" and not on_gpu(q):
        return attend_in_place(q, asks, kv, lists.plain(), heads)[0]
    if kernels is not None and kernels.takes(q, heads):
        through = (lists.table, lists.view)
        return kernels.attend_lists(q, asks, kv, lists.rows, lists.start, lists.count, heads, *through)[0]
    return _attend_gathered(q, asks, kv, lists.plain(), heads)


def _attend_gathered(q: Tensor, asks: Tensor, kv: Tensor, lists: Lists, heads: int) -> Tensor:
    longest, d = int(lists.count.max()), q.shape[1]
    column = torch.arange(longest, device=q.device)
    answer = q.new_empty(len(asks), d)
    size = max(1, _GATHERED // (2 * d * longest))
    for first in range(0, len(asks), size):
        part = slice(first, first + size)
        present = column < lists.count[part, None]  # [p, longest]
        rows = lists.rows[(lists.start[part, None] + column).where(present, 0)]
        keys, values = kv[rows].view(*rows.shape, 2, heads, -1).permute(2, 0, 3, 1, 4)  # [p, H, longest, d_a]
        query = q[asks[part]].view(len(rows), heads, 1, -1)  # [p, H, 1, d_a]
        answer[part] = attend(query, keys, values, present[:, None]).view(len(rows), d)
    return answer


def attend_in_place(q: Tensor, asks: Tensor, kv: Tensor, lists: Lists, heads: int) -> tuple[Tensor, Tensor]:
    """As `attend_lists` on the CPU; also the logarithm of each softmax's denominator [n, H]."""
    answer = torch.empty(len(asks), q.shape[1], dtype=q.dtype)
    logsum = torch.empty(len(asks), heads, dtype=q.dtype)
    rows, start, count = lists.rows.numpy(), lists.start.numpy(), lists.count.numpy()
    with compiled():
        _attend_kernel(q.numpy(), asks.numpy(), kv.numpy(), rows, start, count, heads, answer.numpy(), logsum.numpy())
    return answer, logsum


def attend_backward(qkv: Tensor, y: Tensor, grad: Tensor, logsum: Tensor, lists: Lists, back: Lists) -> Tensor:
    """The gradient [n, 3 d] of turned queries, keys and values [n, 3 d] from that of y [n, d], on the CPU.

    lists: whom each row attends to; back: who attends to it. logsum [n, H] as `attend_in_place` gives it.
    """
    heads, width = logsum.shape[1], y.shape[1] // logsum.shape[1]
    delta = (grad * y).unflatten(-1, (heads, width)).sum(-1)
    into = torch.empty_like(qkv)
    both = [t for one in (lists, back) for t in (one.rows, one.start, one.count)]
    given: list[Any] = [t.numpy() for t in (qkv, grad.contiguous(), logsum, delta, *both, into)]
    with compiled():
        _backward_kernel(*given)
    return into


def loopable(x: Tensor, h: Tensor) -> Tensor:
    """x in a type that the CPU's compiled loops take: they know no half precision, which products under autocast give.
    h: what the product is of; that is in half precision only where the weights are too, which is an error."""
    half = (torch.bfloat16, torch.float16)
    if x.device.type != "cpu" or on_gpu(x):
        return x
    if h.dtype in half:
        raise MastError(
            f"the policy's weights are {h.dtype}: a CPU attends over lists in float32 or float64 alone; "
            "give policy.float()"
        )
    return x.float() if x.dtype in half else x


def turn_rows(x: Tensor, rotation: Rotation, entry: Tensor, heads: int) -> None:
    """Turn rows x [n, H d_a] in place, each head of row r by the phases of rotation[entry[r]] ([U,
    d_a/2])."""
    cos, sin = rotation
    if x.device.type == "cpu" and not on_gpu(x):
        with compiled():
            _turn_kernel(x.numpy(), cos.numpy(), sin.numpy(), entry.numpy(), heads)
    elif kernels is not None and kernels.takes(x, heads):
        kernels.turn_rows(x, cos, sin, entry, heads)
    else:
        table = cos[entry][:, None], sin[entry][:, None]  # [n, 1, d_a/2]
        x.copy_(rotate(x.unflatten(-1, (heads, -1)), table).flatten(-2))


def add_normed(
    x: Tensor, asks: Tensor | None, y: Tensor | None, norm: nn.Module, *, summed: bool = True
) -> tuple[Tensor, Tensor]:
    """x[asks] + y and its norm, by one kernel on a GPU without gradients.

    x [..., d] with asks None (all of x), or x [m, d] with asks [n]; y (None: nothing) and the results are [..., d] or
    [n, d]. Under autocast the kernel gives both in half precision: the norm is what the next product takes, and the
    sum, rounded after it was normed, is less to move. summed: whether the sum will be read; if not, the kernel need not
    write it.
    """
    if _worth_a_kernel(x) and type(norm) is nn.LayerNorm and x.dtype in (torch.float32, half_of(x)):
        rows, more = x.flatten(0, -2), None if y is None else y.flatten(0, -2)
        total, normed = kernels.add_normed(rows, asks, more, norm.weight, norm.bias, norm.eps, summed)
        shape = x.shape if asks is None else normed.shape
        return total.view(shape), normed.view(shape)
    total = x if asks is None else x[asks]
    total = total if y is None else total + y
    return total, norm(total)


def _worth_a_kernel(x: Tensor) -> bool:
    """Whether a kernel of our own works on x, which needs no gradient."""
    if kernels is None or not on_gpu(x) or torch.compiler.is_compiling() or torch.is_grad_enabled():
        return False
    return x.numel() >= _WORTH_A_KERNEL or INTERPRETED or steady.launches_are_free()


def feed(mlp: nn.Sequential, x: Tensor, given: torch.dtype | None = None) -> Tensor:
    """mlp(x), x [..., inputs], of two linear layers with a leaky ReLU between them: by one kernel on a GPU in half
    precision without gradients. given: the precision of the result; None: that of the products."""

    usual = [type(layer) for layer in mlp] == [nn.Linear, nn.LeakyReLU, nn.Linear]  # a family's are of another kind

    def plain() -> Tensor:
        # Rows where that is all the same: what is bent in place then is no view, whose gradient takes five passes.
        y = mlp(x.flatten(0, -2)).unflatten(0, x.shape[:-1]) if usual and x.ndim > 2 else mlp(x)
        return y if given is None else y.to(given)

    if not usual:
        return plain()
    first, bend, last = cast("tuple[nn.Linear, nn.LeakyReLU, nn.Linear]", tuple(mlp))
    fits = x.shape[-1] == first.in_features and first.out_features == last.in_features  # if not, torch says so
    if fits and cpu_products.takes(x, first.weight):
        layers = Layer(first.weight, first.bias, bend.negative_slope), Layer(last.weight, last.bias)
        return cpu_products.linear(x, *layers).to(given or x.dtype)
    half = half_of(x) if _worth_a_kernel(x) else None
    if half is None or not fits:
        return plain()
    if products.takes_feed(first.in_features, first.out_features, last.out_features, x.device):
        return tried("two layers", lambda: _fed(x, half, first, bend, last, given), plain)
    return plain()


def _fed(
    x: Tensor, half: torch.dtype, first: nn.Linear, bend: nn.LeakyReLU, last: nn.Linear, given: torch.dtype | None
) -> Tensor:
    weights = (in_half(p, half) for p in (first.weight, first.bias, last.weight, last.bias))
    y = products.feed(x.flatten(0, -2), *weights, bend.negative_slope, given)
    return y.view(*x.shape[:-1], last.out_features)


def projected(
    attention: Attention, h: Tensor, asked: int, rotation: Rotation | None, entry: Tensor
) -> tuple[Tensor, Tensor]:
    """Queries [asked, d] of the first rows of h [n, d], keys and values [n, 2 d] of all, without gradients.

    Queries and keys of row r are turned by the phases of rotation[entry[r]] ([U, d_a/2]).
    """
    d, heads = h.shape[1], attention.heads
    if asked == len(h) and on_gpu(h):  # one product, and one pass over what is turned of it
        qkv = linear(attention.qkv, h)
        if rotation is not None:
            turn_rows(qkv[:, : 2 * d], rotation, entry, 2 * heads)
        return qkv[:, :d], qkv[:, d:]
    q, kv = (loopable(part, h) for part in attention.split(h, asked))
    if rotation is not None:
        turn_rows(q, rotation, entry[:asked], heads)
        turn_rows(kv[:, :d], rotation, entry, heads)
    return q, kv


def keys_turned(attention: Attention, h: Tensor, rotation: Rotation | None, entry: Tensor) -> tuple[Tensor, Tensor]:
    """Queries [n, d], keys and values [n, 2 d] of all rows of h [n, d], without gradients. Keys alone are turned as in
    `projected`: who reads a query but once turns it there."""
    qkv, d = linear(attention.qkv, h), h.shape[1]
    if rotation is not None:
        turn_rows(qkv[:, d : 2 * d], rotation, entry, attention.heads)
    return qkv[:, :d], qkv[:, d:]


# Sums may be reordered, so that they run in vector registers; infinities and NaN keep their meaning.
_FAST = {"reassoc", "contract", "nsz", "arcp"}


@njit(cache=True, nogil=True, parallel=True, fastmath=_FAST)
def _attend_kernel(q, asks, kv, rows, start, count, heads, answer, logsum):
    d = q.shape[1]
    width = d // heads
    scale = q.dtype.type(1.0 / math.sqrt(width))
    longest = count.max()
    for r in prange(len(asks)):
        weight = np.empty((heads, longest), q.dtype)
        first, n = start[r], count[r]
        for e in range(n):  # keys outside, heads inside: each key is read once, from end to end
            row = rows[first + e]
            for h in range(heads):
                # Slices that are indexed from 0 are what the compiler can vectorise: 6x faster here.
                query, key = q[asks[r], h * width : (h + 1) * width], kv[row, h * width : (h + 1) * width]
                score = q.dtype.type(0.0)
                for c in range(width):
                    score += query[c] * key[c]
                weight[h, e] = score * scale
        for h in range(heads):
            top, total = weight[h, :n].max(), q.dtype.type(0.0)
            for e in range(n):
                weight[h, e] = math.exp(weight[h, e] - top)
                total += weight[h, e]
            for e in range(n):
                weight[h, e] /= total
            logsum[r, h] = top + math.log(total)
        answer[r] = 0.0
        for e in range(n):
            row = rows[first + e]
            for h in range(heads):
                w = weight[h, e]
                out = answer[r, h * width : (h + 1) * width]
                value = kv[row, d + h * width : d + (h + 1) * width]
                for c in range(width):
                    out[c] += w * value[c]


@njit(cache=True, nogil=True, parallel=True, fastmath=_FAST)
def _backward_kernel(qkv, grad, logsum, delta, rows, start, count, back_rows, back_start, back_count, into):
    heads = logsum.shape[1]
    d = grad.shape[1]
    width = d // heads
    scale = qkv.dtype.type(1.0 / math.sqrt(width))
    for r in prange(len(qkv)):
        into[r] = 0.0
        for e in range(start[r], start[r] + count[r]):  # r asks
            j = rows[e]
            for h in range(heads):
                a, b = h * width, (h + 1) * width
                query, dy = qkv[r, a:b], grad[r, a:b]
                key, value = qkv[j, d + a : d + b], qkv[j, 2 * d + a : 2 * d + b]
                score, dp = qkv.dtype.type(0.0), qkv.dtype.type(0.0)
                for c in range(width):
                    score += query[c] * key[c]
                    dp += dy[c] * value[c]
                ds = math.exp(score * scale - logsum[r, h]) * (dp - delta[r, h]) * scale
                dq = into[r, a:b]
                for c in range(width):
                    dq[c] += ds * key[c]
        for e in range(back_start[r], back_start[r] + back_count[r]):  # r is asked
            i = back_rows[e]
            for h in range(heads):
                a, b = h * width, (h + 1) * width
                query, dy = qkv[i, a:b], grad[i, a:b]
                key, value = qkv[r, d + a : d + b], qkv[r, 2 * d + a : 2 * d + b]
                score, dp = qkv.dtype.type(0.0), qkv.dtype.type(0.0)
                for c in range(width):
                    score += query[c] * key[c]
                    dp += dy[c] * value[c]
                p = math.exp(score * scale - logsum[i, h])
                ds = p * (dp - delta[i, h]) * scale
                dk, dv = into[r, d + a : d + b], into[r, 2 * d + a : 2 * d + b]
                for c in range(width):
                    dk[c] += ds * query[c]
                    dv[c] += p * dy[c]


@njit(cache=True, nogil=True, parallel=True)
def _turn_kernel(x, cos, sin, entry, heads):
    half = cos.shape[1]
    for r in prange(len(x)):
        c, s = cos[entry[r]], sin[entry[r]]
        for h in range(heads):
            pair = x[r, 2 * h * half : 2 * (h + 1) * half]
            for k in range(half):
                real, imaginary = pair[2 * k], pair[2 * k + 1]
                pair[2 * k] = real * c[k] - imaginary * s[k]
                pair[2 * k + 1] = real * s[k] + imaginary * c[k]
