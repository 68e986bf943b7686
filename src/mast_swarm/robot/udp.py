"""Datagrams over UDP, the default: one socket, and an address for each robot of the team."""

from __future__ import annotations

import contextlib
import selectors
import socket
import sys
from collections.abc import Mapping

from mast_swarm.errors import MastError
from mast_swarm.robot.wire import LARGEST

MOST = 1000  # datagrams taken at a time; what the system's buffer cannot hold is lost
SHARE = 64  # of these from one robot
_BUFFER = 1 << 20  # bytes that the system is asked to hold for each
_PARTED = 256  # robots that have a buffer of their own

Address = tuple[str, int]


class UDP:
    """Robot number `name`. addresses: number -> (host, port), its own too; hosts are names or numbers, of IPv4 or IPv6.

    A datagram counts as that of the robot from whose address it comes; from other addresses nothing is taken. The
    address of a sender can be forged: what makes an entry believed is its signature. Each robot's datagrams wait in a
    buffer of their own where the system allows it, so that one that floods pushes out its own alone.
    """

    def __init__(self, name: int, addresses: Mapping[int, Address]) -> None:
        if name not in addresses:
            raise MastError(f"robot {name} has no address of its own: expected one of {sorted(addresses)}")
        family, own = _resolved(name, addresses[name], socket.AF_UNSPEC)
        self._addresses = {robot: _resolved(robot, given, family)[1] for robot, given in addresses.items()}
        self._robots: dict[Address, int] = {}
        for robot, address in self._addresses.items():
            other = name if address == own else self._robots.get(address[:2])
            if other not in (None, robot):
                raise MastError(
                    f"robots {other} and {robot} are both at {address[0]}:{address[1]}: give each its own address"
                )
            if robot != name:
                self._robots[address[:2]] = robot
        self.unsent = 0  # datagrams that the system would not take
        self.strangers = 0  # datagrams from unknown addresses
        self._selector = selectors.DefaultSelector()
        try:
            self._socket = self._bound(family, own)
        except OSError as error:
            self._selector.close()
            host, port = addresses[name]
            raise MastError(
                f"robot {name} cannot listen at {host}:{port}: {error.strerror}; give another address of this machine "
                "(--listen)"
            ) from None
        self._part(family, own)

    def send(self, datagram: bytes, to: int) -> None:
        """As in `Transport`."""
        try:
            self._socket.sendto(datagram, self._addresses[to])
        except (OSError, KeyError):  # no way there, no room, no address: the relay copes with loss
            self.unsent += 1

    def poll(self, timeout: float = 0.0) -> list[tuple[int, bytes]]:
        """As in `Transport`. Of one robot no more is taken at a time than a fair share."""
        if self._socket.fileno() < 0:
            return []
        arrived: list[tuple[int, bytes]] = []
        ready = [key.fileobj for key, _ in self._selector.select(max(0.0, timeout))]
        for one in ready:
            assert isinstance(one, socket.socket)
            for _ in range(max(1, min(SHARE, MOST // len(ready)))):
                try:
                    data, address = one.recvfrom(LARGEST + 1)
                except BlockingIOError:
                    break
                except OSError:  # some systems report here that an earlier datagram found nobody
                    continue
                robot = self._robots.get(address[:2])
                if robot is None:
                    self.strangers += 1
                else:
                    arrived.append((robot, data))
        return arrived

    def close(self) -> None:
        """As in `Transport`."""
        for key in list((self._selector.get_map() or {}).values()):
            assert isinstance(key.fileobj, socket.socket)
            key.fileobj.close()
        self._selector.close()

    def _bound(self, family: int, own: tuple, peer: tuple | None = None) -> socket.socket:
        """A socket at the robot's own address; with a peer: for what comes from there alone."""
        made = socket.socket(family, socket.SOCK_DGRAM)
        try:
            made.setblocking(False)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            if peer is not None:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(own)
            if peer is not None:
                made.connect(peer)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
            self._selector.register(made, selectors.EVENT_READ)
        except OSError:
            made.close()
            raise
        return made

    def _part(self, family: int, own: tuple) -> None:
        """Give each other robot a buffer of its own. The address is shared for this moment only, so that a second
        process cannot have it. Where the system does not play along, all share the first one."""
        if sys.platform != "linux":  # elsewhere shared addresses mean something else
            return
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for address in list(self._robots)[:_PARTED]:
            with contextlib.suppress(OSError):
                self._bound(family, own, self._addresses[self._robots[address]])
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)


def _resolved(robot: int, address: Address, family: int) -> tuple[int, tuple]:
    """The family and the address that the system understands."""
    try:
        host, port = address
        if not 0 < port < 1 << 16:
            raise ValueError(f"port {port} is not from 1 to 65535")
        found = socket.getaddrinfo(host, port, family, socket.SOCK_DGRAM)[0]
    except (OSError, TypeError, ValueError, OverflowError) as error:
        raise MastError(f"the address {address!r} of robot {robot} is unknown: {error}") from None
    return found[0], found[4]
