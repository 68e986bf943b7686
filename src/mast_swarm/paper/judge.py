"""Helpers of the experiments' rows and figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from mast_swarm.paper.claims import CLAIMS
from mast_swarm.paper.effort import lacking
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


def sign(difference: Estimate, *, wanted: int) -> str:
    """The verdict on a difference that should be positive (1) or negative (-1)."""
    if difference.above_zero if wanted > 0 else difference.below_zero:
        return HOLDS
    return FAILS if (difference.below_zero if wanted > 0 else difference.above_zero) else LEVEL


def either(*parts: bool) -> str:
    """holds if all parts of a claim do, partly if some do; without a part there is nothing to judge."""
    return overall(*(HOLDS if part else FAILS for part in parts))


def overall(*verdicts: str) -> str:
    """Of the verdicts on several parts of a claim: within interval if some are and no part fails, partly if some parts
    hold and others fail."""
    if not verdicts:
        raise Missing
    if FAILS in verdicts:
        return PARTLY if HOLDS in verdicts or PARTLY in verdicts else FAILS
    return next((one for one in (PARTLY, LEVEL) if one in verdicts), HOLDS)


def near(found: Estimate, value: float, give: float) -> str:
    """The verdict on what should be within so much of a value; within interval if only a part of its interval is."""
    if found.ends is None:
        return HOLDS if abs(found.mean - value) < give else FAILS
    if found.above(value + give) or found.below(value - give):
        return FAILS
    return HOLDS if found.above(value - give) and found.below(value + give) else LEVEL


def choice(*ahead: Estimate) -> str:
    """The verdict on what should be the first of several, by how much it is ahead of each other: it holds if it surely
    is of all, it fails if any other is surely ahead, and else nobody can tell."""
    verdicts = [sign(gap, wanted=1) for gap in ahead]
    return next((one for one in (FAILS, LEVEL) if one in verdicts), HOLDS)


def in_part(verdict: str) -> str:
    """What a verdict is worth where a part of the claim was not run: at most partly."""
    return FAILS if verdict == FAILS else PARTLY


def shown(count: int, of: int) -> str:
    """The verdict on what has so many of its parts, as a figure of its curves."""
    if not count:
        raise Missing
    return HOLDS if count == of else PARTLY


def counted(left: str, right: str, gaps: Sequence[Estimate]) -> str:
    """In how many places one is below the other and above it, by the intervals of the differences."""
    below, above = sum(gap.below_zero for gap in gaps), sum(gap.above_zero for gap in gaps)
    return f"{left} is below {right} in {below} and above it in {above} of {len(gaps)}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of a page."""
    lines = [head, ["---"] * len(head), *rows]
    plain = ([text.replace("|", "/").replace("\n", " ") for text in line] for line in lines)
    return "".join("| " + " | ".join(line) + " |\n" for line in plain)


def present(found: Found, names: Iterable[str]) -> list[str]:
    return [name for name in names if name in found.results]


Look = tuple[str, str]  # the colour and the dashes of a line


def curves(
    axes: Any,
    found: Found,
    names: Iterable[str],
    metric: str,
    label: Callable[[str], str] = str,
    looks: Mapping[str, Look] | None = None,
) -> None:
    """Means over time with their bands, of those that are there."""
    from mast_swarm.view.style import policy_colour, policy_dash

    for number, name in enumerate(names):
        if name not in found.results:
            continue
        t, mean, (low, high) = found.measured(name).curve(metric)
        colour, dash = (looks or {}).get(name, (policy_colour(number), policy_dash(number)))
        axes.fill_between(t, low, high, color=colour, alpha=0.15, linewidth=0)
        marked = {"marker": "o", "markersize": 3} if len(t) < _FEW else {}
        axes.plot(t, mean, color=colour, linestyle=dash, label=label(name), linewidth=1.6, **marked)
    axes.set(xlabel="time (s)")
    axes.margins(x=0)


def bars(axes: Any, places: Sequence[float], found: Sequence[Estimate], **look: Any) -> None:
    """Means with their intervals, [P] each."""
    ends = [each.ends or (each.mean, each.mean) for each in found]
    apart = [(each.mean - low, high - each.mean) for each, (low, high) in zip(found, ends, strict=True)]
    axes.errorbar(places, [each.mean for each in found], np.array(apart).T, marker="o", **look)


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
