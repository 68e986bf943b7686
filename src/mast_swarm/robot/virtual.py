"""A network in one process, with a clock that moves only when told, and with faults that a seed decides.

It carries the same bytes as a real one. What happens to a datagram depends on the seed, its sender, its receiver and
how many the sender sent there before: not on what other robots do, nor on the order in which they are asked.
"""

from __future__ import annotations

import heapq
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from mast_swarm.errors import MastError

MOST = 10_000  # datagrams that wait to be polled by one robot; further ones are lost

Lost = Callable[[int, int, int, int], bool]  # sender, receiver, when it was sent, when it would arrive -> is it lost?


@dataclass(frozen=True)
class Faults:
    """What the network does to datagrams. Times are ticks; the rest are probabilities for each datagram."""

    delay: int = 0
    """From sending to arriving."""
    jitter: int = 0
    """On top of that, anything from 0 to this."""
    loss: float = 0.0
    """It never arrives."""
    duplication: float = 0.0
    """It arrives twice, each time with a jitter of its own."""
    reordering: float = 0.0
    """It is held back for `hold` ticks, so that later ones overtake it."""
    hold: int = 0
    """How long such a one is held back."""
    corruption: float = 0.0
    """Some of its bits are turned over, or its end is cut off."""

    def __post_init__(self) -> None:
        for name in ("delay", "jitter", "hold"):
            if not isinstance(getattr(self, name), int) or getattr(self, name) < 0:
                raise MastError(f"{name} is {getattr(self, name)!r} ticks: expected a whole number, 0 or more")
        for name in ("loss", "duplication", "reordering", "corruption"):
            if not 0 <= getattr(self, name) <= 1:
                raise MastError(f"{name} is {getattr(self, name)}: expected a probability from 0 to 1")

    @property
    def certain(self) -> bool:
        """Whether nothing is left to chance."""
        return not (self.jitter or self.loss or self.duplication or self.reordering or self.corruption)


class VirtualNetwork:
    """lost: decides losses in place of the seed, for runs that must lose the same as another.

    now: ticks, moved by `advance`. counts: how many datagrams were sent, delivered, lost, duplicated, corrupted, cut
    (no way between the two), and dropped (nobody polls).
    """

    def __init__(self, faults: Faults | None = None, *, seed: int = 0, now: int = 0, lost: Lost | None = None) -> None:
        self.faults, self.seed, self.now = faults or Faults(), seed, now
        self.counts: Counter[str] = Counter()
        self._lost = lost
        self._boxes: dict[int, deque[tuple[int, bytes]]] = {}
        self._way: list[tuple[int, int, int, int, bytes]] = []  # arrival, sender, number, receiver, bytes
        self._numbers: Counter[tuple[int, int]] = Counter()
        self._groups: list[frozenset[int]] | None = None

    def join(self, robot: int) -> VirtualTransport:
        """A robot's access."""
        self._boxes.setdefault(robot, deque())
        return VirtualTransport(self, robot)

    def leave(self, robot: int) -> None:
        """What is under way to it, and what it has not polled, is lost."""
        self._boxes.pop(robot, None)

    def part(self, *groups: Iterable[int]) -> None:
        """Let datagrams arrive within each group only, from now on; without groups: everywhere again."""
        self._groups = [frozenset(group) for group in groups] or None

    def advance(self, now: int) -> None:
        """Move the clock: what arrives until then, and then too, can be polled."""
        if now < self.now:
            raise MastError(f"the clock stands at {self.now}: it cannot go back to {now}")
        self.now = now
        while self._way and self._way[0][0] <= now:
            _, sender, _, receiver, data = heapq.heappop(self._way)
            box = self._boxes.get(receiver)
            if box is None or not self._connected(sender, receiver):
                self.counts["cut"] += 1
            elif len(box) >= MOST:
                self.counts["dropped"] += 1
            else:
                box.append((sender, data))
                self.counts["delivered"] += 1

    @property
    def next_arrival(self) -> int | None:
        """When the next datagram arrives, ticks; None: none is under way."""
        return self._way[0][0] if self._way else None

    def _send(self, sender: int, receiver: int, data: bytes) -> None:
        faults = self.faults
        self.counts["sent"] += 1
        self._numbers[sender, receiver] += 1
        number = self._numbers[sender, receiver]
        if faults.certain and self._lost is None:
            heapq.heappush(self._way, (self.now + faults.delay, sender, number, receiver, data))
            return
        luck = random.Random(f"{self.seed} {sender} {receiver} {number}")
        # Every number is drawn, whatever is done with it: so one fault does not move the others.
        lost, twice, held, changed = (luck.random() for _ in range(4))
        late, later = (int(luck.random() * (faults.jitter + 1)) for _ in range(2))
        at = self.now + faults.delay + late + (faults.hold if held < faults.reordering else 0)
        again = self.now + faults.delay + later
        if self._lost(sender, receiver, self.now, at) if self._lost is not None else lost < faults.loss:
            self.counts["lost"] += 1
            return
        if changed < faults.corruption:
            self.counts["corrupted"] += 1
            data = _corrupted(data, luck)
        heapq.heappush(self._way, (at, sender, number, receiver, data))
        if twice < faults.duplication:
            self.counts["duplicated"] += 1
            heapq.heappush(self._way, (again, sender, number, receiver, data))

    def _poll(self, robot: int) -> list[tuple[int, bytes]]:
        self.advance(self.now)  # without a delay, what was sent just now
        box = self._boxes.get(robot, deque())
        arrived = list(box)
        box.clear()
        return arrived

    def _connected(self, one: int, other: int) -> bool:
        return self._groups is None or any(one in group and other in group for group in self._groups)


class VirtualTransport:
    """A robot's access to a virtual network."""

    def __init__(self, network: VirtualNetwork, robot: int) -> None:
        self._network, self._robot = network, robot

    def send(self, datagram: bytes, to: int) -> None:
        """As in `Transport`."""
        self._network._send(self._robot, to, bytes(datagram))

    def poll(self, timeout: float = 0.0) -> list[tuple[int, bytes]]:
        """As in `Transport`; never waits, because time moves only when told."""
        return self._network._poll(self._robot)

    def close(self) -> None:
        """As in `Transport`."""
        self._network.leave(self._robot)


def _corrupted(data: bytes, luck: random.Random) -> bytes:
    """The bytes with one to four bits turned over, or cut short."""
    if not data or luck.random() < 0.25:
        return data[: luck.randrange(len(data) + 1)]
    changed = bytearray(data)
    for _ in range(luck.randint(1, 4)):
        changed[luck.randrange(len(changed))] ^= 1 << luck.randrange(8)
    return bytes(changed)
