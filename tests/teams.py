"""Teams of nodes for tests: keys in memory, nodes that say what they are told, and a network that runs them in step."""

from __future__ import annotations

import functools
import socket
import warnings
from collections.abc import Callable, Collection, Iterable
from typing import Any

import numpy as np

from mast_swarm.robot import Format, News, Node, Team, Trust, VirtualNetwork

TEAM, MODEL = b"team-of8", b"model-08"


@functools.cache
def key(robot: int, secret: int = 0) -> Any:
    """A private key that is the same every time."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(bytes([robot % 256, robot // 256, secret, *range(29)]))


def team(robots: int, revoked: Iterable[int] = ()) -> Team:
    keys = {i: key(i).public_key().public_bytes_raw() for i in range(robots)}
    return Team(TEAM, keys, frozenset(revoked))


def trusts(robots: int, signed: bool = True) -> list[Trust]:
    """What each robot of a team signs with."""
    if signed:
        return [Trust(team(robots), i, key(i)) for i in range(robots)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [Trust.unsigned(TEAM, i, range(robots)) for i in range(robots)]


def form(width: int = 4, **fields: Any) -> Format:
    return Format(TEAM, MODEL, width, **fields)


def stamps(known: list[News]) -> dict[int, int]:
    return {news.origin: news.stamp for news in known}


def node(trust: Trust, wire: Format | None = None, **rules: Any) -> Node:
    """A node that says what it senses; its command is what it knows, {origin: stamp}."""
    given: dict[str, Any] = {"now": 0, "hop": 10, "say": lambda line: None, **rules}
    perceive = given.pop("perceive", lambda seen: np.asarray(seen, dtype=np.float32))
    policy = given.pop("policy", stamps)
    return Node(trust, wire or form(), perceive, policy, **given)


def carry(nodes: list[Node], network: VirtualNetwork, now: int, hearers: Callable[[int], Collection[int]]) -> None:
    """One moment: all send what is due, hear what arrives, and confirm it. hearers: who hears a robot."""
    network.advance(now)
    ports = [network.join(one.name) for one in nodes]
    for _ in range(2):  # what is due; then what confirms it
        for one, port in zip(nodes, ports, strict=True):
            for to, datagram in one.due(now, hearers(one.name)):
                port.send(datagram, to)
        for one, port in zip(nodes, ports, strict=True):
            for peer, datagram in port.poll():
                one.on_datagram(peer, datagram, now)


def free_ports(count: int) -> list[int]:
    """Ports that nobody uses now."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
