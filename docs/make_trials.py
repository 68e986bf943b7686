"""The blocks on trials of ways to train, and on the safety layer: from docs/results/navigation/trials."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from blocks import load, table
from scipy import stats

FOLDER = "docs/results/navigation/trials"
TIMES = ("50", "100", "200", "400", "800")
CHOSEN = {  # file: what was tried; start states of seed 7001, on which things were chosen
    "mast-m-7001": "`mast-m`, as shipped: 312 epochs",
    "school": "length of the error as loss, other scenarios",
    "guided": "the same; idle robots are told of any free goal",
    "views": "the same as the second; views and ages",
    "both": "both of the last two",
    "informed": "`wide`: as the second, with memory",
    "guided2": "views and ages, free goals within 250 m, memory",
}
TESTED = {  # (file, policy, safe): its name in the table; start states of seed 7101
    ("informed", "informed", False): "`wide`, 78 epochs",
    ("mast-m-7101", "navigation/mast-m", False): "`mast-m`",
    ("rivals", "dhba-8", False): "`dhba-8`, no delay",
    ("rivals", "dhba-8-explore", False): "`dhba-8-explore`, no delay",
    ("rivals", "dhba-8-explore+memory", False): "`dhba-8-explore` with memory, no delay",
    ("rivals", "explorer", False): "`explorer`, no delay",
    ("rivals", "explorer+memory", False): "`explorer` with memory, no delay",
}


def find(file: str, seed: int, policy: str | None = None, safe: bool = False) -> dict[str, Any]:
    """The evaluation of a trial on the scenario `clusters`, every robot alone, without limits of the channel."""
    for row in load(f"{FOLDER}/{file}.json")["evals"]:
        plain = row["scenario"] == "clusters" and not row["central"] and not row["channel"]
        if plain and row["seed"] == seed and policy in (None, row["policy"]) and row.get("safe", False) == safe:
            return row
    raise KeyError((file, seed, policy, safe))


def half(values: list[float]) -> float:
    """Half of the 95 % interval of a mean."""
    mean = sum(values) / len(values)
    spread = math.sqrt(sum((value - mean) ** 2 for value in values) / (len(values) - 1))
    return float(stats.t.ppf(0.975, len(values) - 1)) * spread / math.sqrt(len(values))


def cell(values: list[float], sign: str = "") -> str:
    return f"{sum(values) / len(values):{sign}.3f} ± {half(values):.3f}"


def chosen() -> str:
    body = []
    for file, what in CHOSEN.items():
        epochs = len(load(f"{FOLDER}/{file}.json").get("training", [])) or 312
        row = find(file, 7001)
        body.append([what, str(epochs), *(f"{row['mean'][t]:.3f}" if t in row["mean"] else "not run" for t in TIMES)])
    return table(["108 start states of seed 7001", "epochs", *(f"t = {t} s" for t in TIMES)], body)


def tested() -> str:
    rows = {name: find(file, 7101, policy, safe) for (file, policy, safe), name in TESTED.items()}
    body = [[name, *(cell(row["each"][t]) for t in TIMES)] for name, row in rows.items()]
    return table(["108 start states of seed 7101", *(f"t = {t} s" for t in TIMES)], body)


def paired() -> str:
    rows = [(name, find(file, 7101, policy, safe)) for (file, policy, safe), name in TESTED.items()]
    (own, ours), *others = rows
    body = []
    for name, row in others:
        pairs = {t: [a - b for a, b in zip(ours["each"][t], row["each"][t], strict=True)] for t in TIMES}
        body.append([name, *(cell(pairs[t], "+") for t in TIMES)])
    return table([f"{own} minus", *(f"t = {t} s" for t in TIMES)], body)


def safety() -> str:
    body = []
    for safe, name in ((False, "without the layer"), (True, "with `--safe`")):
        row = find("informed", 7101, "informed", safe)
        body.append([name, *(cell(row["each"][t]) for t in TIMES), f"{row['collisions']:.1f}"])
    return table(["`wide`", *(f"t = {t} s" for t in TIMES), "pairs that touch"], body)


def cost() -> str:
    body = [
        [
            f"{row['environments']} x {row['robots']:,}, {row['team']}",
            f"{row['changed']:.0%}",
            f"{row['layer_ms']:.1f} ms",
            f"{row['world_ms']:.1f} ms",
        ]
        for row in load("benchmarks/results/apart.json")["rows"]
    ]
    return table(["teams x robots", "commands changed", "the layer", "step and observation of the world"], body)


NUMBERS: dict[str, Callable[[], str]] = {
    "trials-chosen": chosen,
    "trials-tested": tested,
    "trials-paired": paired,
    "safety": safety,
    "safety-cost": cost,
}
