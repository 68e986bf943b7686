"""`mast reproduce` from end to end, at the size of --quick."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from matplotlib.figure import Figure
from scipy import stats

from mast_swarm.errors import MastError, Terminated
from mast_swarm.evaluate import run as evaluation
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.run import Interrupted
from mast_swarm.paper import run as running
from mast_swarm.paper import work
from mast_swarm.paper.cells import Cell, Result, Store, weights
from mast_swarm.paper.cities import CITIES, FOLDER, window
from mast_swarm.paper.claims import CLAIMS
from mast_swarm.paper.config import ReproduceConfig
from mast_swarm.paper.experiment import EXPERIMENTS, Found, Row, Size
from mast_swarm.paper.judge import blank
from mast_swarm.paper.measured import Measured, bootstrap, difference
from mast_swarm.paper.navigation.common import SCENARIOS
from mast_swarm.paper.run import folder, kept_of
from mast_swarm.paper.work import configured, families, forget, is_family, run, run_together
from mast_swarm.tasks.coverage.points import read_points
from mast_swarm.train import checkpoint
from mast_swarm.train.config import plain
from mast_swarm.train.family import FamilyTrainer
from mast_swarm.train.trainer import RunOptions
from shared import mast, one_line

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All experiments. What can be trained together is, as on a GPU."""
    out = tmp_path_factory.mktemp("reproduce") / "out"
    args = ("--all", "--quick", "--report", "--device", "cpu", "--jobs", 1, "--together", 4)
    assert mast("reproduce", *args, "--out", out) == 0
    return out


@pytest.mark.slow
def test_every_experiment_gives_a_table_a_figure_and_rows(whole: Path) -> None:
    for name, experiment in EXPERIMENTS.items():
        for kind in ("png", "pdf"):
            assert (whole / "figures" / f"{name}.{kind}").stat().st_size > 1000
        rows = json.loads((whole / "rows" / f"{name}.json").read_text())
        assert {row["claim"] for row in rows} <= set(CLAIMS)
        if experiment.cells(Size(quick=True)):
            assert pq.read_table(whole / "tables" / f"{name}.parquet").num_rows
    page = (whole / "README.md").read_text()
    assert all(f"\n| {number} | " in page for number in range(1, 59))
    assert "they say nothing" in page and "| run here |" in (whole / "cells.md").read_text()


@pytest.mark.slow
def test_policies_that_can_be_are_trained_together(whole: Path) -> None:
    store, together = Store(whole), dict[str, int]()
    for cell in EXPERIMENTS["encodings"].cells(Size(quick=True)).values():
        trained = store.load(cell.needs) if cell.needs is not None else None
        assert trained is not None and cell.needs is not None
        together[cell.needs.label] = trained.about.get("together", 1)
        assert trained.table["epoch"].to_pylist() == [1] and np.isfinite(trained.table["loss"].to_pylist()).all()
    assert max(together.values()) == 4 and not list((whole / "scratch").glob("*/*.safetensors"))  # nor a checkpoint


def test_a_family_goes_on_with_those_with_whom_it_was_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    all_cells = EXPERIMENTS["encodings"].cells(Size(quick=True)).values()
    cells = {cell.needs.label: cell.needs for cell in all_cells if cell.needs}
    some = [cell for name, cell in cells.items() if name.startswith("M")]
    assert len(some) == 4 and families(some, 3, tmp_path) == [some[:3], some[3:]]
    assert not is_family(some[3:], tmp_path) and len(families(some, 1, tmp_path)) == 4
    options = RunOptions(tmp_path / "family-x", torch.device("cpu"))
    options.out.mkdir()
    begun = FamilyTrainer([configured(cell) for cell in some[1:]], options)
    begun.save()
    begun.collector.close()
    assert families(some, 25, tmp_path) == [some[1:], some[:1]]  # one of other company would begin anew
    assert families(some[:2], 25, tmp_path) == [some[1:2], some[:1]] and is_family(some[1:2], tmp_path)
    trained = work.train_family
    monkeypatch.setattr(work, "train_family", lambda *args: trained(*args) or True)  # as if it had had epochs before
    (result,) = run_together(some[2:3], "cpu", str(tmp_path))
    spent = sum(result.table["seconds"].to_pylist()) / 3  # of all epochs, of which each member has a share
    assert result.about["resumed"] and result.about["seconds"] == pytest.approx(spent, abs=0.06)
    assert result.about["together"] == 3 and result.about["config"] == plain(configured(some[2]))
    forget(some[2:3], tmp_path)
    assert not list(tmp_path.glob("*/*.safetensors")) and families(some, 25, tmp_path) == [some]


