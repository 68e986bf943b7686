"""The blocks of MAST in training on a GPU in half precision, forwards and backwards by hand.

Why by hand: autograd and the compiler move the residual stream and its gradient in fp32, read each gradient once more
to sum it, for a bias, and make some sixty kernels of a block. Here the stream and its gradient are in half precision,
as where policies run without gradients (norms and sums inside are fp32), and twenty kernels make a block. The meaning
is that of `MAST.forward`, which composes `Block`s: that stays the plain way, and a change of the block is one here.

Symbols: B environments of T tokens, n = B T, d width, L blocks, P parts of a sum over tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mast_swarm.model import fused, trained_kernels
from mast_swarm.model.attention import Fused, Pattern, half_of
from mast_swarm.model.list_kernels import add_normed

if TYPE_CHECKING:
    from mast_swarm.model.mast import MAST, Block

_OF_BLOCK, _KEPT = 12, 8  # parameters of a block, and tensors that are kept of it for the gradient


def takes(stack: MAST, pattern: Pattern, x: Tensor) -> bool:
    """Whether `run` takes these blocks, each a `mast.Block`: of the usual layers, without dropout, where gradients are
    wanted of a pass by the fused kernel."""
    if not torch.is_grad_enabled() or not isinstance(pattern, Fused) or half_of(x) is None:
        return False
    layers = [type(layer) for block in stack.blocks for layer in _layers(block)]  # type: ignore[arg-type]
    expected = [nn.LayerNorm, nn.Linear, nn.Linear, nn.LayerNorm, nn.Linear, nn.LeakyReLU, nn.Linear, nn.Identity]
    return layers == expected * len(stack.blocks) and type(stack.norm) is nn.LayerNorm


def run(stack: MAST, pattern: Fused, x: Tensor) -> Tensor:
    """What `MAST.forward` makes of tokens x [B, T, d], in half precision: [B, T, d]."""
    half, weights = half_of(x) or x.dtype, []
    for block in stack.blocks:
        norm1, qkv, out, norm2, first, bend, last, _ = _layers(block)  # type: ignore[arg-type]
        for layer in (norm1, qkv, out, norm2, first, last):
            dtype = torch.float32 if layer in (norm1, norm2) else half
            weights += [layer.weight.to(dtype), layer.bias.to(dtype)]
    weights += [stack.norm.weight.float(), stack.norm.bias.float()]
    heads = stack.blocks[0].attention.heads  # type: ignore[union-attr]
    cos, sin = (table.contiguous() for table in pattern.rotation)
    numbers = (heads, stack.norm.eps, bend.negative_slope)
    return blocks(x.contiguous(), cos, sin, pattern.bits, weights, *numbers)[0]


def _layers(block: Block) -> tuple[nn.Module, ...]:
    return block.norm1, block.attention.qkv, block.attention.out, block.norm2, *block.mlp, block.dropout


@dataclass(frozen=True)
class _Shape:
    """Where what is summed over tokens goes, of L blocks: columns of d numbers and of hidden layers."""

    layers: int
    width: int
    hidden: int

    @staticmethod
    def of(weights: Sequence[Tensor]) -> _Shape:
        hidden, width = weights[8].shape
        return _Shape(len(weights) // _OF_BLOCK, width, hidden)

    @property
    def norms(self) -> int:
        """Two of each block, and the final one."""
        return 2 * self.layers + 1

    @property
    def border(self) -> int:
        """The gradients of norms come first, weight and bias of each."""
        return 2 * self.norms * self.width

    @property
    def columns(self) -> int:
        return self.border + self.norms * self.width + self.layers * self.hidden

    def sums(self, norm: int) -> tuple[int, int]:
        """The columns of a norm's own gradients, and of the bias of the layer whose answer it is the first to see."""
        return 2 * norm * self.width, self.border + norm * self.width

    def of_hidden(self, layer: int) -> int:
        return self.border + self.norms * self.width + layer * self.hidden


