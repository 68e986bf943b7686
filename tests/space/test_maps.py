"""Maps of cells: what robots have seen, made smaller. On CUDA kernels of their own do it where the sizes suit them."""

from __future__ import annotations

import pytest
import torch

from devices import GPU, few
from mast_swarm.space.maps import shrunk, unpack, words
from mast_swarm.tasks.coverage.world import resize_filter


def scene(cells: int, size: int, n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Density [2, S, S], bits [2, n, S, W] with some set past the last cell, and corners [2, n, 2] all over the map."""
    g = torch.Generator().manual_seed(cells + size)
    bits = torch.randint(-(2**63), 2**63 - 1, (2, n, cells, words(cells)), generator=g)
    corner = torch.randint(-size - 2, cells + 2, (2, n, 2), generator=g)
    corner[0, 0] = torch.tensor([-(size // 3), cells - size // 2])  # over two sides
    corner[1, 0] = (cells - size) // 2
    return torch.rand((2, cells, cells), generator=g), bits, corner


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize(
    ("cells", "size", "pixels", "n"),
    [
        (40, 16, 16, 1),
        (130, 128, 4, 3),
        (20, 64, 1, 2),
        (5, 2, 1, 1),
        *few(
            [(333, 256, 32, 2), (150, 64, 8, 32), (600, 512, 32, 1), (64, 32, 32, 2), (50, 48, 12, 2), (70, 60, 7, 1)],
            [],
        ),
    ],
)
def test_seen_parts_are_cropped_and_resized(cells: int, size: int, pixels: int, n: int, device: str) -> None:
    density, bits, corner = scene(cells, size, n)
    given = [t.to(device) for t in (density, bits, corner, resize_filter(size, pixels))]
    small = shrunk(*given, seen_map=True).cpu()
    assert small.shape == (2, n, 2, pixels, pixels)
    torch.testing.assert_close(shrunk(*given, seen_map=False).cpu(), small[:, :, :1], rtol=0, atol=1e-6)
    seen, margin = unpack(bits, cells).float(), size + 2
    for b in range(2):
        for i in range(n):
            known = torch.stack([density[b] * seen[b, i], seen[b, i]])
            x, y = (corner[b, i] + margin).tolist()
            crop = torch.nn.functional.pad(known, (margin,) * 4)[None, :, y : y + size, x : x + size]
            expected = torch.nn.functional.interpolate(crop, (pixels, pixels), mode="bilinear", antialias=True)[0]
            torch.testing.assert_close(small[b, i], expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_maps_in_float64_and_maps_of_no_environment(device: str) -> None:
    density, bits, corner = (t.to(device) for t in scene(20, 8, 1))
    weights = resize_filter(8, 2).to(device)
    exact = shrunk(density.double(), bits, corner, weights.double(), seen_map=True)
    assert exact.dtype == torch.float64
    torch.testing.assert_close(exact.float(), shrunk(density, bits, corner, weights, seen_map=True))
    assert shrunk(density[:0], bits[:0], corner[:0], weights, seen_map=True).shape == (0, 1, 2, 2, 2)
