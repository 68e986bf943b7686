"""What a robot remembers of another that it talks to: which datagrams arrived, and how much the other sends."""

from __future__ import annotations

from collections.abc import Iterable

from mast_swarm.robot.agent import News
from mast_swarm.robot.wire import Header

_SEQUENCES = 1 << 32
_WINDOW = 32  # datagrams before the last that an acknowledgement speaks of
CONFIRMED = 16  # datagrams after which a robot confirms what has come, though more is waiting
_PENDING = 256  # datagrams that wait for an acknowledgement


class Link:
    """Robot number `other`. All of it is bounded: by the window, by the datagrams pending, by the team's origins.

    sequence: where to begin to count datagrams; another at each start of a robot, so that others notice a restart.
    """

    def __init__(self, other: int, burst: float, now: int, sequence: int) -> None:
        self._other = other
        self.told: dict[int, int] = {}  # origin -> the newest stamp of it that the other holds for sure
        self.owes = False  # whether the other waits to hear that its datagrams arrived
        self._sent = sequence
        self._pending: dict[int, list[tuple[int, int]]] = {}  # sequence -> origins and stamps in that datagram
        self._heard, self._before = 0, 0  # the last sequence that came, and bits for those before it
        self._tokens, self._filled = burst, now

    def allows(self, size: int, now: int, per_tick: float, burst: float) -> bool:
        """Whether the other may send so many bytes now: a bucket of `burst` bytes that `per_tick` bytes flow into."""
        self._tokens = min(burst, self._tokens + max(0, now - self._filled) * per_tick)
        self._filled = now
        if self._tokens < size:
            return False
        self._tokens -= size
        return True

    def charge(self, size: float) -> None:
        """Take so many bytes out of the other's bucket, for the trouble that it has made."""
        self._tokens -= size

    def header(self, sender: int, news: Iterable[News]) -> Header:
        """The header of the next datagram to the other, which carries this news."""
        self._sent = self._sent % (_SEQUENCES - 1) + 1
        carried = [(one.origin, one.stamp) for one in news]
        if carried:
            self._pending[self._sent] = carried
            if len(self._pending) > _PENDING:
                del self._pending[next(iter(self._pending))]
        self.owes = False
        return Header(sender, self._sent, self._heard, self._before)

    def lacks(self, news: Iterable[News]) -> list[News]:
        """Of some news that which the other may not have."""
        return [one for one in news if one.origin != self._other and self.told.get(one.origin, -1) < one.stamp]

    def holds(self, origin: int, stamp: int) -> None:
        """The other has this news, or newer."""
        self.told[origin] = max(stamp, self.told.get(origin, -1))

    def forget(self) -> None:
        """Count on nothing that the other has confirmed, or will confirm of what was sent until now."""
        self.told.clear()
        self._pending.clear()

    def arrived(self, header: Header, carries: bool) -> None:
        """A datagram came: remember that, and what it says of ours. carries: whether there is news in it."""
        steps = header.sequence - self._heard
        if self._heard == 0 or abs(steps) > _WINDOW:
            if self._heard:  # the other began anew and remembers nothing
                self.forget()
            self._heard, self._before = header.sequence, 0
        elif steps > 0:
            self._before = ((self._before << 1 | 1) << (steps - 1)) & ((1 << _WINDOW) - 1)
            self._heard = header.sequence
        elif steps < 0:
            self._before |= 1 << (-steps - 1)
        self.owes = self.owes or carries
        last, before = header.acknowledged, header.before << 1 | 1  # bit k: it has the sequence `last - k`
        if last:
            for sequence in [one for one in self._pending if 0 <= last - one <= _WINDOW and before >> last - one & 1]:
                for origin, stamp in self._pending.pop(sequence):
                    self.holds(origin, stamp)
