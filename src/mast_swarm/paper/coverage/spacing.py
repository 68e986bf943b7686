"""How evenly robots space themselves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mast_swarm.paper.cells import Cell, weights
from mast_swarm.paper.coverage.common import EQUAL
from mast_swarm.paper.experiment import Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, judged, present, sign
from mast_swarm.paper.measured import Estimate, bootstrap

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SPACED = ("clairvoyant", "mast-m", "lpac-k3", EQUAL)


def _spacing_cells(size: Size) -> Mapping[str, Cell]:
    given = {"agents": 64, "features": 8, "side": 1024.0, "dt": 0.2, "episodes": 20, "steps": 600, "seed": 4}
    if size.quick:
        given |= {"agents": 6, "episodes": 2, "steps": 3}
    cells = {}
    for policy in SPACED:
        known = weights("coverage", policy)
        settings = {"task": "coverage", "policy": policy, **({"weights": known} if known else {}), **given}
        cells[policy] = Cell("spacing", settings, f"spacing-{policy}")
    return cells


def _spacing_rows(found: Found) -> list[Row]:
    def uniform() -> Judged:
        def column(policy: str, name: str) -> np.ndarray:
            return found[policy].table[name].to_numpy()

        def minus_ours(other: str) -> Estimate:
            return bootstrap(column(other, "unevenness") - column("mast-m", "unevenness"))

        gap = minus_ours(EQUAL)
        text = ", ".join(f"{p} {column(p, 'unevenness').mean():.2f}" for p in present(found, SPACED))
        under = ", ".join(f"{p} {column(p, 'importance').mean():.1f}" for p in present(found, SPACED))
        verdict = sign(gap, wanted=-1)
        why = f"20 environments; {EQUAL}, which has mast-m's five maps, minus mast-m, by which it is judged, {gap}"
        why += f"; lpac-k3, which has four, minus mast-m {minus_ours('lpac-k3')}" if "lpac-k3" in found.results else ""
        why += f"; importance under robots in units of its mean: {under}"
        return "-", text, verdict, f"spread of the distance to the nearest robot over its mean, N = 64, F = 8; {why}"

    return [judged(found, 58, uniform)]


def _spacing_draw(found: Found, figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    for axes, name, label in (
        (left, "unevenness", "spread / mean of nearest distances"),
        (right, "importance", "importance under robots"),
    ):
        ready = present(found, SPACED)
        if ready:
            axes.boxplot([found[p].table[name].to_numpy() for p in ready], tick_labels=ready)
            axes.tick_params(axis="x", rotation=20)
        else:
            blank(axes)
        axes.set_ylabel(label)


declare(
    Experiment(
        "coverage-spacing",
        "whether LPAC-K3 tends to uniform spacing",
        "section Coverage Control, Discussion",
        _spacing_rows,
        _spacing_cells,
        _spacing_draw,
        shape=(7.4, 3.6),
        notes="All run centrally, N = 64, F = 8, at the end of 600 steps.",
    )
)
