"""What `mast bench` shows of teams: tables, sentences, and the plot of time and memory against the number of robots."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast_swarm.errors import MastError
from mast_swarm.evaluate.cost import growth
from mast_swarm.files import whole_file
from mast_swarm.view.style import INK, SOFT, policy_colour, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

STEP, FORWARD, DENSE, _FOURTH = (policy_colour(number) for number in range(4))

_WIDE = 100  # times from the lower end of an axis to the upper for which powers of ten are ticks enough
_CLOSE = 0.05  # of each time: the most by which a fit that is shown may be off
_MANY = 8  # columns beside which a terminal has no room for the parts of a step

# For each benchmark what its plot is about, and the times that it draws: the name in a row or its parts, and the label.
_ABOUT = {
    "scale": "{policy} in {precision}",
    "world": "the world alone",
    "decentral": "{policy} in {precision}, every robot alone",
}
_TIMES = {
    "scale": {
        "step_ms": "whole closed-loop step",
        "forward_ms": "forward pass of the policy",
        "dense_ms": "forward pass over all pairs",
        "floor_ms": "arithmetic floor of the pass",
    },
    "world": {"step_ms": "whole step of the world", "observe": "observation", "metric": "metrics", "motion": "motion"},
    "decentral": {
        "step_ms": "whole step: hear, pass on, decide",
        "relay": "of it: hear and pass on",
        "central_ms": "one forward pass for all",
        "floor_ms": "arithmetic floor of the step",
    },
}
_LOOKS: tuple[dict[str, Any], ...] = (
    {"color": STEP, "marker": "o"},
    {"color": FORWARD, "marker": "s"},
    {"color": DENSE, "marker": "^"},
    {"color": _FOURTH, "marker": "D"},
)
_FLOOR: dict[str, Any] = {"color": INK, "linestyle": ":", "linewidth": 1.4}


def duration(milliseconds: float) -> str:
    """A time with at most three digits and its unit."""
    rounded = _rounded(milliseconds)
    if rounded < 1:
        return f"{1e3 * milliseconds:.0f} µs" if rounded >= 1e-3 else f"{1e6 * milliseconds:.0f} ns"
    return _three(rounded, "ms") if rounded < 1000 else _three(rounded / 1e3, "s")


def _rounded(value: float) -> float:
    """To three digits: what is nearly a thousand takes the next unit, not a fourth digit."""
    return float(f"{value:.3g}")


def _three(value: float, unit: str) -> str:
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} {unit}"


def memory(size: float) -> str:
    """Bytes with three digits and their unit."""
    size = _rounded(size)
    return _three(size / 1e6, "MB") if size < 1e9 else _three(size / 1e9, "GB")


def row_line(row: Mapping[str, Any]) -> str:
    """That a row has been measured, for whoever waits."""
    return f"{_team(row)} robots: {duration(row['step_ms'])} per step"


def _team(row: Mapping[str, Any]) -> str:
    several = f"{row['environments']:,} x " if "environments" in row else ""
    return f"{several}{row['agents']:,}"


def _robots(row: Mapping[str, Any]) -> int:
    """Robots of a row, over all its environments."""
    return int(row.get("environments", 1) * row["agents"])


def bench_table(result: Mapping[str, Any]) -> Table:
    """The rows of any benchmark of teams, as the terminal shows them: without the parts where there are many."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=f"{result['benchmark']} on {result['machine']['device']}", box=SIMPLE_HEAD)
    rows, parts = table_rows(result), result["rows"][0]["parts_ms"]
    shown = [name for name in rows[0] if name not in parts or len(rows[0]) <= _MANY]
    for name in shown:
        table.add_column(name, justify="right", no_wrap=" " not in name)  # where room is short, headings break
    for row in rows:
        table.add_row(*(row[name] for name in shown))
    return table


