"""The choice of attention radius and mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.coverage.common import C
from mast_swarm.paper.experiment import FAILS, HOLDS, LEVEL, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, curves, judged, sign
from mast_swarm.paper.measured import difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# One shorter schedule for all six: 50,000 samples instead of 100,000, and 20 passes over them instead of 100.
SHORT = {"epochs": 30, "environments": 40, "replay": 50_000}
BEST = "M 256"  # by the paper


def _window_cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for variant in "ML":
        for radius in size.some((256.0, 512.0, 1024.0)):
            policy = {"variant": variant, "attention_radius": radius}
            trained = size.trained("coverage", "paper", f"coverage-{variant}-{radius:g}", **SHORT, policy=policy)
            cells[f"{variant} {radius:g}"] = size.coverage(trained)
    return cells


def _window_rows(found: Found) -> list[Row]:
    def grid() -> Judged:
        chosen = found.measured(BEST)
        means = {name: found.measured(name).at(C) for name in found.cells}
        apart = {name: difference(found.measured(name), chosen, C) for name in found.cells if name != BEST}
        verdicts = {sign(one, wanted=1) for one in apart.values()}
        told = ", ".join(f"{name} {one}" for name, one in apart.items())
        return (
            ", ".join(f"{name} {mean}" for name, mean in means.items()),
            "-",
            FAILS if FAILS in verdicts else LEVEL if LEVEL in verdicts else HOLDS,
            f"centralised, 50,000 samples, 20 passes; M has the component mask, which at 256 m changes nothing: robots "
            f"that near are linked; above {BEST}, paired: {told}",
        )

    return [judged(found, 43, grid)]


def _window_draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    curves(axes, found, list(found.cells), "cost")
    axes.set(ylabel="cost", ylim=(0, 1.02))
    if axes.lines:
        axes.legend(fontsize=8)
    else:
        blank(axes)


declare(
    Experiment(
        "coverage-windows",
        "attention radius 256, 512 and 1024 m, with and without the component mask",
        "section Coverage Control, Training",
        _window_rows,
        _window_cells,
        _window_draw,
    )
)
