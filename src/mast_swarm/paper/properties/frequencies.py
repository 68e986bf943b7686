"""The geometric and linear frequencies of the position encoding."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mast_swarm.model.encoding import frequencies
from mast_swarm.paper.experiment import Experiment, Found, Row, declare
from mast_swarm.paper.judge import Judged, either, judged

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _frequency_rows(found: Found) -> list[Row]:
    def longer() -> Judged:
        periods = {s: 2 * np.pi / frequencies(s, 16, 1000.0).numpy() for s in "gl"}
        over = {s: int((p > 100).sum()) for s, p in periods.items()}
        text = f"periods above 100 m: geometric {over['g']} of 16, linear {over['l']}"
        sums = {s: float(p.sum()) for s, p in periods.items()}
        why = f"the figure; periods add up to {sums['g']:.0f} m and {sums['l']:.0f} m"
        short = {s: int((p < 30).sum()) for s, p in periods.items()}
        verdict = either(over["g"] > over["l"])
        return text, text, verdict, f"{why}; below 30 m: {short['g']} and {short['l']}"

    return [judged(found, 4, longer)]


def _frequency_draw(found: Found, figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    for spacing, label in (("g", "geometric"), ("l", "linear")):
        omega = frequencies(spacing, 16, 1000.0).numpy()
        left.plot(range(1, 17), omega, marker="o", markersize=3, label=label)
        right.plot(range(1, 17), 2 * np.pi / omega, marker="o", markersize=3, label=label)
    left.set(xlabel="k", ylabel="frequency (rad/m)", yscale="log")
    right.set(xlabel="k", ylabel="period (m)", yscale="log")
    left.legend()


declare(
    Experiment(
        "frequencies",
        "geometric and linear frequencies",
        "Fig. 3",
        _frequency_rows,
        draw=_frequency_draw,
        shape=(7.0, 3.2),
        notes="K = 16 frequencies of a head of 64, lambda = 1000 m.",
    )
)