def table_rows(result: Mapping[str, Any]) -> list[dict[str, str]]:
    """The rows of any benchmark of teams as text: heading -> cell, the same headings in each."""
    return [_cells(row) for row in result["rows"]]


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    cells = {"robots": _team(row), "step": duration(row["step_ms"])}
    cells |= {name: duration(spent) for name, spent in row["parts_ms"].items()}
    if "forward_ms" in row:
        cells["forward alone"] = duration(row["forward_ms"])
        cells["dense forward"] = duration(row["dense_ms"]) if "dense_ms" in row else "-"
        cells["floor"] = duration(row["floor_ms"])
    if "central_ms" in row:
        cells["floor"] = duration(row["floor_ms"]) if "floor_ms" in row else "-"
        cells |= {"central": duration(row["central_ms"]), "ratio": f"{row['ratio']:.1f}x"}
    cells["robots/s"] = f"{1e3 * _robots(row) / row['step_ms']:,.0f}"
    return cells | {"memory": memory(row["peak_bytes"])}


def conclusions(result: Mapping[str, Any]) -> list[str]:
    """What the results of a benchmark of teams come to, a sentence each; growth is that of one environment."""
    found = []
    for part, name in (("step_ms", "a whole step"), ("forward_ms", "a forward pass")):
        grown = _growth(result["rows"], part)
        if grown is not None:
            found.append(
                f"{grown['from']:,} to {grown['to']:,} robots: {name} takes {grown['times_time']:.2f} times the time "
                f"for {grown['to'] / grown['from']:.3g} times the robots ({grown['times_faster_than_n']:.2f} times "
                f"proportional); {_fitted(grown)}"
            )
    if alone := [row for row in result["rows"] if "floor_ms" in row and "central_ms" in row]:
        times = ", ".join(f"{row['step_ms'] / row['floor_ms']:.1f} ({_team(row)})" for row in alone)
        found.append(f"a whole step takes {times} times the floor")
    if against := result.get("against_dense"):
        times = ", ".join(f"{dense['ratio']:.1f} ({dense['agents']:,} robots)" for dense in against)
        found.append(f"a dense forward pass takes {times} times the time of a forward pass with windows")
    trained = result.get("training")
    if trained is not None:
        found.append(
            f"{trained['agents']:,} robots: a dense training step takes {trained['ratio']:.1f} times the time of a "
            "training step with windows"
        )
    return found


def _growth(rows: Sequence[Mapping[str, Any]], part: str) -> dict[str, Any] | None:
    times = {row["agents"]: row[part] for row in rows if part in row and not _several(row)}
    sizes = sorted(times)
    return growth(sizes, [times[size] for size in sizes])


def _several(row: Mapping[str, Any]) -> bool:
    return bool(row.get("environments", 1) > 1)


def _fitted(grown: Mapping[str, Any]) -> str:
    """The line that all times lie on, or what a robot takes in the first and in the last of them."""
    if _fits(grown):
        return f"fit: {_fit(grown)}, within {max(1, math.ceil(100 * grown['off']))} % of each time"
    first = grown["first"] / grown["from"]
    last = first * grown["times_faster_than_n"]
    what = "not proportional" if abs(grown["times_faster_than_n"] - 1) > _CLOSE else "no line is near all times"
    return f"{what}: {_each(first)} per robot at {grown['from']:,}, {_each(last)} at {grown['to']:,}"


def _fits(grown: Mapping[str, Any]) -> bool:
    """Whether all times lie on the line, and are more than those that any such line goes through."""
    terms = 2 if grown["overhead"] else 1
    return bool(grown["off"] <= _CLOSE and grown["points"] > terms)


def _fit(grown: Mapping[str, Any]) -> str:
    overhead = f"{duration(grown['overhead'])} + " if grown["overhead"] else ""
    return f"{overhead}{_each(grown['each'])} per robot"


def _each(milliseconds: float) -> str:
    """The time of one robot, always with three digits."""
    milliseconds = _rounded(milliseconds)
    unit, size = next(((unit, size) for unit, size in (("ms", 1), ("µs", 1e-3)) if milliseconds >= size), ("ns", 1e-6))
    return _three(milliseconds / size, unit)


