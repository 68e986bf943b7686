"""Zenoh, two peers on loopback that are told where to meet."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest

import teams
from mast_swarm.errors import MastError
from mast_swarm.robot import Zenoh

pytest.importorskip("zenoh", reason="the transport Zenoh needs the package eclipse-zenoh")


def free_endpoint() -> str:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return f"tcp/127.0.0.1:{one.getsockname()[1]}"


def test_two_nodes_meet_at_an_endpoint() -> None:
    pytest.importorskip("cryptography", reason="signatures need the package cryptography")
    endpoint, second = free_endpoint(), 10**9
    ports = [Zenoh(0, teams.TEAM, listen=[endpoint]), Zenoh(1, teams.TEAM, connect=[endpoint])]
    nodes = [teams.node(trust, teams.form(256), now=time.time_ns(), hop=second // 50) for trust in teams.trusts(2)]
    for one in nodes:
        one.control(time.time_ns(), np.full(256, one.name), (0.0, 0.0))
    ends = time.monotonic() + 30
    while time.monotonic() < ends and not all(len(one.robot.known()) == 2 for one in nodes):
        for one, port in zip(nodes, ports, strict=True):
            for peer, data in port.poll(0.005):
                assert peer == 1 - one.name
                one.on_datagram(peer, data, time.time_ns())
            for to, data in one.due(time.time_ns(), [1 - one.name]):
                port.send(data, to)
    assert [len(one.robot.known()) for one in nodes] == [2, 2]
    assert nodes[0].robot.known()[1].message.tolist() == [1.0] * 256
    for port in ports:
        port.close()
        port.close()
    ports[0].send(b"x", 1)  # lost, as on any network
    assert ports[0].unsent == 1 and ports[0].poll() == []


def test_a_robot_that_starts_before_the_one_it_connects_to_waits_for_it() -> None:
    endpoint = free_endpoint()
    early = Zenoh(1, teams.TEAM, connect=[endpoint])
    late = Zenoh(0, teams.TEAM, listen=[endpoint])
    ends, arrived = time.monotonic() + 30, []
    while time.monotonic() < ends and not arrived:
        early.send(b"hello", 0)
        arrived = late.poll(0.2)
    assert arrived[0] == (1, b"hello")
    early.close()
    late.close()


def test_mistakes() -> None:
    with pytest.raises(MastError, match="robot 0 has no endpoints"):
        Zenoh(0, teams.TEAM)
    with pytest.raises(MastError, match="robot 0 cannot open Zenoh"):
        Zenoh(0, teams.TEAM, listen=["nonsense"])
