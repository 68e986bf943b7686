"""Voronoi cells of robots over a density: exact moments, shared by the coverage cost and the controllers.

A cell is the set of map cells whose centres have that robot as their nearest (on a bisector: the robot on the left).
Map cell (y, x) of density [B, S, S] has its centre at ((x + 0.5), (y + 0.5)) * resolution metres. Numba on the CPU;
torch or Triton on CUDA, where each robot's interval in each row follows from its N - 1 bisectors.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import numpy as np
import torch
from torch import Tensor

from mast_swarm.kernels import on_gpu
from mast_swarm.space.graph import Graph
from mast_swarm.space.maps import crops, gpu, unpack
from mast_swarm.threads import compiled

_CHUNK = 1 << 26  # elements of the largest array on CUDA; more environments than fit are taken in turns
_QUICK = 1 << 13  # bisectors: polygons of so few are cut before other threads have woken up


def row_sums(density: Tensor) -> Tensor:
    """Running mass, first and second moment along x after each block of 8 cells: [B, S, ceil(S / 8) + 1, 3] float64.

    They depend on the density alone, so a world computes them once and keeps them.
    """
    from mast_swarm.space import _cpu_voronoi as cpu

    batch, rows, cells = density.shape
    blocks = -(-cells // cpu.BLOCK)
    if not on_gpu(density):
        sums = np.empty((batch, rows, blocks + 1, 3))
        cpu.row_sums(density.contiguous().numpy(), sums)
        return torch.from_numpy(sums)
    x = torch.arange(cells, device=density.device, dtype=torch.float64) + 0.5
    padded = torch.nn.functional.pad(density.double()[..., None] * torch.stack([x**0, x, x * x], -1), (0, 0, 1, 0))
    running = padded.cumsum(2)  # [B, S, S + 1, 3]
    at = (torch.arange(blocks + 1, device=density.device) * cpu.BLOCK).clamp(max=cells)
    return running[:, :, at].contiguous()


def cell_moments(
    points: Tensor, density: Tensor, sums: Tensor, resolution: float, seen: Tensor | None = None
) -> Tensor:
    """[B, N, 4] float64: mass, density times x, times y, times squared distance (m, m, m^2), over each robot's cell.

    points: [B, N, 2] metres. sums: of row_sums. seen: bits [B, S, W]; then only what is seen counts, and the squared
    distance is left out ([B, N, 3]).
    """
    scaled = points.detach().double() / resolution
    if not on_gpu(points):
        from mast_swarm.space import _cpu_voronoi as cpu

        out = np.empty((*points.shape[:2], 4))
        bits = np.empty((len(points), 0, 0), np.int64) if seen is None else seen.numpy()
        cpu.cell_moments(scaled.numpy(), density.numpy(), sums.numpy(), bits, seen is not None, out)
        found = torch.from_numpy(out)
    elif gpu is not None and seen is None:
        from mast_swarm.space._cpu_voronoi import BLOCK, FAR

        found = gpu.cell_moments(scaled, density, sums, BLOCK, FAR)
    else:
        found = _in_turns(_dense_moments, (scaled, density, sums, seen), points.shape[1] ** 2 * density.shape[1])
    found = _in_metres(found, resolution)
    return found if seen is None else found[..., :3]


def local_moments(
    points: Tensor,
    density: Tensor,
    sums: Tensor,
    resolution: float,
    seen: Tensor,
    graph: Graph,
    corner: Tensor,
    size: int,
) -> Tensor:
    """[B, N, 3] float64: mass, density times x and y (m) over each robot's cell, as far as it knows by itself.

    Its cell is taken among the robots it hears and cut to the square of `size` map cells from corner [B, N, 2] int64;
    seen: bits [B, N, S, W].
    """
    scaled = points.detach().double() / resolution
    if not on_gpu(points):
        from mast_swarm.space import _cpu_voronoi as cpu

        out = np.empty((*points.shape[:2], 3))
        arrays = (scaled.numpy(), density.numpy(), sums.numpy(), seen.numpy())
        cpu.local_moments(*arrays, *_by_target(graph), corner.numpy(), size, out)
        return _in_metres(torch.from_numpy(out), resolution)
    parts = (scaled, density, seen, graph.adjacency(), corner)
    work = points.shape[1] * max(points.shape[1], size) * size
    return _in_metres(_in_turns(partial(_dense_local, size), parts, work), resolution)


def cell_middles(
    points: Tensor, wanted: Tensor, low: Tensor, high: Tensor, graph: Graph | None = None, *, by_area: bool = False
) -> Tensor:
    """[B, N, 2] float64: the middle of each wanted [B, N] robot's cell in the box low..high [B, N, 2]; else 0.

    The mean of the polygon's vertices, or the centroid of its area. graph: whose bisectors bound a cell; None: all.
    Polygons have any number of vertices, so they are cut on the CPU; this waits for the device on CUDA.
    """
    from mast_swarm.space import _cpu_voronoi as cpu

    out, count = np.zeros(tuple(points.shape)), int(wanted.sum())
    if count:
        at, lowest, highest = (t.detach().cpu().double().numpy() for t in (points, low, high))
        none = np.empty(0, np.int64)
        heard, first = (none, none) if graph is None else _by_target(graph)
        with compiled(1) if count * points.shape[1] <= _QUICK else nullcontext():
            cpu.cell_middles(at, wanted.cpu().numpy(), heard, first, lowest, highest, by_area, out)
    return torch.from_numpy(out).to(points.device)


def _in_metres(moments: Tensor, resolution: float) -> Tensor:
    """Moments [..., 3 or 4] from map cells to metres."""
    parts = (moments[..., :1], moments[..., 1:3] * resolution, moments[..., 3:] * resolution**2)
    return moments if resolution == 1.0 else torch.cat(parts, -1)


def _by_target(graph: Graph) -> tuple[np.ndarray, np.ndarray]:
    """Robots heard [E], numbered within their environment, and where those of each robot begin [B*N + 1]."""
    source, target = graph.source.cpu().numpy(), graph.target.cpu().numpy()
    heard = source[np.argsort(target, kind="stable")] % max(graph.nodes, 1)
    count = np.bincount(target, minlength=graph.batch * graph.nodes)
    return heard, np.concatenate([[0], np.cumsum(count)])


def _in_turns(function: Callable[..., Tensor], parts: tuple[Tensor | None, ...], work: int) -> Tensor:
    """The function of as many environments at a time as keep its arrays small."""
    step = max(1, _CHUNK // work)
    batch = len(parts[0])  # type: ignore[arg-type]
    return torch.cat([function(*(p if p is None else p[b : b + step] for p in parts)) for b in range(0, batch, step)])


def _intervals(points: Tensor, rows: Tensor, heard: Tensor | None, cells: int) -> tuple[Tensor, Tensor]:
    """First map cell of each robot's interval in each row, and the first beyond it: [B, N, R] int64 each.

    rows: y of the rows, [R] or [B, N, R]. heard [B, N, N]: whose bisectors count; None: everyone's.
    """
    from mast_swarm.space._cpu_voronoi import FAR

    n = points.shape[1]
    x, y = points[..., 0], points[..., 1]
    gap, rise = x[:, None] - x[:, :, None], y[:, None] - y[:, :, None]  # [b, i, j]: from i to j
    middle = (y[:, None] + y[:, :, None]) / 2
    number = torch.arange(n, device=points.device)
    lead = torch.where(number[:, None] < number, 1e9, -1e9)
    level = gap == 0
    steep = gap.masked_fill(level, 1.0)
    at = torch.where(level, lead + FAR * rise * middle, (x[:, None] + x[:, :, None]) / 2 + rise * middle / steep)
    slope = torch.where(level, -FAR * rise, -rise / steep)
    other = number[:, None] != number
    counted = other if heard is None else heard & other
    infinity = torch.inf
    right, left = counted & (gap >= 0), counted & (gap < 0)
    flat = torch.where(counted, slope, 0.0)[..., None]
    line = rows[:, :, None] if rows.dim() == 3 else rows
    high = (torch.where(right, at, infinity)[..., None] + flat * line).amin(2)
    low = (torch.where(left, at, -infinity)[..., None] + flat * line).amax(2)
    # Where a position is no number there is no cell: a GPU that is given such an index is lost to the process.
    begin, end = ((bound - 0.5).floor().clamp(-1, cells - 1).nan_to_num(-1).long() + 1 for bound in (low, high))
    return begin, torch.maximum(begin, end)


def _dense_moments(points: Tensor, density: Tensor, sums: Tensor, seen: Tensor | None) -> Tensor:
    """cell_moments in map cells, in torch."""
    cells = density.shape[1]
    if seen is not None:
        density = torch.where(unpack(seen, cells), density, 0.0)
        sums = row_sums(density)
    row = torch.arange(cells, device=points.device, dtype=torch.float64) + 0.5
    begin, end = _intervals(points, row, None, cells)
    m0, m1, m2 = (_up_to(density, sums, end) - _up_to(density, sums, begin)).unbind(-1)  # [B, N, S] each
    x, y = points[..., 0, None], points[..., 1, None]
    spread = m2 - 2 * x * m1 + (x * x + (row - y) ** 2) * m0
    return torch.stack([m0.sum(-1), m1.sum(-1), (m0 * row).sum(-1), spread.sum(-1)], -1)


def _up_to(density: Tensor, sums: Tensor, stop: Tensor) -> Tensor:
    """Mass and moments of the first `stop` [B, N, S] cells of every row: [B, N, S, 3]."""
    from mast_swarm.space._cpu_voronoi import BLOCK

    batch, cells, _ = density.shape
    environment = torch.arange(batch, device=density.device).view(-1, 1, 1)
    row = torch.arange(cells, device=density.device)
    block, rest = stop // BLOCK, stop % BLOCK
    found = sums[environment, row, block]
    # What is left of a block that is begun; beyond the last block nothing ever is.
    blocks = torch.nn.functional.pad(density, (0, -cells % BLOCK)).view(batch, cells, -1, BLOCK)
    begun = blocks[environment, row, block.clamp(max=blocks.shape[2] - 1)]  # [B, N, S, 8]
    offset = torch.arange(BLOCK, device=density.device)
    begun = torch.where(offset < rest[..., None], begun, 0.0).double()
    x = (block * BLOCK)[..., None] + (offset + 0.5)
    return found + torch.stack([begun.sum(-1), (begun * x).sum(-1), (begun * x * x).sum(-1)], -1)


def _dense_local(size: int, points: Tensor, density: Tensor, seen: Tensor, heard: Tensor, corner: Tensor) -> Tensor:
    """local_moments in map cells, in torch."""
    known = crops(density, seen, corner, size)  # [B, N, size, size]
    offset = torch.arange(size, device=points.device)
    x, y = (corner[..., axis, None] + offset for axis in (0, 1))
    begin, end = _intervals(points, y + 0.5, heard, density.shape[1])
    own = (x[:, :, None] >= begin[..., None]) & (x[:, :, None] < end[..., None])
    known = torch.where(own, known, 0.0).double()
    mass = known.sum(-1)  # [B, N, size] a row
    return torch.stack([mass.sum(-1), (known.sum(-2) * (x + 0.5)).sum(-1), (mass * (y + 0.5)).sum(-1)], -1)
