"""Coverage kernels for the CPU: densities, marking what has been seen, and the observed pictures.

The parallel loops run over robots or environments, each writes its own rows only.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange


@njit(cache=True, nogil=True)
def add_features(means, sigma, scale, truncation, resolution, total):
    """Adds features to total [S, S]: circular normal densities of mean [F, 2] and width [F] in metres times their
    mass [F], each integrated over every cell whose centre is nearer than truncation * sigma."""
    for f in range(len(means)):
        reach = truncation * sigma[f]
        x0, x_share = _shares(means[f, 0], sigma[f], reach, resolution, len(total))
        y0, y_share = _shares(means[f, 1], sigma[f], reach, resolution, len(total))
        for j in range(len(y_share)):
            y = (y0 + j + 0.5) * resolution - means[f, 1]
            for i in range(len(x_share)):
                x = (x0 + i + 0.5) * resolution - means[f, 0]
                if y * y + x * x < reach * reach:
                    total[y0 + j, x0 + i] += scale[f] * (y_share[j] * x_share[i])


@njit(cache=True, nogil=True)
def _shares(mean, sigma, reach, resolution, cells):
    """The first cell that a normal density in one dimension reaches, and its mass in that and each following cell."""
    first = min(max(math.floor((mean - reach) / resolution), 0), cells)
    last = min(max(math.ceil((mean + reach) / resolution) + 1, 0), cells)
    below = np.empty(last - first + 1)
    for k in range(len(below)):
        below[k] = 0.5 * math.erfc((mean - (first + k) * resolution) / (sigma * math.sqrt(2.0)))
    return first, np.diff(below)


@njit(cache=True, nogil=True, parallel=True)
def copy(seen, box, out):
    """Copies seen [B, N, S, W], which is blank outside box [B, N, 4] (x, y from, x, y to), to out, which starts blank:
    a robot knows a small part of a large world, and blank memory that is not touched costs nothing."""
    batch, n, _ = box.shape
    for b in prange(batch):
        for i in range(n):
            for y in range(box[b, i, 1], box[b, i, 3]):
                for w in range(box[b, i, 0] // 64, (box[b, i, 2] + 63) // 64):
                    out[b, i, y, w] = seen[b, i, y, w]


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


@njit(cache=True, nogil=True, parallel=True, fastmath=True)
def pictures(density, seen, corner, banded, share, positions, reach, out):
    """out [B, N, 4 or 5, P, P]: the maps that every robot observes, the fifth what has been seen.

    banded: the resize filter twice, (first, taps, start, weights). Cell k of a side adds taps[k, t] times itself to
    pixel first[k] + t; pixel p is the sum of weights[p, u] times cell start[p] + u. share [K + 1, P]: the part of each
    pixel's weight that lies before cell k.
    """
    batch, n, _ = corner.shape
    ones = np.ones_like(density[0]) if out.shape[2] > 4 else density[0]
    for flat in prange(batch * n):
        b, i = flat // n, flat % n
        picture = out[b, i]
        _shrink(density[b], seen[b, i], corner[b, i], banded, picture[0])
        if out.shape[2] > 4:
            _shrink(ones, seen[b, i], corner[b, i], banded, picture[4])
        _surround(corner[b, i], share, density.shape[1], positions[b], i, reach, picture)


@njit(cache=True, nogil=True, parallel=True)
def surroundings(corner, share, cells, positions, reach, out):
    """The second to fourth of the maps in out, as in pictures: what follows from where the robots are."""
    batch, n, _ = corner.shape
    for flat in prange(batch * n):
        b, i = flat // n, flat % n
        _surround(corner[b, i], share, cells, positions[b], i, reach, out[b, i])


@njit(cache=True, nogil=True, fastmath=True)
def _shrink(density, seen, corner, banded, out):
    """What a robot has seen of the square from its corner, resized. Words of 64 cells that have not been seen, most of
    them, are passed over."""
    first, taps, start, weights = banded
    cells, (size, reach), (pixels, width) = len(density), taps.shape, weights.shape
    x0, y0 = corner
    left, right = max(x0, 0), min(x0 + size, cells)
    flattened = np.zeros((pixels, size), np.float32)  # along y it has pixels already, along x cells
    line = np.empty(64, np.float32)
    for y in range(max(y0, 0), min(y0 + size, cells)):
        for w in range(left // 64, (right + 63) // 64):
            word = seen[y, w]
            if word == 0:
                continue
            begin, end = max(64 * w, left), min(64 * w + 64, right)
            cover, values = word >> (begin - 64 * w), density[y, begin:end]
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
            row, factors = flattened[p, start[q] : start[q] + width], weights[q]
            for u in range(width):
                total += factors[u] * row[u]
            out[p, q] = total


@njit(cache=True, nogil=True)
def _surround(corner, share, cells, positions, i, reach, picture):
    """The maps of the boundary and of the neighbours of robot i."""
    _boundary(corner, share, cells, picture[1])
    picture[2:4] = 0.0
    _neighbours(positions, i, reach, picture[2], picture[3])


@njit(cache=True, nogil=True)
def _boundary(corner, share, cells, out):
    """1 outside the world, resized: the filter is separable and so is the world's inside."""
    size, pixels = len(share) - 1, len(out)
    x0, x1 = min(max(-corner[0], 0), size), min(max(cells - corner[0], 0), size)
    y0, y1 = min(max(-corner[1], 0), size), min(max(cells - corner[1], 0), size)
    for p in range(pixels):
        inside = share[y1, p] - share[y0, p]
        for q in range(pixels):
            out[p, q] = max(np.float32(1.0) - inside * (share[x1, q] - share[x0, q]), np.float32(0.0))


@njit(cache=True, nogil=True)
def _neighbours(positions, i, reach, out_x, out_y):
    """At each neighbour's pixel its relative x, and y, in units of R_c, adding up."""
    pixels = len(out_x)
    for j in range(len(positions)):
        x, y = (positions[j, 0] - positions[i, 0]) / reach, (positions[j, 1] - positions[i, 1]) / reach
        if j != i and x * x + y * y < 1.0:
            column = min(int((x + 1.0) * (pixels / 2)), pixels - 1)
            row = min(int((y + 1.0) * (pixels / 2)), pixels - 1)
            out_x[row, column] += x
            out_y[row, column] += y
