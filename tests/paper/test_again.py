"""Policies that are trained again: what their earlier weights gave is run again, and never mixed with what is new."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from mast_swarm import __version__
from mast_swarm.paper import cells as cells_module
from mast_swarm.paper import run as running
from mast_swarm.paper.cells import Cell, Result, Store, known_by
from mast_swarm.paper.experiment import EXPERIMENTS, Size
from mast_swarm.paper.navigation.common import by_paper
from shared import mast

SIZE = Size(quick=True)
CELLS = EXPERIMENTS["variants"].cells(SIZE)
ALONE, CENTRAL = CELLS["L paper alone"], CELLS["L paper central"]
POLICY = ALONE.needs
assert POLICY is not None
USERS = {  # the cells of all experiments that need it
    cell.key: cell
    for experiment in EXPERIMENTS.values()
    for cell in experiment.cells(SIZE).values()
    if cell.needs is not None and cell.needs.key == POLICY.key
}
ELSEWHERE = {cell.label for cell in USERS.values()} - {ALONE.label, CENTRAL.label}  # of other experiments alone


class Killed(BaseException):
    """The command ends here, without a word."""


class Fake:
    """Runs cells in no time. Each training gives other weights."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.trained, self.stops = 0, False  # stops: at the first evaluation

    def __call__(self, cell: Cell, files: dict[str, bytes], device: str, scratch: str) -> Result:
        if cell.kind == "train":
            self.trained += 1
            weights = str(self.trained).encode()
            made = {"config.json": b"{}", "model.safetensors": weights}
            self.ran.append(cell.label)
            return Result(pa.table({"epoch": [1]}), {"seconds": 0.0}, made)
        if self.stops:
            raise KeyboardInterrupt
        self.ran.append(cell.label)
        columns = {"episode": [0, 1], "t": [12.0, 12.0], "success_rate": [0.5, 0.6], "collisions": [0.0, 0.0]}
        return Result(pa.table(columns), {"seconds": 0.0, "weights": known_by(files)})

    def begun(self) -> list[str]:
        """What was run since this was last asked."""
        ran, self.ran = sorted(self.ran), []
        return ran


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(running, "run", made)
    return made


@pytest.fixture
def go(fake: Fake, tmp_path: Path) -> Callable[..., int]:
    """Run an experiment's cells by a word; once all cells of the policy are there."""

    def command(name: str, word: str, *more: object) -> int:
        args = ("--quick", "--device", "cpu", "--jobs", 1, "--out", tmp_path, "--only", word)
        return mast("reproduce", name, *more, *args)

    for name in ("variants", "delays"):
        assert command(name, "l-paper") == 0
    assert fake.begun() == sorted({"l-paper", *(cell.label for cell in USERS.values())}) and ELSEWHERE
    return command


def lose(store: Store, *cells: Cell, weights: bool = True) -> None:
    for cell in cells:
        store.path(cell).unlink()
    for file in (store.policies / POLICY.key).iterdir() if weights else ():
        file.unlink()


def of_one_policy(folder: Path) -> bool:
    """Whether all cells are there, of the weights at hand."""
    store = Store(folder)
    files = store.files(POLICY)
    assert files is not None
    found = [store.load(cell) for cell in USERS.values()]
    return all(one is not None and one.about["weights"] == known_by(files) for one in found)


def test_a_policy_whose_weights_are_at_hand_is_not_trained_again(
    fake: Fake, go: Callable[..., int], tmp_path: Path
) -> None:
    lose(Store(tmp_path), ALONE, weights=False)
    assert go("variants", ALONE.label) == 0 and fake.begun() == [ALONE.label] and of_one_policy(tmp_path)


