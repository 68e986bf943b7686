"""Connected components on a GPU (Triton): of large teams by union-find, of small ones (`few`) with all links of an
environment in a program's registers."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_FEW_LINKED = 128  # robots of a small team whose links a program holds
_CHAINS = 32  # chains of parents that a program follows; it is one warp and waits for the longest of them


@triton.jit
def _hook(parent, source, target, edges, EDGES: tl.constexpr):
    """Every node below the lowest of its neighbours, without looking at what is above: much of the work in one go. What
    another neighbour says is lost here, and `_join` finds it again. A parent is never higher than its child."""
    e = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    there = e < edges
    a, b = tl.load(source + e, mask=there, other=0), tl.load(target + e, mask=there, other=0)
    low = tl.minimum(a, b).to(parent.dtype.element_ty)
    tl.atomic_min(parent + tl.maximum(a, b), low, mask=there & (a != b), sem="relaxed")


@triton.jit
def _root(parent, node, on):
    """Where the chain of parents of each node ends, as far as it is known by now.

    On the way each node is hung below its parent's parent, so that chains stay short for whoever comes next. Threads
    may undo each other's shortcuts, but only by another of the node's ancestors; what has no parent is never touched.
    """
    above = tl.where(on, tl.load(parent + node, mask=on, other=0, volatile=True), node)
    while tl.max((above != node).to(tl.int32), 0) > 0:
        top = tl.where(on, tl.load(parent + above, mask=on, other=0, volatile=True), above)
        tl.store(parent + node, top, mask=on & (top != above))
        node, above = above, top
    return node


@triton.jit
def _join(parent, source, target, edges, EDGES: tl.constexpr):
    """Union-find: the higher root of an edge's two ends is hung below the lower one. Most edges find that their ends
    have one root already. Where another thread was faster the higher one had a parent, which it may have lost by this:
    that one and the lower are joined next. Each time the higher gets lower, so it ends."""
    e = tl.program_id(0).to(tl.int64) * EDGES + tl.arange(0, EDGES)
    open = e < edges
    a = tl.load(source + e, mask=open, other=0).to(parent.dtype.element_ty)
    b = tl.load(target + e, mask=open, other=0).to(parent.dtype.element_ty)
    a, b = _root(parent, a, open), _root(parent, b, open)
    open = open & (a != b)
    while tl.max(open.to(tl.int32), 0) > 0:
        high, low = tl.maximum(a, b), tl.minimum(a, b)
        before = tl.atomic_min(parent + high, low, mask=open, sem="relaxed")
        open = open & (before != high)
        a, b = _root(parent, tl.where(open, before, 0), open), _root(parent, tl.where(open, low, 0), open)
        open = open & (a != b)


@triton.jit
def _flatten(parent, label, nodes, each, NODES: tl.constexpr, FINAL: tl.constexpr):
    """Every node right below its root; finally the roots' numbers within environments of `each` nodes."""
    node = tl.program_id(0).to(tl.int64) * NODES + tl.arange(0, NODES)
    there = node < nodes
    own = tl.where(there, node, 0).to(parent.dtype.element_ty)
    root = _root(parent, own, there)
    if FINAL:
        tl.store(label + node, (root % each).to(tl.int64), mask=there)
    else:
        tl.store(parent + node, root, mask=there & (root != own))


@triton.jit
def _lowest_of(linked, TIMES: tl.constexpr, ROBOTS: tl.constexpr):
    """The lowest robot of each one's component: links [ROBOTS, ROBOTS] squared TIMES times join all that paths do."""
    i, j = tl.arange(0, ROBOTS)[:, None], tl.arange(0, ROBOTS)[None, :]
    reach = (linked | (i == j)).to(tl.float16)
    for _ in range(TIMES):
        reach = (tl.dot(reach, reach) > 0).to(tl.float16)  # a sum of such products is 0 or at least 1
    return tl.min(tl.where(reach > 0, j, ROBOTS), 1)