def scale_plot(result: Mapping[str, Any], path: Path) -> Path:
    """Time and memory of a benchmark of teams against the number of robots, both axes logarithmic; the path again.

    Lines join the teams of one environment; those of several have hollow marks, and their name beside.
    """
    rows = sorted(result["rows"], key=_robots)
    if not rows:
        raise MastError("a plot of scale needs at least one size, none was measured")
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(9.6, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        for (name, label), look in zip(_TIMES[result["benchmark"]].items(), _LOOKS, strict=False):
            _line(left, rows, name, label, **(_FLOOR if name == "floor_ms" else look))
        _draw_fit(left, rows)
        _line(right, rows, "peak_bytes", "step", **_LOOKS[0])
        _line(right, rows, "dense_peak_bytes", "dense", **_LOOKS[2])
        over = ", over all environments" if any(map(_several, rows)) else ""
        for axes, ylabel, unit in ((left, "time", _time_tick), (right, "peak memory", _memory_tick)):
            axes.set(xscale="log", yscale="log", xlabel=f"robots{over}", ylabel=ylabel)
            axes.xaxis.set_major_formatter(lambda value, _: short(value))
            axes.yaxis.set_major_formatter(unit)
            _tick(axes)
        about = _ABOUT[result["benchmark"]].format_map({"policy": "MAST-M", **result})
        left.set_title(f"{result['machine']['device']}, {about}", loc="left")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        with whole_file(path) as part:
            figure.savefig(part)
    return path


def _line(axes: Axes, rows: Sequence[Mapping[str, Any]], name: str, label: str, **look: Any) -> None:
    """One value against the number of robots, where it was measured and is more than nothing."""
    found = [(row, value) for row in rows if (value := row.get(name) or row["parts_ms"].get(name, 0)) > 0]
    single = [(row["agents"], value) for row, value in found if not _several(row)]
    if found:  # a line without points still explains the colour of hollow marks
        axes.plot([size for size, _ in single], [value for _, value in single], label=label, markersize=5, **look)
    for row, value in found:
        if _several(row):
            hollow = look | {"linestyle": "", "markerfacecolor": "white", "markeredgewidth": 1.6}
            axes.plot([_robots(row)], [value], markersize=5, zorder=3, **hollow)
            if name in ("step_ms", "peak_bytes"):
                place: dict[str, Any] = {"textcoords": "offset points", "xytext": (0, 7), "ha": "center"}
                place["bbox"] = {"facecolor": "white", "edgecolor": "none", "pad": 0.6, "alpha": 0.85}  # over lines
                axes.annotate(_team(row), (_robots(row), value), color=SOFT, fontsize=8, **place)


def _draw_fit(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """The line that whole steps of one environment lie on, through those steps alone; nothing where there is none."""
    grown = _growth(rows, "step_ms")
    if grown is None or not _fits(grown):
        return
    first, last = math.log10(grown["from"]), math.log10(grown["to"])
    sizes = [10 ** (first + (last - first) * part / 50) for part in range(51)]  # a line bends on logarithmic axes
    fitted = [grown["overhead"] + grown["each"] * size for size in sizes]
    label = f"fit to steps of {short(grown['from'])} to {short(grown['to'])}: {_fit(grown)}"
    axes.plot(sizes, fitted, color=SOFT, linestyle=(0, (5, 3)), linewidth=1.1, label=label, zorder=1.5)


def _tick(axes: Axes) -> None:
    """Powers of ten, and 2 and 5 times those where there would be few."""
    from matplotlib.ticker import LogLocator

    axes.minorticks_off()
    if not axes.has_data():  # no memory was measured: there are no limits then
        return
    axes.margins(0.08)
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        if high < _WIDE * low:
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))


def _time_tick(milliseconds: float, _: int) -> str:
    if milliseconds < 1:
        return f"{1e3 * milliseconds:g} µs"
    return f"{milliseconds:g} ms" if milliseconds < 1000 else f"{milliseconds / 1e3:g} s"


def _memory_tick(size: float, _: int) -> str:
    return f"{size / 1e6:g} MB" if size < 1e9 else f"{size / 1e9:g} GB"


def short(number: float) -> str:
    """A number of robots in few letters: 300, 3k, 1M."""
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:g}{letter}"
    return f"{number:g}"
