"""Coverage cost over time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.coverage.common import EQUAL, C, run
from mast_swarm.paper.experiment import FAILS, HOLDS, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, curves, in_part, judged, near, overall, present, sign
from mast_swarm.paper.measured import Estimate, Measured, difference, estimated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = ("clairvoyant", "mast-m", "mast-m-paper", "lpac-k3", "lpac-k3-seen", "lpac-k3-paper", "c-cvt", "d-cvt")


def _lpac_paper(size: Size) -> Cell:
    """LPAC-K3 by the paper's recipe for MAST-M: the same 100,000 samples."""
    return size.trained("coverage", "paper", "lpac-k3-paper", policy={"kind": "lpac"})


def _curve_cells(size: Size) -> Mapping[str, Cell]:
    chosen = [name for name in SHOWN if name != "lpac-k3-paper"]
    cells = {name: run(size, name, seed=2) for name in chosen}
    cells |= {"lpac-k3-paper": size.coverage(_lpac_paper(size), seed=2)}
    # The same policies where larger worlds and the grid have them too: of these only the end is known.
    cells |= {f"end {name}": run(size, name) for name in chosen}
    other = {"mast-m central": None, "lpac-k3 alone": 0.2, "lpac-k3-seen alone": 0.2}  # under the other execution
    return cells | {f"end {name}": size.coverage(name.split()[0], delay=delay) for name, delay in other.items()}


def _curve_rows(found: Found) -> list[Row]:
    curved = [name for name in SHOWN if name != "lpac-k3-paper"]
    prefix = "" if found.has(curved) else "end "

    def ended(name: str) -> Measured:
        return found.measured(name if name == "lpac-k3-paper" else f"{prefix}{name}")

    def gap(ours: str, other: str) -> Estimate:
        return difference(ended(ours), ended(other), C)

    def below() -> Judged:
        trained = "lpac-k3-paper" in found.results and not prefix
        rivals = {"mast-m-paper": ["lpac-k3-paper"] if trained else [], "mast-m": [EQUAL]}
        gaps = {ours: {name: gap(ours, name) for name in ("c-cvt", "d-cvt", *rivals[ours])} for ours in rivals}
        texts = {ours: ", ".join(f"{name} {one}" for name, one in each.items()) for ours, each in gaps.items()}
        verdict = overall(*(sign(one, wanted=-1) for one in gaps["mast-m-paper"].values()))
        why = (
            "MAST-M minus each, time average; judged on the paper's recipe, by which lpac-k3-paper is trained too, on "
        )
        why += f"the same four maps; {EQUAL} has mast-m's five maps and its recipe; beside these, mast-m-paper minus "
        why += f"lpac-k3, which has four maps and our recipe, {gap('mast-m-paper', 'lpac-k3')}"
        if not trained:
            why += "; partly at most, because lpac-k3-paper is missing"
        return texts["mast-m-paper"], texts["mast-m"], verdict if trained else in_part(verdict), why

    def converge() -> Judged:
        left = {}
        for name in present(found, SHOWN):
            measured = found.measured(name)
            late = measured.t[measured.t >= measured.end * 5 / 6 - 1e-9][0]  # the last 100 of 600 steps
            start, before, end = (measured.drawn("cost", t) for t in (measured.t[0], late, measured.end))
            left[name] = estimated((before - end) / np.maximum(start - end, 1e-9))
        if len(left) < 3:
            found["mast-m"]
        text = ", ".join(
            f"{name} {100 * share.mean:z.1f}" + ("" if share.half is None else f" ± {100 * share.half:.1f}") + " %"
            for name, share in left.items()
        )
        verdict = overall(*(near(share, 0.0, 0.02) for share in left.values()))
        why = "share of the whole fall that comes in the last 100 steps; converged: less than 2 %, up or down"
        return "-", text, verdict, why

    def family() -> Judged:
        names = ("clairvoyant", "c-cvt", "d-cvt")
        steps = [gap(first, second) for first, second in itertools.pairwise(names)]
        why = f"{', '.join(names)}; each minus the next is below 0: {', '.join(map(str, steps))}"
        ends = ", ".join(str(ended(name).at(C)) for name in names)
        return "-", ends, overall(*(sign(step, wanted=-1) for step in steps)), why

    def samples() -> Judged:
        recipe, best = ended("mast-m-paper").at(C), ended("mast-m").at(C)
        from mast_swarm.tasks.coverage.recipes import PAPER

        return str(recipe), str(best), HOLDS if PAPER.gathered() == 100_000 else FAILS, f"{PAPER.gathered():,} samples"

    judges = {40: family, 42: samples, 44: below, 45: converge}
    return [judged(found, claim, judge) for claim, judge in judges.items()]


def _curve_draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    curves(axes, found, SHOWN, "cost")
    axes.set(ylabel="cost as a share of that at the start", ylim=(0, 1.02))
    figure.legend(loc="outside lower center", ncols=4, fontsize=8)


declare(
    Experiment(
        "coverage-curves",
        "coverage cost over time, and whether all converge",
        "Fig. 14",
        _curve_rows,
        _curve_cells,
        _curve_draw,
        shape=(6.4, 4.6),
        notes="MAST-M is run by every robot alone, 0.2 s per hop; LPAC-K3 and the CVTs have no delay. Rows and curves "
        "are of start states of seed 2; those of seed 0, of which the other experiments of coverage and the table in "
        "docs/coverage.md are, give costs that differ by up to 0.012.",
    )
)
