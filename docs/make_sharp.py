"""The blocks on the policy `mast-m-sharp`: from docs/results/navigation/trials/sharp-*.json, where it has no map, and
map-*.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blocks import load, table
from make_trials import FOLDER, TIMES, cell, minus, over_time

NAME = "mast-m-sharp"
AGE = {"max_age": 30}
NO_MAP = {"exploration_survey": None}
TEACHER = "searcher-250-relay-map"
BARE = f"`{NAME}` without its map"
# (file, policy, maximum age): its name in the table; start states of seed 7110, which nobody had looked at.
TAUGHT = {
    ("sharp-tested", NAME, 30): f"{BARE}, `--max-age 30`",
    ("sharp-tested", NAME, None): BARE,
    ("sharp-tested", "mast-m", None): "`mast-m`",
    ("sharp-relay", "searcher-250-relay", 30): "`searcher-250-relay`, `--max-age 30`",
    ("sharp-rivals", "dhba-8", None): "`dhba-8`, no delay",
    ("sharp-rivals", "dhba-8-explore", None): "`dhba-8-explore`, no delay",
    ("sharp-rivals", "dhba-8-explore+memory", None): "`dhba-8-explore` with memory, no delay",
    ("sharp-rivals", "explorer", None): "`explorer`, no delay",
    ("sharp-rivals", "explorer+memory", None): "`explorer` with memory, no delay",
    ("sharp-rivals", "searcher-250", None): "`searcher-250`, no delay, which it imitates",
}
# A name in the table: the settings of the evaluation; start states of seed 7120, likewise.
MAPPED: dict[str, dict[str, Any]] = {
    f"`{NAME}`, `--max-age 30`": {"channel": AGE},
    f"{BARE}, `--max-age 30`": {"channel": AGE, "changes": NO_MAP},
    "`searcher-250-relay-map`, `--max-age 30`: the same map, as late": {
        "policy": "searcher-250-relay-map",
        "channel": AGE,
    },
    "`dhba-8-relay-map`, `--max-age 30`: the same map, as late": {"policy": "dhba-8-relay-map", "channel": AGE},
    "`searcher-250-relay`, `--max-age 30`": {"policy": "searcher-250-relay", "channel": AGE},
    "`dhba-8`, no delay": {"policy": "dhba-8"},
    "`dhba-8-explore`, no delay": {"policy": "dhba-8-explore"},
    "`dhba-8-map`, no delay: the same map": {"policy": "dhba-8-map"},
    "`explorer`, no delay": {"policy": "explorer"},
    "`searcher-250`, no delay": {"policy": "searcher-250"},
}
CONDITIONS = (  # settings of an evaluation: what they are
    (AGE, "1 s per hop"),
    (AGE | {"loss": 0.3}, "30 % of all transmissions are lost"),
    (AGE | {"delay": 3.0}, "3 s per hop"),
    (AGE | {"failure": 0.000279}, "a fifth of the robots fails: success of the living"),
)


def find(file: str, seed: int, policy: str = NAME, **asked: Any) -> dict[str, Any]:
    """The one evaluation with these settings; those that are not asked for are as usual."""
    usual = {"scenario": "clusters", "agents": 100, "safe": False, "channel": {}, "central": file.endswith("rivals")}
    want = {"seed": seed, "policy": policy, "changes": None, **usual, **asked}
    rows = load(f"{FOLDER}/{file}.json")["evals"]
    (row,) = (row for row in rows if all(row.get(key) == want[key] for key in want))
    return row


def mapped(seed: int, **asked: Any) -> dict[str, Any]:
    """The same with the map, or of a rival of that table."""
    policy = asked.get("policy", NAME)
    if policy == NAME:
        return find("map-tested", seed, **asked)
    if policy.endswith("relay-map"):
        return find("map-late", seed, **asked)
    return find("map-rivals", seed, central=not policy.endswith("relay"), **asked)


def of_scenario(name: str) -> list[str]:
    """At 800 s in a scenario: ours, its teacher's rule with the same late map on the first half of the start states,
    and the paired difference on these."""
    ours = find("map-tested", 7120, scenario=name, channel=AGE)["each"]["800"]
    teacher = find("map-scenarios", 7120, TEACHER, scenario=name, channel=AGE)["each"]["800"]
    apart = [one - other for one, other in zip(ours, teacher, strict=False)]
    return [cell(ours), cell(teacher), cell(apart, "+")]


def _taught() -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, find(file, 7110, policy, channel={} if age is None else {"max_age": age}))
        for (file, policy, age), name in TAUGHT.items()
    ]


def _mapped() -> list[tuple[str, dict[str, Any]]]:
    return [(name, mapped(7120, **asked)) for name, asked in MAPPED.items()]


def thousand() -> str:
    rows = {
        f"{BARE}, `--max-age 30`, each robot alone": find("sharp-tested", 7110, agents=1000, channel=AGE),
        "`searcher-250`, no delay": find("sharp-rivals", 7110, "searcher-250", agents=1000),
        "`dhba-8-explore`, no delay": find("sharp-rivals", 7110, "dhba-8-explore", agents=1000),
    }
    return over_time("1,000 robots, 9 start states of seed 7110", list(rows.items()))


def large() -> str:
    rows = [(f"`{NAME}`, `--max-age 30`, each robot alone", mapped(7120, agents=1000, channel=AGE))]
    found = {name: find("sharp-rivals", 7110, name, agents=1000) for name in ("searcher-250", "dhba-8-explore")}
    known = " and ".join(f"`{name}` reaches {cell(row['each']['800'])}" for name, row in found.items())
    return over_time("1,000 robots, 9 start states of seed 7120", rows) + (
        "\nNo rival was measured on these start states, nor one with a map in any team of this size. "
        f"On those\nof seed 7110, without a map and without delay, {known}\nof the goals at 800 s.\n"
    )


def card() -> str:
    """The table of the card, with collisions."""
    body = [[name, *(cell(row["each"][t]) for t in TIMES), f"{row['collisions']:.0f}"] for name, row in _mapped()]
    for name in ("dhba-8-relay", "dhba-8-relay-explore"):
        body.append([f"`{name}`", *["not measured"] * (len(TIMES) + 1)])
    return table(["108 start states of seed 7120", *(f"t = {t} s" for t in TIMES), "pairs that touch, summed"], body)


def conditions() -> str:
    body = []
    for channel, what in CONDITIONS:
        row = mapped(7120, channel=channel)
        body.append([what, *(cell(row.get("served", row["each"])[t]) for t in TIMES)])
    row = mapped(7120, channel=AGE, safe=True)
    body.append(["with `--safe`", *(cell(row["each"][t]) for t in TIMES)])
    return table([f"`{NAME}`, 108 start states of seed 7120", *(f"t = {t} s" for t in TIMES)], body)


def driven() -> str:
    """How far robots still drive at the end."""
    rows = load("docs/results/navigation/sharp-map.json")["rows"]
    ways = {row["t"]: row["mean"] for row in rows if (row["policy"], row["metric"]) == (NAME, "distance")}
    return f"From 750 s to 800 s a robot of `{NAME}` drives {ways[800.0] - ways[750.0]:.1f} m on average.\n"


def touching() -> str:
    """Collisions under each condition, and with the safety layer, in a sentence."""
    bare = [
        f"{mapped(7120, channel=channel)['collisions']:.0f} ({what.partition(':')[0]})" for channel, what in CONDITIONS
    ]
    safe = mapped(7120, channel=AGE, safe=True)["collisions"]
    summed = "Pairs that touch, summed over the instants, on average per episode"
    return f"{summed}:\n{', '.join(bare)}; {safe:.0f} with `--safe`.\n"


NUMBERS: dict[str, Callable[[], str]] = {
    "sharp-tested": lambda: over_time("108 start states of seed 7110", _taught()),
    "sharp-paired": lambda: minus(_taught()),
    "sharp-thousand": thousand,
    "sharp-conditions": conditions,
    "sharp-driven": driven,
    "sharp-touching": touching,
    "map-tested": lambda: over_time("108 start states of seed 7120", _mapped()),
    "map-paired": lambda: minus(_mapped()),
    "map-thousand": large,
    "map-card": card,
}
