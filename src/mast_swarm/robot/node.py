"""One robot on a network: the robot of Algorithm 1, what its datagrams look like, and whom it believes.

A node does no input or output and has no clock of its own. Whoever runs it hands it what arrives (`on_datagram`), lets
it decide (`control`) and sends what it wants sent (`due`). So the same node runs over UDP, over Zenoh, and in a
simulation with a virtual clock. Times are whole ticks, nanoseconds on hardware.

What others send can neither stop a node nor make it grow: a datagram is used or refused and counted, and everything
that is remembered belongs to a robot of the team.
"""

from __future__ import annotations

import logging
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.robot.agent import News, Robot
from mast_swarm.robot.handed import Handed
from mast_swarm.robot.link import Link
from mast_swarm.robot.stamps import Stamps
from mast_swarm.robot.trust import Trust
from mast_swarm.robot.wire import Entry, Format, MapEntry, model_of

REASONS = {
    "unknown sender": "the datagram comes from no robot of the team",
    "revoked": "its sender, or the origin of the entry, was taken out of the team",
    "oversized": "the datagram is larger than agreed",
    "rate limited": "its sender has sent too much lately",
    "bad magic": "the datagram is something else",
    "truncated": "the datagram ends too early",
    "other version": "it is written in another version of the format",
    "other team": "it belongs to another team",
    "other model": "its sender runs other weights",
    "malformed": "a field holds what no robot writes",
    "own origin": "the entry is what this robot has said itself",
    "unknown origin": "its origin is not in the team file",
    "duplicate": "the entry is held already: the usual case where news comes over several ways",
    "old stamp": "the origin has said something newer, or it was said before this robot started",
    "clock skew": "it was said in what is the future here",
    "out of reach": "it is older or from farther away than this robot keeps",
    "other map": "it has other cells than this robot's map, or this robot has none",
    "bad signature": "its origin has not signed it",
}
_WAITING = 64  # news of one origin that wait to be passed on
_REPEAT = 10  # control instants after which all that is held is told to all again, whatever they have confirmed


@dataclass(frozen=True)
class Limits:
    """What a node puts up with."""

    skew: int = 5 * 10**9
    """Ticks that the stamps of others may be ahead of this robot's clock."""
    bytes_per_second: float = 1_000_000.0
    """Bytes per second that one other robot may send, on average."""
    burst: float = 1_000_000.0
    """Bytes that it may send at once."""
    bad_signature: float = 20_000.0
    """Bytes that an entry counts for which its origin has not signed: to find that out is the dearest of all."""
    second: int = 10**9
    """Ticks in a second."""

    def __post_init__(self) -> None:
        if self.skew < 0 or min(self.bytes_per_second, self.burst, self.second) <= 0 or self.bad_signature < 0:
            raise MastError(f"{self}: expected positive numbers, and a skew of 0 or more")


@dataclass
class Counters:
    """What has passed through a node since it started."""

    datagrams_in: int = 0
    datagrams_out: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    entries_in: int = 0  # read, good or not
    entries_out: int = 0
    entries_kept: int = 0  # new, verified, held
    maps_in: int = 0  # parts of maps that were read, good or not
    maps_out: int = 0
    maps_kept: int = 0  # whose marks were added
    verified: int = 0  # signatures checked, good or bad
    refused: Counter[str] = field(default_factory=Counter)  # by reason


