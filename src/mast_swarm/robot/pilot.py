"""One robot in real time: it senses and acts at its control rate, and tells its neighbours what it knows. No torch.

Control instants are `1 / rate` seconds apart by the monotonic clock, so that they neither drift nor follow a clock that
is set. A deadline is met if the command of an instant reaches the body before the next instant. In between, messages go
in rounds, one every `hop` seconds: in each the robot tells its neighbours what they lack. What it has kept for less
than a quarter of that time waits for the next round, so that news goes one hop per round however robots' clocks lie.
"""

from __future__ import annotations

import contextlib
import copy
import math
import signal
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.robot.apart import keep_apart, sensing_radius
from mast_swarm.robot.body import Body, Sensed
from mast_swarm.robot.exported import Exported
from mast_swarm.robot.guard import Guard
from mast_swarm.robot.handed import Handed
from mast_swarm.robot.link import CONFIRMED
from mast_swarm.robot.node import Counters, Node
from mast_swarm.robot.survey import Survey
from mast_swarm.robot.transport import Transport
from mast_swarm.robot.trust import Team
from mast_swarm.robot.wire import HEADER

SECOND = 10**9  # ticks: stamps are nanoseconds
_AWAKE = 0.05  # seconds that it sleeps at most, so that a signal is noticed
_RENEWS = 1.0  # seconds from one look at the team's file to the next
_SILENT = 10.0  # seconds after which it says that nothing comes from a robot that it talks to, or
_PERIODS = 3  # control periods, whichever is longer
_REMIND = 60.0  # seconds after which it says again that its body senses nothing


