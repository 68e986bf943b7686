"""GPU kernels (Triton) of the CNN's 3x3 convolutions, batch norms and LeakyReLUs; `convolution` puts them together.

Maps lie with channels innermost. A row of a product is a pair of neighbouring output pixels, computed from the window
of four input pixels, which lie side by side in memory: [pairs, 4 C] times a band [4 C, 2 * 32] for each vertical tap
(see `perception.band`). A quarter of a band is zeros; but products are large enough to keep the tensor cores busy, and
an input is read twice for a row of outputs and not thrice.

A program walks down the rows of some images side by side. It adds each row of inputs to the three rows of outputs that
see it: three accumulators, which move up by one each step. From the last row of some images it goes on to the first
row of the next without a break, for what accumulators still hold is zero (gradients, which are padded) or belongs to
the two rows that are not kept.

Sums are fp32 within a program, written side by side and added up in fp64: the same numbers in every run.

Symbols: M images, H x W pixels of the maps at hand, C channels of an input (a power of two, from 4 to 32), P pairs that
a program has in hand at once: PAIRS of each of P // PAIRS images.
"""

from __future__ import annotations

import triton
import triton.language as tl

_CHANNELS = tl.constexpr(32)  # of every layer's output
_SLOPE = tl.constexpr(0.01)  # of nn.LeakyReLU
_EPSILON = tl.constexpr(1e-5)  # of nn.BatchNorm2d
PAIRS = tl.constexpr(16)  # of neighbouring pixels in a row of a tile: 26 to 30 pixels fill most of it
_MEAN, _VARIANCE, _SCALE, _SHIFT = (tl.constexpr(32 * row) for row in range(4))  # rows of a layer's statistics


@triton.jit
def _share(images, rows, P: tl.constexpr):
    """A program's images: the first, the end, and the steps of its walk, a row of P // PAIRS images each."""
    SIDE_BY_SIDE: tl.constexpr = P // PAIRS
    each = tl.cdiv(tl.cdiv(images, SIDE_BY_SIDE), tl.num_programs(0))
    first = tl.program_id(0) * each * SIDE_BY_SIDE
    end = tl.minimum(images, first + each * SIDE_BY_SIDE)
    return first, end, tl.cdiv(end - first, SIDE_BY_SIDE) * rows