def test_a_cell_waits_for_its_own_policy_alone() -> None:
    size = Size(quick=True)
    policies = [size.trained("navigation", "paper", f"policy-{n}", seed=n) for n in range(2)]
    cells = {f"{n}": size.navigation(policy) for n, policy in enumerate(policies)}
    cells["free"] = size.navigation("explorer")
    kept: set[str] = set()
    order = running._in_turn([[policy] for policy in policies], cells, kept)
    assert [next(order) for _ in range(3)] == [[policies[0]], [policies[1]], [cells["free"]]]
    assert next(order) is None and next(order) is None
    kept.add(policies[1].key)
    assert next(order) == [cells["1"]] and next(order) is None
    kept.add(policies[0].key)
    assert list(order) == [[cells["0"]]]


def test_a_step_of_the_ablation_is_told_where_the_one_before_is_there() -> None:
    experiment, size = EXPERIMENTS["ablation"], Size()
    cells = experiment.cells(size)
    table = pa.table({"episode": [0, 1] * 2, "t": [50.0] * 2 + [800.0] * 2, "success_rate": [0.4, 0.5, 0.8, 0.9]})
    paper, informed, _, ours = ({name: Result(table, {})} for name in cells)
    assert "; " not in experiment.says(Found(cells, paper | ours, size))  # what is between them is not due to one step
    assert experiment.says(Found(cells, paper | informed | ours, size)).count("; + informed expert +0.000") == 2


def test_seeds_share_the_cells_of_shipped_policies_and_tell_what_is_there() -> None:
    experiment, size = EXPERIMENTS["seeds"], Size()
    cells = experiment.cells(size)
    elsewhere = {name: EXPERIMENTS[name].cells(size) for name in ("baselines", "coverage-curves")}
    assert cells["sharp 0 alone"] == elsewhere["baselines"]["mast-m-sharp"]
    assert cells["coverage best 0 alone"] == elsewhere["coverage-curves"]["mast-m"]
    needed = [cells[f"sharp {seed} alone"].needs for seed in (1, 2)]
    assert [configured(cell).epochs for cell in needed if cell is not None] == [339, 339]

    kept = kept_of(experiment, Store(DOCS / "results"), size)
    assert {f"{recipe} {seed} alone" for recipe in ("best", "paper") for seed in range(3)} <= set(kept)
    some = {name: result for name, result in kept.items() if name not in ("best 2 alone", "sharp 1 alone")}
    told = experiment.says(Found(cells, some, size))
    assert "| `best`, alone | 2 of 3 | NVIDIA H200 bf16 | " in told and ", sd " in told
    alone = {name: result for name, result in kept.items() if name == "best 0 alone"}
    assert (
        ", sd " not in (told := experiment.says(Found(cells, alone, size)))
        and "| `sharp`, alone | 0 of 3 | - |" in told
    )
    for results in ({}, alone, some):
        figure = Figure()
        assert experiment.draw is not None
        experiment.draw(Found(cells, results, size), figure)
        assert len(figure.axes) == 3


def test_a_cell_that_is_stopped_names_no_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(task: str, config: EvaluateConfig, progress: object) -> None:
        assert config.out is not None
        raise Interrupted(config.out, Terminated())

    monkeypatch.setattr(work, "evaluate", stopped)
    with pytest.raises(Terminated) as raised:
        run(Size(quick=True).navigation("explorer"), {}, "cpu", str(tmp_path))
    assert str(raised.value) == "" and not list(tmp_path.iterdir())  # nothing was finished


