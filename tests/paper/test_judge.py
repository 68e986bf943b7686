"""What is measured, and the verdicts that come from it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from mast_swarm.paper import report
from mast_swarm.paper.cells import Result, Store, training
from mast_swarm.paper.effort import COMPILING, needed, searched, work_of
from mast_swarm.paper.experiment import EXPERIMENTS, FAILS, HOLDS, LEVEL, PARTLY, Found, Report, Row, Size
from mast_swarm.paper.judge import choice, in_part, near, overall, sign
from mast_swarm.paper.measured import Estimate, Measured, bootstrap, estimated, flat
from mast_swarm.paper.run import kept_of
from mast_swarm.paper.study.common import LITTLE
from mast_swarm.paper.work import configured

KEPT = Path(__file__).parents[2] / "docs/results"
UP, DOWN, OPEN = (Estimate(mean, (mean - 0.1, mean + 0.1), signed=True) for mean in (0.2, -0.2, 0.05))


def rows(name: str, without: str = "") -> dict[int, Row]:
    """The rows of an experiment as they are kept, without the cells whose name begins so."""
    found = kept_of(EXPERIMENTS[name], Store(KEPT), Size())
    left = {cell: one for cell, one in found.results.items() if not (without and cell.startswith(without))}
    return {row.claim: row for row in EXPERIMENTS[name].rows(Found(found.cells, left, Size()))}


def measured(values: np.ndarray, **settings: object) -> Measured:
    """Of one instant."""
    columns = {"episode": np.arange(len(values)), "t": np.zeros(len(values)), "success_rate": values}
    return Measured(Result(pa.table(columns), {}), settings)


def test_judged_is_by_the_ends_of_an_interval_not_by_half_its_width() -> None:
    skewed = Estimate(0.2, (0.05, 0.6), signed=True)
    assert skewed.above_zero and str(skewed) == "+0.200 ± 0.275" and skewed.mean < skewed.half
    assert not Estimate(0.2, (-0.01, 0.3)).above_zero and Estimate(-0.2, (-0.9, -0.01)).below_zero
    assert not Estimate(0.2, None).above_zero and str(Estimate(0.2, None)) == "0.200"
    few = np.append(np.zeros(60), np.full(5, 1.0))  # a few large differences: its interval reaches further up
    low, high = bootstrap(few).ends
    assert high - few.mean() > 1.05 * (few.mean() - low)


def test_means_and_curves_have_the_same_interval_as_differences() -> None:
    values = np.random.default_rng(3).beta(8, 1, 108)
    one = measured(values)
    theirs = stats.bootstrap((values,), np.mean, method="percentile", n_resamples=40_000, rng=1).confidence_interval
    assert one.at("success_rate").ends == pytest.approx((theirs.low, theirs.high), abs=3e-4)
    _, mean, ends = one.curve("success_rate")
    assert mean == pytest.approx(values.mean()) and ends[:, 0] == pytest.approx((theirs.low, theirs.high), abs=1e-3)
    assert flat(measured(values[:1]), "one episode")[0]["ci95"] is None


def test_what_is_computed_from_means_has_an_interval_too() -> None:
    rng = np.random.default_rng(5)
    starts = rng.uniform(1.0, 2.0, 400)
    one, other = measured(starts * 0.8), measured(starts)
    ratio = one.drawn("success_rate") / other.drawn("success_rate")
    assert estimated(ratio).mean == pytest.approx(0.8) and estimated(ratio).half < 1e-9  # on the same start states
    apart = estimated(one.drawn("success_rate") / other.drawn("success_rate", starts=1))
    spread = np.std(starts) / np.mean(starts) / 20  # of a mean of 400, relative
    assert apart.half == pytest.approx(1.96 * 0.8 * spread * np.sqrt(2), rel=0.05)


def test_several_parts_and_a_choice_among_several() -> None:
    assert [sign(one, wanted=1) for one in (UP, DOWN, OPEN)] == [HOLDS, FAILS, LEVEL]
    assert (overall(HOLDS, HOLDS), overall(HOLDS, LEVEL), overall(FAILS, LEVEL)) == (HOLDS, LEVEL, FAILS)
    assert (overall(HOLDS, FAILS), overall(HOLDS, PARTLY), overall(LEVEL, PARTLY, FAILS)) == (PARTLY, PARTLY, PARTLY)
    assert (choice(UP, UP), choice(UP, OPEN), choice(UP, OPEN, DOWN)) == (HOLDS, LEVEL, FAILS)
    assert [in_part(one) for one in (HOLDS, LEVEL, PARTLY, FAILS)] == [PARTLY, PARTLY, PARTLY, FAILS]
    assert [near(UP, value, 0.15) for value in (0.2, 0.3, 0.6)] == [HOLDS, LEVEL, FAILS]


def test_epochs_are_those_of_the_recipe() -> None:
    cell = training("coverage", "paper", "a policy")
    assert work_of([cell], []).epochs == configured(cell).epochs == 110
    shorter = training("coverage", "paper", "a policy", epochs=30)
    assert work_of([shorter], []).seconds - COMPILING == pytest.approx(
        (work_of([cell], []).seconds - COMPILING) * 30 / 110
    )
    assert work_of([shorter, cell], []).seconds == pytest.approx(140 / 110 * (work_of([cell], []).seconds - COMPILING))
    late = Size().coverage(cell, delay=0.2)
    assert needed([late, late]).trained == 1 and needed([late]).epochs == 110
    search = EXPERIMENTS["search"].cells(Size())["search"]
    assert work_of([], [search]).seconds == searched("navigation", 24, 32).seconds


def test_what_rests_on_a_part_of_the_study_holds_in_part_at_most() -> None:
    for claim, gone, told in ((16, "C ape-l inf", "C inf ape-l"), (18, "L ape-l 250", "L 250 ape-l")):
        less = rows("encodings", gone)[claim]
        assert less.verdict == PARTLY and f"1 of {60 if claim == 16 else 20} models are missing ({told})" in less.why
        assert "1 policy to train, 6 cells to run" in less.why and " on an H200" in less.why
    whole = rows("encodings")
    assert whole[16].verdict == PARTLY and not any(" missing " in whole[claim].why for claim in (16, 17, 18, 19))
    assert rows("encodings", "C rope-g 250")[19].verdict == "not run"


def test_models_that_learned_nothing_judge_nothing() -> None:
    for experiment, claim in (("encodings", 17), ("encodings", 18), ("wavelength", 5)):
        assert "ape-l left out: " in rows(experiment)[claim].why
    flat_line = kept_of(EXPERIMENTS["wavelength"], Store(KEPT), Size())
    assert max(flat_line.measured(name).mean("success_rate") for name in flat_line if name.startswith("ape-l")) < LITTLE
    assert "ape-l has learned almost nothing" in rows("encodings")[12].why


def test_coverage_is_judged_on_a_rival_with_the_same_maps() -> None:
    for experiment, claims in (
        ("coverage-sides", (47, 50)),
        ("coverage-grid", (54,)),
        ("coverage-cities", (55,)),
        ("coverage-spacing", (58,)),
    ):
        kept, without = rows(experiment), rows(experiment, "lpac-k3 ")
        for claim in claims:
            assert without[claim].verdict == kept[claim].verdict and "lpac-k3-seen" in kept[claim].why
            assert rows(experiment, "lpac-k3-seen")[claim].verdict == "not run"


def test_by_the_papers_recipe_the_rival_is_trained_by_it_too() -> None:
    row, without = rows("coverage-curves")[44], rows("coverage-curves", "lpac-k3-paper")[44]
    assert "lpac-k3-paper" in row.recipe and "lpac-k3-seen" in row.best and "lpac-k3-paper" not in row.best
    assert "lpac-k3" not in without.recipe and without.verdict == PARTLY and "missing" in without.why


def test_a_search_that_was_not_run_is_told_in_numbers() -> None:
    row = rows("coverage-windows")[43]
    assert row.verdict == PARTLY and "400 trials" in row.why and "20,000 epochs" in row.why and " h on an" in row.why


def test_trainings_stand_among_the_cells_with_all_their_time() -> None:
    policy = training("navigation", "paper", "a policy")
    cell = Size().navigation(policy)
    epochs = {"epoch": [1, 2], "seconds": [10.0, 20.0]}
    trained = Result(pa.table(epochs), {"seconds": 12.0, "device": "NVIDIA H200", "config": {"precision": "bf16"}})
    family = Result(pa.table(epochs), {"seconds": 3.0, "together": 5})
    beside = training("navigation", "paper", "another", seed=1)
    found = {"one": Result(pa.table({"t": [0.0]}), {})}
    trainings = [(policy, trained), (beside, family)]
    page = report._cells([Report(EXPERIMENTS["seeds"], [], {"one": cell}, found, trainings)])
    assert f"| a policy | train | NVIDIA H200 | bf16 | 30.0 | run here | {policy.key} |" in page
    assert f"| another | train | not recorded | not recorded | 6.0 | run here | {beside.key} |" in page
    assert f"| evaluate | not recorded | not recorded | not recorded | run here | {cell.key} |" in page


def test_what_may_still_move_is_not_told_as_converged() -> None:
    row = rows("coverage-curves")[45]
    assert "lpac-k3-paper -1.9 ± 2.3 %" in row.best and row.verdict == LEVEL
    assert rows("coverage-curves", "lpac-k3-paper")[45].verdict == HOLDS
