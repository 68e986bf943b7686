"""The multi-agent spatial transformer: pre-norm blocks of masked attention and MLP, and the stack of them."""

from __future__ import annotations

import importlib.util
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mast_swarm.model import windowed
from mast_swarm.model.attention import Near, attend_packed
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.encoding import Rotation
from mast_swarm.model.windowed import Window

norms: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if torch.cuda.is_available() and importlib.util.find_spec("triton") is not None:
    from mast_swarm.model import norms

Mask = Tensor | Near | Window | None
"""Who may attend to whom: a matrix [B, N, N] bool, what decides it, neighbour lists, or everyone to everyone."""


class Attention(nn.Module):
    """Multi-head self-attention, eq. (mhsa), with each head's queries and keys turned by RoPE."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)  # queries, keys, values; each head by head
        self.out = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor, rotation: Rotation | None, mask: Mask) -> Tensor:
        return self.out(self.mix(x, rotation, mask))

    def mix(self, x: Tensor, rotation: Rotation | None, mask: Mask) -> Tensor:
        """What the heads give, side by side, before the last product."""
        qkv = self.qkv(x)  # [B, N, 3 d], or [n, 3 d] of a window's tokens
        if isinstance(mask, Window):
            return windowed.attend(qkv, self.heads, rotation, mask)
        return attend_packed(qkv, self.heads, rotation, mask)


class Block(nn.Module):
    """x += MHSA(LN(x)); x += MLP(LN(x)), with an MLP of hidden width 2d."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        d = config.width
        self.norm1 = nn.LayerNorm(d)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.LeakyReLU(), nn.Linear(2 * d, d))

    def forward(self, x: Tensor, rotation: Rotation | None, mask: Mask) -> Tensor:
        x = x + self.attention(self.norm1(x), rotation, mask)
        return x + self.mlp(self.norm2(x))


class MAST(nn.Module):
    """L blocks and a final norm, [B, N, d] -> [B, N, d]. Rotation and mask are the same in every layer."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, rotation: Rotation | None, mask: Mask) -> Tensor:
        if isinstance(mask, Window):
            return windowed.run(self, x, rotation, mask)
        if _fuses(x):
            return self._fused(x, rotation, mask)
        for block in self.blocks:
            x = block(x, rotation, mask)
        return self.norm(x)

    def _fused(self, x: Tensor, rotation: Rotation | None, mask: Tensor | Near | None) -> Tensor:
        """The same with each sum and the norm after it in one pass; so is the bias of what is added, whose gradient is
        a sum over rows as the norm's are. The result is in the precision of the products."""
        blocks = cast("list[Block]", list(self.blocks))
        after = [*(block.norm1 for block in blocks[1:]), self.norm]  # the norm that follows on each block
        x, h = _add_norm(x, None, None, blocks[0].norm1)
        for block, norm in zip(blocks, after, strict=True):
            y = F.linear(block.attention.mix(h, rotation, mask), block.attention.out.weight)
            x, h = _add_norm(x, y, block.attention.out.bias, block.norm2)
            widen, activate, narrow = cast("list[nn.Linear]", list(block.mlp))
            y = F.linear(activate(widen(h)), narrow.weight)
            x, h = _add_norm(x, y, narrow.bias, norm)
        return h


def _fuses(x: Tensor) -> bool:
    """Whether sums and norms of x [..., d] go through the GPU kernels: fp32 there, and products in bf16."""
    half = torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda") == torch.bfloat16
    return norms is not None and half and x.is_cuda and x.dtype == torch.float32 and norms.takes(x.shape[-1])


def _add_norm(x: Tensor, y: Tensor | None, y_bias: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    return norms.add_norm(x, y, y_bias, norm.weight, norm.bias, norm.eps)
