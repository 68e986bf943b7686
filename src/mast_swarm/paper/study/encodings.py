"""Five encodings, four windows, teams of several sizes, for M, L and C."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import FAILS, HOLDS, PARTLY, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, either, judged
from mast_swarm.paper.navigation.common import S
from mast_swarm.paper.study.common import ENCODINGS, SHORT, SIZES, WINDOWS, at_size, studied, window

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _encoding_cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for variant in size.some("MLC"):
        for encoding in size.some(ENCODINGS):
            for radius in size.some(WINDOWS):
                policy = studied(size, variant, encoding, radius)
                for agents in size.some(SIZES):
                    cells[f"{variant} {encoding} {window(radius)} {agents}"] = at_size(size, policy, agents)
    return cells


def _encoding_rows(found: Found) -> list[Row]:
    def end(variant: str, encoding: str, radius: str, agents: int) -> float:
        return found.measured(f"{variant} {encoding} {radius} {agents}").at(S).mean

    windows = [window(radius) for radius in WINDOWS]

    def trained() -> Judged:
        ready = [e for e in ENCODINGS if f"M {e} 250 100" in found.results]
        texts = ", ".join(f"{e} {end('M', e, '250', 100):.3f}" for e in ready)
        if not ready:
            found["M rope-g 250 100"]
        why = f"M, R_att 250, N = 100, t = 200 s, centralised, {SHORT} epochs; holds: all five are run"
        return texts, "-", HOLDS if len(ready) == len(ENCODINGS) else PARTLY, why

    def study() -> Judged:
        there = {name.rsplit(" ", 1)[0] for name in found.results}
        whole = {name.rsplit(" ", 1)[0] for name in found.cells}
        if not there:
            found["M rope-g 250 100"]
        text = f"{len(there)} of {len(whole)} models, {SHORT} epochs each"
        by = ", ".join(f"{v} {sum(name[0] == v for name in there)}" for v in "MLC")
        why = f"{by}; one shorter schedule for all; the 75 models are named in a note of the source that is not printed"
        return text, "-", HOLDS if there == whole else PARTLY, why

    def masked() -> Judged:
        best = [max(ENCODINGS, key=lambda e: end("M", e, w, 100)).startswith("rope") for w in windows]
        spread = {e: np.ptp([end("M", e, w, 100) for w in windows]) for e in ENCODINGS[:4]}
        robust = spread["rope-g"] <= spread["rope-l"] and spread["ape-g"] <= spread["ape-l"]
        large = [end("M", "rope-g", w, 1000) for w in windows]
        drop = {e: end("M", e, "250", 100) - end("M", e, "250", 1000) for e in ENCODINGS}
        verdict = either(all(best), bool(robust), large[0] == max(large), drop["ape-g"] == max(drop.values()))
        text = (
            f"RoPE best in {sum(best)} of 4 windows; spread over them "
            + ", ".join(f"{e} {value:.3f}" for e, value in spread.items())
            + "; rope-g at N = 1000 by window "
            + ", ".join(f"{value:.3f}" for value in large)
            + "; loss from N = 100 to 1000 at 250 m "
            + ", ".join(f"{e} {value:.3f}" for e, value in drop.items())
        )
        why = f"{SHORT} epochs, after which ape-l has learned little at any window; degrades: ape-g loses the most"
        return text, "-", verdict, why

    def local() -> Judged:
        above = {v: sum(end(v, e, w, 1000) > 0.6 for e in ENCODINGS for w in ("1000", "inf")) for v in "ML"}
        text = f"above 0.6 at N = 1000, R_att >= 1000: M {above['M']} of 10, L {above['L']} of 10"
        why = f"{SHORT} epochs; two windows of five encodings, of which only RoPE comes near 0.6"
        lacking = [w for w in windows if f"L rope-g {w} 100" not in found.results]
        why += f"; of L the windows {', '.join(lacking)} are not run" if lacking else ""
        return text, "-", HOLDS if above["L"] < above["M"] else FAILS, why

    def clairvoyant() -> Judged:
        there = [(e, w) for w in windows for e in ENCODINGS if f"C {e} {w} 100" in found.results]
        small = {(e, w): end("C", e, w, 100) for e, w in there}
        above = sum(value > 0.9 for value in small.values())
        poor = all(value <= 0.9 for (e, _), value in small.items() if e == "ape-l")

        def losses(radius: str) -> dict[str, float]:
            return {e: end("C", e, radius, 100) - end("C", e, radius, 1000) for e in ("rope-g", "rope-l", "mlp")}

        narrow, wide = losses("250"), losses("inf")
        text = f"N = 100: {min(small.values()):.3f} to {max(small.values()):.3f}, {above} of {len(small)} above 0.9"
        for name, lost in (("250 m", narrow), ("no window", wide)):
            text += f"; loss to N = 1000, {name}: " + ", ".join(f"{e} {value:.3f}" for e, value in lost.items())
        sensitive = all(wide[e] > narrow[e] for e in narrow)
        why = "some above 0.9, ape-l not, more lost without a window, less than 0.1 with it; "
        why += (
            f"{SHORT} epochs, {len(there)} of {len(ENCODINGS) * len(windows)} models; from a note of the source that "
        )
        why += "is not printed"
        return text, "-", either(above > 0, poor, sensitive, max(narrow.values()) < 0.1), why

    judges = {12: trained, 16: study, 17: masked, 18: local, 19: clairvoyant}
    return [judged(found, claim, judge) for claim, judge in judges.items()]


def _encoding_draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import policy_colour

    grid = figure.subplots(3, len(WINDOWS), sharex=True, sharey=True)
    for row, variant in zip(grid, "MLC", strict=True):
        for axes, radius in zip(row, WINDOWS, strict=True):
            for number, encoding in enumerate(ENCODINGS):
                prefix = f"{variant} {encoding} {window(radius)} "
                points = sorted((int(name[len(prefix) :]), name) for name in found.results if name.startswith(prefix))
                if points:
                    means = [found.measured(name).at(S).mean for _, name in points]
                    axes.plot([n for n, _ in points], means, color=policy_colour(number), marker=".", label=encoding)
            if not axes.lines:
                blank(axes)
            axes.set_title(f"MAST-{variant}, R_att {window(radius)}", loc="left", fontsize=9)
            axes.set(ylim=(0, 1.02))
    for axes in grid[-1]:
        axes.set_xlabel("robots")
    for axes in grid[:, 0]:
        axes.set_ylabel("success rate at 200 s")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=5)


declare(
    Experiment(
        "encodings",
        "five encodings, four windows, N from 100 to 1000, for M, L and C",
        "Figs. 19 and 20, Table 1",
        _encoding_rows,
        _encoding_cells,
        _encoding_draw,
        shape=(9.0, 7.0),
        notes=f"Every model is trained by the paper's recipe for {SHORT} epochs of the paper's 500.",
    )
)
