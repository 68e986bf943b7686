"""What a policy perceives, made of what a robot measures in metres. Needs no torch.

The order of the features and what each is divided by come from the manifest of the exported policy: nobody copies a
scale by hand. `Features` serves any task; the classes below it know what the parts of this package's tasks mean. The
simulated worlds compute the same for whole teams, and tests hold the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.robot.body import Sensed


class Features:
    """The features of an exported policy. manifest: what `Exported(folder).manifest` holds."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        observation = manifest["observation"]
        self.parts: dict[str, dict[str, Any]] = {part["name"]: part for part in observation["features"]}
        self.shape = tuple(observation["shape"])
        self.world: dict[str, Any] = observation["world"] or {}
        if not self.parts:
            raise MastError("the manifest names no features: give the task's settings a method `sensed`, export again")

    def scaled(self, name: str, measured: Any) -> np.ndarray:
        """A feature by its name in the manifest, float32, from what is measured in the unit that stands there."""
        part = self._part(name)
        values = np.asarray(measured, np.float64)
        if values.shape != tuple(part["shape"]):
            raise MastError(f"{name} has shape {list(values.shape)}: expected {list(part['shape'])}")
        if not np.isfinite(values).all():
            raise MastError(f"{name} holds NaN or infinity: expected {part['unit'] or 'numbers'}")
        return (values / part["scale"]).astype(np.float32)

    def assembled(self, measured: Mapping[str, Any]) -> np.ndarray:
        """All features in the manifest's order, from what is measured by name, each in its unit."""
        missing = [name for name in self.parts if name not in measured]
        if missing:
            raise MastError(f"the policy also perceives {', '.join(missing)}: expected all that the manifest names")
        features = [self.scaled(name, value) for name, value in measured.items()]
        by_name = dict(zip(measured, features, strict=True))
        if len(self.shape) == 3:  # images: a channel each
            return np.stack([by_name[name] for name in self.parts])
        return np.concatenate([by_name[name].reshape(-1) for name in self.parts])

    def _part(self, name: str) -> dict[str, Any]:
        if name not in self.parts:
            raise MastError(f"the policy does not perceive {name}: its manifest has {', '.join(self.parts)}")
        return self.parts[name]


class NavigationFeatures(Features):
    """Robots that find goals: 14 numbers if three goals and three robots are observed.

    Places are metres relative to this robot, along the axes of the frame that the team shares.
    """

    @property
    def observed(self) -> int:
        """How many goals, and how many robots, a robot perceives."""
        return sum(name.startswith("goal_") for name in self.parts)

    def last_command(self, velocity: Any) -> np.ndarray:
        """From the velocity that the robot was last told, [2] m/s; zeros at the start."""
        return self.scaled("last_command", velocity)

    def goals(self, relative: Any) -> np.ndarray:
        """From the goals that it senses, [G, 2]: the nearest ones, [K, 2]."""
        return np.stack([self.scaled(f"goal_{k + 1}", place) for k, place in enumerate(self._nearest(relative))])

    def robots(self, relative: Any) -> np.ndarray:
        """From the other robots that it senses, [R, 2]: the nearest ones, [K, 2]."""
        return np.stack([self.scaled(f"robot_{k + 1}", place) for k, place in enumerate(self._nearest(relative))])

    def landmark(self, goals: Any) -> np.ndarray:
        """What an exploring robot stays near: the nearest goal, [2] metres, not divided; zeros if it senses none."""
        return nearest(goals, 1)[0]

    def sights(self, goals: Any) -> np.ndarray:
        """What a map of where robots have looked is made of: the nearest goals, [K, 2] metres, not divided, infinite
        where there are fewer."""
        found = self._nearest(goals)
        found[len(np.asarray(goals, np.float64).reshape(-1, 2)) :] = np.inf
        return found

    def sensed(self, position: Any, velocity: Any, goals: Any, robots: Any, reach: float = math.inf) -> Sensed:
        """All at once: position [2] metres in the team's frame, and what the functions above take. reach: metres within
        which the robot senses every goal, for policies with a map: beyond it nothing counts as searched."""
        measured: dict[str, Any] = {"last_command": velocity}
        measured |= {f"goal_{k + 1}": place for k, place in enumerate(self._nearest(goals))}
        measured |= {f"robot_{k + 1}": place for k, place in enumerate(self._nearest(robots))}
        told: dict[str, Any] = {"robots": robots, "sights": self.sights(goals), "reach": reach}
        return Sensed(position, self.assembled(measured), self.landmark(goals), **told)

    def _nearest(self, relative: Any) -> np.ndarray:
        self._part("goal_1")  # else this is a policy of another task
        return nearest(relative, self.observed)


def nearest(relative: Any, count: int) -> np.ndarray:
    """The nearest of some places [M, 2], metres relative to the robot: [count, 2], nearest first, the first of equals
    first, zeros where there are fewer."""
    places = np.asarray(relative, np.float64).reshape(-1, 2)
    if not np.isfinite(places).all():
        raise MastError("places hold NaN or infinity: expected metres relative to the robot")
    order = np.argsort((places**2).sum(axis=1), kind="stable")[:count]
    found = np.zeros((count, 2))
    found[: len(order)] = places[order]
    return found


