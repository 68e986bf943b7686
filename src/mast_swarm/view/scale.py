"""What `mast bench` shows: tables of its results, and the plot of time and memory against the team's size."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast_swarm.errors import MastError
from mast_swarm.files import whole_file
from mast_swarm.view.style import INK, SOFT, policy_colour, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

STEP, FORWARD, DENSE = (policy_colour(number) for number in range(3))

_MANY = 4  # parts of a step for which a terminal has no room


def duration(milliseconds: float) -> str:
    """A time with three digits and its unit."""
    if milliseconds < 1:
        return f"{1e3 * milliseconds:.0f} µs"
    return _three(milliseconds, "ms") if milliseconds < 1000 else _three(milliseconds / 1e3, "s")


def _three(value: float, unit: str) -> str:
    digits = 2 if value < 10 else 1 if value < 100 else 0
    return f"{value:,.{digits}f} {unit}"


def memory(size: float) -> str:
    """Bytes with three digits and their unit."""
    return _three(size / 1e6, "MB") if size < 1e9 else _three(size / 1e9, "GB")


def row_line(row: Mapping[str, Any]) -> str:
    """That a row has been measured, for whoever waits."""
    return f"{_team(row)} robots: {duration(row['step_ms'])} a step"


def _team(row: Mapping[str, Any]) -> str:
    several = f"{row['environments']:,} x " if "environments" in row else ""
    return f"{several}{row['agents']:,}"


def bench_table(result: Mapping[str, Any]) -> Table:
    """The rows of any benchmark of teams, as the terminal shows them: without the parts where there are many."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=f"{result['benchmark']} on {result['machine']['device']}", box=SIMPLE_HEAD)
    rows, parts = table_rows(result), result["rows"][0]["parts_ms"]
    shown = [name for name in rows[0] if name not in parts or len(parts) < _MANY]
    for name in shown:
        table.add_column(name, justify="right")
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
        cells |= {"central": duration(row["central_ms"]), "ratio": f"{row['ratio']:.1f}x"}
    if "robots_per_s" in row:
        cells["robots/s"] = f"{row['robots_per_s']:,.0f}"
    return cells | {"memory": memory(row["peak_bytes"])}


def conclusions(result: Mapping[str, Any]) -> list[str]:
    """What the results of `mast bench scale` come to, a sentence each."""
    found = []
    for part, name in (("step", "a whole step"), ("forward", "a forward pass")):
        grown = result["growth"][part]
        if grown is not None:
            found.append(
                f"{grown['from']:,} to {grown['to']:,} robots: {name} takes {grown['times_time']:.2f}x the time, "
                f"{grown['times_faster_than_n']:.2f}x of linear (fit: {_fit(grown)})"
            )
    for dense in result["against_dense"][-2:]:
        found.append(f"{dense['agents']:,} robots: a dense forward pass takes {dense['ratio']:.1f}x the time")
    if result["training"] is not None:
        trained = result["training"]
        found.append(f"{trained['agents']:,} robots: a dense training step takes {trained['ratio']:.1f}x the time")
    return found


def _fit(grown: Mapping[str, Any]) -> str:
    return f"{duration(grown['overhead'])} + {1e6 * grown['each']:,.0f} ns a robot"


def scale_plot(result: Mapping[str, Any], path: Path) -> Path:
    """Time and memory of `mast bench scale` against the size of the team, both axes logarithmic; the path again."""
    rows = result["rows"]
    if not rows:
        raise MastError("a plot of scale needs at least one size, none was measured")
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(9.6, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_times(left, result)
        _draw_memory(right, rows)
        for axes, unit in ((left, _time_tick), (right, _memory_tick)):
            axes.set(xscale="log", yscale="log", xlabel="robots")
            axes.xaxis.set_major_formatter(lambda value, _: short(value))
            axes.yaxis.set_major_formatter(unit)
            axes.minorticks_off()
        left.set_title(f"{result['machine']['device']}, MAST-M in {result['precision']}", loc="left")
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        with whole_file(path) as part:
            figure.savefig(part)
    return path


def _draw_times(axes: Axes, result: Mapping[str, Any]) -> None:
    rows = result["rows"]
    _line(axes, rows, "step_ms", "whole closed-loop step", color=STEP, marker="o")
    _line(axes, rows, "forward_ms", "forward pass of the policy", color=FORWARD, marker="s")
    _line(axes, rows, "dense_ms", "forward pass over all pairs", color=DENSE, marker="^")
    _line(axes, rows, "floor_ms", "arithmetic floor of the pass", color=INK, linestyle=":", linewidth=1.4)
    grown = result["growth"]["step"]
    if grown is not None:
        first, last = (math.log10(rows[at]["agents"]) for at in (0, -1))
        sizes = [10 ** (first + (last - first) * part / 50) for part in range(51)]  # a line bends on logarithmic axes
        fitted = [grown["overhead"] + grown["each"] * size for size in sizes]
        label = f"fit to steps of {short(grown['from'])} to {short(grown['to'])}: {_fit(grown)}"
        axes.plot(sizes, fitted, color=SOFT, linestyle=(0, (5, 3)), linewidth=1.1, label=label, zorder=1.5)
    axes.set_ylabel("time")


def _draw_memory(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    _line(axes, rows, "peak_bytes", "whole closed-loop step", color=STEP, marker="o")
    _line(axes, rows, "dense_peak_bytes", "forward pass over all pairs", color=DENSE, marker="^")
    axes.set_ylabel("peak memory")


def _line(axes: Axes, rows: Sequence[Mapping[str, Any]], name: str, label: str, **look: Any) -> None:
    """One value against the size, where it was measured and is more than nothing."""
    found = [(row["agents"], row[name]) for row in rows if row.get(name, 0) > 0]
    if found:
        axes.plot(*zip(*found, strict=True), label=label, markersize=5, **look)


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
