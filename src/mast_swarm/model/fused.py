"""Attention of one layer as one GPU kernel each way: rotation, mask, softmax and both products fused (Triton).

Why by hand: with a mask for every environment and a hundred robots, the library's attention pads and copies its mask
and its inputs, and takes most of a training step. Here a program handles one head of one environment (or, where that is
too large, a block of its queries and walks over blocks of keys), reads queries, keys and values where the projection
left them, and turns them on the way in. Who may attend to whom is one bit a pair, found once for all layers: to find
it in each program would take more instructions than the softmax, and registers that leave no room for a second program
beside it. It computes what `attention.attend` of rotated queries and keys computes.

Symbols: B environments, N tokens, H heads, D = d_a width of a head, E = D/2 complex elements of a head,
W = ceil(N / 32) words of bits.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from mast_swarm.model.list_kernels import turned

_BLOCK, _WARPS = 64, 4  # where the tokens do not fit in one block
_WHOLE = 128  # tokens that do
_KEYS = 32  # keys at a time of a program that finds gradients, of those
_SEEING = 32  # rows of a program that finds who sees whom
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _sight(
    place, label, bits, tokens, words, squared,
    WINDOWED: tl.constexpr, LABELLED: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The bits of some rows of an environment: word by word, each of 32 columns."""
    environment, first = _block(tokens, ROWS)
    rows = first + tl.arange(0, ROWS)
    start = environment.to(tl.int64) * tokens
    place += 2 * start
    label += start
    bits += start * words
    for word in range(words):
        columns = word * 32 + tl.arange(0, 32)
        allowed = (rows[:, None] < tokens) & (columns[None, :] < tokens)
        if WINDOWED:
            x, y = _load_places(place, rows, tokens)
            x2, y2 = _load_places(place, columns, tokens)
            dx, dy = x[:, None] - x2[None, :], y[:, None] - y2[None, :]
            allowed = allowed & (dx * dx + dy * dy < squared)
        if LABELLED:  # whole: low bits alone may be another's
            own = tl.load(label + rows, mask=rows < tokens, other=0)
            other = tl.load(label + columns, mask=columns < tokens, other=0)
            allowed = allowed & (own[:, None] == other[None, :])
        allowed = allowed | (rows[:, None] == columns[None, :])
        packed = tl.sum(allowed.to(tl.int32) << tl.arange(0, 32)[None, :], 1)
        tl.store(bits + rows * words + word, packed, mask=rows < tokens)


@triton.jit
def _load_places(place, at, tokens):
    there = at < tokens
    return tl.load(place + 2 * at, mask=there, other=0.0), tl.load(place + 2 * at + 1, mask=there, other=0.0)


