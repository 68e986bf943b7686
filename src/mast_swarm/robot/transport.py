"""What carries datagrams between robots. Robots are named by their numbers; each transport knows how to reach them."""

from __future__ import annotations

from typing import Protocol


class Transport(Protocol):
    """A robot's access to a network that may lose, delay, repeat, reorder or change datagrams."""

    def send(self, datagram: bytes, to: int) -> None:
        """Hand a datagram over for a robot. Never waits; what cannot be sent is lost, and counted."""

    def poll(self, timeout: float = 0.0) -> list[tuple[int, bytes]]:
        """What has arrived, (robot, datagram); if nothing has, wait for it up to `timeout` seconds. Bounded."""

    def close(self) -> None:
        """Give back what it holds; calling it again does nothing."""
