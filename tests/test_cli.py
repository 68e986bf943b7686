"""The command line, as its users meet it: what it prints, how it ends, what it leaves on disk."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from rich.console import Console

import mast_swarm
from mast_swarm.cli import main
from mast_swarm.cli.reading import grouped, option
from mast_swarm.cli.verbs import TOPICS
from mast_swarm.errors import MastError
from mast_swarm.interop.episodes import Episodes
from mast_swarm.swarm.config import swarm_defaults
from mast_swarm.tasks.registry import find
from mast_swarm.view.terminal import result_table
from shared import mast, one_line, use_zoo
from strolling import own_tasks

SMALL = ["--agents", "8", "--episodes", "4", "--steps", "12", "--device", "cpu"]

RECIPES = "task navigation has paper, search, best, wide, sharp, tiny"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory, policy_folder: Path) -> Path:
    """Results of one evaluation with recordings."""
    out = tmp_path_factory.mktemp("runs") / "nested" / "r"
    given = ("--policy", "lsap", policy_folder, "dhba-1", "--delay", 1, "--record", 2, "--out", out)
    assert mast("evaluate", "navigation", *SMALL, *given) == 0
    return out


def test_evaluate_writes_what_it_says(recorded: Path) -> None:
    assert {path.name for path in recorded.iterdir() if path.suffix != ".npz"} == {
        "config.json",
        "episodes.parquet",
        "summary.json",
        "curves.png",
        "frames.png",
        "replay.html",
    }
    summary = json.loads((recorded / "summary.json").read_text())
    assert summary["complete"] is True
    # In the order of the command line, whatever the alphabet says.
    assert list(dict.fromkeys(row["policy"] for row in summary["rows"])) == ["lsap", "small", "dhba-1"]
    page = (recorded / "replay.html").read_text()
    assert [page.index(f'"policy":"{name}"') for name in ("lsap", "small", "dhba-1")] == sorted(
        page.index(f'"policy":"{name}"') for name in ("lsap", "small", "dhba-1")
    )


def test_evaluate_prints_the_table_and_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--policy", "dhba-0", "lsap", "--scenario", "text:MAST"]
    assert mast("evaluate", "navigation", *SMALL, *args, "--out", tmp_path / "r") == 0
    out = capsys.readouterr().out
    assert out.index("│ dhba-0 ") < out.index("│ lsap ") and "t = 12 s" in out
    assert "success rate (mean)" in out and "±" not in out  # four episodes say little of the spread
    for what, name in (("tables", "episodes.parquet"), ("summary", "summary.json"), ("curves", "curves.png")):
        assert f"{what}: {tmp_path / 'r' / name}\n" in out
    assert "replay" not in out


def test_replays_are_of_known_kinds(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("replay", recorded, "--out", tmp_path / "one.avi") == 2
    assert "one.avi is no kind of file that a replay can be: give one of .html, .gif, .mp4" in one_line(capsys)
    assert not (tmp_path / "one.avi").exists()


def test_replay_chooses_episode_policies_and_file(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "one.html"
    assert mast("replay", recorded, "--episode", 1, "--policy", "dhba-1", "lsap", "--out", page) == 0
    assert f"replay: {page}" in capsys.readouterr().out
    text = page.read_text()
    assert '"seed 1"' in text and '"policy":"small"' not in text
    assert text.index('"policy":"dhba-1"') < text.index('"policy":"lsap"')
    for args, message in (
        ((recorded, "--episode", 2), "no recording of episode 2: recorded: 0, 1"),
        ((recorded, "--policy", "lsp"), "unknown recorded policy 'lsp': did you mean lsap"),
        ((recorded, "--out", page), "is already there"),
        ((recorded, "--out", tmp_path / "no" / "x.html"), "cannot write"),
        ((tmp_path / "nothing",), "is no folder"),
        ((tmp_path,), "none was recorded"),
    ):
        assert mast("replay", *args) == 2
        assert message in one_line(capsys)
    assert page.read_text() == text


def starts(path: Path, row: str) -> str:
    path.write_text(f"environment,kind,x,y\n0,robot,0,0\n{row}\n0,goal,9,9\n")
    return f"file:{path}"


BAD: list[tuple[list[str], str]] = [
    (["--policy", "lsapp"], "unknown policy 'lsapp': did you mean lsap"),
    (["--policy", "lsap", "lsap"], "given twice"),
    (["--policy", "runs/none/best"], "no policy folder 'runs/none/best'"),
    (["--scenario", "two-line"], "unknown scenario 'two-line': did you mean two-lines"),
    (["--scenario", "clusters-9"], "clusters of 9 but there are 8 robots"),
    (["--scenario", "clusters-0"], "'0' is not a cluster size"),
    (["--width", "20"], "too dense"),
    (["--scenario", "text:MAST", "--width", "15", "--separation", "5"], "too dense"),
    (["--agents", "0"], "agents is 0"),
    (["--delay", "-1"], "--delay is -1.0"),
    (["--delay", "nan"], "--delay is nan"),
    (["--loss", "0.5"], "give --delay too"),
    (["--delay", "1", "--loss", "nan"], "--loss is nan"),
    (["--dt", "nan"], "dt is nan"),
    (["--width", "inf"], "width is inf"),
    (["--steps", "0"], "--steps is 0"),
    (["--seed", "-1"], "--seed is -1"),
    (["--scenario", "file:/nowhere/starts.csv"], "cannot read start states from /nowhere/starts.csv"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_bad_input_is_one_line_and_leaves_nothing(
    args: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mast("evaluate", "navigation", *SMALL, *args, "--out", tmp_path / "r") == 2
    assert message in one_line(capsys)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,robot,1", "line 3: 3 columns"),
        ("0,robot,nan,1", "line 3: x,y is nan"),
        ("0,robt,2,1", "line 3: kind is 'robt'"),
        ("0,robot,a,1", "line 3: 'a,1' is not two numbers"),
        ("0,robot,1,1", "has 2 robots per environment but 8 were asked"),
    ],
)
def test_a_bad_row_of_start_states_is_named(
    row: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = starts(tmp_path / "starts.csv", row)
    assert mast("evaluate", "navigation", *SMALL, "--scenario", scenario, "--out", tmp_path / "r") == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "r").exists()


def test_later_start_states_are_tried_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`clusters` goes round pairs of sizes: the first one (uniform) fits here, that of five does not."""
    args = ("--agents", 40, "--width", 120, "--episodes", 9, "--steps", 2, "--out", tmp_path / "r")
    assert mast("evaluate", "navigation", *args) == 2
    assert "too dense" in one_line(capsys)
    assert not (tmp_path / "r").exists()


