"""Nobody is hit: the safety layer of one robot, in plain numpy. `mast_swarm.space.apart` is the same for whole teams.

The robot keeps half of `distance` on its own side of the line midway between itself and each other robot. If all do so,
none comes nearer than `distance` to another, whatever they want (docs/safety.md).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mast_swarm.errors import MastError

_EPSILON = float(np.finfo(np.float32).eps)  # what is near may have been measured in fp32


def sensing_radius(distance: float, longest: float) -> float:
    """Metres within which the robot must know where all others are."""
    return distance + 2 * longest


def keep_apart(position: Any, step: Any, others: Any, distance: float, longest: float) -> np.ndarray:
    """The step [2] metres that the robot takes in place of the one that it wants, [2] and no longer than `longest`.

    position: where it is, [2] metres; others: where all others within `sensing_radius` are, [K, 2] metres. distance:
    metres that no two centres come nearer, twice the radius of a robot. Some of it is left free for rounding: places in
    float32 are coarse far from the origin (0.25 m at 4,000 km), so give float64 there, or places relative to the robot.
    """
    if not (distance > 0 and longest > 0):
        raise MastError(f"a distance of {distance} m and steps of {longest} m: expected positive numbers")
    given = np.asarray(position).dtype
    coarse = float(np.finfo(given if given.kind == "f" else np.float64).eps)
    here, wanted = np.asarray(position, np.float64), np.asarray(step, np.float64)
    way = np.asarray(others, np.float64).reshape(-1, 2) - here
    if not all(np.isfinite(given).all() for given in (here, wanted, way)):
        raise MastError("position, step and the places of others: expected finite numbers")
    apart, reach = np.hypot(*way.T), sensing_radius(distance, longest)
    way, apart = way[apart < reach], apart[apart < reach]
    normals = way / np.maximum(apart, 1e-9)[:, None]
    limits = (apart - distance) / 2 - 8 * (coarse * np.abs(here).max() + _EPSILON * reach)
    rounding = _EPSILON * reach
    if not wanted.any() or (normals @ wanted <= limits).all():
        return wanted
    points = [_nearest_on(line, wanted, normals, limits) for line in range(len(limits))]
    allowed = [
        point
        for point in points
        if (normals @ point <= limits + rounding).all() and np.hypot(*point) <= longest + rounding
    ]
    return min(allowed, key=lambda point: float(np.hypot(*(point - wanted))), default=np.zeros(2))


def _nearest_on(line: int, wanted: np.ndarray, normals: np.ndarray, limits: np.ndarray) -> np.ndarray:
    """The point [2] nearest to `wanted` of what the other lines, normals [K, 2] . x = limits [K], leave of one of them;
    one that they do not allow where they leave nothing."""
    normal, limit = normals[line], limits[line]
    along = np.array((-normal[1], normal[0]))
    # A point t metres along the line is allowed where t * sine <= bound.
    sine, bound = normals @ along, limits - limit * (normals @ normal)
    lowest = max((bound[sine < -1e-6] / sine[sine < -1e-6]).tolist(), default=-np.inf)
    highest = min((bound[sine > 1e-6] / sine[sine > 1e-6]).tolist(), default=np.inf)
    return limit * normal + min(max(float(along @ wanted), lowest), highest) * along
