"""Coverage in torch, for CUDA: what has been seen, and the observed pictures. The same results as _coverage_cpu."""

from __future__ import annotations

import torch
from torch import Tensor

from mast_swarm.kernels import on_gpu
from mast_swarm.space.maps import gpu, shrunk, squares


def mark(corner: Tensor, size: int, seen: Tensor, union: Tensor) -> None:
    """Sets the bits of the square of `size` cells from corner [B, N, 2] in seen [B, N, S, W] and union [B, S, W]."""
    if gpu is not None and on_gpu(seen) and seen.is_contiguous() and union.is_contiguous():
        gpu.mark(corner, size, seen, union)
        return
    columns, rows = squares(corner, size, seen.shape[2])
    square = torch.where(rows[..., None], columns[:, :, None], 0)
    seen |= square
    while square.shape[1] > 1:  # halves, so that it takes few steps
        half = square.shape[1] // 2
        square = torch.cat([square[:, :half] | square[:, half : 2 * half], square[:, 2 * half :]], 1)
    union |= square[:, 0]


def pictures(
    density: Tensor,
    seen: Tensor,
    corner: Tensor,
    weights: Tensor,
    share: Tensor,
    positions: Tensor,
    reach: float,
    seen_map: bool = False,
) -> Tensor:
    """The maps that every robot observes, [B, N, 4, P, P], or with the seen map 5. weights: [K, P] of the resize,
    share: [K + 1, P] their running sums."""
    known = shrunk(density, seen, corner, weights, seen_map)
    return with_surroundings(known, corner, share, density.shape[1], positions, reach)


def with_surroundings(
    known: Tensor, corner: Tensor, share: Tensor, cells: int, positions: Tensor, reach: float
) -> Tensor:
    """The maps [B, N, 4 or 5, P, P] from those that positions do not tell, known [B, N, 1 or 2, P, P], and where the
    robots are."""
    boundary, neighbours = _boundary_map(corner, share, cells), _neighbour_maps(positions, reach, known.shape[-1])
    return torch.cat([known[:, :, :1], boundary[:, :, None], neighbours, known[:, :, 1:]], 2)


def _boundary_map(corner: Tensor, share: Tensor, cells: int) -> Tensor:
    """1 outside the world, resized, [B, N, P, P]: the filter is separable and so is the world's inside."""
    size = len(share) - 1
    begin, end = (-corner).clamp(0, size), (cells - corner).clamp(0, size)
    inside = share[end] - share[begin]  # [B, N, 2, P]
    return (1.0 - inside[..., 1, :, None] * inside[..., 0, None, :]).clamp_min(0.0)


def _neighbour_maps(positions: Tensor, reach: float, pixels: int) -> Tensor:
    """At each neighbour's pixel its relative x, and y, in units of R_c, adding up: [B, N, 2, P, P]."""
    batch, n, _ = positions.shape
    relative = (positions[:, None] - positions[:, :, None]) / reach  # [b, i, j]: j as i sees it
    near = (relative.square().sum(-1) < 1.0) & ~torch.eye(n, dtype=torch.bool, device=positions.device)
    pixel = ((relative + 1.0) * (pixels / 2)).floor().long().clamp(0, pixels - 1)
    flat = (pixel[..., 1] * pixels + pixel[..., 0])[:, :, None].expand(-1, -1, 2, -1)
    values = torch.where(near[..., None], relative, 0.0).float().transpose(2, 3)  # [B, N, 2, N]
    out = torch.zeros((batch, n, 2, pixels * pixels), device=positions.device)
    return out.scatter_add_(3, flat, values).view(batch, n, 2, pixels, pixels)