@triton.jit
def _inputs_of(which, qkv, cos, sin, bits, tokens, words, HEADS: tl.constexpr, D: tl.constexpr):
    """Where the inputs of head `which` (environment * HEADS + head) begin."""
    first = (which // HEADS).to(tl.int64) * tokens  # token of the environment
    phases = first * (D // 2)
    return qkv + first * (3 * HEADS * D) + which % HEADS * D, cos + phases, sin + phases, bits + first * words


@triton.jit
def _outputs_of(which, out, logsum, tokens, HEADS: tl.constexpr, D: tl.constexpr):
    """Where the outputs (or their gradients) of head `which` begin, and its logarithms."""
    first = (which // HEADS).to(tl.int64) * tokens
    return out + first * (HEADS * D) + which % HEADS * D, logsum + which.to(tl.int64) * tokens


@triton.jit
def _load_rows(base, rows, wide, tokens, stride):
    return tl.load(base + rows[:, None] * stride + wide[None, :], mask=rows[:, None] < tokens, other=0.0)


@triton.jit
def _load_turned(base, rows, tokens, stride, cos, sin, D: tl.constexpr):
    """Rows of queries or keys, turned by their phases [rows, E]: [rows, D]."""
    return turned(_load_rows(base, rows, tl.arange(0, D), tokens, stride), cos, sin)


@triton.jit
def _turned_back(x, cos, sin):
    """The gradient before the rotation, from that after it, x [rows, D]."""
    real, imaginary = tl.split(tl.reshape(x, [cos.shape[0], cos.shape[1], 2]))
    return tl.reshape(tl.join(real * cos + imaginary * sin, imaginary * cos - real * sin), x.shape)


@triton.jit
def _store_rows(base, rows, wide, tokens, stride, x):
    at = base + rows[:, None] * stride + wide[None, :]
    tl.store(at, x.to(base.dtype.element_ty), mask=rows[:, None] < tokens)


@triton.jit
def _load_phases(cos, sin, rows, tokens, E: tl.constexpr):
    there = rows[:, None] < tokens
    at = rows[:, None] * E + tl.arange(0, E)[None, :]
    return tl.load(cos + at, mask=there, other=0.0), tl.load(sin + at, mask=there, other=0.0)


@triton.jit
def _scores(q, k, bits, rows, first, tokens, words, BLOCK: tl.constexpr):
    """Products of queries and of BLOCK keys from the `first` on, -inf where not allowed: [rows, BLOCK]."""
    column = tl.arange(0, BLOCK)[None, :]
    at, there = bits + rows * words + first // 32, rows < tokens
    word = tl.load(at, mask=there, other=0)[:, None]
    for next in tl.static_range(1, BLOCK // 32):
        later = tl.load(at + next, mask=there & (first // 32 + next < words), other=0)[:, None]
        word = tl.where(column >= 32 * next, later, word)
    allowed = (word >> (column % 32)) & 1
    return tl.where(allowed != 0, tl.dot(q, tl.trans(k)), float("-inf"))


@triton.jit
def _block(tokens, BLOCK: tl.constexpr):
    """Which head of which environment a program works on, and the first row of its block.

    The grid has one axis, for the others end at 65,535.
    """
    blocks = tl.cdiv(tokens, BLOCK)
    return tl.program_id(0) // blocks, tl.program_id(0) % blocks * BLOCK


@triton.jit
def _forward(
    qkv, cos, sin, bits, out, logsum, tokens, words, scale,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    which, first = _block(tokens, BLOCK)
    rows, wide = first + tl.arange(0, BLOCK), tl.arange(0, D)
    qkv, cos, sin, bits = _inputs_of(which, qkv, cos, sin, bits, tokens, words, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    c, s = _load_phases(cos, sin, rows, tokens, E)
    q = _load_turned(qkv, rows, tokens, 3 * WIDTH, c, s, D)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    y = tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, tokens, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        c, s = _load_phases(cos, sin, columns, tokens, E)
        k = _load_turned(qkv + WIDTH, columns, tokens, 3 * WIDTH, c, s, D)
        v = _load_rows(qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH)
        a = _scores(q, k, bits, rows, start, tokens, words, BLOCK) * (scale * _LOG2E)
        above = tl.maximum(highest, tl.max(a, 1))
        safe = tl.where(above == float("-inf"), 0.0, above)  # a row that has seen no allowed key yet
        p = tl.exp2(a - safe[:, None])
        keep = tl.exp2(highest - safe)
        total = total * keep + tl.sum(p, 1)
        y = y * keep[:, None] + tl.dot(p.to(v.dtype), v)
        highest = above
    total = tl.where(total == 0.0, 1.0, total)
    safe = tl.where(highest == float("-inf"), 0.0, highest)
    _store_rows(out, rows, wide, tokens, WIDTH, y / total[:, None])
    tl.store(logsum + rows, safe + tl.log2(total), mask=rows < tokens)


@triton.jit
def _forward_whole(
    qkv, cos, sin, bits, out, logsum, tokens, words, scale,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A head of an environment whose tokens fit in one block: the softmax needs no running maximum."""
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    which, rows, wide = tl.program_id(0), tl.arange(0, BLOCK), tl.arange(0, D)
    qkv, cos, sin, bits = _inputs_of(which, qkv, cos, sin, bits, tokens, words, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    c, s = _load_phases(cos, sin, rows, tokens, E)
    q = _load_turned(qkv, rows, tokens, 3 * WIDTH, c, s, D)
    k = _load_turned(qkv + WIDTH, rows, tokens, 3 * WIDTH, c, s, D)
    v = _load_rows(qkv + 2 * WIDTH, rows, wide, tokens, 3 * WIDTH)
    a = _scores(q, k, bits, rows, 0, tokens, words, BLOCK)
    highest = tl.max(a, 1) * (scale * _LOG2E)
    highest = tl.where(highest == float("-inf"), 0.0, highest)  # a row of the block's padding
    p = tl.exp2(tl.fma(a, scale * _LOG2E, -highest[:, None]))
    total = tl.sum(p, 1)
    total = tl.where(total == 0.0, 1.0, total)
    _store_rows(out, rows, wide, tokens, WIDTH, tl.dot(p.to(v.dtype), v) / total[:, None])
    tl.store(logsum + rows, highest + tl.log2(total), mask=rows < tokens)


@triton.jit
def _backward_keys(
    qkv, cos, sin, bits, out, logsum, grad, grad_qkv, tokens, words, scale,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and values: walks over the queries."""
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    which, first = _block(tokens, BLOCK)
    columns, wide = first + tl.arange(0, BLOCK), tl.arange(0, D)
    grad_qkv += (which // HEADS).to(tl.int64) * tokens * (3 * WIDTH) + which % HEADS * D
    grad, _ = _outputs_of(which, grad, logsum, tokens, HEADS, D)
    qkv, cos, sin, bits = _inputs_of(which, qkv, cos, sin, bits, tokens, words, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    kc, ks = _load_phases(cos, sin, columns, tokens, E)
    k = _load_turned(qkv + WIDTH, columns, tokens, 3 * WIDTH, kc, ks, D)
    v = _load_rows(qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH)
    dk, dv = tl.zeros([BLOCK, D], tl.float32), tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, tokens, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        c, s = _load_phases(cos, sin, rows, tokens, E)
        q = _load_turned(qkv, rows, tokens, 3 * WIDTH, c, s, D)
        a = _scores(q, k, bits, rows, first, tokens, words, BLOCK) * (scale * _LOG2E)
        lse = tl.load(logsum + rows, mask=rows < tokens, other=0.0)
        p = tl.exp2(a - lse[:, None])
        dy = _load_rows(grad, rows, wide, tokens, WIDTH)
        y = _load_rows(out, rows, wide, tokens, WIDTH)
        delta = tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1)
        dv = tl.dot(tl.trans(p.to(dy.dtype)), dy, dv)
        ds = (p * (tl.dot(dy, tl.trans(v)) - delta[:, None]) * scale).to(q.dtype)
        dk = tl.dot(tl.trans(ds), q, dk)
    _store_rows(grad_qkv + WIDTH, columns, wide, tokens, 3 * WIDTH, _turned_back(dk, kc, ks))
    _store_rows(grad_qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH, dv)


@triton.jit
def _backward_queries(
    qkv, cos, sin, bits, out, logsum, grad, grad_qkv, tokens, words, scale,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of queries: walks over the keys."""
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    which, first = _block(tokens, BLOCK)
    rows, wide = first + tl.arange(0, BLOCK), tl.arange(0, D)
    grad_qkv += (which // HEADS).to(tl.int64) * tokens * (3 * WIDTH) + which % HEADS * D
    grad, _ = _outputs_of(which, grad, logsum, tokens, HEADS, D)
    qkv, cos, sin, bits = _inputs_of(which, qkv, cos, sin, bits, tokens, words, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    qc, qs = _load_phases(cos, sin, rows, tokens, E)
    q = _load_turned(qkv, rows, tokens, 3 * WIDTH, qc, qs, D)
    dy = _load_rows(grad, rows, wide, tokens, WIDTH)
    delta = tl.sum(dy.to(tl.float32) * _load_rows(out, rows, wide, tokens, WIDTH).to(tl.float32), 1)
    lse = tl.load(logsum + rows, mask=rows < tokens, other=0.0)
    dq = tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, tokens, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        c, s = _load_phases(cos, sin, columns, tokens, E)
        k = _load_turned(qkv + WIDTH, columns, tokens, 3 * WIDTH, c, s, D)
        v = _load_rows(qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH)
        a = _scores(q, k, bits, rows, start, tokens, words, BLOCK) * (scale * _LOG2E)
        p = tl.exp2(a - lse[:, None])
        ds = (p * (tl.dot(dy, tl.trans(v)) - delta[:, None]) * scale).to(k.dtype)
        dq = tl.dot(ds, k, dq)
    _store_rows(grad_qkv, rows, wide, tokens, 3 * WIDTH, _turned_back(dq, qc, qs))


@triton.jit
def _backward_whole(
    qkv, cos, sin, bits, out, logsum, grad, grad_qkv, sums, tokens, words, scale,
    HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """All gradients of a head of an environment at once, where its tokens fit in one block: everything is read once.
    And their sums over the tokens, which are this environment's share of the gradient of the projection's bias.

    It takes some keys at a time, with all queries: all pairs at once would leave a processor no room for a second
    program, and one alone mostly waits."""
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    rows, wide = tl.arange(0, BLOCK), tl.arange(0, D)
    which = tl.program_id(0)
    grad_qkv += (which // HEADS).to(tl.int64) * tokens * (3 * WIDTH) + which % HEADS * D
    sums += (which // HEADS).to(tl.int64) * (3 * WIDTH) + which % HEADS * D
    grad, _ = _outputs_of(which, grad, logsum, tokens, HEADS, D)
    qkv, cos, sin, bits = _inputs_of(which, qkv, cos, sin, bits, tokens, words, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    c, s = _load_phases(cos, sin, rows, tokens, E)
    q = _load_turned(qkv, rows, tokens, 3 * WIDTH, c, s, D)
    dy = _load_rows(grad, rows, wide, tokens, WIDTH)
    tl.store(sums + 2 * WIDTH + wide, tl.sum(dy.to(tl.float32), 0))  # each query's weights of the values sum to 1
    delta = tl.sum(dy.to(tl.float32) * _load_rows(out, rows, wide, tokens, WIDTH).to(tl.float32), 1)
    lse = tl.load(logsum + rows, mask=rows < tokens, other=0.0)
    dq = tl.zeros([BLOCK, D], tl.float32)
    of_k = tl.zeros([D], tl.float32)
    for start in range(0, tokens, KEYS):
        columns = start + tl.arange(0, KEYS)
        kc, ks = _load_phases(cos, sin, columns, tokens, E)
        k = _load_turned(qkv + WIDTH, columns, tokens, 3 * WIDTH, kc, ks, D)
        v = _load_rows(qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH)
        a = _scores(q, k, bits, rows, start, tokens, words, KEYS)
        p = tl.exp2(tl.fma(a, scale * _LOG2E, -lse[:, None]))
        dv = tl.dot(tl.trans(p.to(dy.dtype)), dy)
        _store_rows(grad_qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH, dv)
        ds = (p * (tl.dot(dy, tl.trans(v)) - delta[:, None])).to(q.dtype)
        dk = _turned_back(tl.dot(tl.trans(ds), q) * scale, kc, ks)
        _store_rows(grad_qkv + WIDTH, columns, wide, tokens, 3 * WIDTH, dk)
        of_k += tl.sum(dk, 0)
        dq = tl.dot(ds, k, dq)
    c, s = _load_phases(cos, sin, rows, tokens, E)  # anew: to keep them would take registers
    dq = _turned_back(dq * scale, c, s)
    _store_rows(grad_qkv, rows, wide, tokens, 3 * WIDTH, dq)
    tl.store(sums + wide, tl.sum(dq, 0))
    tl.store(sums + WIDTH + wide, of_k)


def takes(tokens: int, head_dim: int) -> bool:
    """Whether the kernels take so many tokens of an environment, with heads of this width: they count words of bits in
    32 bits, which end at 262,143 tokens."""
    return head_dim in (32, 64, 128) and tokens * triton.cdiv(tokens, 32) < 2**31


def _shape(tokens: int) -> tuple[int, int]:
    """Tokens in a block and warps of a program."""
    if tokens > _WHOLE:
        return _BLOCK, _WARPS
    block = max(16, triton.next_power_of_2(tokens))
    return block, 8 if block > 64 else 4


def attend(qkv: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """As `turned_attention`, of contiguous tensors."""
    batch, tokens, triple = qkv.shape
    width = triple // 3
    out = qkv.new_empty((batch, tokens, width))
    logsum = torch.empty((batch, heads, tokens), dtype=torch.float32, device=qkv.device)
    block, warps = _shape(tokens)
    kernel = _forward_whole if tokens <= block else _forward
    kernel[(triton.cdiv(tokens, block) * batch * heads,)](
        qkv, cos, sin, bits, out, logsum, tokens, bits.shape[2], (width // heads) ** -0.5,
        HEADS=heads, D=width // heads, BLOCK=block, num_warps=warps,
    )  # fmt: skip
    return out, logsum


def attend_backward(
    grad: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, out: Tensor, logsum: Tensor, sums: Tensor
) -> Tensor:
    """The gradient [B, N, 3 d] of what was projected, from that of y [B, N, d]; its sums over the tokens are written to
    `sums` [B, 3 d] fp32. Of contiguous tensors."""
    batch, tokens, triple = qkv.shape
    heads, width = logsum.shape[1], triple // 3
    grad_qkv = torch.empty_like(qkv)
    block, warps = _shape(tokens)
    given, numbers = (qkv, cos, sin, bits), (tokens, bits.shape[2], (width // heads) ** -0.5)
    shape = {"HEADS": heads, "D": width // heads, "BLOCK": block}
    if tokens <= block:
        threads = {"num_warps": 8 if shape["D"] > 64 else 4, "num_stages": 1}  # wide heads take registers of more
        _backward_whole[(batch * heads,)](
            *given, out, logsum, grad, grad_qkv, sums, *numbers, KEYS=min(block, _KEYS), **shape, **threads
        )
        return grad_qkv
    for kernel in (_backward_keys, _backward_queries):
        kernel[(triton.cdiv(tokens, block) * batch * heads,)](
            *given, out, logsum, grad, grad_qkv, *numbers, num_warps=warps, **shape
        )
    torch.sum(grad_qkv, 1, dtype=torch.float32, out=sums)
    return grad_qkv


@torch.library.custom_op("mast::sight", mutates_args=())
def sight(place: Tensor, label: Tensor | None, radius: float) -> Tensor:
    """Who may attend to whom: those nearer than the radius and of one label, and everyone to itself.

    place [B, N, 2] metres; label [B, N] of any whole type, None for no labels; radius in metres, inf for no window ->
    [B, N, W] int32: bit j % 32 of word j // 32 of row i says whether i may attend to j.
    """
    batch, tokens, _ = place.shape
    words, place = triton.cdiv(tokens, 32), place.contiguous()
    bits = torch.empty((batch, tokens, words), dtype=torch.int32, device=place.device)
    _sight[(triton.cdiv(tokens, _SEEING) * batch,)](
        place, place if label is None else label.contiguous(), bits, tokens, words, radius * radius,
        WINDOWED=radius != math.inf, LABELLED=label is not None, ROWS=_SEEING, num_warps=1,
    )  # fmt: skip
    return bits


@sight.register_fake
def _(place: Tensor, label: Tensor | None, radius: float) -> Tensor:
    batch, tokens, _ = place.shape
    return place.new_empty((batch, tokens, triton.cdiv(tokens, 32)), dtype=torch.int32)


@torch.library.custom_op("mast::turned_attention", mutates_args=())
def turned_attention(qkv: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Attention of rotated queries and keys over those that `bits` allow.

    qkv [B, N, 3 d] as projected; cos, sin [B, N, E] fp32; bits as from `sight` -> y [B, N, d], and the logarithm (to
    base 2) of each softmax's denominator [B, H, N], which the gradient needs.
    """
    return attend(qkv.contiguous(), cos.contiguous(), sin.contiguous(), bits, heads)


@turned_attention.register_fake
def _(qkv: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    batch, tokens, triple = qkv.shape
    return (
        qkv.new_empty((batch, tokens, triple // 3)),
        qkv.new_empty((batch, heads, tokens), dtype=torch.float32),
    )


@torch.library.custom_op("mast::turned_attention_backward", mutates_args=())
def turned_attention_backward(
    grad: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, out: Tensor, logsum: Tensor
) -> Tensor:
    """The gradient [B, N, 3 d] of what was projected, from that of y [B, N, d]."""
    sums = torch.empty((len(qkv), qkv.shape[2]), dtype=torch.float32, device=qkv.device)
    given = (qkv.contiguous(), cos.contiguous(), sin.contiguous(), bits, out, logsum)
    return attend_backward(grad.contiguous(), *given, sums)


@turned_attention_backward.register_fake
def _(grad: Tensor, qkv: Tensor, cos: Tensor, sin: Tensor, bits: Tensor, out: Tensor, logsum: Tensor) -> Tensor:
    return torch.empty_like(qkv)


def _keep(ctx, inputs, output) -> None:
    qkv, cos, sin, bits, _ = inputs
    ctx.save_for_backward(qkv, cos, sin, bits, *output)
    ctx.set_materialize_grads(False)  # the logarithms have none


def _gradient(ctx, grad: Tensor, _: Tensor | None):
    return turned_attention_backward(grad, *ctx.saved_tensors), None, None, None, None


turned_attention.register_autograd(_gradient, setup_context=_keep)