@dataclass(frozen=True)
class Pace:
    """When a robot does what. Seconds are real ones."""

    rate: float = 1.0
    """Control instants per second."""
    hop: float = 0.1
    """Seconds from one round of messages to the next: the time of a hop."""
    patience: float = 2.0
    """Seconds that the body may take to answer, and that the robot goes on while the body senses nothing new."""
    speed: float = 1.0
    """Seconds of the mission per second: other than 1 in simulations alone."""
    seed: int = 0
    """Of the mission; policies that explore draw their headings from it."""

    def __post_init__(self) -> None:
        for name in ("rate", "hop", "patience", "speed"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise MastError(f"{name} is {value}: expected a positive number")

    @property
    def node_hop(self) -> int:
        """The setting `hop` of a node that keeps this pace, ticks."""
        return max(1, round(self.hop / 4 * SECOND))

    @property
    def node_again(self) -> int:
        """Its setting `again`: what was not confirmed goes again in the next round."""
        return max(1, round(self.hop * 3 / 4 * SECOND))

    def handed(self, survey: Survey | None) -> Handed | None:
        """Its setting `maps`, for the map of a policy that has one: a map in every round."""
        if survey is None:
            return None
        recent = max(1, round(self.hop * 5 / 4 * SECOND))  # a round, and a quarter for what comes late
        return Handed(survey, hop=self.node_hop, again=self.node_again, recent=recent)


@dataclass(frozen=True)
class Step:
    """What a robot knew and did at one control instant, for logs."""

    time: float
    """Seconds since the mission began."""
    stamp: int
    """Of its own news, nanoseconds since 1970."""
    position: tuple[float, float]
    """Where it was, metres."""
    command: tuple[float, float]
    """Where it goes, m/s."""
    ages: dict[int, float]
    """Of each other robot that it knows, how old the news is: seconds of the mission."""
    took: float
    """Seconds from the instant until the body had the command."""
    met: int
    """Deadlines met since the start."""
    missed: int
    """Deadlines missed since the start."""
    heard: dict[int, int]
    """Datagrams with news or maps that came since the last step, by neighbour."""
    counters: Counters = field(default_factory=Counters)
    """What has passed through the node since the start."""
    searching: bool = False
    """Whether it searches by its map."""


class Pilot:
    """Runs one robot: `run` returns when it is told to stop, and raises a MastError when it has to.

    policy: as `mast export` wrote it. node: made with the pace's `node_hop` and `node_again`, and for a policy that has
    a map with `maps`: `pace.handed(policy.survey())`. peers: the robots that can be reached; of these it talks to those
    that the body names, or to all. safe: metres that its centre keeps from those of others by the safety layer
    (docs/safety.md), for which the body senses `robots`; None: no layer.
    team: is asked once a second for the team if that has changed. on_step: is given a record of each control instant.
    say: is given lines for the person in charge.
    """

    def __init__(
        self,
        body: Body,
        policy: Exported,
        node: Node,
        network: Transport,
        pace: Pace,
        *,
        peers: Collection[int] = (),
        safe: float | None = None,
        team: Callable[[], Team | None] = lambda: None,
        on_step: Callable[[Step], None] | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.policy, self.node, self.network, self.pace = policy, node, network, pace
        self.guard = Guard(body, pace.patience)
        self.peers = tuple(peers)
        self.met = self.missed = 0
        self._on_step, self._team, self._asks = on_step, team, 0.0
        self._start: float | None = None
        self._say = say or (lambda line: print(line, file=sys.stderr, flush=True))
        self._max_speed, self._trail = top_speed(policy), policy.trail()
        if safe is not None and not (math.isfinite(safe) and safe > 0):
            raise MastError(f"robots are to stay {safe} m apart: expected a positive number")
        if (policy.manifest.get("exploration") or {}).get("survey") and node.maps is None:
            raise MastError("the policy has a map of where robots have looked: make its node with maps")
        self._safe, self._longest = safe, self._max_speed * pace.speed / pace.rate  # metres
        self._why: str | None = None
        self._placed = False  # whether it has looked if it is on its map
        self._sensed: Sensed | None = None
        self._last_sensed = math.nan  # when, by the monotonic clock
        self._backlog: deque[tuple[int, bytes]] = deque()
        self._heard: Counter[int] = Counter()
        self._complains = pace.patience  # seconds without a first fix after which it says so, again
        self._since: dict[int, float] = {}  # robots that should hear this one -> when they were last heard, or began to
        self._silent: set[int] = set()  # those of them that it has called silent

    def begins(self, at: float) -> None:
        """Count instants from a moment of the monotonic clock that the team shares; else they begin with `run`."""
        self._start = at

    def stop(self, why: str) -> None:
        """Let `run` end soon; may be called from anywhere."""
        self._why = self._why or why
        self.guard.hurry()

    def run(self) -> None:
        """Act until told to stop; then, or when something fails, stand still and close everything."""
        try:
            with _signals(self.stop):
                self._loop()
        except MastError as error:
            why = f"{self._why}; and {error}" if self._why else str(error)
            raise MastError(f"robot {self.node.name} stops: {why}{self._halted()}") from None
        except Exception as error:
            kind = type(error).__name__
            raise MastError(f"robot {self.node.name} stops: {kind}: {error}{self._halted()}") from error
        self._say(f"robot {self.node.name} stops: {self._why}{self._halted()}")

    def _halted(self) -> str:
        """Stand still, close everything; what there is to add to the reason."""
        taken = self.guard.stop()
        self.network.close()
        self.node.stamps.close()
        return "" if taken else "; and its body has not taken the command to stand still"

    def _loop(self) -> None:
        period, hop = 1 / self.pace.rate, self.pace.hop
        begun = time.monotonic() if self._start is None else self._start
        self._start = begun
        passed = max(0.0, time.monotonic() - begun)  # of a mission that others have begun
        self._last_sensed = begun + passed
        instant, turn = math.ceil(passed / period), math.floor(passed / hop + 0.5)
        while self._why is None:
            now = time.monotonic()
            if now >= begun + instant * period:
                acted = self._act(begun + instant * period)
                now = time.monotonic()
                following = max(instant + 1, math.floor((now - begun) / period))
                if acted:
                    late = now >= begun + (instant + 1) * period
                    self.met += not late
                    self.missed += late + following - instant - 1
                instant = following
            if now >= begun + (turn + 0.5) * hop:
                self._tell()
                self._watch()
                self._renew(now)
                turn = max(turn + 1, math.floor((now - begun) / hop + 0.5))
            self._listen(min(begun + instant * period, begun + (turn + 0.5) * hop))

    def _renew(self, now: float) -> None:
        """Go on with a team that has changed: robots that it revokes are not believed any more."""
        if now < self._asks:
            return
        self._asks = now + _RENEWS
        name, before = self.node.name, self.node.trust.team
        try:
            team = self._team()
            if team is None:
                return
            if team.identity != before.identity:
                raise MastError(f"its file is now that of another team, {team.identity.hex()}")
        except MastError as error:
            self._say(f"robot {name} goes on with the team that it knows: {error}")
            return
        if team.why_not(name) is not None:
            raise MastError("it does not belong to the team any more")
        self.node.believe(self.node.trust.renewed(team))
        gone, come = sorted(team.revoked - before.revoked), sorted(set(team.robots) - set(before.robots))
        told = [f"{words} {', '.join(map(str, some))}" for words, some in (("revoked", gone), ("new", come)) if some]
        self._say(f"robot {name}: the team has changed{': ' * bool(told)}{'; '.join(told)}")

    def _act(self, instant: float) -> bool:
        """Sense, decide, command; whether there was something to act on."""
        sensed, now = self.guard.sense(), time.monotonic()
        if sensed is None:
            self._bear(now - self._last_sensed)
            return False
        self._sensed, self._last_sensed = sensed, now
        assert self._start is not None
        mission = (instant - self._start) * self.pace.speed
        stamp = time.time_ns()
        try:
            prediction = self.node.control(stamp, sensed.features, sensed.position)
            share = self.policy.command(
                prediction,
                landmark=sensed.landmark,
                seed=self.pace.seed,
                robot=self.node.name,
                time=mission,
                away=None if self._trail is None else self._trail.away(sensed.position, mission),
            )
        except Exception as error:
            raise MastError(f"its policy fails: {error}") from error
        if self.node.maps is not None:
            share = self._searched(self.node.maps, stamp, sensed, share, prediction)
        if not np.isfinite(share).all():
            raise MastError("its policy gives a command that is not finite")
        velocity = self._kept_apart(sensed, np.asarray(share, np.float64) * self._max_speed)
        self.guard.command(velocity)
        if self._on_step is not None:
            self._on_step(self._record(mission, stamp, sensed, velocity, time.monotonic() - instant))
        self._heard.clear()
        return True

    def _searched(
        self, maps: Handed, now: int, sensed: Sensed, command: np.ndarray, prediction: np.ndarray
    ) -> np.ndarray:
        """The command [2] in place of which the robot searches if it is left idle."""
        if sensed.sights is None:
            raise MastError(
                "it has a map of where robots have looked (exploration_survey), and its body does not say what it "
                "senses: let it give `sights` in Sensed"
            )
        if not self._placed and not maps.survey.covers(sensed.position):
            self._say(f"robot {self.node.name} is {maps.survey.outside(sensed.position)}")
        self._placed = True
        return maps.searched(now, sensed.position, sensed.sights, command, prediction, sensed.reach)

    def _bear(self, waited: float) -> None:
        """The body senses nothing for so many seconds: before its first fix say so now and then, later stop."""
        if self._sensed is not None:
            if waited > self.pace.patience:
                raise MastError(f"its body has sensed nothing for {waited:.1f} s{self._excuse()}")
        elif waited >= self._complains:
            self._complains = waited + _REMIND
            self._say(
                f"robot {self.node.name}: its body has sensed nothing yet, for {waited:.0f} s{self._excuse()}: it "
                "stands still and says nothing to others until `sense` gives where it is"
            )

    def _excuse(self) -> str:
        """What the body says that it waits for, if it says so."""
        words = self.guard.waits_for()
        return f" ({words})" if words else ""

    def _kept_apart(self, sensed: Sensed, velocity: np.ndarray) -> np.ndarray:
        """The velocity [2] m/s that hits nobody in place of one that might."""
        if self._safe is None:
            return velocity
        if sensed.robots is None:
            reach = sensing_radius(self._safe, self._longest)
            raise MastError(
                f"the safety layer has to know all robots within {reach:g} m, and its body senses none: let it give "
                "`robots` in Sensed, or run it without the layer"
            )
        period = self.pace.speed / self.pace.rate
        length = np.hypot(*velocity)
        step = velocity * (period * min(1.0, self._max_speed / length)) if length else np.zeros(2)
        return keep_apart(np.zeros(2), step, sensed.robots, self._safe, self._longest) / period

    def _record(self, mission: float, stamp: int, sensed: Sensed, velocity: np.ndarray, took: float) -> Step:
        late = took >= 1 / self.pace.rate
        ages = {
            robot: age / SECOND * self.pace.speed
            for robot, age in self.node.ages(stamp).items()
            if robot != self.node.name
        }
        return Step(
            mission,
            stamp,
            (float(sensed.position[0]), float(sensed.position[1])),
            (float(velocity[0]), float(velocity[1])),
            ages,
            took,
            self.met + (not late),
            self.missed + late,
            dict(self._heard),
            copy.deepcopy(self.node.counters),
            self.node.maps is not None and self.node.maps.survey.searching,
        )

    def _tell(self) -> None:
        """A round of messages."""
        if self._sensed is not None:
            for to, datagram in self.node.due(time.time_ns(), self._heard_by()):
                self.network.send(datagram, to)

    def _heard_by(self) -> Collection[int]:
        """The robots that hear this one now."""
        named = None if self._sensed is None else self._sensed.neighbours
        return self.peers if named is None else named

    def _watch(self) -> None:
        """Say of each robot that should be heard when it falls silent, once per silence."""
        now, heard_by, most = time.monotonic(), self._heard_by(), max(_SILENT, _PERIODS / self.pace.rate)
        for peer in set(self._since).difference(heard_by):  # out of reach, and nothing is expected of it
            del self._since[peer]
            self._silent.discard(peer)
        for peer in heard_by:
            if now - self._since.setdefault(peer, now) > most and peer not in self._silent:
                self._silent.add(peer)
                self._say(
                    f"robot {self.node.name}: nothing has come from robot {peer} in {most:g} s: is it running, does "
                    "it know where it is, and is its address right?"
                )

    def _hears(self, peer: int) -> None:
        """Something has come from a robot."""
        now = time.monotonic()
        if peer in self._silent:
            self._silent.remove(peer)
            self._say(f"robot {self.node.name}: robot {peer} is heard again, after {now - self._since[peer]:.0f} s")
        if peer in self._since:
            self._since[peer] = now

    def _listen(self, until: float) -> None:
        """Take what comes, until a moment of the monotonic clock at the latest."""
        if not self._backlog:
            wait = min(until - time.monotonic(), _AWAKE)
            self._backlog.extend(self.network.poll(max(0.0, wait)))
        taken = 0
        while self._backlog:
            peer, datagram = self._backlog.popleft()
            taken += 1
            if taken % CONFIRMED == 0:  # one confirmation speaks of no more than its window
                self._confirm()
            self._hears(peer)
            if len(datagram) > HEADER.size:
                self._heard[peer] += 1
            self.node.on_datagram(peer, datagram, time.time_ns())
            if time.monotonic() >= until:
                break
        self._confirm()

    def _confirm(self) -> None:
        for to, datagram in self.node.confirmations():
            self.network.send(datagram, to)


def top_speed(policy: Exported) -> float:
    """The speed of a command of length 1, m/s."""
    control = policy.manifest.get("control")
    if control is None:
        raise MastError("the manifest does not say how fast a command of length 1 is: export the policy with its task")
    return float(control["max_speed_m_s"])


@contextlib.contextmanager
def _signals(stop: Callable[[str], None]) -> Iterator[None]:
    """SIGTERM and SIGINT call `stop`, where this is the main thread, which alone may say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    chosen = (signal.SIGTERM, signal.SIGINT)
    before = {one: signal.signal(one, lambda number, _: stop(signal.Signals(number).name)) for one in chosen}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
