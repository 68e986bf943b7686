"""All pairs at once, in torch (and a few kernels): for small teams on CUDA.

Shapes alone decide what runs, and nothing here waits for the device (but `pairs_within`, whose result has a
size only the data knows), so these functions can be captured in a CUDA graph. They run on the CPU too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from mast_swarm.kernels import USABLE, on_gpu

gpu: Any = None  # the modules of GPU kernels, for points and for links, where there is a GPU and Triton
link_kernels: Any = None
if USABLE:
    from mast_swarm.space import _gpu as gpu
    from mast_swarm.space import _gpu_links as link_kernels

PAIRS = 2**26  # pairs a block, which bounds memory to about 1 GiB


def squared_distance(a: Tensor, b: Tensor) -> Tensor:
    """d2 of positions [..., 2] that broadcast, rounded like the CPU kernels: two products, one sum, nothing
    fused.
    """
    dx = b[..., 0] - a[..., 0]
    dy = b[..., 1] - a[..., 1]
    return dx * dx + dy * dy


def _blocks(batch: int, queries: int, points: int) -> Iterator[slice]:
    step = max(1, PAIRS // max(1, batch * points))
    for begin in range(0, queries, step):
        yield slice(begin, min(begin + step, queries))


def nearest_dense(queries: Tensor, points: Tensor, k: int, exclude_self: bool) -> tuple[Tensor, Tensor]:
    """As neighbours.nearest."""
    if gpu is not None and on_gpu(queries) and gpu.takes_few(points, k):
        return gpu.nearest_of_few(queries, points, k, exclude_self)
    batch, m, _ = queries.shape
    n = points.shape[1]
    distance = queries.new_full((batch, m, k), math.inf)
    index = torch.full((batch, m, k), -1, dtype=torch.int64, device=queries.device)
    found = min(k, n)
    if found == 0:
        return distance, index
    name = torch.arange(n, device=queries.device)
    for block in _blocks(batch, m, n):
        d2 = squared_distance(queries[:, block, None], points[:, None])  # [B, m, N]
        if exclude_self:
            own = torch.arange(block.start, block.stop, device=queries.device)
            d2 = d2.masked_fill(own[:, None] == name, math.inf)
        if d2.dtype == torch.float32:
            # A float that is not negative sorts like its bits; with the index in the low half, ties go to the
            # lowest.
            key = (d2.view(torch.int32).to(torch.int64) << 32) | name
            best = key.topk(found, largest=False, sorted=True).values
            near = (best >> 32).to(torch.int32).view(torch.float32)
            who = best & 0xFFFFFFFF
        else:
            near, who = d2.sort(dim=-1, stable=True)
            near, who = near[..., :found], who[..., :found]
        distance[:, block, :found] = near.sqrt()
        index[:, block, :found] = who.masked_fill(near == math.inf, -1)
    return distance, index


def count_dense(queries: Tensor, points: Tensor, squared_radius: float) -> Tensor:
    """As neighbours.counts_within, for the radius squared."""
    batch, m, _ = queries.shape
    count = torch.zeros((batch, m), dtype=torch.int64, device=queries.device)
    for block in _blocks(batch, m, points.shape[1]):
        near = squared_distance(queries[:, block, None], points[:, None]) < squared_radius
        count[:, block] = near.sum(-1)
    return count


def near(points: Tensor, squared_radius: float) -> Tensor:
    """[B, N, N] bool: which different points are nearer to each other than the radius."""
    batch, n, _ = points.shape
    found = torch.empty((batch, n, n), dtype=torch.bool, device=points.device)
    for block in _blocks(batch, n, n):
        found[:, block] = squared_distance(points[:, block, None], points[:, None]) < squared_radius
    return found & ~torch.eye(n, dtype=torch.bool, device=points.device)


def pairs_within(points: Tensor, squared_radius: float) -> tuple[Tensor, Tensor]:
    """Flat (source, target) of all ordered pairs of different points nearer than the radius, by (target,
    source).
    """
    batch, n, _ = points.shape
    name = torch.arange(n, device=points.device)
    found = []
    for block in _blocks(batch, n, n):
        near = squared_distance(points[:, block, None], points[:, None]) < squared_radius
        near &= name[block, None] != name
        b, i, j = near.nonzero().unbind(-1)
        found.append(torch.stack([b * n + i + block.start, b * n + j]))
    target, source = torch.cat(found, 1) if found else torch.zeros((2, 0), dtype=torch.int64, device=points.device)
    if len(found) > 1:  # blocks cut across environments
        by_target = target.argsort(stable=True)
        target, source = target[by_target], source[by_target]
    return source, target


def _matrix(adjacency: Tensor) -> Tensor:
    """0/1 matrix with ones on the diagonal. A sum of such products is 0 or at least 1, so half precision is
    exact enough.
    """
    dtype = torch.float16 if adjacency.is_cuda else torch.float32
    own = torch.eye(adjacency.shape[-1], dtype=torch.bool, device=adjacency.device)
    return (adjacency | own).to(dtype)


def closure(adjacency: Tensor) -> Tensor:
    """Reflexive transitive closure of [B, N, N] by ceil(log2 N) squarings: paths of up to N - 1 links."""
    reach = _matrix(adjacency)
    for _ in range(max(adjacency.shape[-1] - 1, 0).bit_length()):
        reach = (torch.bmm(reach, reach) > 0).to(reach.dtype)
    return reach > 0


def labels(adjacency: Tensor) -> Tensor:
    """Lowest index of each robot's weakly connected component, [B, N] int64."""
    if link_kernels is not None and on_gpu(adjacency) and link_kernels.takes_few_linked(adjacency.shape[-1]):
        return link_kernels.labels_of_few(adjacency)
    n = adjacency.shape[-1]
    name = torch.arange(n, device=adjacency.device)
    together = closure(adjacency | adjacency.transpose(-1, -2))
    return torch.where(together, name, n).amin(-1)


def hops(adjacency: Tensor, limit: int | None) -> Tensor:
    """As graph.hops. Without a limit it looks, once a step, whether anything changed, and so waits for the
    device.
    """
    batch, n, _ = adjacency.shape
    links = _matrix(adjacency)
    reach = torch.eye(n, dtype=links.dtype, device=links.device).expand(batch, n, n)
    steps = torch.where(reach > 0, 0, -1).to(torch.int16)
    for h in range(1, (n - 1 if limit is None else min(limit, n - 1)) + 1):
        reach = (torch.bmm(links, reach) > 0).to(links.dtype)
        new = (steps < 0) & (reach > 0)
        if limit is None and not bool(new.any()):
            break
        steps = torch.where(new, h, steps).to(torch.int16)
    return steps