def test_an_evaluation_goes_on_where_it_was_stopped(
    tmp_path: Path, policy_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "task": "navigation",
        "policy": "trained",
        "agents": 12,
        "scenario": "clusters",
        "episodes": 3,
        "steps": 4,
    }
    cell = Cell("evaluate", {**settings, "seed": 3}, "a policy")
    files = {path.name: path.read_bytes() for path in policy_folder.iterdir() if path.is_file()}
    whole = run(cell, files, "cpu", str(tmp_path / "whole")).table
    real = evaluation._part
    ran: list[list[int]] = []

    def part(*args: Any) -> Any:
        if len(ran) == stop:
            raise KeyboardInterrupt
        ran.append(args[4])
        return real(*args)

    monkeypatch.setattr(evaluation, "_part", part)
    monkeypatch.setattr(evaluation, "_batch", lambda *args: 1)
    stop = 2
    with pytest.raises(KeyboardInterrupt):
        run(cell, files, "cpu", str(tmp_path / "stopped"))
    stop = 99
    found = run(cell, files, "cpu", str(tmp_path / "stopped"))
    assert ran == [[0], [1], [2]] and found.table == whole and found.about["resumed"]
    assert not list((tmp_path / "stopped").iterdir())
    stop = 4
    with pytest.raises(KeyboardInterrupt):
        run(cell, files, "cpu", str(tmp_path / "stopped"))
    stop = 99
    another = {**files, "config.json": files["config.json"] + b"\n"}
    found = run(cell, another, "cpu", str(tmp_path / "stopped"))  # nothing of the policy before
    assert ran[4:] == [[0], [1], [2]] and "resumed" not in found.about
    stop = 8
    with pytest.raises(KeyboardInterrupt):
        run(cell, files, "cpu", str(tmp_path / "stopped"))
    stop = 99
    (tmp_path / "stopped").rename(tmp_path / "moved")  # its settings name a folder that is not there any more
    assert run(cell, files, "cpu", str(tmp_path / "moved")).table == whole and ran[8:] == [[0], [1], [2]]


def test_a_policy_that_was_trained_is_not_lost_before_it_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command may be stopped after a policy's last epoch and before its result is written."""
    cell = next(c.needs for c in EXPERIMENTS["encodings"].cells(Size(quick=True)).values() if c.needs)
    first = run(cell, {}, "cpu", str(tmp_path))
    assert not first.about["resumed"] and not list(tmp_path.glob("*/*.safetensors"))
    with monkeypatch.context() as patched:
        patched.setattr(work, "train", None)  # there is nothing left to do
        second = run(cell, {}, "cpu", str(tmp_path))
    assert second.files == first.files and second.table == first.table and second.about["resumed"]
    assert second.about["precision"] == first.about["precision"] == "fp32"
    assert second.about["seconds"] == pytest.approx(sum(first.table["seconds"].to_pylist()), abs=0.1)
    forget([cell], tmp_path)
    third = run(cell, {}, "cpu", str(tmp_path))  # was kept and is missing again: anew
    assert third.files == first.files and not third.about["resumed"]