def test_a_policy_that_is_trained_again_takes_all_its_cells_along(
    fake: Fake, go: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its weights are gone and one cell is missing: the others are of the policy before."""
    lose(Store(tmp_path), ALONE)
    capsys.readouterr()
    assert go("variants", ALONE.label) == 0 and of_one_policy(tmp_path)
    assert fake.begun() == sorted({"l-paper", *(cell.label for cell in USERS.values())})
    count = len(USERS)
    said = f"to train: 1; to run: {count}, {count - 1} of them again, because their policy is trained again"
    assert said in capsys.readouterr().out


@pytest.mark.parametrize("damaged", [True, False])
def test_so_does_one_whose_training_is_lost(fake: Fake, go: Callable[..., int], tmp_path: Path, damaged: bool) -> None:
    store = Store(tmp_path)
    lose(store, POLICY, ALONE)
    if damaged:
        store.path(POLICY).write_bytes(b"half")
    assert go("variants", ALONE.label) == 0 and of_one_policy(tmp_path) and fake.trained == 2


def test_a_command_that_is_stopped_after_the_training_goes_on_with_all_cells(
    fake: Fake, go: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lose(Store(tmp_path), ALONE)
    fake.stops = True
    assert go("variants", ALONE.label) == 130 and fake.begun() == ["l-paper"]
    store = Store(tmp_path)
    assert all(store.load(cell) is None for cell in USERS.values())  # none passes for one of the new policy
    capsys.readouterr()
    assert go("variants", CENTRAL.label, "--list") == 0
    assert f"variants  outdated  {CENTRAL.name}" in capsys.readouterr().out
    fake.stops = False
    assert go("variants", ALONE.label) == 0 and fake.trained == 2 and of_one_policy(tmp_path)
    assert fake.begun() == sorted({cell.label for cell in USERS.values()})


def test_without_the_weights_nothing_is_run_again_that_needs_them(
    fake: Fake, go: Callable[..., int], tmp_path: Path
) -> None:
    """As in a clone, where weights are not: cells of earlier ones wait until somebody asks for them."""
    store, other = Store(tmp_path), next(cell for cell in USERS.values() if cell.label in ELSEWHERE)
    before = store.load(other)
    store.save(other, Result(before.table, {**before.about, "weights": "of another"}))
    shutil.rmtree(store.policies)
    assert Store(tmp_path).outdated(other)
    assert go("variants", ALONE.label) == 0 and fake.begun() == []
    assert go("delays", other.label) == 0 and fake.trained == 2 and of_one_policy(tmp_path)


def test_a_summary_of_a_policy_that_was_trained_since_is_not_taken_over(
    fake: Fake, go: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cell = Size().navigation(by_paper(Size(), "L"), delay=1.0)
    assert cell.needs is not None
    row = {"policy": "l-paper", "agents": 100, "scenario": "clusters", "delay": 1.0, "seed": 3, "episodes": 108}
    row |= {"metric": "success_rate", "t": 800.0, "mean": 0.8, "ci95": 0.01}
    about = {"complete": True, "task": "navigation", "version": __version__, "device": "a GPU", "torch": "2.6"}
    (tmp_path / "summary.json").write_text(json.dumps({**about, "rows": [row], "paired": []}))
    args = ("reproduce", "--adopt", tmp_path / "summary.json", "--out", tmp_path)
    files = {"config.json": b"{}", "model.safetensors": b"new"}
    Store(tmp_path).save(cell.needs, Result(pa.table({"epoch": [1]}), {"seconds": 0.0}, files))
    for known, why in (({}, "nobody knows of which weights"), ({"weights": {"l-paper": "0" * 16}}, "of other weights")):
        (tmp_path / "summary.json").write_text(json.dumps({**about, **known, "rows": [row], "paired": []}))
        assert mast(*args) == 0
        told = capsys.readouterr()
        assert "0 cells taken over" in told.out and why in told.err and not Store(tmp_path).path(cell).exists()
    known = {"weights": {"l-paper": known_by(files)}}
    (tmp_path / "summary.json").write_text(json.dumps({**about, **known, "rows": [row], "paired": []}))
    assert mast(*args) == 0 and Store(tmp_path).load(cell) is not None
    Store(tmp_path).path(cell).unlink()
    Store(tmp_path).path(cell.needs).unlink()
    assert mast(*args) == 0 and Store(tmp_path).load(cell) is not None


def test_a_maximum_age_is_the_same_however_it_is_written(tmp_path: Path) -> None:
    cell = Size().navigation("searcher-250-relay", delay=1.0, max_age=30.0)
    row = {"policy": "searcher-250-relay", "agents": 100, "scenario": "clusters", "delay": 1, "max_age": 30, "seed": 3}
    row |= {"episodes": 108, "metric": "success_rate", "t": 800.0, "mean": 0.8, "ci95": 0.01}
    about = {"complete": True, "task": "navigation", "version": __version__, "device": "a CPU", "torch": "2.6"}
    (tmp_path / "summary.json").write_text(json.dumps({**about, "rows": [row], "paired": []}))
    assert mast("reproduce", "--adopt", tmp_path / "summary.json", "--out", tmp_path) == 0
    assert Store(tmp_path).load(cell) is not None


def test_adopting_says_what_became_of_each_policy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    row = {"agents": 100, "scenario": "clusters", "delay": None, "seed": 3, "episodes": 108, "metric": "success_rate"}
    row |= {"t": 800.0, "mean": 0.8, "ci95": 0.01}
    rows = [{**row, "policy": policy} for policy in ("lsap", "Mine")] + [{**row, "policy": "dhba-8", "agents": 20}]
    about = {"complete": True, "task": "navigation", "version": __version__, "device": "a CPU", "torch": "2.6"}
    (tmp_path / "summary.json").write_text(json.dumps({**about, "rows": rows, "paired": []}))
    args = ("reproduce", "--adopt", tmp_path / "summary.json", "--out", tmp_path)
    assert mast(*args) == 0
    first, second = capsys.readouterr().out.splitlines()
    assert first.endswith("1 cell taken over; Mine left out: nobody can tell which policy that is")
    assert second.endswith(
        "dhba-8-clusters-n20 left out: no experiment has it; one has it with agents 100 (not agents 20)"
    )
    assert len(list((tmp_path / "cells").glob("*.parquet"))) == 1
    assert mast(*args) == 0 and "0 cells taken over; 1 as good there before; Mine" in capsys.readouterr().out


def test_weights_without_their_result_are_nobody_s(
    fake: Fake, go: Callable[..., int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the command was killed between the two: the result that is there is of the weights before."""

    def killed(*args: object, **settings: object) -> None:
        raise Killed

    lose(Store(tmp_path), ALONE)
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(cells_module.pq, "write_table", killed)
        go("variants", ALONE.label)
    assert Store(tmp_path).files(POLICY) is None
    assert go("variants", ALONE.label) == 0 and fake.trained == 3 and of_one_policy(tmp_path)
