"""Exact assignment of points to goals by least total squared distance, for a batch of environments."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.space.matching import solve

FARTHEST = 1e30  # metres from the origin; keeps sums of squares finite


@dataclass(frozen=True)
class Warm:
    """What one solution leaves for the next, similar one. "Columns" are the larger of the two sides, "rows" the
    other."""

    prices: np.ndarray  # [B, columns] float64, square metres: the dual variables of the columns
    partner: np.ndarray  # [B, rows] int64: the column of each row
    order: np.ndarray  # [B, columns] int64: the columns by x
    spent: np.ndarray  # [B] float64, square metres: mean squared distance of a matched pair


@njit(cache=True, nogil=True)
def sort_by(values, order):
    """Sort the permutation `order` by values[order], in place; quick where it is nearly sorted already."""
    for s in range(1, len(order)):
        item = order[s]
        t = s
        while t > 0 and values[order[t - 1]] > values[item]:
            order[t] = order[t - 1]
            t -= 1
        order[t] = item


@njit(cache=True, nogil=True)
def _finite(points):
    good = True
    for i in range(len(points)):
        good &= abs(points[i, 0]) < FARTHEST and abs(points[i, 1]) < FARTHEST  # NaN fails too
    return good


@njit(cache=True, nogil=True)
def solve_one(rows, columns, prices, partner, order, spent):
    """Solve one environment: rows [n, 2], columns [m, 2], n <= m; the rest as in Warm, replaced in place.

    Returns the new `spent`, NaN for points that are not finite."""
    n, m = len(rows), len(columns)
    if n == 0:
        return 0.0
    if not (_finite(rows) and _finite(columns)):
        return np.nan
    sort_by(columns[:, 0], order)
    cx = np.empty(m)
    cy = np.empty(m)
    price = np.empty(m)
    place = np.empty(m, np.int64)
    for s in range(m):
        j = order[s]
        cx[s] = columns[j, 0]
        cy[s] = columns[j, 1]
        price[s] = prices[j]
        place[j] = s
    held = np.empty(n, np.int64)
    for i in range(n):
        held[i] = place[partner[i]] if partner[i] >= 0 else -1
    spent = solve(rows[:, 0].astype(np.float64), rows[:, 1].astype(np.float64), cx, cy, price, held, spent)
    for i in range(n):
        partner[i] = order[held[i]]
    for s in range(m):
        prices[order[s]] = price[s]
    return spent


@njit(cache=True, nogil=True, parallel=True)
def _solve_batch(rows, columns, prices, partner, order, spent):
    for b in prange(len(rows)):
        spent[b] = solve_one(rows[b], columns[b], prices[b], partner[b], order[b], spent[b])


def as_array(name: str, points: Tensor) -> np.ndarray:
    """The points [B, N, 2] as a contiguous array on the CPU."""
    if points.ndim != 3 or points.shape[-1] != 2 or not points.is_floating_point():
        shape, kind = list(points.shape), str(points.dtype).removeprefix("torch.")
        raise MastError(f"{name} are {kind} of shape {shape}: expected float [environments, number, 2] in metres")
    return np.ascontiguousarray(points.numpy(force=True))


def not_finite(**points: np.ndarray) -> MastError:
    """The error for points of which some are not finite, or absurdly far: names the first."""
    name, array = next((name, array) for name, array in points.items() if not (np.abs(array) < FARTHEST).all())
    b, i = np.argwhere(~(np.abs(array) < FARTHEST))[0][:2]
    return MastError(f"{name} has {array[b, i].tolist()} for number {i} of environment {b}: expected finite metres")


def assign(points: Tensor, goals: Tensor, warm: Warm | None = None) -> tuple[Tensor, Warm]:
    """Match points to goals one to one with the least sum of |p_i - g_j|^2, as many as there are of the fewer.

    points [B, N, 2] and goals [B, M, 2] metres. Returns the goal of each point [B, N] int64 (-1: none left for
    it, N > M) and what to hand in as `warm` next time. Warm starts change the time it takes, never the total;
    one of another shape is not used. Environments are shared out over numba's threads."""
    points_, goals_ = as_array("points", points), as_array("goals", goals)
    batch, n, m = points_.shape[0], points_.shape[1], goals_.shape[1]
    if goals_.shape[0] != batch:
        raise MastError(f"points are of {batch} environments and goals of {goals_.shape[0]}: expected equally many")
    rows, columns = (points_, goals_) if n <= m else (goals_, points_)
    shape = columns.shape[:2]
    if warm is not None and warm.prices.shape == shape and warm.partner.shape == rows.shape[:2]:
        prices, partner = warm.prices.copy(), warm.partner.copy()
        order, spent = warm.order.copy(), warm.spent.copy()
    else:
        prices, partner, spent = np.zeros(shape), np.full(rows.shape[:2], -1), np.zeros(batch)
        order = np.argsort(columns[:, :, 0], axis=1)
    if batch == 1:  # waking other threads costs more than a problem of a hundred robots
        mean = solve_one(rows[0], columns[0], prices[0], partner[0], order[0], spent[0])
        spent[0] = mean
        failed = mean != mean
    else:
        _solve_batch(rows, columns, prices, partner, order, spent)
        failed = np.isnan(spent).any()
    if failed:
        raise not_finite(points=points_, goals=goals_)
    goal = torch.from_numpy(partner.copy())
    if n > m:
        goal = torch.full((batch, n), -1)
        goal.scatter_(1, torch.from_numpy(partner), torch.arange(m).expand(batch, m))
    return goal, Warm(prices, partner, order, spent)
