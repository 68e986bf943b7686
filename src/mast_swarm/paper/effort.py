"""What it takes to run what is missing: policies, cells, trials, epochs, and time on an H200."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Found
from mast_swarm.paper.work import configured

# On an H200: seconds per epoch of the paper's recipes, and to compile what trains one policy alone; per epoch of a
# search's trial, whose networks are of all sizes and not compiled; of an evaluation, each alone or central.
EPOCHS, COMPILING = {"navigation": 0.5, "coverage": 3.4}, 35.0
TRIED = {"navigation": 1.6, "coverage": 3.4}
ALONE, CENTRAL = 30.0, 6.0


@dataclass(frozen=True)
class Work:
    """What it takes to run cells."""

    trained: int  # policies
    rest: int  # evaluations and the like
    searched: int  # trials
    epochs: int
    seconds: float  # on an H200

    @property
    def took(self) -> str:
        hours = self.seconds > 5400
        return f"{self.seconds / 3600:.1f} h" if hours else f"{max(1, round(self.seconds / 60))} min"


def work_of(trained: Collection[Cell], cells: Collection[Cell]) -> Work:
    """trained: policies to train; cells: all else, and these may be among them."""
    searches = [cell.settings for cell in cells if cell.kind == "search"]
    tried = [searched(one["task"], one["settings"]["trials"], one["settings"]["most"]) for one in searches]
    learned = [(cell.settings["task"], configured(cell).epochs) for cell in trained]
    rest = [cell for cell in cells if cell.kind not in ("train", "search")]
    spent = sum(EPOCHS[task] * count for task, count in learned) + sum(one.seconds for one in tried)
    spent += COMPILING * (len(learned) == 1)
    spent += sum(ALONE if "delay" in cell.settings else CENTRAL for cell in rest)
    epochs = sum(one.epochs for one in tried) + sum(count for _, count in learned)
    return Work(len(trained), len(rest), sum(one.searched for one in tried), epochs, spent)


def searched(task: str, trials: int, most: int) -> Work:
    """A search of so many trials of at most so many epochs: Hyperband ends many of them soon, so half on average."""
    epochs = trials * most // 2
    return Work(0, 0, trials, epochs, epochs * TRIED[task])


def needed(cells: Collection[Cell]) -> Work:
    """To run cells from nothing: the policies that they need too."""
    trained = {cell.needs.key: cell.needs for cell in cells if cell.needs is not None}
    trained |= {cell.key: cell for cell in cells if cell.kind == "train"}
    return work_of(trained.values(), cells)


def told(work: Work) -> str:
    """Work in numbers."""
    parts = [f"{_many(work.trained, 'policy', 'policies')} to train"] * bool(work.trained)
    parts += [f"{_many(work.rest, 'cell', 'cells')} to run"] * bool(work.rest)
    parts += [f"{work.searched} trials of a search"] * bool(work.searched)
    whole = f" ({work.epochs:,} epochs)" if work.epochs else ""
    together = ", trained together where they can be" if work.trained > 1 else ""
    return f"{', '.join(parts)}{whole}, about {work.took} on an H200{together}"


def lacking(found: Found) -> str:
    """Why a row was not run, in numbers."""
    cells = [found.cells[name] for name in found.lacking()]
    if not cells:
        return "not a part of --quick" if found.size.quick else "every cell is there, but not what this row needs"
    count = f"{len(cells)} of {len(found.cells)} cells {'is' if len(cells) == 1 else 'are'} missing"
    return f"{count}: {told(needed(cells))}"


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"
