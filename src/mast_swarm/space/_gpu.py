"""What teams ask of a GPU (Triton): nearest points, points within a radius, components.

Of large teams cells say where to look (`cells.Cells.block`: three runs of points a query, sorted by cell); a thread
looks at one query's candidates one after the other and keeps the best in registers. Plain torch would write every
candidate pair to memory, several times over. Of small teams (`few`) a program holds all pairs in registers, where plain
torch takes a dozen kernels. Launches forbid fused multiply and add, so that d2 is the same number as everywhere.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_QUERIES = 128  # a program
_FEW, _PAIRS = 512, 4096  # points of a small team at most, and pairs that a program holds
_FEW_LINKED = 128  # robots of a small team whose links a program holds


@triton.jit
def apart(x, y, from_x, from_y):
    """Squared distances as plain torch rounds them, in launches that forbid fused multiply and add."""
    return (x - from_x) * (x - from_x) + (y - from_y) * (y - from_y)


@triton.jit
def _nearest(
    place, who, there, name, begin, end, near, index, queries, own,
    EXCLUDE: tl.constexpr, K: tl.constexpr, SLOTS: tl.constexpr, QUERIES: tl.constexpr,
):  # fmt: skip
    """The K nearest candidates of each query, ties to the lowest name; slots beyond K hold nothing."""
    q = tl.program_id(0).to(tl.int64) * QUERIES + tl.arange(0, QUERIES)
    asked = q < queries
    w = tl.load(who + q, mask=asked, other=0)
    x, y = tl.load(place + 2 * w), tl.load(place + 2 * w + 1)
    slot = tl.arange(0, SLOTS)[None, :]
    # A slot that must stay empty is better than any candidate, so that it is never the worst.
    best = tl.where(slot < K, float("inf"), float("-inf")) + tl.zeros([QUERIES, SLOTS], x.dtype)
    names = tl.zeros([QUERIES, SLOTS], tl.int64) + 2**62
    for run in range(3):
        first = tl.load(begin + 3 * q + run, mask=asked, other=0)
        length = tl.load(end + 3 * q + run, mask=asked, other=0) - first
        for at in range(0, tl.max(length, 0)):
            inside = at < length
            x2 = tl.load(there + 2 * (first + at), mask=inside, other=0.0)
            y2 = tl.load(there + 2 * (first + at) + 1, mask=inside, other=0.0)
            n = tl.load(name + first + at, mask=inside, other=0)
            d = apart(x, y, x2, y2)
            if EXCLUDE:
                inside = inside & (n != w % own)
            worst = tl.max(best, 1)
            last = tl.max(tl.where(best == worst[:, None], names, -1), 1)
            better = inside & ((d < worst) | ((d == worst) & (n < last)))
            # The place of the worst: of several that are empty, the first.
            is_worst = (best == worst[:, None]) & (names == last[:, None])
            where = tl.min(tl.where(is_worst, slot, SLOTS), 1)
            put = better[:, None] & (slot == where[:, None])
            best = tl.where(put, d[:, None], best)
            names = tl.where(put, n[:, None], names)
    for rank in tl.static_range(K):
        found = tl.where(slot < K, best, float("inf"))
        d = tl.min(found, 1)
        n = tl.min(tl.where((found == d[:, None]) & (slot < K), names, 2**62), 1)
        tl.store(near + q * K + rank, d, mask=asked)
        tl.store(index + q * K + rank, tl.where(d == float("inf"), -1, n), mask=asked)
        taken = (names == n[:, None]) & (d < float("inf"))[:, None]
        best = tl.where(taken, float("inf"), best)
        names = tl.where(taken, 2**62, names)


@triton.jit
def _count(place, there, begin, end, count, queries, squared, QUERIES: tl.constexpr):
    q = tl.program_id(0).to(tl.int64) * QUERIES + tl.arange(0, QUERIES)
    asked = q < queries
    x, y = tl.load(place + 2 * q, mask=asked, other=0.0), tl.load(place + 2 * q + 1, mask=asked, other=0.0)
    found = tl.zeros([QUERIES], tl.int64)
    for run in range(3):
        first = tl.load(begin + 3 * q + run, mask=asked, other=0)
        length = tl.load(end + 3 * q + run, mask=asked, other=0) - first
        for at in range(0, tl.max(length, 0)):
            inside = at < length
            x2 = tl.load(there + 2 * (first + at), mask=inside, other=0.0)
            y2 = tl.load(there + 2 * (first + at) + 1, mask=inside, other=0.0)
            found += (inside & (apart(x, y, x2, y2) < squared)).to(tl.int64)
    tl.store(count + q, found, mask=asked)


@triton.jit
def _root(parent, node, on):
    """Where the chain of parents of each node ends, as far as it is known by now."""
    above = tl.load(parent + node, mask=on, other=0, volatile=True)
    above = tl.where(on, above, node)
    while tl.max((above != node).to(tl.int32), 0) > 0:
        node = above
        above = tl.load(parent + node, mask=on, other=0, volatile=True)
        above = tl.where(on, above, node)
    return node


@triton.jit
def _join(parent, source, target, edges, EDGES: tl.constexpr):
    """Union-find: the higher root of an edge's two ends is hung below the lower one, again where another thread was
    faster. A parent is never higher than its child, so the last root of a component is its lowest node."""
    e = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    open = e < edges
    a, b = tl.load(source + e, mask=open, other=0), tl.load(target + e, mask=open, other=0)
    a, b = _root(parent, a, open), _root(parent, b, open)
    open = open & (a != b)
    while tl.max(open.to(tl.int32), 0) > 0:
        high, low = tl.maximum(a, b), tl.minimum(a, b)
        # Closed edges compare with -1, which is no parent: they change nothing.
        before = tl.atomic_cas(parent + high, tl.where(open, high, -1), low)
        open = open & (before != high)
        a, b = _root(parent, tl.where(open, before, 0), open), _root(parent, tl.where(open, low, 0), open)
        open = open & (a != b)


@triton.jit
def _flatten(parent, label, nodes, NODES: tl.constexpr):
    node = tl.program_id(0).to(tl.int64) * NODES + tl.arange(0, NODES)
    there = node < nodes
    tl.store(label + node, _root(parent, tl.where(there, node, 0), there), mask=there)


@triton.jit
def _nearest_of_few(
    queries, points, distance, index, m, n,
    EXCLUDE: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """The K nearest points of some queries of one environment, ties to the lowest index."""
    environment = tl.program_id(1).to(tl.int64)
    row, other = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, POINTS)
    queries += 2 * environment * m
    points += 2 * environment * n
    x, y = tl.load(queries + 2 * row, mask=row < m, other=0.0), tl.load(queries + 2 * row + 1, mask=row < m, other=0.0)
    x2 = tl.load(points + 2 * other, mask=other < n, other=0.0)
    y2 = tl.load(points + 2 * other + 1, mask=other < n, other=0.0)
    d = apart(x[:, None], y[:, None], x2[None, :], y2[None, :])
    out = (other >= n)[None, :]
    if EXCLUDE:
        out = out | (other[None, :] == row[:, None])
    d = tl.where(out, float("inf"), d)
    # A float that is not negative sorts like its bits; with the index in the low half, ties go to the lowest.
    key = (d.to(tl.int32, bitcast=True).to(tl.int64) << 32) | other[None, :]
    at = (environment * m + row) * K
    for rank in tl.static_range(K):
        best = tl.min(key, 1)
        near = (best >> 32).to(tl.int32).to(tl.float32, bitcast=True)
        tl.store(distance + at + rank, tl.sqrt_rn(near), mask=row < m)
        tl.store(index + at + rank, tl.where(near == float("inf"), -1, best & 0xFFFFFFFF), mask=row < m)
        key = tl.where(key == best[:, None], 2**63 - 1, key)


@triton.jit
def _labels_of_few(linked, label, n, TIMES: tl.constexpr, ROBOTS: tl.constexpr):
    """The components of one environment: links squared TIMES times join all that paths do."""
    environment = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, ROBOTS)[:, None], tl.arange(0, ROBOTS)[None, :]
    inside = (i < n) & (j < n)
    linked += environment * n * n
    either = tl.load(linked + i * n + j, mask=inside, other=0) | tl.load(linked + j * n + i, mask=inside, other=0)
    reach = ((either != 0) | (i == j)).to(tl.float16)
    for _ in range(TIMES):
        reach = (tl.dot(reach, reach) > 0).to(tl.float16)  # a sum of such products is 0 or at least 1
    lowest = tl.min(tl.where(reach > 0, j, ROBOTS), 1)
    robot = tl.arange(0, ROBOTS)
    tl.store(label + environment * n + robot, lowest.to(tl.int64), mask=robot < n)


def takes_few(points: Tensor, k: int) -> bool:
    """Whether `nearest_of_few` takes points [B, N, 2]."""
    return points.dtype == torch.float32 and max(points.shape[1], k) <= _FEW


def nearest_of_few(queries: Tensor, points: Tensor, k: int, exclude_self: bool) -> tuple[Tensor, Tensor]:
    """As neighbours.nearest, for queries [B, M, 2] among few points [B, N, 2]."""
    (batch, m, _), n = queries.shape, points.shape[1]
    distance = torch.empty((batch, m, k), dtype=torch.float32, device=points.device)
    index = torch.empty((batch, m, k), dtype=torch.int64, device=points.device)
    size = max(16, triton.next_power_of_2(max(n, k)))
    if batch * m:
        _nearest_of_few[(triton.cdiv(m, _PAIRS // size), batch)](
            queries.contiguous(), points.contiguous(), distance, index, m, n,
            EXCLUDE=exclude_self, K=k, ROWS=_PAIRS // size, POINTS=size, enable_fp_fusion=False,
        )  # fmt: skip
    return distance, index


def takes_few_linked(adjacency: Tensor) -> bool:
    """Whether `labels_of_few` takes links [B, N, N]."""
    return 0 < adjacency.shape[-1] <= _FEW_LINKED


def labels_of_few(adjacency: Tensor) -> Tensor:
    """Lowest index of each robot's weakly connected component, [B, N] int64, from links [B, N, N] bool."""
    batch, n, _ = adjacency.shape
    label = torch.empty((batch, n), dtype=torch.int64, device=adjacency.device)
    if batch:
        _labels_of_few[(batch,)](
            adjacency.contiguous().view(torch.uint8), label, n,
            TIMES=(n - 1).bit_length(), ROBOTS=max(16, triton.next_power_of_2(n)), num_warps=8 if n > 64 else 4,
        )  # fmt: skip
    return label


