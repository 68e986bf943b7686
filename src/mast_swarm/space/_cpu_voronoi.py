"""Voronoi kernels for the CPU: density moments of cells, row by row, and their polygons. Lengths are in map cells.

Along one row of the map the squared distance to a robot is a parabola in x, so the nearest robots are the lower
envelope of N parabolas: a sweep over robots sorted by x. Every cell then covers one interval of the row, and running
sums of the density turn an interval into a few additions. The parallel loop runs over environments (or robots), each
writes its own rows only, so results do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

BLOCK = 8  # map cells between two stored running sums; as many as a byte of a mask covers
STRIP = 16  # rows that share one list of robots
FAR = 1e12  # stands for a vertical bisector's slope


@njit(cache=True, nogil=True, parallel=True)
def row_sums(density, sums):
    """sums[b, y, q]: mass, first and second moment along x of the first q blocks of a row."""
    batch, rows, columns = density.shape
    for b in prange(batch):
        for y in range(rows):
            m0, m1, m2 = 0.0, 0.0, 0.0
            for k in range(columns):
                if k % BLOCK == 0:
                    q = k // BLOCK
                    sums[b, y, q, 0], sums[b, y, q, 1], sums[b, y, q, 2] = m0, m1, m2
                value, x = float(density[b, y, k]), k + 0.5
                m0 += value
                m1 += value * x
                m2 += value * x * x
            q = (columns + BLOCK - 1) // BLOCK
            sums[b, y, q, 0], sums[b, y, q, 1], sums[b, y, q, 2] = m0, m1, m2


@njit(cache=True, nogil=True)
def _up_to(density, sums, k):
    """Mass and moments of the first k cells of a row."""
    q = k // BLOCK
    m0, m1, m2 = sums[q, 0], sums[q, 1], sums[q, 2]
    for c in range(q * BLOCK, k):
        value, x = float(density[c]), c + 0.5
        m0 += value
        m1 += value * x
        m2 += value * x * x
    return m0, m1, m2


@njit(cache=True, nogil=True)
def _seen(density, sums, words, begin, end):
    """Mass and first moment of the cells begin..end-1 of a row whose bit is set."""
    m0, m1 = 0.0, 0.0
    for w in range(begin // 64, (end + 63) // 64):
        word = words[w]
        if word == 0:
            continue
        for q in range(max(w * 64, begin) // BLOCK, (min(w * 64 + 64, end) + BLOCK - 1) // BLOCK):
            byte = (word >> (q * BLOCK - w * 64)) & 255
            first, last = q * BLOCK, q * BLOCK + BLOCK
            if byte == 255 and first >= begin and last <= end:
                m0 += sums[q + 1, 0] - sums[q, 0]
                m1 += sums[q + 1, 1] - sums[q, 1]
            elif byte != 0:
                for c in range(max(first, begin), min(last, end)):
                    if (byte >> (c - first)) & 1:
                        value = float(density[c])
                        m0 += value
                        m1 += value * (c + 0.5)
    return m0, m1


@njit(cache=True, nogil=True)
def _envelope(x, y, order, count, row, stack, start):
    """Robots whose cells a row crosses, from left to right: stack[t] owns x in (start[t], start[t + 1]].

    order: the first `count` numbers of robots, sorted by x. Gives how many there are.
    """
    top = -1
    for o in range(count):
        i = order[o]
        xi, fi = x[i], x[i] * x[i] + (row - y[i]) ** 2
        begin = -np.inf
        keep = True
        while top >= 0:
            j = stack[top]
            fj = x[j] * x[j] + (row - y[j]) ** 2
            if xi == x[j]:  # one is nearer all along the row; the earlier robot when neither is
                if fi < fj or (fi == fj and i < j):
                    top -= 1
                    continue
                keep = False
                break
            begin = (fi - fj) / (2.0 * (xi - x[j]))
            if begin > start[top]:
                break
            top -= 1
        if keep:
            top += 1
            stack[top] = i
            start[top] = begin if top > 0 else -np.inf
    return top + 1


@njit(cache=True, nogil=True)
def _farthest(x, y, row, width, count, stack, start):
    """Largest distance of a point of the row from its nearest robot: found where cells meet, or at the ends."""
    most = 0.0
    for t in range(count):
        i = stack[t]
        left, right = max(start[t], 0.0), min(start[t + 1] if t + 1 < count else width, width)
        if left <= right:
            reach = max((left - x[i]) ** 2, (right - x[i]) ** 2) + (row - y[i]) ** 2
            most = max(most, reach)
    return np.sqrt(most)


@njit(cache=True, nogil=True)
def _first_cell(x, columns):
    """The first map cell whose centre lies beyond x."""
    if x < 0.5:
        return 0
    return columns if x >= columns else min(int(np.floor(x - 0.5)) + 1, columns)


@njit(cache=True, nogil=True)
def _near_strip(x, y, order, top, end, columns, stack, start, near):
    """Robots that may be nearest to some cell of the rows top..end-1: how many, their numbers in near, sorted by x.

    Such a robot is not farther from its cell than the nearest one is from the point of the middle row above or below,
    plus twice the way there; so not farther in y from the strip.
    """
    middle = (top + end) / 2.0
    count = _envelope(x, y, order, len(x), middle, stack, start)
    reach = _farthest(x, y, middle, float(columns), count, stack, start) + (end - top) + 1e-6
    kept = 0
    for o in range(len(x)):
        if abs(y[order[o]] - middle) <= reach:
            near[kept] = order[o]
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _cell_moments(points, density, sums, bits, masked, out):
    n, (rows, columns) = len(points), density.shape
    x, y = np.ascontiguousarray(points[:, 0]), np.ascontiguousarray(points[:, 1])
    order = np.argsort(x, kind="mergesort")
    near, stack, start = np.empty(n, np.int64), np.empty(n, np.int64), np.empty(n, np.float64)
    # The pieces of a strip are found first and summed afterwards: then their reads from memory overlap.
    owner, row = np.empty(n * STRIP, np.int64), np.empty(n * STRIP, np.int64)
    begin, stop = np.empty(n * STRIP, np.int64), np.empty(n * STRIP, np.int64)
    out[:] = 0.0
    for top in range(0, rows, STRIP):
        end = min(top + STRIP, rows)
        kept = _near_strip(x, y, order, top, end, columns, stack, start, near)
        pieces = 0
        for r in range(top, end):
            count = _envelope(x, y, near, kept, r + 0.5, stack, start)
            past = 0
            for t in range(count):
                to = columns if t + 1 == count else _first_cell(start[t + 1], columns)
                if to > past:
                    owner[pieces], row[pieces], begin[pieces], stop[pieces] = stack[t], r, past, to
                    pieces += 1
                    past = to
        a0, a1, a2 = 0.0, 0.0, 0.0
        for piece in range(pieces):
            i, r = owner[piece], row[piece]
            if masked:
                m0, m1 = _seen(density[r], sums[r], bits[r], begin[piece], stop[piece])
            else:
                if begin[piece] == 0:
                    a0, a1, a2 = 0.0, 0.0, 0.0
                b0, b1, b2 = _up_to(density[r], sums[r], stop[piece])
                m0, m1, m2 = b0 - a0, b1 - a1, b2 - a2
                a0, a1, a2 = b0, b1, b2
                out[i, 3] += m2 - 2.0 * x[i] * m1 + (x[i] * x[i] + (r + 0.5 - y[i]) ** 2) * m0
            out[i, 0] += m0
            out[i, 1] += m1
            out[i, 2] += (r + 0.5) * m0


@njit(cache=True, nogil=True, parallel=True)
def cell_moments(points, density, sums, bits, masked, out):
    """out [B, N, 4]: mass, sums of density times x, y, and (unless masked) squared distance, over each robot's cell.

    masked: only map cells with their bit set in bits [B, rows, words] count.
    """
    for b in prange(len(points)):
        _cell_moments(points[b], density[b], sums[b], bits[b], masked, out[b])


@njit(cache=True, nogil=True, parallel=True)
def local_moments(points, density, sums, bits, heard, first, corner, size, out):
    """out [B, N, 3]: mass and moments of what each robot has seen itself, over its own cell among the robots it hears.

    bits [B, N, rows, words]: what each has seen. heard [E], first [B*N + 1]: who hears whom, by target. A cell is cut
    to the square of `size` map cells from corner [B, N, 2].
    """
    batch, n, _ = points.shape
    rows, columns = density.shape[1:]
    for flat in prange(batch * n):
        b, i = flat // n, flat % n
        xi, yi = points[b, i, 0], points[b, i, 1]
        links = first[flat + 1] - first[flat]
        at, slope, side = np.empty(links), np.empty(links), np.empty(links, np.int8)
        for link in range(links):
            j = heard[first[flat] + link]
            at[link], slope[link], side[link] = _bisector(xi, yi, points[b, j, 0], points[b, j, 1], i < j)
        left, right = max(corner[b, i, 0], 0), min(corner[b, i, 0] + size, columns)
        m0, mx, my = 0.0, 0.0, 0.0
        for r in range(max(corner[b, i, 1], 0), min(corner[b, i, 1] + size, rows)):
            words = bits[b, i, r]
            blank = True
            for w in range(left // 64, (right + 63) // 64):
                blank = blank and words[w] == 0
            if blank:
                continue
            low, high = -np.inf, np.inf
            for link in range(links):
                x = at[link] + slope[link] * (r + 0.5)
                if side[link] > 0:
                    high = min(high, x)
                else:
                    low = max(low, x)
            begin, stop = max(left, _first_cell(low, columns)), min(right, _first_cell(high, columns))
            if begin < stop:
                s0, s1 = _seen(density[b, r], sums[b, r], words, begin, stop)
                m0 += s0
                mx += s1
                my += (r + 0.5) * s0
        out[b, i, 0], out[b, i, 1], out[b, i, 2] = m0, mx, my


@njit(cache=True, nogil=True)
def _bisector(xi, yi, xj, yj, earlier):
    """The line x = at + slope * y between robots i and j, and the side (+1: right, -1: left) on which j is nearer."""
    if xi == xj:  # a horizontal line, seen as a very flat one; two robots on one spot: the earlier owns all
        lead = 1e9 if earlier else -1e9
        return lead + FAR * (yj - yi) * (yi + yj) / 2.0, -FAR * (yj - yi), 1
    gap = xj - xi
    at = (xi + xj) / 2.0 + (yj - yi) * (yi + yj) / (2.0 * gap)
    return at, -(yj - yi) / gap, 1 if gap > 0 else -1


@njit(cache=True, nogil=True)
def _clip(polygon, count, spare, ax, ay, b):
    """Cut a convex polygon to a*x <= b. The result is in spare; gives its number of vertices."""
    kept = 0
    for k in range(count):
        px, py = polygon[k, 0], polygon[k, 1]
        nxt = (k + 1) % count
        qx, qy = polygon[nxt, 0], polygon[nxt, 1]
        s, t = ax * px + ay * py - b, ax * qx + ay * qy - b
        if s <= 0.0:
            spare[kept, 0], spare[kept, 1] = px, py
            kept += 1
        if (s < 0.0 < t) or (t < 0.0 < s):
            part = s / (s - t)
            spare[kept, 0], spare[kept, 1] = px + (qx - px) * part, py + (qy - py) * part
            kept += 1
    return kept


@njit(cache=True, nogil=True)
def _area_centroid(polygon, count):
    """Centroid of a polygon's area; of its vertices where it has none."""
    twice, cx, cy = 0.0, 0.0, 0.0
    ox, oy = polygon[0, 0], polygon[0, 1]
    for k in range(1, count - 1):
        ux, uy = polygon[k, 0] - ox, polygon[k, 1] - oy
        vx, vy = polygon[k + 1, 0] - ox, polygon[k + 1, 1] - oy
        cross = ux * vy - uy * vx
        twice += cross
        cx += cross * (ux + vx) / 3.0
        cy += cross * (uy + vy) / 3.0
    if twice <= 0.0:
        return polygon[:count, 0].mean(), polygon[:count, 1].mean()
    return ox + cx / twice, oy + cy / twice


