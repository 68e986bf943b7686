"""The multi-agent spatial transformer: pre-norm blocks of attention and MLP, and the stack of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from torch import Tensor, nn

from mast_swarm.kernels import USABLE
from mast_swarm.model.attention import Attention, Pattern, linear
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.lists import add_normed, feed

trained: Any = None  # the module that trains blocks by GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.model import trained


class Block(nn.Module):
    """x += MHSA(LN(x)); x += MLP(LN(x)), with an MLP of hidden width 2d.

    Every path composes the two halves below, and only these, with its own attention between them: a change of the
    architecture is a change here. Both halves work row by row. The last sum of a block is left to the next norm, which
    takes it in the same pass: a block is given two terms, x and `added`, and gives two.
    """

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        d = config.width
        self.norm1 = nn.LayerNorm(d)
        self.attention = Attention(config)
        self.norm2 = nn.LayerNorm(d)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.LeakyReLU(inplace=True), nn.Linear(2 * d, d))
        self.dropout: nn.Module = nn.Dropout(config.dropout) if config.dropout else nn.Identity()

    def before_attention(self, x: Tensor, added: Tensor | None) -> tuple[Tensor, Tensor]:
        """The embeddings x + added [..., d] (None: nothing is added), and what attention projects, [..., d]."""
        return add_normed(x, None, added, self.norm1)

    def after_attention(self, x: Tensor, answer: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The two terms of the block's result [..., d], from the embeddings and what attention has answered.

        rows [n] int64: answer [n, d] is that of the rows x[rows] of x [m, d]; None: of all, in their order.
        """
        x, h = add_normed(x, rows, self.dropout(linear(self.attention.out, answer)), self.norm2)
        return x, self.dropout(feed(self.mlp, h))


_KNOWN = Block  # what `trained` knows by heart


class MAST(nn.Module):
    """L blocks and a final norm. The pattern of attention is the same in every layer."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, pattern: Pattern) -> Tensor:
        """Tokens x [B, T, d] -> [B, T, d], both in the pattern's order."""
        known = trained is not None and all(type(block) is _KNOWN for block in self.blocks)
        if known and trained.takes(self, pattern, x):
            return trained.run(self, pattern, x)
        return self.final(*pattern.run(cast("Iterable[Block]", self.blocks), x))

    def final(self, x: Tensor, added: Tensor | None) -> Tensor:
        """The norm of the last block's two terms, [..., d]."""
        return add_normed(x, None, added, self.norm, summed=False)[1]
