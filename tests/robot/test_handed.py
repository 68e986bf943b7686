"""Maps on the wire: they go one hop at a time, from their own robot alone, signed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import teams
from mast_swarm.errors import MastError
from mast_swarm.robot import Node, VirtualNetwork
from mast_swarm.robot.handed import Handed
from mast_swarm.robot.survey import Survey
from mast_swarm.robot.wire import Header, MapEntry

IDLE, BUSY = np.array([0.0, 0.0, 1.0]), np.array([1.0, 0.0, 1.0])
GOAL = np.array([[12.0, 0.0]])  # all that a robot senses, relative to it


def nodes(count: int, signed: bool = False, cell: float = 25.0, **rules: Any) -> list[Node]:
    """Robots with maps of 500 m; a hop takes 10 ticks."""
    made = []
    for trust in teams.trusts(count, signed):
        maps = Handed(Survey(cell, 200.0), hop=10, again=10)
        made.append(teams.node(trust, maps=maps, **rules))
    return made


def act(node: Node, now: int, place: tuple[float, float], prediction: np.ndarray = IDLE) -> np.ndarray:
    node.control(now, np.zeros(4), place)
    assert node.maps is not None
    return node.maps.searched(now, place, GOAL, np.zeros(2), prediction)


def marks(node: Node) -> np.ndarray:
    assert node.maps is not None
    return node.maps.survey.marks


def sent(node: Node, now: int, to: int) -> bytes:
    """The datagram with the map of a node."""
    ((_, data),) = [one for one in node.due(now, [to]) if node.form.read(one[1]).maps]
    return data


def beside(robot: int) -> list[int]:
    return [other for other in (robot - 1, robot + 1) if 0 <= other < 3]


def test_marks_go_one_hop_at_a_time() -> None:
    team, network = nodes(3), VirtualNetwork()
    for i, one in enumerate(team):
        act(one, 0, (150.0 * (i - 1), 0.0), BUSY)
    own = [marks(one).copy() for one in team]
    teams.carry(team, network, 10, beside)
    assert (marks(team[0]) == own[0] | own[1]).all() and (marks(team[1]) == own[0] | own[1] | own[2]).all()
    teams.carry(team, network, 20, beside)
    assert (marks(team[0]) == own[0] | own[1] | own[2]).all()
    assert [one.counters.maps_kept for one in team] == [2, 4, 2] and not team[0].counters.refused["malformed"]
    assert team[1].counters.maps_out == 4 and team[1].counters.maps_in == 4


def test_a_cell_is_left_to_the_neighbour_that_searches_nearer() -> None:
    alone, team, network = nodes(1)[0], nodes(2), VirtualNetwork()
    free = act(alone, 0, (0.0, 0.0))
    assert np.hypot(*free) == pytest.approx(1.0, abs=1e-5)
    rival = tuple(free * 60)
    for now in (0, 10):
        act(team[0], now, (0.0, 0.0), IDLE if now else BUSY)
        act(team[1], now, rival)  # type: ignore[arg-type]
        if now == 0:
            teams.carry(team, network, 10, lambda robot: [1 - robot])
    assert team[0].maps is not None and len(team[0].maps.rivals(10)) == 1
    way = team[0].maps.survey.way((0.0, 0.0), True, team[0].maps.rivals(10))
    assert way @ free < 0.9
    assert team[0].maps.rivals(20) == []  # it has said nothing since


def test_maps_are_refused_that_are_not_right() -> None:
    pytest.importorskip("cryptography", reason="signatures need the package cryptography")
    said: list[str] = []
    sender, relay, receiver = nodes(3, signed=True, say=said.append)
    act(sender, 0, (0.0, 0.0))
    data = sent(sender, 10, 2)
    (entry,) = receiver.form.read(data).maps

    def hears(*maps: MapEntry, peer: int = 0) -> str:
        before = receiver.counters.refused.copy()
        receiver.on_datagram(peer, receiver.form.datagram(Header(peer, 1), maps), 10)
        (why,) = receiver.counters.refused - before
        return why

    def changed(frame: int, content: bytes, origin: int = 0) -> MapEntry:
        body = receiver.form.map_bodies(origin, 9, np.zeros(2), False, frame, np.ones((2, 20, 20), bool))[0]
        body = body[:-1] + content
        return receiver.form.map_entry(body, teams.key(origin).sign(receiver.form.signed(body)))

    assert hears(entry, peer=1) == "malformed"  # a map goes one hop
    assert hears(changed(entry.frame + 1, b"\xff")) == "other map"
    assert hears(receiver.form.map_entry(entry.body, bytes(64))) == "bad signature"
    short = entry.body[:6] + (len(entry.body) - 33).to_bytes(2, "little") + entry.body[8:-1]
    assert hears(receiver.form.map_entry(short, bytes(64))) == "malformed"
    assert not marks(receiver).any() and receiver.counters.maps_kept == 0
    receiver.on_datagram(0, data, 10)
    assert (marks(receiver) == marks(sender)).all() and receiver.counters.maps_kept == 1
    assert hears(entry) == "duplicate" and hears(changed(entry.frame, b"\xff")) == "old stamp"
    assert said == [
        "the map of robot 0 is not used: it has other cells than this robot's map, or this robot has none; give all "
        "the same policy, --map-side and --map-middle",
        "robot 0 has sent an entry that its origin has not signed: was it changed on the way, or forged?",
    ]
    assert relay.counters.maps_in == 0


def test_a_robot_without_a_map_goes_on() -> None:
    (sender, _), plain = nodes(2), teams.node(teams.trusts(2, signed=False)[1])
    act(sender, 0, (0.0, 0.0))
    for _, data in sender.due(10, [1]):
        plain.on_datagram(0, data, 10)
    assert plain.counters.refused == {"other map": 1} and plain.counters.entries_kept == 1


def test_a_large_map_goes_in_parts() -> None:
    team, network = nodes(2, cell=3.0), VirtualNetwork()
    act(team[0], 0, (0.0, 0.0))
    act(team[1], 0, (200.0, 0.0), BUSY)
    teams.carry(team, network, 10, lambda robot: [1 - robot])
    assert team[1].counters.maps_kept == 6 == team[0].counters.maps_out
    assert not (marks(team[0]) & ~marks(team[1])).any() and not team[1].counters.refused["duplicate"]


def test_a_revoked_robot_is_no_rival() -> None:
    pytest.importorskip("cryptography", reason="signatures need the package cryptography")
    team, network = nodes(3, signed=True), VirtualNetwork()
    for one in team:
        act(one, 0, (10.0 * one.name, 0.0))
    teams.carry(team, network, 10, lambda robot: [other for other in range(3) if other != robot])
    receiver = team[0]
    assert receiver.maps is not None and len(receiver.maps.rivals(10)) == 2
    receiver.believe(receiver.trust.renewed(teams.team(3, revoked=[2])))
    assert len(receiver.maps.rivals(10)) == 1


def test_a_map_that_fits_into_no_datagram_is_refused_at_once() -> None:
    with pytest.raises(MastError, match="use larger cells"):
        nodes(1, cell=0.09)