@pytest.mark.parametrize("most", [0, 10**9])
def test_checkpoints_leave_out_a_replay_that_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Four trainings side by side, with replays of 7 to 21 GB, have filled a disk."""
    cell, held = next(c.needs for c in EXPERIMENTS["encodings"].cells(Size(quick=True)).values() if c.needs), []
    monkeypatch.setattr(work, "_KEPT", most)
    train = work.train

    def watched(*given: Any, **settings: Any) -> Path:
        out = train(*given, **settings)
        held.append(any(name.startswith("replay.") for name in checkpoint.read(out)))
        return out

    monkeypatch.setattr(work, "train", watched)
    run(cell, {}, "cpu", str(tmp_path))
    assert held == [most > 0]


@pytest.mark.slow
def test_a_second_run_runs_nothing_but_what_is_damaged(
    whole: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    true = running.run
    monkeypatch.setattr(running, "run", lambda cell, *rest: (ran.append(cell.key), true(cell, *rest))[1])
    args = ("reproduce", "variants", "--quick", "--device", "cpu", "--jobs", 1, "--out", whole)
    assert mast(*args) == 0 and ran == []
    store = Store(whole)
    cell = EXPERIMENTS["variants"].cells(Size(quick=True))["M best central"]
    path = store.path(cell)
    before = pq.read_table(path)
    path.write_bytes(path.read_bytes()[:-100])
    assert mast(*args) == 0 and ran == [cell.key]
    assert "counts as missing" in capsys.readouterr().err
    assert pq.read_table(path).to_pydict() == before.to_pydict()


@pytest.mark.slow
def test_time_that_is_over_leaves_the_rest_for_later(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("reproduce", "coverage-spacing", "--quick", "--device", "cpu", "--jobs", 1, "--out", tmp_path / "out")
    assert mast(*args, "--seconds", 1e-3) == 0
    assert "cells are left" in capsys.readouterr().out
    assert len(list((tmp_path / "out" / "cells").glob("*.parquet"))) == 1
    assert mast(*args) == 0
    assert len(list((tmp_path / "out" / "cells").glob("*.parquet"))) == 4


def test_unknown_experiments_and_bad_settings_end_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mast("reproduce", "baselines", "--paired", "--kept") == 2 and "--kept runs nothing" in one_line(capsys)
    assert mast("reproduce", "--paired", "--report", "--out", tmp_path) == 2 and "name an experiment" in one_line(
        capsys
    )
    for given in ("baseline", "nosuch", "xyz"):
        assert mast("reproduce", given) == 2 and f"known: {', '.join(sorted(EXPERIMENTS))}\n" in one_line(capsys)
    assert mast("reproduce", "--out", tmp_path) == 2 and "coverage-grid" in one_line(capsys)
    assert mast("reproduce", "baselines", "--all") == 2 and "--all" in one_line(capsys)
    assert mast("reproduce", "baselines", "--jobs", 0) == 2 and "--jobs" in one_line(capsys)
    assert mast("reproduce", "--adopt", tmp_path / "nothing") == 2 and "summary.json" in one_line(capsys)


def test_a_folder_that_takes_no_files_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(running, "_run_missing", lambda *given: pytest.fail("something ran"))
    for name in ("starts", "baselines"):
        for out in (tmp_path / "file", tmp_path / "file" / "below"):
            assert mast("reproduce", name, "--quick", "--out", out) == 2
            assert f"cannot write to {out}" in one_line(capsys)
    assert mast("reproduce", "--list", "--out", tmp_path / "file") == 2
    assert "is a file: give a folder" in one_line(capsys)


def test_what_the_machine_has_not_is_told_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    monkeypatch.setattr(running, "_run_missing", lambda *given: pytest.fail("something ran"))
    assert mast("reproduce", "baselines", "--quick", "--device", "cuda", "--out", tmp_path) == 2
    assert "cuda" in one_line(capsys)
    assert mast("reproduce", "baselines", "--quick", "--gpus", "1", "--out", tmp_path) == 2
    assert "--ray" in one_line(capsys)


def test_words_that_no_cell_has_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("reproduce", "scenarios", "--quick", "--out", tmp_path / "out")
    assert mast(*args, "--only", "graph", "zircle") == 2
    assert "unknown word of --only 'zircle'" in one_line(capsys)
    assert not list((tmp_path / "out").glob("*/*"))
    assert mast(*args, "--list", "--only", "graph") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown and all("graph" in line for line in shown)


def test_cells_are_called_by_what_they_differ_in() -> None:
    names = [cell.label for name in ("delays", "coverage-grid") for cell in EXPERIMENTS[name].cells(Size()).values()]
    assert len(set(names)) == len(names) and {"l-paper-clusters-n100-d0.3", "lpac-k3-seen-n8-f16-s1024"} <= set(names)


def test_results_are_those_of_the_clone_that_a_command_runs_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mast_swarm.__file__", str(tmp_path / "site-packages/mast_swarm/__init__.py"))
    assert folder(ReproduceConfig()) == Path("runs/reproduce")
    (tmp_path / "docs/results/cells").mkdir(parents=True)
    assert folder(ReproduceConfig()) == tmp_path / "docs/results"
    assert folder(ReproduceConfig(out=Path("mine"))) == Path("mine")


@pytest.mark.slow
def test_the_list_calls_a_damaged_cell_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("reproduce", "scenarios", "--quick", "--device", "cpu", "--jobs", 1, "--only", "graph-text")
    assert mast(*args, "--out", tmp_path) == 0 and mast(*args, "--out", tmp_path, "--list") == 0
    assert "there     graph-text" in capsys.readouterr().out
    (path,) = tmp_path.glob("cells/graph-text*.parquet")
    path.write_bytes(path.read_bytes()[:-20])
    assert mast(*args, "--out", tmp_path, "--list") == 0
    printed = capsys.readouterr()
    assert "missing   graph-text" in printed.out and "counts as missing" in printed.err


def test_the_list_says_what_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("reproduce", "--list", "--out", tmp_path) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in EXPERIMENTS) and "0 of 360 cells" in printed


def rates(values: list[float]) -> Result:
    """An evaluation of which each start state ended with such a success rate."""
    rows = [{"episode": e, "t": t, "success_rate": end * t / 800} for e, end in enumerate(values) for t in (0.0, 800.0)]
    return Result(pa.Table.from_pylist(rows), {})


def explained(connected: dict[str, float], ends: dict[str, dict[str, float]]) -> tuple[str, str]:
    """The verdict on claim 30 and what it says of the paper's recipe, from chances and ends by scenario."""
    results = {f"graph {name}": Result(pa.table({"together": [share]}), {}) for name, share in connected.items()}
    for policy, each in ends.items():
        results |= {f"{policy} {name}": rates([value, value]) for name, value in each.items()}
    found = Found(EXPERIMENTS["scenarios"].cells(Size()), results, Size())
    row = next(row for row in EXPERIMENTS["scenarios"].rows(found) if row.claim == 30)
    return row.verdict, row.recipe


