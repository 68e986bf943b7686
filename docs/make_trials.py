"""The blocks on trials of ways to train, and on the safety layer: from docs/results/navigation/trials."""

from __future__ import annotations

import json
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

TAUGHT = (  # options of `explorer` besides a memory of 80 places: what they are; start states of seed 7003
    ({}, "`explorer` with memory"),
    ({"horizon": 250}, "near goals first: K = 250 m"),
    ({"parting": [5, 150]}, "robots without a goal part"),
    ({"exploration_push": 4}, "memory pushes twice as much"),
    ({"exploration_push": 4, "parting": [5, 150]}, "the last two"),
    ({"exploration_push": 4, "parting": [5, 150], "horizon": 400}, "all three, K = 400 m: `searcher-400`"),
    ({"exploration_push": 4, "parting": [5, 150], "horizon": 250}, "all three, K = 250 m: `searcher-250`"),
)
TRIED = {  # name in searching.json: what was tried; start states of seed 7002
    "explorer-memory": "`explorer` with memory",
    "p1.25": "distances to the power of 1.25 instead of 2",
    "p3": "to the power of 3",
    "p1": "plain distances, the last goal 10 % nearer",
    "hysteresis": "squared distances, the last goal 20 % cheaper",
    "horizon-100": "near goals first: K = 100 m",
    "horizon-250": "K = 250 m",
    "horizon-300": "K = 300 m",
    "goals-own": "each robot remembers one free goal that it has sensed",
    "goals-pooled": "a component pools all it ever sensed, and who was to take it",
    "reach-500": "a leash of 500 m instead of 300 m",
    "reach-1000": "1000 m",
    "time-400": "headings that turn in 400 s instead of 100 s",
    "push-5": "memory pushes with 5 instead of 2",
    "spread-300": "over 300 m instead of 150 m",
    "trails-pooled": "others' remembered places push too, a tenth as much",
    "part-all": "robots without a goal part from all of their component",
    "parting": "from those without a goal",
    "parting-push-4": "the same, memory pushes with 4",
    "parting-push-8": "with 8",
    "searched-own": "to the nearest place not yet searched",
    "searched-pooled": "the same; a component pools what it has searched",
    "frontier": "to the nearest place that nobody of the component senses now",
    "searcher-250": "`searcher-250`",
    "searcher-250-goals-pooled": "`searcher-250`, goals pooled as above",
    "one-component": "`explorer` with memory, everybody hears everybody",
    "sense-5": "`explorer` with memory, robots sense 5 goals and 5 robots",
    "lsap": "`lsap`",
}
ALONE = {  # name in searching.json: what it is; 27 start states of seed 7002, 1 s per hop
    "central base": "`explorer` with memory, a component at once, no delay",
    "base": "the same, each robot alone",
    "age15": "news older than 15 s is forgotten",
    "age5": "news older than 5 s is forgotten",
    "p1": "plain distances",
    "cap250": "near goals first: K = 250 m",
    "cap250 age15": "K = 250 m, news older than 15 s is forgotten",
    "cap250 dead10": "K = 250 m, others are thought to have moved on for up to 10 s",
    "cap250 rp": "K = 250 m, robots without a goal part",
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


def over_time(head: str, rows: list[tuple[str, dict[str, Any]]]) -> str:
    """Evaluations by name: their success rate at some instants."""
    body = [[name, *(cell(row["each"][t]) for t in TIMES)] for name, row in rows]
    return table([head, *(f"t = {t} s" for t in TIMES)], body)


def minus(rows: list[tuple[str, dict[str, Any]]]) -> str:
    """How much better the first of these evaluations is than each other, on the same start states."""
    (own, ours), *others = rows
    body = []
    for name, row in others:
        pairs = {t: [a - b for a, b in zip(ours["each"][t], row["each"][t], strict=True)] for t in TIMES}
        body.append([name, *(cell(pairs[t], "+") for t in TIMES)])
    return table([f"{own} minus", *(f"t = {t} s" for t in TIMES)], body)


def _tested() -> list[tuple[str, dict[str, Any]]]:
    return [(name, find(file, 7101, policy, safe)) for (file, policy, safe), name in TESTED.items()]


def tested() -> str:
    return over_time("108 start states of seed 7101", _tested())


def paired() -> str:
    return minus(_tested())


def taught() -> str:
    rows = load(f"{FOLDER}/teachers.json")["evals"]
    found = {json.dumps(row["options"], sort_keys=True): row for row in rows}
    shown = [
        (what, found[json.dumps({"exploration_memory": 80} | options, sort_keys=True)]) for options, what in TAUGHT
    ]
    first, body = shown[0][1], []
    for what, row in shown:
        pairs = {t: [a - b for a, b in zip(row["each"][t], first["each"][t], strict=True)] for t in TIMES}
        body.append(
            [what, *(cell(row["each"][t] if row is first else pairs[t], "" if row is first else "+") for t in TIMES)]
        )
    episodes = first["episodes"]
    return table([f"{episodes} start states of seed 7003", *(f"t = {t} s" for t in TIMES)], body)


def tried() -> str:
    found = load(f"{FOLDER}/searching.json")
    rows = {row["name"]: row["mean"] for row in found["rows"]}
    body = [[what, *(f"{rows[name][t]:.3f}" for t in TIMES)] for name, what in TRIED.items()]
    return table([f"{found['episodes']} start states of seed {found['seed']}", *(f"t = {t} s" for t in TIMES)], body)


def alone() -> str:
    rows = {row["name"]: row for row in load(f"{FOLDER}/searching.json")["alone"]["rows"]}
    body = [[what, *(f"{rows[name]['mean'][t]:.3f}" for t in TIMES[:2])] for name, what in ALONE.items()]
    return table([f"{rows['base']['episodes']} start states of seed 7002", *(f"t = {t} s" for t in TIMES[:2])], body)


def relayed() -> str:
    rows = [row for file in ("alone", "age") for row in load(f"{FOLDER}/searchers-{file}.json")["evals"]]
    body = []
    for row in rows:
        age = row["channel"].get("max_age")
        name = f"`{row['policy']}`" + (f", `--max-age {age:g}`" if age else "")
        body.append([name, *(cell(row["each"][t]) for t in TIMES)])
    head = f"{rows[0]['episodes']} start states of seed {rows[0]['seed']}"
    return table([head, *(f"t = {t} s" for t in TIMES)], body)


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
    "teachers-taught": taught,
    "teachers-alone": alone,
    "teachers-relay": relayed,
    "teachers-tried": tried,
    "safety": safety,
    "safety-cost": cost,
}
