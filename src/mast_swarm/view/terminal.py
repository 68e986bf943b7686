"""What the terminal shows: progress bars and the table of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from mast_swarm.tasks import registry as tasks

REPORTED = (50, 100, 200, 400, 800)  # s, the instants that a table has room for, besides the last


@contextmanager
def bars() -> Iterator[Callable[[str], Callable[[str, int, int], None]]]:
    """Progress bars: called with a title (or "" for the policy's own name) it gives what tells a bar how far we are."""
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    shown = Progress(*columns, TimeRemainingColumn())
    rows: dict[str, Any] = {}

    def titled(title: str) -> Callable[[str, int, int], None]:
        def tick(policy: str, done: int, total: int) -> None:
            name = title or policy
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


def result_table(summary: dict[str, Any]) -> Table:
    """What the task's metrics came to, a row per policy.

    Where the metric that counts is the one drawn over time: its values at the reported instants. Else both at the end.
    """
    task = tasks.find(summary["rows"][0]["task"])
    shown = {metric.name: metric for metric in (task.drawn, task.metric)}
    metrics = tuple(shown)
    rows = [row for row in summary["rows"] if row["metric"] in metrics]
    times = sorted({row["t"] for row in rows})
    instants = [t for t in times if t in REPORTED or t == times[-1]] if len(metrics) == 1 else times[-1:]
    columns = [(metric, t) for metric in metrics for t in instants]
    several = rows[0]["episodes"] > 1

    words = [metric.words for metric in shown.values()]
    heading = words[0] if len(metrics) == 1 else f"after {instants[0]:g} s"
    notes = ["mean ± 95 % interval"] * several + ["lower is better"] * task.metric.lower_is_better
    title = f"{heading} ({', '.join(notes)})" if notes else heading
    table = Table(title=title, min_width=len(title))
    table.add_column("policy")
    for name in [f"t = {t:g} s" for t in instants] if len(metrics) == 1 else words:
        table.add_column(name, justify="right")
    for policy in dict.fromkeys(row["policy"] for row in rows):
        found = {(row["metric"], row["t"]): row for row in rows if row["policy"] == policy}
        cells = [(found[column], shown[column[0]].digits) for column in columns]
        table.add_row(policy, *(_cell(row, digits, several) for row, digits in cells))
    return table


def _cell(row: dict[str, Any], digits: int, several: bool) -> str:
    return f"{row['mean']:.{digits}f}" + (f" ± {row['ci95']:.{digits}f}" if several else "")
