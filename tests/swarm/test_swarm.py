"""Swarms of processes: what they write, real kills, late joins, splits, and that nobody is left behind."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from mast_swarm import Channel, Navigation, NavigationConfig, Policy, PolicyConfig, rollout
from mast_swarm.evaluate.recording import Recording
from mast_swarm.interop.onnx import export
from mast_swarm.robot.simulated import Frames, frame
from mast_swarm.swarm.arena import Arena
from mast_swarm.swarm.config import SwarmConfig
from mast_swarm.swarm.fleet import Fleet
from mast_swarm.swarm.run import swarm
from mast_swarm.swarm.table import table
from shared import mast, one_line

pytest.importorskip("onnxruntime", reason="robots run their policies in onnxruntime")
pytest.importorskip("cryptography", reason="messages are signed by the package cryptography")


def config(policy: Path, out: Path, **settings: Any) -> SwarmConfig:
    given: dict[str, Any] = {"robots": 3, "steps": 6, "rate": 2.0, "out": out} | settings
    return SwarmConfig(NavigationConfig(), "navigation", str(policy), **given)


def robots_of(parent: int) -> list[int]:
    """The processes of robots that a process has started, or that have lost it."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            above = int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1])
        except (OSError, IndexError):
            continue
        if b"mast_swarm.robot.simulated" in words and above == parent:
            found.append(int(folder.name))
    return found


