"""One assignment problem, solved exactly: the kernels that `assignment` and `visible` share.

Rows and columns are points of the plane, n rows and m >= n columns; row i on column j costs c_ij = |r_i -
c_j|^2. We look for the matching of every row to a column of its own with the least total cost. Costs are
computed where they are used, so memory is O(m). The columns come sorted by x: a row then only looks at the
columns within reach of it in x.

A column has a price v_j (the dual variable of the linear program; u_i of a row is never stored). A matching is
optimal when every row holds a cheapest column at these prices, c_ij - v_j, and when columns that nobody holds
have the highest price, 0, unless n = m, where every column ends up held. Prices here are never above 0.

Along a trajectory the best matching hardly changes while the prices drift, so a warm start keeps the matching
and repairs the prices (`_repair`, label correcting); only rows for which that fails are matched anew by
shortest augmenting paths (`_augment`). Had every robot gone the same fraction t of its way, the old matching
would still be optimal with prices (1 - t) v: hence the shrinking of the prices by the square root of the ratio
of costs before the repair.

All of this is the project's own code, because no library solves warm-started problems or batches of them: see
benchmarks/assignment.py."""

from __future__ import annotations

import numpy as np
from numba import njit

# Lets the compiler reorder sums. Infinities stay legal; there are no NaNs, since callers check their points.
_FAST = {"reassoc", "nnan", "nsz", "contract"}
# A row repaired more often than this is taken to lie on a cycle that cannot be repaired, and is matched anew.
_PATIENCE = 8
_OVERSHOOT = 0.2
_INFINITY = 0x7FF0000000000000  # the bits of a float64 infinity


@njit(cache=True, nogil=True, fastmath=_FAST)
def _cheaper(x, y, cx, cy, v, own):
    """How many of these columns the row at (x, y) would rather have than one at `own`. Counting is what the
    compiler vectorises."""
    count = 0
    for j in range(len(cx)):
        dx = cx[j] - x
        dy = cy[j] - y
        count += dx * dx + dy * dy - v[j] < own
    return count


@njit(cache=True, nogil=True)
def _cost(rx, ry, cx, cy, i, j):
    dx = cx[j] - rx[i]
    dy = cy[j] - ry[i]
    return dx * dx + dy * dy


@njit(cache=True, nogil=True)
def _buckets(cx):
    """m equal intervals in x: where each starts in the sorted cx (m + 2 entries), and intervals per metre."""
    m = len(cx)
    width = cx[m - 1] - cx[0]
    scale = m / width if width > 0.0 else 0.0
    if not np.isfinite(scale):
        scale = 0.0
    starts = np.empty(m + 2, np.int64)
    filled = 0
    for j in range(m):
        bucket = min(m, int((cx[j] - cx[0]) * scale))
        while filled <= bucket:
            starts[filled] = j
            filled += 1
    while filled <= m + 1:
        starts[filled] = m
        filled += 1
    return starts, scale


@njit(cache=True, nogil=True)
def _reach(x, radius, cx, starts, scale):
    """The range of columns that holds every one with |cx - x| <= radius."""
    m = len(cx)
    if scale == 0.0:  # all columns at one x
        return 0, m
    low = min(max((x - radius - cx[0]) * scale, 0.0), float(m))
    high = min(max((x + radius - cx[0]) * scale, 0.0), float(m))
    return starts[int(low)], starts[int(high) + 1]


@njit(cache=True, nogil=True)
def _release(rx, ry, cx, cy, v, col_of, row_of, queue, queued, head, waiting, i):
    """Take row i's column from it. Where columns outnumber rows the column's price returns to 0, and every row
    that would now rather have it is queued. Returns how many rows wait in the queue."""
    n = len(rx)
    j = col_of[i]
    col_of[i] = -1
    row_of[j] = -1
    if n == len(cx):
        return waiting
    v[j] = 0.0
    for k in range(n):
        held = col_of[k]
        if held < 0 or queued[k]:
            continue
        if _cost(rx, ry, cx, cy, k, j) < _cost(rx, ry, cx, cy, k, held) - v[held]:
            queue[(head + waiting) % n] = k
            queued[k] = True
            waiting += 1
    return waiting


