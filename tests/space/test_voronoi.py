"""Voronoi cells over a density: moments and middles against plain sums over every map cell."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import ConvexHull, HalfspaceIntersection

from devices import DEVICE, GPU, few, plainly
from mast_swarm.space import Graph, radius_graph
from mast_swarm.space import voronoi as v
from mast_swarm.space.maps import crops, squares, unpack, words


def pack(mask: np.ndarray) -> torch.Tensor:
    """[..., S] bool -> [..., W] int64, a plain way."""
    cells = mask.shape[-1]
    padded = np.zeros((*mask.shape[:-1], words(cells) * 64), bool)
    padded[..., :cells] = mask
    return torch.from_numpy(np.packbits(padded, axis=-1, bitorder="little").view(np.int64).copy())


def scene(seed: int, agents: int, cells: int, resolution: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Two environments: random positions and a rough density with holes."""
    rng = np.random.default_rng(seed)
    points = rng.uniform(0, cells * resolution, (2, agents, 2))
    density = rng.random((2, cells, cells), np.float32) * (rng.random((2, cells, cells)) < 0.7)
    return torch.from_numpy(points), torch.from_numpy(density.astype(np.float32))


def centres(cells: int, resolution: float) -> np.ndarray:
    return (np.arange(cells) + 0.5) * resolution


def plain_moments(points: np.ndarray, density: np.ndarray, resolution: float) -> np.ndarray:
    """[N, 4] by looking at every cell."""
    c = centres(len(density), resolution)
    d2 = (c[None, :, None] - points[:, 0]) ** 2 + (c[:, None, None] - points[:, 1]) ** 2
    owner, nearest = d2.argmin(-1), d2.min(-1)
    parts = (density, density * c[None, :], density * c[:, None], density * nearest)
    return np.stack([np.bincount(owner.ravel(), part.ravel(), len(points)) for part in parts], -1)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**32),
    agents=st.integers(1, 14),
    cells=st.integers(3, 90),
    resolution=st.sampled_from([1.0, 0.5, 3.0]),
)
def test_cell_moments_against_every_cell(seed, agents, cells, resolution):
    points, density = scene(seed, agents, cells, resolution)
    mask = np.random.default_rng(seed).random((2, cells, cells)) < 0.5
    sums = v.row_sums(density)
    found = v.cell_moments(points, density, sums, resolution)
    masked = v.cell_moments(points, density, sums, resolution, pack(mask))
    dense = v._dense_moments(points / resolution, density, sums, None)
    for b in range(2):
        rho = density[b].numpy().astype(float)
        expected = plain_moments(points[b].numpy(), rho, resolution)
        np.testing.assert_allclose(found[b], expected, rtol=1e-9, atol=1e-6)
        assert found[b, :, 3].sum() == pytest.approx(expected[:, 3].sum(), rel=1e-12)
        unit = [1.0, resolution, resolution, resolution**2]
        np.testing.assert_allclose(dense[b] * torch.tensor(unit), expected, rtol=1e-9, atol=1e-6)
        expected = plain_moments(points[b].numpy(), rho * mask[b], resolution)
        np.testing.assert_allclose(masked[b], expected[:, :3], rtol=1e-9, atol=1e-6)


def test_far_apart_clusters_and_walls_are_not_culled():
    """Strips of rows look at few robots: worlds with large empty parts are where that could go wrong."""
    rng = np.random.default_rng(0)
    cells = 200
    density = torch.ones((4, cells, cells))
    corner = rng.uniform(0, 5, (20, 2))
    lines = np.stack([np.full(20, 100.0), np.linspace(0, 200, 20)], 1)
    both = np.concatenate([corner[:10], 200 - corner[10:]])
    walls = np.stack([np.where(rng.random(20) < 0.5, 0.0, 200.0), rng.uniform(0, 200, 20)], 1)
    points = torch.from_numpy(np.stack([corner, lines, both, walls]))
    found = v.cell_moments(points, density, v.row_sums(density), 1.0)
    dense = v._dense_moments(points, density, v.row_sums(density), None)
    for b in range(4):
        expected = plain_moments(points[b].numpy(), density[b].numpy().astype(float), 1.0)
        assert found[b, :, 3].sum() == pytest.approx(expected[:, 3].sum(), rel=1e-12)
        np.testing.assert_allclose(found[b, :, 3].sum(), dense[b, :, 3].sum(), rtol=1e-12)
        if b != 1:  # robots above each other share exact ties
            np.testing.assert_allclose(found[b], expected, rtol=1e-9)
            np.testing.assert_allclose(dense[b], expected, rtol=1e-9)


