"""Coverage kernels for the CPU: marking what has been seen, and bringing local maps to their observed size.

The parallel loops run over robots or environments, each writes its own rows only.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange


@njit(cache=True, nogil=True, parallel=True)
def mark(corner, size, cells, seen, union):
    """Sets the bits of the square of `size` cells from corner [B, N, 2] in seen [B, N, S, W] and union [B, S, W]."""
    batch, n, _ = corner.shape
    for b in prange(batch):
        for i in range(n):
            left, right = max(corner[b, i, 0], 0), min(corner[b, i, 0] + size, cells)
            if left >= right:
                continue
            for w in range(left // 64, (right - 1) // 64 + 1):
                begin, end = max(left - 64 * w, 0), min(right - 64 * w, 64)
                word = np.int64(-1) if end == 64 else (np.int64(1) << end) - np.int64(1)
                word &= ~((np.int64(1) << begin) - np.int64(1))
                for y in range(max(corner[b, i, 1], 0), min(corner[b, i, 1] + size, cells)):
                    seen[b, i, y, w] |= word
                    union[b, y, w] |= word


@njit(cache=True, nogil=True, parallel=True)
def shrink(density, seen, corner, first, taps, out):
    """out [B, N, P, P]: what each robot has seen of the square from its corner, resized by a separable filter.

    first [K], taps [K, T]: cell k of a side adds taps[k, t] times itself to pixel first[k] + t. Rows and words of cells
    that have not been seen, most of them, are passed over.
    """
    batch, n, cells, _ = seen.shape
    size, reach = taps.shape
    pixels = out.shape[2]
    for flat in prange(batch * n):
        b, i = flat // n, flat % n
        image = out[b, i]
        image[:] = 0.0
        line = np.empty(pixels, np.float32)
        x0, y0 = corner[b, i, 0], corner[b, i, 1]
        left, right = max(x0, 0), min(x0 + size, cells)
        for y in range(max(y0, 0), min(y0 + size, cells)):
            line[:] = np.float32(0.0)
            filled = False
            for w in range(left // 64, (right + 63) // 64):
                word = seen[b, i, y, w]
                if word == 0:
                    continue
                filled = True
                for x in range(max(64 * w, left), min(64 * w + 64, right)):
                    value = density[b, y, x] if (word >> (x - 64 * w)) & 1 else np.float32(0.0)
                    for t in range(reach):
                        line[first[x - x0] + t] += taps[x - x0, t] * value
            if filled:
                for t in range(reach):
                    weight = taps[y - y0, t]
                    for p in range(pixels):
                        image[first[y - y0] + t, p] += weight * line[p]
