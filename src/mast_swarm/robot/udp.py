"""Datagrams over UDP, the default: one socket, and an address for each robot of the team."""

from __future__ import annotations

import select
import socket
from collections.abc import Mapping

from mast_swarm.errors import MastError
from mast_swarm.robot.wire import LARGEST

MOST = 1000  # datagrams taken at a time; what the system's buffer cannot hold is lost
_BUFFER = 1 << 20  # bytes that the system is asked to hold

Address = tuple[str, int]


class UDP:
    """Robot number `name`. addresses: number -> (host, port), its own too; hosts are names or numbers, of IPv4 or IPv6.

    A datagram counts as that of the robot from whose address it comes; from other addresses nothing is taken. The
    address of a sender can be forged: what makes an entry believed is its signature.
    """

    def __init__(self, name: int, addresses: Mapping[int, Address]) -> None:
        if name not in addresses:
            raise MastError(f"robot {name} has no address of its own: expected one of {sorted(addresses)}")
        family, own = _resolved(name, addresses[name], socket.AF_UNSPEC)
        self._addresses = {robot: _resolved(robot, given, family)[1] for robot, given in addresses.items()}
        self._robots = {address[:2]: robot for robot, address in self._addresses.items() if robot != name}
        self.unsent = 0  # datagrams that the system would not take
        self.strangers = 0  # datagrams from unknown addresses
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._socket.bind(own)
        except OSError as error:
            self._socket.close()
            host, port = addresses[name]
            raise MastError(f"robot {name} cannot listen at {host}:{port}: {error.strerror}") from None

    def send(self, datagram: bytes, to: int) -> None:
        """As in `Transport`."""
        try:
            self._socket.sendto(datagram, self._addresses[to])
        except (OSError, KeyError):  # no way there, no room, no address: the relay copes with loss
            self.unsent += 1

    def poll(self, timeout: float = 0.0) -> list[tuple[int, bytes]]:
        """As in `Transport`."""
        if self._socket.fileno() < 0:
            return []
        if timeout > 0:
            select.select([self._socket], [], [], timeout)
        arrived = []
        for _ in range(MOST):
            try:
                data, address = self._socket.recvfrom(LARGEST + 1)
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
        self._socket.close()


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
