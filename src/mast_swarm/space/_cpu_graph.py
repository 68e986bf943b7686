"""Graph kernels for the CPU. Nodes are flat, b * N + i; an edge carries information from source to target."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

ROBOTS = 32  # searches a block of the parallel loop, which share their memory
ONE = np.uint64(1)
# The place of the lowest set bit: isolated and multiplied by this factor, each bit gives another top six
# bits.
FACTOR = np.uint64(0x03F79D71B4CB0A89)
DE_BRUIJN = np.zeros(64, np.int64)
for _bit in range(64):
    DE_BRUIJN[((int(FACTOR) << _bit) & (2**64 - 1)) >> 58] = _bit


@njit(cache=True, nogil=True)
def _join(label, a, b):
    """The smaller root becomes the parent, so that a root is the lowest node of its component."""
    while label[a] != a:
        label[a] = label[label[a]]
        a = label[a]
    while label[b] != b:
        label[b] = label[label[b]]
        b = label[b]
    if a < b:
        label[b] = a
    else:
        label[a] = b


@njit(cache=True, nogil=True)
def _roots(label, n):
    # Parents are lower than their children, so in rising order every parent already knows its root.
    for v in range(label.size):
        label[v] = label[label[v]]
    for v in range(label.size):
        label[v] %= n


@njit(cache=True, nogil=True)
def union_find(source, target, n, label):
    """Lowest index of each node's weakly connected component into label [B * N], in 0 .. N - 1."""
    for v in range(label.size):
        label[v] = v
    for e in range(source.size):
        _join(label, source[e], target[e])
    _roots(label, n)


@njit(cache=True, nogil=True)
def union_nearest(index, label):
    """As union_find, of robots that each hear their nearest, index [B, N, k]; -1: nobody."""
    batch, n, k = index.shape
    for v in range(label.size):
        label[v] = v
    for b in range(batch):
        for i in range(n):
            for j in range(k):
                if index[b, i, j] >= 0:
                    _join(label, b * n + i, b * n + index[b, i, j])
    _roots(label, n)


@njit(cache=True, nogil=True)
def _pack(adjacency, bits):
    """Rows of adjacency [N, N] as bits [N, words], each robot hearing itself."""
    n = adjacency.shape[0]
    for i in range(n):
        adjacency[i, i] = True
        for j in range(n):
            bits[i, j >> 6] |= np.uint64(adjacency[i, j]) << np.uint64(j & 63)


@njit(cache=True, nogil=True, parallel=True)
def closure(adjacency):
    """Adjacency [B, N, N] (i hears j) becomes reachability in place: Warshall's algorithm on rows of bits."""
    batch, n, _ = adjacency.shape
    words = (n + 63) // 64
    for b in prange(batch):
        bits = np.zeros((n, words), np.uint64)
        _pack(adjacency[b], bits)
        for via in range(n):
            word = via >> 6
            mask = np.uint64(1) << np.uint64(via & 63)
            for i in range(n):
                if bits[i, word] & mask:
                    for w in range(words):
                        bits[i, w] |= bits[via, w]
        for i in range(n):
            for j in range(n):
                adjacency[b, i, j] = (bits[i, j >> 6] >> np.uint64(j & 63)) & np.uint64(1)


@njit(cache=True, nogil=True)
def _breadth_first(bits, i, limit, queue, heard, row):
    """Hops from every robot to i into row [N]. A robot's whole row of bits is taken at once, so a dense graph
    costs no more.

    queue [N] holds robots by distance; heard [2, words] whom the robots so far hear, and those already in the
    queue.
    """
    row[:] = -1
    row[i] = 0
    queue[0] = i
    begin, end, step = 0, 1, 0
    heard[:] = 0
    heard[1, i >> 6] = ONE << np.uint64(i & 63)
    while begin < end and step < limit:
        step += 1
        for q in range(begin, end):
            u = queue[q]
            for w in range(heard.shape[1]):
                heard[0, w] |= bits[u, w]
        begin = end
        for w in range(heard.shape[1]):
            new = heard[0, w] & ~heard[1, w]
            heard[1, w] = heard[0, w]
            while new:
                j = (w << 6) + DE_BRUIJN[((new & (~new + ONE)) * FACTOR) >> np.uint64(58)]
                new &= new - ONE
                row[j] = step
                queue[end] = j
                end += 1


@njit(cache=True, nogil=True, parallel=True)
def hops(adjacency, limit, steps):
    """Fewest links from j to i, for i hears j as in adjacency [B, N, N] (its diagonal is set), into steps [B,
    N, N].
    """
    batch, n, _ = adjacency.shape
    words = (n + 63) // 64
    bits = np.zeros((batch, n, words), np.uint64)
    for b in prange(batch):
        _pack(adjacency[b], bits[b])
    blocks = (n + ROBOTS - 1) // ROBOTS
    for work in prange(batch * blocks):
        b = work // blocks
        begin = (work % blocks) * ROBOTS
        queue = np.empty(n, np.int32)
        heard = np.empty((2, words), np.uint64)
        for i in range(begin, min(begin + ROBOTS, n)):
            _breadth_first(bits[b], i, limit, queue, heard, steps[b, i])