class CoverageFeatures(Features):
    """Robots that spread over what is important: maps of 32 x 32 pixels, indexed [y, x], around the robot.

    The world is a square from (0, 0) to (side, side) metres in the team's frame. A robot remembers what it has sensed
    in a map of its own, which `looked` extends.
    """

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        super().__init__(manifest)
        self._part("density")  # else this is a policy of another task
        self.cells, self.sensor_cells, self.map_cells = (
            round(self.world[name] / self.world["resolution"]) for name in ("side", "sensor", "local_map")
        )
        self.known = np.zeros((self.cells, self.cells), np.float32)
        """Importance where it has been sensed, 0 elsewhere; 1 is the highest there is."""
        self.seen = np.zeros((self.cells, self.cells), bool)
        """Where it has been sensed."""

    @cached_property
    def _filter(self) -> np.ndarray:
        return resize_filter(self.map_cells, self.shape[-1])

    def window(self, position: Any) -> tuple[int, int]:
        """The first cell (x, y) of the square of `sensor_cells` that a robot senses at a position [2] metres."""
        return self._corner(position, self.sensor_cells)

    def looked(self, position: Any, importance: Any) -> None:
        """Remember what the robot senses around a position: importance [sensor_cells, sensor_cells], indexed [y, x],
        from the cell `window(position)` on, 1 where it is highest in the world. What lies outside is passed over."""
        size, values = self.sensor_cells, np.asarray(importance, np.float32)
        if values.shape != (size, size):
            raise MastError(f"importance has shape {list(values.shape)}: expected [{size}, {size}]")
        if not np.isfinite(values).all():
            raise MastError("importance holds NaN or infinity: expected numbers from 0 to 1")
        x, y = self.window(position)
        there, here = _overlap(y, size, self.cells), _overlap(x, size, self.cells)
        rows, columns = slice(there.start + y, there.stop + y), slice(here.start + x, here.stop + x)
        self.known[rows, columns] = values[there, here]
        self.seen[rows, columns] = True

    def density(self, position: Any) -> np.ndarray:
        """What the robot knows of the importance around it, [P, P]."""
        return self.scaled("density", self._around(self.known, position, 0.0))

    def boundary(self, position: Any) -> np.ndarray:
        """1 outside the world, 0 inside, [P, P]."""
        return self.scaled("boundary", self._outside(position))

    def neighbours_x(self, relative: Any) -> np.ndarray:
        """Robots [R, 2] metres relative to this one: at the pixel of each that is in reach its x, [P, P]."""
        return self.scaled("neighbours_x", self._drawn(relative)[0])

    def neighbours_y(self, relative: Any) -> np.ndarray:
        """The same with y."""
        return self.scaled("neighbours_y", self._drawn(relative)[1])

    def seen_map(self, position: Any) -> np.ndarray:
        """1 where the robot has looked, [P, P]; for policies that perceive it."""
        return self.scaled("seen", self._around(self.seen, position, 0.0))

    def sensed(self, position: Any, robots: Any) -> Sensed:
        """All at once, after `looked`: position [2] metres in the world, robots [R, 2] metres relative to this one."""
        x, y = self._drawn(robots)
        measured = {
            "density": self._around(self.known, position, 0.0),
            "boundary": self._outside(position),
            "neighbours_x": x,
            "neighbours_y": y,
            "seen": self._around(self.seen, position, 0.0),
        }
        return Sensed(position, self.assembled({name: measured[name] for name in self.parts}))

    def _corner(self, position: Any, size: int) -> tuple[int, int]:
        x, y = (math.floor(float(value) / self.world["resolution"] + 0.5) - size // 2 for value in position)
        return x, y

    def _around(self, whole: np.ndarray, position: Any, outside: float) -> np.ndarray:
        """The square around a robot of a map of the world, brought to pixels."""
        size = self.map_cells
        x, y = self._corner(position, size)
        there, here = _overlap(y, size, self.cells), _overlap(x, size, self.cells)
        square = np.full((size, size), outside)
        square[there, here] = whole[there.start + y : there.stop + y, here.start + x : here.stop + x]
        return self._filter.T @ square @ self._filter

    def _outside(self, position: Any) -> np.ndarray:
        return np.maximum(self._around(np.zeros((self.cells, self.cells), bool), position, 1.0), 0.0)

    def _drawn(self, relative: Any) -> np.ndarray:
        """x and y of the robots in reach at their pixels, metres, [2, P, P]."""
        places, pixels = np.asarray(relative, np.float64).reshape(-1, 2), self.shape[-1]
        reach = self.world["communication_range"]
        out = np.zeros((2, pixels, pixels))
        for place in places[(places**2).sum(axis=1) < reach**2]:
            column, row = np.minimum(((place / reach + 1) * (pixels / 2)).astype(int), pixels - 1)
            out[:, row, column] += place
        return out


def resize_filter(size: int, pixels: int) -> np.ndarray:
    """Weights [size, pixels] of an antialiased bilinear resize along one side, size >= pixels: pixel p is the sum of
    the cells around its middle, weighted by a triangle that is two pixels wide."""
    pixel = size / pixels  # cells
    middle = (np.arange(pixels) + 0.5) * pixel
    distance = np.abs(np.arange(size)[:, None] + 0.5 - middle) / pixel
    weights = np.maximum(1 - distance, 0.0)
    return weights / weights.sum(axis=0)


def _overlap(first: int, size: int, cells: int) -> slice:
    """Which of `size` cells from `first` on lie in a world of `cells`."""
    begin = min(max(-first, 0), size)
    return slice(begin, max(begin, min(size, cells - first)))
