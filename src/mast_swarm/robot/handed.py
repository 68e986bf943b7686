"""One robot's map on a network: what it hands to its neighbours and when, and what they say of themselves.

Marks have no stamps: a robot hands on all that it holds, every `again` ticks, to those that hear it. What it has held
for less than `hop` waits for the next time, so that a mark goes one hop at a time, as news does.
`mast_swarm.comms.handed` computes the same for whole teams.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any

import numpy as np

from mast_swarm.robot.survey import Survey, guided, idle

_WAITING = 16  # states of the map that wait to be handed on


class Handed:
    """The map of a robot on a network. Times are ticks.

    hop: how long marks wait before they are handed on; again: from one handing to the next. recent: how long it counts
    what a neighbour has said of itself; None: as long as `again`.
    """

    def __init__(self, survey: Survey, *, hop: int, again: int, recent: int | None = None) -> None:
        self.survey, self.hop, self.again = survey, hop, again
        self.recent = again if recent is None else recent
        self.position = np.full(2, np.nan)  # metres, where it was at the last instant
        self._ready = survey.marks.copy()  # what is handed on
        self._waiting: deque[tuple[int, np.ndarray]] = deque()  # from when on, and the marks
        self._last: int | None = None  # when it last handed them on; None: it has not looked yet
        self._others: dict[int, tuple[int, np.ndarray, bool]] = {}  # robot -> when heard, where, whether it searches

    def searched(
        self,
        now: int,
        position: Any,
        sights: Any,
        command: np.ndarray,
        prediction: np.ndarray,
        reach: float = math.inf,
    ) -> np.ndarray:
        """A control instant: look, and give the command [2] in place of which an idle robot searches.

        prediction: [3]; the rest as in `Survey.look`."""
        if self._last is None:
            self._last = now + self.hop - self.again
        before = self.survey.marks.copy()
        self.survey.look(position, sights, reach)
        if (before != self.survey.marks).any():
            self._wait(now)
        self.position = np.array(position, np.float64)
        way = self.survey.way(self.position, idle(prediction), self.rivals(now))
        return guided(command, prediction, way)

    def hear(self, now: int, other: int, place: np.ndarray, searching: bool, marks: np.ndarray) -> None:
        """Another robot has handed over marks [2, A, A], where it was [2] metres, and whether it searches."""
        self._others[other] = now, place, searching
        if (marks & ~self.survey.marks).any():
            self.survey.hear(marks)
            self._wait(now)

    def rivals(self, now: int) -> list[np.ndarray]:
        """Where those were that search, [2] metres each, as they have said lately."""
        return [place for when, place, searches in self._others.values() if searches and abs(now - when) < self.recent]

    def offer(self, now: int) -> np.ndarray | None:
        """The marks [2, A, A] to hand on now; None: it is not time yet."""
        # A clock that was set back makes nothing wait for much longer than it would have.
        if self._last is None or abs(now - self._last) < self.again:
            return None
        self._last = now
        while self._waiting and not 0 < self._waiting[0][0] - now <= self.hop:
            self._ready = self._waiting.popleft()[1]
        return self._ready

    def drop(self, other: int) -> None:
        """Forget what another robot has said of itself. Its marks stay: nobody knows whose a mark is."""
        self._others.pop(other, None)

    def _wait(self, now: int) -> None:
        if len(self._waiting) == _WAITING:
            self._waiting.pop()
        self._waiting.append((now + self.hop, self.survey.marks.copy()))
