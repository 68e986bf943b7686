"""The block of the page on `mast reproduce`, for docs/make.py: what the experiments take on one H200."""

from __future__ import annotations

from collections.abc import Callable

from blocks import DOCS, table

from mast_swarm.paper.cells import Cell, Store
from mast_swarm.paper.effort import needed, told
from mast_swarm.paper.experiment import EXPERIMENTS, Size
from mast_swarm.paper.run import kept_of


def work() -> str:
    """From nothing, and for what is missing now: of each experiment that lacks something, and of all."""
    every: dict[str, Cell] = {}
    missing: dict[str, Cell] = {}
    rows = []
    for name, experiment in EXPERIMENTS.items():
        found = kept_of(experiment, Store(DOCS / "results"), Size())
        whole = {cell.key: cell for cell in found.cells.values()}
        lacking = {found.cells[one].key: found.cells[one] for one in found.lacking()}
        every, missing = every | whole, missing | lacking
        if lacking:
            rows.append([f"`{name}`", told(needed(whole.values())), told(needed(lacking.values()))])
    nothing = told(needed(missing.values())) if missing else "nothing"
    return table(
        ["", "from nothing", "missing now"], [*rows, ["all experiments", told(needed(every.values())), nothing]]
    )


NUMBERS: dict[str, Callable[[], str]] = {"reproduce-work": work}
