"""Brute-force kernels for the CPU: nearest points and points within a radius, for small teams.

Every kernel takes contiguous arrays of one float type, computes d2 = dx*dx + dy*dy in that type and fills
arrays given by the caller. The parallel loop runs over blocks of queries of all environments, each block
writes its own rows only, so results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

QUERIES = 32  # queries a block: enough to repay copying the points, few enough to share out one environment
LANES = 64  # points are padded to a multiple of this, so that the vectorised loops have no scalar remainder
MISSING = 0x7F80000000000000  # the key of distance +inf and index 0: larger than the key of any real point


@njit(cache=True, nogil=True)
def first_bad(positions, largest):
    """Flat index of the first coordinate that is NaN, infinite or not below `largest` in size; -1 if none."""
    for i in range(positions.size):
        if not abs(positions[i]) < largest:
            return i
    return -1


@njit(cache=True, nogil=True, parallel=True, error_model="numpy")
def nearest_dense32(queries, points, k, exclude_self, distance, index):
    """The k nearest points of each query, float32.

    A float32 that is not negative sorts like its bits read as an integer, so (bits of d2, index) packed into
    one int64 sorts by distance and then by lowest index. k minima over that row vectorise without a branch.
    """
    batch, count, _ = queries.shape
    n = points.shape[1]
    padded = (n + LANES - 1) // LANES * LANES
    blocks = (count + QUERIES - 1) // QUERIES
    infinity = np.float32(np.inf)
    for work in prange(batch * blocks):
        b = work // blocks
        begin = (work % blocks) * QUERIES
        end = min(begin + QUERIES, count)
        x = np.full(padded, infinity, np.float32)
        y = np.full(padded, infinity, np.float32)
        d2 = np.empty(padded, np.float32)
        bits = d2.view(np.int32)
        key = np.empty(padded, np.int64)
        for j in range(n):
            x[j] = points[b, j, 0]
            y[j] = points[b, j, 1]
        for i in range(begin, end):
            qx = queries[b, i, 0]
            qy = queries[b, i, 1]
            for j in range(padded):
                dx = x[j] - qx
                dy = y[j] - qy
                d2[j] = dx * dx + dy * dy
            if exclude_self:
                d2[i] = infinity
            for j in range(padded):
                key[j] = (np.int64(bits[j]) << 32) | j
            last = np.int64(-1)
            for rank in range(k):
                best = np.int64(MISSING)
                for j in range(padded):
                    candidate = key[j] if key[j] > last else np.int64(MISSING)
                    best = candidate if candidate < best else best
                if best == MISSING:
                    for r in range(rank, k):
                        distance[b, i, r] = infinity
                        index[b, i, r] = -1
                    break
                last = best
                index[b, i, rank] = best & 0xFFFFFFFF
                distance[b, i, rank] = np.sqrt(d2[best & 0xFFFFFFFF])


@njit(cache=True, nogil=True)
def insert(d2, j, distance, index):
    """Puts (d2, j) into the list of the k best, sorted by distance and then by index, and drops the last."""
    rank = distance.size - 1
    while rank > 0 and (d2 < distance[rank - 1] or (d2 == distance[rank - 1] and j < index[rank - 1])):
        distance[rank] = distance[rank - 1]
        index[rank] = index[rank - 1]
        rank -= 1
    distance[rank] = d2
    index[rank] = j


@njit(cache=True, nogil=True, parallel=True)
def nearest_dense64(queries, points, k, exclude_self, distance, index):
    """The k nearest points of each query, float64: a plain scan, as distance and index do not fit one word."""
    batch, count, _ = queries.shape
    for work in prange(batch * count):
        b = work // count
        i = work % count
        best = distance[b, i]
        names = index[b, i]
        best[:] = np.inf
        names[:] = -1
        for j in range(points.shape[1]):
            dx = points[b, j, 0] - queries[b, i, 0]
            dy = points[b, j, 1] - queries[b, i, 1]
            d2 = dx * dx + dy * dy
            if d2 < best[k - 1] and not (exclude_self and j == i):
                insert(d2, j, best, names)
        for rank in range(k):
            best[rank] = np.sqrt(best[rank])


@njit(cache=True, nogil=True, parallel=True)
def within_dense(queries, points, squared_radius, exclude_self, offset, found, count):
    """Points nearer than the radius: how many for each query [B, M] and, where `found` has room, which.

    offset: [B * M] where each query's points begin in `found`; found: [E] flat names b * N + j, or empty to
    count only.
    """
    batch, m, _ = queries.shape
    n = points.shape[1]
    blocks = (m + QUERIES - 1) // QUERIES
    for work in prange(batch * blocks):
        b = work // blocks
        begin = (work % blocks) * QUERIES
        x = np.empty(n, points.dtype)
        y = np.empty(n, points.dtype)
        for j in range(n):
            x[j] = points[b, j, 0]
            y[j] = points[b, j, 1]
        for i in range(begin, min(begin + QUERIES, m)):
            qx = queries[b, i, 0]
            qy = queries[b, i, 1]
            if found.size == 0:
                near = np.int32(0)
                for j in range(n):
                    dx = x[j] - qx
                    dy = y[j] - qy
                    near += np.int32(dx * dx + dy * dy < squared_radius)
                if exclude_self and squared_radius > 0:
                    near -= np.int32(1)
                count[b, i] = near
            else:
                at = offset[b * m + i]
                for j in range(n):
                    dx = x[j] - qx
                    dy = y[j] - qy
                    if dx * dx + dy * dy < squared_radius and not (exclude_self and j == i):
                        found[at] = b * n + j
                        at += 1


@njit(cache=True, nogil=True, parallel=True)
def offsets(queries, points, index, out):
    """out [B, M, k, 2]: points[index] as seen from the queries, 0 where the index is -1."""
    batch, count, k = index.shape
    for work in prange(batch * count):
        b, i = work // count, work % count
        for c in range(k):
            j = index[b, i, c]
            for axis in range(2):
                out[b, i, c, axis] = points[b, j, axis] - queries[b, i, axis] if j >= 0 else 0.0
