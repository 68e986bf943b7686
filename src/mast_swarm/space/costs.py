"""Exact assignment of rows to columns by costs of any kind, for numba: where squared distances, which
`space.assignment` solves faster, are not what is wanted."""

from __future__ import annotations

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def solve_costs(cost, partner):
    """Fills partner [n] with the column of each row so that the sum of cost [n, m] is least; n <= m, finite costs.

    Every row takes its cheapest column if that is free. The others find shortest augmenting paths, one by one."""
    n, m = cost.shape
    row_price, column_price = np.empty(n), np.zeros(m)
    row_of = np.full(m, -1, np.int64)
    for i in range(n):
        best = 0
        for j in range(1, m):
            if cost[i, j] < cost[i, best]:
                best = j
        row_price[i] = cost[i, best]
        partner[i] = -1
        if row_of[best] < 0:
            row_of[best] = i
            partner[i] = best
    length, before, left = np.empty(m), np.empty(m, np.int64), np.empty(m, np.int64)
    for start in range(n):
        if partner[start] >= 0:
            continue
        length[:] = np.inf
        for j in range(m):
            left[j] = j
        many, i, shortest, end = m, start, 0.0, -1
        while end < 0:  # Dijkstra over columns: left[:many] are still open, left[many:] are done
            nearest = 0
            for k in range(many):
                j = left[k]
                through = shortest + cost[i, j] - row_price[i] - column_price[j]
                if through < length[j]:
                    length[j] = through
                    before[j] = i
                here, there = length[j], length[left[nearest]]
                if here < there or (here == there and row_of[j] < 0):  # of equally near ones a free column ends it
                    nearest = k
            j = left[nearest]
            shortest = length[j]
            many -= 1
            left[nearest], left[many] = left[many], j
            if row_of[j] < 0:
                end = j
            else:
                i = row_of[j]
        row_price[start] += shortest
        for k in range(many, m):
            j = left[k]
            column_price[j] += length[j] - shortest
            if row_of[j] >= 0:
                row_price[row_of[j]] += shortest - length[j]
        while True:  # the path back
            i = before[end]
            row_of[end] = i
            end, partner[i] = partner[i], end
            if i == start:
                break
