"""Evaluations on disk: tables, intervals, paired differences, and runs that were stopped."""

from __future__ import annotations

import json
import shutil
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from scipy import stats

from mast_swarm import Channel, MastError, Navigation, NavigationConfig
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.config import EvaluateConfig, precision_on
from mast_swarm.evaluate.results import curves, interval
from mast_swarm.evaluate.run import Interrupted, _batch, evaluate
from mast_swarm.files import only_writer
from mast_swarm.tasks.registry import find, sendable
from shared import mast
from strolling import own_tasks

KEYS = [
    "policy",
    "task",
    "scenario",
    "agents",
    "delay",
    "loss",
    "failure",
    "relay_radius",
    "max_age",
    "safe",
    "seed",
    "episodes",
    "metric",
    "t",
    "mean",
    "ci95",
]
METRICS = ["success_rate", "collisions", "distance"]


def small(folder: Path | None = None, **changes: Any) -> EvaluateConfig:
    config = EvaluateConfig(
        world=NavigationConfig(agents=12), policy=("lsap", "dhba-0"), episodes=7, steps=60, out=folder, device="cpu"
    )
    return replace(config, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A run of two controllers, with parts of 3, 3 and 1 episodes."""
    return evaluate("navigation", small(tmp_path_factory.mktemp("runs") / "whole", batch=3, record=2))


def test_the_folder_holds_results_and_nothing_else(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = finished
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "episodes.parquet",
        *(f"recording-00{n}-{name}-00{e}.npz" for n, name in enumerate(("lsap", "dhba-0")) for e in (0, 1)),
        "summary.json",
    ]
    assert json.loads((folder / "summary.json").read_text()) == summary
    config = json.loads((folder / "config.json").read_text())
    assert (config["task"], config["agents"], config["policy"]) == ("navigation", 12, ["lsap", "dhba-0"])


def test_one_row_per_policy_episode_and_time(finished: tuple[Path, dict[str, Any]]) -> None:
    table = pq.read_table(finished[0] / "episodes.parquet")
    rows = [(row["policy"], row["episode"], row["t"]) for row in table.to_pylist()]
    expected = [(policy, episode, float(t)) for policy in ("lsap", "dhba-0") for episode in range(7) for t in range(61)]
    assert rows == expected  # policies in the order given
    assert table.column_names[-3:] == METRICS
    starts = [row["start"] for row in table.to_pylist()[::61][:7]]
    assert starts == [f"clusters-{r}-{g}" for r in (1, 5, 10) for g in (1, 5, 10)][:7]


def test_summary_rows_against_numpy_and_scipy(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = finished
    table = pq.read_table(folder / "episodes.parquet").to_pylist()

    def at(policy: str, metric: str, t: float) -> np.ndarray:
        return np.array([row[metric] for row in table if row["policy"] == policy and row["t"] == t], dtype=np.float64)

    assert all(list(row) == KEYS for row in summary["rows"])
    found = [(row["metric"], row["policy"], row["t"]) for row in summary["rows"]]
    assert found == [(m, p, t) for m in METRICS for p in ("lsap", "dhba-0") for t in (0.0, 50.0, 60.0)]
    for row in summary["rows"]:
        values = at(row["policy"], row["metric"], row["t"])
        assert row["mean"] == pytest.approx(values.mean(), abs=1e-12)
        low, high = stats.t.interval(0.95, 6, values.mean(), stats.sem(values)) if values.std() else (0.0, 0.0)
        assert row["ci95"] == pytest.approx((high - low) / 2, abs=1e-9)
        assert (row["episodes"], row["agents"], row["delay"], row["loss"], row["seed"]) == (7, 12, None, 0.0, 0)
    for row in summary["paired"]:
        assert (row["policy"], row["minus"]) == ("lsap", "dhba-0")
        difference = at("lsap", row["metric"], row["t"]) - at("dhba-0", row["metric"], row["t"])
        assert row["mean"] == pytest.approx(difference.mean(), abs=1e-12)
        expected = stats.t.ppf(0.975, 6) * stats.sem(difference)
        assert row["ci95"] == pytest.approx(expected, abs=1e-9)
    last = {row["metric"]: row for row in summary["paired"] if row["t"] == 60.0}
    assert last["success_rate"]["mean"] > 0  # the expert, which sees all, is ahead of DHBA-0


def test_one_episode_has_no_interval() -> None:
    assert interval(np.array([0.25])) == (0.25, None)
    few = np.array([0.25, 0.5, 0.75, 1.0])  # and four say little
    assert interval(few) == (0.625, None)
    assert interval(np.append(few, 0.5))[1] is not None


@pytest.mark.parametrize("delay", [None, 1.5])
def test_the_batch_does_not_matter(tmp_path: Path, policy_folder: Path, delay: float | None) -> None:
    changes = {"policy": ("dhba-1", str(policy_folder)), "delay": delay, "loss": 0.2 if delay else 0.0, "steps": 20}
    tables = []
    for batch in (1, 3, 7):
        folder, _ = evaluate("navigation", small(tmp_path / str(batch), batch=batch, **changes))
        tables.append(pq.read_table(folder / "episodes.parquet"))
    assert set(tables[0]["policy"].to_pylist()) == {"dhba-1", "small"}
    for policy in ("dhba-1", "small"):
        for metric in METRICS:
            one, *others = (curves(table, policy, metric)[1] for table in tables)
            for other in others:
                # Products of another size may round differently, which a learned policy passes on.
                np.testing.assert_allclose(one, other, rtol=0, atol=0 if policy == "dhba-1" else 1e-2)


class Told(list[tuple[str, int, int]]):
    """What a progress bar was told."""

    def __call__(self, *done: Any) -> None:
        self.append(done)


@pytest.mark.slow
def test_several_processes_give_the_same(tmp_path: Path, policy_folder: Path) -> None:
    """Also of a task in a file, whose settings another process knows only when it has read it; a run that was stopped
    goes on with any number of them."""
    task = f"{Path(__file__).parents[2]}/examples/rendezvous.py:TASK"
    for name, given in (
        ("navigation", {"policy": [str(policy_folder), "dhba-2-relay"], "agents": 9, "delay": 1.0, "steps": 12}),
        (task, {"policy": ["to_the_middle"], "agents": 9, "steps": 5}),
    ):
        several, one = (tmp_path / f"{len(given)}-{jobs}" for jobs in (2, 1))
        told = Told()
        evaluate(name, None, told, **given, episodes=5, record=2, jobs=2, out=several)
        evaluate(name, **given, episodes=5, record=2, out=one)
        theirs, ours = (pq.read_table(folder / "episodes.parquet").to_pydict() for folder in (several, one))
        assert theirs.keys() == ours.keys()
        for column, values in ours.items():
            exact = not isinstance(values[0], float)
            assert theirs[column] == values if exact else np.allclose(theirs[column], values, atol=1e-3), column
        assert sorted(p.name for p in several.glob("recording-*")) == sorted(p.name for p in one.glob("recording-*"))
        assert {name for name, done, total in told if done == total == 5} == {name for name, _, _ in told}
        (several / "summary.json").unlink()  # as if it had been stopped
        assert evaluate(name, **given, episodes=5, record=2, resume=True, out=several)[1]["complete"] is True


@pytest.mark.slow
def test_other_processes_refuse_a_policy_that_has_changed_since(tmp_path: Path, policy_folder: Path) -> None:
    """As that of a training which still goes on: half of a table would be of other weights."""
    folder, file = tmp_path / "p", tmp_path / "own.py"
    shutil.copytree(policy_folder, folder)
    controller = "import torch\n\n\ndef mine(state, observation):\n    return torch.full_like(state.positions, 0.5)\n"
    file.write_text(controller)

    def spoil(*done: Any) -> None:  # told of a beginning: what the policies are known by is noted
        weights = bytearray((folder / "model.safetensors").read_bytes())
        weights[-1] ^= 1
        (folder / "model.safetensors").write_bytes(weights)
        file.write_text(controller.replace("0.5", "0.25"))

    for policy, name in ((folder, "p"), (f"{file}:mine", "mine")):
        out = tmp_path / "results"
        with pytest.raises(MastError, match=f"the files of {name} changed while it was evaluated"):
            evaluate("navigation", small(out, policy=(str(policy),), episodes=4, steps=3, jobs=2), spoil)
        assert not out.exists()
        file.write_text(controller)


def test_a_run_of_ones_own_controller_does_not_go_on_with_another(tmp_path: Path) -> None:
    file, given = tmp_path / "own.py", {"episodes": 2, "steps": 3}
    file.write_text("def mine(state, observation):\n    return 0 * state.positions\n")
    config = small(tmp_path / "r", policy=(f"{file}:mine",), **given)
    evaluate("navigation", config)
    (tmp_path / "r/summary.json").unlink()  # as if it had been stopped
    assert evaluate("navigation", replace(config, resume=True))[1]["complete"] is True
    (tmp_path / "r/summary.json").unlink()
    file.write_text("def mine(state, observation):\n    return 1 + 0 * state.positions\n")
    with pytest.raises(MastError, match=r"settings differ \(the files of mine are not those of then\)"):
        evaluate("navigation", replace(config, resume=True))


@pytest.mark.slow
def test_other_processes_are_given_a_task_that_no_file_or_package_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(Path(__file__).parents[2] / "examples/rendezvous.py", tmp_path / "meeting.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    with own_tasks():
        import meeting  # type: ignore[import-not-found]

        given: dict[str, Any] = {"policy": ["to_the_middle"], "agents": 9, "steps": 5, "episodes": 4}
        several, one = (
            evaluate(meeting.TASK, jobs=jobs, out=tmp_path / str(jobs), **given)[1]["rows"] for jobs in (2, 1)
        )
        assert several == one
        other = replace(find("navigation"), controllers=find("navigation").controllers)
        assert sendable("navigation") == "navigation" and sendable(find(other).name) is other
        local = replace(meeting.TASK, name="local", Config=dataclass(frozen=True)(type("C", (meeting.Config,), {})))
        with pytest.raises(MastError, match="task 'local' cannot be sent to other processes"):
            sendable(find(local).name)


def test_a_folder_has_one_writer(tmp_path: Path) -> None:
    told = r"process \d+ on .* writes to .*/r: wait for it"
    with only_writer(tmp_path / "r"), pytest.raises(MastError, match=told):
        evaluate("navigation", small(tmp_path / "r", resume=True))


def test_writers_of_a_folder_that_goes_again_and_again_are_told_apart(tmp_path: Path) -> None:
    """Whoever ends first takes the folder away; another that begins meanwhile waits for nobody and meets nobody."""
    within: list[int] = []
    wrong: list[str] = []

    def write(number: int) -> None:
        for _ in range(200):
            try:
                with only_writer(tmp_path / "r"):
                    within.append(number)
                    wrong.extend(["two"] * (len(within) != 1))
                    within.remove(number)
            except MastError as error:
                if "writes to" not in str(error):
                    wrong.append(str(error))

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not wrong and not (tmp_path / "r").exists()


def test_a_writer_leaves_the_lock_of_another_alone(tmp_path: Path) -> None:
    first = only_writer(tmp_path / "r")
    first.__enter__()
    shutil.rmtree(tmp_path / "r")
    with only_writer(tmp_path / "r"):
        first.__exit__(None, None, None)
        with pytest.raises(MastError, match="writes to"), only_writer(tmp_path / "r"):
            pass


def test_an_interrupt_as_results_are_joined_says_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: Any) -> None:
        raise KeyboardInterrupt

    config = small(tmp_path / "r", episodes=2, steps=3)
    with monkeypatch.context() as patched:
        patched.setattr("mast_swarm.evaluate.run.Results.finish", stopped)
        with pytest.raises(Interrupted, match=str(tmp_path / "r")):
            evaluate("navigation", config)
    assert evaluate("navigation", replace(config, resume=True))[1]["complete"] is True


def test_delay_and_loss_are_those_of_learned_policies(tmp_path: Path, policy_folder: Path) -> None:
    config = small(tmp_path / "r", policy=("lsap", str(policy_folder)), delay=1.0, loss=0.25, episodes=2, steps=3)
    _, summary = evaluate("navigation", config)
    assert {(row["policy"], row["delay"], row["loss"]) for row in summary["rows"]} == {
        ("lsap", None, 0.0),
        ("small", 1.0, 0.25),
    }


def test_folders_of_one_name_stay_apart(tmp_path: Path, policy_folder: Path) -> None:
    for run in ("a", "a_b"):
        (tmp_path / run / "deep").mkdir(parents=True)
        (tmp_path / run / "deep" / "p").symlink_to(policy_folder)
    with pytest.raises(MastError, match="given twice"):  # two links to one folder are one policy
        evaluate("navigation", small(tmp_path / "r", policy=tuple(str(tmp_path / r / "deep/p") for r in ("a", "a_b"))))
    for run in ("a", "a_b"):
        (tmp_path / run / "deep" / "p").unlink()
        (tmp_path / run / "deep" / "p").mkdir()
        for file in policy_folder.iterdir():
            (tmp_path / run / "deep" / "p" / file.name).write_bytes(file.read_bytes())
    given = tuple(str(tmp_path / run / "deep" / "p") for run in ("a_b", "a"))
    folder, summary = evaluate("navigation", small(tmp_path / "r", policy=given, episodes=2, steps=3, record=1))
    assert list(dict.fromkeys(row["policy"] for row in summary["rows"])) == ["a_b/deep/p", "a/deep/p"]
    assert len(pq.read_table(folder / "episodes.parquet")) == 2 * 2 * 4
    assert len(list(folder.glob("recording-*.npz"))) == 2


class Stop(Exception):
    pass


def stopping(after: int) -> Any:
    """Progress that stops the run once this many environment steps are done in all."""

    def tick(policy: str, done: int, total: int) -> None:
        if policy == "dhba-0" and done >= after:
            raise Stop

    return tick


def test_a_stopped_run_goes_on_to_the_same_numbers(tmp_path: Path, finished: tuple[Path, dict[str, Any]]) -> None:
    config = small(tmp_path / "r", batch=3, record=2)
    with pytest.raises(Stop):
        evaluate("navigation", config, stopping(5 * 61))  # in the middle of the second part of dhba-0
    partial = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert partial["complete"] is False
    episodes = {row["policy"]: row["episodes"] for row in partial["rows"]}
    assert episodes == {"lsap": 7, "dhba-0": 3}
    assert {row["episodes"] for row in partial["paired"]} == {3}
    with pytest.raises(MastError, match="already used"):
        evaluate("navigation", config)
    with pytest.raises(MastError, match=r"settings differ \(steps 60 -> 61\)"):
        evaluate("navigation", replace(config, resume=True, steps=61))
    _, summary = evaluate("navigation", replace(config, resume=True, batch=2))  # another batch is the same run
    assert summary == finished[1]
    again = pq.read_table(tmp_path / "r" / "episodes.parquet")
    assert again.equals(pq.read_table(finished[0] / "episodes.parquet"))
    assert not (tmp_path / "r" / "parts").exists()


def test_resuming_a_finished_run_changes_nothing(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, summary = finished
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert evaluate("navigation", small(folder, record=2, resume=True)) == (folder, summary)
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_what_was_stopped_before_anything_was_finished_leaves_nothing(tmp_path: Path) -> None:
    for existed in (False, True):
        folder = tmp_path / str(existed)
        if existed:
            folder.mkdir()
        with pytest.raises(Stop):
            evaluate("navigation", small(folder, policy=("dhba-0",)), stopping(7))
        assert folder.exists() is existed and (not existed or not any(folder.iterdir()))


def test_a_run_that_was_killed_as_it_began_goes_on(tmp_path: Path, finished: tuple[Path, dict[str, Any]]) -> None:
    """Wherever it was: nothing was written, a file was half written, or the settings stood alone."""
    folder = tmp_path / "killed"
    folder.mkdir()
    (folder / ".config-x1y2.json").write_text('{"epis')
    with pytest.raises(Stop):  # it finds nothing that would be in its way
        evaluate("navigation", small(folder, record=2), stopping(3))
    for path in folder.iterdir():
        if path.name != "config.json":
            path.unlink() if path.is_file() else shutil.rmtree(path)
    _, summary = evaluate("navigation", small(folder, record=2, resume=True))
    assert summary == finished[1]


def test_the_arithmetic_is_that_of_the_device_and_stands_in_the_results(tmp_path: Path) -> None:
    assert [precision_on(device, asked) for asked in ("auto", "fp32", "bf16") for device in ("cpu", "cuda")] == [
        *("fp32", "bf16"),
        *("fp32", "fp32"),
        *("bf16", "bf16"),
    ]
    folder, summary = evaluate("navigation", small(tmp_path / "run", episodes=1, steps=2))
    said = json.loads((folder / "config.json").read_text())["precision"]
    assert summary["precision"] == said == "fp32"
    with pytest.raises(MastError, match="precision"):  # of one run nothing is computed otherwise
        evaluate("navigation", small(folder, episodes=1, steps=2, precision="bf16", resume=True))
    with pytest.raises(MastError, match="precision is 'half': expected auto, fp32, bf16"):
        small(precision="half")


def test_rules_alone_are_in_full_precision_whatever_was_asked(tmp_path: Path) -> None:
    _, summary = evaluate(
        "navigation", small(tmp_path / "run", episodes=1, steps=2, precision="bf16", policy=("lsap",))
    )
    assert summary["precision"] == "fp32"


def test_a_run_goes_on_with_the_arithmetic_that_it_began_with(tmp_path: Path) -> None:
    """Also on another device: what was not asked for is what is there."""
    folder, _ = evaluate("navigation", small(tmp_path / "run", episodes=2, steps=2, precision="bf16"))
    (folder / "summary.json").unlink()
    _, summary = evaluate("navigation", small(folder, episodes=2, steps=2, resume=True))
    assert json.loads((folder / "config.json").read_text())["precision"] == "bf16" and summary["complete"] is True


def test_a_policy_that_was_trained_again_does_not_go_on_with_what_an_earlier_one_did(
    tmp_path: Path, policy_folder: Path
) -> None:
    mine = shutil.copytree(policy_folder, tmp_path / "mine")
    folder, summary = evaluate("navigation", small(tmp_path / "run", episodes=1, steps=2, policy=(str(mine), "lsap")))
    assert list(summary["weights"]) == ["mine"]
    assert evaluate("navigation", small(folder, episodes=1, steps=2, policy=(str(mine), "lsap"), resume=True))
    (mine / "config.json").write_text((mine / "config.json").read_text() + "\n")
    with pytest.raises(MastError, match=r"settings differ \(the files of mine are not those"):
        evaluate("navigation", small(folder, episodes=1, steps=2, policy=(str(mine), "lsap"), resume=True))


def test_robots_alone_are_few_at_once_on_a_cpu_so_that_little_is_lost(policy_folder: Path) -> None:
    world = Navigation(NavigationConfig(agents=100))
    alone = make_actor(str(policy_folder), world, Channel(delay=1.0))
    central, rule = make_actor(str(policy_folder), world, None), make_actor("dhba-8", world, Channel(delay=1.0))
    assert [_batch(world, 0, "clusters", actor) for actor in (alone, central, rule, None)] == [2, 18, 18, 18]


def test_no_policy_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MastError, match="no policy was given: name at least one"):
        evaluate("navigation", small(tmp_path / "r", policy=()))
    assert not (tmp_path / "r").exists()


def test_settings_that_cannot_be(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"policy": ("lsap", "lsap")}, "given twice"),
        ({"episodes": 0}, "--episodes is 0"),
        ({"episodes": 1_000_001}, "1 to 1000000"),
        ({"seed": -1}, "--seed is -1"),
        ({"steps": 0}, "--steps is 0"),
        ({"record": -1}, "--record is -1"),
        ({"batch": 0}, "--batch is 0"),
        ({"delay": -0.5}, "--delay is -0.5"),
        ({"delay": float("nan")}, "--delay is nan"),
        ({"delay": 1.0, "loss": 1.5}, "--loss is 1.5"),
        ({"loss": float("nan")}, "--loss is nan"),
        ({"failure": 0.1}, "give --delay too"),
        ({"resume": True}, "--resume needs"),
    ]
    for changes, message in wrong:
        with pytest.raises(MastError, match=message):
            small(**changes)


def test_the_relay_radius_auto_is_a_number_in_the_results(tmp_path: Path) -> None:
    words = "--policy mast-m dhba-1-relay --delay 0.5 --relay-radius auto --agents 25 --episodes 1 --steps 2"
    assert mast("evaluate", "navigation", *words.split(), "--device", "cpu", "--out", tmp_path / "r") == 0
    rows = pq.read_table(tmp_path / "r" / "episodes.parquet").to_pylist()
    # 25 robots in 500 m: 100 m apart. The field of 1000 m is 20 hops wide, 10 s, in which robots move 50 m.
    assert {row["policy"]: row["relay_radius"] for row in rows} == {"mast-m": 1050.0, "dhba-1-relay": None}
    assert mast("evaluate", "navigation", "--delay", "1", "--relay-radius", "near") == 2
