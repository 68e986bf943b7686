"""A robot in real time: it keeps its rate, talks, and stands still whatever goes wrong."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import teams
from mast_swarm.errors import MastError
from mast_swarm.robot import UDP, Sensed
from mast_swarm.robot.pilot import Pace, Pilot, Step
from mast_swarm.robot.survey import Survey
from shared import free_ports

ZERO = [0.0, 0.0]


class Policy:
    """Stands for an exported one: goes east at half of 4 m/s."""

    manifest: dict[str, Any] = {"control": {"max_speed_m_s": 4.0}}  # noqa: RUF012

    def trail(self) -> None:
        """It does not remember where it was."""

    def command(self, prediction: Any, **rest: Any) -> np.ndarray:
        return np.array([0.5, 0.0])


class Body:
    """Stands somewhere, and remembers what it was told."""

    def __init__(self, sense: Callable[[int], Any] | None = None, neighbours: Any = None, robots: Any = None) -> None:
        self.told: list[list[float]] = []
        self.asked: list[float] = []
        self.closed = False
        self._sense, self._neighbours, self._robots = sense, neighbours, robots

    def sense(self) -> Any:
        self.asked.append(time.monotonic())
        if self._sense is not None:
            return self._sense(len(self.asked))
        return Sensed((1.0, 2.0), np.ones(4, np.float32), neighbours=self._neighbours, robots=self._robots)

    def command(self, velocity: np.ndarray) -> None:
        self.told.append(velocity.tolist())

    def close(self) -> None:
        self.closed = True


def make(
    body: Body,
    *,
    name: int = 0,
    ports: list[int] | None = None,
    pace: Pace | None = None,
    policy: Any = None,
    node: dict[str, Any] | None = None,
    wire: Any = None,
    on_step: Any = None,
    say: Any = None,
    safe: float | None = None,
    team: Any = lambda: None,
) -> Pilot:
    ports, pace = ports or free_ports(1), pace or Pace(rate=20.0, hop=0.02, patience=1.0)
    addresses = {number: ("127.0.0.1", port) for number, port in enumerate(ports)}
    made = teams.node(
        teams.trusts(len(ports))[name],
        wire,
        now=time.time_ns(),
        hop=pace.node_hop,
        again=pace.node_again,
        say=say,
        **(node or {}),
    )
    peers = [number for number in addresses if number != name]
    network = UDP(name, addresses)
    hooks: Any = {"on_step": on_step, "say": say or (lambda _: None), "team": team}
    return Pilot(body, policy or Policy(), made, network, pace, peers=peers, safe=safe, **hooks)


def stopped(pilot: Pilot, after: float) -> None:
    """Run it, and tell it to stop after some seconds."""
    timer = threading.Timer(after, pilot.stop, ["told to"])
    timer.start()
    try:
        pilot.run()
    finally:
        timer.cancel()


def test_it_keeps_its_rate_without_drift_and_ends_standing_still() -> None:
    body, steps, said = Body(), list[Step](), list[str]()
    pilot = make(body, on_step=steps.append, say=said.append)
    stopped(pilot, 1.02)
    assert body.told[-1] == ZERO and body.closed
    assert all(command == [2.0, 0.0] for command in body.told[:-1])
    assert said == ["robot 0 stops: told to"]
    assert 2 <= len(steps) <= 22 and steps[-1].met == pilot.met and steps[-1].missed == pilot.missed
    assert pilot.met + pilot.missed >= 15  # of 21 instants, on a busy machine too
    late = [(at - body.asked[0]) * 20 % 1 for at in body.asked]  # of a period after an instant
    assert np.median(np.minimum(late, 1 - np.array(late))) < 0.3
    assert steps[0].position == (1.0, 2.0) and steps[0].command == (2.0, 0.0) and steps[0].ages == {}
    assert [step.time for step in steps] == sorted({step.time for step in steps})


def test_two_robots_hear_each_other_and_say_how_old_their_news_is() -> None:
    ports, steps = free_ports(2), list[Step]()
    pilots = [make(Body(), name=0, ports=ports, on_step=steps.append), make(Body(), name=1, ports=ports)]
    threads = [threading.Thread(target=stopped, args=(pilot, 1.5)) for pilot in pilots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(steps[-1].ages) == {1} and 0 <= steps[-1].ages[1] < 1
    assert sum(step.heard.get(1, 0) for step in steps) > 3
    last = steps[-1].counters
    assert last.entries_kept > 3 and last.bytes_out > 0 and last is not pilots[0].node.counters
    assert set(last.refused) <= {"own origin", "old stamp", "duplicate"}


def test_it_talks_to_those_alone_that_its_body_names() -> None:
    ports = free_ports(3)
    other = UDP(2, {number: ("127.0.0.1", port) for number, port in enumerate(ports)})
    stopped(make(Body(neighbours=[1]), ports=ports), 0.3)
    assert other.poll(0.05) == []
    stopped(make(Body(), ports=ports), 0.3)
    assert {peer for peer, _ in other.poll(0.05)} == {0}
    other.close()


PACE = Pace(rate=20.0, hop=0.05, patience=1.0)
PREDICTS = {"policy": lambda known: np.array([0.0, 0.0, 1.0])}  # has speed to spare


def with_map(body: Body, **given: Any) -> Pilot:
    """A robot whose policy has a map, and leaves it idle."""
    maps = PACE.handed(Survey(25.0, 400.0))
    return make(body, pace=PACE, node={"maps": maps, **PREDICTS}, **given)


def test_robots_hand_each_other_their_maps_and_search() -> None:
    ports, steps = free_ports(2), list[Step]()
    places = [(-100.0, 0.0), (100.0, 0.0)]
    bodies = [
        Body(lambda count, place=place: Sensed(place, np.ones(4, np.float32), sights=[[20.0, 0.0]]))  # type: ignore[misc]
        for place in places
    ]
    pilots = [with_map(body, name=i, ports=ports, on_step=steps.append) for i, body in enumerate(bodies)]
    threads = [threading.Thread(target=stopped, args=(pilot, 1.0)) for pilot in pilots]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for pilot, other in zip(pilots, pilots[::-1], strict=True):
        assert pilot.node.maps is not None and other.node.maps is not None
        assert (pilot.node.maps.survey.marks == other.node.maps.survey.marks).all()
        assert pilot.node.counters.maps_kept > 3 and pilot.node.counters.maps_out > 3
    assert all(step.searching for step in steps)
    assert all(np.hypot(*told) == pytest.approx(4.0, abs=1e-4) for body in bodies for told in body.told[:-1])


def test_a_map_needs_a_node_that_hands_it_on_a_body_that_tells_what_it_senses_and_a_place_on_it() -> None:
    class Mapped(Policy):
        manifest = Policy.manifest | {"exploration": {"survey": {"cell_m": 25.0, "side_m": 400.0}}}

    with pytest.raises(MastError, match="make its node with maps"):
        make(Body(), policy=Mapped())
    with pytest.raises(MastError, match=r"^robot 0 stops: it has a map .* let it give `sights` in Sensed"):
        stopped(with_map(Body()), 5.0)
    said: list[str] = []
    far = Body(lambda count: Sensed((5e5, 4e6), np.ones(4, np.float32), sights=[[20.0, 0.0]]))
    stopped(with_map(far, say=said.append), 0.3)
    assert said[0].startswith("robot 0 is at (500000, 4000000) m and not on its map, which reaches 350 m")
    assert len(said) == 2 and said[0].count("--map-middle") == 1


def hang(count: int) -> Any:
    time.sleep(60)


def fail(count: int) -> Any:
    raise OSError("the bus is down")


def gone(count: int) -> Any:
    return Sensed((0.0, 0.0), np.ones(4, np.float32)) if count < 3 else None


@pytest.mark.parametrize(
    ("sense", "why"),
    [
        (lambda count: Sensed((np.nan, 0.0), np.ones(4)), "its body gives position with NaN"),
        (lambda count: Sensed((0.0, 0.0), np.full(4, np.inf)), "its body gives features with NaN or infinity"),
        (lambda count: Sensed((0.0, 0.0, 0.0), np.ones(4)), r"its body gives a position of shape \[3\]"),
        (lambda count: "here", "its body senses what is no Sensed"),
        (lambda count: Sensed((0.0, 0.0), np.ones(4), sights=[1.0]), r"its body gives sights of shape \[1\]"),
        (lambda count: Sensed((0.0, 0.0), np.ones(4), sights=[[np.nan, 0]]), "its body gives sights with NaN"),
        (lambda count: Sensed((0.0, 0.0), np.ones(4), reach=-1.0), "its body gives a reach of -1"),
        (fail, "its body fails in `sense`: OSError: the bus is down"),
        (hang, "its body has not answered `sense` for 1 s"),
        (gone, r"its body has sensed nothing for \d\.\d s"),
    ],
)
def test_a_body_that_cannot_be_relied_on_is_told_to_stand_still(sense: Any, why: str) -> None:
    body = Body(sense)
    pilot, began = make(body), time.monotonic()
    with pytest.raises(MastError, match=f"^robot 0 stops: {why}") as found:
        stopped(pilot, 20.0)
    assert "\n" not in str(found.value) and time.monotonic() - began < 5
    assert body.told[-1] == ZERO and body.closed and pilot.network.poll() == []


def test_a_body_that_hangs_does_not_keep_a_signal_waiting() -> None:
    body = Body(hang)
    began = time.monotonic()
    with pytest.raises(MastError, match=r"^robot 0 stops: told to; and its body has not answered `sense` for 0.5 s$"):
        stopped(make(body, pace=Pace(rate=20.0, hop=0.02, patience=30.0)), 0.2)
    assert time.monotonic() - began < 5 and body.told == [ZERO]


def test_a_body_that_takes_no_command_is_named() -> None:
    class Deaf(Body):
        def command(self, velocity: np.ndarray) -> None:
            time.sleep(60)

    with pytest.raises(MastError, match=r"answered `command`.*and its body has not taken the command to stand still"):
        stopped(make(Deaf()), 20.0)


class Broken(Policy):
    def command(self, prediction: Any, **rest: Any) -> np.ndarray:
        return np.array([np.nan, 0.0])


@pytest.mark.parametrize(
    ("policy", "node", "why"),
    [
        (Broken(), {}, "its policy gives a command that is not finite"),
        (None, {"policy": lambda known: 1 / 0}, "its policy fails: division by zero"),
        (None, {"perceive": lambda seen: np.ones(3)}, "its policy fails: a message has shape"),
    ],
)
def test_a_policy_that_fails_stops_the_robot(policy: Any, node: dict[str, Any], why: str) -> None:
    body = Body()
    with pytest.raises(MastError, match=f"^robot 0 stops: {why}"):
        stopped(make(body, policy=policy, node=node), 20.0)
    assert body.told == [ZERO]


def test_before_its_first_fix_a_robot_waits() -> None:
    body = Body(lambda count: None)
    pilot = make(body)
    stopped(pilot, 1.5)
    assert body.told == [ZERO] and pilot.met == pilot.missed == 0


def test_it_says_now_and_then_that_its_body_senses_nothing_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast_swarm.robot.pilot._SILENT", 0.3)
    monkeypatch.setattr("mast_swarm.robot.pilot._REMIND", 0.4)
    said = list[str]()
    body = Body(lambda count: None)
    body.waits_for = lambda: "no satellite"  # type: ignore[attr-defined]
    stopped(make(body, ports=free_ports(2), pace=Pace(rate=20.0, hop=0.02, patience=0.2), say=said.append), 0.9)
    assert 1 <= sum("sensed nothing yet, for 0 s (no satellite)" in line for line in said) <= 2
    assert sum("sensed nothing yet" in line for line in said) <= 3  # in 0.9 s, one every 0.4 s
    assert sum("nothing has come from robot 1" in line for line in said) == 1


def test_deadlines_that_are_missed_are_counted() -> None:
    def slow(count: int) -> Sensed:
        time.sleep(0.12)  # more than two periods
        return Sensed((0.0, 0.0), np.ones(4, np.float32))

    pilot = make(Body(slow))
    stopped(pilot, 1.0)
    assert pilot.met == 0 and pilot.missed >= 10


def test_a_peer_that_says_nothing_and_one_with_other_weights_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast_swarm.robot.pilot._SILENT", 0.3)
    ports, said = free_ports(3), list[str]()
    other = make(Body(), name=1, ports=ports, wire=teams.Format(teams.TEAM, b"other-08", 4))
    thread = threading.Thread(target=stopped, args=(other, 1.0))
    thread.start()
    stopped(make(Body(), ports=ports, say=said.append), 1.0)
    thread.join()
    assert sum("robot 1 runs other weights" in line for line in said) == 1
    assert sum("nothing has come from robot 2 in 0.3 s" in line for line in said) == 1


def test_each_silence_of_a_peer_is_told_and_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast_swarm.robot.pilot._SILENT", 0.4)
    ports, said = free_ports(2), list[str]()
    thread = threading.Thread(target=stopped, args=(make(Body(), ports=ports, say=said.append), 6.0))
    thread.start()

    def lines(*words: str) -> bool:
        """Whether it has said these in this order, and nothing else."""
        ends = time.monotonic() + 4
        while len(said) < len(words) and time.monotonic() < ends:
            time.sleep(0.02)
        return len(said) == len(words) and all(word in line for word, line in zip(words, said, strict=True))

    silent, again = "nothing has come from robot 1 in 0.4 s", "robot 1 is heard again, after"
    assert lines(silent)
    stopped(make(Body(), name=1, ports=ports), 0.8)
    assert lines(silent, again, silent)
    stopped(make(Body(), name=1, ports=ports), 0.5)
    assert lines(silent, again, silent, again, silent)
    thread.join()


@pytest.mark.parametrize("field", ["rate", "hop", "patience", "speed"])
def test_a_pace_is_positive(field: str) -> None:
    for value in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(MastError, match=f"{field} is "):
            Pace(**{field: value})


@pytest.mark.parametrize(
    ("robots", "goes"),
    [
        ([], 2.0),  # nobody near
        ([[9.0, 0.0]], 2.0),  # too far to matter: it could go 2 m
        ([[5.1, 0.0]], 1.0),  # half of the 0.1 m that there are, in a period of 0.05 s
        ([[-5.0, 0.0], [0.0, 5.0]], 2.0),  # none in its way
        ([[5.0, 0.0]], 0.0),  # they touch
    ],
)
def test_the_safety_layer_slows_a_robot_down_before_another(robots: Any, goes: float) -> None:
    far = (500_000.0, 4_000_000.0)  # as UTM has it: a frame changes nothing
    body = Body(lambda _: Sensed(far, np.ones(4, np.float32), robots=robots))
    stopped(make(body, safe=5.0), 0.5)
    assert len(body.told) > 1
    assert all(told == pytest.approx([goes, 0.0], abs=1e-3) and told[0] <= goes for told in body.told[:-1])


def test_what_waits_is_confirmed_before_a_confirmation_cannot_speak_of_it_any_more() -> None:
    """A flood of a hundred datagrams that waits to be read: each is confirmed, and none has to come again."""
    pilot, sender = make(Body(), ports=free_ports(2)), teams.node(teams.trusts(2)[1], None, now=0, hop=1, again=1)
    told: list[bytes] = []

    class Network:
        def poll(self, timeout: float) -> list[tuple[int, bytes]]:
            return []

        def send(self, datagram: bytes, to: int) -> None:
            told.append(datagram)

    pilot.network.close()
    pilot.network = Network()  # type: ignore[assignment]
    form, link = sender.form, sender._link(0, 0)
    assert link is not None
    sender.control(time.time_ns(), np.ones(4), (0.0, 0.0))
    for _ in range(100):
        entry = sender.robot.known()[0]
        pilot._backlog.append((1, form.datagram(link.header(1, [entry]), [entry])))
    assert len(link._pending) == 100
    pilot._listen(time.monotonic() + 30)
    for datagram in told:
        sender.on_datagram(0, datagram, time.time_ns())
    assert not link._pending and len(told) == 7, (len(link._pending), len(told))


def test_the_safety_layer_needs_to_know_where_others_are() -> None:
    with pytest.raises(MastError, match=r"all robots within 5\.4 m, and its body senses none"):
        stopped(make(Body(), safe=5.0), 5.0)
    with pytest.raises(MastError, match="robots with NaN"):
        stopped(make(Body(robots=[[np.nan, 1.0]]), safe=5.0), 5.0)
    with pytest.raises(MastError, match="are to stay -1 m apart"):
        make(Body(), safe=-1)


def test_a_team_that_changes_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast_swarm.robot.pilot._RENEWS", 0.0)
    said: list[str] = []
    now = teams.trusts(3)[0].team
    other = replace(now, identity=b"other-08")
    answers: Any = iter([None, other, replace(now, revoked=frozenset({2})), None, replace(now, revoked=frozenset({0}))])
    pilot = make(Body(), ports=free_ports(3), say=said.append, team=lambda: next(answers, None))
    with pytest.raises(MastError, match="robot 0 stops: it does not belong to the team any more"):
        stopped(pilot, 20.0)
    assert said[:2] == [
        "robot 0 goes on with the team that it knows: its file is now that of another team, 6f746865722d3038",
        "robot 0: the team has changed: revoked 2",
    ]
    assert pilot.node.trust.why_not(2) == "revoked"