def test_connectivity_explains_scenarios_if_no_single_one_makes_the_correlation() -> None:
    policies = ("mast-m-paper", "mast-m", "dhba-8")
    connected = {name: 0.1 * number for number, name in enumerate(SCENARIOS)}
    rising = {name: 0.5 + share / 3 for name, share in connected.items()}
    verdict, text = explained(connected, dict.fromkeys(policies, rising))
    assert verdict == "holds" and text.startswith("rank correlation +1.00, least without ")
    # Above 0.7 over all, and below without one of them.
    ranks = dict(zip(SCENARIOS, (1, 4, 2, 3, 5, 7, 6, 8), strict=True))
    bent = {name: 0.5 + 0.05 * rank for name, rank in ranks.items()}
    assert explained(connected, dict.fromkeys(policies, bent))[0] == "holds"
    ranks = dict(zip(SCENARIOS, (1, 4, 5, 2, 3, 7, 6, 8), strict=True))
    alone = {name: 0.5 + 0.05 * rank for name, rank in ranks.items()}
    verdict, text = explained(connected, dict.fromkeys(policies, alone))
    assert verdict == "does not hold"
    assert text.startswith("rank correlation +0.79, least without ") and text.endswith(": +0.68")
    assert explained(connected, {**dict.fromkeys(policies, rising), "mast-m": alone})[0] == "partly"


def test_what_is_judged_on_several_policies_does_not_hold_on_some() -> None:
    connected = {name: 0.1 * number for number, name in enumerate(SCENARIOS)}
    rising = {name: 0.5 + share / 3 for name, share in connected.items()}
    falling = {name: 1.0 - rate for name, rate in rising.items()}

    def verdict(**ends: dict[str, float]) -> str:
        return explained(connected, {name.replace("_", "-"): each for name, each in ends.items()})[0]

    assert (verdict(), verdict(dhba_8=falling), verdict(mast_m_paper=rising)) == ("not run", "not run", "partly")


def test_only_delays_of_the_paper_are_counted_and_others_are_told_apart() -> None:
    experiment, size = EXPERIMENTS["delays"], Size()
    cells = experiment.cells(size)

    def rows(*names: str) -> dict[int, Row]:
        found = Found(cells, {name: rates([0.9, 0.8]) for name in names}, size)
        return {row.claim: row for row in experiment.rows(found) if row.claim in (32, 33)}

    given = rows("M best central", "M best 0.25", "M best 0.3", "M best 0.4", "L best 0.5", "L best 0", "M paper 1")
    assert (given[32].recipe, given[32].best, given[32].verdict) == ("1 of 10 delays", "1 of 10 delays", "partly")
    assert (given[33].recipe, given[33].best, given[33].verdict) == ("1 of 20 delays", "3 of 20 delays", "partly")
    assert "others" not in given[32].why and "1 others" in given[33].why
    assert {row.verdict for row in rows("M best 0.25", "L best 0", "L paper central").values()} == {"not run"}
    paper = [name for name in cells if not name.endswith(("central", " 0", " 0.25", " 0.75"))]
    assert [row.verdict for row in rows(*paper).values()] == ["holds", "holds"]


