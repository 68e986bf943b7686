"""Larger worlds with larger teams."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.coverage.common import USUAL, C, run
from mast_swarm.paper.experiment import Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, either, heat, judged, present, shown
from mast_swarm.paper.measured import difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SIDES = {1024: 32, 1448: 64, 1774: 96, 2048: 128}  # m: robots, and features
ON_SIDES = (*USUAL, "lpac-k3-seen", "mast-m-paper")


def _side_cells(size: Size) -> Mapping[str, Cell]:
    return {
        f"{policy} {side}": run(size, policy, agents=SIDES[side], features=SIDES[side], side=float(side))
        for side in size.some(list(SIDES))[: 1 if size.quick else None]
        for policy in (USUAL if size.quick else ON_SIDES)
    }


def _side_rows(found: Found) -> list[Row]:
    sides = sorted({int(name.split()[1]) for name in found.cells})

    def mean(policy: str, side: int) -> float:
        return found.measured(f"{policy} {side}").at(C).mean

    def listed(policy: str) -> str:
        there = [s for s in sides if f"{policy} {s}" in found.results]
        only = f" at {there[0]} m, the only side run" if len(there) == 1 < len(sides) else ""
        return ", ".join(f"{mean(policy, s):.3f}" for s in there) + only or "not run"

    def steady() -> Judged:
        gaps = [difference(found.measured(f"mast-m {s}"), found.measured(f"d-cvt {s}"), C) for s in sides]
        levels = [mean("mast-m", s) for s in sides]
        verdict = either(all(gap.below_zero for gap in gaps), float(np.ptp(levels)) < 0.03)
        why = f"judged on mast-m; d-cvt {listed('d-cvt')}; steady: within 0.03"
        return listed("mast-m-paper"), listed("mast-m"), verdict, why

    def closes() -> Judged:
        gaps = [
            difference(found.measured(f"mast-m {s}"), found.measured(f"lpac-k3 {s}"), C) for s in (sides[0], sides[-1])
        ]
        verdict = either(gaps[0].below_zero, not gaps[1].below_zero)
        text = f"{gaps[0]} at {sides[0]} m, {gaps[1]} at {sides[-1]} m"
        why = "mast-m, which has a fifth map, minus lpac-k3"
        equal = {
            s: difference(found.measured(f"mast-m {s}"), found.measured(f"lpac-k3-seen {s}"), C)
            for s in sides
            if f"lpac-k3-seen {s}" in found.results
        }
        if equal:
            texts = ", ".join(f"{gap} at {s} m" for s, gap in equal.items())
            why += f"; minus lpac-k3-seen, which has it too, {texts}"
        return listed("mast-m-paper"), text, verdict, why

    def figure_(name: str) -> Judged:
        done = present(found, found.cells)
        return "-", f"{len(done)} of {len(found.cells)} cells", shown(len(done), len(found.cells)), name

    def worsens() -> Judged:
        ratio = {p: [mean(p, s) / mean("clairvoyant", s) for s in sides] for p in ("mast-m", "lpac-k3")}
        slope = {
            p: float(np.polyfit(sides, values, 1)[0]) * 1000 if len(sides) > 1 else 0.0 for p, values in ratio.items()
        }
        text = "; ".join(f"{p} " + ", ".join(f"{v:.3f}" for v in values) for p, values in ratio.items())
        verdict = either(slope["mast-m"] > 0.01, slope["lpac-k3"] <= 0.01)
        change = ", ".join(f"{p} {value:+.3f}" for p, value in slope.items())
        return "-", text, verdict, f"ratios of time averages; change per km: {change} (worse: above 0.01)"

    judges: dict[int, Any] = {
        46: steady,
        47: closes,
        48: lambda: figure_("the figure"),
        49: lambda: figure_("the figure"),
    }
    return [judged(found, claim, judge) for claim, judge in (judges | {50: worsens}).items()]


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
                ratios[i, j] = (
                    found.measured(f"{policy} {side}").at(C).mean / found.measured(f"clairvoyant {side}").at(C).mean
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
