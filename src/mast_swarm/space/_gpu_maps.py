"""Maps of square cells on a GPU (Triton): Voronoi moments, and what robots have seen, cropped and made smaller.

Plain torch writes an array for every pair of robots and row, or for every cell of every robot's crop; here they live in
registers. `voronoi` and `maps` say what is computed.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_ROWS = 128  # of the map, a program


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
        gap, rise, middle = x2 - x, y2 - y, (y2 + y) / 2
        level = gap == 0
        steep = tl.where(level, 1.0, gap)
        lead = tl.where(own < other, 1e9, -1e9)
        at = tl.where(level, lead + far * rise * middle, (x2 + x) / 2 + rise * middle / steep)
        slope = tl.where(level, -far * rise, -rise / steep)
        bound = at + slope * line
        high = tl.where((other != own) & (gap >= 0), tl.minimum(high, bound), high)
        low = tl.where((other != own) & (gap < 0), tl.maximum(low, bound), low)
    last = (cells - 1).to(tl.float64)
    begin = tl.minimum(tl.maximum(tl.floor(low - 0.5), -1.0), last).to(tl.int64) + 1
    end = tl.minimum(tl.maximum(tl.floor(high - 0.5), -1.0), last).to(tl.int64) + 1
    end = tl.maximum(begin, end)
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
def _shrink(
    density, seen, corner, weights, first, small, robots, cells, words, stride,
    SIZE: tl.constexpr, PIXELS: tl.constexpr, TAPS: tl.constexpr,
):  # fmt: skip
    """One row of pixels of one robot's map: the rows of cells under it, added up and then resized along x."""
    which, pixel = tl.program_id(0).to(tl.int64), tl.program_id(1)
    left, top = tl.load(corner + 2 * which), tl.load(corner + 2 * which + 1)
    column = tl.arange(0, SIZE)
    x = left + column
    inside = (x >= 0) & (x < cells)
    density += which // robots * stride
    seen += which * cells * words
    total = tl.zeros([SIZE], tl.float32)
    begin = tl.load(first + pixel)
    for tap in range(TAPS):
        y = tl.zeros_like(x) + (top + begin + tap)
        there = inside & (y >= 0) & (y < cells)
        word = tl.load(seen + y * words + x // 64, mask=there, other=0)
        known = there & (((word >> (x % 64)) & 1) == 1)
        value = tl.load(density + y * cells + x, mask=known, other=0.0)
        total += value * tl.load(weights + (begin + tap) * PIXELS + pixel)
    across = tl.load(weights + column[:, None] * PIXELS + tl.arange(0, PIXELS)[None, :])
    row = tl.sum(total[:, None] * across, 0)
    tl.store(small + (which * PIXELS + pixel) * PIXELS + tl.arange(0, PIXELS), row)


def cell_moments(points: Tensor, density: Tensor, sums: Tensor, block: int, far: float) -> Tensor:
    """[B, N, 4] float64 in map cells, as `voronoi._dense_moments` of all that there is; points [B, N, 2] float64."""
    batch, robots, _ = points.shape
    cells = density.shape[1]
    parts = triton.cdiv(cells, _ROWS)
    part = torch.empty((batch, robots, parts, 4), dtype=torch.float64, device=points.device)
    _moments[(batch * robots, parts)](
        points.contiguous(), density.contiguous(), sums.contiguous(), part, robots, cells, sums.shape[2], far,
        BLOCK=block, ROWS=_ROWS, enable_fp_fusion=False,
    )  # fmt: skip
    return part.sum(2)


def takes(size: int, pixels: int) -> bool:
    """Whether `shrink` takes maps of these sizes: powers of two."""
    return size & (size - 1) == 0 and pixels & (pixels - 1) == 0


def shrink(density: Tensor, seen: Tensor, corner: Tensor, weights: Tensor, first: Tensor, taps: int) -> Tensor:
    """What each robot has seen of the square from its corner, resized: [B, N, P, P].

    density [B, S, S], each map in one piece; seen [B, N, S, W] bits; corner [B, N, 2] int64; weights [K, P] the filter,
    of which pixel p takes the `taps` cells from first [P] on.
    """
    batch, robots, cells, words = seen.shape
    size, pixels = weights.shape
    small = torch.empty((batch, robots, pixels, pixels), dtype=torch.float32, device=density.device)
    _shrink[(batch * robots, pixels)](
        density, seen.contiguous(), corner.contiguous(), weights, first, small, robots, cells, words, density.stride(0),
        SIZE=size, PIXELS=pixels, TAPS=taps,
    )  # fmt: skip
    return small
