"""The virtual network: the same seed gives the same run, and each fault does what its name says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import teams
from mast_swarm.errors import MastError
from mast_swarm.robot import Faults, VirtualNetwork

TROUBLE = Faults(delay=3, jitter=9, loss=0.1, duplication=0.2, reordering=0.2, hold=15, corruption=0.2)


def delivered(faults: Faults, count: int = 2000, **given: Any) -> tuple[list[tuple[int, int]], VirtualNetwork]:
    """Datagrams 0, 1, 2, ... sent one per tick from robot 0 to 1: (tick of arrival, number), -1 for changed ones."""
    network = VirtualNetwork(faults, **given)
    sender, receiver = network.join(0), network.join(1)
    arrived = []
    for now in range(count + 1000):
        network.advance(now)
        for peer, data in receiver.poll():
            assert peer == 0
            good = len(data) == 40 and data == data[:4] * 10
            arrived.append((now, int.from_bytes(data[:4], "little") if good else -1))
        if now < count:
            sender.send(now.to_bytes(4, "little") * 10, 1)
    return arrived, network


def test_the_same_seed_gives_the_same_run() -> None:
    runs = [delivered(TROUBLE, seed=seed)[0] for seed in (1, 1, 2)]
    assert runs[0] == runs[1] != runs[2]


def test_what_befalls_a_datagram_does_not_depend_on_others() -> None:
    def run(order: list[int]) -> list[list[bytes]]:
        network = VirtualNetwork(TROUBLE, seed=5)
        ports = {robot: network.join(robot) for robot in range(4)}
        for _ in range(50):
            for robot in order:
                ports[robot].send(bytes([robot]) * 30, (robot + 1) % 4)
        network.advance(1000)
        return [ports[robot].poll() for robot in range(4)]

    assert run([0, 1, 2, 3]) == run([3, 1, 0, 2])


def test_delay_and_order() -> None:
    arrived, network = delivered(Faults(delay=7))
    assert arrived == [(n + 7, n) for n in range(2000)]
    assert network.counts == {"sent": 2000, "delivered": 2000} and network.next_arrival is None
    quick, _ = delivered(Faults())
    assert [number for _, number in quick] == list(range(2000))


def test_jitter_and_reordering_change_the_order() -> None:
    arrived, _ = delivered(Faults(delay=5, jitter=10))
    waits = [now - number for now, number in arrived]
    assert set(waits) == set(range(5, 16)) and sorted(n for _, n in arrived) == list(range(2000))
    assert [n for _, n in arrived] != sorted(n for _, n in arrived)
    held, _ = delivered(Faults(reordering=0.1, hold=20))
    late = [now - number for now, number in held if now - number >= 20]
    assert 140 < len(late) < 260


def test_loss_duplication_and_corruption_are_as_often_as_asked() -> None:
    arrived, network = delivered(Faults(loss=0.3))
    assert 0.25 < network.counts["lost"] / 2000 < 0.35 and len(arrived) == 2000 - network.counts["lost"]
    arrived, network = delivered(Faults(duplication=0.3, jitter=2))
    assert 0.25 < network.counts["duplicated"] / 2000 < 0.35
    assert len(arrived) == 2000 + network.counts["duplicated"] and len({n for _, n in arrived}) == 2000
    arrived, network = delivered(Faults(corruption=0.3))
    changed = sum(number == -1 for _, number in arrived)
    assert 0.25 < network.counts["corrupted"] / 2000 < 0.35 and changed > 0.9 * network.counts["corrupted"]
    # One fault does not move another.
    lost = {n for _, n in delivered(Faults(loss=0.3))[0]}
    assert lost == {n for _, n in delivered(Faults(loss=0.3, duplication=0.5, jitter=4))[0]}


def test_losses_can_be_given() -> None:
    arrived, _ = delivered(Faults(delay=2), lost=lambda sender, receiver, sent, arrives: sent % 2 == 0)
    assert arrived == [(n + 2, n) for n in range(1, 2000, 2)]


def test_partitions_heal() -> None:
    network = VirtualNetwork(Faults(delay=2))
    ports = [network.join(robot) for robot in range(4)]

    def reached() -> list[set[int]]:
        for one in range(4):
            for other in range(4):
                ports[one].send(b"x", other)
        network.advance(network.now + 2)
        return [{peer for peer, _ in port.poll()} for port in ports]

    assert reached() == [{0, 1, 2, 3}] * 4
    network.part([0, 1], [2, 3])
    assert reached() == [{0, 1}, {0, 1}, {2, 3}, {2, 3}]
    network.part()
    assert reached() == [{0, 1, 2, 3}] * 4
    ports[3].close()
    assert reached()[:3] == [{0, 1, 2, 3}] * 3 and ports[3].poll() == []


def test_who_does_not_poll_does_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast_swarm.robot.virtual.MOST", 100)
    network = VirtualNetwork()
    sender, _ = network.join(0), network.join(1)
    for _ in range(500):
        sender.send(b"x", 1)
    network.advance(1)
    assert network.counts == {"sent": 500, "delivered": 100, "dropped": 400}


def test_nodes_come_through_every_trouble() -> None:
    """Five on a line over a network with all faults: in the end everybody knows everybody, and nothing false."""
    pytest.importorskip("cryptography", reason="signatures need the package cryptography")
    nodes = [teams.node(trust, hop=20) for trust in teams.trusts(5)]
    network = VirtualNetwork(TROUBLE, seed=3)
    for now in range(0, 1200, 5):
        if now % 100 == 0:
            for one in nodes:
                one.control(now, np.full(4, one.name), (float(one.name), 0.0))
        network.part(*([[0, 1], [2, 3, 4]] if 300 <= now < 600 else []))
        teams.carry(nodes, network, now, lambda robot: [i for i in (robot - 1, robot + 1) if 0 <= i < 5])
        if now == 595:
            assert nodes[0].ages(now)[4] >= 295
    for one in nodes:
        assert max(one.ages(1195).values()) < 500 and len(one.robot.known()) == 5
        for news in one.robot.known():
            assert news.message.tolist() == [news.origin] * 4 and news.stamp % 100 == 0
    reasons = {reason for one in nodes for reason in one.counters.refused}
    assert {"duplicate", "bad signature", "truncated"} <= reasons


@pytest.mark.parametrize(
    ("fields", "error"),
    [({"delay": -1}, "delay is -1 ticks"), ({"jitter": 0.5}, "jitter is 0.5 ticks"), ({"loss": 2}, "a probability")],
)
def test_mistakes(fields: dict[str, Any], error: str) -> None:
    with pytest.raises(MastError, match=error):
        Faults(**fields)
    network = VirtualNetwork(now=5)
    with pytest.raises(MastError, match="the clock stands at 5: it cannot go back to 4"):
        network.advance(4)
