"""The paper's recipe, 500 epochs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import FAILS, HOLDS, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, judged
from mast_swarm.paper.navigation.common import S

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _training_cells(size: Size) -> Mapping[str, Cell]:
    return {v: size.trained("navigation", "paper", f"{v.lower()}-paper", policy={"variant": v}) for v in "MLC"}


def _training_rows(found: Found) -> list[Row]:
    def epochs() -> Judged:
        count = {name: int(max(found[name].table["epoch"].to_pylist())) for name in found.cells}
        last = {name: [x for x in found[name].table[S].to_pylist() if x is not None][-1] for name in found.cells}
        text = ", ".join(f"{name} {count[name]} epochs, validation {last[name]:.3f}" for name in count)
        return (
            text,
            "mast-m: another recipe",
            HOLDS if set(count.values()) == {500} else FAILS,
            "validation is at t = 200 s and of the last epoch; the policy that is kept is that of the best one",
        )

    return [judged(found, 15, epochs)]


def _training_draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import policy_colour

    axes = figure.subplots()
    for name in found.results:
        rows = [(r["epoch"], r[S]) for r in found[name].table.to_pylist() if r.get(S) is not None]
        colour = policy_colour("CLM".index(name))  # as in `variants`
        axes.plot(*zip(*rows, strict=True), label=f"MAST-{name}", linewidth=1.2, color=colour)
    axes.set(xlabel="epoch", ylabel="success rate at 200 s in validation", ylim=(0, 1.02))
    axes.set_title("the paper's recipe", loc="left")
    if axes.lines:
        axes.legend()
    else:
        blank(axes)


declare(
    Experiment(
        "training",
        "the paper's recipe: 500 epochs of M, L and C",
        "section Hyperparameters and Training",
        _training_rows,
        _training_cells,
        _training_draw,
    )
)
