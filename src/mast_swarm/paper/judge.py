"""Helpers of the experiments' rows and figures."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.claims import CLAIMS
from mast_swarm.paper.experiment import FAILS, HOLDS, LEVEL, NOT_RUN, PARTLY, Found, Missing, Row
from mast_swarm.paper.measured import Estimate

_FEW = 20  # instants of a curve, which are marked so that nobody takes the lines between them for measured

Judged = tuple[str, str, str, str]
"""By the paper's recipe, by recipes of ours, verdict, a sentence."""


def judged(found: Found, claim: int, judge: Callable[[], Judged]) -> Row:
    """The row of a claim; where cells are missing it says how many and what they take."""
    try:
        recipe, best, verdict, why = judge()
        return Row(claim, CLAIMS[claim], recipe, best, verdict, why)
    except Missing:
        return Row(claim, CLAIMS[claim], verdict=NOT_RUN, why=lacking(found))
    except (ValueError, IndexError):  # of a list that --quick has cut short
        if not found.size.quick:
            raise
        return Row(claim, CLAIMS[claim], verdict=NOT_RUN, why="too few cells at the size of --quick")


# On an H200: seconds per epoch of the paper's recipes, per epoch of a search's trial, whose networks are of all sizes
# and not compiled, and of an evaluation, decentralised or central.
EPOCHS, TRIED, ALONE, CENTRAL = {"navigation": 0.5, "coverage": 3.4}, 1.6, 15.0, 2.0


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
        hours = self.seconds > 180
        return f"{self.seconds / 3600:.1f} h" if hours else f"{max(1, round(self.seconds / 60))} min"


def work_of(trained: Collection[Cell], cells: Collection[Cell]) -> Work:
    """trained: policies to train; cells: all else, and these may be among them."""
    searched = [cell.settings["settings"] for cell in cells if cell.kind == "search"]
    learned = [(cell.settings["task"], int(cell.settings["settings"].get("epochs", 500))) for cell in trained]
    # Hyperband ends many trials soon: half of the most epochs, on average.
    tried = sum(given["trials"] * given["most"] // 2 for given in searched)
    rest = [cell for cell in cells if cell.kind not in ("train", "search")]
    spent = sum(EPOCHS[task] * count for task, count in learned) + tried * TRIED
    spent += sum(ALONE if "delay" in cell.settings else CENTRAL for cell in rest)
    epochs = tried + sum(count for _, count in learned)
    return Work(len(trained), len(rest), sum(given["trials"] for given in searched), epochs, spent)


def lacking(found: Found) -> str:
    """Why a row was not run, in numbers."""
    cells = [found.cells[name] for name in found.lacking()]
    if not cells:
        return "not a part of --quick" if found.size.quick else "every cell is there, but not what this row needs"
    trained = {cell.needs.key: cell.needs for cell in cells if cell.needs is not None}
    trained |= {cell.key: cell for cell in cells if cell.kind == "train"}
    work = work_of(trained.values(), cells)
    parts = [f"{_many(work.trained, 'policy', 'policies')} to train"] * bool(work.trained)
    parts += [f"{_many(work.rest, 'cell', 'cells')} to run"] * bool(work.rest)
    parts += [f"{work.searched} trials of a search"] * bool(work.searched)
    count = f"{len(cells)} of {len(found.cells)} cells {'is' if len(cells) == 1 else 'are'} missing"
    whole = f" ({work.epochs} epochs)" if work.epochs else ""
    return f"{count}: {', '.join(parts)}{whole}, about {work.took} on an H200"


def _many(count: int, one: str, more: str) -> str:
    return f"{count} {one if count == 1 else more}"


def sign(difference: Estimate, *, wanted: int) -> str:
    """The verdict on a difference that should be positive (1) or negative (-1)."""
    if difference.above_zero if wanted > 0 else difference.below_zero:
        return HOLDS
    return FAILS if (difference.below_zero if wanted > 0 else difference.above_zero) else LEVEL


def either(*parts: bool) -> str:
    """holds if all parts of a claim do, partly if some do; without a part there is nothing to judge."""
    if not parts:
        raise Missing
    return HOLDS if all(parts) else PARTLY if any(parts) else FAILS


def shown(count: int, of: int) -> str:
    """The verdict on what has so many of its parts, as a figure of its curves."""
    if not count:
        raise Missing
    return HOLDS if count == of else PARTLY


def counted(left: str, right: str, gaps: Sequence[Estimate]) -> str:
    """In how many places one is below the other and above it, by the intervals of the differences."""
    below, above = sum(gap.below_zero for gap in gaps), sum(gap.above_zero for gap in gaps)
    return f"{left} is below {right} in {below} and above it in {above} of {len(gaps)}"


def present(found: Found, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in found.results]


def curves(axes: Any, found: Found, names: Iterable[str], metric: str, label: Callable[[str], str] = str) -> None:
    """Means over time with their bands, of those that are there."""
    from mast_swarm.view.style import policy_colour, policy_dash

    for number, name in enumerate(names):
        if name not in found.results:
            continue
        t, mean, half = found.measured(name).curve(metric)
        colour = policy_colour(number)
        axes.fill_between(t, mean - half, mean + half, color=colour, alpha=0.15, linewidth=0)
        marked = {"marker": "o", "markersize": 3} if len(t) < _FEW else {}
        axes.plot(t, mean, color=colour, linestyle=policy_dash(number), label=label(name), linewidth=1.6, **marked)
    axes.set(xlabel="time (s)")
    axes.margins(x=0)


def heat(axes: Any, values: np.ndarray, rows: list[Any], columns: list[Any], title: str, spec: str = ".0f") -> None:
    """A grid of numbers in colours; not a number: not run."""
    shown = np.ma.masked_invalid(values)
    axes.imshow(shown, cmap="cividis", aspect="auto", origin="lower")
    axes.set_xticks(range(len(columns)), [str(c) for c in columns])
    axes.set_yticks(range(len(rows)), [str(r) for r in rows])
    axes.grid(False)
    middle = float(np.nanmin(values) + np.nanmax(values)) / 2 if np.isfinite(values).any() else 0.0
    for i in range(len(rows)):
        for j in range(len(columns)):
            if np.isfinite(values[i, j]):
                colour = "white" if values[i, j] < middle else "black"
                axes.text(j, i, format(values[i, j], f"z{spec}"), ha="center", va="center", fontsize=7, color=colour)
    axes.set_title(title, loc="left")


def blank(axes: Any) -> None:
    """Say on a figure that nothing has been run yet."""
    axes.text(0.5, 0.5, "not run yet", ha="center", va="center", transform=axes.transAxes)
    for axis, shared in ((axes.xaxis, axes.get_shared_x_axes()), (axes.yaxis, axes.get_shared_y_axes())):
        if len(shared.get_siblings(axes)) == 1:  # else its neighbours would lose their ticks too
            axis.set_ticks([])
