"""The blocks and pictures of the coverage page, for docs/make.py. What has not been run yet is said to be so."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from blocks import DOCS, ROOT, load, table

sys.path.append(str(ROOT))
from benchmarks.coverage_cells import CITIES, GRID, SIDES, SWEEP, USUAL, cell_name, city_world

__all__ = ["NUMBERS", "city_world"]  # the latter for the pictures

PICTURES = DOCS / "pictures"
NOT_YET = "not run yet"
POLICIES = (
    "clairvoyant", "mast-m", "mast-m-central", "mast-m-paper",
    "lpac-k3", "lpac-k3-alone", "lpac-k3-seen", "lpac-k3-seen-alone", "c-cvt", "d-cvt",
)  # fmt: skip
CENTRE = cell_name(32, 32)  # what the policies are trained on
# Of MAST-M below another policy in %: least and most in the paper, each with its N, F, where it gives them.
CLAIMS: dict[str, tuple[Any, ...]] = {
    "d-cvt": ((6, (8, 8)), (43, (40, 32))),
    "lpac-k3": ((-4, (8, 8)), (58, (64, 8))),
    "c-cvt": (),
    "clairvoyant": (),
}


def cell(name: str) -> dict[str, Any]:
    """A cell of the sweep; one that was not run has no rows."""
    path = SWEEP / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"rows": [], "paired": [], "policies": {}}


def mean(found: dict[str, Any], policy: str, metric: str = "cost_time_average") -> float | None:
    return next((r["mean"] for r in found["rows"] if (r["policy"], r["metric"]) == (policy, metric)), None)


def stated(found: dict[str, Any], policy: str, metric: str = "cost_time_average") -> str:
    """A mean with its interval, as text."""
    row = next((r for r in found["rows"] if (r["policy"], r["metric"]) == (policy, metric)), None)
    return NOT_YET if row is None else f"{row['mean']:.3f} ± {row['ci95']:.3f}"


def shown(cells: list[dict[str, Any]]) -> list[str]:
    """The policies of a table: the usual ones, and others that were run."""
    return [name for name in POLICIES if name in USUAL or any(name in found["policies"] for found in cells)]


def means() -> str:
    """Our means beside the reference's table; whether each is near it."""
    path = ROOT / "benchmarks/results/coverage_means.json"
    if not path.exists():
        return f"{NOT_YET.capitalize()}.\n"
    found = json.loads(path.read_text())
    kinds = {"cost_time_average": "time average", "cost": "at the end"}
    sets = dict.fromkeys((row["starts"], row["environments"]) for row in found["rows"])
    body: dict[tuple[str, ...], list[str]] = {}
    for row in found["rows"]:
        head = (f"`{row['policy']}`", f"{row['dt']:g} s", kinds[row["metric"]], f"{row['table']:.3f}")
        mark = "" if row["within"] else " *"
        body.setdefault(head, []).append(f"{row['mean']:.3f} ± {row['standard_error']:.3f}{mark}")
    names = [f"{starts}, {count} starts" for starts, count in sets]
    lines = table(["controller", "dt", "cost", "table", *names], [[*head, *cells] for head, cells in body.items()])
    near = {starts: sum(row["within"] for row in found["rows"] if row["starts"] == starts) for starts, _ in sets}
    each = ", ".join(f"{starts} {count} of {len(body)}" for starts, count in near.items())
    return f"{lines}\nWithin {found['tolerance']:g} of the table: {each}.\n"


def policies() -> str:
    """Every policy where it was trained: how it ran, its costs."""
    found = cell(CENTRE)
    body = []
    for name in shown([found]):
        run = found["policies"].get(name)
        how = "" if run is None else "centralized"
        if run is not None and (run["delay"] is not None or name == "d-cvt"):
            how = "decentralized" + ("" if run["delay"] is None else f", {run['delay']:g} s per hop")
        body.append([f"`{name}`", how, stated(found, name), stated(found, name, "cost")])
    count = found.get("episodes", 100)
    return table([f"{count} environments", "execution", "time average", "at the end"], body)


def pairs() -> str:
    """MAST-M against each of the others on the same environments."""
    found = cell(CENTRE)
    rows = []
    for row in found["paired"]:
        if "mast-m" in (row["policy"], row["minus"]) and row["metric"] == "cost_time_average":
            other, sign = (row["minus"], 1) if row["policy"] == "mast-m" else (row["policy"], -1)
            rows.append([f"`mast-m` minus `{other}`", f"{sign * row['mean']:+.3f} ± {row['ci95']:.3f}"])
    if not rows:
        return f"MAST-M: {NOT_YET}.\n"
    return table([f"paired difference, {found['episodes']} environments", "time average"], rows)


def bound() -> str:
    """How far a rule gets that knows what anybody has seen."""
    found = load("benchmarks/results/coverage-kriging.json")
    said = {
        "mast-m": "`mast-m`, centralized",
        "kriging": "all maps pooled, the rest by kriging",
        "clairvoyant": "`clairvoyant`",
    }
    rows = []
    for name, row in found["rows"].items():
        costs = ["{:.3f} ± {:.3f}".format(*row[part]) for part in ("average", "end")]
        minus = "" if name == "mast-m" else "{:+.3f} ± {:.3f}".format(*row["minus_mast_m"])
        rows.append([said[name], *costs, minus])
    head = [f"{len(found['runs'])} environments of seed {found['seed']}, dt {found['dt']:g} s", "time average"]
    return table([*head, "at the end", "time average minus `mast-m`'s"], rows)


