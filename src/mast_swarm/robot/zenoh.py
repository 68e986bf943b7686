"""Datagrams over Zenoh (`eclipse-zenoh`), for networks that UDP does not cross: TCP, TLS, QUIC, routers on the way.

Who connects to whom is given by endpoints. Nothing is looked for on the network: multicast and gossip are off.
A datagram from robot 3 to robot 5 of a team is put to `mast/TEAM/5/3`.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from mast_swarm.robot.extras import needed
from mast_swarm.robot.session import open_session

MOST = 1000  # datagrams that wait to be polled; older ones give way


class Zenoh:
    """Robot number `name` of a team (8 bytes).

    listen: endpoints that others may connect to, as "tcp/0.0.0.0:7447"; connect: endpoints of others, or of a router.
    settings: further settings of Zenoh, path -> value, as {"transport/link/tls/root_ca_certificate": "ca.pem"}.
    """

    def __init__(
        self,
        name: int,
        team: bytes,
        *,
        listen: Sequence[str] = (),
        connect: Sequence[str] = (),
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        zenoh = needed("zenoh", "eclipse-zenoh", "the transport Zenoh needs")
        self._session = open_session(f"robot {name}", listen, connect, settings)
        self._root, self._name = f"mast/{team.hex()}", name
        self._options = {"congestion_control": zenoh.CongestionControl.DROP, "express": True}
        self._error = zenoh.ZError
        self.unsent = 0  # datagrams that Zenoh would not take
        self._arrived: deque[tuple[int, bytes]] = deque(maxlen=MOST)
        self._some = threading.Event()
        self._subscriber = self._session.declare_subscriber(f"{self._root}/{name}/*", self._take)

    def _take(self, sample: Any) -> None:
        """Called by a thread of Zenoh's."""
        sender = str(sample.key_expr).rsplit("/", 1)[1]
        if sender.isascii() and sender.isdigit():
            self._arrived.append((int(sender[:10]), sample.payload.to_bytes()))
            self._some.set()

    def send(self, datagram: bytes, to: int) -> None:
        """As in `Transport`."""
        try:
            self._session.put(f"{self._root}/{to}/{self._name}", datagram, **self._options)
        except self._error:
            self.unsent += 1

    def poll(self, timeout: float = 0.0) -> list[tuple[int, bytes]]:
        """As in `Transport`."""
        if timeout > 0:
            self._some.wait(timeout)
        self._some.clear()  # first: what comes from now on is found here or announced again
        return [self._arrived.popleft() for _ in range(len(self._arrived))]

    def close(self) -> None:
        """As in `Transport`."""
        with contextlib.suppress(self._error):
            self._session.close()
        self._arrived.clear()
