"""Assignment within connected components: what a team could do if every component thought as one (numba).

A component knows its robots and the goals that any of them senses, and nothing else. No robot that hears only its own
component can do better at matching the two than the least total squared distance over them.
"""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from mast_swarm.space.assignment import solve_one


@njit(cache=True, nogil=True)
def _solve_component(positions, goals, members, seen, own):
    """Give the robots `members` [n] the goals `seen` [m], as many as there are of the fewer; fills own[members]."""
    n, m = len(members), len(seen)
    here = np.empty((n, 2))
    there = np.empty((m, 2))
    for i in range(n):
        here[i] = positions[members[i]]
        own[members[i]] = -1
    for j in range(m):
        there[j] = goals[seen[j]]
    fewer, more = min(n, m), max(n, m)
    partner = np.full(fewer, -1, np.int64)
    prices, order = np.zeros(more), np.arange(more)
    if n <= m:
        solve_one(here, there, prices, partner, order, 0.0)
        for i in range(n):
            own[members[i]] = seen[partner[i]]
    else:
        solve_one(there, here, prices, partner, order, 0.0)
        for j in range(m):
            own[members[partner[j]]] = seen[j]


@njit(cache=True, nogil=True, parallel=True)
def solve_components(positions, goals, label, goals_seen, own):
    """Fills own [B, N] with the goal of each robot, -1 for none.

    positions [B, N, 2] and goals [B, M, 2] metres; label [B, N], the lowest robot of each robot's component;
    goals_seen [B, N, K] numbers, -1 missing.
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
            _solve_component(positions[b], goals[b], members[:robots], known[:seen], own[b])
