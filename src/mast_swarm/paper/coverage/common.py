"""What the experiments on coverage share."""

from __future__ import annotations

from typing import Any

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Found, Size
from mast_swarm.paper.measured import Estimate, difference

C = "cost_time_average"
LATE = {"mast-m": 0.2, "mast-m-paper": 0.2}  # s per hop; the others run centrally or send nothing
USUAL = ("clairvoyant", "c-cvt", "d-cvt", "lpac-k3", "mast-m")
EQUAL = "lpac-k3-seen"  # LPAC-K3 by our recipe with mast-m's five maps; lpac-k3 has four of them


def run(size: Size, policy: str, **settings: Any) -> Cell:
    """The cell of a policy, as late as its messages are."""
    return size.coverage(policy, delay=LATE.get(policy), **settings)


def apart(found: Found, one: str, other: str) -> Estimate:
    """How much higher the cost of one cell is than that of another, averaged over time."""
    return difference(found.measured(one), found.measured(other), C)
