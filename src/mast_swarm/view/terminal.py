"""What the terminal shows: progress bars and the table of an evaluation."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Metric

_EVERY = 30.0  # s between two lines of progress where there is no terminal
REPORTED = (50, 100, 200, 400, 800)  # s, the instants that a table has room for, besides the last


@contextmanager
def bars() -> Iterator[Callable[[str], Callable[[str, int, int], None]]]:
    """Progress bars: called with a title (or "" for the policy's own name) it gives what tells a bar how far we are.
    In a file or a pipe: a line now and then."""
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    shown = Progress(*columns, TimeRemainingColumn())
    rows: dict[str, Any] = {}
    said: dict[str, float] = {}  # when a line was last written

    def line(name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - said.setdefault(name, now) >= _EVERY:
            said[name] = now
            print(f"{name}: {done / max(total, 1):.0%}", file=sys.stderr, flush=True)

    def titled(title: str) -> Callable[[str, int, int], None]:
        def tick(policy: str, done: int, total: int) -> None:
            name = title or policy
            if not shown.console.is_terminal:
                line(name, done, total)
                return
            if name not in rows:
                shown.start()  # only now: where nothing runs, nothing is drawn
                rows[name] = shown.add_task(name, total=total)
            shown.update(rows[name], completed=done)

        return tick

    try:
        yield titled
    finally:
        if rows:
            shown.stop()


def train_table(found: dict[str, Any]) -> Table:
    """What a step of training takes, and where the time goes."""
    settings = ", ".join(f"{value} {name}" for name, value in found["settings"].items())
    table = Table(title=f"training on {found['device']}", caption=settings)
    table.add_column("what")
    table.add_column("time", justify="right")
    for name, milliseconds in found["parts_ms"].items():
        table.add_row(f"{name.replace('_', ' ')}, alone", f"{milliseconds:.2f} ms")
    for name, microseconds in found["update_kernels_us"].items():
        table.add_row(f"  of the update: {name}", f"{microseconds / 1e3:.2f} ms")
    table.add_row("whole step as training runs it", f"{found['whole_step_ms']:.2f} ms")
    if found.get("in_turn_step_ms") is not None:
        table.add_row("whole step, sensing before the update", f"{found['in_turn_step_ms']:.2f} ms")
    table.add_row("validation", f"{found['validation_s']:.2f} s")
    table.add_row("first epoch, with all that is compiled", f"{found['first_epoch_s']:.1f} s")
    table.add_row("all epochs of the recipe", f"{found['all_epochs_s']:,.0f} s")
    return table


def result_table(summary: dict[str, Any]) -> Table:
    """What the task's metrics came to, a row per policy.

    Where the metric that counts is the one drawn over time: its values at the reported instants. Else both at the end.
    The task's other metrics follow, at the end.
    """
    task = tasks.find(summary["rows"][0]["task"])
    main = tuple(dict.fromkeys((task.drawn, task.metric)))
    measured = {row["metric"] for row in summary["rows"]}  # results of an older version may have fewer
    others = [metric for metric in task.others if metric.name in measured and metric not in main]
    rows = [row for row in summary["rows"] if row["metric"] in {metric.name for metric in (*main, *others)}]
    times = sorted({row["t"] for row in rows})
    instants = [t for t in times if t in REPORTED or t == times[-1]] if len(main) == 1 else times[-1:]
    columns = [(metric, t) for metric in main for t in instants] + [(metric, times[-1]) for metric in others]

    heading = main[0].words if len(main) == 1 else f"after {instants[0]:g} s"
    spread = any(row["ci95"] is not None for row in rows)
    means = "mean ± 95 % interval" if spread else "mean" if rows[0]["episodes"] > 1 else ""
    notes = [means] * bool(means) + ["lower is better"] * task.metric.lower_is_better
    title = f"{heading} ({', '.join(notes)})" if notes else heading
    table = Table(title=title, min_width=len(title))
    table.add_column("policy")
    for name in [f"t = {t:g} s" for t in instants] if len(main) == 1 else [metric.words for metric in main]:
        table.add_column(name, justify="right")
    for metric in others:
        table.add_column(f"{metric.words}, t = {times[-1]:g} s" if len(main) == 1 else metric.words, justify="right")
    for policy in dict.fromkeys(row["policy"] for row in rows):
        found = {(row["metric"], row["t"]): row for row in rows if row["policy"] == policy}
        table.add_row(policy, *(_cell(found[metric.name, t], metric) for metric, t in columns))
    return table


def _cell(row: dict[str, Any], metric: Metric) -> str:
    """The mean and its interval; of a rate, where that would go below 0 or above 1, its two ends instead."""
    mean, half, digits = row["mean"], row["ci95"], metric.digits
    if half is None:
        return f"{mean:.{digits}f}"
    low, high = (min(max(end, metric.limits[0]), metric.limits[1]) for end in (mean - half, mean + half))
    inside = (low, high) == (mean - half, mean + half)
    if inside or not all(map(math.isfinite, metric.limits)):
        return f"{mean:.{digits}f} ± {half:.{digits}f}"
    return f"{mean:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