@njit(cache=True, nogil=True)
def _repair(rx, ry, cx, cy, v, col_of, row_of):
    """Lower prices until every matched row holds a cheapest column; release the rows for which that cannot be
    done.

    Lowering the price of a column can make another one cheaper for the row that holds it, so that row is looked
    at again. This ends unless there is a cycle of rows that would all gain by passing their columns on, that
    is, unless the matching is no longer the best. Returns the number of rows without a column."""
    n, m = len(rx), len(cx)
    starts, scale = _buckets(cx)
    queue = np.empty(n, np.int64)
    queued = np.zeros(n, np.bool_)
    repairs = np.zeros(n, np.int64)
    waiting = 0
    for i in range(n):
        if col_of[i] >= 0:
            queue[waiting] = i
            queued[i] = True
            waiting += 1
    missing = n - waiting
    head = 0
    while waiting > 0:
        i = queue[head]
        head = head + 1 if head + 1 < n else 0
        waiting -= 1
        queued[i] = False
        own = _cost(rx, ry, cx, cy, i, col_of[i]) - v[col_of[i]]
        # Prices are at most 0, so a column that would be cheaper is nearer than sqrt(own).
        low, high = _reach(rx[i], np.sqrt(max(own, 0.0)), cx, starts, scale)
        if _cheaper(rx[i], ry[i], cx[low:high], cy[low:high], v[low:high], own) == 0:
            continue
        repairs[i] += 1
        hopeless = repairs[i] > _PATIENCE
        # What had to give once will have to again as the robots move on: at first, give more than is needed.
        more = _OVERSHOOT if repairs[i] == 1 else 0.0
        for j in range(low, low if hopeless else high):
            price = _cost(rx, ry, cx, cy, i, j) - own
            if price < v[j] and row_of[j] != i:  # its own column could differ from its own price by rounding
                k = row_of[j]
                if k < 0 and n < m:  # the price of a column that nobody holds must stay 0
                    hopeless = True
                    break
                v[j] = price - more * (v[j] - price)
                if k >= 0 and not queued[k]:
                    queue[(head + waiting) % n] = k
                    queued[k] = True
                    waiting += 1
        if hopeless:
            waiting = _release(rx, ry, cx, cy, v, col_of, row_of, queue, queued, head, waiting, i)
            missing += 1
    return missing


@njit(cache=True, nogil=True)
def _bid(rx, ry, cx, cy, v, col_of, row_of):
    """A quick start from nothing: rows take turns to take their cheapest column, from its holder if need be,
    and lower its price until the second cheapest is as good. Stops after a number of turns; the rows left over
    are for `_augment`."""
    n, m = len(rx), len(cx)
    turns = 6 * n if m > 1 else 0
    stack = np.arange(n)[::-1].copy()
    waiting = n
    while waiting > 0 and turns > 0:
        turns -= 1
        i = stack[waiting - 1]
        waiting -= 1
        first = second = np.inf
        best = other = 0
        for j in range(m):
            value = _cost(rx, ry, cx, cy, i, j) - v[j]
            if value < second:
                if value < first:
                    second = first
                    other = best
                    first = value
                    best = j
                else:
                    second = value
                    other = j
        if first == second and row_of[best] >= 0:
            best = other
        k = row_of[best]
        if k >= 0 and first == second:
            continue  # taking turns at equal prices might go on for ever
        v[best] -= second - first
        row_of[best] = i
        col_of[i] = best
        if k >= 0:
            col_of[k] = -1
            stack[waiting] = k
            waiting += 1


@njit(cache=True, nogil=True, fastmath=_FAST)
def _relax(i, x, y, offset, cx, cy, price, distance, before):
    """Dijkstra's step from row i at (x, y) to these columns."""
    for j in range(len(cx)):
        dx = cx[j] - x
        dy = cy[j] - y
        through = max(offset + (dx * dx + dy * dy - price[j]), 0.0)
        closer = through < distance[j]
        distance[j] = through if closer else distance[j]
        before[j] = i if closer else before[j]


