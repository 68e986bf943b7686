"""What the experiments on navigation share."""

from __future__ import annotations

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Size

S = "success_rate"
LATE = {"delay": 1.0}
FORGETFUL = LATE | {"max_age": 30.0}  # as mast-m-sharp is to be run
DOTS = "Curves with dots are known at the dots alone."  # of cells that were taken over as means
SCENARIOS = ("clusters-1", "clusters-5", "clusters-10", "clusters-20", "clusters-25", "circle", "two-lines", "text")


def by_paper(size: Size, variant: str) -> str | Cell:
    """A policy of the paper's recipe: M is shipped, L and C are trained."""
    if variant == "M" and not size.quick:
        return "mast-m-paper"
    return size.trained("navigation", "paper", f"{variant.lower()}-paper", policy={"variant": variant})