class Node:
    """Robot number `trust.robot` of a team.

    perceive: what it senses -> its message [width]. policy: the newest news of each origin, its own first -> a command.
    form: the team's wire format. now: when it starts, ticks: what was said earlier is refused.
    hop: ticks that news waits before it is passed on, 1 or more; again: ticks until it is passed on again to those that
    have not confirmed it. The network's own time comes on top of `hop`.
    relay_radius, max_age: as in `Robot`, metres and ticks. stamps: where own stamps are remembered.
    maps: the robot's map where its policy has one, which the node hands on; whoever runs the node lets it search.
    say: is given a line for the person in charge, once for each cause and robot.
    """

    def __init__(
        self,
        trust: Trust,
        form: Format,
        perceive: Callable[[Any], np.ndarray],
        policy: Callable[[list[News]], Any],
        *,
        now: int,
        hop: int,
        again: int | None = None,
        relay_radius: float | None = None,
        max_age: int | None = None,
        limits: Limits | None = None,
        stamps: Stamps | None = None,
        maps: Handed | None = None,
        say: Callable[[str], None] | None = None,
    ) -> None:
        if trust.team.identity != form.team:
            raise MastError(f"the wire format is that of team {form.team.hex()}: expected {trust.team.identity.hex()}")
        if not isinstance(hop, int) or hop < 1:
            raise MastError(f"hop is {hop!r} ticks: expected a whole number, 1 or more")
        self.trust, self.form, self.limits = trust, form, limits or Limits()
        self.stamps = stamps or Stamps(None)
        if self.stamps.file is not None and self.stamps.ahead >= self.limits.skew:
            raise MastError(
                f"stamps are reserved {self.stamps.ahead} ticks ahead: expected less than the skew that others allow, "
                f"{self.limits.skew}, or they refuse this robot after a crash"
            )
        if maps is not None:
            form.map_rows(maps.survey.along)  # whether one fits
        self.perceive, self.maps = perceive, maps
        rules: dict[str, Any] = {"hop": hop, "again": again, "relay_radius": relay_radius, "max_age": max_age}
        self.robot = Robot(trust.robot, perceive, policy, most=_WAITING, **rules)
        self.counters = Counters()
        self._say = say or logging.getLogger("mast_swarm.robot").warning
        self._said: set[tuple[str, int]] = set()
        self._links: dict[int, Link] = {}
        self._newest: dict[int, int] = {}  # origin -> the newest stamp that was ever kept: none before it is used again
        self._handed: dict[int, tuple[int, set[int]]] = {}  # robot -> stamp of its map's newest parts, and their rows
        self._oldest = now - self.limits.skew
        self._controls = 0
        self._sequence = zlib.crc32(f"{self.name} {now}".encode())

    @property
    def name(self) -> int:
        """The robot's number."""
        return self.trust.robot

    def control(self, now: int, features: Any, position: Any) -> Any:
        """Sense and decide: the robot's command from its own news of this moment and all that has reached it.

        position: [2] metres."""
        place = np.array(position, dtype=np.float64)
        message = self.form.rounded(self.perceive(features))
        stamp = self.stamps.next(now)
        if self.stamps.failed:
            self._tell("stamps", self.name, self.stamps.failed)
        if stamp - now > self.limits.skew:
            ahead = (stamp - now) / self.limits.second
            self._tell(
                "ahead",
                self.name,
                f"the stamps of robot {self.name} are {ahead:.0f} s ahead of its clock, which was wrong before or is "
                "wrong now: others refuse its news until the clock has caught up",
            )
        body = self.form.body(self.name, stamp, place, message)
        entry = self.form.entry(body, self.trust.sign(self.form.signed(body)))
        self._newest[self.name] = stamp
        self.robot.say(now, entry)
        self._controls += 1
        if self.robot.relay_radius is not None or self._controls % _REPEAT == 0:
            # Who moves may want what it did not keep before; and what was confirmed may have been forgotten since.
            for link in self._links.values():
                link.forget()
        return self.robot.decide()

    def due(self, now: int, neighbours: Collection[int]) -> list[tuple[int, bytes]]:
        """What is to be sent now, and to whom: (robot, datagram). neighbours: the robots that hear this one now.

        Call it after `control`, after `on_datagram`, and whenever time has passed."""
        offered = self.robot.offer(now)
        maps = self._map(now) if neighbours else []
        out: list[tuple[int, bytes]] = []
        for peer in neighbours:
            link = self._link(peer, now)
            if link is not None:
                for batch in self.form.batches([*_entries(link.lacks(offered)), *maps]):
                    news = _entries(batch)
                    out.append((peer, self.form.datagram(link.header(self.name, news), batch)))
                    self.counters.entries_out += len(news)
                    self.counters.maps_out += len(batch) - len(news)
        for peer, link in self._links.items():
            if peer not in neighbours:
                link.forget()  # whoever comes back is told everything
        return self._counted(out) + self.confirmations()

    def _map(self, now: int) -> list[MapEntry]:
        """The robot's map, if it is time to hand it on."""
        marks = None if self.maps is None else self.maps.offer(now)
        if self.maps is None or marks is None:
            return []
        survey, stamp = self.maps.survey, self.stamps.next(now)
        bodies = self.form.map_bodies(self.name, stamp, self.maps.position, survey.searching, survey.frame, marks)
        return [self.form.map_entry(body, self.trust.sign(self.form.signed(body))) for body in bodies]

    def confirmations(self) -> list[tuple[int, bytes]]:
        """Datagrams that tell others what has come from them, and nothing else. `due` gives them too."""
        owed = [(peer, link) for peer, link in self._links.items() if link.owes]
        return self._counted([(peer, self.form.datagram(link.header(self.name, ()), ())) for peer, link in owed])

    def _counted(self, out: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
        self.counters.datagrams_out += len(out)
        self.counters.bytes_out += sum(len(data) for _, data in out)
        return out

    def on_datagram(self, peer: int, data: bytes, now: int) -> None:
        """Use what has arrived from a robot, or refuse it and count why. Never raises, whatever the bytes are."""
        self.counters.datagrams_in += 1
        self.counters.bytes_in += len(data)
        link = self._link(peer, now)
        if link is None:
            self._refuse("revoked" if self.trust.why_not(peer) == "revoked" else "unknown sender", peer)
            return
        if len(data) > self.form.size:
            self._refuse("oversized", peer)
            return
        limits = self.limits
        if not link.allows(len(data), now, limits.bytes_per_second / limits.second, limits.burst):
            self._refuse("rate limited", peer)
            return
        header, entries, maps, refused = self.form.read(data)
        for reason in refused:
            self._refuse(reason, peer, data)
        if header is None:
            return
        if header.sender != peer:
            self._refuse("malformed", peer)
            return
        self.counters.entries_in += len(entries)
        self.counters.maps_in += len(maps)
        damaged = bool(refused)
        everything: list[Entry | MapEntry] = [*entries, *maps]
        for entry in everything:
            why = self._hear(link, entry, now) if isinstance(entry, Entry) else self._hear_map(peer, entry, now)
            if why is not None:
                self._refuse(why, peer if why == "bad signature" else entry.origin)
                if why == "bad signature":
                    damaged = True
                    link.charge(limits.bad_signature)
        if not damaged:  # else it is not confirmed, and comes again
            link.arrived(header, carries=bool(entries))

    def ages(self, now: int) -> dict[int, int]:
        """How old the news of each origin is, ticks."""
        return {news.origin: now - news.stamp for news in self.robot.known()}

    def believe(self, trust: Trust) -> None:
        """Go on with a new team file; what robots that it revokes have said is forgotten."""
        if (trust.robot, trust.team.identity) != (self.name, self.form.team):
            raise MastError(f"robot {self.name} of team {self.form.team.hex()} cannot become another one")
        self.trust = trust
        for origin in [*self._links, *self._newest]:
            if trust.why_not(origin) is not None:
                self._links.pop(origin, None)
                self.robot.drop(origin)  # its newest stamp is remembered: nothing old counts should it come back
                if self.maps is not None:
                    self.maps.drop(origin)

    def _hear(self, link: Link, entry: Entry, now: int) -> str | None:
        """Keep an entry if it is new, wanted and signed; else why not. What costs little is looked at first."""
        origin, stamp = entry.origin, entry.stamp
        newest = self._newest.get(origin, -1)
        if origin == self.name:
            if stamp <= newest:
                link.holds(origin, stamp)
            elif stamp > self._oldest and self._signed(entry):
                self._tell("twin", origin, f"something else signs as robot {origin}: its key is in use twice")
            return "own origin"
        why = self.trust.why_not(origin)
        if why is not None:
            return why
        if stamp < max(newest, self._oldest):
            return "old stamp"
        if stamp > now + self.limits.skew:
            return "clock skew"
        if not self.robot.wants(now, entry):
            if stamp > newest:
                return "out of reach"
            link.holds(origin, stamp)
            return "duplicate"
        if not self._signed(entry):
            return "bad signature"
        self.robot.hear(now, [entry])
        self._newest[origin] = stamp
        link.holds(origin, stamp)
        self.counters.entries_kept += 1
        return None

    def _hear_map(self, peer: int, entry: MapEntry, now: int) -> str | None:
        """Add the marks of a map that its own robot hands over, signed; else why not."""
        origin, stamp = entry.origin, entry.stamp
        newest, rows = self._handed.get(origin, (-1, set()))
        if origin != peer:
            return "malformed"
        if self.maps is None or entry.frame != self.maps.survey.frame:
            return "other map"
        if stamp < max(newest, self._oldest):
            return "old stamp"
        if stamp > now + self.limits.skew:
            return "clock skew"
        if stamp == newest and entry.first in rows:
            return "duplicate"
        marks = entry.marks(self.maps.survey.along)
        if marks is None:
            return "malformed"
        if not self._signed(entry):
            return "bad signature"
        self._handed[origin] = stamp, {entry.first} | (rows if stamp == newest else set())
        self.maps.hear(now, origin, entry.position, entry.searching, marks)
        self.counters.maps_kept += 1
        return None

    def _signed(self, entry: Entry | MapEntry) -> bool:
        self.counters.verified += 1
        return self.trust.verify(entry.origin, self.form.signed(entry.body), entry.signature)

    def _link(self, peer: int, now: int) -> Link | None:
        """What is remembered of another robot of the team; None: there is none of that number."""
        if peer == self.name or self.trust.why_not(peer) is not None:
            return None
        if peer not in self._links:
            self._links[peer] = Link(peer, self.limits.burst, now, self._sequence)
        return self._links[peer]

    def _refuse(self, reason: str, robot: int, data: bytes = b"") -> None:
        self.counters.refused[reason] += 1
        if reason == "other model":
            theirs, ours = model_of(data).hex(), self.form.model.hex()
            line = f"robot {robot} runs other weights ({theirs}, here {ours}) and is not heard: give all the same model"
        elif reason == "other version":
            line = f"robot {robot} speaks another version of the wire format and is not heard: use one release for all"
        elif reason == "other map":
            line = (
                f"the map of robot {robot} is not used: {REASONS[reason]}; give all the same policy, --map-side and "
                "--map-middle"
            )
        elif reason == "clock skew":
            skew = self.limits.skew / self.limits.second
            line = f"the clock of robot {robot} is more than {skew:g} s ahead of the one here: set it"
        elif reason == "bad signature":
            line = (
                f"robot {robot} has sent an entry that its origin has not signed: was it changed on the way, or forged?"
            )
        elif reason in ("other team", "rate limited", "revoked"):
            line = f"robot {robot} is not heard: {reason}, {REASONS[reason]}"
        else:
            return
        if self.trust.why_not(robot) != "unknown origin":  # of strangers there is no end
            self._tell(reason, robot, line)

    def _tell(self, cause: str, robot: int, line: str) -> None:
        if (cause, robot) not in self._said:
            self._said.add((cause, robot))
            self._say(line)


def _entries(news: Iterable[News | MapEntry]) -> list[Entry]:
    return [one for one in news if isinstance(one, Entry)]
