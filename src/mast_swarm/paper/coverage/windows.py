"""The choice of attention radius and mask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.coverage.common import C, apart
from mast_swarm.paper.effort import searched
from mast_swarm.paper.experiment import Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, bars, blank, choice, in_part, judged

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
        means = {name: found.measured(name).at(C) for name in found.cells}
        gaps = {name: apart(found, name, BEST) for name in found.cells if name != BEST}
        told = ", ".join(f"{name} {one}" for name, one in gaps.items())
        search = searched("coverage", 400, 100)
        return (
            ", ".join(f"{name} {mean}" for name, mean in means.items()),
            "-",
            in_part(choice(*gaps.values())),
            f"centralized, 50,000 samples, 20 passes; M has the component mask, which at 256 m changes nothing: robots "
            f"that near are linked; each minus {BEST}: {told}; the grid alone is {choice(*gaps.values())}, since "
            f"{BEST} is the best for sure only where such an interval lies above 0; partly at most, because the search "
            f"for coverage was not run: as large as the paper's for navigation, {search.searched} trials of 10 to 100 "
            f"epochs, {search.epochs:,} epochs in all at {search.seconds / search.epochs:.1f} s, it takes about "
            f"{search.took} on an H200",
        )

    return [judged(found, 43, grid)]


def _window_draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import policy_colour

    axes, words = figure.subplots(), {"M": "with the component mask", "L": "without"}
    for number, (variant, name) in enumerate(words.items()):
        cells = [cell.split() for cell in found.results if cell.startswith(variant)]
        if not cells:
            continue
        places = [float(radius) * (0.98 + 0.04 * number) for _, radius in cells]  # side by side
        costs = [found.measured(f"{variant} {radius}").at(C) for _, radius in cells]
        bars(axes, places, costs, linestyle="", capsize=4, color=policy_colour(number), label=name)
    if not axes.has_data():
        blank(axes)
        return
    radii = sorted({float(cell.split()[1]) for cell in found.results})
    axes.set(xscale="log", xlabel="attention radius (m)", ylabel="cost, averaged over time")
    axes.set_xticks(radii, [f"{radius:g}" for radius in radii])
    axes.minorticks_off()
    axes.legend()


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