def nearest(
    place: Tensor, who: Tensor, there: Tensor, name: Tensor, begin: Tensor, end: Tensor, k: int, own: int | None
) -> tuple[Tensor, Tensor]:
    """d2 and name [Q, k] of the k nearest of the candidates of queries place[who], ties to the lowest name; inf and -1
    where there are fewer.

    Candidates: there [n, 2] and name [n] int64 at begin .. end [Q, 3]. own: the name `who % own` is left out.
    """
    near = torch.empty((len(who), k), dtype=place.dtype, device=place.device)
    index = torch.empty((len(who), k), dtype=torch.int64, device=place.device)
    _nearest[(triton.cdiv(len(who), _QUERIES),)](
        place, who, there, name, begin, end, near, index, len(who), 1 if own is None else own,
        EXCLUDE=own is not None, K=k, SLOTS=triton.next_power_of_2(k), QUERIES=_QUERIES, enable_fp_fusion=False,
    )  # fmt: skip
    return near, index


def count_within(place: Tensor, there: Tensor, begin: Tensor, end: Tensor, squared: float) -> Tensor:
    """How many candidates are nearer to each query than the radius: [Q] int64."""
    count = torch.empty(len(place), dtype=torch.int64, device=place.device)
    _count[(triton.cdiv(len(place), _QUERIES),)](
        place, there, begin, end, count, len(place), squared, QUERIES=_QUERIES, enable_fp_fusion=False
    )  # fmt: skip
    return count


def labels(source: Tensor, target: Tensor, nodes: int) -> Tensor:
    """The lowest node of each node's component, [nodes] int64, from edges [E]."""
    parent = torch.arange(nodes, device=source.device)
    if len(source):
        _join[(triton.cdiv(len(source), 256),)](
            parent, source.contiguous(), target.contiguous(), len(source), EDGES=256
        )
    label = torch.empty_like(parent)
    _flatten[(triton.cdiv(nodes, 256),)](parent, label, nodes, NODES=256)
    return label
