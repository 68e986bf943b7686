"""One robot's map of where the team has looked, in plain numpy: the specification of the rule.

`mast_swarm.survey` computes the same for whole teams in torch, and tests hold the two equal.

The rule: the map is a square of A x A cells. Each cell has two marks: whether it is worth searching, because something
of interest is not far; and whether it has been searched. A robot senses its K nearest things of interest, so it knows
all there are up to the farthest of these: that disk it marks as searched (`look`). It adds the marks of those that it
hears to its own (`hear`). Marks are never taken back. A robot whose policy leaves its speed open goes to the nearest
cell that is worth searching and has not been searched; a cell that is nearer to another robot which searches is left to
that one (`way`).

Places are rounded to float32 relative to the middle of the map, as in simulation, whose worlds lie around the origin.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from mast_swarm.errors import MastError

LEASH = 250.0  # m from a thing of interest up to which cells are worth searching
BORDER = 150.0  # m that the map reaches beyond the world's square
IDLE = 0.15  # of the top speed: a robot whose policy leaves more of its speed open than this searches
RIVALS = 4  # the nearest others that search, whose cells are left to them
YIELD = 10.0  # how much a cell costs more, per metre by which a rival is nearer
STAY = 0.9  # what the cell of the last instant costs, in units of what it would: a robot does not waver between two

WORTH, SEARCHED = 0, 1  # the two marks


def idle(prediction: np.ndarray) -> bool:
    """Whether a prediction [3] (mean command, expected speed) leaves the robot with speed to spare."""
    return bool(np.clip(prediction[2], 0, 1) - np.sqrt((prediction[:2] ** 2).sum()) > IDLE)


def guided(command: np.ndarray, prediction: np.ndarray, way: np.ndarray) -> np.ndarray:
    """The command [2], or where the robot searches its way [2] at the speed that is predicted [3]; way 0: no way."""
    return np.clip(prediction[2], 0, 1) * way if way.any() else command


class Survey:
    """The map of one robot. cell: metres of a cell. side: metres of the world's square. middle: where its middle is,
    [2] metres in the frame that the team shares."""

    def __init__(self, cell: float, side: float, middle: Any = (0.0, 0.0)) -> None:
        self.middle = np.array(middle, np.float64)
        if not (0 < cell < math.inf and 0 < side < math.inf):
            raise MastError(f"a map with cells of {cell} m of a square of {side} m: expected positive numbers")
        if self.middle.shape != (2,) or not np.isfinite(self.middle).all():
            raise MastError(f"the middle of the map is {middle!r}: expected two numbers, metres")
        self.cell = float(cell)
        self.along = max(1, round((side + 2 * BORDER) / cell))  # A
        self.marks = np.zeros((2, self.along, self.along), bool)  # [2, y, x]: worth searching; searched
        self.chosen: int | None = (
            None  # the cell that it goes to since the last instant: y A + x; None: it does not search
        )
        self._at = (np.arange(self.along, dtype=np.float32) + 0.5 - self.along / 2) * np.float32(cell)  # [A] m

    @property
    def searching(self) -> bool:
        """Whether it searches since the last instant."""
        return self.chosen is not None

    @property
    def frame(self) -> int:
        """A number of 32 bits that two robots have in common if their maps have the same cells."""
        return zlib.crc32(struct.pack("<Hddd", self.along, self.cell, *self.middle))

    def covers(self, position: Any) -> bool:
        """Whether a position [2] metres is on the map."""
        return bool((np.abs(self._local(position)) <= self.along * self.cell / 2).all())

    def outside(self, position: Any) -> str:
        """In words, that a position [2] metres is not on the map."""
        (x, y), (east, north), half = position, self.middle, self.along * self.cell / 2
        return (
            f"at ({x:.0f}, {y:.0f}) m and not on its map, which reaches {half:.0f} m to all sides of ({east:.0f}, "
            f"{north:.0f}) m: give --map-middle, and --map-side if the square is larger than that of the policy's world"
        )

    def look(self, position: Any, sights: Any, reach: float = math.inf) -> None:
        """Mark what the robot at a position [2] metres senses: sights [K, 2] metres, relative, the farthest last,
        infinite where there is nothing more to sense. reach: metres beyond which it would sense nothing."""
        here, seen = self._local(position), np.asarray(sights, np.float32)
        for sight in seen:
            self.marks[WORTH] |= self._squared(here + sight) <= LEASH**2
        farthest = min((seen[-1] ** 2).sum(), np.float32(reach) ** 2)
        self.marks[SEARCHED] |= self._squared(here) <= farthest
        x, y = (np.abs(offset) <= self.cell / 2 for offset in self._offsets(here))
        self.marks[SEARCHED] |= y[:, None] & x  # the cell that it is in

    def hear(self, marks: np.ndarray) -> None:
        """Add the marks [2, A, A] of another robot."""
        self.marks |= marks

    def way(self, position: Any, idle: bool, rivals: Sequence[Any] = ()) -> np.ndarray:
        """Where a robot goes that is at a position [2] metres: a unit vector [2] float32; 0 if it is not idle, or
        nothing is left to search. rivals: where those that it hears and that search were at the last instant."""
        here = self._local(position)
        self.chosen = self._cheapest(here, rivals) if idle else None
        if self.chosen is None:
            return np.zeros(2, np.float32)
        way = self._at[[self.chosen % self.along, self.chosen // self.along]] - here
        return way / np.maximum(np.sqrt((way**2).sum()), np.float32(1e-6))

    def _cheapest(self, here: np.ndarray, rivals: Sequence[Any]) -> int | None:
        """The cell that it searches from here; None: nothing is left to search."""
        cost = self._cost(here, self._nearest(here, rivals))
        best = int(cost.argmin())
        return best if cost.flat[best] < math.inf else None

    def _cost(self, here: np.ndarray, rivals: Sequence[np.ndarray]) -> np.ndarray:
        """What it would cost to search each cell, [A, A] metres; infinite where there is nothing to search."""
        cost = distance = np.sqrt(self._squared(here))
        for rival in rivals:
            cost = np.maximum(cost, distance + np.float32(YIELD) * (distance - np.sqrt(self._squared(rival))))
        cost = np.where(self.marks[WORTH] & ~self.marks[SEARCHED], cost, np.float32(np.inf))
        if self.chosen is not None:
            cost.flat[self.chosen] *= np.float32(STAY)
        return cost

    def _nearest(self, here: np.ndarray, rivals: Sequence[Any]) -> list[np.ndarray]:
        places = [self._local(rival) for rival in rivals]
        return sorted(places, key=lambda place: float(((place - here) ** 2).sum()))[:RIVALS]

    def _local(self, position: Any) -> np.ndarray:
        """A position [2] metres of the team's frame, relative to the middle of the map, float32."""
        return (np.asarray(position, np.float64) - self.middle).astype(np.float32)

    def _offsets(self, point: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """From a point [2] to the middles of the map's columns and rows, [A] metres each."""
        return self._at - point[0], self._at - point[1]

    def _squared(self, point: np.ndarray) -> np.ndarray:
        """Squared distances from a point [2] to all cells, [A, A] m^2."""
        x, y = self._offsets(point)
        return x**2 + (y**2)[:, None]
