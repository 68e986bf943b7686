"""The assignments of robots whose news of each other is late: each has a view of its own, and solves it (numba)."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from mast_swarm.tasks.navigation.components import match, parted


@njit(cache=True, nogil=True)
def _view(age, news, near, oldest, place, told):
    """What one robot knows, of age [N] and news [N, W] that it holds: fills place [N, 2], where it takes each robot to
    be (not a number: it knows of none), and told [M], whether it knows of each goal. The youngest news of a robot
    counts, be it its own or a neighbour's of it."""
    n = len(age)
    youngest = np.full(n, oldest + 1, np.int64)
    place[:] = np.nan
    told[:] = False
    for j in range(n):
        if age[j] < 0 or age[j] > oldest:
            continue
        if age[j] < youngest[j]:
            youngest[j] = age[j]
            place[j] = news[j, :2]
        for k in range(near):
            other = int(news[j, 2 + 3 * k])
            if other >= 0 and age[j] < youngest[other]:
                youngest[other] = age[j]
                place[other] = news[j, 3 + 3 * k : 5 + 3 * k]
        for goal in news[j, 2 + 3 * near :]:
            if goal >= 0:
                told[int(goal)] = True


@njit(cache=True, nogil=True)
def _own_goal(me, place, told, goals, horizon, strength, spread, push):
    """The goal of robot `me` in the assignment of all the robots and goals that it knows; -1 for none. Fills push [2],
    what parts it from others that it takes to have none either."""
    robots = np.nonzero(~np.isnan(place[:, 0]))[0]
    known = np.nonzero(told)[0]
    here, there = np.empty((len(robots), 2)), np.empty((len(known), 2))
    for i in range(len(robots)):
        here[i] = place[robots[i]]
    for j in range(len(known)):
        there[j] = goals[known[j]]
    partner = np.full(min(len(robots), len(known)), -1, np.int64)
    push[:] = 0.0
    if len(robots) <= len(known):
        match(here, there, horizon, partner)
        for i in range(len(robots)):
            if robots[i] == me:
                return known[partner[i]]
        return -1
    idle = robots != me
    if len(known) > 0:
        match(there, here, horizon, partner)
        for j in range(len(known)):
            if robots[partner[j]] == me:
                return known[j]
            idle[partner[j]] = False
    push[0], push[1] = parted(place[me], here[idle], strength, spread)
    return -1


@njit(cache=True, nogil=True, parallel=True)
def _solve(age, news, goals, near, oldest, horizon, strength, spread, warm, place, told, own, push):
    """Fills own [B, N] and push [B, N, 2]; place [B, N, N, 2] and told [B, N, M] hold the views of a step ago where
    `warm`, and end up as those of now. A robot whose view is what it was keeps its goal."""
    batch, n = own.shape
    for number in prange(batch * n):
        b, i = number // n, number % n
        seen_place, seen_told = np.empty((n, 2)), np.empty(goals.shape[1], np.bool_)
        _view(age[b, i], news[b, i], near, oldest, seen_place, seen_told)
        same = warm
        if warm:
            for j in range(n):
                # Not a number twice is the same too.
                if not (seen_place[j, 0] == place[b, i, j, 0] and seen_place[j, 1] == place[b, i, j, 1]) and not (
                    np.isnan(seen_place[j, 0]) and np.isnan(place[b, i, j, 0])
                ):
                    same = False
                    break
            same = same and (seen_told == told[b, i]).all()
        if not same:
            own[b, i] = _own_goal(i, seen_place, seen_told, goals[b], horizon, strength, spread, push[b, i])
            place[b, i] = seen_place
            told[b, i] = seen_told


def solve_heard(
    age: np.ndarray,
    news: np.ndarray,
    goals: np.ndarray,
    near: int,
    oldest: int,
    horizon: float,
    parting: tuple[float, float],
    before: tuple[np.ndarray, ...] | None = None,
) -> tuple[np.ndarray, np.ndarray, tuple[np.ndarray, ...]]:
    """The goal [B, N] that each robot gives itself by the news it holds, -1 for none; what parts those without from
    others that they take to have none, [B, N, 2]; and what to hand in as `before` at the next step, which changes the
    time it takes and nothing else.

    age [B, N, N] control periods, -1 for none; news [B, N, N, W] as `DhbaRelay.tell` says it, with `near` neighbours;
    goals [B, M, 2] metres; news older than `oldest` does not count; horizon metres, as in `match`; parting: strength
    and spread, as in `parted`."""
    batch, n = age.shape[:2]
    fresh = (
        np.full((batch, n, n, 2), np.nan),
        np.zeros((batch, n, goals.shape[1]), np.bool_),
        np.empty((batch, n), np.int64),
        np.zeros((batch, n, 2), np.float32),
    )
    place, told, own, push = fresh if before is None else before
    _solve(age, news, goals, near, oldest, horizon, *parting, True, place, told, own, push)
    return own.copy(), push.copy(), (place, told, own, push)
