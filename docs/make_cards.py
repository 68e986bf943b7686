"""The blocks of the cards of shipped policies, zoo/*/*/card.md: fair rivals, distance and collisions, and how
much policies of several training seeds differ; and the table of docs/navigation.md that has all rivals."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import make_coverage
import make_sharp
import numpy as np
from blocks import load, table

from mast_swarm.paper.study.ours import HEADLINES, Headline

FORGETTING = "1 s per hop, `--max-age 30`"
RIVALS: dict[str, tuple[str, str, str]] = {  # a row's name: the file, the policy there, the delay of its news
    f"`{make_sharp.NAME}`": ("sharp-map", "mast-m-sharp", FORGETTING),
    f"{make_sharp.BARE}": ("trials/sharp-alone", "mast-m-sharp", FORGETTING),
    "`mast-m`": ("m-delay-1", "mast-m", "1 s per hop"),
    "`mast-m-paper`": ("paper-recipe-alone", "m-paper", "1 s per hop"),
    "`searcher-250-relay-map`": ("searcher-250-relay-map", "searcher-250-relay-map", FORGETTING),
    "`dhba-8-relay-map`": ("dhba-8-relay-map", "dhba-8-relay-map", FORGETTING),
    "`searcher-250-relay`": ("searchers", "searcher-250-relay", FORGETTING),
    "`dhba-8-relay-explore`": ("rivals", "dhba-8-relay-explore", "1 s per hop"),
    "`dhba-8-relay`": ("rivals", "dhba-8-relay", "1 s per hop"),
    "`dhba-8-map`": ("map-rivals", "dhba-8-map", "none"),
    "`searcher-250`": ("searchers", "searcher-250", "none"),
    "`explorer`": ("rivals", "explorer", "none"),
    "`dhba-8-explore`": ("rivals", "dhba-8-explore", "none"),
    "`dhba-8`": ("rivals", "dhba-8", "none"),
    "`lsap`": ("rivals", "lsap", "none"),
}
# Those of no other table.
MEASURED = RIVALS | {
    "`mast-c`, central": ("central", "mast-c", "none"),
    "`mast-l`, central": ("central", "mast-l", "none"),
    "`mast-l`": ("l-delay-1", "mast-l", "1 s per hop"),
    "`mast-m-paper`, central": ("paper-recipe-central", "m-paper", "none"),
}
FAIR = ("`dhba-8-relay`", "`dhba-8-relay-explore`", "`dhba-8`", "`dhba-8-explore`", "`explorer`")


def beside(names: Iterable[str], times: tuple[float, ...]) -> str:
    """Policies on the same start states: delay, success rate, and at the end distance and collisions."""
    body = []
    for name in names:
        file, policy, delay = MEASURED[name]
        rows = load(f"docs/results/navigation/{file}.json")["rows"]
        found = {(r["metric"], r["t"]): (r["mean"], r["ci95"]) for r in rows if r["policy"] == policy}
        cells = ["{:.3f} ± {:.3f}".format(*found["success_rate", t]) for t in times]
        way = "{:.0f} ± {:.0f} m".format(*found["distance", 800.0])
        body.append([name, delay, *cells, way, "{:.2f} ± {:.2f}".format(*found["collisions", 800.0])])
    head = ["policy", "delay of news", *(f"t = {t:g} s" for t in times), "way per robot", "pairs that touch at 800 s"]
    return table(head, body)


def among(*ours: str) -> Callable[[], str]:
    """The table of a card on the start states of seed 3."""
    return lambda: beside((*ours, *FAIR), (50, 200, 800))


def _shown(values: list[float]) -> str:
    each = ", ".join(f"{value:.3f}" for value in values)
    return f"{np.mean(values):.3f}, {np.std(values, ddof=1):.3f} ({each})"


def seeds(one: Headline, times: tuple[float, ...]) -> str:
    """What policies reach that were trained alike with several seeds, and in words how far from the shipped one the
    others are."""
    found, body, apart = make_coverage.found("seeds"), [], 0.0
    for way in one.ways:
        names = one.names(found, way)
        if not found.has(names):
            missing = f"{sum(name not in found for name in names)} of {len(names)} seeds"
            return f"How far seeds are apart is not measured: {missing} are not there yet (`mast reproduce seeds`).\n"
        reached = {t: [found.measured(name).at(one.metric, t).mean for name in names] for t in times}
        body.append([way, *(_shown(values) for values in reached.values())])
        apart = max(apart, *(abs(value - values[0]) for values in reached.values() for value in values))
    told = f"Seeds 1 and 2 are within {apart:.3f} of seed 0, which is shipped, at all of these instants."
    head = ["mean, standard deviation (seeds 0, 1, 2)", *(f"t = {t:g} s" for t in times)]
    return f"{table(head, body)}\n{told}\n"


def _seeds_of(one: Headline) -> Callable[[], str]:
    return lambda: seeds(one, (50, 200, 800) if one.task == "navigation" else (120,))


NUMBERS: dict[str, Callable[[], str]] = {
    "card-mast-c": lambda: beside(("`mast-c`, central", *FAIR, "`lsap`"), (50, 200, 800)),
    "card-mast-l": among("`mast-l`, central", "`mast-l`"),
    "card-mast-m": among("`mast-m`"),
    "card-mast-m-paper": among("`mast-m-paper`, central", "`mast-m-paper`"),
    "card-mast-m-sharp": lambda: beside((name for name in RIVALS if name != "`lsap`"), (50, 200, 800)),
    **{f"seeds-{one.name.replace(' ', '-')}": _seeds_of(one) for one in HEADLINES},
}