def test_who_beats_some_of_dhba_beats_it_partly() -> None:
    experiment, size = EXPERIMENTS["baselines"], Size()
    found = kept_of(experiment, Store(DOCS / "results"), size)

    def verdict(**ends: float) -> str:
        made = {f"dhba-{k}": rates([0.5, 0.5, 0.5]) for k in (0, 1, 2, 4, 8, 16)} | {"mast-m": rates([0.7, 0.7, 0.7])}
        made |= {name.replace("_", "-"): rates([end, end, end]) for name, end in ends.items()}
        return next(row.verdict for row in experiment.rows(Found(found.cells, made, size)) if row.claim == 21)

    assert verdict(mast_m_paper=0.6) == "holds"
    assert verdict(mast_m_paper=0.6, dhba_16=0.65) == "partly"
    assert verdict(mast_m_paper=0.4) == "does not hold"


def test_means_alone_do_not_show_that_nobody_is_ahead() -> None:
    experiment, size = EXPERIMENTS["baselines"], Size()
    found = kept_of(experiment, Store(DOCS / "results"), size)

    def behind(result: Result) -> str:
        some = {name: result if name == "mast-m-sharp" else one for name, one in found.results.items()}
        return next(row.best for row in experiment.rows(Found(found.cells, some, size)) if row.claim == 23)

    t, best = [0.0, 400.0, 800.0], {"policy": "mast-m-sharp", "metric": "success_rate", "ci95": 0.01, "episodes": 108}
    means = pa.Table.from_pylist([{**best, "t": at, "mean": 0.95 if at else 0.01} for at in t])
    each = pa.table(
        {"episode": [e for e in range(108) for _ in t], "t": t * 108, "success_rate": [0.1, 1.0, 1.0] * 108}
    )
    assert behind(Result(means, {})) == "mast-m-sharp behind: not shown (unpaired)"
    assert behind(Result(each, {})) == "mast-m-sharp behind: never"


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_some_cells_alone_never_end_a_report_and_nothing_is_judged_on_none(share: float) -> None:
    """Whatever is missing: each claim has a verdict, and without a cell there is none."""
    store, size, chance = Store(DOCS / "results"), Size(), np.random.default_rng(7)
    for experiment in EXPERIMENTS.values():
        found = kept_of(experiment, store, size)
        some = {name: result for name, result in found.results.items() if chance.random() < share}
        for row in experiment.rows(Found(found.cells, some, size)):
            assert row.verdict == "not run" or some or not found.cells, row
            assert "nan" not in row.recipe + row.best + row.why


def test_a_panel_that_is_not_run_takes_no_ticks_from_others() -> None:
    experiment, size = EXPERIMENTS["encodings"], Size()
    found = kept_of(experiment, Store(DOCS / "results"), size)
    one = {name: result for name, result in found.results.items() if name.startswith("M rope-g 250 ")}
    figure = Figure()
    experiment.draw(Found(found.cells, one, size), figure)
    assert all(len(axes.get_xticks()) and len(axes.get_yticks()) for axes in figure.axes)
    alone = Figure().add_subplot()
    blank(alone)
    assert not len(alone.get_xticks()) and not len(alone.get_yticks())


def test_a_city_of_one_policy_alone_is_not_judged() -> None:
    experiment, size = EXPERIMENTS["coverage-cities"], Size()
    found = kept_of(experiment, Store(DOCS / "results"), size)
    some = {name: result for name, result in found.results.items() if not name.startswith("mast-m ")}
    assert [row.verdict for row in experiment.rows(Found(found.cells, some, size))] == ["not run"]


def test_every_claim_is_judged_once_and_what_is_missing_is_counted() -> None:
    rows = []
    for experiment in EXPERIMENTS.values():
        cells = experiment.cells(Size())
        if cells:
            rows += experiment.rows(Found(cells, {}, Size()))
    claims = [row.claim for row in rows]
    assert len(claims) == len(set(claims)) and set(CLAIMS) == set(range(1, 59))
    for row in rows:
        if row.verdict == "not run":
            assert " missing: " in row.why and " on an H200" in row.why
    assert {1, 2, 3, 4, 6, 8, 9, 10, 11, 31, 39, 41, 57} == set(CLAIMS) - set(claims)  # these need no cells