def test_two_robots_on_one_spot():
    """The earlier one owns the cell, the other none; nothing breaks."""
    points = torch.tensor([[[10.0, 10.0], [10.0, 10.0], [30.0, 12.0]]], dtype=torch.float64)
    density = torch.ones((1, 40, 40))
    for moments in (
        v.cell_moments(points, density, v.row_sums(density), 1.0),
        v._dense_moments(points, density, v.row_sums(density), None),
    ):
        assert moments[0, 1, 0] == 0 and moments[0, 0, 0] > 0
        assert moments[0, :, 0].sum() == 1600
    box = torch.zeros_like(points)
    middle = v.cell_middles(points, torch.ones((1, 3), dtype=torch.bool), box, box + 40)
    assert middle[0, 1].tolist() == [10.0, 10.0]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), agents=st.integers(1, 10), resolution=st.sampled_from([1.0, 2.0]))
def test_local_moments_against_every_cell(seed, agents, resolution):
    cells, size = 75, 20
    points, density = scene(seed, agents, cells, resolution)
    rng = np.random.default_rng(seed)
    mask = rng.random((2, agents, cells, cells)) < 0.6
    reach = rng.uniform(5, 60) * resolution
    graph = radius_graph(points, reach)
    corner = (points / resolution + 0.5).floor().long() - size // 2
    found = v.local_moments(points, density, v.row_sums(density), resolution, pack(mask), graph, corner, size)
    dense = v._dense_local(size, points / resolution, density, pack(mask), graph.adjacency(), corner)
    np.testing.assert_allclose(dense * torch.tensor([1.0, resolution, resolution]), found, rtol=1e-9, atol=1e-6)
    c = centres(cells, resolution)
    for b in range(2):
        p = points[b].numpy()
        for i in range(agents):
            heard = [i] + [j for j in range(agents) if j != i and np.hypot(*(p[i] - p[j])) < reach]
            d2 = (c[None, :, None] - p[heard, 0]) ** 2 + (c[:, None, None] - p[heard, 1]) ** 2
            rho = density[b].numpy().astype(float) * mask[b, i] * (d2.argmin(-1) == 0)
            x, y = (np.arange(cells) - int(k) for k in corner[b, i])
            rho *= ((x >= 0) & (x < size))[None] & ((y >= 0) & (y < size))[:, None]
            expected = [rho.sum(), (rho * c[None, :]).sum(), (rho * c[:, None]).sum()]
            np.testing.assert_allclose(found[b, i], expected, rtol=1e-9, atol=1e-6)


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 2**32), agents=st.integers(1, 12))
def test_middles_against_scipy(seed, agents):
    rng = np.random.default_rng(seed)
    points = torch.from_numpy(rng.uniform(0, 50, (1, agents, 2)))
    low, high = torch.zeros_like(points), torch.full_like(points, 50.0)
    wanted = torch.from_numpy(rng.random((1, agents)) < 0.8)
    vertices = v.cell_middles(points, wanted, low, high)
    area = v.cell_middles(points, wanted, low, high, by_area=True)
    p = points[0].numpy()
    for i in range(agents):
        if not wanted[0, i]:
            assert vertices[0, i].tolist() == [0.0, 0.0]
            continue
        others = np.delete(p, i, axis=0)
        halves = np.c_[2 * (others - p[i]), (p[i] ** 2).sum() - (others**2).sum(1)]
        walls = [[-1, 0, 0], [0, -1, 0], [1, 0, -50], [0, 1, -50]]
        corners = HalfspaceIntersection(np.vstack([halves.reshape(-1, 3), walls]), p[i]).intersections
        hull = corners[ConvexHull(corners).vertices]
        np.testing.assert_allclose(vertices[0, i], hull.mean(0), atol=1e-6)
        x, y = hull.T
        cross = x * np.roll(y, -1) - y * np.roll(x, -1)
        centroid = [((q + np.roll(q, -1)) * cross).sum() / (3 * cross.sum()) for q in (x, y)]
        np.testing.assert_allclose(area[0, i], centroid, atol=1e-6)