@triton.jit
def _labels_of_few(linked, label, n, TIMES: tl.constexpr, ROBOTS: tl.constexpr):
    """The components of one environment."""
    environment = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, ROBOTS)[:, None], tl.arange(0, ROBOTS)[None, :]
    inside = (i < n) & (j < n)
    linked += environment * n * n
    either = tl.load(linked + i * n + j, mask=inside, other=0) | tl.load(linked + j * n + i, mask=inside, other=0)
    robot = tl.arange(0, ROBOTS)
    lowest = _lowest_of(either != 0, TIMES, ROBOTS)
    tl.store(label + environment * n + robot, lowest.to(tl.int64), mask=robot < n)


@triton.jit
def _labels_of_nearest(index, label, n, K: tl.constexpr, TIMES: tl.constexpr, ROBOTS: tl.constexpr):
    """The same from whom each robot has nearest, -1 for nobody."""
    environment = tl.program_id(0).to(tl.int64)
    robot = tl.arange(0, ROBOTS)
    i, j = robot[:, None], robot[None, :]
    index += environment * n * K
    linked = i == j
    for k in tl.static_range(K):
        other = tl.load(index + robot * K + k, mask=robot < n, other=-1).to(tl.int32)
        linked = linked | (other[:, None] == j) | (other[None, :] == i)
    lowest = _lowest_of(linked, TIMES, ROBOTS)
    tl.store(label + environment * n + robot, lowest.to(tl.int64), mask=robot < n)


def takes_few_linked(nodes: int) -> bool:
    """Whether `labels_of_few` takes links of so many robots."""
    return 0 < nodes <= _FEW_LINKED


def labels_of_few(adjacency: Tensor) -> Tensor:
    """Lowest index of each robot's weakly connected component, [B, N] int64, from links [B, N, N] bool."""
    batch, n, _ = adjacency.shape
    label = torch.empty((batch, n), dtype=torch.int64, device=adjacency.device)
    if batch:
        _labels_of_few[(batch,)](adjacency.contiguous().view(torch.uint8), label, n, **_linked(n))
    return label


def labels_of_nearest(index: Tensor) -> Tensor:
    """The same from whom each robot has nearest, [B, N, k] int64, -1 for nobody."""
    batch, n, k = index.shape
    label = torch.empty((batch, n), dtype=torch.int64, device=index.device)
    if batch:
        _labels_of_nearest[(batch,)](index.contiguous(), label, n, K=k, **_linked(n))
    return label


def _linked(n: int) -> dict[str, int]:
    """How a program holds the links of n robots."""
    robots = max(16, triton.next_power_of_2(n))
    return {"TIMES": (n - 1).bit_length(), "ROBOTS": robots, "num_warps": 8 if n > 64 else 4}


def labels(source: Tensor, target: Tensor, batch: int, nodes: int) -> Tensor:
    """The lowest node of each node's component within its environment, [B, N] int64, from edges [E] in flat numbering.

    In the manner of ECL-CC (Jaiganesh and Burtscher 2018): nodes hang below their lowest neighbour, chains are made
    short, and only then edges are joined one by one, of which few find anything left to do. Nothing waits.
    """
    count, source, target = batch * nodes, source.contiguous(), target.contiguous()
    small = count < 2**31
    parent = torch.arange(count, dtype=torch.int32 if small else torch.int64, device=source.device)
    label = torch.empty((batch, nodes), dtype=torch.int64, device=source.device)
    over_edges, over_nodes = (triton.cdiv(len(source), _CHAINS),), (triton.cdiv(count, _CHAINS),)
    shape = {"num_warps": 1}
    if len(source):
        _hook[(triton.cdiv(len(source), 512),)](parent, source, target, len(source), EDGES=512)
        _flatten[over_nodes](parent, label, count, nodes, NODES=_CHAINS, FINAL=False, **shape)
        _join[over_edges](parent, source, target, len(source), EDGES=_CHAINS, **shape)
    _flatten[over_nodes](parent, label, count, nodes, NODES=_CHAINS, FINAL=True, **shape)
    return label
