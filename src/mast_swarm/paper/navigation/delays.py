"""How much delay costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, bars, blank, curves, either, judged, present, shown
from mast_swarm.paper.measured import Estimate, difference
from mast_swarm.paper.navigation.common import S, by_paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TAUS = tuple(round(0.1 * step, 1) for step in range(1, 11))  # the paper's
CURVES = TAUS[1::2]  # of which the paper has curves over time
OTHERS = (0.0, 0.25, 0.75)  # of our own; 0 is left out of the figures: it is what centralized execution is
_KINDS = ("best", "paper")


def _recipe(letter: str, kind: str) -> str:
    return "the paper's recipe" if kind == "paper" else {"M": "the recipe best", "L": "our own recipe"}[letter]


def _cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for letter in "ML":
        for kind, policy in (("best", f"mast-{letter.lower()}"), ("paper", by_paper(size, letter))):
            cells[f"{letter} {kind} central"] = size.navigation(policy)
            taus = size.some(TAUS) if kind == "paper" or size.quick else sorted({*TAUS, *OTHERS})
            cells |= {f"{letter} {kind} {tau:g}": size.navigation(policy, delay=float(tau)) for tau in taus}
    return cells


def _rows(found: Found) -> list[Row]:
    def of(kind: str, taus: Iterable[float]) -> list[str]:
        return [name for tau in taus for letter in "ML" if (name := f"{letter} {kind} {tau:g}") in found.cells]

    def count(which: str, paper: tuple[float, ...], drawn: tuple[float, ...]) -> Judged:
        """Of the paper's delays; what our figure has besides is told apart."""
        whole = {kind: of(kind, paper) for kind in ("paper", "best")}
        there = {kind: present(found, names) for kind, names in whole.items()}
        recipe, best = (f"{len(there[kind])} of {len(whole[kind])} delays" for kind in whole)
        beside = len(present(found, of("best", sorted({*drawn} - {*paper}))))
        why = f"the figure; counted: {which}, M and L each" + (f"; ours has {beside} others beside" if beside else "")
        return recipe, best, shown(sum(map(len, there.values())), sum(map(len, whole.values()))), why

    def over_time() -> Judged:
        return count("the paper's curves, multiples of 0.2", CURVES, CURVES)

    def at_end() -> Judged:
        return count("the paper's delays, 0.1 to 1.0", TAUS, (*TAUS, *OTHERS[1:]))

    def change(letter: str, kind: str, t: float | None = None, before: str = "central") -> Estimate:
        return difference(found.measured(f"{letter} {kind} 1"), found.measured(f"{letter} {kind} {before}"), S, t)

    def longer(letter: str) -> str:
        """How much of it is due to longer delays, and not to robots that decide alone."""
        if not found.has((f"{letter} paper 0.1", f"{letter} paper 1")):
            return ""
        return f"; of that {change(letter, 'paper', before='0.1')} from tau = 0.1 dt on"

    def unaffected() -> Judged:
        kind = "paper" if found.has(("M paper 1", "M paper central")) else "best"
        gaps = [change("M", kind, t) for t in (None, 50.0)]
        recipe = f"{gaps[0]}, at 50 s {gaps[1]}" if kind == "paper" else "not run"
        best = f"{change('M', 'best')}, at 50 s {change('M', 'best', 50.0)}"
        words = ["better" if gap.above_zero else "worse" if gap.below_zero else "no different" for gap in gaps]
        why = "tau = dt minus central, at the end and at 50 s; unaffected where the interval contains 0; with delay "
        why += f"{words[0]} at the end, of which the paper speaks, and {words[1]} at 50 s{longer('M')}"
        return recipe, best, either(*(not (gap.below_zero or gap.above_zero) for gap in gaps)), why

    def falls() -> Judged:
        recipe = difference(found.measured("L paper 1"), found.measured("L paper central"), S)
        levels = [found.measured(f"L paper {at}").mean(S) for at in ("central", "1")]
        verdict = either(recipe.below_zero, abs(levels[0] - 0.9) < 0.05, abs(levels[1] - 0.8) < 0.05)
        text = f"{levels[0]:.3f} to {levels[1]:.3f}: {recipe}"
        why = "tau = dt minus central at the end; holds if it falls, from 0.9 and to 0.8, each within 0.05"
        why += longer("L")
        return text, str(change("L", "best")), verdict, why

    judges = {32: over_time, 33: at_end, 34: unaffected, 35: falls}
    return [judged(found, claim, judge) for claim, judge in judges.items()]


def _draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import policy_colour

    parts: Any = figure.subfigures(2, 1, height_ratios=(3, 2))
    top, bottom = parts
    grid = top.subplots(2, 2, sharex=True, sharey=True)
    for row, kind in zip(grid, _KINDS, strict=True):
        for axes, letter in zip(row, "LM", strict=True):
            names = [f"{letter} {kind} central", *(f"{letter} {kind} {tau:g}" for tau in CURVES)]
            curves(axes, found, names, S, lambda name: name.split()[-1])
            axes.set_title(f"MAST-{letter}, {_recipe(letter, kind)}", loc="left")
            axes.set(ylim=(0, 1.02), xlabel="time (s)" if kind == _KINDS[-1] else "")
            axes.set(ylabel="success rate" if letter == "L" else "")
            if not axes.lines:
                blank(axes)
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if handles:
        title = "delay per hop, in control periods"
        top.legend(handles, labels, title=title, loc="outside upper center", ncols=len(labels), fontsize=8)
    axes = bottom.subplots()
    for number, (letter, kind) in enumerate((a, b) for a in "ML" for b in _KINDS):
        points = []
        for name in found.results:
            if name.startswith(f"{letter} {kind} "):
                tau = 0.0 if name.endswith("central") else float(name.split()[-1])
                if not name.endswith(" 0"):
                    points.append((tau, found.measured(name).at(S)))
        points.sort(key=lambda point: point[0])
        if points:
            label, colour = f"MAST-{letter}, {_recipe(letter, kind)}", policy_colour(number)
            bars(axes, *zip(*points, strict=True), capsize=2, color=colour, label=label)
    axes.set(xlabel="delay per hop, in control periods (0: centralized)", ylabel="success rate at the end")
    axes.legend(fontsize=8, ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))


declare(
    Experiment(
        "delays",
        "delay over time and at the end, for M and L",
        "Figs. 10 and 11",
        _rows,
        _cells,
        _draw,
        shape=(7.2, 8.4),
    )
)
