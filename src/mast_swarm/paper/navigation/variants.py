"""What robots may attend to: C, L and M."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import FAILS, HOLDS, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, curves, judged, overall, sign
from mast_swarm.paper.measured import difference
from mast_swarm.paper.navigation.common import S, by_paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for letter in "CLM":
        for kind, policy in (("best", f"mast-{letter.lower()}"), ("paper", by_paper(size, letter))):
            cells[f"{letter} {kind} central"] = size.navigation(policy)
            if letter != "C":
                cells[f"{letter} {kind} alone"] = size.navigation(policy, delay=1.0)
    return cells


def _rows(found: Found) -> list[Row]:
    def end(letter: str, kind: str, how: str = "central") -> float:
        return found.measured(f"{letter} {kind} {how}").mean(S)

    def text(kind: str, how: str, letters: str) -> str:
        try:
            return ", ".join(f"{letter} {end(letter, kind, how):.3f}" for letter in letters)
        except KeyError:
            return "not run"

    def order() -> Judged:
        pairs = [(a, b) for a, b in ("CL", "LM")]
        gaps = [
            difference(found.measured(f"{a} paper central"), found.measured(f"{b} paper central"), S) for a, b in pairs
        ]
        verdict = overall(*(sign(gap, wanted=1) for gap in gaps))
        apart = ", ".join(f"{a} minus {b} {gap}" for (a, b), gap in zip(pairs, gaps, strict=True))
        why = f"at the end, by one recipe for all three: {apart}; ours differ in theirs"
        return text("paper", "central", "CLM"), text("best", "central", "CLM"), verdict, why

    def below() -> Judged:
        gap = difference(found.measured("L paper alone"), found.measured("M paper alone"), S)
        why = f"L minus M at tau = dt {gap}"
        if found.has(("L best alone", "M best alone")):
            ours = difference(found.measured("L best alone"), found.measured("M best alone"), S)
            why += f"; by recipes of ours, which differ, {ours}"
        return text("paper", "alone", "LM"), text("best", "alone", "LM"), sign(gap, wanted=-1), why

    def only() -> Judged:
        ends = {letter: end(letter, "paper") for letter in "CLM"}
        verdict = HOLDS if [letter for letter, value in ends.items() if value > 0.9] == ["C"] else FAILS
        early = ", ".join(f"{v} {found.measured(f'{v} paper central').mean(S, 200.0):.3f}" for v in "CLM")
        why = (
            f"centralized, at the end, by the paper's recipe; at t = 200 s {early}; from a note of the source that is "
        )
        why += "not printed, which speaks of the study of encodings (row 19)"
        return text("paper", "central", "CLM"), text("best", "central", "CLM"), verdict, why

    return [judged(found, claim, judge) for claim, judge in {36: order, 37: below, 38: only}.items()]


def _draw(found: Found, figure: Figure) -> None:
    for axes, kind in zip(figure.subplots(1, 2, sharey=True), ("paper", "best"), strict=True):
        names = [
            f"{a} {kind} {how}"
            for a, how in (("C", "central"), ("L", "central"), ("M", "central"), ("L", "alone"), ("M", "alone"))
        ]
        curves(axes, found, names, S, lambda name: f"{name[0]} {name.split()[-1]}")
        axes.set_title({"paper": "the paper's recipe", "best": "our own recipes"}[kind], loc="left")
        axes.set(ylim=(0, 1.02), ylabel="success rate")
        if axes.lines:
            axes.legend(fontsize=8, loc="lower right")
        else:
            blank(axes)


declare(
    Experiment(
        "variants",
        "C, L and M, centralized and decentralized",
        "Fig. 12",
        _rows,
        _cells,
        _draw,
        shape=(7.4, 3.6),
    )
)
