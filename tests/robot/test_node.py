"""A node of the network: what it sends, to whom, how often, and what it says of others."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import teams
from mast_swarm.errors import MastError
from mast_swarm.robot import Faults, Limits, Node, Stamps, VirtualNetwork
from mast_swarm.robot.link import Link
from mast_swarm.robot.node import REASONS
from mast_swarm.robot.wire import HEADER, Header

ZERO = np.zeros(4)


def line_of(count: int, **rules: Any) -> list[Node]:
    """Robots on a line, 10 m apart, without signatures."""
    return [teams.node(trust, **rules) for trust in teams.trusts(count, signed=False)]


def beside(count: int) -> Any:
    return lambda robot: [i for i in (robot - 1, robot + 1) if 0 <= i < count]


def sense(nodes: list[Node], now: int) -> list[dict[int, int]]:
    return [one.control(now, ZERO, (10.0 * one.name, 0.0)) for one in nodes]


def test_news_goes_down_a_line_one_hop_at_a_time() -> None:
    nodes, network = line_of(4), VirtualNetwork()
    sense(nodes, 0)
    for now in (10, 20, 30):
        teams.carry(nodes, network, now, beside(4))
        assert teams.stamps(nodes[3].robot.known()) == {3 - hops: 0 for hops in range(now // 10 + 1)}
    assert nodes[3].ages(35) == dict.fromkeys(range(4), 35)
    assert sense(nodes, 40)[0] == {0: 40, 1: 0, 2: 0, 3: 0}


def test_what_is_confirmed_is_not_sent_again_and_what_is_not_is() -> None:
    nodes = line_of(2)
    sense(nodes[:1], 0)
    silent = VirtualNetwork(Faults(loss=1.0))
    for now in (10, 20):
        teams.carry(nodes, silent, now, beside(2))
    assert nodes[0].counters.entries_out == 2 and nodes[1].robot.known() == []
    open_again = VirtualNetwork()
    for now in (30, 40, 50):
        teams.carry(nodes, open_again, now, beside(2))
    assert nodes[0].counters.entries_out == 3 and nodes[1].counters.entries_kept == 1
    assert nodes[1].counters.entries_out == 0  # nor is it sent back
    sense(nodes[:1], 60)
    teams.carry(nodes, open_again, 70, beside(2))
    assert nodes[0].counters.entries_out == 4
    # A robot that was away is told everything once more.
    teams.carry(nodes, open_again, 80, lambda robot: [])
    teams.carry(nodes, open_again, 90, beside(2))
    assert nodes[0].counters.entries_out == 5 and nodes[1].counters.refused == {"duplicate": 1}


def test_what_was_damaged_on_the_way_comes_again() -> None:
    pytest.importorskip("cryptography", reason="signatures need the package cryptography")
    nodes, damaged = [teams.node(trust) for trust in teams.trusts(2)], 0
    sense(nodes[:1], 0)
    for now, byte in ((10, 60), (20, 46), (30, None)):  # a bit of the position, of the width, none
        for _, data in nodes[0].due(now, [1]):
            changed = data if byte is None else data[:byte] + bytes([data[byte] ^ 1]) + data[byte + 1 :]
            nodes[1].on_datagram(0, changed, now)
            damaged += byte is not None
        for _, data in nodes[1].due(now, []):
            nodes[0].on_datagram(1, data, now)
    assert damaged == 2 and nodes[1].counters.refused == {"bad signature": 1, "malformed": 1}
    assert teams.stamps(nodes[1].robot.known()) == {0: 0} and nodes[0].counters.entries_out == 3
    assert nodes[0].due(40, [1]) == []


def test_a_robot_that_starts_anew_is_told_everything_again() -> None:
    nodes, network = line_of(3), VirtualNetwork()
    sense(nodes[:1], 0)
    for now in range(10, 60, 10):
        teams.carry(nodes, network, now, beside(3))
    nodes[1] = teams.node(teams.trusts(3, signed=False)[1], now=60, limits=Limits(skew=10**9))
    nodes[1].control(60, ZERO, (0.0, 0.0))
    for now in (70, 80):
        teams.carry(nodes, network, now, beside(3))
    assert teams.stamps(nodes[1].robot.known()) == {1: 60, 0: 0}


def test_entries_go_together_and_bytes_are_counted() -> None:
    nodes, network = line_of(12), VirtualNetwork()
    everyone = [i for i in range(12) if i]
    sense(nodes, 0)
    teams.carry(nodes, network, 10, lambda robot: [0] if robot else [])
    data = [datagram for peer, datagram in nodes[0].due(20, everyone) if peer == 5]
    assert [len(one) for one in data] == [40 + 11 * 104]  # 12 origins less that of robot 5: one datagram
    counts = nodes[0].counters
    assert (counts.entries_in, counts.entries_kept, counts.entries_out) == (11, 11, 11 * 11)
    assert counts.bytes_in == 11 * (40 + 104) and counts.datagrams_in == 11
    assert counts.bytes_out == 11 * (40 + 11 * 104) + 11 * 40 and counts.datagrams_out == 22  # and confirmations


def test_news_from_outside_the_relay_radius_is_not_passed_on() -> None:
    nodes, network = line_of(5, relay_radius=25.0), VirtualNetwork()
    sense(nodes, 0)
    for now in range(10, 100, 10):
        teams.carry(nodes, network, now, beside(5))
    assert set(teams.stamps(nodes[0].robot.known())) == {0, 1, 2}
    assert set(teams.stamps(nodes[2].robot.known())) == {0, 1, 2, 3, 4}
    assert nodes[0].counters.refused["out of reach"] > 0
    old = line_of(2, max_age=15)
    sense(old[:1], 0)
    teams.carry(old, network, 100, beside(2))
    assert old[0].counters.entries_out == 0


def test_commands_come_from_what_others_will_read() -> None:
    """With float16 a robot decides on its own message as the others get it."""
    seen: list[np.ndarray] = []

    def policy(known: list[Any]) -> None:
        seen.append(known[0].message)

    node = teams.node(teams.trusts(1, signed=False)[0], policy=policy)
    node.control(0, np.full(4, 0.1), (0.0, 0.0))
    assert seen[0].dtype == np.float32 and (seen[0] == np.float32(np.float16(0.1))).all()


def test_lines_for_the_person_in_charge_come_once() -> None:
    said: list[str] = []
    node = teams.node(teams.trusts(3, signed=False)[1], say=said.append, limits=Limits(skew=1000, second=1000))
    other = replace(teams.form(), model=b"weights2")
    late = teams.node(teams.trusts(3, signed=False)[2], now=10**6)
    late.control(10**6, ZERO, (0.0, 0.0))
    ((_, future),) = late.due(10**6 + 10, [1])
    for _ in range(3):
        node.on_datagram(0, other.datagram(Header(0, 1), []), 0)
        node.on_datagram(2, future, 0)
        node.on_datagram(2, teams.form().datagram(Header(2, 1), [])[:4] + b"\x09" + bytes(40), 0)
    assert said == [
        "robot 0 runs other weights (7765696768747332, here 6d6f64656c2d3038) and is not heard: "
        "give all the same model",
        "the clock of robot 2 is more than 1 s ahead of the one here: set it",
        "robot 2 speaks another version of the wire format and is not heard: use one release for all",
    ]
    assert node.counters.refused == {"other model": 3, "clock skew": 3, "other version": 3}
    assert set(node.counters.refused) <= set(REASONS)


def test_a_clock_that_goes_back_does_not_silence_a_robot() -> None:
    nodes, network = line_of(2), VirtualNetwork()
    sense(nodes, 1000)
    teams.carry(nodes, network, 1010, beside(2))
    nodes[0].control(500, ZERO, (0.0, 0.0))
    for to, data in nodes[0].due(510, [1]):
        assert to == 1
        nodes[1].on_datagram(0, data, 1020)
    assert teams.stamps(nodes[1].robot.known()) == {1: 1000, 0: 1001}


def test_news_that_waits_is_bounded() -> None:
    """An origin that says something every tick does not fill the memory of a robot that passes on slowly."""
    sender, node = line_of(2, hop=1)[0], line_of(2, hop=10**6)[1]
    for now in range(1, 400):
        sender.control(now, ZERO, (0.0, 0.0))
        for _, data in sender.due(now + 1, [1]):
            node.on_datagram(0, data, now + 1)
    assert node.counters.entries_kept == 399 and len(node.robot._held[0]) == 64


def test_links_remember_what_arrived() -> None:
    link = Link(0, 1.0, 0, 0)
    for sequence in (10, 12, 11, 11, 14):
        link.arrived(Header(0, sequence), True)
    assert link.header(1, [])[2:] == (14, 0b01110) and not link.owes
    link.arrived(Header(0, 46), True)
    assert link.header(1, [])[2:] == (46, 1 << 31)
    link.told[3] = 7
    link.arrived(Header(0, 3), False)  # it began anew
    assert link.header(1, [])[2:] == (3, 0) and link.told == {} and not link.owes
    for number in range(1000):
        link.header(1, teams.node(teams.trusts(1, signed=False)[0]).robot.known() or [_news(number)])
    assert len(link._pending) == 256
    wrapped = Link(0, 1.0, 0, 2**32 - 2)
    assert [wrapped.header(1, [])[1] for _ in range(3)] == [2**32 - 1, 1, 2]


def _news(stamp: int) -> Any:
    from mast_swarm.robot import News

    return News(5, stamp, ZERO[:2], ZERO)


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ({"hop": 0}, "hop is 0 ticks: expected a whole number, 1 or more"),
        ({"hop": 5, "again": 3}, "again is 3 ticks: expected a whole number, and no less than a hop of 5"),
        ({"wire": replace(teams.form(), team=b"nobodies")}, "the wire format is that of team"),
    ],
)
def test_mistakes_in_the_settings(rules: dict[str, Any], error: str) -> None:
    with pytest.raises(MastError, match=error):
        teams.node(teams.trusts(1, signed=False)[0], **rules)
    with pytest.raises(MastError, match="expected positive numbers"):
        Limits(burst=0)


def test_a_node_with_everything_it_needs_loads_no_torch() -> None:
    script = (
        "import sys, warnings; warnings.simplefilter('ignore')\n"
        "from mast_swarm.robot import *\n"
        "import numpy as np\n"
        "trust = Trust.unsigned(b'12345678', 0, range(2))\n"
        "node = Node(trust, Format(b'12345678', b'12345678', 2), np.asarray, len, now=0, hop=1)\n"
        "assert node.control(0, np.zeros(2), (0, 0)) == 1 and len(node.due(1, [1])) == 1\n"
        "import mast_swarm.robot.trust as t; t._ed25519()\n"
        "names = {name.split('.')[0] for name in sys.modules}\n"
        "mast = {name for name in sys.modules if name.startswith('mast_swarm.')}\n"
        "print(sorted(names & {'torch', 'scipy', 'numba', 'tyro', 'pyarrow', 'zenoh'}),"
        " sorted(name for name in mast if not name.startswith(('mast_swarm.robot', 'mast_swarm.errors'))))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stdout == "[] []\n", done.stderr


def test_stamps_without_a_file_grow_too() -> None:
    stamps = Stamps(None)
    assert [stamps.next(now) for now in (3, 3, 1)] == [3, 4, 5]
    stamps.close()
    assert HEADER.size == 40