def test_files_give_start_states(tmp_path: Path) -> None:
    scenario = starts(tmp_path / "starts.csv", "0,goal,3,40")
    given = ("--agents", 1, "--episodes", 1, "--steps", 20, "--scenario", scenario, "--policy", "lsap")
    assert mast("evaluate", "navigation", *given, "--out", tmp_path / "r") == 0
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    last = [row for row in summary["rows"] if row["metric"] == "success_rate" and row["t"] == 20]
    assert last[0]["mean"] == 0.5 and last[0]["ci95"] is None  # one robot, two goals, one episode


@pytest.mark.parametrize("agents", [1, 2])
def test_small_teams(agents: int, tmp_path: Path, policy_folder: Path) -> None:
    given = ("--agents", agents, "--episodes", 3, "--steps", 4, "--delay", 0.5, "--record", 1)
    policies = ("--policy", "lsap", "dhba-8", policy_folder)
    assert mast("evaluate", "navigation", *given, *policies, "--out", tmp_path / "r") == 0
    assert (tmp_path / "r" / "replay.html").exists()


def test_a_policy_of_a_world_with_other_scales_says_so(
    tmp_path: Path, policy_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(policy_folder, tmp_path / "run" / "best")
    then = {"dt": 1.0, "max_speed": 2.0, "length_scale": 20.0, "agents": 500}
    (tmp_path / "run" / "config.json").write_text(json.dumps({"world": then}))
    given = (*SMALL, "--policy", "lsap", tmp_path / "run" / "best")
    assert mast("evaluate", "navigation", *given, "--out", tmp_path / "a") == 0
    told = "run/best learned in a world with other scales: give --max-speed 2.0 --length-scale 20.0 for that one\n"
    assert capsys.readouterr().err == told
    assert mast("evaluate", "navigation", *given, "--max-speed", 2, "--length-scale", 20, "--out", tmp_path / "b") == 0
    assert capsys.readouterr().err == ""


def test_a_delay_of_nobody_s_messages_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for policies, told in ((("dhba-1",), True), (("dhba-1", "dhba-1-relay"), False)):
        given = ("--policy", *policies, "--delay", 1, "--out", tmp_path / policies[-1])
        assert mast("evaluate", "navigation", *SMALL, *given) == 0
        assert ("--delay 1 changed nothing: no policy here" in capsys.readouterr().err) == told


def damage(folder: Path, how: str) -> None:
    """Spoil a policy folder."""
    weights, config = folder / "model.safetensors", folder / "config.json"
    if how == "truncated":
        weights.write_bytes(weights.read_bytes()[:-100])
    elif how == "no weights":
        weights.unlink()
    elif how == "no json":
        config.write_text("{")
    else:
        changes = {"other network": {"layers": 3}, "unknown key": {"layer": 2}, "other world": {"task": "coverage"}}
        config.write_text(json.dumps(json.loads(config.read_text()) | changes[how]))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("truncated", "truncated or no safetensors"),
        ("no weights", "model.safetensors"),
        ("no json", "is not JSON"),
        ("other network", "lacks tensor"),
        ("unknown key", "unknown config key 'layer': did you mean layers"),
        ("other world", "trained for coverage"),
    ],
)
def test_a_spoilt_policy_folder(
    how: str, message: str, policy_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(policy_folder, tmp_path / "p")
    damage(tmp_path / "p", how)
    given = ("--policy", "lsap", tmp_path / "p", "--out", tmp_path / "r")
    assert mast("evaluate", "navigation", *SMALL, *given) == 2
    assert message in one_line(capsys)
    assert not (tmp_path / "r").exists()


def test_folders_that_cannot_be_written_or_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "used").mkdir()
    (tmp_path / "used" / "notes.txt").write_text("mine")
    for out, message in (
        (tmp_path / "file" / "r", "cannot write to"),
        (tmp_path / "file", "cannot write to"),
        (tmp_path / "used", "already used"),
        (Path("/proc/mast/r"), "cannot write to"),
    ):
        assert mast("evaluate", "navigation", *SMALL, "--out", out) == 2
        assert message in one_line(capsys)
    assert mast("evaluate", "navigation", *SMALL, "--out", tmp_path / "used", "--resume") == 2
    assert "holds no stopped run" in one_line(capsys)
    assert (tmp_path / "file").read_text() == "mine"
    assert [path.name for path in (tmp_path / "used").iterdir()] == ["notes.txt"]


