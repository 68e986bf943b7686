"""Maps of square cells on a GPU (Triton): Voronoi moments, marking what robots see, and making smaller maps of it.

Plain torch writes an array for every pair of robots and row, or for every cell of every robot's crop; here they live in
registers. `voronoi` and `maps` say what is computed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS, _WARPS = 256, 1  # of the map, a program: 8 rows a thread, which share the divisions for their bisectors
_LINES = 16  # rows of pixels, a program
_WORDS = 512  # of 64 cells each, a program


@triton.jit
def _up_to(density, sums, row, there, stop, cells, blocks, BLOCK: tl.constexpr):
    """Mass, first and second moment along x of the first `stop` cells of rows, [rows] each."""
    block = stop // BLOCK
    at = (row * blocks + block) * 3
    m0 = tl.load(sums + at, mask=there, other=0.0)
    m1 = tl.load(sums + at + 1, mask=there, other=0.0)
    m2 = tl.load(sums + at + 2, mask=there, other=0.0)
    for offset in tl.static_range(BLOCK):
        cell = block * BLOCK + offset
        v = tl.load(density + row * cells + cell, mask=there & (cell < stop), other=0.0).to(tl.float64)
        x = cell.to(tl.float64) + 0.5
        m0 += v
        m1 += v * x
        m2 += v * x * x
    return m0, m1, m2


@triton.jit
def _moments(
    points, density, sums, part, robots, cells, blocks, far,
    BLOCK: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """One robot's cell in some rows: each row's interval from the bisectors with all others, then its moments."""
    which = tl.program_id(0).to(tl.int64)
    environment, own = which // robots, which % robots
    points += environment * robots * 2
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS).to(tl.int64)
    there = row < cells
    line = row.to(tl.float64) + 0.5
    x, y = tl.load(points + 2 * own), tl.load(points + 2 * own + 1)
    low = tl.full([ROWS], float("-inf"), tl.float64)
    high = tl.full([ROWS], float("inf"), tl.float64)
    for other in range(robots):
        x2, y2 = tl.load(points + 2 * other), tl.load(points + 2 * other + 1)
        gap, rise, middle = x2 - x, y2 - y, (y2 + y) * 0.5  # a division by 2 would be a long one
        level = gap == 0
        steep = tl.where(level, 1.0, gap)
        lead = tl.where(own < other, 1e9, -1e9)
        at = tl.where(level, lead + far * rise * middle, (x2 + x) * 0.5 + rise * middle / steep)
        slope = tl.where(level, -far * rise, -rise / steep)
        bound = at + slope * line
        # By comparisons, which a position that is no number fails: what follows is a place in memory.
        if other != own:
            if gap < 0:
                low = tl.where(bound > low, bound, low)
            else:
                high = tl.where(bound < high, bound, high)
    last = (cells - 1).to(tl.float64)
    begin = tl.minimum(tl.maximum(tl.floor(low - 0.5), -1.0), last).to(tl.int64) + 1
    end = tl.minimum(tl.maximum(tl.floor(high - 0.5), -1.0), last).to(tl.int64) + 1
    there &= begin < end  # of most rows a robot owns nothing: they read nothing
    density += environment * cells * cells
    sums += environment * cells * blocks * 3
    b0, b1, b2 = _up_to(density, sums, row, there, begin, cells, blocks, BLOCK)
    e0, e1, e2 = _up_to(density, sums, row, there, end, cells, blocks, BLOCK)
    m0, m1, m2 = e0 - b0, e1 - b1, e2 - b2
    spread = m2 - 2 * x * m1 + (x * x + (line - y) * (line - y)) * m0
    into = part + (which * tl.num_programs(1) + tl.program_id(1)) * 4
    tl.store(into, tl.sum(m0, 0))
    tl.store(into + 1, tl.sum(m1, 0))
    tl.store(into + 2, tl.sum(m0 * line, 0))
    tl.store(into + 3, tl.sum(tl.where(there, spread, 0.0), 0))


@triton.jit
def _sides(weights, PIXELS: tl.constexpr, UNDER: tl.constexpr):
    """A pixel takes the cells under it and half as many on either side: weights of those under, [PIXELS * UNDER], then
    which cells are on the sides, as many, and their weights."""
    column = tl.arange(0, PIXELS * UNDER)
    pixel = column // UNDER
    aside = tl.where(column % UNDER < UNDER // 2, column - UNDER // 2, column + UNDER // 2)
    there = (aside >= 0) & (aside < PIXELS * UNDER) & (UNDER > 1)
    weight = tl.load(weights + column * PIXELS + pixel)
    beside = tl.load(weights + aside * PIXELS + pixel, mask=there, other=0.0)
    return weight, tl.where(there, aside, column), beside


@triton.jit
def _along(total, weight, aside, beside, PIXELS: tl.constexpr, UNDER: tl.constexpr):
    """A row of cells [PIXELS * UNDER] resized, with what `_sides` gives: [PIXELS]."""
    taken = total * weight + tl.gather(total, aside, 0) * beside
    return tl.sum(tl.reshape(taken, [PIXELS, UNDER]), 1)


@triton.jit
def _shrink(
    density, seen, corner, weights, small, robots, cells, words,
    SIZE: tl.constexpr, PIXELS: tl.constexpr, MAPS: tl.constexpr, LINES: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Some rows of pixels of one robot's maps. The cells between the middles of two of them go to these two alone.

    Bits come in words of 32, shifted so that the first is the corner's: a thread then tests one bit a cell."""
    UNDER: tl.constexpr = SIZE // PIXELS
    BITS: tl.constexpr = 32 if SIZE > 32 else SIZE
    which, begin = tl.program_id(0).to(tl.int64), tl.program_id(1) * LINES
    left, top = tl.load(corner + 2 * which).to(tl.int32), tl.load(corner + 2 * which + 1).to(tl.int32)
    density += which // robots * cells * cells + left
    seen += which * cells * words
    column, block, bit = tl.arange(0, SIZE), tl.arange(0, SIZE // BITS), tl.arange(0, BITS)
    word, shift = (left >> 5) + block, left & 31
    here, after = (word >= 0) & (word < words), (word >= -1) & (word < words - 1)
    count = tl.minimum(tl.maximum(cells - left - block * BITS, 0), 32)  # of the bits, those inside the map
    inside = tl.where(count < 32, (1 << tl.minimum(count, 31)) - 1, -1).to(tl.uint32)
    weight, aside, beside = _sides(weights, PIXELS, UNDER)
    known_above, seen_above = tl.zeros([SIZE], tl.float32), tl.zeros([SIZE], tl.float32)
    for step in range(LINES + 1):
        line = begin + step
        known_below, seen_below = tl.zeros([SIZE], tl.float32), tl.zeros([SIZE], tl.float32)
        for part in range(UNDER // ROWS):
            row = line * UNDER - UNDER // 2 + part * ROWS + tl.arange(0, ROWS)
            y = top + row
            crop = (row >= 0) & (row < SIZE)
            above = tl.load(weights + row * PIXELS + line - 1, mask=crop & (line > 0), other=0.0)[:, None]
            below = tl.load(weights + row * PIXELS + line, mask=crop & (line < PIXELS), other=0.0)[:, None]
            there = (crop & (y >= 0) & (y < cells))[:, None]
            at = seen + y[:, None] * words + word[None, :]
            low = tl.load(at, mask=there & here[None, :], other=0).to(tl.uint32)
            high = tl.load(at + 1, mask=there & after[None, :], other=0).to(tl.uint32)
            bits = ((low >> shift) | ((high << 1) << (31 - shift))) & inside[None, :]
            known = (bits[:, :, None] & (1 << bit).to(tl.uint32)[None, None, :]) != 0
            known = tl.reshape(known, [ROWS, SIZE])
            if MAPS == 2:
                one = known.to(tl.float32)
                seen_above += tl.sum(one * above, 0)
                seen_below += tl.sum(one * below, 0)
            value = tl.load(density + y.to(tl.int64)[:, None] * cells + column[None, :], mask=known, other=0.0)
            known_above += tl.sum(value * above, 0)
            known_below += tl.sum(value * below, 0)
        to = small + (which * MAPS * PIXELS + line - 1) * PIXELS + tl.arange(0, PIXELS)
        tl.store(to, _along(known_above, weight, aside, beside, PIXELS, UNDER), mask=step > 0)
        if MAPS == 2:
            tl.store(to + PIXELS * PIXELS, _along(seen_above, weight, aside, beside, PIXELS, UNDER), mask=step > 0)
        known_above, seen_above = known_below, seen_below


@triton.jit
def _below(count):
    """As `maps._below`."""
    return tl.where(count < 64, (1 << tl.minimum(count, 63).to(tl.int64)) - 1, -1)


@triton.jit
def _mark(corner, seen, union, robots, cells, words, size, ROWS: tl.constexpr, WORDS: tl.constexpr):
    """Some rows of one robot's square: set in its own map, and in that of its environment, where squares overlap."""
    which = tl.program_id(0).to(tl.int64)
    left, top = tl.load(corner + 2 * which).to(tl.int32), tl.load(corner + 2 * which + 1).to(tl.int32)
    line = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    row, word = top + line, (left >> 6) + tl.arange(0, WORDS)
    begin = tl.minimum(tl.maximum(left - word * 64, 0), 64)
    end = tl.minimum(tl.maximum(tl.minimum(left + size, cells) - word * 64, 0), 64)
    columns = (_below(end) & ~_below(begin))[None, :]
    inside = ((line < size) & (row >= 0) & (row < cells))[:, None] & ((word >= 0) & (word < words))[None, :]
    there = inside & (columns != 0)
    own = seen + which * cells * words + row[:, None] * words + word[None, :]
    tl.store(own, tl.load(own, mask=there, other=0) | columns, mask=there)
    shared = union + which // robots * cells * words + row[:, None] * words + word[None, :]
    tl.atomic_or(shared, columns, mask=there, sem="relaxed")


def cell_moments(points: Tensor, density: Tensor, sums: Tensor, block: int, far: float) -> Tensor:
    """[B, N, 4] float64 in map cells, as `voronoi._dense_moments` of all that there is; points [B, N, 2] float64."""
    batch, robots, _ = points.shape
    cells = density.shape[1]
    parts = triton.cdiv(cells, _ROWS)
    part = torch.empty((batch, robots, parts, 4), dtype=torch.float64, device=points.device)
    _moments[(batch * robots, parts)](
        points.contiguous(), density.contiguous(), sums.contiguous(), part, robots, cells, sums.shape[2], far,
        BLOCK=block, ROWS=_ROWS, num_warps=_WARPS, enable_fp_fusion=False,
    )  # fmt: skip
    return part.sum(2)


def takes(density: Tensor, weights: Tensor) -> bool:
    """Whether `shrink` takes density [B, S, S] and weights [K, P]: fp32, K and P powers of two."""
    size, pixels = weights.shape
    powers = pixels <= size and size & (size - 1) == 0 and pixels & (pixels - 1) == 0
    return powers and density.dtype == torch.float32


def shrink(density: Tensor, seen: Tensor, corner: Tensor, weights: Tensor, seen_map: bool) -> Tensor:
    """As `maps.shrunk`, of the antialiased bilinear filter: of weights [K, P] those of pixel p are 0 but in the K / P
    cells under it and half as many on either side."""
    batch, robots, cells, _ = seen.shape
    size, pixels = weights.shape
    words = seen.contiguous().view(torch.int32)
    maps, lines = 1 + seen_map, min(pixels, _LINES)
    small = torch.empty((batch, robots, maps, pixels, pixels), dtype=torch.float32, device=density.device)
    _shrink[(batch * robots, pixels // lines)](
        density.contiguous(), words, corner.contiguous(), weights.contiguous(), small, robots, cells, words.shape[3],
        SIZE=size, PIXELS=pixels, MAPS=maps, LINES=lines, ROWS=min(size // pixels, 8),
        num_warps=min(max(size // 128, 1), 8),
    )  # fmt: skip
    return small


def mark(corner: Tensor, size: int, seen: Tensor, union: Tensor) -> None:
    """Sets the bits of the square of `size` cells from corner [B, N, 2] in seen [B, N, S, W] and union [B, S, W], both
    contiguous."""
    batch, robots, cells, words = seen.shape
    wide = triton.next_power_of_2(triton.cdiv(size - 1, 64) + 1)
    rows = min(max(_WORDS // wide, 1), triton.next_power_of_2(size))
    _mark[(batch * robots, triton.cdiv(size, rows))](
        corner.contiguous(), seen, union, robots, cells, words, size, ROWS=rows, WORDS=wide
    )
