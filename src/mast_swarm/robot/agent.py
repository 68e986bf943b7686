"""One robot of Algorithm 1: what it holds, what it hears, what it passes on, and how it decides.

This is the specification of the relay. `mast_swarm.comms.Relay` computes the same for whole teams at once, and tests
hold the two equal.

The rule: what a robot keeps at time t it passes on at t + hop, to all that hear it then, and again every `hop` after
that, for as long as it is the newest that the robot holds of that origin. News that is no newer than what the robot
holds is not kept. So a newer stamp never stops an older one that arrived first and waits for its turn.

Times are whole numbers of a tick that all robots share, so that no two moments are ever confused by rounding:
nanoseconds on hardware; in a simulation the largest tick that divides both the control period and the time of a hop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mast_swarm.errors import MastError


class News(NamedTuple):
    """What one robot said at one time. Its content never changes on the way."""

    origin: int  # who said it
    stamp: int  # when, ticks
    position: np.ndarray  # where, [2] float64 metres
    message: np.ndarray  # what, [d_msg]


@dataclass
class _Held:
    news: News
    due: int  # when it is passed on next, ticks


class Robot:
    """Robot number `name`.

    perceive: what the robot senses -> its message [d_msg].
    policy: all that it holds, the newest news of each origin with its own first -> its command.
    hop: ticks from when news is kept until it is passed on (tau); 0: at once, and only news of this moment counts.
    again: ticks until the same news is passed on again; None: as many as a hop.
    relay_radius: news from farther than this, metres from where the robot is, is neither kept nor passed on.
    max_age: news older than this, ticks, is neither kept nor passed on.
    most: news of one origin that are held at a time, the newest; None: as many as wait for their hop.

    Where the network itself takes part of the time of a hop, `hop` is the rest of it and `again` the whole.
    """

    def __init__(
        self,
        name: int,
        perceive: Callable[[Any], np.ndarray],
        policy: Callable[[list[News]], Any],
        *,
        hop: int,
        again: int | None = None,
        relay_radius: float | None = None,
        max_age: int | None = None,
        most: int | None = None,
    ) -> None:
        if not isinstance(hop, int) or hop < 0:
            raise MastError(f"hop is {hop!r} ticks: expected a whole number, 0 or more")
        if again is not None and (not isinstance(again, int) or again < hop):
            raise MastError(f"again is {again!r} ticks: expected a whole number, and no less than a hop of {hop}")
        self.name, self.perceive, self.policy = name, perceive, policy
        self.hop, self.again, self.relay_radius, self.most = hop, again or hop, relay_radius, most
        self.max_age = 0 if hop == 0 else max_age
        self.position = np.full(2, np.nan)  # metres, where it was when it last sensed
        self._held: dict[int, list[_Held]] = {}  # by origin: the oldest first, which is also due first

    def sense(self, now: int, features: Any, position: Any) -> None:
        """Make the robot's own news of this moment; forget what is now too old, or too far from `position` (metres)."""
        position = np.array(position, dtype=np.float64)
        self.say(now, News(self.name, now, position, self.perceive(features)))

    def say(self, now: int, news: News) -> None:
        """Hold own news, made elsewhere; its position is where the robot is. Forget what is now too old or too far."""
        self.position = news.position
        self._keep(now, news)
        self._forget(now)

    def hear(self, now: int, news: Iterable[News]) -> bool:
        """Keep what is newer than what the robot holds of the same origin; whether there was any."""
        kept = [self._keep(now, one) for one in news if self._allowed(now, one)]
        return any(kept)

    def wants(self, now: int, news: News) -> bool:
        """Whether it would keep this news."""
        held = self._held.get(news.origin)
        return (not held or held[-1].news.stamp < news.stamp) and self._allowed(now, news)

    def drop(self, origin: int) -> None:
        """Forget all that an origin has said."""
        self._held.pop(origin, None)

    def offer(self, now: int) -> list[News]:
        """What is passed on now: of each origin the newest that is due."""
        self._forget(now)
        offered = []
        for held in self._held.values():
            due = [one for one in held if one.due <= now]
            waiting = held[len(due) :]
            if due:
                offered.append(due[-1].news)
                due[-1].due = now + self.again
                held[:] = waiting or due[-1:]  # what has been passed on stays only if it is the newest
        return offered

    def known(self) -> list[News]:
        """The newest news of each origin, the robot's own first."""
        origins = sorted(self._held, key=lambda origin: (origin != self.name, origin))
        return [self._held[origin][-1].news for origin in origins]

    def decide(self) -> Any:
        """The robot's own command, from all that it holds."""
        if self.name not in self._held:
            raise MastError(f"robot {self.name} decides before it has sensed: call sense first")
        return self.policy(self.known())

    def _keep(self, now: int, news: News) -> bool:
        held = self._held.get(news.origin, [])
        if held and held[-1].news.stamp >= news.stamp:
            return False
        due = now + self.hop
        # An older one that is due no sooner has nothing left to tell anybody.
        kept = [one for one in held if one.due < due] + [_Held(news, due)]
        self._held[news.origin] = kept if self.most is None else kept[-self.most :]
        return True

    def _allowed(self, now: int, news: News) -> bool:
        if self.max_age is not None and now - news.stamp > self.max_age:
            return False
        if self.relay_radius is None:
            return True
        x, y = news.position - self.position
        return not x * x + y * y > self.relay_radius * self.relay_radius

    def _forget(self, now: int) -> None:
        if self.max_age is None and self.relay_radius is None:
            return
        for origin, held in list(self._held.items()):
            held[:] = [one for one in held if self._allowed(now, one.news)]
            if not held:
                del self._held[origin]