def test_evaluations_made_elsewhere_are_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, out = tmp_path / "run", tmp_path / "out"
    args = ("--agents", 25, "--episodes", 2, "--steps", 12, "--seed", 3, "--device", "cpu", "--out", folder)
    assert mast("evaluate", "navigation", "--policy", "dhba-8", "lsap", *args) == 0
    assert mast("reproduce", "--adopt", folder / "summary.json", "--out", out) == 0
    cells = EXPERIMENTS["baselines"].cells(Size(quick=True))
    assert "2 cells taken over" in capsys.readouterr().out
    assert Store(out).load(cells["lsap"]).means_only
    assert mast("reproduce", "baselines", "--quick", "--list", "--only", "lsap", "--out", out) == 0
    assert "baselines  means     lsap-" in capsys.readouterr().out
    assert mast("reproduce", "--adopt", folder, "--out", out) == 0  # every episode is better than means
    found = Store(out).load(cells["lsap"])
    assert found.table.num_rows == 2 * 13 and found.about["from"] == "run/summary.json"
    assert mast("reproduce", "--adopt", folder, "--out", out) == 0
    assert "0 cells taken over" in capsys.readouterr().out.splitlines()[-1]
    late = (*args[:-1], tmp_path / "late", "--delay", 1.0, "--max-age", 30.0)
    assert mast("evaluate", "navigation", "--policy", "mast-m-sharp", "searcher-250-relay", *late) == 0
    assert mast("reproduce", "--adopt", tmp_path / "late", "--out", out) == 0
    assert Store(out).load(cells["mast-m-sharp"]) is not None and Store(out).load(cells["mast-m"]) is None
    assert Store(out).load(cells["searcher-250-relay"]) is not None


def test_nothing_is_drawn_of_no_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("reproduce", "baselines", "--kept", "--out", tmp_path / "new") == 2
    assert "has none of these cells: leave --kept away" in one_line(capsys)
    assert not (tmp_path / "new" / "figures").exists()


@pytest.mark.parametrize(
    ("ends", "status", "told"),
    [
        (KeyboardInterrupt(), 130, "interrupted; 1 of 2 cells are kept; the same command goes on"),
        (MastError("no room"), 2, "no room; 1 of 2 cells are kept, and the same command goes on"),
    ],
)
def test_who_is_stopped_is_told_how_it_goes_on(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    ends: BaseException,
    status: int,
    told: str,
) -> None:
    true, ran = running.run, list[str]()

    def second_is_stopped(cell: Cell, *rest: Any) -> Result:
        ran.append(cell.label)
        if len(ran) == 2:
            raise ends
        return true(cell, *rest)

    monkeypatch.setattr(running, "run", second_is_stopped)
    args = ("--only", "lsap", "dhba-8-clusters", "--quick", "--device", "cpu", "--jobs", 1, "--out", tmp_path)
    assert mast("reproduce", "baselines", *args) == status
    assert capsys.readouterr().err == f"mast: {told}\n"


def test_evaluations_of_other_weights_are_not_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--agents", 5, "--episodes", 1, "--steps", 2, "--seed", 3, "--device", "cpu", "--out", tmp_path / "run")
    assert mast("evaluate", "navigation", "--policy", "mast-m", *args) == 0
    summary = tmp_path / "run" / "summary.json"
    found = json.loads(summary.read_text())
    assert found["weights"] == {"mast-m": weights("navigation", "mast-m")}
    summary.write_text(json.dumps(found | {"weights": {"mast-m": "0123456789abcdef"}}))
    capsys.readouterr()
    assert mast("reproduce", "--adopt", tmp_path / "run", "--out", tmp_path / "out") == 2
    assert "is of other weights of mast-m than" in one_line(capsys)


