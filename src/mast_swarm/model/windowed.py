"""Attention in windows without an N x N matrix: time and memory grow with the neighbours that there are.

Who attends to whom is found by cells once for all layers, exactly: the distance test decides each pair, cells only
skip those too far apart. There are three ways to attend, with one meaning:

- dense: a mask of all pairs (`attention.allowed`), for small teams;
- lists: neighbour lists in plain torch, on any device; slow, and what the others are measured by;
- kernel: neighbour lists read in place, by compiled loops on the CPU and by Triton on a GPU, forwards and backwards.

Symbols: n = B T tokens in flat numbering b T + i, E listed pairs, d width, H heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from mast_swarm.errors import MastError, unknown
from mast_swarm.model import lists as listed
from mast_swarm.model.encoding import Rotation, rotate
from mast_swarm.model.lists import Lists, add_normed, attend_lists, turn_rows
from mast_swarm.space.cells import Cells
from mast_swarm.space.neighbours import pairs_within

if TYPE_CHECKING:
    from mast_swarm.model.mast import MAST, Block

PATHS = ("dense", "lists", "kernel")
# Tokens up to which the mask of all pairs is taken: on the CPU where lists overtake it, on a GPU also what a captured
# graph needs, since the number of listed pairs is known to the data alone.
DENSE = {"cpu": 128, "cuda": 2048}
_CPU_ROWS = 4096  # rows at a time without gradients
SLACK = 1 + 1e-6  # cells are that much larger than the window, beyond any rounding of their borders


@dataclass(frozen=True)
class Window:
    """Who attends to whom among n tokens, taken in the order of `order`."""

    lists: Lists  # whom each attends to, itself among them
    back: Lists  # who attends to each; the same object where seeing is mutual
    order: Tensor | None  # [n] int64: the token at each place; None: as they come
    path: str  # lists or kernel

    def in_place(self, found: Tensor) -> Tensor:
        """What was found for tokens in the window's order, [n, ...], in their own."""
        return found if self.order is None else torch.zeros_like(found).index_copy(0, self.order, found)


def choose(path: str, tokens: int, radius: float | None, device: torch.device, heads: int, head_dim: int) -> str:
    """The path to take for so many tokens an environment: the one asked for if it can be, or (auto) the fastest."""
    if path not in ("auto", *PATHS):
        raise unknown("attention path", path, ("auto", *PATHS))
    kernel = device.type == "cpu" or (_kernels(device) and _power(heads) and _power(head_dim))
    able = ["dense"] + (["lists"] + ["kernel"] * kernel if radius is not None else [])
    if path == "auto":
        small = radius is None or tokens <= DENSE.get(device.type, 0)
        return "dense" if small else able[-1]
    if path not in able:
        why = "without a window" if radius is None else f"on this {device.type} device with heads of {head_dim}"
        raise MastError(f"attention path '{path}' cannot run {why}: use {' or '.join(able)}")
    return path


def _kernels(device: torch.device) -> bool:
    return device.type == "cuda" and listed.kernels is not None


def _power(number: int) -> bool:
    return number & (number - 1) == 0


def find_window(positions: Tensor, radius: float, component: Tensor | None, path: str) -> Window:
    """Everyone nearer than `radius` metres and of one component, and itself; positions [B, T, 2].

    component: labels [B, T] or a matrix [B, T, T] bool ([b, i, j]: i may hear j), None for no component mask.
    """
    points = positions.detach()
    if not bool(torch.isfinite(points).all()):
        raise MastError("positions hold NaN or infinity: check the state they come from")
    matrix = component is not None and component.dtype == torch.bool
    if path == "kernel" and points.is_cuda and not matrix and points.dtype == torch.float32 and points.numel():
        return _by_kernel(points, radius, component)
    batch, tokens, _ = points.shape
    n = batch * tokens
    order = None
    if path == "kernel" and not matrix and tokens > _CPU_ROWS:  # so that neighbours lie near in memory
        order = Cells.build(points, torch.full((batch,), radius * SLACK, device=points.device)).order
        points = points.reshape(-1, 2)[order].view_as(points)
        component = None if component is None else component.flatten()[order]
    source, target = pairs_within(points, radius, "auto")  # sorted by target
    if component is not None:
        if matrix:
            kept = component.flatten()[target * tokens + source % tokens]
        else:
            kept = component.flatten()[target] == component.flatten()[source]
        source, target = source[kept], target[kept]
    forth = _with_itself(source, target, n)
    if not matrix:
        return Window(forth, forth, order, path)
    order = source.argsort(stable=True)
    return Window(forth, _with_itself(target[order], source[order], n), None, path)


