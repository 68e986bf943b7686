"""`mast robot`: one robot alone, without torch, with a body from a file; and what is said of mistakes."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mast_swarm.errors import MastError
from mast_swarm.robot.command import _changes, address, endpoint
from mast_swarm.robot.trust import Team, new_team
from shared import free_ports, mast, one_line

BODY = '''
import atexit
import threading
import time
import numpy as np
from mast_swarm.robot import Sensed

class Written:
    """Writes what it is told to a file."""
    def __init__(self, robot, file):
        self.robot, self.file = robot, file
    def sense(self):
        return Sensed((10.0 * self.robot, 0.0), np.zeros(14, np.float32), landmark=(30.0, 0.0))
    def command(self, velocity):
        with open(self.file, "a") as file:
            print(*velocity, file=file)

class Half(Written):
    """Fails to be made when a thread of its own runs already."""
    def __init__(self, robot, file):
        super().__init__(robot, file)
        threading.Thread(target=time.sleep, args=(60,)).start()
        atexit.register(print, "motors off")
        raise RuntimeError("boom")

class Absent(Written):
    def sense(self):
        return None
    def waits_for(self):
        return "no satellite"

class Closing(Written):
    def close(self):
        self.command(["closed"])

class Lost(Written):
    def sense(self):
        return Sensed((float("nan"), 0.0), np.zeros(14, np.float32))
'''
# torch is not installed on robots, nor is what the command line of the whole package needs.
WITHOUT = """
import sys
for name in ("torch", "tyro", "rich", "scipy", "numba", "pyarrow", "matplotlib", "safetensors"):
    sys.modules[name] = None
