"""UDP, on this machine's loopback only."""

from __future__ import annotations

import socket
import sys
import time

import numpy as np
import pytest

import teams
from mast_swarm.errors import MastError
from mast_swarm.robot import UDP


def team(count: int) -> list[UDP]:
    addresses = {robot: ("127.0.0.1", port) for robot, port in enumerate(teams.free_ports(count))}
    return [UDP(robot, addresses) for robot in range(count)]


def test_datagrams_arrive_with_their_sender() -> None:
    one, two, three = team(3)
    two.send(b"hello", 0)
    three.send(b"world", 0)
    arrived = []
    while len(arrived) < 2:
        got = one.poll(5.0)
        assert got, "nothing arrived in 5 s"
        arrived += got
    assert sorted(arrived) == [(1, b"hello"), (2, b"world")]
    assert one.poll() == [] and one.poll(0.01) == []
    one.send(b"x", 99)
    one.send(bytes(70_000), 1)
    assert one.unsent == 2
    for port in (one, two, three):
        port.close()
        port.close()
    assert one.poll(1.0) == []
    one.send(b"x", 1)  # lost, as on any network
    assert one.unsent == 3


def test_strangers_are_not_listened_to() -> None:
    (one,) = team(1)
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    stranger.sendto(b"MAST", one._socket.getsockname())
    assert one.poll(5.0) == [] and one.strangers == 1
    stranger.close()
    one.close()


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere robots share a buffer")
def test_who_floods_pushes_out_its_own_datagrams_alone() -> None:
    quiet, flooding, one = team(3)
    for _ in range(20_000):  # far more than the system holds
        flooding.send(bytes(1400), 2)
    quiet.send(b"hello", 2)
    arrived = one.poll(5.0)
    assert (0, b"hello") in arrived and len(arrived) <= 65
    assert flooding.unsent == 0 and 0 < len(one.poll()) <= 64
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for _ in range(200):
        stranger.sendto(bytes(100), one._socket.getsockname())
    quiet.send(b"still there", 2)
    assert (0, b"still there") in one.poll(5.0)
    stranger.close()
    for port in (quiet, flooding, one):
        port.close()


def test_nodes_over_udp() -> None:
    pytest.importorskip("cryptography", reason="signatures need the package cryptography")
    ports, second = team(3), 10**9
    nodes = [teams.node(trust, teams.form(256), now=time.time_ns(), hop=second // 100) for trust in teams.trusts(3)]
    for one in nodes:
        one.control(time.time_ns(), np.full(256, one.name), (0.0, 0.0))
    ends = time.monotonic() + 20
    while time.monotonic() < ends and not all(len(one.robot.known()) == 3 for one in nodes):
        for one, port in zip(nodes, ports, strict=True):
            for peer, data in port.poll(0.002):
                one.on_datagram(peer, data, time.time_ns())
            for to, data in one.due(time.time_ns(), [i for i in (one.name - 1, one.name + 1) if 0 <= i < 3]):
                port.send(data, to)
    assert [len(one.robot.known()) for one in nodes] == [3, 3, 3]
    assert nodes[0].robot.known()[2].message.tolist() == [2.0] * 256
    for port in ports:
        port.close()


def test_mistakes() -> None:
    with pytest.raises(MastError, match="robot 3 has no address of its own"):
        UDP(3, {0: ("127.0.0.1", 1)})
    with pytest.raises(MastError, match="of robot 0 is unknown"):
        UDP(0, {0: ("127.0.0.1", 99_999_999)})
    for given in (
        {0: ("127.0.0.1", 7), 2: ("localhost", 7)},
        {0: ("127.0.0.1", 6), 2: ("127.0.0.1", 7), 1: ("127.0.0.1", 7)},
    ):
        with pytest.raises(MastError, match=r"robots \d and \d are both at 127\.0\.0\.1:7"):
            UDP(0, given)
    (one,) = team(1)
    with pytest.raises(MastError, match="robot 0 cannot listen at 127"):
        UDP(0, {0: one._socket.getsockname()})
    one.close()
    addresses = {robot: ("127.0.0.1", port) for robot, port in enumerate(teams.free_ports(3))}
    two = UDP(0, addresses)
    with pytest.raises(MastError, match="robot 0 cannot listen at 127"):  # with buffers for others too
        UDP(0, addresses)
    two.close()