@torch.library.custom_op("mast::blocks", mutates_args=())
def blocks(
    x: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, weights: list[Tensor], heads: int, eps: float, slope: float
) -> list[Tensor]:
    """The final norm of what the blocks make of x [B, T, d], and what `blocks_backward` needs of the way there.

    cos, sin, bits as `fused.turned_attention` takes them; weights: of each block weight and bias of the first norm, the
    projection, the output, the second norm, the two layers of the MLP; then those of the final norm. Those of norms are
    fp32, the others in half precision. Kept of each block: the stream before it (of the first one nothing: that is x),
    its norm, the projections, the answer and its logarithms, the stream before the MLP, its norm, the hidden layer; and
    the stream at the end.
    """
    (batch, tokens, width), half = x.shape, weights[2].dtype
    stream, added, kept = x.flatten(0, 1), None, []
    for first in range(0, len(weights) - 2, _OF_BLOCK):
        w1, b1, w_qkv, b_qkv, w_out, b_out, w2, b2, w_in, b_in, w_last, b_last = weights[first : first + _OF_BLOCK]
        stream, h = add_normed(stream, None, added, w1, b1, eps, given=half)
        qkv = torch.addmm(b_qkv, h, w_qkv.t())
        answer, logsum = fused.attend(qkv.view(batch, tokens, -1), cos, sin, bits, heads)
        middle, g = add_normed(
            stream, None, torch.addmm(b_out, answer.flatten(0, 1), w_out.t()), w2, b2, eps, given=half
        )
        hidden = F.leaky_relu_(torch.addmm(b_in, g, w_in.t()), slope)
        added = torch.addmm(b_last, hidden, w_last.t())
        kept += [stream if first else x.new_empty(0), h, qkv, answer, logsum, middle, g, hidden]
        stream = middle
    last, y = add_normed(stream, None, added, weights[-2], weights[-1], eps, given=half)
    return [y.view(batch, tokens, width), *kept, last]


@blocks.register_fake
def _(
    x: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, weights: list[Tensor], heads: int, eps: float, slope: float
) -> list[Tensor]:
    (batch, tokens, width), shape = x.shape, _Shape.of(weights)

    def rows(columns: int) -> Tensor:
        return weights[2].new_empty((batch * tokens, columns))

    kept = []
    for layer in range(shape.layers):
        logsum, answer = (
            x.new_empty((batch, heads, tokens), dtype=torch.float32),
            rows(width).view(batch, tokens, width),
        )
        kept += [rows(width) if layer else x.new_empty(0), rows(width), rows(3 * width), answer, logsum]
        kept += [rows(width), rows(width), rows(shape.hidden)]
    return [rows(width).view(batch, tokens, width), *kept, rows(width)]


class _Beside:
    """In `with beside():` a product runs on a GPU beside what comes after it, which fills what each kernel leaves idle
    where it begins and ends. Until `end` nobody may read what it gives, or let go of what it takes."""

    def __init__(self, device: torch.device) -> None:
        self.stream = _aside(device) if device.type == "cuda" else None

    def __call__(self) -> AbstractContextManager[object]:
        if self.stream is None:
            return nullcontext()
        self.stream.wait_stream(torch.cuda.current_stream(self.stream.device))
        return torch.cuda.stream(self.stream)

    def end(self) -> None:
        """All that comes after waits for what ran beside."""
        if self.stream is not None:
            torch.cuda.current_stream(self.stream.device).wait_stream(self.stream)


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    """One for all, since torch keeps a workspace of cuBLAS for each stream for good."""
    return torch.cuda.Stream(device)