from mast_swarm.robot.command import program
program()
"""


@pytest.fixture(scope="module")
def team(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("cryptography", reason="keys need the package cryptography")
    folder = tmp_path_factory.mktemp("team") / "team"
    new_team(folder, 3)
    return folder


@pytest.fixture
def body(tmp_path: Path) -> Path:
    (tmp_path / "body.py").write_text(BODY)
    return tmp_path / "body.py"


def arguments(
    folder: Path, body: Path, robot: int, ports: list[int], *more: object, kind: str = "Written"
) -> list[str]:
    file = body.with_name(f"told-{robot}.txt")
    peers = [f"--peer={other}=127.0.0.1:{port}" for other, port in enumerate(ports) if other != robot]
    given = [folder, "--robot", robot, f"--body={body}:{kind}", f"--body-option=file={file}"]
    return [str(one) for one in (*given, f"--listen=127.0.0.1:{ports[robot]}", *peers, *more)]


def started(args: list[str]) -> subprocess.Popen[str]:
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-c", WITHOUT, *args], **pipes)


def test_two_robots_run_without_torch_and_stand_still_on_a_signal(
    exported_folder: Path, team: Path, body: Path
) -> None:
    ports = free_ports(2)
    rest = ("--team", team, "--rate", 10, "--hop", 0.05)
    processes = [started(arguments(exported_folder, body, robot, ports, *rest)) for robot in (0, 1)]
    files = [body.with_name(f"told-{robot}.txt") for robot in (0, 1)]
    ends = time.monotonic() + 60
    while time.monotonic() < ends and not all(f.exists() and len(f.read_text().splitlines()) > 5 for f in files):
        time.sleep(0.1)
    for process, sent in zip(processes, (signal.SIGTERM, signal.SIGINT), strict=True):
        process.send_signal(sent)
    for robot, process in enumerate(processes):
        out, err = process.communicate(timeout=20)
        assert process.returncode == 0, err
        assert out.startswith(f"robot {robot}: exported") or "decisions per second" in out
        assert err == f"robot {robot} stops: {('SIGTERM', 'SIGINT')[robot]}\n"
        commands = [[float(part) for part in line.split()] for line in files[robot].read_text().splitlines()]
        assert commands[-1] == [0.0, 0.0] and any(x or y for x, y in commands[:-1])
        assert max(x * x + y * y for x, y in commands) <= 25 + 1e-6
    assert (team / "robot-0.stamp").exists()


def test_the_example_of_a_body(exported_folder: Path, team: Path, tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "body.py"
    (port,) = free_ports(1)
    options = f"--body-option policy={exported_folder} --body-option yard={tmp_path}/yard"
    given = f"--robot 2 --body {example}:MyRobot {options} --listen 127.0.0.1:{port}"
    process = started([str(exported_folder), *given.split(), "--team", str(team), "--rate", "20"])
    assert process.stdout is not None and "20 decisions per second" in process.stdout.readline()
    time.sleep(1)
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert process.returncode == 0 and err == "robot 2 stops: SIGTERM\n"
    assert re.fullmatch(r"\d+\.\d m from goal \d\n", out)
    assert not list((tmp_path / "yard").iterdir())


def test_a_body_that_returns_nan(exported_folder: Path, team: Path, body: Path) -> None:
    process = started(arguments(exported_folder, body, 0, free_ports(1), "--team", team, kind="Lost"))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err == "mast: robot 0 stops: its body gives position with NaN or infinity\n"
    assert body.with_name("told-0.txt").read_text() == "0.0 0.0\n"


def test_a_body_that_fails_while_its_threads_run_ends_the_process(
    exported_folder: Path, team: Path, body: Path
) -> None:
    process = started(arguments(exported_folder, body, 0, free_ports(1), "--team", team, kind="Half"))
    out, err = process.communicate(timeout=30)  # less than its thread runs
    assert process.returncode == 2 and err == "mast: the body Half cannot be made: boom\n" and out == "motors off\n"


def test_a_body_is_closed_if_its_robot_cannot_start(
    exported_folder: Path, team: Path, body: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = free_ports(1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as used:
        used.bind(("127.0.0.1", ports[0]))
        assert mast("robot", *arguments(exported_folder, body, 0, ports, "--team", team, kind="Closing")) == 2
    assert "give another address" in one_line(capsys)
    assert body.with_name("told-0.txt").read_text() == "closed\n"


def test_a_body_that_never_senses_is_told_of(exported_folder: Path, team: Path, body: Path) -> None:
    rest = ("--team", team / "team.json", "--rate", 10, "--patience", 0.3)  # the key lies beside the file
    process = started(arguments(exported_folder, body, 0, free_ports(2), *rest, kind="Absent"))
    assert process.stderr is not None and process.stdout is not None
    assert "talks to robot 1, 10 decisions" in process.stdout.readline()
    assert "robot 0: its body has sensed nothing yet, for 0 s (no satellite): it stands" in process.stderr.readline()
    process.terminate()
    assert process.communicate(timeout=20)[1] == "robot 0 stops: SIGTERM\n"
    assert body.with_name("told-0.txt").read_text() == "0.0 0.0\n"


def test_unsigned_has_to_be_asked_for_and_warns(exported_folder: Path, body: Path) -> None:
    process = started(arguments(exported_folder, body, 0, free_ports(1), "--unsigned", kind="Lost"))
    warned, stops = process.communicate(timeout=60)[1].splitlines()
    assert warned.startswith("mast: warning: messages are neither signed nor verified")
    assert stops.startswith("mast: robot 0 stops: its body gives position with NaN")


def test_mistakes_end_in_one_line(
    exported_folder: Path, team: Path, body: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ports = free_ports(2)

    def said(*more: object, robot: int = 0, folder: Path = exported_folder, kind: str = "Written") -> str:
        assert mast("robot", *arguments(folder, body, robot, ports, *more, kind=kind)) == 2
        return one_line(capsys)

    assert "give --team DIR" in said()
    assert "unrecognized arguments: --tame; `mast robot --help` shows all" in said("--tame")
    assert "give one of the two" in said("--team", team, "--unsigned")
    assert "no team file" in said("--team", body) or "cannot read the team file" in said("--team", tmp_path / "none")

    other = tmp_path / "team"
    shutil.copytree(team, other)
    key = other / "keys" / "robot-0.key"
    key.chmod(0o644)
    assert f"chmod 600 {key}" in said("--team", other)
    key.unlink()
    assert f"cannot read the key file {key}" in said("--team", other)
    new_team(tmp_path / "strangers", 3)
    wrong = tmp_path / "strangers" / "keys" / "robot-0.key"
    assert "the key is not that of robot 0" in said("--team", team, "--key", wrong)
    absent = "robot 7 is not in the team: the team has 0 to 2"
    assert absent in said("--team", team, "--peer", f"7=127.0.0.1:{ports[1]}")
    assert absent in said("--team", team, "--robot", 7)
    assert "robot 0 is among its own peers" in said("--team", team, "--peer", "0=127.0.0.1:9")

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as used:
        used.bind(("127.0.0.1", ports[0]))
        taken = f"robot 0 cannot listen at 127.0.0.1:{ports[0]}: Address already in use; give another"
        assert taken in said("--team", team)
    pytest.importorskip("zenoh", reason="the transport Zenoh needs the package eclipse-zenoh")
    with socket.socket() as used:
        used.bind(("127.0.0.1", ports[0]))
        used.listen()
        zenoh = said("--team", team, "--transport", "zenoh")
        assert "robot 0 cannot open Zenoh" in zenoh and "(--listen)" in zenoh and ".rs" not in zenoh
    assert "of robot 2 is unknown" in said("--team", team, "--peer", "2=no.such.host.invalid:7000")
    assert "'nowhere' is no address" in said("--team", team, "--listen", "nowhere")
    assert "expected NUMBER=HOST:PORT" in said("--team", team, "--peer", "two=127.0.0.1:9")
    assert "robot 1 was given already" in said("--team", team, "--peer", "1=127.0.0.1:9")
    assert "rate is -1.0" in said("--team", team, "--rate", -1)
    assert "rate is 0.0" in said("--team", team, "--rate", 0)
    assert "are to stay -1.0 m apart" in said("--team", team, "--safe", -1)
    assert "--map-middle 5: expected X,Y in metres" in said("--team", team, "--map-middle", 5)
    assert "expected NAME=VALUE" in said("--team", team, "--body-option", "nothing")
    assert "unknown body in" in said("--team", team, kind="Writen")
    assert "cannot be made" in said("--team", team, "--body-option", "colour=red")
    assert "manifest.json" in said("--team", team, folder=tmp_path / "none")

    lpac = tmp_path / "lpac"
    shutil.copytree(exported_folder, lpac)
    manifest = json.loads((lpac / "manifest.json").read_text())
    manifest |= {"kind": "lpac", "functions": {"perceive": {}}, "exchange": {"floats": 3174}}
    (lpac / "manifest.json").write_text(json.dumps(manifest))
    assert "a policy of kind lpac is not run on robots" in said("--team", team, folder=lpac)

    (tmp_path / "body.py").write_text("import nothing_of_that_name")
    assert "cannot be used: ModuleNotFoundError" in said("--team", team)
    os.remove(tmp_path / "body.py")
    assert "there is no file" in said("--team", team)


def test_addresses() -> None:
    assert address("a.b:70") == ("a.b", 70) and address("[::1]:7000") == ("::1", 7000)
    assert endpoint("a:70") == "tcp/a:70" and endpoint("tls/a:70") == "tls/a:70"


def test_a_team_file_that_changes_is_noticed_once(tmp_path: Path) -> None:
    new_team(tmp_path / "team", 3)
    for given in (tmp_path / "team", tmp_path / "team" / "team.json"):
        changed = _changes(str(given))
        assert changed() is None
        team = Team.load(given)
        replace(team, revoked=team.revoked | {len(team.revoked)}).save(tmp_path / "team" / "team.json")
        assert changed() == Team.load(given) and changed() is None
    (tmp_path / "team" / "team.json").write_text("half")
    with pytest.raises(MastError, match="is no team file"):
        changed()
    assert changed() is None and _changes(None)() is None
