"""Cell lists for the CPU: points sorted into square cells, crowded cells into finer grids of their own.

One uniform grid is linear in N only while the density is even: a lone robot far away, or two tight groups,
would leave all other points in a few cells. So each grid covers the bounding box of its own points with about
one cell for two of them, and every cell that still holds more than CROWD points becomes a grid itself. Cells
never number more than O(N), however far the outliers.

Layout, for each environment b (positions in `order` are local to it):

    order [B, N]      names of the points, by cell; within a cell by index
    x, y  [B, N]      their coordinates in that order
    start [B, C]      cell c holds order[start[c] : start[c + 1]]; the cells of one grid are numbered in rows
    child [B, C]      the grid inside cell c, or LEAF, or PILE (all its points are one point)
    box   [B, G, 3]   x and y of the lower corner, side of a cell, metres
    shape [B, G, 5]   columns, rows, the first cell, whether some cell has a grid or a pile inside, depth

The seven travel together as one tuple `cells`, in this order.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from mast_swarm.space._cpu import insert

CROWD = 32
DEPTH = 16  # grids inside grids at most; each divides the side by 4 or more, so float32 knows no finer point
QUERIES = 64  # queries a block of the parallel loops, which share one stack
LEAF = -1
PILE = -2
# d2 in float32 is off by a few parts in 1e7 and cell borders by less than 1e-12 of a side: a cell is passed
# over only where it is farther than the k-th best by more than that.
SLACK = 1e-6


@njit(cache=True, nogil=True)
def _grid(b, lo, hi, g, first, depth, points, cell, cells):
    """Sorts order[lo:hi] into the cells of grid g; returns how many entries of `start` it took, 0 if they do
    not fit.
    """
    order, x, y, start, child, box, shape = cells
    left = right = np.float64(points[b, order[b, lo], 0])
    bottom = top = np.float64(points[b, order[b, lo], 1])
    for p in range(lo, hi):
        px = np.float64(points[b, order[b, p], 0])
        py = np.float64(points[b, order[b, p], 1])
        left = min(left, px)
        right = max(right, px)
        bottom = min(bottom, py)
        top = max(top, py)
    width = right - left
    height = top - bottom
    wanted = max(1, (hi - lo) // 2)
    side = max(np.sqrt(width * height / wanted), max(width, height) / wanted)
    if side < 1e-290:  # one point, or a box too small to divide by
        side = 1.0
    columns = int(width / side) + 1
    rows = int(height / side) + 1
    stop = first + columns * rows
    if stop + 1 > start.shape[1]:
        return np.int64(0)
    box[b, g, 0] = left
    box[b, g, 1] = bottom
    box[b, g, 2] = side
    shape[b, g, 0] = columns
    shape[b, g, 1] = rows
    shape[b, g, 2] = first
    shape[b, g, 3] = 0
    shape[b, g, 4] = depth
    start[b, first : stop + 1] = 0
    child[b, first:stop] = LEAF
    for p in range(lo, hi):
        j = order[b, p]
        column = min(int((np.float64(points[b, j, 0]) - left) / side), columns - 1)
        row = min(int((np.float64(points[b, j, 1]) - bottom) / side), rows - 1)
        cell[j] = first + row * columns + column
        start[b, cell[j] + 1] += 1
    start[b, first] = lo
    for c in range(first, stop):
        start[b, c + 1] += start[b, c]
    # Counting sort, stable so that a cell's points stay in index order: `start` runs ahead to the next cell's
    # start ...
    for j in order[b, lo:hi].copy():
        p = start[b, cell[j]]
        order[b, p] = j
        x[b, p] = points[b, j, 0]
        y[b, p] = points[b, j, 1]
        start[b, cell[j]] = p + 1
    # ... and is set back.
    for c in range(stop, first, -1):
        start[b, c] = start[b, c - 1]
    start[b, first] = lo
    return np.int64(stop + 1 - first)


@njit(cache=True, nogil=True, parallel=True)
def build(points, cells):
    """Fills the arrays of the module's layout from points [B, N, 2], N > 0."""
    order, x, y, start, child, box, shape = cells
    n = points.shape[1]
    for b in prange(points.shape[0]):
        cell = np.empty(n, np.int32)
        for j in range(n):
            order[b, j] = j
        # One integer type throughout: numba compiles a function anew for every mix of types it is called with.
        zero = np.int64(0)
        used = _grid(np.int64(b), zero, np.int64(n), zero, zero, zero, points, cell, cells)
        grids = np.int64(1)
        g = zero
        while g < grids:
            first = shape[b, g, 2]
            depth = np.int64(shape[b, g, 4] + 1)
            for c in range(first, first + shape[b, g, 0] * shape[b, g, 1]):
                lo = np.int64(start[b, c])
                hi = np.int64(start[b, c + 1])
                if hi - lo <= CROWD:
                    continue
                pile = True
                for p in range(lo + 1, hi):
                    if x[b, p] != x[b, lo] or y[b, p] != y[b, lo]:
                        pile = False
                        break
                if pile:
                    child[b, c] = PILE
                    shape[b, g, 3] = 1
                elif grids < box.shape[1] and depth < DEPTH:
                    took = _grid(np.int64(b), lo, hi, grids, used, depth, points, cell, cells)
                    if took > 0:
                        child[b, c] = grids
                        shape[b, g, 3] = 1
                        used += took
                        grids += 1
            g += 1


