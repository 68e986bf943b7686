"""Coverage kernels for the CPU: marking what has been seen, and bringing local maps to their observed size.

The parallel loops run over robots or environments, each writes its own rows only.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True, nogil=True, parallel=True)
def mark(corner, size, cells, seen, box, marked, union):
    """Sets the bits of the square of `size` cells from corner [B, N, 2] in marked [B, N, S, W] and union [B, S, W].

    marked starts blank and takes over seen, which is blank outside box [B, N, 4] (x, y from, x, y to): a robot knows a
    small part of a large world, and blank memory that is not touched costs nothing.
    """
    batch, n, _ = corner.shape
    for b in prange(batch):
        for i in range(n):
            for y in range(box[b, i, 1], box[b, i, 3]):
                for w in range(box[b, i, 0] // 64, (box[b, i, 2] + 63) // 64):
                    marked[b, i, y, w] = seen[b, i, y, w]
            left, right = max(corner[b, i, 0], 0), min(corner[b, i, 0] + size, cells)
            if left >= right:
                continue
            for w in range(left // 64, (right - 1) // 64 + 1):
                begin, end = max(left - 64 * w, 0), min(right - 64 * w, 64)
                word = np.int64(-1) if end == 64 else (np.int64(1) << end) - np.int64(1)
                word &= ~((np.int64(1) << begin) - np.int64(1))
                for y in range(max(corner[b, i, 1], 0), min(corner[b, i, 1] + size, cells)):
                    marked[b, i, y, w] |= word
                    union[b, y, w] |= word


@njit(cache=True, nogil=True, parallel=True, fastmath=True)
def shrink(density, seen, corner, first, taps, start, weights, out):
    """out [B, N, P, P]: what each robot has seen of the square from its corner, resized by a separable filter.

    The filter twice: first [K], taps [K, T]: cell k of a side adds taps[k, t] times itself to pixel first[k] + t;
    start [P], weights [P, U]: pixel p is the sum of weights[p, u] times cell start[p] + u. Words of 64 cells that have
    not been seen, most of them, are passed over.
    """
    batch, n, cells, _ = seen.shape
    size, reach = taps.shape
    pixels, width = weights.shape
    for flat in prange(batch * n):
        b, i = flat // n, flat % n
        x0, y0 = corner[b, i, 0], corner[b, i, 1]
        left, right = max(x0, 0), min(x0 + size, cells)
        flattened = np.zeros((pixels, size), np.float32)  # rows are done, columns are not
        line = np.empty(64, np.float32)
        for y in range(max(y0, 0), min(y0 + size, cells)):
            for w in range(left // 64, (right + 63) // 64):
                word = seen[b, i, y, w]
                if word == 0:
                    continue
                begin, end = max(64 * w, left), min(64 * w + 64, right)
                cover, values = word >> (begin - 64 * w), density[b, y, begin:end]
                for k in range(end - begin):
                    line[k] = values[k] * np.float32((cover >> k) & 1)
                for t in range(reach):
                    weight = taps[y - y0, t]
                    row = flattened[first[y - y0] + t, begin - x0 : end - x0]
                    for k in range(end - begin):
                        row[k] += weight * line[k]
        for p in range(pixels):
            for q in range(pixels):
                total = np.float32(0.0)
                row, weight_row = flattened[p, start[q] : start[q] + width], weights[q]
                for u in range(width):
                    total += weight_row[u] * row[u]
                out[b, i, p, q] = total
