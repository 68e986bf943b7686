"""Masked multi-head attention: who may attend to whom, and the attention itself."""

from __future__ import annotations

import importlib.util
import math
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from mast_swarm.model.encoding import Rotation, rotate

fused: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if torch.cuda.is_available() and importlib.util.find_spec("triton") is not None:
    from mast_swarm.model import fused


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


@dataclass(frozen=True)
class Near:
    """Who may attend to whom, as what decides it, for the kernel that finds out itself."""

    positions: Tensor  # [B, N, 2] metres
    radius: float | None
    component: Tensor | None  # labels [B, N]


def may_attend(
    positions: Tensor, radius: float | None, component: Tensor | None, head_dim: int, turned: bool
) -> Tensor | Near | None:
    """As `allowed`, or what the fused kernel takes in its place: a GPU with Triton, autocast to half precision, RoPE,
    heads of 32, 64 or 128, and a component in labels."""
    half = positions.is_cuda and torch.is_autocast_enabled("cuda")
    matrix = component is not None and component.dtype == torch.bool
    if half and turned and not matrix and fused is not None and head_dim in (32, 64, 128):
        return Near(positions.float(), radius, component)
    return allowed(positions, radius, component)


def attend_packed(qkv: Tensor, heads: int, rotation: Rotation | None, mask: Tensor | Near | None) -> Tensor:
    """Self-attention of all heads from what one projection gives, queries and keys turned by RoPE.

    qkv [B, N, 3 d]: queries, keys, values, each head by head; rotation: tables [B, N, d_a/2]; mask as from
    `may_attend` -> [B, N, d].
    """
    if isinstance(mask, Near):
        radius = math.inf if mask.radius is None else mask.radius
        return fused.turned_attention(qkv, *cast(Rotation, rotation), mask.positions, mask.component, radius, heads)[0]
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, N, d_a] each
    if rotation is not None:  # after the head split: every head has both axes
        tables = rotation[0][:, None], rotation[1][:, None]  # [B, 1, N, d_a/2], the same for all heads
        q, k = rotate(q, tables), rotate(k, tables)
    return attend(q, k, v, mask).transpose(1, 2).flatten(-2)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention over the allowed keys, eq. (sdpa_sum), per head.

    q [B, H, M, d_a]; k, v [B, H, N, d_a]; mask [B, M, N] bool, True where the query may see the key, each
    row with at least one; None: all -> [B, H, M, d_a]. Scores are <q, k> / sqrt(d_a); the softmax runs over
    the allowed keys, so the weights of a row sum to one.
    """
    return F.scaled_dot_product_attention(q, k, v, None if mask is None else mask[:, None])
