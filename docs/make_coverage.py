"""The blocks and pictures of the coverage page, for docs/make.py. What has not been run yet is said to be so."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any

from blocks import DOCS, ROOT, load, table

from mast_swarm.paper.cells import Store
from mast_swarm.paper.cities import CITIES
from mast_swarm.paper.coverage.common import USUAL, C
from mast_swarm.paper.coverage.grid import GRID, gains_over
from mast_swarm.paper.coverage.sides import SIDES
from mast_swarm.paper.experiment import EXPERIMENTS, Found, Missing, Size
from mast_swarm.paper.measured import difference
from mast_swarm.paper.run import kept_of

NOT_YET = "not run yet"
# Where the policies are trained: the names in the table, and in the experiment coverage-curves.
TRAINED = {
    "clairvoyant": "clairvoyant",
    "mast-m": "mast-m",
    "mast-m-central": "mast-m central",
    "mast-m-paper": "mast-m-paper",
    "lpac-k3": "lpac-k3",
    "lpac-k3-alone": "lpac-k3 alone",
    "lpac-k3-seen": "lpac-k3-seen",
    "lpac-k3-seen-alone": "lpac-k3-seen alone",
    "c-cvt": "c-cvt",
    "d-cvt": "d-cvt",
}
ORDER = ("clairvoyant", "mast-m", "mast-m-paper", "lpac-k3", "lpac-k3-seen", "c-cvt", "d-cvt")
# Of MAST-M below another policy in %: least and most in the paper, each with its N, F, where it gives them.
CLAIMS: dict[str, tuple[Any, ...]] = {
    "d-cvt": ((6, (8, 8)), (43, (40, 32))),
    "lpac-k3": ((-4, (8, 8)), (58, (64, 8))),
    "lpac-k3-seen": (),
    "c-cvt": (),
    "clairvoyant": (),
}


@cache
def found(experiment: str) -> Found:
    """The cells of an experiment of `mast reproduce` that are kept."""
    return kept_of(EXPERIMENTS[experiment], Store(DOCS / "results"), Size())


def stated(results: Found, name: str, metric: str = C) -> str:
    """A mean with its interval, as text."""
    return str(results.measured(name).at(metric)) if name in results else NOT_YET


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
    results, body, episodes = found("coverage-curves"), [], set()
    for name, label in TRAINED.items():
        cell = results.cells[f"end {label}"]
        delay = cell.settings.get("delay")
        how = "centralized" if delay is None and name != "d-cvt" else "decentralized"
        how += "" if delay is None else f", {delay:g} s per hop"
        body.append([f"`{name}`", how, *(stated(results, f"end {label}", metric) for metric in (C, "cost"))])
        episodes.add(cell.settings["episodes"])
    (count,) = episodes
    return table([f"{count} environments", "execution", "time average", "at the end"], body)


def pairs() -> str:
    """MAST-M against each of the others on the same environments."""
    results, rows = found("coverage-curves"), []
    for name, label in TRAINED.items():
        if name != "mast-m" and results.has(("end mast-m", f"end {label}")):
            gap = difference(results.measured("end mast-m"), results.measured(f"end {label}"), C)
            rows.append([f"`mast-m` minus `{name}`", str(gap)])
    count = results.cells["end mast-m"].settings["episodes"]
    return table([f"paired difference, {count} environments", "time average"], rows or [["MAST-M", NOT_YET]])


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


def sides() -> str:
    results, names = found("coverage-sides"), [name for name in ORDER if name in (*USUAL, "lpac-k3-seen")]
    head = ["time average", *(f"{side} m, N = F = {count}" for side, count in SIDES.items())]
    body = [[f"`{name}`", *(stated(results, f"{name} {side}") for side in SIDES)] for name in names]
    return table(head, body)


def cities() -> str:
    results = found("coverage-cities")
    body = [[f"`{name}`", *(stated(results, f"{name} {city.name}") for city in CITIES)] for name in ORDER]
    return table(["time average", *(f"{city.name}, {city.signals} signals" for city in CITIES)], body)


def grid() -> str:
    """Where MAST-M gains least and most over the grid, beside the paper's end points."""
    results, body = found("coverage-grid"), []

    def place(end: tuple[float, tuple[int, int]]) -> str:
        return f"{end[0]:+.0f} % ({end[1][0]}, {end[1][1]})"

    def surely_below(other: str, at: tuple[int, int]) -> bool:
        ours, theirs = (results.measured(f"{name} {at[0]} {at[1]}") for name in ("mast-m", other))
        return difference(ours, theirs, C).below_zero

    for other, claimed in CLAIMS.items():
        try:
            gained = gains_over(results, "mast-m", other)
        except Missing:
            gained = {}
        chosen = (min, max) if gained else ()
        ends = [place((gained[at], at)) for at in (end(gained, key=lambda at: gained[at]) for end in chosen)]
        count, sure = f"{len(gained)} of {len(GRID) ** 2}", str(sum(surely_below(other, at) for at in gained))
        body.append([f"`{other}`", *(ends or [NOT_YET] * 2), count, sure, *([place(end) for end in claimed] or "--")])
    head = ["MAST-M below", "least, at (N, F)", "most", "cells run", "of these significantly lower"]
    return table([*head, "paper: least", "paper: most"], body)


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
    """What a step of training takes on a GPU: the parts of the worlds, their sum, an update, and all of it."""
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
    rows = [
        *world.items(),
        ("all of these: a step of the worlds, without updates", sum(world.values())),
        ("one update of the policy", parts["update"]),
        (f"whole step as training runs it, with its {given['updates']} updates", found["whole_step_ms"]),
    ]
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
