"""Larger teams, with and without a window."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import HOLDS, PARTLY, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, bars, blank, either, judged, present
from mast_swarm.paper.measured import difference
from mast_swarm.paper.navigation.common import S, by_paper
from mast_swarm.paper.study.common import SHORT, SIZES, at_size, studied

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _team_cells(size: Size) -> Mapping[str, Cell]:
    kinds: dict[str, str | Cell] = {"mast-m": "mast-m", "paper": by_paper(size, "M")}
    # A pair that differs in the window alone: two models of the study of encodings.
    kinds |= {name: studied(size, "M", "rope-g", radius) for name, radius in (("window", 250.0), ("no-window", None))}
    return {f"{kind} {n}": at_size(size, policy, n) for kind, policy in kinds.items() for n in size.some(SIZES)}


def _team_rows(found: Found) -> list[Row]:
    sizes = found.size.some(SIZES)

    def end(kind: str, agents: int) -> float:
        return found.measured(f"{kind} {agents}").mean(S)

    def listed(kind: str) -> str:
        return ", ".join(f"{n}: {end(kind, n):.3f}" for n in sizes if f"{kind} {n}" in found.results) or "not run"

    def sizes_run() -> Judged:
        if not present(found, (f"mast-m {n}" for n in sizes)):
            found[f"mast-m {sizes[0]}"]
        done = found.has(f"{kind} {n}" for kind in ("mast-m", "paper") for n in sizes)
        return (
            listed("paper"),
            listed("mast-m"),
            HOLDS if done else PARTLY,
            "success rate at t = 200 s by N, centralized; 54 start states up to N = 300, 18 above; holds: all are run",
        )

    def window() -> Judged:
        held, lost = (
            difference(found.measured(f"{kind} {sizes[-1]}"), found.measured(f"{kind} {sizes[0]}"), S)
            for kind in ("window", "no-window")
        )
        text = f"N = {sizes[0]} to {sizes[-1]}: with a window {held}, without {lost}"
        verdict = either(not held.below_zero, lost.below_zero)
        why = f"both by the paper's recipe, {SHORT} epochs, RoPE-G, centralized, t = 200 s; other encodings: encodings"
        return text, listed("mast-m"), verdict, why

    return [judged(found, 20, sizes_run), judged(found, 7, window)]


def _team_draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    names = {"mast-m": "mast-m", "paper": "paper's recipe, 500 epochs, R_att 250"}
    names |= {"window": f"{SHORT} epochs, R_att 250", "no-window": f"{SHORT} epochs, no window"}
    for kind, label in names.items():
        points = [(n, found.measured(f"{kind} {n}").at(S)) for n in SIZES if f"{kind} {n}" in found.results]
        if points:
            bars(axes, *zip(*points, strict=True), capsize=2, label=label)
    axes.set(xlabel="robots", ylabel="success rate at t = 200 s", ylim=(0, 1.02))
    if axes.containers:
        axes.legend()
    else:
        blank(axes)


declare(
    Experiment(
        "teams",
        "N from 100 to 1000 at t = 200 s, with and without a window",
        "Fig. 19 (bottom), size generalisation",
        _team_rows,
        _team_cells,
        _team_draw,
        shape=(6.4, 3.8),
    )
)
