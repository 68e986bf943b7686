"""The blocks of docs/robots.md that tell of swarms of processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blocks import load, table

FILE = "benchmarks/results/swarm.json"


def agreement() -> str:
    head = ["start state", "over", "success", "simulated", "success, average", "simulated", "deadlines met", "missed"]
    head += ["command after, median", "99 %", "longest", "bytes per robot and second", "load"]
    found = [row for row in load(FILE)["agreement"] if row["metric"] == "success_rate"]
    rows = [
        [
            str(row["episode"]),
            row["transport"],
            *(f"{row[name]:.3f}" for name in ("processes", "simulated", "processes_mean", "simulated_mean")),
            f"{row['met']:,}",
            str(row["missed"]),
            *_times(row),
            f"{row['bytes_per_robot_and_second']:,}",
            _load(row),
        ]
        for row in sorted(found, key=lambda row: (row["episode"], row["transport"], -row["missed"]))
    ]
    return table(head, rows)


def coverage() -> str:
    head = ["start state", "over", "cost, time average", "simulated", "deadlines met", "missed", "load"]
    found = [row for row in load(FILE)["agreement"] if row["metric"] == "cost_time_average"]
    rows = [
        [
            str(row["episode"]),
            row["transport"],
            *(f"{row[name]:.3f}" for name in ("processes", "simulated")),
            f"{row['met']:,}",
            str(row["missed"]),
            _load(row),
        ]
        for row in found
    ]
    return table(head, rows)


def nearby() -> str:
    head = ["start state", "simulations", "cost, time average: lowest", "highest", "standard deviation"]
    found = [row for row in load(FILE)["nearby"] if row["metric"] == "cost_time_average"]
    rows = [
        [str(row["episode"]), str(row["copies"]), *(f"{row[name]:.3f}" for name in ("low", "high", "std"))]
        for row in found
    ]
    return table(head, rows)


def fit() -> str:
    head = ["over", "robots", "deadlines met", "missed", "command after, median", "99 %", "longest", "load"]
    rows = [
        [row["transport"], str(row["robots"]), f"{row['met']:,}", str(row["missed"]), *_times(row), _load(row)]
        for row in load(FILE)["fit"]
    ]
    return table(head, rows)


def _times(row: dict[str, Any]) -> list[str]:
    return [f"{row[f'command_ms_{name}']:.0f} ms" for name in ("median", "p99", "max")]


def _load(row: dict[str, Any]) -> str:
    return f"{row['load_before']:.0f} to {row['load_after']:.0f}"


NUMBERS: dict[str, Callable[[], str]] = {
    "swarm-agreement": agreement,
    "swarm-coverage": coverage,
    "swarm-nearby": nearby,
    "swarm-fit": fit,
}
