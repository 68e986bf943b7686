"""Larger worlds with larger teams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.coverage.common import EQUAL, USUAL, C, apart, run
from mast_swarm.paper.experiment import FAILS, HOLDS, LEVEL, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, heat, judged, overall, present, shown, sign
from mast_swarm.paper.measured import Estimate, estimated

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDES = {1024: 32, 1448: 64, 1774: 96, 2048: 128}  # m: robots, and features
ON_SIDES = (*USUAL, EQUAL, "mast-m-paper")
STEADY = 0.03  # as much as costs of a steady policy may differ


def _side_cells(size: Size) -> Mapping[str, Cell]:
    return {
        f"{policy} {side}": run(size, policy, agents=SIDES[side], features=SIDES[side], side=float(side))
        for side in size.some(list(SIDES))[: 1 if size.quick else None]
        for policy in ((*USUAL, EQUAL) if size.quick else ON_SIDES)
    }


def _side_rows(found: Found) -> list[Row]:
    sides = sorted({int(name.split()[1]) for name in found.cells})

    def of(policy: str, side: int) -> np.ndarray:
        """The cost with its samples; the start states of each side are others."""
        return found.measured(f"{policy} {side}").drawn(C, starts=side)

    def listed(policy: str) -> str:
        there = [s for s in sides if f"{policy} {s}" in found.results]
        only = f" at {there[0]} m, the only side run" if len(there) == 1 < len(sides) else ""
        return ", ".join(str(estimated(of(policy, s))) for s in there) + only or "not run"

    def steady() -> Judged:
        gaps = [apart(found, f"mast-m {s}", f"d-cvt {s}") for s in sides]
        levels = np.array([of("mast-m", s) for s in sides])
        spread = estimated(np.ptp(levels, axis=0))
        even = HOLDS if spread.below(STEADY) else FAILS if spread.above(STEADY) else LEVEL
        why = f"judged on mast-m; d-cvt {listed('d-cvt')}; mast-m minus d-cvt {', '.join(map(str, gaps))}; the highest "
        why += f"and the lowest cost of mast-m are {spread.to_its_ends()} apart; steady: for sure less than {STEADY}"
        verdict = overall(*(sign(gap, wanted=-1) for gap in gaps), even)
        return listed("mast-m-paper"), listed("mast-m"), verdict, why

    def closes() -> Judged:
        def gaps(other: str) -> dict[int, Estimate]:
            return {s: apart(found, f"mast-m {s}", f"{other} {s}") for s in sides if f"{other} {s}" in found.results}

        def told(of_sides: Mapping[int, Estimate]) -> str:
            return ", ".join(f"{gap} at {s} m" for s, gap in of_sides.items())

        first, last = (apart(found, f"mast-m {s}", f"{EQUAL} {s}") for s in (sides[0], sides[-1]))
        closed = FAILS if last.below_zero else HOLDS if last.above_zero else LEVEL
        why = f"mast-m minus {EQUAL}, which has its five maps; the gap is there if it is below 0 at {sides[0]} m, and "
        why += f"open if it is below 0 at {sides[-1]} m; minus lpac-k3, which has four maps, {told(gaps('lpac-k3'))}"
        return listed("mast-m-paper"), told(gaps(EQUAL)), overall(sign(first, wanted=-1), closed), why

    def figure_(name: str) -> Judged:
        done = present(found, found.cells)
        return "-", f"{len(done)} of {len(found.cells)} cells", shown(len(done), len(found.cells)), name

    def worsens() -> Judged:
        names = ["mast-m", EQUAL] + ["lpac-k3"] * found.has(f"lpac-k3 {s}" for s in sides)
        ratio = {p: np.array([of(p, s) / of("clairvoyant", s) for s in sides]) for p in names}
        slope = {p: estimated(_per_km(sides, values), signed=True) for p, values in ratio.items()}
        text = "; ".join(f"{p} " + ", ".join(str(estimated(one)) for one in each) for p, each in ratio.items())
        steep = slope[EQUAL]
        verdict = overall(sign(slope["mast-m"], wanted=1), FAILS if steep.above_zero else HOLDS)
        change = ", ".join(f"{p} {value}" for p, value in slope.items())
        why = f"ratios of time averages; change per km: {change}; worse: above 0; judged on mast-m and {EQUAL}, which "
        return "-", text, verdict, why + "has its five maps"

    judges: dict[int, Any] = {
        46: steady,
        47: closes,
        48: lambda: figure_("the figure"),
        49: lambda: figure_("the figure"),
    }
    return [judged(found, claim, judge) for claim, judge in (judges | {50: worsens}).items()]


def _per_km(sides: list[int], values: np.ndarray) -> np.ndarray:
    """The slopes of the lines that fit values [sides, ...] best."""
    return np.polyfit(sides, values, 1)[0] * 1000 if len(sides) > 1 else 0.0 * values[0]


def _side_draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import policy_colour

    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    sides, rng = list(SIDES), np.random.default_rng(0)
    policies = [p for p in ON_SIDES if any(f"{p} {s}" in found.results for s in sides)]
    for number, policy in enumerate(policies):
        for place, side in enumerate(sides):
            if f"{policy} {side}" in found.results:
                values = found.measured(f"{policy} {side}").values(C)
                if values is not None:
                    x = place + (number - len(policies) / 2) * 0.11 + rng.uniform(-0.03, 0.03, len(values))
                    label = policy if side == sides[0] else None
                    left.plot(x, values, ".", markersize=2, color=policy_colour(number), label=label)
    left.set_xticks(range(len(sides)), [str(s) for s in sides])
    left.set(xlabel="side (m)", ylabel="time average of the cost")
    left.legend(fontsize=7, markerscale=4, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    ratios = np.full((len(policies), len(sides)), np.nan)
    for i, policy in enumerate(policies):
        for j, side in enumerate(sides):
            if found.has((f"{policy} {side}", f"clairvoyant {side}")):
                ratios[i, j] = found.measured(f"{policy} {side}").mean(C) / found.measured(f"clairvoyant {side}").mean(
                    C
                )
    heat(right, ratios, policies, sides, "ratio to the clairvoyant", ".2f")


declare(
    Experiment(
        "coverage-sides",
        "worlds of 1024 to 2048 m, and the ratio to the clairvoyant",
        "Figs. 15 and 16",
        _side_rows,
        _side_cells,
        _side_draw,
        shape=(9.0, 4.0),
    )
)