def test_cells_of_which_only_means_are_known_are_run_again_to_be_paired(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = tmp_path / "run", tmp_path / "out"
    args = ("--agents", 25, "--episodes", 2, "--steps", 12, "--seed", 3, "--device", "cpu", "--out", folder)
    assert mast("evaluate", "navigation", "--policy", "dhba-8", "lsap", *args) == 0
    assert mast("reproduce", "--adopt", folder / "summary.json", "--out", out) == 0
    args = ("reproduce", "baselines", "--quick", "--only", "lsap", "dhba-8-clusters", "--jobs", 1, "--out", out)
    lsap = EXPERIMENTS["baselines"].cells(Size(quick=True))["lsap"]
    means = Store(out).load(lsap)
    capsys.readouterr()
    assert mast(*args) == 0 and Store(out).load(lsap).means_only
    assert mast(*args, "--paired") == 0
    found = Store(out).load(lsap)
    assert not found.means_only and found.about["device"].endswith("CPU") and "from" not in found.about
    before, now = (Measured(result, lsap.settings).at("success_rate").mean for result in (means, found))
    assert now == pytest.approx(before, abs=1e-6)
    capsys.readouterr()
    assert mast(*args, "--paired") == 0 and "to run" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--delay", 1.0, "--failure", 0.5), "failure = 0.5"),
        (("--max-speed", 1.0), "max_speed = 1.0"),
        (("--safe",), "safe = True"),
    ],
)
def test_evaluations_with_other_settings_are_not_taken_over(
    more: tuple[object, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--agents", 5, "--episodes", 1, "--steps", 2, "--seed", 3, "--device", "cpu", "--out", tmp_path / "run")
    assert mast("evaluate", "navigation", "--policy", "lsap", *args, *more) == 0
    capsys.readouterr()
    assert mast("reproduce", "--adopt", tmp_path / "run", "--out", tmp_path / "out") == 2
    assert f"was run with {told}, which no cell has" in one_line(capsys)


def test_evaluations_of_another_version_are_not_taken_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = FOLDER.parents[3] / "docs/results/navigation/central.json"
    (tmp_path / "summary.json").write_text(json.dumps(json.loads(known.read_text()) | {"version": "0.0.1"}))
    assert mast("reproduce", "--adopt", tmp_path / "summary.json", "--out", tmp_path / "out") == 2
    assert "was made by version 0.0.1" in one_line(capsys)


def test_a_table_with_nan_is_kept_and_checked(tmp_path: Path) -> None:
    cell, table = Cell("spacing", {"task": "coverage"}, "nan"), pa.table({"x": [1.0, float("nan")]})
    Store(tmp_path).save(cell, Result(table, {"seconds": 1}))
    found = Store(tmp_path).load(cell)
    assert found is not None and np.isnan(found.table["x"].to_numpy()).tolist() == [False, True]


def test_the_bootstrap_is_that_of_scipy() -> None:
    values = np.random.default_rng(1).normal(0.1, 1.0, 80)
    ours = bootstrap(values)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=40_000, rng=2).confidence_interval
    assert ours.half == pytest.approx((theirs.high - theirs.low) / 2, rel=0.02)
    assert ours.ends == pytest.approx((theirs.low, theirs.high), abs=0.02 * ours.half)


def test_a_difference_is_paired_where_start_states_are_the_same_and_not_where_they_are_others() -> None:
    rng = np.random.default_rng(0)
    starts = rng.uniform(0.2, 0.9, 50)  # how hard each is: the same for both

    def measured(values: np.ndarray, **settings: object) -> Measured:
        columns = {"episode": np.arange(50), "t": np.zeros(50), "success_rate": values}
        return Measured(Result(pa.table(columns), {}), {"task": "navigation", "seed": 3, **settings})

    better = starts + 0.05 + rng.normal(0, 0.01, 50)
    one, other = measured(better, policy="mast-m", delay=1.0), measured(starts, policy="dhba-8")
    same = difference(one, other, "success_rate")
    others = difference(measured(better, scenario="circle"), other, "success_rate")
    assert same.mean == pytest.approx(others.mean) and same.above_zero and not others.above_zero
    assert str(others).endswith("(unpaired)") and "unpaired" not in str(same)
    each = [np.std(m.metrics["success_rate"][:, 0], ddof=1) / np.sqrt(50) for m in (one, other)]
    assert others.half == pytest.approx(1.96 * np.hypot(*each), rel=0.03)


@pytest.mark.parametrize("city", CITIES, ids=lambda city: city.name)
def test_windows_of_cities_hold_as_many_signals_as_the_paper_states(city) -> None:
    assert len(read_points(str(FOLDER / city.file), 1024.0, window(city.file, city.signals))) == city.signals
    assert "OpenStreetMap" in (FOLDER / "README.md").read_text()
