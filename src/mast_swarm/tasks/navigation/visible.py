"""The many small assignments of DHBA-k: what each robot can know, and the goal that it would give itself.

What robot i knows is a set of robots and a set of goals, kept as bits (64 to a word), so that k hops of talk
are k rounds of OR over the links. Robots that know the same share one problem. A problem in which nothing moved
keeps its answer; any other starts from the answer that its robot had a step ago. `solve_views` is exact with or
without these, up to ties."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
from numba import njit, prange

from mast_swarm.space.matching import solve


@dataclass(frozen=True)
class Knowledge:
    """The problems of one step and their answers. Lists of different lengths lie one after another ("ragged");
    problem q has its robots' goals from first_robot[q] on, in the order of the robots' numbers, and its prices
    from first_price[q] on, likewise."""

    positions: np.ndarray  # [B, N, 2] metres
    goals: np.ndarray  # [B, M, 2] metres
    robots_known: np.ndarray  # [B, N, ceil(N/64)] uint64: bit j of [b, i] says that robot i knows of robot j
    goals_known: np.ndarray  # [B, N, ceil(M/64)] uint64
    problem: np.ndarray  # [B, N] int64: the problem that holds robot i's own view
    first_robot: np.ndarray  # [problems + 1] int64
    first_price: np.ndarray  # [problems + 1] int64
    goal: np.ndarray  # ragged int64: the goal of each robot in the problem's eyes, -1 for none
    price: np.ndarray  # ragged float64: of the goals known, or of the robots if these are more
    spent: np.ndarray  # [problems] float64, square metres: mean squared distance of a matched pair


@njit(cache=True, nogil=True)
def _count(words):
    """How many bits are set."""
    count = 0
    for word in words:
        while word != np.uint64(0):
            word &= word - np.uint64(1)
            count += 1
    return count


@njit(cache=True, nogil=True)
def _has(words, j):
    return (words[j >> 6] >> np.uint64(j & 63)) & np.uint64(1) != np.uint64(0)


@njit(cache=True, nogil=True)
def _add(words, j):
    words[j >> 6] |= np.uint64(1) << np.uint64(j & 63)


@njit(cache=True, nogil=True)
def _members(words, count):
    """The numbers of the `count` bits that are set, ascending."""
    members = np.empty(count, np.int64)
    found = 0
    for w in range(len(words)):
        if words[w] != np.uint64(0):
            for j in range(64 * w, 64 * w + 64):
                if _has(words, j):
                    members[found] = j
                    found += 1
    return members


@njit(cache=True, nogil=True)
def _gather(neighbours, goals_seen, source, first_edge, hops, robots_known, goals_known):
    """Fill robots_known and goals_known [N, words] (zero at first) with what each robot and all within `hops` hops
    of it observe: neighbours [N, K] and goals_seen [N, L], numbers, -1 missing. Robot i hears source[e] for e from
    first_edge[i] to first_edge[i + 1] - 1."""
    n = len(neighbours)
    for i in range(n):
        _add(robots_known[i], i)
        for j in neighbours[i]:
            if j >= 0:
                _add(robots_known[i], j)
        for j in goals_seen[i]:
            if j >= 0:
                _add(goals_known[i], j)
    for _ in range(hops):
        robots_before = robots_known.copy()
        goals_before = goals_known.copy()
        news = np.uint64(0)
        for i in range(n):
            for e in range(first_edge[i], first_edge[i + 1]):
                h = source[e]
                for w in range(robots_known.shape[1]):
                    news |= robots_before[h, w] & ~robots_known[i, w]
                    robots_known[i, w] |= robots_before[h, w]
                for w in range(goals_known.shape[1]):
                    news |= goals_before[h, w] & ~goals_known[i, w]
                    goals_known[i, w] |= goals_before[h, w]
        if news == np.uint64(0):
            break


@njit(cache=True, nogil=True)
def _share(robots_known, goals_known, owner):
    """owner[i] <- the first robot that knows just what robot i knows, found by hashing."""
    n = len(owner)
    size = 1
    while size < 2 * n:
        size *= 2
    table = np.full(size, -1, np.int64)
    for i in range(n):
        key = np.uint64(0xCBF29CE484222325)
        for word in robots_known[i]:
            key = (key ^ word ^ (key >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        for word in goals_known[i]:
            key = (key ^ word ^ (key >> np.uint64(29))) * np.uint64(0x9E3779B97F4A7C15)
        slot = np.int64(key >> np.uint64(32)) & (size - 1)
        owner[i] = -1
        while owner[i] < 0:
            j = table[slot]
            if j < 0:
                table[slot] = owner[i] = i
            elif (robots_known[i] == robots_known[j]).all() and (goals_known[i] == goals_known[j]).all():
                owner[i] = j
            slot = (slot + 1) & (size - 1)


@njit(cache=True, nogil=True, parallel=True)
def survey(neighbours, goals_seen, source, first_edge, hops, robots_known, goals_known, owner, robots, goals):
    """What every robot knows. neighbours [B, N, K] and goals_seen [B, N, L]; source [E], numbered within environments,
    with first_edge [B * N + 1]; the bits robots_known, goals_known (as in Knowledge, zero at first) are filled in,
    owner [B, N], the first robot of the environment to know the same, and robots, goals [B, N], how many it knows."""
    batch, n = owner.shape
    for b in prange(batch):
        edges = first_edge[b * n : (b + 1) * n + 1]
        _gather(neighbours[b], goals_seen[b], source, edges, hops, robots_known[b], goals_known[b])
        _share(robots_known[b], goals_known[b], owner[b])
        for i in range(n):
            robots[b, i] = _count(robots_known[b, i])
            goals[b, i] = _count(goals_known[b, i])


def _moved(points: np.ndarray, before: np.ndarray, words: int) -> np.ndarray:
    """The bits [B, words] of the points [B, N, 2] that are not where they were before."""
    moved = np.zeros((len(points), words * 64), np.bool_)
    moved[:, : points.shape[1]] = (points != before).any(axis=2)
    return np.packbits(moved, axis=1, bitorder="little").view("<u8").astype(np.uint64)


@njit(cache=True, nogil=True)
def _same(now, before, moved):
    """Whether a set is what it was and none of it moved."""
    changed = np.uint64(0)
    for w in range(len(now)):
        changed |= (now[w] ^ before[w]) | (now[w] & moved[w])
    return changed == np.uint64(0)


@njit(cache=True, nogil=True)
def _pick(points, order, known, count):
    """Those of the points that are known: their numbers by x, and their x and y."""
    number = np.empty(count, np.int64)
    x = np.empty(count)
    y = np.empty(count)
    s = 0
    for j in order:
        if _has(known, j):
            number[s] = j
            x[s] = points[j, 0]
            y[s] = points[j, 1]
            s += 1
    return number, x, y


@njit(cache=True, nogil=True)
def _remember(robots, known, robots_then, known_then, goal, price, held, price_of):
    """Spread an earlier answer (`goal`, `price`: pieces of the ragged lists) over held [N] and price_of [columns],
    by number, as far as its robots and goals are known still."""
    n, m = _count(robots_then), _count(known_then)
    robot_numbers = _members(robots_then, n)
    for s in range(n):
        if goal[s] >= 0 and _has(robots, robot_numbers[s]) and _has(known, goal[s]):
            held[robot_numbers[s]] = goal[s]
    column_numbers = _members(known_then, m) if n <= m else robot_numbers
    for s in range(len(column_numbers)):
        price_of[column_numbers[s]] = price[s]


@njit(cache=True, nogil=True)
def _solve_view(positions, goals, robots, known, robots_by_x, goals_by_x, n, m, held, price_of, spent):
    """Solve the problem of n known `robots` and m `known` goals. held [N], the goal of each robot or -1, and price_of
    [columns] hold what is remembered and end up as the answer. Returns the mean squared distance of a pair."""
    robot_number, robot_x, robot_y = _pick(positions, robots_by_x, robots, n)
    goal_number, goal_x, goal_y = _pick(goals, goals_by_x, known, m)
    columns = goal_number if n <= m else robot_number
    v = np.empty(len(columns))
    for s in range(len(columns)):
        v[s] = price_of[columns[s]]
    place = np.empty(len(goals), np.int64)
    for s in range(m):
        place[goal_number[s]] = s
    col_of = np.full(min(n, m), -1, np.int64)
    for s in range(n):
        goal = held[robot_number[s]]
        if goal >= 0 and n <= m:
            col_of[s] = place[goal]
        elif goal >= 0:
            col_of[place[goal]] = s
    if n <= m:
        spent = solve(robot_x, robot_y, goal_x, goal_y, v, col_of, spent)
        for s in range(n):
            held[robot_number[s]] = goal_number[col_of[s]]
    else:
        spent = solve(goal_x, goal_y, robot_x, robot_y, v, col_of, spent)
        for s in range(n):
            held[robot_number[s]] = -1
        for s in range(m):
            held[robot_number[col_of[s]]] = goal_number[s]
    for s in range(len(columns)):
        price_of[columns[s]] = v[s]
    return spent


@njit(cache=True, nogil=True, parallel=True)
def _solve_problems(now, then, warm, environment, owner, robots_moved, goals_moved, robots_by_x, goals_by_x):
    """Fill in the answers (goal, price, spent) of `now`. `now` and `then`, a step ago, are the fields of Knowledge in
    their order; `then` counts only if warm."""
    positions, goals, robots_now, goals_now, _, first_robot, first_price, goal, price, spent = now
    (
        _,
        _,
        robots_then,
        goals_then,
        problem_then,
        first_robot_then,
        first_price_then,
        goal_then,
        price_then,
        spent_then,
    ) = then
    for q in prange(len(environment)):
        b, i = environment[q], owner[q]
        robots, known = robots_now[b, i], goals_now[b, i]
        n, m = _count(robots), _count(known)
        my_goal = goal[first_robot[q] : first_robot[q + 1]]
        my_price = price[first_price[q] : first_price[q + 1]]
        held = np.full(positions.shape[1], -1, np.int64)
        price_of = np.zeros(goals.shape[1] if n <= m else positions.shape[1])
        mean = 0.0
        if warm:
            r, g, p = robots_then[b, i], goals_then[b, i], problem_then[b, i]
            old_goal = goal_then[first_robot_then[p] : first_robot_then[p + 1]]
            old_price = price_then[first_price_then[p] : first_price_then[p + 1]]
            mean = spent_then[p]
            if _same(robots, r, robots_moved[b]) and _same(known, g, goals_moved[b]):
                my_goal[:] = old_goal
                my_price[:] = old_price
                spent[q] = mean
                continue
            # Prices are of use only if they are prices of the same kind of thing: of goals, or of robots.
            if (n <= m) == (_count(r) <= _count(g)):
                _remember(robots, known, r, g, old_goal, old_price, held, price_of)
        if m > 0:
            order, goal_order = robots_by_x[b], goals_by_x[b]
            spent[q] = _solve_view(positions[b], goals[b], robots, known, order, goal_order, n, m, held, price_of, mean)
        robot_numbers = _members(robots, n)
        for s in range(n):
            my_goal[s] = held[robot_numbers[s]]
        column_numbers = _members(known, m) if n <= m else robot_numbers
        for s in range(len(column_numbers)):
            my_price[s] = price_of[column_numbers[s]]


@njit(cache=True, nogil=True)
def _own_goals(robots_known, problem, first_robot, goal, own):
    """own [B, N] <- the goal of each robot in its own problem."""
    batch, n = own.shape
    for b in range(batch):
        for i in range(n):
            word = i >> 6
            below = (np.uint64(1) << np.uint64(i & 63)) - np.uint64(1)
            rank = _count(robots_known[b, i, :word]) + _count(robots_known[b, i, word : word + 1] & below)
            own[b, i] = goal[first_robot[problem[b, i]] + rank]


def _fields(views: Knowledge) -> tuple[np.ndarray, ...]:
    return tuple(getattr(views, field.name) for field in fields(views))


def solve_views(
    positions: np.ndarray,
    goals: np.ndarray,
    neighbours: np.ndarray,
    goals_seen: np.ndarray,
    edges: tuple[np.ndarray, np.ndarray],
    hops: int,
    before: Knowledge | None = None,
) -> tuple[np.ndarray, Knowledge]:
    """The goal [B, N] that each robot gives itself by what it knows, -1 for none, and what to hand in as `before` at
    the next step.

    positions [B, N, 2], goals [B, M, 2] metres; neighbours [B, N, K], goals_seen [B, N, L] numbers, -1 missing; edges
    are the robots heard [E] and where the ones that each robot hears begin [B * N + 1]. `before` changes the time it
    takes, never the totals; one of another shape is not used."""
    batch, n, m = *positions.shape[:2], goals.shape[1]
    robots_known = np.zeros((batch, n, -(-n // 64)), np.uint64)
    goals_known = np.zeros((batch, n, max(1, -(-m // 64))), np.uint64)
    owners, robots, seen = (np.empty((batch, n), np.int64) for _ in range(3))
    survey(neighbours, goals_seen, *edges, hops, robots_known, goals_known, owners, robots, seen)
    environment, owner = np.nonzero(owners == np.arange(n))
    problem = np.empty((batch, n), np.int64)
    problem[environment, owner] = np.arange(len(owner))
    problem = np.take_along_axis(problem, owners, axis=1)

    first_robot = np.concatenate([[0], np.cumsum(robots[environment, owner])])
    first_price = np.concatenate([[0], np.cumsum(np.maximum(robots, seen)[environment, owner])])
    views = Knowledge(
        positions.copy(),  # the caller's own might be changed in place
        goals.copy(),
        robots_known,
        goals_known,
        problem,
        first_robot,
        first_price,
        goal=np.empty(first_robot[-1], np.int64),
        price=np.empty(first_price[-1]),
        spent=np.zeros(len(owner)),
    )
    warm = before is not None and before.positions.shape == positions.shape and before.goals.shape == goals.shape
    last = before if before is not None and warm else views
    moved = (
        _moved(positions, last.positions, robots_known.shape[2]),
        _moved(goals, last.goals, goals_known.shape[2]),
    )
    by_x = np.argsort(positions[:, :, 0], axis=1), np.argsort(goals[:, :, 0], axis=1)
    _solve_problems(_fields(views), _fields(last), warm, environment, owner, *moved, *by_x)
    own = np.empty((batch, n), np.int64)
    _own_goals(robots_known, problem, first_robot, views.goal, own)
    return own, views
