"""Teams of 8 to 64 robots in worlds of 8 to 64 features."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.coverage.common import EQUAL, USUAL, C, run
from mast_swarm.paper.experiment import Experiment, Found, Missing, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, choice, counted, heat, judged, near, overall, sign
from mast_swarm.paper.measured import Estimate, estimated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GRID = tuple(range(8, 65, 8))
CORNERS = (8, 32, 64)  # of the grid, for the paper's recipe
At = tuple[int, int]  # N, F


def _grid_cells(size: Size) -> Mapping[str, Cell]:
    places = [(n, f) for n in size.some(GRID) for f in size.some(GRID)]
    chosen = ("d-cvt", EQUAL, "mast-m") if size.quick else (*USUAL, EQUAL)
    cells = {f"{p} {n} {f}": run(size, p, agents=n, features=f) for n, f in places for p in chosen}
    if not size.quick:
        cells |= {
            f"mast-m-paper {n} {f}": run(size, "mast-m-paper", agents=n, features=f) for n in CORNERS for f in CORNERS
        }
    return cells


def _places(found: Found, ours: str, other: str) -> list[At]:
    """Where both were run."""
    pairs = (name.split() for name in found.results)
    both = [(int(n), int(f)) for policy, n, f in pairs if policy == ours and f"{other} {n} {f}" in found.results]
    if not both:
        raise Missing([ours, other])
    return both


def gains_over(found: Found, ours: str, other: str) -> dict[At, float]:
    """By N, F: how far our time average is below the other's, in %."""
    return {at: 100 * float(gain[0]) for at, gain in _Gains(found, ours, other).drawn.items()}


class _Gains:
    """Of one policy over another, over the grid."""

    def __init__(self, found: Found, ours: str, other: str) -> None:
        self.names = (ours, other)
        self.drawn: dict[At, np.ndarray] = {}  # as shares, with their samples
        self.gaps: list[Estimate] = []  # the differences of the costs
        for n, f in _places(found, ours, other):
            starts = 100 * n + f  # those of every N, F are others
            mine, theirs = (found.measured(f"{name} {n} {f}").drawn(C, starts=starts) for name in self.names)
            self.drawn[n, f] = 1 - mine / theirs
            self.gaps.append(estimated(mine - theirs, signed=True))
        self.order = sorted(self.drawn, key=lambda at: float(self.drawn[at][0]))  # from the least to the most

    def at(self, place: At) -> Estimate:
        if place not in self.drawn:
            raise Missing([f"{name} {place[0]} {place[1]}" for name in self.names])
        return estimated(self.drawn[place], signed=True)

    def told(self, place: At) -> str:
        return f"{self.at(place).percent()} {place}"

    def ends(self) -> str:
        if len(self.order) == 1:
            return f"{self.at(self.order[0]).percent()} at {self.order[0]}, the only cell run"
        return f"{self.told(self.order[0])} to {self.told(self.order[-1])}, {len(self.order)} cells"

    def ahead(self, place: At, way: int) -> list[Estimate]:
        """By how much a place is ahead of each other, with the most (1) or the least (-1)."""
        self.at(place)
        others = [self.drawn[other] for other in self.order if other != place]
        return [estimated(way * (self.drawn[place] - other), signed=True, paired=False) for other in others]

    def counted(self) -> str:
        return counted(*self.names, self.gaps)


def _rank(ahead: list[Estimate]) -> str:
    """How a place stands among the others."""
    behind, level = sum(gap.below_zero for gap in ahead), sum(not (gap.below_zero or gap.above_zero) for gap in ahead)
    return f"{behind} of {len(ahead)} others are surely ahead of it, {level} cannot be told from it"


def _grid_rows(found: Found) -> list[Row]:
    @cache
    def over(ours: str, other: str) -> _Gains:
        return _Gains(found, ours, other)

    def listed(ours: str, other: str) -> str:
        try:
            return over(ours, other).ends()
        except KeyError:
            return "not run"

    def least() -> Judged:
        gains = over("mast-m", "d-cvt")
        corner, ahead = gains.at((8, 8)), gains.ahead((8, 8), -1)
        verdict = overall(*(sign(gap, wanted=-1) for gap in gains.gaps), choice(*ahead), near(corner, 0.06, 0.05))
        why = f"judged on mast-m: {gains.counted()}; least at (8, 8): {_rank(ahead)}; by 6 % give or take 5: "
        return listed("mast-m-paper", "d-cvt"), gains.ends(), verdict, why + gains.told((8, 8))

    def most() -> Judged:
        gains = over("mast-m", "d-cvt")
        high, ahead = gains.order[-1], gains.ahead((40, 32), 1)
        verdict = overall(near(gains.at(high), 0.43, 0.1), choice(*ahead))
        there = ", ".join(gains.told(at) for at in ((32, 32), (40, 32)))
        why = f"judged on mast-m: within 10 points of 43 %: {gains.told(high)}; most at (40, 32): {_rank(ahead)}; "
        return listed("mast-m-paper", "d-cvt"), gains.ends(), verdict, why + there

    def matters() -> Judged:
        gains = over("mast-m", "d-cvt").drawn

        def along(axis: int) -> np.ndarray:
            """How much means over the other differ, with samples."""
            lines = sorted({at[axis] for at in gains})
            means = [np.mean([one for at, one in gains.items() if at[axis] == line], axis=0) for line in lines]
            return np.asarray(np.ptp(means, axis=0))

        by_n, by_f = along(0), along(1)
        more = estimated(by_n - by_f, signed=True)
        text = f"means over the other differ by {100 * by_n[0]:.0f} points along N, {100 * by_f[0]:.0f} along F"
        why = f"gain over d-cvt; along N more than along F by {more.percent()}"
        return "-", text, sign(more, wanted=1), why

    def lpac() -> Judged:
        gains = over("mast-m", EQUAL)
        most, least = gains.ahead((64, 8), 1), gains.ahead((8, 8), -1)
        amounts = (near(gains.at((64, 8)), 0.58, 0.15), sign(gains.at((8, 8)), wanted=-1))
        why = f"judged on mast-m and {EQUAL}, which has its five maps: {gains.counted()}; at (8, 8) below 0: "
        why += f"{gains.told((8, 8))}, and the least: {_rank(least)}; at (64, 8) 58 % give or take 15: "
        why += f"{gains.told((64, 8))}, and the most: {_rank(most)}"
        try:
            four = over("mast-m", "lpac-k3")
            why += f"; over lpac-k3, which has four maps, {four.ends()}, {four.counted()}"
        except KeyError:
            pass
        why += "; the column by the paper's recipe is over lpac-k3, which has the same four maps, but our recipe"
        verdict = overall(*amounts, choice(*most), choice(*least))
        return listed("mast-m-paper", "lpac-k3"), gains.ends(), verdict, why

    judges = {51: least, 52: most, 53: matters, 54: lpac}
    return [judged(found, claim, judge) for claim, judge in judges.items()]


def _grid_draw(found: Found, figure: Figure) -> None:
    for axes, other in zip(figure.subplots(1, 3), ("d-cvt", EQUAL, "lpac-k3"), strict=True):
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
        notes="lpac-k3 sees the paper's four maps, lpac-k3-seen the five that mast-m sees, both by our recipe; "
        "mast-m-paper sees four. Each panel of the figure has colours of its own.",
    )
)
