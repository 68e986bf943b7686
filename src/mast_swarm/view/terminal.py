"""What the terminal shows: progress bars and the tables of an evaluation."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column, Table

from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Metric, Task

_EVERY = 30.0  # s between two lines of progress where there is no terminal
_NAME = 20  # characters of a name up to which it stays in one line
REPORTED = (50, 100, 200, 400, 800)  # s, the instants that a table has room for, besides the last


def lines() -> Callable[[str, int, int], None]:
    """What tells how far something of a name is: a line now and then."""
    said: dict[str, float] = {}  # when a line was last written

    def line(name: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - said.setdefault(name, now) >= _EVERY:
            said[name] = now
            print(f"{name}: {done / max(total, 1):.0%}", file=sys.stderr, flush=True)

    return line


@contextmanager
def bars() -> Iterator[Callable[[str], Callable[[str, int, int], None]]]:
    """Progress bars: called with a title (or "" for the policy's own name) it gives what tells a bar how far we are.
    In a file or a pipe: a line now and then."""
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    shown = Progress(*columns, TimeRemainingColumn())
    rows: dict[str, Any] = {}
    line = lines()

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


@contextmanager
def under_way() -> Iterator[Callable[[Mapping[str, tuple[int, int]]], None]]:
    """Progress bars of all that is under way: called with how far each is, and of how much, by its name. What is named
    no more has ended, and its bar goes. In a file or a pipe: a line now and then."""
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.completed:.0f}/{task.total:.0f}"))
    shown = Progress(*columns, TimeRemainingColumn())
    rows: dict[str, Any] = {}
    said = time.monotonic()  # when a line was last written

    def tell(now: Mapping[str, tuple[int, int]]) -> None:
        nonlocal said
        if not shown.console.is_terminal:
            if time.monotonic() - said >= _EVERY:
                said = time.monotonic()
                parts = (f"{name}: {done}/{total}" for name, (done, total) in now.items())
                print(", ".join(parts), file=sys.stderr, flush=True)
            return
        shown.start()  # only now: where nothing runs, nothing is drawn
        for name in rows.keys() - now.keys():
            shown.remove_task(rows.pop(name))
        for name, (done, total) in now.items():
            if name not in rows:
                rows[name] = shown.add_task(name, total=total)
            shown.update(rows[name], completed=done)

    try:
        yield tell
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
    if found.get("told_ms") is not None:
        table.add_row("  until the expert has what it asks for", f"{found['told_ms']:.2f} ms")
    if found.get("in_turn_step_ms") is not None:
        table.add_row("whole step, sensing before the update", f"{found['in_turn_step_ms']:.2f} ms")
    table.add_row("validation", f"{found['validation_s']:.2f} s")
    table.add_row("first epoch, with all that is compiled", f"{found['first_epoch_s']:.1f} s")
    table.add_row("all epochs of the recipe", f"{found['all_epochs_s']:,.0f} s")
    return table


def result_table(summary: dict[str, Any]) -> Table:
    """What the task's metrics came to, a row per policy; where any sends messages, with the delay of each.

    Where the metric that counts is the one drawn over time: its values at the reported instants. Else both at the end.
    The task's other metrics follow, at the end.
    """
    task, heading, columns = _columns(summary)
    rows = {(row["policy"], row["metric"], row["t"]): row for row in summary["rows"]}
    delays = {row["policy"]: row.get("delay") for row in summary["rows"]}
    shown = {policy: [(rows[policy, metric.name, t], metric) for metric, t in columns.values()] for policy in delays}
    means = _means([row for cells in shown.values() for row, _ in cells])
    notes = [means] * bool(means) + ["lower is better"] * task.metric.lower_is_better
    beyond = any(_leaves(*cell) for cells in shown.values() for cell in cells)
    caption = "the interval of a rate ends at 0 and at 1" if beyond else ""
    table = _table(f"{heading} ({', '.join(notes)})" if notes else heading, columns, caption, delays)
    said = any(delay is not None for delay in delays.values())
    if said:
        table.columns.insert(1, Column("delay"))
    for policy, cells in shown.items():
        delay = "none" if delays[policy] is None else f"{delays[policy]:g} s"
        table.add_row(policy, *[delay] * said, *(_cell(*cell) for cell in cells))
    return table


def paired_table(summary: dict[str, Any]) -> Table | None:
    """Each policy minus the first on the same start states, in the columns of the first table; None: there is one
    policy, or one start state."""
    first = summary["rows"][0]["policy"]
    pairs = [row for row in summary["paired"] if row["policy"] == first and row["episodes"] > 1]
    if not pairs:
        return None
    _, _, columns = _columns(summary)
    # A summary takes later policies from earlier ones. 0 - 0 is 0, and -0 would be shown as such.
    rows = {(row["minus"], row["metric"], row["t"]): row | {"mean": 0.0 - row["mean"]} for row in pairs}
    means = _means(pairs)
    caption = f"{means}, significant where 0 is outside" if "±" in means else means
    others = dict.fromkeys(row["minus"] for row in pairs)
    table = _table(f"policy minus {first}, same start states", columns, caption, others)
    for policy in others:
        table.add_row(policy, *(_cell(rows[policy, metric.name, t], metric, "+") for metric, t in columns.values()))
    return table


def _columns(summary: dict[str, Any]) -> tuple[Task, str, dict[str, tuple[Metric, float]]]:
    """The task, what its table is about, and the columns: name -> metric and instant."""
    task = tasks.find(summary["rows"][0]["task"])
    main = tuple(dict.fromkeys((task.drawn, task.metric)))
    measured = {row["metric"] for row in summary["rows"]}  # results of an older version may have fewer
    others = [metric for metric in task.others if metric.name in measured and metric not in main]
    times = sorted({row["t"] for row in summary["rows"]})
    last = times[-1]
    if len(main) > 1:
        return task, f"after {last:g} s", {metric.words: (metric, last) for metric in (*main, *others)}
    columns = {f"t = {t:g} s": (main[0], t) for t in times if t in REPORTED or t == last}
    # A column as narrow as its numbers leaves room for the others.
    final = {f"{metric.words},\nt = {last:g} s".replace(" (", "\n("): (metric, last) for metric in others}
    return task, main[0].words, columns | final


def _table(title: str, columns: Iterable[str], caption: str, policies: Iterable[str]) -> Table:
    table = Table(title=title, caption=caption or None, min_width=max(len(title), len(caption)))
    # In a narrow terminal names stay whole, since two may differ at their ends alone, and leave room for the numbers.
    table.add_column("policy", no_wrap=max(map(len, policies)) <= _NAME, overflow="fold")
    for name in columns:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _means(rows: list[dict[str, Any]]) -> str:
    """What the numbers of a table are; of one episode there is nothing to say."""
    if any(row["ci95"] is not None for row in rows):
        return "mean ± 95 % interval"
    return "mean" if rows[0]["episodes"] > 1 else ""


def _leaves(row: dict[str, Any], metric: Metric) -> bool:
    """Whether mean ± interval of a rate would go below 0 or above 1."""
    mean, half, (low, high) = row["mean"], row["ci95"], metric.limits
    return half is not None and math.isfinite(high - low) and not low <= mean - half <= mean + half <= high


def _cell(row: dict[str, Any], metric: Metric, sign: str = "") -> str:
    """The mean and half its interval, where there is one."""
    half = "" if row["ci95"] is None else f" ± {row['ci95']:.{metric.digits}f}"
    return f"{row['mean']:{sign}.{metric.digits}f}{half}"
