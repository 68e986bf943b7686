"""The examples: each is a whole task in one file, and every command takes it as it takes the package's own."""

from __future__ import annotations

import ast
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from safetensors.numpy import load_file

import mast_swarm
from mast_swarm import Recording, rollout
from mast_swarm.tasks.registry import find
from mast_swarm.train.config import from_run
from mast_swarm.train.trainer import Trainer
from shared import Stopped, mast, options, stop_after
from strolling import own_tasks

EXAMPLES = Path(__file__).parents[1] / "examples"
PACKAGE = Path(mast_swarm.__file__).parent
LOCAL = {"rendezvous": "to_those_heard", "flocking": "boids"}  # a controller that knows no more than a robot can
SMALL = shlex.split("--agents 6 --episodes 2 --steps 4 --device cpu")
TRAINING = shlex.split("""--agents 6 --epochs 2 --environments 2 --steps 3 --replay 20 --batch 4 --validation 2
--validation-steps 3 --validate-every 1 --device cpu""")


def contents() -> dict[Path, bytes]:
    """All that the package is made of."""
    return {file: file.read_bytes() for file in PACKAGE.rglob("*") if file.suffix in (".py", ".js", ".css", ".html")}


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    with own_tasks():
        yield


@pytest.fixture(scope="module", params=sorted(LOCAL))
def example(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def reference(example: str) -> str:
    """The task as the command line names it."""
    return f"{EXAMPLES / example}.py:TASK"


@pytest.fixture(scope="module")
def trained(reference: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run that has ended."""
    out = tmp_path_factory.mktemp("runs") / "learned"
    assert mast("train", reference, *TRAINING, "--out", out) == 0
    return out


def ends(folder: Path) -> dict[str, float]:
    """The task's metric of each policy at the end."""
    rows = json.loads((folder / "summary.json").read_text())["rows"]
    last, first = max(row["t"] for row in rows), rows[0]["metric"]
    return {row["policy"]: row["mean"] for row in rows if row["t"] == last and row["metric"] == first}


def test_every_example_that_is_a_task_is_tested() -> None:
    with_tasks = {file.stem for file in EXAMPLES.glob("*.py") if "\nTASK = " in file.read_text()}
    assert with_tasks == set(LOCAL)


def test_an_example_is_one_short_file_on_public_names(example: str) -> None:
    text = (EXAMPLES / f"{example}.py").read_text()
    assert len(text.splitlines()) <= 115
    imported = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module or "")
    assert {name for name in imported if name.startswith("mast_swarm")} == {"mast_swarm"}
    used = {
        node.attr
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "mast_swarm"
    }
    assert used and used <= set(mast_swarm.__all__)
    # No line of the package knows it.
    assert not [file for file, body in contents().items() if example.encode() in body.lower()]


def test_its_commands_are_those_that_its_docstring_gives(example: str, reference: str) -> None:
    lines = (ast.get_docstring(ast.parse((EXAMPLES / f"{example}.py").read_text())) or "").splitlines()
    commands = [shlex.split(line) for line in lines if line.startswith("mast ")]
    assert [command[1] for command in commands] == ["check", "evaluate", "train", "evaluate"]
    for command in commands:
        assert command[2] == f"examples/{example}.py:TASK"
        policies = command[command.index("--policy") + 1 :] if "--policy" in command else []
        for policy in (word for word in policies[:2] if not word.startswith(("runs/", "--"))):
            assert find(reference).has_controller(policy)


def test_check_and_list(example: str, reference: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("check", reference, "--device", "cpu") == 0
    printed = capsys.readouterr().out
    assert printed.count("ok: ") == 10 and printed.endswith(f"{reference}: all checks passed\n")
    assert mast("list", reference) == 0
    listed = capsys.readouterr().out
    assert listed.startswith(f"task {example}\n") and "recipes for training\n    best\n" in listed
    for name in find(reference).controllers:
        line = next(line for line in listed.splitlines() if line.split()[:1] == [name])
        assert len(line.split()) > 5  # says what it does


def test_controllers_are_evaluated_and_recorded(
    example: str, reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before, out = contents(), tmp_path / "r"
    assert mast("evaluate", reference, *SMALL, "--record", 1, "--out", out) == 0
    printed = capsys.readouterr().out
    task = find(reference)
    assert task.metric.words in printed and "lower is better" in printed
    table = pq.read_table(out / "episodes.parquet")
    assert set(table["policy"].to_pylist()) == set(task.controllers) and set(table["task"].to_pylist()) == {example}
    assert set(table["agents"].to_pylist()) == {6} and set(table["scenario"].to_pylist()) == {"random"}
    # The tables are what a rollout gives on the same starts.
    world = task.make(task.Config(agents=6))
    ran = rollout(world, task.expert, [0, 1], 4)
    assert ends(out)[task.expert] == pytest.approx(float(ran.metrics[task.metric.name][:, -1].mean()), rel=1e-5)
    recording = Recording.load(next(out.glob(f"recording-*-{task.expert}-000.npz")))
    assert recording.positions.shape == (5, 6, 2) and recording.frames["links"].shape == (5, 6, 1)
    assert (recording.task, recording.dt, recording.width) == (example, task.Config().dt, world.config.side)
    for name in ("curves.png", "frames.png", "replay.html"):
        assert (out / name).stat().st_size > 1000
    assert contents() == before


@pytest.mark.parametrize("seed", [0, 1])
def test_the_expert_beats_those_that_know_less(example: str, reference: str, seed: int) -> None:
    """On the same starts, of which each is better in the end: that is what the metric is for."""
    task = find(reference)
    world, name = task.make(), task.metric.name
    seeds = range(100 * seed, 100 * seed + 8)
    expert, local = (rollout(world, who, seeds, task.steps).metrics[name] for who in (task.expert, LOCAL[example]))
    np.testing.assert_array_equal(expert[:, 0], local[:, 0])
    assert expert[:, -1].mean() < 0.75 * local[:, -1].mean()
    assert (expert[:, -1] < local[:, -1]).mean() >= 0.75
    assert (local[:, -1] < local[:, 0]).all()  # which is no straw man


def test_a_trained_policy_runs_centrally_and_alone(reference: str, trained: Path, tmp_path: Path) -> None:
    task = find(reference)
    assert json.loads((trained / "config.json").read_text())["source"] == reference
    assert [row["epoch"] for row in map(json.loads, (trained / "metrics.jsonl").read_text().splitlines())] == [1, 2]
    policies = ("--policy", trained / "best", LOCAL[task.name])
    assert mast("evaluate", reference, *policies, *SMALL, "--out", tmp_path / "central") == 0
    assert mast("evaluate", reference, *policies, *SMALL, "--delay", task.Config().dt, "--out", tmp_path / "alone") == 0
    assert mast("evaluate", reference, *policies, *SMALL, "--delay", 0, "--out", tmp_path / "instant") == 0
    central, alone, instant = (ends(tmp_path / how) for how in ("central", "alone", "instant"))
    assert set(central) == {"learned/best", LOCAL[task.name]}
    assert instant["learned/best"] == pytest.approx(central["learned/best"], rel=1e-4)
    assert alone["learned/best"] != central["learned/best"]  # what robots know is late
    assert alone[LOCAL[task.name]] == central[LOCAL[task.name]]  # a controller sends nothing


def test_demo(reference: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("demo", "--task", reference, "--agents", 6, "--steps", 4, "--out", tmp_path / "d") == 0
    task, printed = find(reference), capsys.readouterr().out
    for policy, value in ends(tmp_path / "d").items():
        told = f"{policy} has a {task.metric.words} of {value:.{task.metric.digits}f} after {4 * task.Config().dt:g} s"
        assert f"{told}\n" in printed
    assert list(ends(tmp_path / "d")) == list(task.controllers)


@pytest.mark.parametrize(
    ("what", "given"), [("world", "--sizes 2x6"), ("scale", "--agents 6 12"), ("decentral", "--sizes 2x6")]
)
def test_bench(reference: str, what: str, given: str, tmp_path: Path) -> None:
    assert mast("bench", what, "--task", reference, *given.split(), "--device", "cpu", "--out", tmp_path) == 0
    (file,) = tmp_path.glob(f"{what}-*.json")
    result: dict[str, Any] = json.loads(file.read_text())
    assert result["benchmark"] == what and len(result["rows"]) == len(given.split()) - 1
    assert [row["agents"] for row in result["rows"]] == ([6, 12] if what == "scale" else [6])
    assert file.with_suffix(".png").stat().st_size > 1000


def test_a_run_and_its_results_are_found_again_by_new_processes(
    example: str, reference: str, trained: Path, tmp_path: Path
) -> None:
    """Which know the task from what is on disk alone."""
    given = ("--policy", trained / "best", "--record", 1, "--out", tmp_path / "r")
    assert mast("evaluate", reference, *SMALL, *given) == 0
    page = (tmp_path / "r" / "replay.html").read_text()
    (tmp_path / "r" / "replay.html").unlink()
    run = tmp_path / "stopped"
    with pytest.raises(Stopped):  # the same run, after the first of its two epochs
        Trainer(from_run(trained), options(run)).run(stop_after(1))
    code = f"""if True:
        from mast_swarm.cli import main
        main(["train", "--resume", {str(run)!r}, "--device", "cpu"])
        main(["replay", {str(tmp_path / "r")!r}])
        """
    env = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert "epoch 2/2" in done.stdout and f"replay: {tmp_path / 'r' / 'replay.html'}" in done.stdout
    resumed = load_file(run / "last" / "model.safetensors")
    whole = load_file(trained / "last" / "model.safetensors")
    assert resumed.keys() == whole.keys()
    for name, value in whole.items():
        np.testing.assert_allclose(resumed[name], value, atol=1e-6)
    assert (tmp_path / "r" / "replay.html").read_text() == page and f'"task":"{example}"' in page
