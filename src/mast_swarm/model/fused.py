"""Attention of one layer as one GPU kernel each way: rotation, mask, softmax and both products fused (Triton).

Why by hand: with a mask for every environment and a hundred robots, the library's attention pads and copies its mask
and its inputs, and takes most of a training step. Here a program handles one head of one environment (or, where that is
too large, a block of its queries and walks over blocks of keys), reads queries, keys and values where the projection
left them, turns them on the way in, and decides from positions and labels who is allowed. It computes what
`attention.attend` of rotated queries and keys computes.

Symbols: B environments, N tokens, H heads, D = d_a width of a head, E = D/2 complex elements of a head.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK, _WARPS = 64, 4  # where the tokens do not fit in one block
_WHOLE = 128  # tokens that do
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _inputs_of(which, qkv, cos, sin, place, label, tokens, HEADS: tl.constexpr, D: tl.constexpr):
    """Where the inputs of head `which` (environment * HEADS + head) begin."""
    first = (which // HEADS).to(tl.int64) * tokens  # token of the environment
    phases = first * (D // 2)
    return (
        qkv + first * (3 * HEADS * D) + which % HEADS * D, cos + phases, sin + phases, place + 2 * first, label + first
    )  # fmt: skip


@triton.jit
def _outputs_of(which, out, logsum, tokens, HEADS: tl.constexpr, D: tl.constexpr):
    """Where the outputs (or their gradients) of head `which` begin, and its logarithms."""
    first = (which // HEADS).to(tl.int64) * tokens
    return out + first * (HEADS * D) + which % HEADS * D, logsum + which.to(tl.int64) * tokens


@triton.jit
def _load_both_phases(cos, sin, rows, pairs, tokens, E: tl.constexpr):
    return _load_phases(cos, rows, pairs, tokens, E), _load_phases(sin, rows, pairs, tokens, E)


@triton.jit
def _load_rows(base, rows, wide, tokens, stride):
    return tl.load(base + rows[:, None] * stride + wide[None, :], mask=rows[:, None] < tokens, other=0.0)


@triton.jit
def _load_turned(base, rows, tokens, stride, cos, sin, BLOCK: tl.constexpr, D: tl.constexpr):
    """Elements 2e and 2e+1 of rows of queries or keys as complex numbers, turned by their phases: [BLOCK, E] each.

    Whole rows are read and split in registers: reading every other number would touch memory twice as often.
    """
    x = _load_rows(base, rows, tl.arange(0, D), tokens, stride)
    real, imaginary = tl.split(tl.reshape(x, [BLOCK, D // 2, 2]))
    turned_real = real * cos - imaginary * sin
    turned_imaginary = real * sin + imaginary * cos
    return turned_real.to(x.dtype), turned_imaginary.to(x.dtype)


@triton.jit
def _store_turned_back(base, rows, tokens, stride, real, imaginary, cos, sin, BLOCK: tl.constexpr, D: tl.constexpr):
    """The gradient before the rotation, from that after it."""
    x = tl.reshape(tl.join(real * cos + imaginary * sin, imaginary * cos - real * sin), [BLOCK, D])
    at = base + rows[:, None] * stride + tl.arange(0, D)[None, :]
    tl.store(at, x.to(base.dtype.element_ty), mask=rows[:, None] < tokens)


@triton.jit
def _load_phases(table, rows, pairs, tokens, E: tl.constexpr):
    there = rows[:, None] < tokens
    at = rows[:, None] * E + pairs[None, :]
    return tl.load(table + at, mask=there, other=0.0)


@triton.jit
def _load_places(place, label, tokens_at, tokens, LABELLED: tl.constexpr):
    """Where tokens are, and in which component: x, y and label, [block] each."""
    there = tokens_at < tokens
    x, y = (
        tl.load(place + 2 * tokens_at, mask=there, other=0.0),
        tl.load(place + 2 * tokens_at + 1, mask=there, other=0.0),
    )
    name = tl.zeros_like(tokens_at).to(tl.int64)
    if LABELLED:
        name = tl.load(label + tokens_at, mask=there, other=0).to(tl.int64)  # whole: low bits alone may be another's
    return x, y, name


@triton.jit
def _scores(
    q_real, q_imaginary, k_real, k_imaginary, place, label, rows, columns, tokens, scale, squared,
    LABELLED: tl.constexpr,
):  # fmt: skip
    """Scores in units of log2, -inf where not allowed: [block of rows, block of columns].

    Who is allowed is decided here from the places: a mask would have to be read byte by byte, in every layer.
    """
    s = tl.dot(q_real, tl.trans(k_real)) + tl.dot(q_imaginary, tl.trans(k_imaginary))
    x, y, own = _load_places(place, label, rows, tokens, LABELLED)
    x2, y2, other = _load_places(place, label, columns, tokens, LABELLED)
    dx, dy = x[:, None] - x2[None, :], y[:, None] - y2[None, :]
    near = (dx * dx + dy * dy < squared) | (squared == float("inf"))  # no window: wherever they are, or are not
    allowed = near & (own[:, None] == other[None, :])
    allowed = (allowed | (rows[:, None] == columns[None, :])) & (columns[None, :] < tokens)
    return tl.where(allowed, s * (scale * _LOG2E), float("-inf"))


@triton.jit
def _block(tokens, BLOCK: tl.constexpr):
    """Which head of which environment a program works on, and the first row of its block.

    The grid has one axis, for the others end at 65,535.
    """
    blocks = tl.cdiv(tokens, BLOCK)
    return tl.program_id(0) // blocks, tl.program_id(0) % blocks * BLOCK


@triton.jit
def _forward(
    qkv, cos, sin, place, label, out, logsum, tokens, scale, squared,
    LABELLED: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    which, first = _block(tokens, BLOCK)
    rows = first + tl.arange(0, BLOCK)
    pairs, wide = tl.arange(0, E), tl.arange(0, D)
    qkv, cos, sin, place, label = _inputs_of(which, qkv, cos, sin, place, label, tokens, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    c, s = _load_both_phases(cos, sin, rows, pairs, tokens, E)
    q_real, q_imaginary = _load_turned(qkv, rows, tokens, 3 * WIDTH, c, s, BLOCK, D)
    highest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    y = tl.zeros([BLOCK, D], tl.float32)
    for start in range(0, tokens, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        c, s = _load_both_phases(cos, sin, columns, pairs, tokens, E)
        k_real, k_imaginary = _load_turned(qkv + WIDTH, columns, tokens, 3 * WIDTH, c, s, BLOCK, D)
        v = _load_rows(qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH)
        a = _scores(
            q_real, q_imaginary, k_real, k_imaginary, place, label, rows, columns, tokens, scale, squared, LABELLED
        )  # fmt: skip
        above = tl.maximum(highest, tl.max(a, 1))
        safe = tl.where(above == float("-inf"), 0.0, above)  # a row that has seen no allowed key yet
        p = tl.exp2(a - safe[:, None])
        keep = tl.exp2(highest - safe)
        total = total * keep + tl.sum(p, 1)
        y = y * keep[:, None] + tl.dot(p.to(v.dtype), v)
        highest = above
    total = tl.where(total == 0.0, 1.0, total)
    safe = tl.where(highest == float("-inf"), 0.0, highest)
    at = out + rows[:, None] * WIDTH + wide[None, :]
    tl.store(at, (y / total[:, None]).to(out.dtype.element_ty), mask=rows[:, None] < tokens)
    tl.store(logsum + rows, safe + tl.log2(total), mask=rows < tokens)


@triton.jit
def _forward_whole(
    qkv, cos, sin, place, label, out, logsum, tokens, scale, squared,
    LABELLED: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Some queries of a head of an environment whose keys fit in one block: the softmax needs no running maximum."""
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    which, first = _block(tokens, ROWS)
    rows, columns = first + tl.arange(0, ROWS), tl.arange(0, BLOCK)
    pairs, wide = tl.arange(0, E), tl.arange(0, D)
    qkv, cos, sin, place, label = _inputs_of(which, qkv, cos, sin, place, label, tokens, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    c, s = _load_both_phases(cos, sin, columns, pairs, tokens, E)
    k_real, k_imaginary = _load_turned(qkv + WIDTH, columns, tokens, 3 * WIDTH, c, s, BLOCK, D)
    c, s = _load_both_phases(cos, sin, rows, pairs, tokens, E)
    q_real, q_imaginary = _load_turned(qkv, rows, tokens, 3 * WIDTH, c, s, ROWS, D)
    a = _scores(
        q_real, q_imaginary, k_real, k_imaginary, place, label, rows, columns, tokens, scale, squared, LABELLED
    )  # fmt: skip
    highest = tl.max(a, 1)
    highest = tl.where(highest == float("-inf"), 0.0, highest)  # a row of the block's padding
    p = tl.exp2(a - highest[:, None])
    total = tl.sum(p, 1)
    total = tl.where(total == 0.0, 1.0, total)
    v = _load_rows(qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH)
    y = tl.dot(p.to(v.dtype), v) / total[:, None]
    at = out + rows[:, None] * WIDTH + wide[None, :]
    tl.store(at, y.to(out.dtype.element_ty), mask=rows[:, None] < tokens)
    tl.store(logsum + rows, highest + tl.log2(total), mask=rows < tokens)


@triton.jit
def _backward_keys(
    qkv, cos, sin, place, label, out, logsum, grad, grad_qkv, tokens, scale, squared,
    LABELLED: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of keys and values: walks over the queries."""
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    which, first = _block(tokens, BLOCK)
    columns = first + tl.arange(0, BLOCK)
    pairs, wide = tl.arange(0, E), tl.arange(0, D)
    grad_qkv += (which // HEADS).to(tl.int64) * tokens * (3 * WIDTH) + which % HEADS * D
    grad, _ = _outputs_of(which, grad, logsum, tokens, HEADS, D)
    qkv, cos, sin, place, label = _inputs_of(which, qkv, cos, sin, place, label, tokens, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    kc, ks = _load_both_phases(cos, sin, columns, pairs, tokens, E)
    k_real, k_imaginary = _load_turned(qkv + WIDTH, columns, tokens, 3 * WIDTH, kc, ks, BLOCK, D)
    v = _load_rows(qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH)
    dv = tl.zeros([BLOCK, D], tl.float32)
    dk_real = tl.zeros([BLOCK, E], tl.float32)
    dk_imaginary = tl.zeros([BLOCK, E], tl.float32)
    for start in range(0, tokens, BLOCK):
        rows = start + tl.arange(0, BLOCK)
        c, s = _load_both_phases(cos, sin, rows, pairs, tokens, E)
        q_real, q_imaginary = _load_turned(qkv, rows, tokens, 3 * WIDTH, c, s, BLOCK, D)
        a = _scores(
            q_real, q_imaginary, k_real, k_imaginary, place, label, rows, columns, tokens, scale, squared, LABELLED
        )  # fmt: skip
        lse = tl.load(logsum + rows, mask=rows < tokens, other=0.0)
        p = tl.exp2(a - lse[:, None])
        dy = _load_rows(grad, rows, wide, tokens, WIDTH)
        y = _load_rows(out, rows, wide, tokens, WIDTH)
        delta = tl.sum(dy.to(tl.float32) * y.to(tl.float32), 1)
        dv += tl.dot(tl.trans(p.to(dy.dtype)), dy)
        dp = tl.dot(dy, tl.trans(v))
        ds = (p * (dp - delta[:, None]) * scale).to(q_real.dtype)
        dk_real += tl.dot(tl.trans(ds), q_real)
        dk_imaginary += tl.dot(tl.trans(ds), q_imaginary)
    _store_turned_back(grad_qkv + WIDTH, columns, tokens, 3 * WIDTH, dk_real, dk_imaginary, kc, ks, BLOCK, D)
    at = grad_qkv + 2 * WIDTH + columns[:, None] * (3 * WIDTH) + wide[None, :]
    tl.store(at, dv.to(grad_qkv.dtype.element_ty), mask=columns[:, None] < tokens)


@triton.jit
def _backward_queries(
    qkv, cos, sin, place, label, out, logsum, grad, grad_qkv, tokens, scale, squared,
    LABELLED: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Gradients of a block of queries: walks over the keys."""
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    which, first = _block(tokens, BLOCK)
    rows = first + tl.arange(0, BLOCK)
    pairs, wide = tl.arange(0, E), tl.arange(0, D)
    grad_qkv += (which // HEADS).to(tl.int64) * tokens * (3 * WIDTH) + which % HEADS * D
    grad, _ = _outputs_of(which, grad, logsum, tokens, HEADS, D)
    qkv, cos, sin, place, label = _inputs_of(which, qkv, cos, sin, place, label, tokens, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    qc, qs = _load_both_phases(cos, sin, rows, pairs, tokens, E)
    q_real, q_imaginary = _load_turned(qkv, rows, tokens, 3 * WIDTH, qc, qs, BLOCK, D)
    dy = _load_rows(grad, rows, wide, tokens, WIDTH)
    delta = tl.sum(dy.to(tl.float32) * _load_rows(out, rows, wide, tokens, WIDTH).to(tl.float32), 1)
    lse = tl.load(logsum + rows, mask=rows < tokens, other=0.0)
    dq_real = tl.zeros([BLOCK, E], tl.float32)
    dq_imaginary = tl.zeros([BLOCK, E], tl.float32)
    for start in range(0, tokens, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        c, s = _load_both_phases(cos, sin, columns, pairs, tokens, E)
        k_real, k_imaginary = _load_turned(qkv + WIDTH, columns, tokens, 3 * WIDTH, c, s, BLOCK, D)
        v = _load_rows(qkv + 2 * WIDTH, columns, wide, tokens, 3 * WIDTH)
        a = _scores(
            q_real, q_imaginary, k_real, k_imaginary, place, label, rows, columns, tokens, scale, squared, LABELLED
        )  # fmt: skip
        p = tl.exp2(a - lse[:, None])
        dp = tl.dot(dy, tl.trans(v))
        ds = (p * (dp - delta[:, None]) * scale).to(k_real.dtype)
        dq_real += tl.dot(ds, k_real)
        dq_imaginary += tl.dot(ds, k_imaginary)
    _store_turned_back(grad_qkv, rows, tokens, 3 * WIDTH, dq_real, dq_imaginary, qc, qs, BLOCK, D)


@triton.jit
def _backward_whole(
    qkv, cos, sin, place, label, out, logsum, grad, grad_qkv, tokens, scale, squared,
    LABELLED: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """All gradients of a head of an environment at once, where its tokens fit in one block: everything is read once."""
    E: tl.constexpr = D // 2
    WIDTH: tl.constexpr = HEADS * D
    rows = tl.arange(0, BLOCK)
    pairs, wide = tl.arange(0, E), tl.arange(0, D)
    which = tl.program_id(0)
    grad_qkv += (which // HEADS).to(tl.int64) * tokens * (3 * WIDTH) + which % HEADS * D
    grad, _ = _outputs_of(which, grad, logsum, tokens, HEADS, D)
    qkv, cos, sin, place, label = _inputs_of(which, qkv, cos, sin, place, label, tokens, HEADS, D)
    out, logsum = _outputs_of(which, out, logsum, tokens, HEADS, D)
    c, s = _load_both_phases(cos, sin, rows, pairs, tokens, E)
    q_real, q_imaginary = _load_turned(qkv, rows, tokens, 3 * WIDTH, c, s, BLOCK, D)
    k_real, k_imaginary = _load_turned(qkv + WIDTH, rows, tokens, 3 * WIDTH, c, s, BLOCK, D)
    a = _scores(
        q_real, q_imaginary, k_real, k_imaginary, place, label, rows, rows, tokens, scale, squared, LABELLED
    )  # fmt: skip
    lse = tl.load(logsum + rows, mask=rows < tokens, other=0.0)
    p = tl.exp2(a - lse[:, None])
    dy = _load_rows(grad, rows, wide, tokens, WIDTH)
    delta = tl.sum(dy.to(tl.float32) * _load_rows(out, rows, wide, tokens, WIDTH).to(tl.float32), 1)
    dv = tl.dot(tl.trans(p.to(dy.dtype)), dy)
    at = grad_qkv + 2 * WIDTH + rows[:, None] * (3 * WIDTH) + wide[None, :]
    tl.store(at, dv.to(grad_qkv.dtype.element_ty), mask=rows[:, None] < tokens)
    v = _load_rows(qkv + 2 * WIDTH, rows, wide, tokens, 3 * WIDTH)
    ds = (p * (tl.dot(dy, tl.trans(v)) - delta[:, None]) * scale).to(q_real.dtype)
    dq_real, dq_imaginary = tl.dot(ds, k_real), tl.dot(ds, k_imaginary)
    _store_turned_back(grad_qkv, rows, tokens, 3 * WIDTH, dq_real, dq_imaginary, c, s, BLOCK, D)
    ds = tl.trans(ds)
    dk_real, dk_imaginary = tl.dot(ds, q_real), tl.dot(ds, q_imaginary)
    _store_turned_back(grad_qkv + WIDTH, rows, tokens, 3 * WIDTH, dk_real, dk_imaginary, c, s, BLOCK, D)


def _shape(tokens: int) -> tuple[int, int]:
    """Tokens in a block and warps of a program."""
    if tokens > _WHOLE:
        return _BLOCK, _WARPS
    block = max(16, triton.next_power_of_2(tokens))
    return block, 8 if block > 64 else 4


@torch.library.custom_op("mast::turned_attention", mutates_args=())
def turned_attention(
    qkv: Tensor, cos: Tensor, sin: Tensor, place: Tensor, label: Tensor | None, radius: float, heads: int
) -> tuple[Tensor, Tensor]:
    """Attention of rotated queries and keys over the keys nearer than the radius and of one label, and over itself.

    qkv [B, N, 3 d] as projected; cos, sin [B, N, E] fp32; place [B, N, 2] metres; label [B, N] of any whole type, None
    for no labels; radius in metres, inf for no window -> y [B, N, d], and the logarithm (to base 2) of each softmax's
    denominator [B, H, N], which the gradient needs.
    """
    qkv, cos, sin, place = (t.contiguous() for t in (qkv, cos, sin, place))
    batch, tokens, triple = qkv.shape
    width = triple // 3
    out = qkv.new_empty((batch, tokens, width))
    logsum = torch.empty((batch, heads, tokens), dtype=torch.float32, device=qkv.device)
    block, warps = _shape(tokens)
    kernel, rows = (_forward_whole, {"ROWS": block}) if tokens <= block else (_forward, {})
    kernel[(triton.cdiv(tokens, block) * batch * heads,)](
        qkv, cos, sin, place, _labels(label, place), out, logsum, tokens, (width // heads) ** -0.5, radius * radius,
        LABELLED=label is not None, HEADS=heads, D=width // heads, BLOCK=block, num_warps=warps, **rows,
    )  # fmt: skip
    return out, logsum


@turned_attention.register_fake
def _(
    qkv: Tensor, cos: Tensor, sin: Tensor, place: Tensor, label: Tensor | None, radius: float, heads: int
) -> tuple[Tensor, Tensor]:
    batch, tokens, triple = qkv.shape
    return (
        qkv.new_empty((batch, tokens, triple // 3)),
        qkv.new_empty((batch, heads, tokens), dtype=torch.float32),
    )


@torch.library.custom_op("mast::turned_attention_backward", mutates_args=())
def turned_attention_backward(
    grad: Tensor,
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    place: Tensor,
    label: Tensor | None,
    out: Tensor,
    logsum: Tensor,
    radius: float,
) -> Tensor:
    """The gradient [B, N, 3 d] of what was projected, from that of y [B, N, d]."""
    grad, qkv, cos, sin, place = (t.contiguous() for t in (grad, qkv, cos, sin, place))
    batch, tokens, triple = qkv.shape
    heads, width = logsum.shape[1], triple // 3
    grad_qkv = torch.empty_like(qkv)
    block, warps = _shape(tokens)
    for kernel in (_backward_whole,) if tokens <= block else (_backward_keys, _backward_queries):
        kernel[(triton.cdiv(tokens, block) * batch * heads,)](
            qkv, cos, sin, place, _labels(label, place), out, logsum, grad, grad_qkv, tokens, (width // heads) ** -0.5,
            radius * radius, LABELLED=label is not None, HEADS=heads, D=width // heads, BLOCK=block, num_warps=warps,
        )  # fmt: skip
    return grad_qkv


@turned_attention_backward.register_fake
def _(
    grad: Tensor,
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    place: Tensor,
    label: Tensor | None,
    out: Tensor,
    logsum: Tensor,
    radius: float,
) -> Tensor:
    return torch.empty_like(qkv)


def _labels(label: Tensor | None, place: Tensor) -> Tensor:
    """What a kernel is given for labels: where there are none, something that it does not read."""
    return place if label is None else label.contiguous()


def _keep(ctx, inputs, output) -> None:
    qkv, cos, sin, place, label, ctx.radius, _ = inputs
    out, logsum = output
    ctx.save_for_backward(qkv, cos, sin, place, label, out, logsum)


def _gradient(ctx, grad: Tensor, _: Tensor | None):
    return turned_attention_backward(grad, *ctx.saved_tensors, ctx.radius), *(None,) * 6


turned_attention.register_autograd(_gradient, setup_context=_keep)