def _with_itself(source: Tensor, target: Tensor, n: int) -> Lists:
    """Lists of sources by target, which is sorted, each with the target itself at its end."""
    count = torch.bincount(target, minlength=n)
    before = count.cumsum(0) - count  # [n] pairs of lower targets
    every = torch.arange(n, device=source.device)
    rows = torch.empty(len(source) + n, dtype=torch.int64, device=source.device)
    rows[torch.arange(len(source), device=source.device) + target] = source  # each earlier target adds itself
    rows[before + count + every] = every
    return Lists(rows, before + every, count + 1)


def _by_kernel(points: Tensor, radius: float, component: Tensor | None) -> Window:
    """On a GPU: tokens in the order of their cells, which keeps those read together near in memory."""
    batch, tokens, _ = points.shape
    cells = Cells.build(points, torch.full((batch,), radius * SLACK, device=points.device))
    there = points.reshape(-1, 2)[cells.order]
    begin, end, _ = cells.block(there, cells.order // tokens)
    label = None if component is None else component.reshape(-1)[cells.order].contiguous()
    found = listed.kernels.neighbours(there, label, begin.contiguous(), end.contiguous(), radius * radius)
    lists = Lists(*found)
    return Window(lists, lists, cells.order, "kernel")


def attend(qkv: Tensor, heads: int, rotation: Rotation | None, window: Window) -> Tensor:
    """Self-attention from what one projection gives: qkv [n, 3 d], rotation tables [n, d_a/2] -> [n, d]."""
    if window.path == "kernel" and (not qkv.is_cuda or listed.kernels.takes(qkv[:, : qkv.shape[1] // 3], heads)):
        cos, sin = rotation if rotation is not None else (None, None)
        return cast(Tensor, _Attention.apply(listed.loopable(qkv), cos, sin, window, heads))
    n = len(qkv)
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).unbind(1)  # [n, H, d_a] each
    if rotation is not None:
        tables = rotation[0][:, None], rotation[1][:, None]
        q, k = rotate(q, tables), rotate(k, tables)
    every = torch.arange(n, device=qkv.device)
    target = every.repeat_interleave(window.lists.count, output_size=len(window.lists.rows))  # [E]
    source = window.lists.rows
    score = (q[target] * k[source]).sum(-1, dtype=torch.float32) * q.shape[-1] ** -0.5  # [E, H]
    spread = target[:, None].expand_as(score)
    top = score.new_full((n, heads), -torch.inf).scatter_reduce(0, spread, score.detach(), "amax")
    weight = (score - top[target]).exp()
    weight = weight / weight.new_zeros(n, heads).index_add(0, target, weight)[target]
    y = v.new_zeros(v.shape, dtype=torch.float32).index_add(0, target, weight[..., None] * v[source].float())
    return y.to(v.dtype).flatten(1)


class _Attention(torch.autograd.Function):
    """Rotation and attention by kernels; the backward pass turns gradients back."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor | None, sin: Tensor | None, window: Window, heads: int) -> Tensor:
        turned, d = qkv.clone(), qkv.shape[1] // 3
        every = torch.arange(len(qkv), device=qkv.device)
        if cos is not None and sin is not None:
            turn_rows(turned[:, :d], (cos, sin), every, heads)
            turn_rows(turned[:, d : 2 * d], (cos, sin), every, heads)
        if qkv.is_cuda:
            lists = (window.lists.rows, window.lists.start, window.lists.count)
            y, logsum = listed.kernels.attend_lists(turned[:, :d], every, turned[:, d:], *lists, heads)
        else:
            q, kv = turned[:, :d].contiguous(), turned[:, d:].contiguous()
            y, logsum = listed.attend_in_place(q, every, kv, window.lists, heads)
        ctx.save_for_backward(turned, y, logsum, cos, sin)
        ctx.window, ctx.heads = window, heads
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        turned, y, logsum, cos, sin = ctx.saved_tensors
        window: Window = ctx.window
        if turned.is_cuda:
            both = ((one.rows, one.start, one.count) for one in (window.lists, window.back))
            into = listed.kernels.attend_backward(turned, y, grads[0], logsum, *both)
        else:
            into = listed.attend_backward(turned, y, grads[0], logsum, window.lists, window.back)
        if cos is not None:
            d, every = y.shape[1], torch.arange(len(y), device=y.device)
            turn_rows(into[:, :d], (cos, -sin), every, ctx.heads)
            turn_rows(into[:, d : 2 * d], (cos, -sin), every, ctx.heads)
        return into, None, None, None, None


def run(mast: MAST, x: Tensor, rotation: Rotation | None, window: Window) -> Tensor:
    """What `mast` makes of tokens x [B, T, d], with rotation tables [B, T, d_a/2]: [n, d] in the window's order."""
    flat = x.flatten(0, 1)
    tables = None if rotation is None else (rotation[0].flatten(0, 1), rotation[1].flatten(0, 1))
    if window.path == "kernel" and not torch.is_grad_enabled():
        return _infer(mast, flat, tables, window)
    if window.order is not None:
        flat = flat[window.order]
        tables = None if tables is None else (tables[0][window.order], tables[1][window.order])
    for block in mast.blocks:
        flat = block(flat, tables, window)
    return mast.norm(flat)


def _infer(mast: MAST, x: Tensor, rotation: Rotation | None, window: Window) -> Tensor:
    """The same without gradients: sums and norms in one pass, nothing kept; on the CPU a few thousand rows at a time in
    the same memory, since new memory costs more there than the sums."""
    blocks = cast("list[Block]", list(mast.blocks))
    norms = [*(block.norm1 for block in blocks[1:]), mast.norm]  # each follows on a block
    n, lists = len(x), window.lists
    every = torch.arange(n, device=x.device)
    token = every if window.order is None else window.order
    size = _CPU_ROWS if x.device.type == "cpu" else n
    parts = [slice(first, min(first + size, n)) for first in range(0, n, size)]
    x, h = add_normed(x, window.order, None, blocks[0].norm1)
    if len(parts) > 1:
        x, h = x.clone(), h.contiguous()  # written to below
        q, kv = torch.empty_like(x), x.new_empty(n, 2 * x.shape[1])
    for block, norm in zip(blocks, norms, strict=True):
        for part in parts:
            into = None if len(parts) == 1 else (q[part], kv[part])
            found = project(block, h[part], size, rotation, token[part], into)
        if len(parts) == 1:
            q, kv = found
        for part in parts:
            own = Lists(lists.rows, lists.start[part], lists.count[part])
            y = attend_lists(q, every[part], kv, own, block.attention.heads)
            if len(parts) == 1:
                x, normed = add_normed(x, None, block.attention.out(y), block.norm2)
                x, h = add_normed(x, None, block.mlp(normed), norm)
            else:
                x[part] += block.attention.out(y)
                x[part] += block.mlp(block.norm2(x[part]))
                h[part] = norm(x[part])
    return h


def project(
    block: Block,
    h: Tensor,
    asked: int,
    rotation: Rotation | None,
    entry: Tensor,
    into: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """Queries [asked, d] of the first rows, keys and values [n, 2 d] of all, from the normed h [n, d]; row r is turned
    by the phases of rotation[entry[r]]. into: where to write them."""
    attention, d = block.attention, h.shape[1]
    # In the precision of h before they are cut: autocast would turn each piece anew.
    weight, bias = attention.qkv.weight.to(h.dtype), attention.qkv.bias.to(h.dtype)
    if into is None:
        q = listed.loopable(F.linear(h[:asked], weight[:d], bias[:d]))
        kv = listed.loopable(F.linear(h, weight[d:], bias[d:]))
    else:
        both = F.linear(h, weight, bias)
        q, kv = into[0].copy_(both[:, :d]), into[1].copy_(both[:, d:])
    if rotation is not None:
        turn_rows(q, rotation, entry[:asked], attention.heads)
        turn_rows(kv[:, :d], rotation, entry, attention.heads)
    return q, kv