@njit(cache=True, nogil=True)
def _scan(b, lo, hi, qx, qy, own, order, x, y, distance, index):
    """Offers the points order[lo:hi] to the list of the best."""
    last = distance.size - 1
    worst = distance[last]
    for p in range(lo, hi):
        dx = x[b, p] - qx
        dy = y[b, p] - qy
        d2 = dx * dx + dy * dy
        if d2 <= worst:
            j = np.int64(order[b, p])
            if j != own and (d2 < worst or j < index[last]):
                insert(d2, j, distance, index)
                worst = distance[last]


@njit(cache=True, nogil=True)
def _search(b, qx, qy, own, cells, stack, distance, index):
    """Rings of cells around the query, outwards, until every further cell is farther than the k-th best.

    A cell with a grid inside is searched at once, as it will bring the k-th best near: where to go on in the
    outer grid (grid, ring, part of the ring, row, cell) waits on the stack [DEPTH, 5]. (A recursive kernel
    would read better, but numba's cache cannot hold one.)
    """
    order, x, y, start, child, box, shape = cells
    last = distance.size - 1
    depth = 0
    g, r, part, s, c = 0, 0, 0, 0, -1  # c < 0: at the begin of a ring's part
    while True:
        side = box[b, g, 2]
        columns, rows, first, crowded = shape[b, g, 0], shape[b, g, 1], shape[b, g, 2], shape[b, g, 3]
        fx = qx - box[b, g, 0]
        fy = qy - box[b, g, 1]
        column = int(min(max(fx / side, 0.0), columns - 1.0))
        row = int(min(max(fy / side, 0.0), rows - 1.0))
        # A query outside the box is at least this far from all of it, along each axis.
        out_x = max(0.0, max(-fx, fx - columns * side) - SLACK * side)
        out_y = max(0.0, max(-fy, fy - rows * side) - SLACK * side)
        inner = -1
        while r < max(columns, rows):
            open_ring = c >= 0
            while part < (4 if r > 0 else 1):
                # The ring's south and north rows with their corners, then its west and east columns without
                # them.
                low, high, west, east = row - r, row + r, column - r, column + r
                if part == 0:
                    high, gap, outside = low, fy - (low + 1) * side, out_x
                elif part == 1:
                    low, gap, outside = high, high * side - fy, out_x
                elif part == 2:
                    low, high, east, gap, outside = low + 1, high - 1, west, fx - (west + 1) * side, out_y
                else:
                    low, high, west, gap, outside = low + 1, high - 1, east, east * side - fx, out_y
                gap = max(gap - SLACK * side, 0.0)
                far = gap * gap + outside * outside > np.float64(distance[last]) * (1 + SLACK)
                if far or high < 0 or low >= rows or east < 0 or west >= columns:
                    part, c = part + 1, -1
                    continue
                open_ring = True
                if c < 0:
                    s = max(low, 0)
                while s <= min(high, rows - 1):
                    stop = first + s * columns + min(east, columns - 1) + 1
                    if c < 0:
                        c = first + s * columns + max(west, 0)
                    if crowded == 0:
                        lo, hi = np.int64(start[b, c]), np.int64(start[b, stop])
                        _scan(b, lo, hi, qx, qy, own, order, x, y, distance, index)
                        c = stop
                    while c < stop and inner < 0:
                        lo, hi = np.int64(start[b, c]), np.int64(start[b, c + 1])
                        if child[b, c] >= 0:
                            inner = child[b, c]
                        else:
                            if child[b, c] == PILE:  # all tie: none but the first k, and the query itself, can count
                                hi = min(hi, lo + distance.size + 1)
                            _scan(b, lo, hi, qx, qy, own, order, x, y, distance, index)
                        c += 1
                    if inner >= 0:
                        break
                    s, c = s + 1, -1
                if inner >= 0:
                    break
                part += 1
            if inner >= 0 or not open_ring:
                break
            r, part = r + 1, 0
        if inner >= 0:
            stack[depth, 0], stack[depth, 1], stack[depth, 2], stack[depth, 3], stack[depth, 4] = (
                g,
                r,
                part,
                s,
                c,
            )
            depth += 1
            g, r, part, s, c = inner, 0, 0, 0, -1
        elif depth == 0:
            return
        else:
            depth -= 1
            g, r, part, s, c = (
                stack[depth, 0],
                stack[depth, 1],
                stack[depth, 2],
                stack[depth, 3],
                stack[depth, 4],
            )