def test_unknown_words_name_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    for args, message in (
        (["evalute"], "unknown command 'evalute': did you mean evaluate"),
        (["evaluate", "navigaton"], "unknown task 'navigaton': did you mean navigation"),
        (["evaluate"], "needs a task: mast evaluate navigation"),
        (
            ["train", "navigation", "--recipe", "bset"],
            f"unknown recipe 'bset': {RECIPES}",
        ),
        (
            ["train", "navigation", "--recipe=bset"],
            f"unknown recipe 'bset': {RECIPES}",
        ),
        (["train", "--resume", "runs/x", "--lr", "1"], "no run in runs/x: nothing to resume"),
        (["train", "navigation", "--config", "runs/x.toml"], "cannot read runs/x.toml"),
        (["evaluate", "navigation", "--polcy", "lsap"], "unrecognized options: --polcy, lsap; did you mean --policy?"),
        (["evaluate", "navigation", "--agents", "many"], "error parsing --agents: invalid literal for int()"),
        (["evaluate", "navigation", "--precision", "fp8"], "invalid choice 'fp8' for argument '--precision'"),
        (["evaluate", "navigation", "--steps"], "missing value for argument '--steps'"),
        (["evaluate", "navigation", "lsap"], "unrecognized options: lsap; `mast evaluate navigation --help` shows all"),
        (["replay"], "FOLDER"),
    ):
        assert mast(*args) == 2
        assert message in one_line(capsys)


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert mast() == mast("--help") == 0
    assert "evaluate" in capsys.readouterr().out
    assert mast("--version") == 0
    assert capsys.readouterr().out.startswith("mast ")
    for args in (["evaluate"], ["evaluate", "navigation"], ["demo"], ["replay"], ["list"], ["train", "navigation"]):
        assert mast(*args, "--help") == 0
        assert f"usage: mast {args[0]}" in capsys.readouterr().out


