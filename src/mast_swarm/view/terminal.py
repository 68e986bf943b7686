"""What the terminal shows: progress bars and the table of an evaluation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table


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


def success_table(summary: dict[str, Any]) -> Table:
    """Success rates at the reported instants, a row a policy."""
    rows = [row for row in summary["rows"] if row["metric"] == "success_rate"]
    times = sorted({row["t"] for row in rows})
    shown = [t for t in times if t in (50, 100, 200, 400, 800) or t == times[-1]]
    several = rows[0]["episodes"] > 1
    title = "success rate (mean ± 95 % interval)" if several else "success rate"
    table = Table(title=title, min_width=len(title))
    table.add_column("policy")
    for t in shown:
        table.add_column(f"t = {t:g} s", justify="right")
    for policy in dict.fromkeys(row["policy"] for row in rows):
        found = {row["t"]: row for row in rows if row["policy"] == policy}
        cells = (f"{found[t]['mean']:.3f}" + (f" ± {found[t]['ci95']:.3f}" if several else "") for t in shown)
        table.add_row(policy, *cells)
    return table