def test_middles_among_those_heard():
    """Who is not heard cuts nothing off."""
    points = torch.tensor([[[10.0, 10.0], [20.0, 10.0], [10.0, 30.0]]], dtype=torch.float64)
    graph = Graph(torch.tensor([1]), torch.tensor([0]), 1, 3)
    low, high = torch.zeros_like(points), torch.full_like(points, 40.0)
    middle = v.cell_middles(points, torch.ones((1, 3), dtype=torch.bool), low, high, graph)
    assert middle[0].tolist() == [[7.5, 20.0], [20.0, 20.0], [20.0, 20.0]]


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32), cells=st.integers(1, 140), size=st.integers(1, 80))
def test_bits(seed, cells, size):
    rng = np.random.default_rng(seed)
    mask = rng.random((2, 3, cells, cells)) < 0.5
    assert (unpack(pack(mask), cells).numpy() == mask).all()
    corner = torch.from_numpy(rng.integers(-size - 3, cells + 3, (2, 3, 2)))
    columns, rows = squares(corner, size, cells)
    density = torch.from_numpy(rng.random((2, cells, cells), np.float32))
    cut = crops(density, pack(mask), corner, size)
    for b in range(2):
        for i in range(3):
            x0, y0 = corner[b, i].tolist()
            inside = np.zeros((cells, cells), bool)
            inside[max(y0, 0) : max(y0 + size, 0), max(x0, 0) : max(x0 + size, 0)] = True
            covered = unpack(columns[b, i], cells).numpy()[None] & rows[b, i].numpy()[:, None]
            assert (covered == inside).all()
            padded = np.pad(density[b].numpy() * mask[b, i], size + 3)
            expected = padded[y0 + size + 3 :, x0 + size + 3 :][:size, :size]
            np.testing.assert_array_equal(cut[b, i], expected)


@pytest.mark.kernels
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("kernel", [True, False])
def test_a_position_that_is_no_number_is_no_place_in_memory(kernel, axis, monkeypatch):
    """A GPU does not look whether commands are numbers. The other environment's cells are what they were."""
    points, density = (t.to(DEVICE) for t in scene(5, 3, 20, 1.0))
    sums = v.row_sums(density)
    if not kernel:
        monkeypatch.setattr(v, "gpu", None)
    before = v.cell_moments(points, density, sums, 1.0)
    points[0, 1, axis] = torch.nan
    after = v.cell_moments(points, density, sums, 1.0)
    assert torch.equal(before[1], after[1])
    assert torch.isfinite(after[0, [0, 2], 0]).all()  # the mass of others


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_devices_agree(device):
    agents, cells = few((9, 130), (3, 130))
    points, density = scene(5, agents, cells, 1.0)
    mask = pack(np.random.default_rng(5).random((2, agents, cells, cells)) < 0.6)
    with plainly():
        graph, corner = radius_graph(points, 50.0), (points + 0.5).floor().long() - 32

    def everything(where: str) -> list[torch.Tensor]:
        p, rho, seen = (t.to(where) for t in (points, density, mask))
        links = Graph(graph.source.to(where), graph.target.to(where), graph.batch, graph.nodes)
        sums = v.row_sums(rho)
        local = v.local_moments(p, rho, sums, 1.0, seen, links, corner.to(where), 64)
        whole = v.cell_moments(p, rho, sums, 1.0), v.cell_moments(p, rho, sums, 1.0, seen[:, 0])
        wanted = torch.ones(p.shape[:2], dtype=torch.bool, device=where)
        middles = v.cell_middles(p, wanted, torch.zeros_like(p), torch.full_like(p, cells))
        return [t.cpu() for t in (sums, local, *whole, middles)]

    with plainly():
        expected = everything("cpu")
    for here, there in zip(expected, everything(device), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-9, atol=1e-6)
