"""Maps of square cells: density [B, S, S] indexed [y, x], and what has been seen of it, one bit a cell.

Bits are kept in words of 64 cells along x: [..., S, W] int64 with W = ceil(S / 64); bit k of word w is cell 64 w + k.
Cell (y, x) has its centre at (x + 0.5, y + 0.5); lengths here are in cells.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mast_swarm.kernels import USABLE, on_gpu

gpu: Any = None  # the module of GPU kernels for maps, where there is a GPU and Triton
if USABLE:
    from mast_swarm.space import _gpu_maps as gpu

WORD = 64
_CROPPED = 1 << 27  # map cells that are cropped at a time


def words(cells: int) -> int:
    """Words that hold a row of bits."""
    return -(-cells // WORD)


def unpack(bits: Tensor, cells: int) -> Tensor:
    """Bits [..., W] int64 -> [..., cells] bool."""
    shift = torch.arange(8, device=bits.device, dtype=torch.uint8)
    in_bytes = bits.contiguous().view(torch.uint8)  # little-endian, as every supported machine is
    return ((in_bytes[..., None] >> shift) & 1).flatten(-2)[..., :cells].bool()


def squares(corner: Tensor, size: int, cells: int) -> tuple[Tensor, Tensor]:
    """Which cells squares cover: corner [B, N, 2] (x, y) int64 -> words [B, N, W] int64 and rows [B, N, cells] bool."""
    first = corner[..., 0, None] - WORD * torch.arange(words(cells), device=corner.device)
    past = (cells - WORD * torch.arange(words(cells), device=corner.device)).clamp(max=WORD)
    begin, end = first.clamp(0, WORD), torch.minimum((first + size).clamp(0, WORD), past)
    row = torch.arange(cells, device=corner.device)
    inside = (row >= corner[..., 1, None]) & (row < corner[..., 1, None] + size)
    return _below(end) & ~_below(begin), inside


def _below(count: Tensor) -> Tensor:
    """Words with their lowest `count` bits set, 0 to 64."""
    return torch.where(count < WORD, (torch.ones_like(count) << count.clamp(max=WORD - 1)) - 1, -1)


def crops(density: Tensor, bits: Tensor, corner: Tensor, size: int) -> Tensor:
    """What each robot has seen of the square of `size` cells from its corner: [B, N, size, size]; 0 where it has not.

    density: [B, S, S], bits: [B, N, S, W], corner: [B, N, 2] (x, y) int64; squares may reach outside the map.
    """
    batch, n, cells, _ = bits.shape
    offset = torch.arange(size, device=density.device)
    x, y = (corner[..., axis, None] + offset for axis in (0, 1))  # [B, N, size]
    inside = ((x >= 0) & (x < cells))[:, :, None] & ((y >= 0) & (y < cells))[..., None]
    x, y = x.clamp(0, cells - 1), y.clamp(0, cells - 1)
    environment = torch.arange(batch, device=density.device).view(-1, 1, 1, 1)
    robot = torch.arange(n, device=density.device).view(1, -1, 1, 1)
    x, y = x[:, :, None], y[..., None]  # [B, N, 1, size], [B, N, size, 1]
    in_bytes = bits.view(torch.uint8)[environment, robot, y, x // 8]
    known = ((in_bytes >> (x % 8).to(torch.uint8)) & 1).bool() & inside
    return torch.where(known, density[environment, y, x], 0.0)


def shrunk(density: Tensor, bits: Tensor, corner: Tensor, weights: Tensor, seen_map: bool) -> Tensor:
    """What `crops` gives, resized along both sides by the filter weights [K, P]: [B, N, 1, P, P].

    With the seen map [B, N, 2, P, P]: second comes the same of a density of 1 everywhere.
    """
    if gpu is not None and on_gpu(density) and gpu.takes(density, weights):
        return gpu.shrink(density, bits, corner, weights, seen_map)
    (batch, n, _), size = corner.shape, len(weights)
    step = max(1, _CROPPED // max(1, n * size * size))
    parts = [slice(b, b + step) for b in range(0, max(1, batch), step)]  # an empty one where there is no environment

    def resized(values: Tensor) -> Tensor:
        return torch.cat([weights.T @ crops(values[b], bits[b], corner[b], size) @ weights for b in parts])

    small = [resized(density)]
    if seen_map:
        small.append(resized(density.new_ones(()).expand_as(density)))
    return torch.stack(small, 2)
