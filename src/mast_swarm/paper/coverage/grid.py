"""Teams of 8 to 64 robots in worlds of 8 to 64 features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.coverage.common import USUAL, C, run
from mast_swarm.paper.experiment import FAILS, HOLDS, Experiment, Found, Missing, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, counted, either, heat, judged
from mast_swarm.paper.measured import difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = tuple(range(8, 65, 8))
CORNERS = (8, 32, 64)  # of the grid, for the paper's recipe


def _grid_cells(size: Size) -> Mapping[str, Cell]:
    places = [(n, f) for n in size.some(GRID) for f in size.some(GRID)]
    chosen = ("d-cvt", "lpac-k3", "mast-m") if size.quick else (*USUAL, "lpac-k3-seen")
    cells = {f"{p} {n} {f}": run(size, p, agents=n, features=f) for n, f in places for p in chosen}
    if not size.quick:
        cells |= {
            f"mast-m-paper {n} {f}": run(size, "mast-m-paper", agents=n, features=f) for n in CORNERS for f in CORNERS
        }
    return cells


def gains_over(found: Found, ours: str, other: str) -> dict[tuple[int, int], float]:
    """By N, F: how far our time average is below the other's, in %."""
    gains = {}
    for name in found.results:
        policy, n, f = name.split()
        if policy == ours and f"{other} {n} {f}" in found.results:
            gains[int(n), int(f)] = 100 * (
                1 - found.measured(name).at(C).mean / found.measured(f"{other} {n} {f}").at(C).mean
            )
    if not gains:
        raise Missing([ours, other])
    return gains


def _ends(gains: Mapping[tuple[int, int], float]) -> str:
    low, high = min(gains, key=lambda at: gains[at]), max(gains, key=lambda at: gains[at])
    if len(gains) == 1:
        return f"{gains[low]:+.0f} % at {low}, the only cell run"
    return f"{gains[low]:+.0f} % {low} to {gains[high]:+.0f} % {high}, {len(gains)} cells"


def _grid_rows(found: Found) -> list[Row]:
    def listed(ours: str, other: str) -> str:
        try:
            return _ends(gains_over(found, ours, other))
        except KeyError:
            return "not run"

    def counts(other: str) -> str:
        gaps = [
            difference(found.measured(f"mast-m {n} {f}"), found.measured(f"{other} {n} {f}"), C)
            for n, f in gains_over(found, "mast-m", other)
        ]
        return counted("mast-m", other, gaps)

    def least() -> Judged:
        gains = gains_over(found, "mast-m", "d-cvt")
        low = min(gains, key=lambda at: gains[at])
        if (8, 8) not in gains:
            raise Missing(["mast-m 8 8", "d-cvt 8 8"])
        corner = gains[8, 8]
        verdict = either(min(gains.values()) > 0, low == (8, 8), abs(corner - 6) < 5)
        why = f"judged on mast-m: everywhere, least at (8, 8), by 6 % give or take 5; at (8, 8) {corner:+.0f} %"
        return listed("mast-m-paper", "d-cvt"), _ends(gains), verdict, why

    def most() -> Judged:
        gains = gains_over(found, "mast-m", "d-cvt")
        high = max(gains, key=lambda at: gains[at])
        verdict = either(abs(gains[high] - 43) < 10, high[0] >= 32)
        there = ", ".join(f"{at} {gains[at]:+.0f} %" for at in ((32, 32), (40, 32)) if at in gains)
        why = f"judged on mast-m: within 10 points of 43 %, 32 robots or more; most at {high}: {gains[high]:+.0f} %"
        return listed("mast-m-paper", "d-cvt"), _ends(gains), verdict, f"{why}; {there}"

    def matters() -> Judged:
        gains = gains_over(found, "mast-m", "d-cvt")
        ns, fs = sorted({n for n, _ in gains}), sorted({f for _, f in gains})
        by_n = np.ptp([np.mean([gains[n, f] for f in fs if (n, f) in gains]) for n in ns])
        by_f = np.ptp([np.mean([gains[n, f] for n in ns if (n, f) in gains]) for f in fs])
        text = f"means over the other differ by {by_n:.0f} points along N, {by_f:.0f} along F"
        return "-", text, HOLDS if by_n > by_f else FAILS, "gain over d-cvt"

    def lpac() -> Judged:
        gains, same = gains_over(found, "mast-m", "lpac-k3"), listed("mast-m", "lpac-k3-seen")
        verdict = either(
            max(gains, key=lambda at: gains[at])[0] >= 56, max(gains.values()) > 40, min(gains.values()) < 0
        )
        why = f"judged on mast-m, which has a fifth map; {counts('lpac-k3')}"
        why += f"; with the same five maps on both sides: {same}"
        if same != "not run":
            why += f", {counts('lpac-k3-seen')}"
        return listed("mast-m-paper", "lpac-k3"), _ends(gains), verdict, why

    judges = {51: least, 52: most, 53: matters, 54: lpac}
    return [judged(found, claim, judge) for claim, judge in judges.items()]


def _grid_draw(found: Found, figure: Figure) -> None:
    for axes, other in zip(figure.subplots(1, 3), ("d-cvt", "lpac-k3", "lpac-k3-seen"), strict=True):
        values = np.full((len(GRID), len(GRID)), np.nan)
        try:
            for (n, f), gain in gains_over(found, "mast-m", other).items():
                values[GRID.index(n), GRID.index(f)] = gain
        except KeyError:
            blank(axes)
        heat(axes, values, list(GRID), list(GRID), f"MAST-M below {other} (%)")
        axes.set(xlabel="features F", ylabel="robots N")


declare(
    Experiment(
        "coverage-grid",
        "8 to 64 robots and features: MAST-M against D-CVT and LPAC-K3",
        "Fig. 17",
        _grid_rows,
        _grid_cells,
        _grid_draw,
        shape=(12.0, 3.9),
        notes="lpac-k3 sees the paper's four maps, lpac-k3-seen the five that mast-m sees; mast-m-paper sees four. "
        "Each panel of the figure has colours of its own.",
    )
)
