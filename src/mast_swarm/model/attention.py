"""Masked multi-head attention: who may attend to whom, and the attention itself."""

from __future__ import annotations

import importlib.util
from typing import Any

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


def attend_packed(qkv: Tensor, heads: int, rotation: Rotation | None, mask: Tensor | None) -> Tensor:
    """Self-attention of all heads from what one projection gives, queries and keys turned by RoPE.

    qkv [B, N, 3 d]: queries, keys, values, each head by head; rotation: tables [B, N, d_a/2]; mask [B, N, N] as
    from `allowed` -> [B, N, d]. On a GPU in half precision this is one kernel.
    """
    if rotation is not None and mask is not None and _fusible(qkv, heads):
        return fused.turned_attention(qkv, *rotation, mask, heads)[0]
    q, k, v = qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)  # [B, H, N, d_a] each
    if rotation is not None:  # after the head split: every head has both axes
        tables = rotation[0][:, None], rotation[1][:, None]  # [B, 1, N, d_a/2], the same for all heads
        q, k = rotate(q, tables), rotate(k, tables)
    return attend(q, k, v, mask).transpose(1, 2).flatten(-2)


def _fusible(qkv: Tensor, heads: int) -> bool:
    """Whether the fused kernel takes it: a GPU with Triton, half precision, and heads of 32, 64 or 128."""
    half = qkv.is_cuda and qkv.dtype in (torch.bfloat16, torch.float16)
    return half and fused is not None and qkv.shape[-1] // (3 * heads) in (32, 64, 128)


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention over the allowed keys, eq. (sdpa_sum), per head.

    q [B, H, M, d_a]; k, v [B, H, N, d_a]; mask [B, M, N] bool, True where the query may see the key, each
    row with at least one; None: all -> [B, H, M, d_a]. Scores are <q, k> / sqrt(d_a); the softmax runs over
    the allowed keys, so the weights of a row sum to one.
    """
    return F.scaled_dot_product_attention(q, k, v, None if mask is None else mask[:, None])
