"""How much delay costs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, curves, either, judged, shown
from mast_swarm.paper.measured import Estimate, difference
from mast_swarm.paper.navigation.common import S, by_paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure


TAUS = tuple(round(0.1 * step, 1) for step in range(1, 11))


def _cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for letter in "ML":
        for kind, policy in (("best", f"mast-{letter.lower()}"), ("paper", by_paper(size, letter))):
            cells[f"{letter} {kind} central"] = size.navigation(policy)
            taus = size.some(TAUS) if kind == "paper" or size.quick else sorted({*TAUS, 0.0, 0.25, 0.75})
            cells |= {f"{letter} {kind} {tau:g}": size.navigation(policy, delay=float(tau)) for tau in taus}
    return cells


def _rows(found: Found) -> list[Row]:
    def count(text: str) -> Judged:
        kinds = {
            k: len([n for n in found.results if f" {k} " in n and not n.endswith("central")]) for k in ("paper", "best")
        }
        whole = {k: len([n for n in found.cells if f" {k} " in n and not n.endswith("central")]) for k in kinds}
        texts = [f"{kinds[k]} of {whole[k]} delays" for k in kinds]
        return texts[0], texts[1], shown(sum(kinds.values()), sum(whole.values())), text

    def change(letter: str, kind: str, t: float | None = None) -> Estimate:
        return difference(found.measured(f"{letter} {kind} 1"), found.measured(f"{letter} {kind} central"), S, t)

    def unaffected() -> Judged:
        kind = "paper" if found.has(("M paper 1", "M paper central")) else "best"
        gaps = [change("M", kind, t) for t in (None, 50.0)]
        recipe = f"{gaps[0]}, at 50 s {gaps[1]}" if kind == "paper" else "not run"
        best = f"{change('M', 'best')}, at 50 s {change('M', 'best', 50.0)}"
        why = "tau = dt minus central, at the end and at 50 s; unaffected where the interval contains 0"
        return recipe, best, either(*(not (gap.below_zero or gap.above_zero) for gap in gaps)), why

    def falls() -> Judged:
        recipe = difference(found.measured("L paper 1"), found.measured("L paper central"), S)
        levels = [found.measured(f"L paper {at}").at(S).mean for at in ("central", "1")]
        verdict = either(recipe.below_zero, abs(levels[0] - 0.9) < 0.05, abs(levels[1] - 0.8) < 0.05)
        text = f"{levels[0]:.3f} to {levels[1]:.3f}: {recipe}"
        why = "tau = dt minus central at the end; holds if it falls, from 0.9 and to 0.8, each within 0.05"
        return text, str(change("L", "best")), verdict, why

    judges = {34: unaffected, 35: falls}
    drawn = [judged(found, c, lambda t=t: count(t)) for c, t in ((32, "the figure"), (33, "the figure"))]  # type: ignore[misc]
    return [*drawn, *(judged(found, claim, judge) for claim, judge in judges.items())]


def _draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import policy_colour

    parts: Any = figure.subfigures(2, 1)
    top, bottom = parts
    for axes, letter in zip(top.subplots(1, 2, sharey=True), "LM", strict=True):
        chosen = [f"{letter} best {tau:g}" for tau in (0.2, 0.25, 0.4, 0.5, 0.6, 0.75, 0.8, 1.0)]
        curves(axes, found, [f"{letter} best central", *chosen], S, lambda name: name.split()[-1])
        axes.set_title(f"MAST-{letter}, our best", loc="left")
        axes.set(ylim=(0, 1.02), ylabel="success rate" if letter == "L" else "")
        if axes.lines:
            axes.legend(title="tau / dt", fontsize=7, ncols=2)
        else:
            blank(axes)
    axes = bottom.subplots()
    for number, (letter, kind) in enumerate((a, b) for a in "ML" for b in ("best", "paper")):
        points = []
        for name in found.results:
            if name.startswith(f"{letter} {kind} "):
                tau = 0.0 if name.endswith("central") else float(name.split()[-1])
                if not name.endswith(" 0"):
                    points.append((tau, found.measured(name).at(S)))
        points.sort(key=lambda point: point[0])
        if points:
            label = f"MAST-{letter}, {'our best' if kind == 'best' else 'paper recipe'}"
            axes.errorbar(
                [tau for tau, _ in points],
                [e.mean for _, e in points],
                [e.half or 0.0 for _, e in points],
                marker="o", capsize=2, color=policy_colour(number), label=label,
            )  # fmt: skip
    axes.set(xlabel="delay per hop, in control periods (0: centralised)", ylabel="success rate at the end")
    axes.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))


declare(
    Experiment(
        "delays",
        "delay over time and at the end, for M and L",
        "Figs. 10 and 11",
        _rows,
        _cells,
        _draw,
        shape=(7.2, 6.4),
    )
)
