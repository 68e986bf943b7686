"""Attention: its projections, the interface of every way to compute it, and the ways that look at all pairs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mast_swarm import steady
from mast_swarm.kernels import USABLE, on_gpu
from mast_swarm.model import cpu_products
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.cpu_products import Layer
from mast_swarm.model.encoding import Rotation, rotate

if TYPE_CHECKING:
    from mast_swarm.model.mast import Block

fused: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.model import fused


def half_of(x: Tensor) -> torch.dtype | None:
    """The half precision that products of x are taken in, if they are: its own or that of autocast."""
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    return dtype if dtype in (torch.bfloat16, torch.float16) else None


def in_half(parameter: Tensor, half: torch.dtype) -> Tensor:
    """A layer's parameter in half precision; steady work converts it once."""
    return steady.answer(lambda: parameter.detach().to(half))


def product(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x [..., k] times weight [m, k] plus bias [m], by the quicker library."""
    return cpu_products.linear(x, Layer(weight, bias)) if cpu_products.takes(x, weight) else F.linear(x, weight, bias)


def linear(layer: nn.Linear, x: Tensor) -> Tensor:
    """layer(x), without gradients in steady work by weights that are in half precision already."""
    if type(layer) is nn.Linear and cpu_products.takes(x, layer.weight):
        return cpu_products.linear(x, Layer(layer.weight, layer.bias))
    if torch.compiler.is_compiling() or torch.is_grad_enabled() or not steady.running():
        return layer(x)
    half = half_of(x)
    if half is None or type(layer) is not nn.Linear:  # a family's layers are of another kind
        return layer(x)
    return F.linear(x.to(half), in_half(layer.weight, half), in_half(layer.bias, half))


class Attention(nn.Module):
    """The projections of multi-head self-attention, eq. (mhsa): queries, keys and values, and of the answer `out`."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)  # queries, keys, values; each head by head
        self.out = nn.Linear(config.width, config.width)

    def split(self, h: Tensor, asked: int) -> tuple[Tensor, Tensor]:
        """Queries [asked, d] of the first rows of h [n, d], keys and values [n, 2 d] of all; each in its own memory."""
        d = h.shape[1]
        # In the precision of h before they are cut: autocast would convert each piece anew.
        weight, bias = self.qkv.weight.to(h.dtype), self.qkv.bias.to(h.dtype)
        return product(h[:asked], weight[:d], bias[:d]), product(h, weight[d:], bias[d:])


class Pattern(ABC):
    """Who attends to whom among T tokens of each of B environments, and how the answers are computed.

    A pattern is prepared once (`windowed.prepare`) from positions and components, and serves all layers. It holds the
    rotation of queries and keys too. It may take the tokens in an order of its own; the shapes are the same for all.
    """

    def arrange(self, x: Tensor) -> Tensor:
        """What belongs to tokens, x [B, T, ...], in the pattern's order."""
        return x

    @abstractmethod
    def attend(self, attention: Attention, h: Tensor) -> Tensor:
        """What each token gathers from those that it attends to, before the output projection.

        h [B, T, d] -> [B, T, d], both in the pattern's order.
        """

    def restore(self, y: Tensor) -> Tensor:
        """What belongs to tokens, y [B, T, ...], in the order in which `arrange` was given it."""
        return y

    def run(self, blocks: Iterable[Block], x: Tensor) -> tuple[Tensor, Tensor | None]:
        """What the blocks make of tokens x [B, T, d] in the pattern's order: two terms whose sum is the result.

        Nothing is held longer than it is needed: of a million tokens each of these is up to a gigabyte.
        """
        added = None
        for block in blocks:
            x, h = block.before_attention(x, added)
            added, held = None, [x, self.attend(block.attention, h)]
            del x, h
            answer = held.pop()
            x, added = block.after_attention(held.pop(), answer)  # which lets go of x before its widest layer
            del answer
        return x, added


@dataclass(frozen=True)
class Dense(Pattern):
    """All pairs, with a mask [B, T, T] bool of those that are allowed; None: everyone attends to everyone."""

    mask: Tensor | None
    rotation: Rotation | None  # tables [B, T, d_a/2]

    def attend(self, attention: Attention, h: Tensor) -> Tensor:
        return attend_packed(linear(attention.qkv, h), attention.heads, self.rotation, self.mask)


class Weighed(Pattern):
    """All pairs in plain torch, as in `Dense`; the weights of each layer are kept, to be looked at."""

    def __init__(self, mask: Tensor | None, rotation: Rotation | None) -> None:
        self.mask, self.rotation = mask, rotation
        self.weights: list[Tensor] = []  # of each layer [B, H, T, T]: row i says what token i attends to

    def attend(self, attention: Attention, h: Tensor) -> Tensor:
        q, k, v = turned(attention.qkv(h), attention.heads, self.rotation)
        score = q @ k.mT / math.sqrt(q.shape[-1])
        if self.mask is not None:
            score = score.masked_fill(~self.mask[:, None], -torch.inf)
        self.weights.append(score.softmax(-1))
        return (self.weights[-1] @ v).transpose(1, 2).flatten(-2)


@dataclass(frozen=True)
class Fused(Pattern):
    """All pairs, by the GPU kernel that rotates, masks and attends in one pass."""

    bits: Tensor  # who may attend to whom, as `fused.sight` says it
    rotation: Rotation

    def attend(self, attention: Attention, h: Tensor) -> Tensor:
        return fused.turned_attention(linear(attention.qkv, h), *self.rotation, self.bits, attention.heads)[0]


def all_pairs(
    positions: Tensor, radius: float | None, component: Tensor | None, rotation: Rotation | None, head_dim: int
) -> Pattern:
    """The pattern over all pairs: `Fused` where its kernel runs (a GPU with Triton, autocast to half precision, heads
    and tokens that it takes, and components as labels), `Dense` elsewhere. The arguments are those of `allowed`."""
    half = on_gpu(positions) and torch.is_autocast_enabled(positions.device.type)
    matrix = component is not None and component.dtype == torch.bool
    if half and not matrix and fused is not None and fused.takes(positions.shape[1], head_dim):
        if rotation is None:  # the kernel turns, if only by nothing
            cos = torch.ones((*positions.shape[:2], head_dim // 2), device=positions.device)
            rotation = cos, torch.zeros_like(cos)
        bits = fused.sight(positions.float(), component, math.inf if radius is None else radius)
        return Fused(bits, rotation)
    return Dense(allowed(positions, radius, component), rotation)


def allowed(positions: Tensor, radius: float | None, component: Tensor | None) -> Tensor | None:
    """Who may attend to whom, eq. (attention_mask_mast): [B, N, N] bool, [b, i, j]: i may attend to j.

    positions [B, N, 2] metres; radius of the window, None for no window; component as labels [B, N]
    (equal labels: one component) or as a boolean matrix [B, N, N], None for no component mask. Everyone may
    attend to itself. The answer None means that everyone may attend to everyone.
    """
    mask: Tensor | None = None
    if radius is not None:
        x, y = positions.unbind(-1)  # [B, N] each; squared distances without an [N, N, 2] array
        dx, dy = x[:, :, None] - x[:, None, :], y[:, :, None] - y[:, None, :]
        mask = dx * dx + dy * dy < radius * radius
    if component is not None:
        if component.dtype != torch.bool:
            component = component[:, :, None] == component[:, None, :]
        mask = component if mask is None else mask & component
    if mask is None:
        return None
    return mask | torch.eye(mask.shape[-1], dtype=torch.bool, device=mask.device)


def attend_packed(qkv: Tensor, heads: int, rotation: Rotation | None, mask: Tensor | None) -> Tensor:
    """Self-attention of all heads from what one projection gives, queries and keys turned by RoPE.

    qkv [B, N, 3 d]: queries, keys, values, each head by head; rotation: tables [B, N, d_a/2]; mask as from
    `allowed` -> [B, N, d].
    """
    return attend(*turned(qkv, heads, rotation), mask).transpose(1, 2).flatten(-2)


def turned(qkv: Tensor, heads: int, rotation: Rotation | None) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values [B, H, N, d_a] of what one projection gives, the first two turned by RoPE."""
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    if rotation is not None:  # after the head split: every head has both axes
        tables = rotation[0][:, None], rotation[1][:, None]  # [B, 1, N, d_a/2], the same for all heads
        q, k = rotate(q, tables), rotate(k, tables)
    return q, k, v


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention over the allowed keys, eq. (sdpa_sum), per head.

    q [B, H, M, d_a]; k, v [B, H, N, d_a]; mask [B, M, N] bool, True where the query may see the key, each
    row with at least one; None: all -> [B, H, M, d_a]. Scores are <q, k> / sqrt(d_a); the softmax runs over
    the allowed keys, so the weights of a row sum to one.
    """
    return F.scaled_dot_product_attention(q, k, v, None if mask is None else mask[:, None])
