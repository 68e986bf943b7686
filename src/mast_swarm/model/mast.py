"""The multi-agent spatial transformer: pre-norm blocks of attention and MLP, and the stack of them."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from mast_swarm.kernels import tried
from mast_swarm.model.attention import Attention, Pattern, linear
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.lists import add_normed, after, feed, takes_after


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

    def whole(self, x: Tensor, answer: Tensor, norm: nn.Module, spare: bool = False) -> tuple[Tensor, Tensor]:
        """The embeddings after the block [..., d], and their `norm`, which is what follows; x and the answer as in
        `after_attention`. By one kernel where there is one for this block, which writes over the answer, and with
        `spare` over x."""
        known = type(self) is Block and isinstance(self.dropout, nn.Identity)
        if known and takes_after(x, answer, self.attention.out, self.norm2, self.mlp, norm):
            return self._at_once(x, answer, norm, spare)
        held = [x]
        del x
        return self._in_turn(held.pop(), answer, norm)

    def _at_once(self, x: Tensor, answer: Tensor, norm: nn.Module, spare: bool) -> tuple[Tensor, Tensor]:
        parts = (self.attention.out, self.norm2, self.mlp, norm)
        return tried(
            "what follows attention",
            lambda: after(x, answer, *parts, spare),
            lambda: self._in_turn(x, answer, norm),
        )

    def _in_turn(self, x: Tensor, answer: Tensor, norm: nn.Module) -> tuple[Tensor, Tensor]:
        held = [x]
        del x
        x, added = self.after_attention(held.pop(), answer)  # which lets go of x before its widest layer
        return add_normed(x, None, added, norm)


class MAST(nn.Module):
    """L blocks and a final norm. The pattern of attention is the same in every layer."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)

    def forward(self, x: Tensor, pattern: Pattern, spare: bool = False) -> Tensor:
        """Tokens x [B, T, d] -> [B, T, d], both in the pattern's order. spare: x may be written over."""
        return pattern.run(cast("list[Block]", list(self.blocks)), self.norm, x, spare)

    def final(self, x: Tensor, added: Tensor | None) -> Tensor:
        """The norm of the last block's two terms, [..., d]."""
        return add_normed(x, None, added, self.norm)[1]
