"""Who is believed: keys and team files, stamps that never go back, and what attackers can and cannot do."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import teams
from mast_swarm.errors import MastError, MastWarning
from mast_swarm.robot import Entry, Format, Limits, Node, Stamps, Team, Trust
from mast_swarm.robot import stamps as stamps_module
from mast_swarm.robot.trust import add_robots, key_file, new_team, revoke
from mast_swarm.robot.wire import Header
from shared import mast, one_line

pytest.importorskip("cryptography", reason="signatures need the package cryptography")
posix = pytest.mark.skipif(os.name != "posix", reason="file modes are those of POSIX")


def entry(origin: int, stamp: int, *, signer: int | None = None, form: Format | None = None, secret: int = 0) -> Entry:
    """What an origin says at (1, 2) m, signed by it or by another."""
    form = form or teams.form()
    body = form.body(origin, stamp, np.array([1.0, 2.0]), np.full(4, 0.5))
    private = teams.key(origin if signer is None else signer, secret)
    return form.entry(body, private.sign(form.signed(body)))


def sent(*entries: Entry, sender: int = 0, sequence: int = 1, form: Format | None = None) -> bytes:
    return (form or teams.form()).datagram(Header(sender, sequence), entries)


def receiver(robots: int = 4, revoked: tuple[int, ...] = (), **rules: Any) -> Node:
    """Robot 1 of a team, at tick 0 of a clock that began long ago."""
    return teams.node(Trust(teams.team(robots, revoked), 1, teams.key(1)), **{"hop": 10, **rules})


def flipped(data: bytes, byte: int) -> bytes:
    return data[:byte] + bytes([data[byte] ^ 4]) + data[byte + 1 :]


ANOTHER_TEAM, ANOTHER_MODEL = replace(teams.form(), team=b"nobodies"), replace(teams.form(), model=b"weights2")
# What an attacker, or a mistake, sends as robot 0 -> why it is refused.
ATTACKS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a forged origin": (lambda: sent(entry(2, 50, signer=0)), "bad signature"),
    "a key of nobody": (lambda: sent(entry(2, 50, secret=9)), "bad signature"),
    "no signature": (lambda: sent(teams.form().entry(entry(2, 50).body, bytes(64))), "bad signature"),
    "a replay": (lambda: sent(entry(2, 5)), "old stamp"),
    "a repetition": (lambda: sent(entry(2, 10)), "duplicate"),
    "a changed stamp": (lambda: flipped(sent(entry(2, 50)), 48), "bad signature"),
    "a changed position": (lambda: flipped(sent(entry(2, 50)), 60), "bad signature"),
    "a changed message": (lambda: flipped(sent(entry(2, 50)), 73), "bad signature"),
    "a changed signature": (lambda: flipped(sent(entry(2, 50)), 100), "bad signature"),
    "a changed origin": (lambda: flipped(sent(entry(2, 50)), 41), "unknown origin"),
    "a truncated datagram": (lambda: sent(entry(2, 50))[:-1], "truncated"),
    "an oversized datagram": (lambda: sent(entry(2, 50)) + bytes(1400), "oversized"),
    "another model": (lambda: sent(entry(2, 50, form=ANOTHER_MODEL), form=ANOTHER_MODEL), "other model"),
    "another team": (lambda: sent(entry(2, 50, form=ANOTHER_TEAM), form=ANOTHER_TEAM), "other team"),
    "an entry of another model": (lambda: sent(entry(2, 50, form=ANOTHER_MODEL)), "bad signature"),
    "an entry of another team": (lambda: sent(entry(2, 50, form=ANOTHER_TEAM)), "bad signature"),
    "a revoked origin": (lambda: sent(entry(3, 50)), "revoked"),
    "an unknown origin": (lambda: sent(entry(77, 50)), "unknown origin"),
    "news from the future": (lambda: sent(entry(2, 10**9)), "clock skew"),
    "its own words": (lambda: sent(entry(1, 3)), "own origin"),
    "its own words of another": (lambda: sent(entry(1, 50, signer=0)), "own origin"),
    "a sender that is another": (lambda: sent(entry(2, 50), sender=2), "malformed"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks_are_refused_and_counted_and_go_no_further(attack: str) -> None:
    make, reason = ATTACKS[attack]
    node = receiver(5, revoked=(3,), limits=Limits(skew=1000))
    node.control(0, np.zeros(4), (0.0, 0.0))
    node.on_datagram(0, sent(entry(2, 10)), 10)
    assert teams.stamps(node.robot.known()) == {1: 0, 2: 10}
    before = node.counters.refused.copy()
    node.on_datagram(0, make(), 12)
    assert node.counters.refused - before == {reason: 1}
    assert teams.stamps(node.robot.known()) == {1: 0, 2: 10} and node.counters.entries_kept == 1
    out = [teams.form().read(data) for peer, data in node.due(40, [0, 4]) if peer == 4]
    assert [(one.origin, one.stamp) for read in out for one in read.entries] == [(1, 0), (2, 10)]
    # What comes after it, and is good, is believed.
    node.on_datagram(0, sent(entry(2, 60), sequence=3), 60)
    assert teams.stamps(node.robot.known())[2] == 60


def test_a_good_entry_beside_a_bad_one_is_used() -> None:
    node = receiver()
    node.on_datagram(0, sent(entry(0, 5), entry(2, 5, signer=0), entry(3, 5)), 10)
    assert teams.stamps(node.robot.known()) == {0: 5, 3: 5}


def test_revoked_robots_and_strangers_are_not_listened_to() -> None:
    node = receiver(revoked=(3,))
    for peer, reason in ((3, "revoked"), (99, "unknown sender"), (-5, "unknown sender"), (1, "unknown sender")):
        node.on_datagram(peer, sent(entry(2, 5), sender=max(peer, 0)), 10)
        assert node.counters.refused[reason] > 0
    assert node.robot.known() == [] and node._links == {}
    assert node.due(10, [3, 99, 1]) == []  # nor spoken to


def test_a_revocation_while_it_runs() -> None:
    node = receiver()
    node.on_datagram(0, sent(entry(0, 5), entry(2, 5)), 10)
    node.believe(Trust(teams.team(4, revoked=(2,)), 1, teams.key(1)))
    assert teams.stamps(node.robot.known()) == {0: 5}
    node.on_datagram(0, sent(entry(2, 7), sequence=2), 12)
    assert node.counters.refused == {"revoked": 1}
    with pytest.raises(MastError, match="cannot become another one"):
        node.believe(Trust(teams.team(4), 2, teams.key(2)))


def test_what_was_said_before_a_restart_is_not_believed_again() -> None:
    """A receiver that starts anew has forgotten all stamps: it takes none from before its start, less the skew."""
    node = receiver(now=10_000, limits=Limits(skew=1000))
    node.on_datagram(0, sent(entry(2, 8_999)), 10_000)
    assert node.counters.refused == {"old stamp": 1}
    node.on_datagram(0, sent(entry(2, 9_000), sequence=2), 10_000)
    assert teams.stamps(node.robot.known()) == {2: 9_000}


def test_a_robot_hears_that_its_key_is_used_twice() -> None:
    said: list[str] = []
    node = receiver(say=said.append)
    node.control(5, np.zeros(4), (0.0, 0.0))
    for sequence in (1, 2):
        node.on_datagram(0, sent(entry(1, 50), sequence=sequence), 60)
    assert said == ["something else signs as robot 1: its key is in use twice"]


def test_who_sends_too_much_is_not_heard_for_a_while() -> None:
    limits = Limits(bytes_per_second=1000, burst=500, second=1000)
    node = receiver(limits=limits)
    data = sent(entry(2, 5))  # 144 bytes
    for _ in range(10):
        node.on_datagram(0, data, 0)
    assert node.counters.refused == {"duplicate": 2, "rate limited": 7}
    node.on_datagram(3, sent(entry(2, 5), sender=3), 0)  # others are not to blame
    node.on_datagram(0, data, 144)
    assert node.counters.refused == {"duplicate": 4, "rate limited": 7}


def test_who_sends_bad_signatures_is_soon_not_heard() -> None:
    """Each costs a check that takes longer than all else: of those a robot does a few per second and peer."""
    node = receiver(limits=Limits(bytes_per_second=1000, burst=1000, bad_signature=400, second=1000))
    for number in range(50):
        node.on_datagram(0, sent(entry(2, 50 + number, signer=0), sequence=number + 1), number)
    assert node.counters.verified == 2 and node.counters.refused == {"bad signature": 2, "rate limited": 48}
    node.on_datagram(3, sent(entry(2, 60), sender=3), 60)  # another is heard
    assert teams.stamps(node.robot.known())[2] == 60
    node.on_datagram(0, sent(entry(2, 2000), sequence=51), 2000)  # and it too, after a while
    assert teams.stamps(node.robot.known())[2] == 2000


def test_unsigned_is_asked_for_by_name_and_warns() -> None:
    with pytest.warns(MastWarning, match="neither signed nor verified"):
        trust = Trust.unsigned(teams.TEAM, 1, range(3))
    node = teams.node(trust)
    node.on_datagram(0, sent(entry(2, 5, signer=0)), 5)
    assert teams.stamps(node.robot.known()) == {2: 5}
    node.control(7, np.zeros(4), (0.0, 0.0))
    data = dict(node.due(17, [2]))[2]
    other = teams.node(Trust(teams.team(4), 2, teams.key(2)))
    other.on_datagram(1, data, 20)
    assert other.counters.refused == {"bad signature": 1}


@posix
def test_a_team_on_disk(tmp_path: Path) -> None:
    folder = tmp_path / "team"
    team = new_team(folder, 3)
    assert sorted(team.robots) == [0, 1, 2] and Team.load(folder) == Team.load(folder / "team.json") == team
    assert (folder / "keys").stat().st_mode & 0o777 == 0o700
    assert [key_file(folder, i).stat().st_mode & 0o777 for i in range(3)] == [0o600] * 3
    trust = Trust.load(folder, 1)
    assert trust.verify(1, b"words", trust.sign(b"words")) and not trust.verify(0, b"words", trust.sign(b"words"))
    assert not trust.verify(7, b"words", bytes(64)) and not trust.verify(1, b"words", b"short")
    team = add_robots(folder, 2)
    assert sorted(team.robots) == [0, 1, 2, 3, 4] and team.identity == Trust.load(folder, 4).team.identity
    assert revoke(folder, [1, 4]).revoked == {1, 4} == Team.load(folder).revoked
    assert sorted(add_robots(folder, 1).robots) == [0, 1, 2, 3, 4, 5]  # numbers are not used again
    for what, error in (
        (lambda: Trust.load(folder, 1), "robot 1 was revoked: the team has 0, 2, 3, 5"),
        (lambda: Trust.load(folder, 9, key_file(folder, 0)), "robot 9 is not in the team"),
        (lambda: Trust.load(folder, 0, key_file(folder, 2)), "the key is not that of robot 0"),
        (lambda: Trust.load(folder, 0, folder / "none.key"), "cannot read the key file"),
        (lambda: new_team(folder, 2), "holds a team already"),
        (lambda: revoke(folder, [9]), "robot 9 is not in the team: the team has 0 to 5"),
        (lambda: add_robots(folder, 0), "0 robots: expected 1 to"),
        (lambda: Team.load(tmp_path / "nothing"), "cannot read the team file"),
    ):
        with pytest.raises(MastError, match=error):
            what()


@posix
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    new_team(tmp_path, 1)
    file = key_file(tmp_path, 0)
    file.chmod(mode)
    with pytest.raises(MastError, match=f"others may use the key file .* \\(mode {mode:o}\\): chmod 600"):
        Trust.load(tmp_path, 0)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"team": "00", "robots": {}, "revoked": []}',
        '{"team": "0011223344556677", "robots": {"0": "aa"}, "revoked": []}',
        '{"team": "0011223344556677", "robots": {"x": "aa"}, "revoked": []}',
        '{"team": "0011223344556677", "robots": {}, "revoked": [3]}',
        '{"team": "0011223344556677", "robots": [], "revoked": []}',
    ],
)
def test_what_is_no_team_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "team.json").write_text(text)
    with pytest.raises(MastError, match="is no team file"):
        Team.load(tmp_path)


def test_what_is_no_key(tmp_path: Path) -> None:
    new_team(tmp_path, 1)
    key_file(tmp_path, 0).write_text("-----BEGIN PRIVATE KEY-----\nnothing\n")
    with pytest.raises(MastError, match="is no Ed25519 key"):
        Trust.load(tmp_path, 0)


def test_stamps_grow_whatever_the_clock_does(tmp_path: Path) -> None:
    file = tmp_path / "stamp"
    stamps = Stamps(file, ahead=100)
    assert [stamps.next(now) for now in (5, 5, 4, 50, 49)] == [5, 6, 7, 50, 51]
    assert int(file.read_text()) == 105
    with pytest.raises(MastError, match="another process uses"):
        Stamps(file)
    os.close(stamps._lock or 0)  # it crashes here, and its clock goes back
    again = Stamps(file, ahead=100)
    assert again.next(3) == 106 and again.next(1000) == 1000
    again.close()
    again.close()
    assert int(file.read_text()) == 1000  # a good end gives back what was not used
    for text in ("no number", "", str(1 << 64), "-5"):
        file.write_text(text)
        with pytest.raises(MastError, match="cannot be read: if it is lost, write the time"):
            Stamps(file)
    with pytest.raises(MastError, match="cannot write"):
        Stamps(tmp_path / "none" / "stamp")


def test_a_slow_disk_does_not_hold_a_robot_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = Stamps(tmp_path / "stamp", ahead=1000)
    assert stamps.next(0) == 0  # nothing is reserved yet: it waits for the disk
    write = stamps_module.write_whole

    def slow(file: Path, text: str, mode: int) -> None:
        time.sleep(2.0)
        write(file, text, mode)

    monkeypatch.setattr(stamps_module, "write_whole", slow)
    began = time.monotonic()
    assert [stamps.next(now) for now in (400, 600, 700, 1000)] == [400, 600, 700, 1000]
    assert time.monotonic() - began < 1.5
    assert stamps.next(1001) == 1001 and int((tmp_path / "stamp").read_text()) >= 1001  # used up: it waits again
    stamps.close()
    assert int((tmp_path / "stamp").read_text()) == 1001


def test_stamps_that_are_far_ahead_of_the_clock_are_spoken_of() -> None:
    said: list[str] = []
    node = receiver(say=said.append)
    hour = 3600 * 10**9
    for now in (2 * hour, hour, hour + 1):  # an hour too late for a moment
        node.control(now, np.zeros(4), (0.0, 0.0))
    assert len(said) == 1 and said[0].startswith("the stamps of robot 1 are 3600 s ahead of its clock")


def test_stamps_survive_a_kill(tmp_path: Path) -> None:
    """A process that is killed at any moment has never used a stamp that its successor uses."""
    script = (
        "import sys; from mast_swarm.robot import Stamps; stamps = Stamps(sys.argv[1], ahead=7)\n"
        "for now in range(10**9): print(stamps.next(now // 3), flush=True)"
    )
    last = -1
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", script, tmp_path / "stamp"], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        used = [int(process.stdout.readline()) for _ in range(100)]
        process.kill()
        used += [int(line) for line in process.stdout.read().split("\n")[:-1] if line]
        process.wait()
        process.stdout.close()
        assert used == sorted(set(used)) and used[0] > last
        last = used[-1]


def test_a_disk_that_fails_on_the_way_is_spoken_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    stamps, too_far = Stamps(tmp_path / "stamp", ahead=1), Stamps(tmp_path / "other", ahead=10**10)
    node = receiver(stamps=stamps, say=said.append)

    def full(*given: Any) -> None:
        raise MastError("cannot write stamp: no space left")

    monkeypatch.setattr("mast_swarm.robot.stamps.write_whole", full)
    for now in (5, 10, 15):
        node.control(now, np.zeros(4), (0.0, 0.0))
    assert said == ["cannot write stamp: no space left"] and teams.stamps(node.robot.known()) == {1: 15}
    stamps.close()  # no error hides why a robot stops, and another process may be this robot
    with pytest.raises(MastError, match="no space left"):
        Stamps(tmp_path / "stamp")
    monkeypatch.undo()
    Stamps(tmp_path / "stamp").close()
    with pytest.raises(MastError, match="reserved 10000000000 ticks ahead: expected less than the skew"):
        receiver(stamps=too_far)


@posix
def test_the_command_team(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "swarm"
    assert mast("team", "new", folder, "--robots", 3) == 0
    identity = Team.load(folder).identity.hex()
    out = capsys.readouterr().out
    assert f"team {identity}: 3 robots" in out and "keys/robot-2.key" in out
    assert mast("team", "add", folder, "--robots", 2) == 0
    assert "new: 3, 4" in capsys.readouterr().out
    assert mast("team", "revoke", folder, 1, 3) == 0
    assert mast("team", "show", folder) == 0
    shown = capsys.readouterr().out
    assert "5 robots, 2 revoked" in shown and shown.count("  revoked\n") == 2
    assert str(Team.load(folder).robots[4].hex()) in shown
    for args, message in (
        (("new", folder, "--robots", 2), "holds a team already"),
        (("revoke", folder, 9), "robot 9 is not in the team"),
        (("show", tmp_path / "none"), "cannot read the team file"),
        (("mew", folder), "unknown team command 'mew': did you mean new"),
        (("add", folder, "--robots", "x"), "argument --robots: invalid int value: 'x'; `mast team add --help`"),
        (("revoke", folder), "the following arguments are required: NUMBER; `mast team revoke --help`"),
    ):
        assert mast("team", *args) == 2
        assert message in one_line(capsys)
    assert mast("team", "--help") == 0 and mast("team", "new", "--help") == 0


@pytest.mark.parametrize(
    ("module", "use", "line"),
    [
        ("cryptography", "new_team('x', 1)", "keys need|signatures need"),
        ("zenoh", "Zenoh(0, b'12345678', listen=['tcp/127.0.0.1:0'])", "the transport Zenoh needs"),
    ],
)
def test_a_missing_extra_is_one_clear_line(tmp_path: Path, module: str, use: str, line: str) -> None:
    script = (
        f"import sys; sys.modules['{module}'] = None\n"
        "from mast_swarm.robot import *\nfrom mast_swarm.robot.trust import new_team\n"
        "from mast_swarm.errors import MastError\n"
        f"try: {use}\nexcept MastError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    start, end = done.stdout.strip().split(" the package ")
    assert start in line.split("|") and end.endswith("pip install 'mast-swarm[robot]'")


def test_signed_robots_do_not_warn() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        receiver().control(0, np.zeros(4), (0.0, 0.0))