@njit(cache=True, nogil=True, parallel=True)
def cell_middles(points, wanted, heard, first, low, high, by_area, out):
    """out [B, N, 2]: middle of the cell of each robot that is wanted [B, N], inside the box low..high [B, N, 2].

    The middle is the mean of the polygon's vertices or the centroid of its area. Which others count: heard, first as
    in local_moments; without any (first is empty) all. A cell that vanishes has its middle at the robot.
    """
    batch, n, _ = points.shape
    for flat in prange(batch * n):
        b, i = flat // n, flat % n
        if not wanted[b, i]:
            continue
        everyone = len(first) == 0
        others = n if everyone else first[flat + 1] - first[flat]
        polygon, spare = np.empty((others + 5, 2)), np.empty((others + 5, 2))
        x, y = points[b, i, 0], points[b, i, 1]
        left, bottom, right, top = low[b, i, 0], low[b, i, 1], high[b, i, 0], high[b, i, 1]
        polygon[0, 0], polygon[0, 1], polygon[1, 0], polygon[1, 1] = left, bottom, right, bottom
        polygon[2, 0], polygon[2, 1], polygon[3, 0], polygon[3, 1] = right, top, left, top
        count, reach = 4, np.inf
        for o in range(others):
            j = o if everyone else heard[first[flat] + o]
            dx, dy = points[b, j, 0] - x, points[b, j, 1] - y
            if j == i or dx * dx + dy * dy > 4.0 * reach or count == 0:
                continue
            if dx == 0.0 and dy == 0.0:
                count = 0 if j < i else count
                continue
            count = _clip(polygon, count, spare, dx, dy, dx * (x + dx / 2.0) + dy * (y + dy / 2.0))
            polygon, spare = spare, polygon
            reach = 0.0
            for k in range(count):
                reach = max(reach, (polygon[k, 0] - x) ** 2 + (polygon[k, 1] - y) ** 2)
        if count < 3:
            out[b, i, 0], out[b, i, 1] = x, y
        elif by_area:
            out[b, i, 0], out[b, i, 1] = _area_centroid(polygon, count)
        else:
            out[b, i, 0], out[b, i, 1] = polygon[:count, 0].mean(), polygon[:count, 1].mean()
