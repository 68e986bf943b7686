"""Lambda against the width of the world, and aliasing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, bars, blank, either, judged
from mast_swarm.paper.measured import difference
from mast_swarm.paper.navigation.common import S
from mast_swarm.paper.study.common import LITTLE, SHORT, WAVELENGTHS, WIDTH, at_size, short

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _wavelength_cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for encoding in ("ape-l", "rope-g"):
        for wavelength in size.some(WAVELENGTHS):
            label = f"{encoding}-lambda{wavelength:g}"
            policy = short(size, label, encoding=encoding, wavelength=wavelength, attention_radius=None)
            cells[f"{encoding} {wavelength:g}"] = at_size(size, policy, 100)
    return cells


def likeness(encoding: str, wavelength: float, distance: np.ndarray) -> np.ndarray:
    """How alike the encodings of two places so far apart along x are (cosine), [D]; 1: it cannot tell them apart."""
    from mast_swarm.model.encoding import frequencies

    omega = frequencies(encoding[-1], 64, wavelength).numpy().astype(float)
    return np.cos(distance[:, None] * omega).mean(axis=1)


def _wavelength_rows(found: Found) -> list[Row]:
    def best() -> Judged:
        parts, texts, flat = [], [], []
        for encoding in ("ape-l", "rope-g"):
            width = found.measured(f"{encoding} {WIDTH:g}")
            other = {w: found.measured(f"{encoding} {w:g}") for w in found.size.some(WAVELENGTHS) if w != WIDTH}
            apart = {w: difference(one, width, S) for w, one in other.items()}
            if max(one.mean(S) for one in (width, *other.values())) > LITTLE:
                parts += [gap.below_zero if w < WIDTH else not gap.above_zero for w, gap in apart.items()]
            else:
                flat.append(encoding)
            against = ", ".join(f"{w:g} m {gap}" for w, gap in apart.items())
            texts.append(f"{encoding}: {WIDTH:g} m {width.at(S)}; others minus {WIDTH:g} m: {against}")
        why = "shorter is worse, longer not better; M, no window, N = 100, t = 200 s, centralized, 54 start states, "
        why += f"{SHORT} epochs; the paper argues this without an experiment"
        why += "".join(f"; {one} left out: it has learned almost nothing by then, at any wavelength" for one in flat)
        return "; ".join(texts), "-", either(*parts), why

    return [judged(found, 5, best)]


def _wavelength_draw(found: Found, figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    distance = np.linspace(0, 1000, 501)
    for wavelength in (250.0, 500.0, 1000.0, 2000.0):
        left.plot(distance, likeness("ape-l", wavelength, distance), label=f"lambda {wavelength:g} m", linewidth=1.4)
    left.set(xlabel="distance (m)", ylabel="likeness of two linear encodings")
    left.legend(fontsize=8)
    for encoding in ("ape-l", "rope-g"):
        points = [
            (w, found.measured(f"{encoding} {w:g}").at(S)) for w in WAVELENGTHS if f"{encoding} {w:g}" in found.results
        ]
        if points:
            bars(right, *zip(*points, strict=True), label=encoding)
    if right.containers:
        right.set_xscale("log")
        right.set_xticks(WAVELENGTHS, [f"{w:g}" for w in WAVELENGTHS])
        right.minorticks_off()
        right.legend(fontsize=8, loc="center right")
    else:
        blank(right)
    right.set(xlabel="lambda (m)", ylabel="success rate, N = 100, t = 200 s")


declare(
    Experiment(
        "wavelength",
        "lambda against the width of the world, and aliasing",
        "the choice of the base wavelength",
        _wavelength_rows,
        _wavelength_cells,
        _wavelength_draw,
        shape=(7.4, 3.4),
    )
)
