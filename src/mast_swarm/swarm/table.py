"""The live table of a swarm."""

from __future__ import annotations

from typing import Any

from rich.table import Table

from mast_swarm.swarm.results import Log


def table(log: Log) -> Table:
    """How it stands now."""
    config, task = log.config, log.task
    last: dict[str, Any] = log.rows[-1] if log.rows else {}
    shown = Table(
        title=f"{task.name}: {log.robots} processes over {config.transport}, {config.hertz:g} Hz", min_width=60
    )
    shown.add_column("")
    shown.add_column("now", justify="right")
    shown.add_row("time", f"{log.time:g} of {config.steps * config.dt:g} s")
    for metric in task.shown:
        if log.metrics and metric.name in log.metrics[-1]:
            shown.add_row(metric.words, f"{log.metrics[-1][metric.name]:.{metric.digits}f}")
    shown.add_row("robots alive", f"{int(log.arena.alive.sum())} of {log.robots}")
    shown.add_row("bytes per robot and second", _number(log.bytes_per_second() if log.rows else None, ",.0f"))
    shown.add_row("age of news, mean", _number(last.get("age_mean"), ".2f", " s"))
    shown.add_row("age of news, most", _number(last.get("age_max"), ".2f", " s"))
    shown.add_row("messages refused", _number(last.get("refused"), "d"))
    shown.add_row("deadlines met", _number(last.get("deadlines_met"), ",d"))
    missed = last.get("deadlines_missed")
    shown.add_row("deadlines missed", _number(missed, ",d"), style="bold red" if missed else None)
    for begins, heals in config.partitions:
        if begins <= log.time < heals:
            words, until = f"split since {begins:g} s", f"west and east do not hear each other until {heals:g} s"
            shown.add_row(words, until, style="bold yellow")
        elif heals <= log.time:
            shown.add_row(f"split, {begins:g} s", f"until {heals:g} s", style="dim")
    for robot, end in list(log.ends.items())[-3:]:
        shown.add_row(f"robot {robot}, {end['t']:g} s", end["why"][:60], style="dim")
    return shown


def _number(value: Any, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"