@torch.library.custom_op("mast::blocks_backward", mutates_args=())
def blocks_backward(
    grad: Tensor, x: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, weights: list[Tensor], kept: list[Tensor],
    eps: float, slope: float,
) -> list[Tensor]:  # fmt: skip
    """From the gradient of what `blocks` gave first, and what it kept: that of x; those of norms and of biases as
    `_Shape` has them, the latter without the projections', which follow [L, 3 d]; of each block those of the four
    matrices."""
    shape, (batch, tokens, _), half = _Shape.of(weights), x.shape, weights[2].dtype
    rows = x.flatten(0, 1)
    parts = trained_kernels.parts_of(len(rows), shape.columns, x.device)
    of_projections = torch.empty((shape.layers, batch, 3 * shape.width), dtype=torch.float32, device=x.device)

    def before_norm(norm: int, total: Tensor, dh: Tensor, of_stream: Tensor | None, weight: Tensor) -> Tensor:
        found = torch.empty_like(total, dtype=half if norm else x.dtype)
        trained_kernels.normed_backward(total, dh, of_stream, weight, eps, found, parts, *shape.sums(norm))
        return found

    matrices: list[Tensor] = []
    beside = _Beside(x.device)
    dx = before_norm(2 * shape.layers, kept[-1], grad.flatten(0, 1).contiguous(), None, weights[-2])
    for layer in reversed(range(shape.layers)):
        w1, _, w_qkv, _, w_out, _, w2, _, w_in, _, w_last, _ = weights[_OF_BLOCK * layer : _OF_BLOCK * (layer + 1)]
        stream, h, qkv, answer, logsum, middle, g, hidden = kept[_KEPT * layer : _KEPT * (layer + 1)]
        dhidden = dx @ w_last
        with beside():
            of_last = dx.t() @ hidden
        trained_kernels.bent_backward(hidden, dhidden, slope, parts, shape.of_hidden(layer))
        with beside():
            of_in = dhidden.t() @ g
        dmiddle = before_norm(2 * layer + 1, middle, dhidden @ w_in, dx, w2)
        with beside():
            of_out = dmiddle.t() @ answer.flatten(0, 1)
        given = (qkv.view(batch, tokens, -1), cos, sin, bits, answer, logsum)
        dqkv = fused.attend_backward((dmiddle @ w_out).view(batch, tokens, -1), *given, of_projections[layer])
        dqkv = dqkv.flatten(0, 1)
        with beside():
            of_qkv = dqkv.t() @ h
        below = before_norm(2 * layer, stream if layer else rows, dqkv @ w_qkv, dmiddle, w1)
        beside.end()
        matrices, dx = [of_qkv, of_out, of_in, of_last, *matrices], below
    norms, biases = trained_kernels.summed(parts[None], shape.border, half)
    _, projections = trained_kernels.summed(of_projections, 0, half)
    return [dx.view_as(x), norms.flatten(), biases.flatten(), projections, *matrices]


@blocks_backward.register_fake
def _(
    grad: Tensor, x: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, weights: list[Tensor], kept: list[Tensor],
    eps: float, slope: float,
) -> list[Tensor]:  # fmt: skip
    shape, like = _Shape.of(weights), weights[2]
    matrices = [torch.empty_like(w) for w in weights[:-2] if w.ndim == 2]
    sums = [x.new_empty(shape.border, dtype=torch.float32), like.new_empty(shape.columns - shape.border)]
    return [torch.empty_like(x), *sums, like.new_empty((shape.layers, 3 * shape.width)), *matrices]


def _keep(ctx, inputs, output) -> None:
    x, cos, sin, bits, weights, _, ctx.eps, ctx.slope = inputs
    ctx.save_for_backward(x, cos, sin, bits, *weights, *output[1:])
    ctx.weights = len(weights)
    ctx.set_materialize_grads(False)  # nobody fills zeros for what was kept


def _gradient(ctx, grads: list[Tensor]):
    x, cos, sin, bits, *rest = ctx.saved_tensors
    weights, kept = rest[: ctx.weights], rest[ctx.weights :]
    found = blocks_backward(grads[0], x, cos, sin, bits, weights, kept, ctx.eps, ctx.slope)
    dx, norms, biases, projections, *matrices = found
    shape = _Shape.of(weights)
    own = norms.view(shape.norms, 2, shape.width)
    of_norm = biases[: shape.norms * shape.width].view(shape.norms, shape.width)
    of_hidden = biases[shape.norms * shape.width :].view(shape.layers, shape.hidden)
    answers: list[Tensor] = []
    for layer in range(shape.layers):
        of_qkv, of_out, of_in, of_last = matrices[4 * layer : 4 * (layer + 1)]
        answers += [*own[2 * layer].unbind(), of_qkv, projections[layer], of_out, of_norm[2 * layer + 1]]
        answers += [*own[2 * layer + 1].unbind(), of_in, of_hidden[layer], of_last, of_norm[2 * layer + 2]]
    return dx, None, None, None, [*answers, *own[-1].unbind()], None, None, None


blocks.register_autograd(_gradient, setup_context=_keep)