@pytest.fixture
def navigation_zoo(tmp_path: Path, policy_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A zoo with one small policy that has learned nothing: navigation/mast-m-sharp."""
    shutil.copytree(policy_folder, tmp_path / "zoo" / "navigation" / "mast-m-sharp")
    use_zoo(monkeypatch, tmp_path / "zoo")


@pytest.mark.usefixtures("navigation_zoo")
def test_demo_replaces_its_own_folder_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    quick = ("--agents", 6, "--steps", 10, "--scenario", "clusters-1")
    assert mast("demo", *quick) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-3].startswith("mast-m-sharp reached ") and out[-2].startswith("dhba-8 reached ")
    assert out[-1] == f"open in a browser: {tmp_path / 'runs/demo/replay.html'}"
    made = (tmp_path / "runs/demo/replay.html").stat().st_mtime_ns
    assert mast("demo", *quick, "--seed", 1) == 0
    again = (tmp_path / "runs/demo/replay.html").stat().st_mtime_ns
    assert again > made
    capsys.readouterr()
    used = "runs/demo is already used: give another --out, or none for runs/demo, made anew each time\n"
    for args, message in ((("--scenario", "x"), "unknown scenario"), (("--out", "runs/demo"), used)):
        assert mast("demo", *args) == 2
        assert message in one_line(capsys)
    (tmp_path / "runs/demo/notes.txt").write_text("mine")
    assert mast("demo", *quick) == 2
    assert "holds notes.txt" in one_line(capsys)
    assert (tmp_path / "runs/demo/replay.html").stat().st_mtime_ns == again


@pytest.mark.usefixtures("navigation_zoo")
def test_demo_lets_every_robot_decide_alone(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()  # a folder that is empty is as good as none
    assert mast("demo", "--agents", 6, "--steps", 5, "--scenario", "clusters-1", "--out", tmp_path / "d") == 0
    rows = json.loads((tmp_path / "d" / "summary.json").read_text())["rows"]
    assert {(row["policy"], row["delay"]) for row in rows} == {("mast-m-sharp", 1.0), ("dhba-8", None)}


# Long enough to be caught in the middle, in parts short enough that something is finished by then.
LONG = ("--policy", "dhba-2", "lsap", "--agents", 40, "--episodes", 12, "--steps", 120, "--batch", 2, "--device", "cpu")


def started(out: Path) -> subprocess.Popen[str]:
    """A real process. Interrupts reach it even where the tests themselves run in the background."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "from mast_swarm.cli import main; main()"
    command = [sys.executable, "-c", code, "evaluate", "navigation", *map(str, LONG), "--out", str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def results(folder: Path) -> tuple[dict[str, Any], Any]:
    return json.loads((folder / "summary.json").read_text()), pq.read_table(folder / "episodes.parquet")


def test_an_evaluation_of_which_nothing_was_finished_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stopped(*given: Any, **settings: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mast_swarm.evaluate.run.rollout", stopped)
    given = ("--policy", "lsap", "--agents", 9, "--episodes", 2, "--steps", 2, "--out", tmp_path / "run")
    assert mast("evaluate", "navigation", *given) == 130
    assert one_line(capsys) == "mast: interrupted; nothing was finished yet, so nothing is kept\n"
    assert not (tmp_path / "run").exists()


def test_an_interrupt_as_results_are_joined_says_how_to_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: object) -> None:
        raise KeyboardInterrupt

    given = ("--policy", "lsap", "--agents", 9, "--episodes", 2, "--steps", 2, "--out", tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr("mast_swarm.evaluate.run.Results.finish", stopped)
        assert mast("evaluate", "navigation", *given) == 130
    assert f"what was finished is in {tmp_path / 'run'}, the same command with" in one_line(capsys)
    assert mast("evaluate", "navigation", *given, "--resume") == 0


def test_tables_are_printed_before_anything_is_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def undrawn(folder: Path) -> None:
        raise MastError("it cannot be drawn")

    monkeypatch.setattr("mast_swarm.view.report.report", undrawn)
    given = ("--policy", "lsap", "--agents", 9, "--episodes", 1, "--steps", 2, "--out", tmp_path / "run")
    assert mast("evaluate", "navigation", *given) == 2
    told = capsys.readouterr()
    assert "lsap" in told.out and told.err == "mast: it cannot be drawn\n"


def test_a_run_that_is_not_there_begins_anew_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--policy", "lsap", "--agents", 9, "--episodes", 1, "--steps", 2, "--out", tmp_path / "run", "--resume")
    told = f"{tmp_path / 'run'} is not there yet: the run begins anew"
    assert mast("evaluate", "navigation", *given) == 0 and told in capsys.readouterr().err
    assert mast("evaluate", "navigation", *given) == 0 and told not in capsys.readouterr().err


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Any]:
    folder = tmp_path_factory.mktemp("uninterrupted") / "r"
    assert mast("evaluate", "navigation", *LONG, "--out", folder) == 0
    return results(folder)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_stopped_evaluation_goes_on(how: signal.Signals, tmp_path: Path, uninterrupted: Any) -> None:
    out = tmp_path / "r"
    process = started(out)
    try:
        deadline = time.monotonic() + 60
        while len(list((out / "parts").glob("[0-9]*.parquet"))) < 2:
            assert process.poll() is None and time.monotonic() < deadline, process.communicate()
            time.sleep(0.002)
        process.send_signal(how)
        _, error = process.communicate(timeout=60)
    finally:
        process.kill()
    kept = len(list((out / "parts").glob("[0-9]*.parquet")))
    assert 2 <= kept < 12  # stopped in the middle
    if how != signal.SIGKILL:
        assert process.returncode == (130 if how == signal.SIGINT else 143)
        assert error == (
            f"mast: interrupted; what was finished is in {out}, the same command with --out {out} --resume goes on\n"
        )
        summary, table = results(out)
        assert summary["complete"] is False
        assert len(table) == kept * 2 * 121
        assert table.equals(uninterrupted[1].slice(0, len(table)))
    assert mast("evaluate", "navigation", *LONG, "--out", out, "--resume") == 0
    summary, table = results(out)
    assert summary == uninterrupted[0]
    assert table.equals(uninterrupted[1])


TOO_MANY = [
    (["--agents", "900000000"], "a world of 900,000,000 robots in 3,000,000 m would take"),
    (["--agents", "1000000"], "a step of 1,000,000 robots would take about 24 GB"),
    (["--agents", "10000", "--batch", "100"], "a step of 100 x 10,000 robots would take about 24 GB"),
    (["--agents", "20000", "--delay", "1"], "20,000 robots that each decide alone, which keep a table of all pairs,"),
    (["--agents", "3000", "--delay", "50"], "3,000 robots that each decide alone, which keep a table of all pairs,"),
]


@pytest.mark.parametrize(("extra", "told"), TOO_MANY)
def test_a_team_too_large_for_memory_is_refused_at_once(extra, told, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mast_swarm.evaluate.run.free_memory", lambda device: 16e9)
    args = ["evaluate", "navigation", "--policy", "mast-m", "--episodes", "100", "--device", "cpu"]
    with pytest.raises(SystemExit) as stopped:
        main([*args, *extra, "--out", str(tmp_path / "run")])
    assert stopped.value.code == 2 and told in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("delay", "helps"), [("1", True), ("1.5", False)])
def test_a_team_too_large_is_told_of_the_relay_radius_where_it_helps(delay, helps, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("mast_swarm.evaluate.run.free_memory", lambda device: 16e9)
    args = ["evaluate", "navigation", "--policy", "mast-m", "--agents", "20000", "--device", "cpu", "--delay", delay]
    with pytest.raises(SystemExit):
        main([*args, "--out", str(tmp_path / "run")])
    assert ("or --relay-radius auto, or leave --delay away" in capsys.readouterr().err) == helps


def test_options_are_found_before_they_are_parsed():
    assert option([], "--task") is None
    assert option(["--seed", "1", "--task", "coverage"], "--task") == "coverage"
    assert option(["--task=coverage"], "--task") == "coverage"
    assert option(["--task"], "--task") is None


# What a new user met.


def test_helps_are_grouped_by_topic(capsys: pytest.CaptureFixture[str]) -> None:
    def boxes(*args: str) -> dict[str, str]:
        assert mast(*args, "--help") == 0
        text = capsys.readouterr().out
        parts = re.split("╭─ (.*?) ─+╮\n", text)
        return dict(zip(parts[1::2], parts[2::2], strict=True))

    found = boxes("train", "navigation")
    assert list(found) == ["options", "the run", "rollouts", "learning", "validation", "the world", "the policy"]
    assert "--checkpoint-seconds" in found["the run"] and "--no-keep-replay" in found["the run"]
    assert "--from STR" in found["learning"] and "--agents" in found["the world"] and "--layers" in found["the policy"]
    assert list(found["options"].split()[1:3]) == ["-h,", "--help"]  # nothing is left without a topic
    assert found["options"].count("--") == 1
    found = boxes("evaluate", "coverage")
    assert list(found) == ["options", "what is compared", "messages", "results", "the machine", "the world"]
    assert "--loss" in found["messages"] and "--tag" in found["the world"] and found["options"].count("--") == 1
    assert grouped("no boxes here", {}) == "no boxes here"
    assert mast("--help") == 0
    told = capsys.readouterr().out
    assert re.findall(r"^(\w.*)$", told, re.M)[2:-1] == list(TOPICS)


def test_a_demo_shows_whom_it_is_told_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("--agents", 6, "--scenario", "circle", "--steps", 5)
    assert mast("demo", *small, "--policy", "dhba-1", "lsap", "mast-m", "--delay", 0.5, "--out", "shown") == 0
    assert "lsap reached" in capsys.readouterr().out
    config = json.loads((tmp_path / "shown/config.json").read_text())
    assert (config["policy"], config["delay"]) == (["dhba-1", "lsap", "mast-m"], 0.5)


def test_no_start_state_of_a_file_counts_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"{e},{kind},{x},{y}" for e in range(3) for kind, y in (("robot", 0), ("goal", 30 + e)) for x in (0, 20)]
    file = tmp_path / "starts.csv"
    file.write_text("\n".join(["environment,kind,x,y", *rows]))
    given = ("evaluate", "navigation", "--policy", "dhba-1", "--steps", 2, "--scenario", f"file:{file}")
    assert mast(*given, "--out", tmp_path / "r") == 0
    folder, _ = mast_swarm.evaluate("navigation", policy="dhba-1", steps=2, scenario=f"file:{file}", out=tmp_path / "p")
    for one in (tmp_path / "r", folder):
        assert json.loads((one / "config.json").read_text())["episodes"] == 3
    assert mast(*given, "--episodes", 4, "--out", tmp_path / "s") == 2
    assert ": 3, which 4 episodes would repeat; give --episodes 3 or fewer, " in one_line(capsys)
    # Failures differ from one repeat to the next.
    again = (*given, "--episodes", 4, "--delay", 1, "--failure", 0.1, "--out", tmp_path / "t")
    assert mast(*again) == 2  # robots that hear at once do not fail
    assert mast(*again, "--policy", "dhba-1-relay") == 0


def test_a_setting_without_an_end_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = Path(__file__).parents[1] / "examples" / "rendezvous.py"
    given = ("evaluate", f"{task}:TASK", "--reach", "inf", "--episodes", 1, "--steps", 2, "--out", tmp_path / "r")
    assert mast(*given) == 2
    assert "reach is inf, which config.json cannot hold: give a finite number" in one_line(capsys)


@pytest.mark.parametrize("agents", [1, 3])
def test_a_demo_of_few_robots_starts_otherwise(
    agents: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ("demo", "--agents", agents, "--steps", 2, "--policy", "dhba-1")
    assert mast(*few) == 0
    assert capsys.readouterr().err == ""  # nobody gave a delay, which would have changed nothing
    assert json.loads(Path("runs/demo/config.json").read_text())["scenario"] == "clusters"
    assert mast(*few, "--scenario", "clusters-5-5") == 2
    assert "clusters of 5 but there are" in one_line(capsys)
    assert mast(*few, "--delay", 2) == 0
    assert capsys.readouterr().err == "--delay 2 changed nothing: no policy here sends messages\n"


def test_as_many_robots_as_the_file_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [f"0,{kind},{x},{y}" for kind, y in (("robot", 0), ("goal", 30)) for x in (0, 20, 40)]
    file = tmp_path / "starts.csv"
    file.write_text("\n".join(["environment,kind,x,y", *rows]))
    given = ("--policy", "lsap", "--episodes", 1, "--steps", 3, "--scenario", f"file:{file}")
    assert mast("evaluate", "navigation", *given, "--out", tmp_path / "r") == 0
    assert json.loads((tmp_path / "r/config.json").read_text())["agents"] == 3
    folder, _ = mast_swarm.evaluate(
        "navigation", policy="lsap", episodes=1, steps=3, scenario=f"file:{file}", out=tmp_path / "p"
    )
    assert json.loads((folder / "config.json").read_text())["agents"] == 3
    assert Episodes("navigation", scenario=f"file:{file}").agents == 3
    tiny = {"epochs": 1, "environments": 2, "steps": 2, "batch": 2, "replay": 8, "validation": 1, "validation_steps": 1}
    run = mast_swarm.train("navigation", tmp_path / "t", recipe="tiny", scenario=f"file:{file}", device="cpu", **tiny)
    assert json.loads((run / "config.json").read_text())["world"]["agents"] == 3
    swarm = replace(swarm_defaults(find("navigation"), "navigation"), join=("1@3",))
    swarm = replace(swarm, world=replace(swarm.world, scenario=f"file:{file}"))
    assert swarm.completed([]).robots == 2 and swarm.completed([]).settled.agents == 3  # one joins
    assert swarm.completed(["robots"]).robots == swarm.robots
    capsys.readouterr()
    assert mast("evaluate", "navigation", *given, "--agents", 4, "--out", tmp_path / "s") == 2
    assert "has 3 robots per environment but 4 were asked: give that number, or none" in one_line(capsys)
    file.write_text("\n".join(["environment,kind,x,y", *rows, "0,robot,20.0,0", "0,goal,1,1"]))
    assert mast("evaluate", "navigation", *given, "--out", tmp_path / "s") == 2
    assert "line 8: a robot on the spot of the one in line 3; move one of them" in one_line(capsys)


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("evaluate", "navigation", "--scenario", "file:/dev/zero"), "/dev/zero is no plain file: give one"),
        (("evaluate", "coverage", "--density", "points:/dev/zero"), "/dev/zero is no plain file: give one"),
        (("evaluate", "coverage", "--density", "raster:/dev/zero"), "/dev/zero is no plain file: give one"),
        (
            ("train", "navigation", "--recipe", "nope"),
            f"unknown recipe 'nope': {RECIPES}",
        ),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_told_in_one_line(args: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mast(*args) == 2
    assert told in one_line(capsys)


def test_a_table_has_the_other_metrics_and_rates_stay_rates(capsys: pytest.CaptureFixture[str]) -> None:
    def row(metric: str, mean: float, ci95: float | None) -> dict[str, Any]:
        return {
            "task": "navigation",
            "policy": "x",
            "episodes": 9,
            "metric": metric,
            "t": 50.0,
            "mean": mean,
            "ci95": ci95,
        }

    def shown(*rows: dict[str, Any]) -> str:
        Console(width=120).print(result_table({"rows": list(rows)}))
        return capsys.readouterr().out

    told = shown(row("success_rate", 0.98, 0.05), row("collisions", 0.5, 0.7), row("distance", 3.0, 1.0))
    assert "0.980 ± 0.050" in told and "0.5 ± 0.7" in told and "distance" not in told
    assert all(part in told for part in ("collisions", "(pairs),", "t = 50 s"))
    assert "the interval of a rate ends at 0 and at 1" in told
    told = shown(row("success_rate", 0.9, 0.05), row("collisions", 0.5, 0.7))
    assert "0.900 ± 0.050" in told and "ends at" not in told
    told = shown(row("success_rate", 0.9, None))
    assert "0.900 │" in told and "±" not in told and "(mean)" in told


def test_a_task_that_has_moved_is_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with own_tasks():
        here, there = tmp_path / "here.py", tmp_path / "there.py"
        text = (Path(__file__).parents[1] / "examples/rendezvous.py").read_text().replace('"rendezvous"', '"meeting"')
        here.write_text(text)
        small = ("--agents", 4, "--episodes", 1, "--steps", 3)
        assert mast("evaluate", f"{here}:TASK", *small, "--record", 1, "--out", tmp_path / "r") == 0
        here.rename(there)
    capsys.readouterr()
    with own_tasks():
        assert mast("replay", tmp_path / "r") == 2
        assert "`mast replay DIR --task NEW/PATH/here.py:TASK`" in one_line(capsys)
        assert mast("replay", tmp_path / "r", "--task", f"{there}:TASK") == 0
        assert mast("evaluate", f"{there}:TASK", *small, "--record", 1, "--resume", "--out", tmp_path / "r") == 0