@njit(cache=True, nogil=True, parallel=True)
def nearest_cells(queries, visit, exclude_self, cells, distance, index):
    """The k nearest points of each query. visit: [B, M] the order to take the queries in (near ones share
    cache).
    """
    batch, m, _ = queries.shape
    for block in prange((batch * m + QUERIES - 1) // QUERIES):
        stack = np.empty((DEPTH, 5), np.int64)
        for work in range(block * QUERIES, min((block + 1) * QUERIES, batch * m)):
            b = work // m
            i = np.int64(visit[b, work % m])
            best = distance[b, i]
            names = index[b, i]
            best[:] = np.inf
            names[:] = -1
            own = i if exclude_self else np.int64(-1)
            _search(b, queries[b, i, 0], queries[b, i, 1], own, cells, stack, best, names)
            for rank in range(best.size):
                best[rank] = np.sqrt(best[rank])


@njit(cache=True, nogil=True)
def _within(b, qx, qy, radius, squared_radius, own, at, cells, stack, found):
    """Counts, and writes from found[at] on where there is room, the points nearer than the radius."""
    order, x, y, start, child, box, shape = cells
    count = 0
    depth = 0
    g, row, c = 0, -1, -1
    while True:
        side = box[b, g, 2]
        columns, rows, first, crowded = shape[b, g, 0], shape[b, g, 1], shape[b, g, 2], shape[b, g, 3]
        fx = (qx - box[b, g, 0]) / side
        fy = (qy - box[b, g, 1]) / side
        span = radius / side * (1 + SLACK) + SLACK
        touches = fx + span >= 0 and fy + span >= 0 and fx - span <= columns and fy - span <= rows
        west = int(min(max(fx - span, 0.0), columns - 1.0))
        east = int(min(max(fx + span, 0.0), columns - 1.0))
        north = int(min(max(fy + span, 0.0), rows - 1.0)) if touches else -1
        if row < 0:
            row = int(min(max(fy - span, 0.0), rows - 1.0))
        inner = -1
        while row <= north:
            if c < 0:
                c = first + row * columns + west
            stop = first + row * columns + east + 1
            while c < stop and inner < 0:
                upto = c + 1 if crowded else stop
                if crowded and child[b, c] >= 0:
                    inner = child[b, c]
                else:
                    for p in range(start[b, c], start[b, upto]):
                        dx = x[b, p] - qx
                        dy = y[b, p] - qy
                        if dx * dx + dy * dy < squared_radius and order[b, p] != own:
                            if found.size > 0:
                                found[at + count] = b * order.shape[1] + order[b, p]
                            count += 1
                c = upto
            if inner >= 0:
                break
            row, c = row + 1, -1
        if inner >= 0:
            stack[depth, 0], stack[depth, 1], stack[depth, 2] = g, row, c
            depth += 1
            g, row, c = inner, -1, -1
        elif depth == 0:
            return count
        else:
            depth -= 1
            g, row, c = stack[depth, 0], stack[depth, 1], stack[depth, 2]


@njit(cache=True, nogil=True, parallel=True)
def within_cells(queries, visit, radius, squared_radius, exclude_self, cells, offset, found, count):
    """As within_dense, with cells; each query's found points are sorted by index."""
    batch, m, _ = queries.shape
    for block in prange((batch * m + QUERIES - 1) // QUERIES):
        stack = np.empty((DEPTH, 3), np.int64)
        for work in range(block * QUERIES, min((block + 1) * QUERIES, batch * m)):
            b = work // m
            i = np.int64(visit[b, work % m])
            own = i if exclude_self else np.int64(-1)
            qx, qy = queries[b, i, 0], queries[b, i, 1]
            begin = offset[b * m + i]
            near = _within(b, qx, qy, radius, squared_radius, own, begin, cells, stack, found)
            if found.size > 0:
                found[begin : begin + near].sort()
            else:
                count[b, i] = near
