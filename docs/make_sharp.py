"""The blocks on the policy `mast-m-sharp`: from docs/results/navigation/trials/sharp*.json."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blocks import load, table
from make_trials import FOLDER, TIMES, cell, minus, over_time

NAME = "mast-m-sharp"
AGE = {"max_age": 30}
UNSEEN = {  # (file, policy, channel): its name in the table; start states of seed 7110, which nobody had looked at
    ("tested", NAME, 30): f"`{NAME}`, `--max-age 30`",
    ("tested", NAME, None): f"`{NAME}`",
    ("tested", "mast-m", None): "`mast-m`",
    ("relay", "searcher-250-relay", 30): "`searcher-250-relay`, `--max-age 30`",
    ("rivals", "dhba-8", None): "`dhba-8`, no delay",
    ("rivals", "dhba-8-explore", None): "`dhba-8-explore`, no delay",
    ("rivals", "dhba-8-explore+memory", None): "`dhba-8-explore` with memory, no delay",
    ("rivals", "explorer", None): "`explorer`, no delay",
    ("rivals", "explorer+memory", None): "`explorer` with memory, no delay",
    ("rivals", "searcher-250", None): "`searcher-250`, no delay, which it imitates",
}
CONDITIONS = (  # settings of an evaluation on seed 3: what they are
    (AGE, "1 s per hop"),
    (AGE | {"loss": 0.3}, "30 % of all transmissions are lost"),
    (AGE | {"delay": 3.0}, "3 s per hop"),
    (AGE | {"failure": 0.000279}, "a fifth of the robots fails: success of the living"),
)


def find(file: str, seed: int, policy: str = NAME, **asked: Any) -> dict[str, Any]:
    """The one evaluation with these settings; those that are not asked for are as usual."""
    usual = {"scenario": "clusters", "agents": 100, "safe": False, "channel": {}, "central": file == "rivals"}
    want = {"seed": seed, "policy": policy, **usual, **asked}
    (row,) = (r for r in load(f"{FOLDER}/sharp-{file}.json")["evals"] if all(r[key] == want[key] for key in want))
    return row


def _unseen() -> list[tuple[str, dict[str, Any]]]:
    return [
        (name, find(file, 7110, policy, channel={} if age is None else {"max_age": age}))
        for (file, policy, age), name in UNSEEN.items()
    ]


def tested() -> str:
    return over_time("108 start states of seed 7110", _unseen())


def paired() -> str:
    return minus(_unseen())


def thousand() -> str:
    rows = {
        f"`{NAME}`, `--max-age 30`, each robot alone": find("tested", 7110, agents=1000, channel=AGE),
        "`searcher-250`, no delay": find("rivals", 7110, "searcher-250", agents=1000),
        "`dhba-8-explore`, no delay": find("rivals", 7110, "dhba-8-explore", agents=1000),
    }
    return over_time("1,000 robots, 9 start states of seed 7110", list(rows.items()))


def conditions() -> str:
    body = []
    for channel, what in CONDITIONS:
        row = find("tested", 3, channel=channel)
        body.append([what, *(cell(row.get("served", row["each"])[t]) for t in TIMES)])
    row = find("tested", 3, channel=AGE, safe=True)
    body.append(["with `--safe`", *(cell(row["each"][t]) for t in TIMES)])
    return table([f"`{NAME}`, 108 start states of seed 3", *(f"t = {t} s" for t in TIMES)], body)


def touching() -> str:
    """Collisions with and without the safety layer, in a sentence."""
    bare, safe = (find("tested", 3, channel=AGE, safe=layer)["collisions"] for layer in (False, True))
    summed = "Pairs that touch, summed over the instants of an episode"
    return f"{summed}: {bare:.0f} without `--safe`, {safe:.0f} with it.\n"


NUMBERS: dict[str, Callable[[], str]] = {
    "sharp-tested": tested,
    "sharp-paired": paired,
    "sharp-thousand": thousand,
    "sharp-conditions": conditions,
    "sharp-touching": touching,
}