def picture(name: str, text: str) -> str:
    """A link to a picture, where it has been made."""
    return f"\n![{text}](pictures/{name})\n" if (PICTURES / name).exists() else ""


def sides() -> str:
    cells = [cell(cell_name(count, count, side)) for side, count in SIDES.items()]
    head = ["time average", *(f"{side} m, N = F = {count}" for side, count in SIDES.items())]
    names = [name for name in POLICIES if name in USUAL]
    body = [[f"`{name}`", *(stated(found, name) for found in cells)] for name in names]
    return table(head, body) + picture("coverage-sides.png", "Cost of every environment against the side of the world")


def cities() -> str:
    cells = [cell(name) for name in CITIES]
    body = [[f"`{name}`", *(stated(found, name) for found in cells)] for name in shown(cells)]
    return table(["time average", *(name.capitalize() for name in CITIES)], body)


def gains(policy: str, other: str) -> dict[tuple[int, int], float]:
    """By N, F: how far a policy's time average is below the other's, in %; of the cells that have both."""
    found = {}
    for agents in GRID:
        for features in GRID:
            one = cell(cell_name(agents, features))
            ours, theirs = mean(one, policy), mean(one, other)
            if ours is not None and theirs is not None:
                found[agents, features] = 100 * (1 - ours / theirs)
    return found


def significantly_below(policy: str, other: str, at: tuple[int, int]) -> bool:
    """Whether the 95 % interval of the paired difference in a cell is all below 0."""
    for row in cell(cell_name(*at))["paired"]:
        if row["metric"] == "cost_time_average" and {row["policy"], row["minus"]} == {policy, other}:
            return (row["mean"] if row["policy"] == policy else -row["mean"]) < -row["ci95"]
    raise KeyError(f"{policy} and {other} were not both run at {at}")


def grid() -> str:
    """Where MAST-M gains least and most over the grid, beside the paper's end points."""

    def place(end: tuple[float, tuple[int, int]]) -> str:
        return f"{end[0]:+.0f} % ({end[1][0]}, {end[1][1]})"

    body = []
    for other, claimed in CLAIMS.items():
        found = gains("mast-m", other)
        ends = (
            [place((found[at], at)) for at in (min(found, key=found.get), max(found, key=found.get))] if found else []
        )
        count = f"{len(found)} of {len(GRID) ** 2}"
        sure = str(sum(significantly_below("mast-m", other, at) for at in found))
        stated_there = [place(end) for end in claimed] or ["-"] * 2
        body.append([f"`{other}`", *(ends or [NOT_YET] * 2), count, sure, *stated_there])
    head = ["MAST-M below", "least, at (N, F)", "most", "cells run", "of these significantly lower"]
    head += ["paper: least", "paper: most"]
    return table(head, body) + picture("coverage-grid.png", "How far one policy is below another for each N and F")


def benchmark() -> str:
    """Ratios against coverage-control."""
    found = load("benchmarks/results/coverage.json")
    names = {"cost": "cost", "clairvoyant": "clairvoyant", "d_cvt": "D-CVT", "observation": "observing, all robots"}
    rows = []
    for row in found["rows"]:
        for tasks, when in (("tasks", "at the start"), ("tasks_later", f"after {found['later']} steps")):
            cells = [f"{row[tasks][key]['ratio']:.0f}x ({row[tasks][key]['ours_ms']:.2f} ms)" for key in names]
            rows.append([f"N = {row['agents']}, {row['side']} m, {when}", *cells])
    memory = [
        f"An environment takes {row['memory']['ours_mb']:.0f} MB at N = {row['agents']}, {row['side']} m, "
        f"{row['memory']['ratio']:.0f} times less."
        for row in found["rows"]
    ]
    small, large = found["rows"]
    cells = (large["side"] / small["side"]) ** 2
    growth = [large[at]["cost"]["ours_ms"] / small[at]["cost"]["ours_ms"] / cells for at in ("tasks", "tasks_later")]
    memory.append(
        f"A cell of the larger world takes {growth[0]:.2f} times as long as one of the smaller for the cost at the "
        f"start, and {growth[1]:.2f} times after {found['later']} steps."
    )
    return table([f"against {found['peer']}", *names.values()], rows) + "\n" + " ".join(memory) + "\n"


def step() -> str:
    """What a step of training takes on a GPU; the first three are a whole step of the worlds."""
    path = ROOT / "benchmarks/results/train-coverage-nvidia-h200.json"
    if not path.exists():
        return "Not measured yet.\n"
    found = json.loads(path.read_text())
    parts, given = found["parts_ms"], found["settings"]
    world = {
        "draw what robots observe, decide": parts["sense_and_decide"],
        "clairvoyant's label": parts["expert"],
        "keep the samples, move, sense, cost": parts["push_and_move"],
    }
    rows = [*world.items(), ("all of these", sum(world.values())), ("one update of the policy", parts["update"])]
    head = f"{found['device']}, {given['environments']} environments x {given['agents']} robots, batch {given['batch']}"
    return table([head, "time"], [[name, f"{spent:.2f} ms"] for name, spent in rows])


NUMBERS: dict[str, Callable[[], str]] = {
    "coverage-step": step,
    "coverage-means": means,
    "coverage-policies": policies,
    "coverage-pairs": pairs,
    "coverage-bound": bound,
    "coverage-sides": sides,
    "coverage-grid": grid,
    "coverage-cities": cities,
    "benchmark-coverage": benchmark,
}