def running(process: int) -> bool:
    try:
        return (Path("/proc") / str(process) / "stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def test_a_swarm_does_what_the_simulation_does(exported_folder: Path, policy_folder: Path, tmp_path: Path) -> None:
    chosen = config(exported_folder, tmp_path / "out")
    folder, found = swarm(chosen)
    assert found == json.loads((folder / "summary.json").read_text())
    assert (
        found["complete"]
        and found["signed"]
        and found["robots"]
        == {
            "started": 3,
            "joined": 0,
            "alive": 3,
            "killed": [],
            "stopped": {},
        }
    )
    deadlines = found["deadlines"]
    assert 3 <= deadlines["met"] + deadlines["missed"] <= 3 * 6  # less than all where the machine was too busy at first
    assert found["bytes_per_robot_and_second"] > 100 and found["messages_refused"] == {}
    assert set(found["messages_known_already"]) == {"duplicate", "old stamp", "own origin"}
    recording = Recording.load(next(folder.glob("recording-*.npz")))
    assert recording.positions.shape == (7, 3, 2) and recording.frames["used"].any()
    if deadlines["met"] == 3 * 6 and not deadlines["late_at_the_world"]:
        seed, scenario = chosen.start()
        world = Navigation(NavigationConfig(agents=3))
        ran = rollout(world, str(policy_folder), [seed], 6, channel=Channel(delay=1.0), scenarios=[scenario], record=1)
        # As float16 rounds messages, and unless a message came too late for its round.
        apart = np.abs(recording.positions - ran.recordings[0].positions).max()
        assert apart < 0.5, apart
    rows = pq.read_table(folder / "robots.parquet").to_pylist()
    assert {row["robot"] for row in rows} == {0, 1, 2} and {row["t"] for row in rows} >= {0.0, 5.0}
    assert pq.read_table(folder / "steps.parquet").num_rows == 7
    assert '"status"' in (folder / "replay.html").read_text()


def test_a_swarm_with_a_map_searches(tmp_path: Path) -> None:
    """Robots that are left idle hand each other their maps, and do what the simulation does."""
    fields = {"task": "navigation", "layers": 2, "heads": 2, "head_dim": 8, "attention_radius": 150.0}
    policy = Policy(PolicyConfig(**fields, exploration_time=20.0, exploration_survey=25.0), seed=3)
    policy.head[2].bias.data[2] = 1.0  # untrained, it would have all stand still
    policy.save(tmp_path / "policy")
    export(tmp_path / "policy", tmp_path / "exported")
    chosen = config(tmp_path / "exported", tmp_path / "out", robots=4)
    folder, found = swarm(chosen)
    assert found["complete"] and found["messages_refused"] == {} and found["robots"]["alive"] == 4
    assert any(pq.read_table(folder / "robots.parquet")["searching"].to_pylist())
    deadlines = found["deadlines"]
    if deadlines["met"] == 4 * 6 and not deadlines["late_at_the_world"]:
        seed, scenario = chosen.start()
        world = Navigation(NavigationConfig(agents=4))
        given = [seed], 6
        ran = rollout(world, policy, *given, channel=Channel(delay=1.0), scenarios=[scenario], record=1)
        recording = Recording.load(next(folder.glob("recording-*.npz")))
        apart = np.abs(recording.positions - ran.recordings[0].positions).max()
        assert apart < 0.5, apart  # as float16 rounds messages


def test_a_world_that_wakes_late_is_not_seen_standing_still(
    exported_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who asks after an instant that the world has slept through is answered after the world has moved."""
    listen, sensed, move = Fleet.listen, Arena.sensed, Arena.move
    seen: list[tuple[int, int]] = []
    moves: list[None] = []

    def listen_late(fleet: Fleet, until: float) -> None:
        if not fleet._selector.select(max(0.0, until - time.monotonic())):
            time.sleep(0.1)  # long enough for all robots to ask
        listen(fleet, max(until, time.monotonic() + 0.001))

    def note(arena: Arena, robot: int) -> Any:
        seen.append((robot, len(moves)))
        return sensed(arena, robot)

    def count(arena: Arena) -> None:
        moves.append(None)
        move(arena)

    monkeypatch.setattr(Fleet, "listen", listen_late)
    monkeypatch.setattr(Arena, "sensed", note)
    monkeypatch.setattr(Arena, "move", count)
    _, found = swarm(config(exported_folder, tmp_path / "out"))
    assert found["complete"] and len(seen) >= 3 * 3
    assert len(seen) == len(set(seen)), seen


def test_with_the_safety_layer_nobody_is_hit(exported_folder: Path, tmp_path: Path) -> None:
    crowd = SwarmConfig(
        NavigationConfig(width=24.0), "navigation", str(exported_folder), robots=5, steps=6, rate=2.0, safe=True
    )
    folder, found = swarm(replace(crowd, out=tmp_path / "out"))
    places = Recording.load(next(folder.glob("recording-*.npz"))).positions.astype(np.float64)
    apart = np.linalg.norm(places[:, :, None] - places[:, None], axis=-1)[:, *np.triu_indices(5, 1)]
    assert found["safe"] and apart.min() < 15  # within the sensing radius: the layer has something to do
    if not found["deadlines"]["late_at_the_world"]:  # else a robot went on as before, on a busy machine
        assert apart.min() >= 5.0
    assert np.abs(np.diff(places, axis=0)).max() > 0.1  # they do move


@pytest.mark.slow
def test_kills_joins_and_splits(exported_folder: Path, tmp_path: Path) -> None:
    steps: list[tuple[float, int]] = []

    shown: dict[float, str] = {}

    def show(log: Any) -> None:
        steps.append((log.time, int(log.arena.hears.sum())))
        console = Console(width=100, file=io.StringIO())
        console.print(table(log))
        shown[log.time] = console.file.getvalue()  # type: ignore[attr-defined]
        if log.time == 16:
            os.kill(robots_of(os.getpid())[0], signal.SIGTERM)

    chosen = config(
        exported_folder, tmp_path / "out", robots=5, steps=24, kill=("2@4",), join=("1@1",), partition=("10:14",)
    )
    folder, found = swarm(chosen, show=show)
    killed = found["robots"]["killed"]
    assert len(killed) == 2 and (found["robots"]["joined"] == 1 or 5 in killed)  # maybe before its first step
    assert found["robots"]["alive"] == 3, found["robots"]
    ((robot, end),) = found["robots"]["stopped"].items()
    assert end["why"].startswith(f"robot {robot} stops: SIGTERM") and 16 <= end["t"] < 24
    recording = Recording.load(next(folder.glob("recording-*.npz")))
    status = recording.frames["status"]
    assert (status[0] == [1, 1, 1, 1, 1, 0]).all() and sorted(status[-1]) == [1, 1, 1, 2, 2, 2]
    dead = found["robots"]["killed"]
    assert (recording.positions[5:, dead] == recording.positions[5, dead]).all()  # they stand where they died
    assert not recording.frames["used"][6:, dead].any()  # and hear nothing
    hears = dict(steps)
    assert "split since 10 s" in shown[10.0] and "until 14 s" in shown[13.0] and "since" not in shown[14.0]
    assert "split" not in shown[9.0] and "split, 10 s" in shown[14.0]
    assert hears[0.0] > 0 and max(hears[float(t)] for t in range(10, 14)) < hears[0.0]
    assert not robots_of(os.getpid())


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_nobody_is_left_behind(exported_folder: Path, tmp_path: Path, sent: signal.Signals) -> None:
    args = [
        "swarm",
        "--policy",
        exported_folder,
        "--robots",
        2,
        "--rate",
        4,
        "--steps",
        1000,
        "--out",
        tmp_path / "out",
    ]
    # A shell that runs this in the background may have turned Ctrl-C off.
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from mast_swarm.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, *map(str, args)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ends = time.monotonic() + 90
    while time.monotonic() < ends and len(robots := robots_of(process.pid)) < 2:
        time.sleep(0.05)
    while time.monotonic() < ends and not (tmp_path / "out" / "config.json").exists():
        time.sleep(0.05)
    if sent != signal.SIGKILL:
        time.sleep(3)  # into the mission
    process.send_signal(sent)
    _, err = process.communicate(timeout=60)
    status = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -signal.SIGKILL}
    assert process.returncode == status[sent], err
    if sent != signal.SIGKILL:
        assert re.fullmatch(rf"mast: interrupted; what happened until \d+ s is in {tmp_path}/out\n", err)
    while time.monotonic() < ends and any(map(running, robots)):
        time.sleep(0.05)
    assert len(robots) == 2 and not any(map(running, robots))
    if sent != signal.SIGKILL:
        assert "interrupted" in err and err.count("\n") == 1
        assert json.loads((tmp_path / "out" / "summary.json").read_text())["complete"] is False


def test_over_zenoh(exported_folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("zenoh", reason="the transport Zenoh needs the package eclipse-zenoh")
    _, found = swarm(config(exported_folder, tmp_path / "out", robots=2, steps=8, transport="zenoh"))
    assert found["transport"] == "zenoh" and found["news_age_s"]["mean"] > 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--robots", "0"], "--robots is 0"),
        (["--agents", "4"], "has --robots in place of --agents"),
        (["--rate", "0"], "--rate is 0.0"),
        (["--delay", "-1"], "--delay is -1.0"),
        (["--loss", "2"], "--loss is 2.0"),
        (["--kill", "3"], "--kill 3: expected COUNT@SECONDS"),
        (["--kill", "16@5"], "--kill leaves nobody alive at 5 s"),
        (["--join", "0@5"], "--join 0@5: expected COUNT@SECONDS"),
        (["--partition", "80:40"], "--partition 80:40: FROM has to be smaller than TO, as 40:80"),
        (["--partition", "80"], "--partition 80: expected FROM:TO"),
        (["--partition", "200:300"], "--partition 200:300: the mission ends at 200 s: give an earlier time"),
        (["--kill", "1@50", "--steps", "3"], "--kill 1@50: the mission ends at 3 s: give an earlier time"),
        (["--join", "1@3", "--steps", "3"], "--join 1@3: the mission ends at 3 s"),
        (["--policy", "coverage/mast-m"], "was trained for coverage, not for navigation: give --task coverage"),
        (["--task", "coverage", "--policy", "lpac-k3"], "a policy of kind lpac is not run on robots"),
        (["--policy", "mast-m", "--out", "{used}"], "is already used: give another --out"),
        (["--robots", "400", "--join", "200@5"], "600 robots in all"),
        (["--task", "coverage", "--policy", "{folder}"], "was trained for navigation, not for coverage"),
        (["--task", "coverage", "--safe"], "--safe needs to know how large robots are"),
        (["--policy", "mast-x"], "unknown policy 'mast-x'"),
        (["--policy", "{folder}", "--out", "{used}"], "is already used: give another --out"),
    ],
)
def test_mistakes_end_in_one_line(
    args: list[str],
    said: str,
    exported_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "file").touch()
    names = {"{folder}": str(exported_folder), "{used}": str(tmp_path / "used")}
    monkeypatch.chdir(tmp_path)
    assert mast("swarm", *(names.get(arg, arg) for arg in args)) == 2
    assert said in one_line(capsys) and not (tmp_path / "runs").exists()  # refused before anything is exported


def test_a_robot_that_cannot_start_says_why(exported_folder: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for file in exported_folder.iterdir():
        (broken / file.name).write_bytes(file.read_bytes())
    (broken / "decide.onnx").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=re.escape("decide.onnx' is not the file that manifest.json describes")):
        swarm(config(broken, tmp_path / "out", robots=2))
    assert not robots_of(os.getpid())


def test_frames_are_put_together_from_pieces() -> None:
    whole = frame({"a": 1}, b"xyz") + frame({"b": [2]})
    frames, found = Frames(), []
    for start in range(0, len(whole), 3):
        found += list(frames.feed(whole[start : start + 3]))
    assert found == [({"a": 1}, b"xyz"), ({"b": [2]}, b"")]
