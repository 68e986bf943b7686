"""Attention in windows without an N x N matrix: time and memory grow with the neighbours that there are.

Who attends to whom is found by cells once for all layers, exactly: the distance test decides each pair, cells only
skip those too far apart. There are three ways to attend, with one meaning:

- dense: a mask of all pairs (`attention.allowed`), for small teams;
- lists: neighbour lists in plain torch, on any device; slow, and what the others are measured by;
- kernel: neighbour lists read in place, by compiled loops on the CPU and by Triton on a GPU, forwards and backwards; on
  a GPU in half precision without gradients by tiles of tokens that lie near each other, which need no lists.

Symbols: n = B T tokens in flat numbering b T + i, E listed pairs, d width, H heads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor

from mast_swarm import steady
from mast_swarm.errors import MastError, unknown
from mast_swarm.kernels import USABLE, failed, on_gpu, tried
from mast_swarm.model import lists as listed
from mast_swarm.model.attention import Attention, Pattern, all_pairs, half_of
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.encoding import Rotation, rotate
from mast_swarm.model.lists import Lists, attend_lists, keys_turned, projected, turn_rows
from mast_swarm.space.cells import Cells
from mast_swarm.space.neighbours import pairs_within

if TYPE_CHECKING:
    from mast_swarm.model.mast import Block

tiles: Any = None  # the module of GPU kernels for tiles, where there is a GPU and Triton
if USABLE:
    from mast_swarm.model import tile_kernels as tiles

PATHS = ("dense", "lists", "kernel")
# Tokens up to which the mask of all pairs is taken: on the CPU where lists overtake it, on a GPU also what a captured
# graph needs, since the number of listed pairs is known to the data alone.
DENSE = {"cpu": 128, "cuda": 2048}
_CPU_ROWS = 4096  # rows at a time without gradients
_TILES = "attention by tiles"  # what its kernel is called
SLACK = 1 + 1e-6  # cells are that much larger than the window, beyond any rounding of their borders
Turn = Callable[[Tensor], Rotation | None]


def unturned(positions: Tensor) -> None:
    """No rotation of queries and keys."""


def prepare(
    config: PolicyConfig, positions: Tensor, component: Tensor | None, turn: Turn = unturned, path: str = "auto"
) -> Pattern:
    """Who attends to whom in a policy of this config, to be computed by `path` (auto, or one of PATHS).

    positions [B, T, 2] metres; component: labels [B, T] or a matrix [B, T, T] bool ([b, i, j]: i may hear j), None for
    no component mask; turn: what gives the rotation of tokens at positions [B, T, 2], tables [B, T, d_a/2], or None for
    no RoPE.
    """
    radius, head_dim = config.attention_radius, config.head_dim
    path = choose(path, positions.shape[1], radius, positions.device, config.heads, head_dim)
    if path == "dense" or radius is None:
        return all_pairs(positions, radius, component, turn(positions), head_dim)
    quiet = path == "kernel" and _by_cells(positions, component) and not torch.is_grad_enabled()
    if quiet and _TILES not in failed and half_of(positions) is not None and tiles.takes(config.heads, head_dim):
        _check_finite(positions)
        return _by_kernel(positions, radius, component, turn, tiled=True)
    return find_window(positions, radius, component, path, turn)


def _by_cells(positions: Tensor, component: Tensor | None) -> bool:
    """Whether GPU kernels find who is near whom."""
    matrix = component is not None and component.dtype == torch.bool
    return on_gpu(positions) and not matrix and positions.dtype == torch.float32 and positions.numel() > 0


def choose(path: str, tokens: int, radius: float | None, device: torch.device, heads: int, head_dim: int) -> str:
    """The path to take for so many tokens per environment: the one asked for if it can be, or (auto) the fastest."""
    if path not in ("auto", *PATHS):
        raise unknown("attention path", path, ("auto", *PATHS))
    powers = all(number & (number - 1) == 0 for number in (heads, head_dim))
    kernel = device.type == "cpu" or (device.type == "cuda" and listed.kernels is not None and powers)
    able = ["dense"] + (["lists"] + ["kernel"] * kernel if radius is not None else [])
    if path == "auto":
        small = radius is None or tokens <= DENSE.get(device.type, 0)
        return "dense" if small else able[-1]
    if path not in able:
        why = "without a window" if radius is None else f"on this {device.type} device with heads of {head_dim}"
        raise MastError(f"attention path '{path}' cannot run {why}: use {' or '.join(able)}")
    return path


@dataclass(frozen=True)
class Ordered(Pattern):
    """n = B T tokens, taken in the order of `order`."""

    order: Tensor | None  # [n] int64: the token at each place, environment by environment; None: as they come
    rotation: Rotation | None  # tables [n, d_a/2], in that order

    def arrange(self, x: Tensor) -> Tensor:
        return x if self.order is None else x.flatten(0, 1)[self.order].unflatten(0, x.shape[:2])

    def restore(self, y: Tensor) -> Tensor:
        if self.order is None:
            return y
        rows = y.flatten(0, 1)
        return torch.empty_like(rows).index_copy_(0, self.order, rows).view_as(y)


@dataclass(frozen=True)
class Tiled(Ordered):
    """By kernels on a GPU: tiles of tokens that follow each other, in the order of their cells."""

    place: Tensor  # [n, 2] metres
    label: Tensor | None  # [n]
    runs: tuple[Tensor, Tensor]  # begin and end [n, 3] of the tokens in the cells around each
    radius: float

    def attend(self, attention: Attention, h: Tensor) -> Tensor:
        rows, heads = h.flatten(0, 1), attention.heads
        q, kv = keys_turned(attention, rows, self.rotation, torch.arange(len(rows), device=h.device))
        given = (self.rotation, self.place, self.label, *self.runs, h.shape[1], self.radius * self.radius, heads)
        found = tried(_TILES, lambda: tiles.attend_tiles(q, kv, *given), lambda: self._by_lists(q, kv, heads))
        return cast(Tensor, found).view_as(h)

    def _by_lists(self, q: Tensor, kv: Tensor, heads: int) -> Tensor:
        """For the layers of the very pass in which tiles failed; those after it are given lists."""
        every = torch.arange(len(q), device=q.device)
        if self.rotation is not None:
            turn_rows(q, self.rotation, every, heads)
        lists = Lists(*listed.kernels.neighbours(self.place, self.label, *self.runs, self.radius * self.radius))
        return attend_lists(q, every, kv, lists, heads)


@dataclass(frozen=True)
class Window(Ordered):
    """Neighbour lists, in plain torch."""

    lists: Lists  # whom each attends to, itself among them
    back: Lists  # who attends to each; the same object where seeing is mutual

    def attend(self, attention: Attention, h: Tensor) -> Tensor:
        n, heads = len(self.lists.count), attention.heads
        q, k, v = attention.qkv(h).view(n, 3, heads, -1).unbind(1)  # [n, H, d_a] each
        exact = torch.promote_types(q.dtype, torch.float32)
        if self.rotation is not None:
            tables = self.rotation[0][:, None], self.rotation[1][:, None]
            q, k = rotate(q, tables), rotate(k, tables)
        source, every = self.lists.rows, torch.arange(n, device=h.device)
        target = every.repeat_interleave(self.lists.count, output_size=len(source))  # [E]
        score = (q[target] * k[source]).sum(-1, dtype=exact) * q.shape[-1] ** -0.5  # [E, H]
        spread = target[:, None].expand_as(score)
        top = score.new_full((n, heads), -torch.inf).scatter_reduce(0, spread, score.detach(), "amax")
        weight = (score - top[target]).exp()
        weight = weight / weight.new_zeros(n, heads).index_add(0, target, weight)[target]
        y = v.new_zeros(v.shape, dtype=exact).index_add(0, target, weight[..., None] * v[source].to(exact))
        return y.to(v.dtype).view(*h.shape[:2], -1)


class KernelWindow(Window):
    """The same by kernels that read keys and values in place."""

    def attend(self, attention: Attention, h: Tensor) -> Tensor:
        rows, heads = h.flatten(0, 1), attention.heads
        if not torch.is_grad_enabled():
            every = torch.arange(len(rows), device=h.device)
            q, kv = projected(attention, rows, len(rows), self.rotation, every)
            return attend_lists(q, every, kv, self.lists, heads).view_as(h)
        if on_gpu(h) and not listed.kernels.takes(rows, heads):
            return super().attend(attention, h)
        cos, sin = (None, None) if self.rotation is None else self.rotation
        qkv = listed.loopable(attention.qkv(rows), rows)
        y = cast(Tensor, _KernelAttention.apply(qkv, cos, sin, self, heads))
        return y.view(*h.shape[:2], -1)

    def run(self, blocks: Iterable[Block], x: Tensor) -> tuple[Tensor, Tensor | None]:
        """On the CPU without gradients a few thousand rows at a time in the same memory: new memory costs more there
        than the sums."""
        n = len(self.lists.count)
        if torch.is_grad_enabled() or x.device.type != "cpu" or n <= _CPU_ROWS:
            return super().run(blocks, x)
        rows = x.flatten(0, 1)
        parts = [slice(first, min(first + _CPU_ROWS, n)) for first in range(0, n, _CPU_ROWS)]
        every, lists = torch.arange(n), self.lists
        q, kv, result = torch.empty_like(rows), rows.new_empty(n, 2 * rows.shape[1]), torch.empty_like(rows)
        for block in blocks:
            for part in parts:
                _, h = block.before_attention(rows[part], None)
                q[part], kv[part] = projected(block.attention, h, len(h), self.rotation, every[part])
            for part in parts:
                own = Lists(lists.rows, lists.start[part], lists.count[part])
                answer = attend_lists(q, every[part], kv, own, block.attention.heads)
                torch.add(*block.after_attention(rows[part], answer), out=result[part])
            rows = result
        return result.view_as(x), None


def find_window(positions: Tensor, radius: float, component: Tensor | None, path: str, turn: Turn = unturned) -> Window:
    """Everyone nearer than `radius` metres and of one component, and itself; arguments as in `prepare`."""
    points = positions.detach()
    _check_finite(points)
    matrix = component is not None and component.dtype == torch.bool
    if path == "kernel" and _by_cells(points, component):
        return cast(Window, _by_kernel(positions, radius, component, turn, tiled=False))
    batch, tokens, _ = points.shape
    n = batch * tokens
    order = None
    if path == "kernel" and not matrix and tokens > _CPU_ROWS:  # so that neighbours lie near in memory
        order = Cells.build(points, torch.full((batch,), radius * SLACK, device=points.device)).order
        positions = positions.reshape(-1, 2)[order].view_as(points)
        points = positions.detach()
        component = None if component is None else component.flatten()[order]
    source, target = pairs_within(points, radius, "auto")  # sorted by target
    if component is not None:
        if matrix:
            kept = component.flatten()[target * tokens + source % tokens]
        else:
            kept = component.flatten()[target] == component.flatten()[source]
        source, target = source[kept], target[kept]
    forth = back = _with_itself(source, target, n)
    if matrix:
        turned = source.argsort(stable=True)
        back = _with_itself(target[turned], source[turned], n)
    return (KernelWindow if path == "kernel" else Window)(order, _rows(turn(positions)), forth, back)


def _check_finite(positions: Tensor) -> None:
    """In steady work nobody asks: whoever looks at the results finds out."""
    if steady.may_ask() and not bool(torch.isfinite(positions).all()):
        raise MastError("positions hold NaN or infinity: check the state they come from")


def _rows(rotation: Rotation | None) -> Rotation | None:
    """Tables [B, T, d_a/2] as [n, d_a/2]."""
    return None if rotation is None else (rotation[0].flatten(0, 1), rotation[1].flatten(0, 1))


def _with_itself(source: Tensor, target: Tensor, n: int) -> Lists:
    """Lists of sources by target, which is sorted, each with the target itself at its end."""
    count = torch.bincount(target, minlength=n)
    before = count.cumsum(0) - count  # [n] pairs of lower targets
    every = torch.arange(n, device=source.device)
    rows = torch.empty(len(source) + n, dtype=torch.int64, device=source.device)
    rows[torch.arange(len(source), device=source.device) + target] = source  # each earlier target adds itself
    rows[before + count + every] = every
    return Lists(rows, before + every, count + 1)


def _by_kernel(positions: Tensor, radius: float, component: Tensor | None, turn: Turn, tiled: bool) -> Ordered:
    """On a GPU: tokens in the order of their cells, which keeps those read together near in memory."""
    batch, tokens, _ = positions.shape
    side = torch.full((batch,), radius * SLACK, device=positions.device)
    cells = Cells.build(positions.detach(), side, narrow=True)
    order = cells.order
    positions = positions.reshape(-1, 2)[order].view_as(positions)
    there = positions.detach().flatten(0, 1)
    begin, end, _ = cells.block(there, order // tokens)
    label = None if component is None else component.reshape(-1)[order].contiguous()
    turned, runs = _rows(turn(positions)), (begin.contiguous(), end.contiguous())
    if tiled:
        return Tiled(order, turned, there, label, runs, radius)
    lists = Lists(*listed.kernels.neighbours(there, label, *runs, radius * radius))
    return KernelWindow(order, turned, lists, lists)


class _KernelAttention(torch.autograd.Function):
    """Rotation and attention by kernels; the backward pass turns gradients back."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, cos: Tensor | None, sin: Tensor | None, window: Window, heads: int) -> Tensor:
        turned, d = qkv.clone(), qkv.shape[1] // 3
        every = torch.arange(len(qkv), device=qkv.device)
        if cos is not None and sin is not None:
            turn_rows(turned[:, :d], (cos, sin), every, heads)
            turn_rows(turned[:, d : 2 * d], (cos, sin), every, heads)
        if on_gpu(qkv):
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
        if on_gpu(turned):
            both = ((one.rows, one.start, one.count) for one in (window.lists, window.back))
            into = listed.kernels.attend_backward(turned, y, grads[0], logsum, *both)
        else:
            into = listed.attend_backward(turned, y, grads[0], logsum, window.lists, window.back)
        if cos is not None:
            d, every = y.shape[1], torch.arange(len(y), device=y.device)
            turn_rows(into[:, :d], (cos, -sin), every, ctx.heads)
            turn_rows(into[:, d : 2 * d], (cos, -sin), every, ctx.heads)
        return into, None, None, None, None