@triton.jit
def _next(image, row, rows, P: tl.constexpr):
    """The step after: a row further, or the first row of the next images."""
    done = row + 1 == rows
    return tl.where(done, image + P // PAIRS, image), tl.where(done, 0, row + 1)


@triton.jit
def _neighbours(shift, height, width, PIXELS: tl.constexpr, C: tl.constexpr, P: tl.constexpr):
    """Where neighbouring pixels of a row of each image lie, from that of the first one on, and which there are.

    [P, PIXELS * C] each; the first pixel is `shift` right of a pair's. None of it changes in a walk.
    """
    p, k = tl.arange(0, P), tl.arange(0, PIXELS * C)
    column = 2 * (tl.program_id(1) * PAIRS + p % PAIRS) + shift
    x = column[:, None] + (k // C)[None, :]
    return (p // PAIRS * (height * width) + column)[:, None] * C + k[None, :], (x >= 0) & (x < width)


@triton.jit
def _row(image, row, end, height, width, C: tl.constexpr, P: tl.constexpr):
    """Where a row begins in memory, and in which images it is: [P, 1]."""
    p = tl.arange(0, P)
    y = row + tl.zeros_like(p)
    there = (image + p // PAIRS < end) & (y >= 0) & (y < height)
    return (image.to(tl.int64) * height + row) * (width * C), there[:, None]


@triton.jit
def _load_row(maps, pixels, in_row, image, row, end, height, width, C: tl.constexpr, P: tl.constexpr):
    """Neighbouring pixels of a row, zeros where there are none."""
    start, there = _row(image, row, end, height, width, C, P)
    return tl.load(maps + start + pixels, mask=in_row & there, other=0.0)


@triton.jit
def _by_channel(table):
    """Numbers for 32 channels: [1, 1, 32]."""
    return tl.load(table + tl.arange(0, _CHANNELS))[None, None, :]


@triton.jit
def _apart(x, P: tl.constexpr, PIXELS: tl.constexpr):
    """Pixels side by side [P, PIXELS * 32] -> [P, PIXELS, 32], fp32: a thread needs a channel's numbers only once."""
    return tl.reshape(x, [P, PIXELS, _CHANNELS]).to(tl.float32)


@triton.jit
def _before_leaky(grad, z, scale, shift):
    """The gradient before LeakyReLU, from that after it and from raw maps."""
    return tl.where(z * scale + shift > 0, grad, grad * _SLOPE)


@triton.jit
def _fold(x, P: tl.constexpr):
    """Sums of [P, 2, 32] over both pixels of a pair and pairs eight apart: those that one thread holds anyway."""
    x = tl.reshape(x, [P // 16, 2, 8, 2, _CHANNELS])
    return tl.sum(tl.sum(x, 3), 1)


@triton.jit
def _store_sums(partial, first, second):
    """Write a program's sums of two numbers, of several pixels [., ., 32] each, into [2, 32, programs]."""
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    programs = tl.num_programs(0) * tl.num_programs(1)
    at = partial + tl.arange(0, _CHANNELS) * programs + program
    tl.store(at, tl.sum(tl.sum(first, 0), 0))
    tl.store(at + _CHANNELS * programs, tl.sum(tl.sum(second, 0), 0))


@triton.jit
def _store_share(shares, place, top, middle, bottom, PLACES: tl.constexpr, TALL: tl.constexpr):
    """Write three matrices [TALL, 2 * 32] into a program's places from `place` on."""
    WIDE: tl.constexpr = 2 * _CHANNELS
    program = tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)
    at = shares + (program.to(tl.int64) * PLACES + place) * (TALL * WIDE)
    at += tl.arange(0, TALL)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    tl.store(at, top)
    tl.store(at + TALL * WIDE, middle)
    tl.store(at + 2 * TALL * WIDE, bottom)


@triton.jit
def convolve(
    source, bands, table, out, partial, images, height, width,
    C: tl.constexpr, PAD: tl.constexpr, ACTIVE: tl.constexpr, SUMS: tl.constexpr, P: tl.constexpr,
):  # fmt: skip
    """Convolve maps [M, H + 2 - 2 PAD, W + 2 - 2 PAD, C], padded by PAD (0 or 2) -> out [M, H, W, 32], raw or
    activated, and where asked for the sums of raw numbers and squares."""
    k, n = tl.arange(0, 4 * C), tl.arange(0, 2 * _CHANNELS)
    weights = bands + k[:, None] * (2 * _CHANNELS) + n[None, :]
    top = tl.load(weights).to(source.dtype.element_ty)
    middle = tl.load(weights + 128 * 64).to(source.dtype.element_ty)
    bottom = tl.load(weights + 2 * 128 * 64).to(source.dtype.element_ty)
    first = tl.zeros([P // 16, 8, _CHANNELS], tl.float32)
    second = tl.zeros([P // 16, 8, _CHANNELS], tl.float32)
    if ACTIVE:
        scale = tl.load(table + _SCALE + n % _CHANNELS)[None, :]
        shift = tl.load(table + _SHIFT + n % _CHANNELS)[None, :]
    due = tl.zeros([P, 2 * _CHANNELS], tl.float32)  # the output row that this input row completes
    later = tl.zeros([P, 2 * _CHANNELS], tl.float32)  # the next one
    rows = height + 2 - PAD
    tall, wide = height + 2 - 2 * PAD, width + 2 - 2 * PAD
    window, in_row = _neighbours(-PAD, tall, wide, 4, C, P)
    pair, own_row = _neighbours(0, height, width, 2, _CHANNELS, P)
    image, end, steps = _share(images, rows, P)
    row = 0
    for _ in range(0, steps):
        x = _load_row(source, window, in_row, image, row, end, tall, wide, C, P)
        last = tl.dot(x, top)  # what is needed at once comes last: nothing is read while products are under way
        later = tl.dot(x, middle, later)
        due = tl.dot(x, bottom, due)
        start, there = _row(image, row - 2 + PAD, end, height, width, _CHANNELS, P)
        kept = own_row & there
        if ACTIVE:
            y = due * scale + shift
            tl.store(out + start + pair, tl.maximum(y, y * _SLOPE).to(out.dtype.element_ty), mask=kept)
        else:
            tl.store(out + start + pair, due.to(out.dtype.element_ty), mask=kept)
        if SUMS:
            y = _apart(tl.where(kept, due, 0.0), P, 2)
            first += _fold(y, P)
            second += _fold(y * y, P)
        due = later
        later = last
        image, row = _next(image, row, rows, P)
    if SUMS:
        _store_sums(partial, first, second)


@triton.jit
def weight_gradient(source, grad, shares, images, height, width, P: tl.constexpr):
    """A program's share of the gradient of a band, [programs, 3, 4 * 32, 2 * 32], from that of raw maps [M, H, W, 32].

    source [M, H + 2, W + 2, 32]. Nothing passes through registers on its way to the tensor cores: for that, each row of
    gradients is read three times rather than kept, and the source is already activated.
    """
    TALL: tl.constexpr = 4 * _CHANNELS
    WIDE: tl.constexpr = 2 * _CHANNELS
    top, middle = tl.zeros([TALL, WIDE], tl.float32), tl.zeros([TALL, WIDE], tl.float32)
    bottom = tl.zeros([TALL, WIDE], tl.float32)
    rows = height + 2
    window, in_row = _neighbours(0, rows, width + 2, 4, _CHANNELS, P)
    pair, own_row = _neighbours(0, height, width, 2, _CHANNELS, P)
    image, end, steps = _share(images, rows, P)
    row = 0
    for _ in range(0, steps):
        x = tl.trans(_load_row(source, window, in_row, image, row, end, rows, width + 2, _CHANNELS, P))
        top = tl.dot(x, _load_row(grad, pair, own_row, image, row, end, height, width, _CHANNELS, P), top)
        middle = tl.dot(x, _load_row(grad, pair, own_row, image, row - 1, end, height, width, _CHANNELS, P), middle)
        bottom = tl.dot(x, _load_row(grad, pair, own_row, image, row - 2, end, height, width, _CHANNELS, P), bottom)
        image, row = _next(image, row, rows, P)
    _store_share(shares, 0, top, middle, bottom, 3, TALL)


@triton.jit
def first_gradients(source, grad, raw, table, partial, shares, images, height, width, C: tl.constexpr, P: tl.constexpr):
    """Sums as in `gradient_sums` of a layer whose input has no gradient, and shares [programs, 2 * 3, 4 C, 2 * 32] of
    the gradient of its band, from gradients before LeakyReLU and from raw maps.

    The gradient of raw maps is a sum of both, and of a constant, with factors that follow from the sums: so is that of
    the band. All maps are read once. source [M, H + 2, W + 2, C]: images.
    """
    WIDE: tl.constexpr = 2 * _CHANNELS
    mean, scale, shift = _by_channel(table + _MEAN), _by_channel(table + _SCALE), _by_channel(table + _SHIFT)
    first, second = tl.zeros([P, 2, _CHANNELS], tl.float32), tl.zeros([P, 2, _CHANNELS], tl.float32)
    top, middle = tl.zeros([4 * C, WIDE], tl.float32), tl.zeros([4 * C, WIDE], tl.float32)
    bottom, raw_top = tl.zeros([4 * C, WIDE], tl.float32), tl.zeros([4 * C, WIDE], tl.float32)
    raw_middle, raw_bottom = tl.zeros([4 * C, WIDE], tl.float32), tl.zeros([4 * C, WIDE], tl.float32)
    window, in_row = _neighbours(0, height + 2, width + 2, 4, C, P)
    pair, own_row = _neighbours(0, height, width, 2, _CHANNELS, P)
    image, end, steps = _share(images, height, P)
    row = 0
    for _ in range(0, steps):
        z = _load_row(raw, pair, own_row, image, row, end, height, width, _CHANNELS, P)
        dy = _load_row(grad, pair, own_row, image, row, end, height, width, _CHANNELS, P)
        y = _before_leaky(_apart(dy, P, 2), _apart(z, P, 2), scale, shift)
        first += y
        second += y * (_apart(z, P, 2) - mean)
        y = tl.reshape(y.to(dy.dtype), [P, WIDE])
        x = tl.trans(_load_row(source, window, in_row, image, row, end, height + 2, width + 2, C, P))
        top, raw_top = tl.dot(x, y, top), tl.dot(x, z, raw_top)
        x = tl.trans(_load_row(source, window, in_row, image, row + 1, end, height + 2, width + 2, C, P))
        middle, raw_middle = tl.dot(x, y, middle), tl.dot(x, z, raw_middle)
        x = tl.trans(_load_row(source, window, in_row, image, row + 2, end, height + 2, width + 2, C, P))
        bottom, raw_bottom = tl.dot(x, y, bottom), tl.dot(x, z, raw_bottom)
        image, row = _next(image, row, height, P)
    _store_sums(partial, first, second)
    _store_share(shares, 0, top, middle, bottom, 6, 4 * C)
    _store_share(shares, 3, raw_top, raw_middle, raw_bottom, 6, 4 * C)


@triton.jit
def _some_pixels(block, pixels, P: tl.constexpr):
    """Where a block of maps [pixels, 32] lies in memory, and which of it there is: [P, 32] and [P, 1]."""
    pixel = block * P + tl.arange(0, P)
    return pixel.to(tl.int64)[:, None] * _CHANNELS + tl.arange(0, _CHANNELS)[None, :], (pixel < pixels)[:, None]


@triton.jit
def activate(raw, table, out, pixels, P: tl.constexpr):
    """Normalised and activated maps of raw ones: [pixels, 32] each."""
    at, there = _some_pixels(tl.program_id(0), pixels, P)
    z = _apart(tl.load(raw + at, mask=there, other=0.0), P, 1)
    y = z * _by_channel(table + _SCALE) + _by_channel(table + _SHIFT)
    y = tl.maximum(y, y * _SLOPE)
    tl.store(out + at, tl.reshape(y, [P, _CHANNELS]).to(out.dtype.element_ty), mask=there)


@triton.jit
def gradient_sums(grad, raw, table, partial, pixels, P: tl.constexpr):
    """Sums of gradients before LeakyReLU, and times (z - mean), of maps [pixels, 32] and gradients after it."""
    mean, scale, shift = _by_channel(table + _MEAN), _by_channel(table + _SCALE), _by_channel(table + _SHIFT)
    first, second = tl.zeros([P, 1, _CHANNELS], tl.float32), tl.zeros([P, 1, _CHANNELS], tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(pixels, P), tl.num_programs(0)):
        at, there = _some_pixels(block, pixels, P)
        z = _apart(tl.load(raw + at, mask=there, other=0.0), P, 1)
        y = _before_leaky(_apart(tl.load(grad + at, mask=there, other=0.0), P, 1), z, scale, shift)
        first += y
        second += y * (z - mean)
    _store_sums(partial, first, second)


@triton.jit
def raw_gradient(grad, raw, table, coefficients, out, pixels, P: tl.constexpr):
    """The gradient of raw maps from that of activated ones: [pixels, 32] each."""
    at, there = _some_pixels(tl.program_id(0), pixels, P)
    z = _apart(tl.load(raw + at, mask=there, other=0.0), P, 1)
    y = _apart(tl.load(grad + at, mask=there, other=0.0), P, 1)
    y = _before_leaky(y, z, _by_channel(table + _SCALE), _by_channel(table + _SHIFT))
    by_raw, constant = _by_channel(coefficients + _CHANNELS), _by_channel(coefficients + 2 * _CHANNELS)
    y = y * _by_channel(coefficients) + (z * by_raw + constant)
    tl.store(out + at, tl.reshape(y, [P, _CHANNELS]).to(out.dtype.element_ty), mask=there)


@triton.jit
def _two_sums(partial, programs, BLOCK: tl.constexpr):
    """The two sums of this program's channel over partial [2, 32, programs], fp64."""
    first, second = tl.zeros([BLOCK], tl.float64), tl.zeros([BLOCK], tl.float64)
    for start in range(0, programs, BLOCK):
        at = start + tl.arange(0, BLOCK)
        mine = partial + tl.program_id(0) * programs + at
        first += tl.load(mine, mask=at < programs, other=0.0)
        second += tl.load(mine + _CHANNELS * programs, mask=at < programs, other=0.0)
    return tl.sum(first, 0), tl.sum(second, 0)


@triton.jit
def statistics(partial, norm, table, programs, count, BLOCK: tl.constexpr):
    """Mean, variance (biased), scale and shift of a channel's batch norm from sums of z and z^2."""
    first, second = _two_sums(partial, programs, BLOCK)
    channel = tl.program_id(0)
    mean = first / count
    variance = tl.maximum(second / count - mean * mean, 0.0).to(tl.float32)
    scale = tl.load(norm + channel) * tl.rsqrt(variance + _EPSILON)
    mean = mean.to(tl.float32)
    tl.store(table + _MEAN + channel, mean)
    tl.store(table + _VARIANCE + channel, variance)
    tl.store(table + _SCALE + channel, scale)
    tl.store(table + _SHIFT + channel, tl.load(norm + _CHANNELS + channel) - mean * scale)


@triton.jit
def norm_gradient(partial, table, grad_norm, coefficients, programs, count, BLOCK: tl.constexpr):
    """Gradients of batch norm's weight and bias, and those of raw maps as a g + b z + c: a, b and c [3, 32]."""
    first, second = _two_sums(partial, programs, BLOCK)
    channel = tl.program_id(0)
    mean, scale = tl.load(table + _MEAN + channel), tl.load(table + _SCALE + channel)
    inverse = tl.rsqrt(tl.load(table + _VARIANCE + channel) + _EPSILON)
    grad_weight = second.to(tl.float32) * inverse
    by_raw = -scale * inverse * grad_weight / count
    tl.store(grad_norm + channel, grad_weight)
    tl.store(grad_norm + _CHANNELS + channel, first.to(tl.float32))
    tl.store(coefficients + channel, scale)
    tl.store(coefficients + _CHANNELS + channel, by_raw)
    tl.store(coefficients + 2 * _CHANNELS + channel, -scale * first.to(tl.float32) / count - by_raw * mean)
