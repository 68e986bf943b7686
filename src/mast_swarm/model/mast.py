"""The multi-agent spatial transformer: pre-norm blocks of masked attention and MLP, and the stack of them."""

from __future__ import annotations

from torch import Tensor, nn

from mast_swarm.model import windowed
from mast_swarm.model.attention import Near, attend_packed
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.encoding import Rotation
from mast_swarm.model.windowed import Window

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
        qkv = self.qkv(x)  # [B, N, 3 d], or [n, 3 d] of a window's tokens
        if isinstance(mask, Window):
            return self.out(windowed.attend(qkv, self.heads, rotation, mask))
        return self.out(attend_packed(qkv, self.heads, rotation, mask))


class Block(nn.Module):
    """x += MHSA(LN(x)); x += MLP(LN(x)), with an MLP of hidden width 2d."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        d = config.width
        self.norm1 = nn.LayerNorm(d)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.LeakyReLU(inplace=True), nn.Linear(2 * d, d))

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
        for block in self.blocks:
            x = block(x, rotation, mask)
        return self.norm(x)
