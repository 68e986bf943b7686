"""Assignment within connected components: what a team could do if every component thought as one (numba).

A component knows its robots and the goals that any of them senses, and nothing else. No robot that hears only its own
component can do better at matching the two than the least total cost over them.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from mast_swarm.space.assignment import solve_one
from mast_swarm.space.costs import solve_costs


@njit(cache=True, nogil=True)
def match(rows, columns, horizon, partner):
    """Fills partner [n] with the column of each row: rows [n, 2] and columns [m, 2] metres, n <= m.

    A pair d metres apart costs d^2 / (d^2 + horizon^2): far beyond the horizon all are alike. If it is infinite: d^2.
    """
    n, m = len(rows), len(columns)
    if math.isinf(horizon):
        solve_one(rows, columns, np.zeros(m), partner, np.arange(m), 0.0)
        return
    cost = np.empty((n, m))
    for i in range(n):
        for j in range(m):
            squared = (rows[i, 0] - columns[j, 0]) ** 2 + (rows[i, 1] - columns[j, 1]) ** 2
            cost[i, j] = squared / (squared + horizon * horizon)
    solve_costs(cost, partner)


@njit(cache=True, nogil=True)
def _solve_component(positions, goals, members, seen, horizon, own):
    """Give the robots `members` [n] the goals `seen` [m], as many as there are of the fewer; fills own[members]."""
    n, m = len(members), len(seen)
    here = np.empty((n, 2))
    there = np.empty((m, 2))
    for i in range(n):
        here[i] = positions[members[i]]
        own[members[i]] = -1
    for j in range(m):
        there[j] = goals[seen[j]]
    partner = np.full(min(n, m), -1, np.int64)
    if n <= m:
        match(here, there, horizon, partner)
        for i in range(n):
            own[members[i]] = seen[partner[i]]
    elif m > 0:
        match(there, here, horizon, partner)
        for j in range(m):
            own[members[partner[j]]] = seen[j]


@njit(cache=True, nogil=True, parallel=True)
def solve_components(positions, goals, label, goals_seen, horizon, own):
    """Fills own [B, N] with the goal of each robot, -1 for none.

    positions [B, N, 2] and goals [B, M, 2] metres; label [B, N], the lowest robot of each robot's component;
    goals_seen [B, N, K] numbers, -1 missing; horizon metres, as in `match`.
    """
    batch, n = own.shape
    m = goals.shape[1]
    for b in prange(batch):
        members = np.empty(n, np.int64)
        known = np.empty(m, np.int64)
        component_of = np.full(m, -1, np.int64)  # the last component that was found to see a goal
        for first in range(n):
            if label[b, first] != first:
                continue
            robots, seen = 0, 0
            for i in range(first, n):
                if label[b, i] != first:
                    continue
                members[robots] = i
                robots += 1
                for j in goals_seen[b, i]:
                    if j >= 0 and component_of[j] != first:
                        component_of[j] = first
                        known[seen] = j
                        seen += 1
            _solve_component(positions[b], goals[b], members[:robots], known[:seen], horizon, own[b])


@njit(cache=True, nogil=True)
def parted(here, others, strength, spread):
    """What pushes a robot at `here` [2] away from others at [n, 2], metres: x and y, shorter than 1 together.

    One that is d metres away pushes with strength * exp(-d / spread), and the sum s becomes s / (1 + |s|)."""
    x = y = 0.0
    for other in others:
        away_x, away_y = here[0] - other[0], here[1] - other[1]
        distance = math.sqrt(away_x * away_x + away_y * away_y)
        weight = strength * math.exp(-distance / spread) / max(distance, 1.0)
        x += weight * away_x
        y += weight * away_y
    length = math.sqrt(x * x + y * y)
    return x / (1 + length), y / (1 + length)


@njit(cache=True, nogil=True, parallel=True)
def part_idle(positions, label, own, strength, spread, push):
    """Fills push [B, N, 2]: robots without a goal (own [B, N] is -1) part from the others of their component that have
    none either, as in `parted`."""
    batch, n = own.shape
    for b in prange(batch):
        others = np.empty((n, 2))
        for i in range(n):
            push[b, i] = 0.0
            if own[b, i] >= 0:
                continue
            count = 0
            for j in range(n):
                if j != i and own[b, j] < 0 and label[b, j] == label[b, i]:
                    others[count] = positions[b, j]
                    count += 1
            push[b, i] = parted(positions[b, i], others[:count], strength, spread)