@njit(cache=True, nogil=True)
def _least(bits, blocked):
    """The least of the distances, and the least of those not blocked, both as the bits of a float64.

    Positive floats are ordered like their bits, and a minimum of integers is one that the compiler
    vectorises."""
    least = bound = _INFINITY
    for j in range(len(bits)):
        least = min(least, bits[j])
        bound = min(bound, bits[j] | blocked[j])
    return least, bound


@njit(cache=True, nogil=True)
def _augment(rx, ry, cx, cy, v, col_of, row_of):
    """Match every row that has no column by a shortest augmenting path (Dijkstra on the costs at the present
    prices)."""
    n, m = len(rx), len(cx)
    starts, scale = _buckets(cx)
    price = np.empty(m)  # v, but -inf once a column has been visited, which keeps it out of the search
    distance = np.empty(m + 1)  # the last entry: that of the nearest column nobody holds, as far as known
    bits = distance.view(np.int64)
    blocked = np.where(row_of >= 0, _INFINITY, 0)
    before = np.empty(m, np.int64)
    visited = np.empty(m, np.int64)
    final = np.empty(m)
    for start in range(n):
        if col_of[start] >= 0:
            continue
        price[:] = v
        distance[:] = np.inf
        done = 0
        i = start
        j = -1
        nearest = offset = 0.0
        left, right = m, 0
        while True:
            # Prices are at most 0: whatever is farther off than this comes after a column that nobody holds.
            radius = np.sqrt(max(distance[m] - offset, 0.0)) * (1.0 + 1e-12)
            low, high = _reach(rx[i], radius, cx, starts, scale)
            x, y, p = cx[low:high], cy[low:high], price[low:high]
            _relax(i, rx[i], ry[i], offset, x, y, p, distance[low:high], before[low:high])
            left, right = min(left, low), max(right, high)
            least, bits[m] = _least(bits[left:right], blocked[left:right])
            for j in range(left, right):
                # Of equally near columns one that nobody holds ends the search.
                if bits[j] == least and (row_of[j] < 0 or bits[m] > least):
                    break
            nearest = distance[j]
            if row_of[j] < 0:
                break
            visited[done] = j
            final[done] = nearest
            done += 1
            i = row_of[j]
            offset = nearest - (_cost(rx, ry, cx, cy, i, j) - v[j])
            price[j] = -np.inf
            distance[j] = np.inf
        for s in range(done):
            v[visited[s]] += final[s] - nearest
        blocked[j] = _INFINITY
        i = -1
        while i != start:
            i = before[j]
            row_of[j] = i
            j, col_of[i] = col_of[i], j


@njit(cache=True, nogil=True)
def solve(rx, ry, cx, cy, v, col_of, spent):
    """Solve one problem in place; returns the mean cost of a row.

    rx, ry [n] rows and cx, cy [m] columns, m >= n, cx sorted, float64 metres. v [m] prices (<= 0) and col_of
    [n] columns of the rows (-1: none) are those of a similar problem, `spent` its mean cost; col_of all -1
    means from nothing. They end up as those of this problem."""
    n, m = len(rx), len(cx)
    row_of = np.full(m, -1, np.int64)
    kept = 0
    total = 0.0
    for i in range(n):
        if col_of[i] >= 0:
            row_of[col_of[i]] = i
            kept += 1
            total += _cost(rx, ry, cx, cy, i, col_of[i])
    missing = n
    if 2 * kept > n:
        shrink = min(1.0, np.sqrt(total / (kept * spent))) if spent > 0.0 else 1.0
        for j in range(m):
            v[j] = 0.0 if n < m and row_of[j] < 0 else min(v[j] * shrink, 0.0)
        missing = _repair(rx, ry, cx, cy, v, col_of, row_of)
    if 2 * missing > n:  # too little is left of the warm start
        v[:] = 0.0
        col_of[:] = -1
        row_of[:] = -1
        _bid(rx, ry, cx, cy, v, col_of, row_of)
        missing = n
    if missing > 0:
        _augment(rx, ry, cx, cy, v, col_of, row_of)
    if n == m:
        highest = v.max()
        for j in range(m):
            v[j] -= highest
    total = 0.0
    for i in range(n):
        total += _cost(rx, ry, cx, cy, i, col_of[i])
    return total / n
