"""Eight scenarios, and how connected their graphs are."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, curves, either, judged, overall, present, shown, sign, table
from mast_swarm.paper.measured import Estimate, difference
from mast_swarm.paper.navigation.common import DOTS, SCENARIOS, S, by_paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for name in size.some(SCENARIOS):
        late = {"mast-m": "mast-m", "mast-m-paper": by_paper(size, "M"), "dhba-8-relay-explore": "dhba-8-relay-explore"}
        for label, policy in late.items():
            cells[f"{label} {name}"] = size.navigation(policy, scenario=name, delay=1.0)
        for policy in ("dhba-8", "dhba-8-explore"):
            cells[f"{policy} {name}"] = size.navigation(policy, scenario=name)
        settings = {"task": "navigation", "agents": 100, "scenario": name, "episodes": size.pick(108, 3), "seed": 3}
        cells[f"graph {name}"] = Cell("connectivity", settings, f"graph-{name}")
    return cells


def _rows(found: Found) -> list[Row]:
    names = found.size.some(SCENARIOS)

    def end(policy: str, name: str) -> float:
        return found.measured(f"{policy} {name}").mean(S)

    def listed(policy: str, chosen: list[str]) -> str:
        ready = [name for name in chosen if f"{policy} {name}" in found.results]
        return ", ".join(f"{name} {end(policy, name):.3f}" for name in ready) or "not run"

    def apart(policy: str, one: str, other: str) -> Estimate:
        return difference(found.measured(f"{policy} {one}"), found.measured(f"{policy} {other}"), S)

    def drawn() -> Judged:
        count = {p: len(present(found, (f"{p} {n}" for n in names))) for p in ("mast-m-paper", "mast-m")}
        texts = [f"{number} of {len(names)} curves" for number in count.values()]
        why = "the figure; differences to rivals stand in its section"
        return texts[0], texts[1], shown(sum(count.values()), len(count) * len(names)), why

    def falls() -> Judged:
        sizes = [name for name in names if name.startswith("clusters")]
        policy = "mast-m-paper" if found.has(f"mast-m-paper {n}" for n in sizes) else "mast-m"
        ends = [end(policy, name) for name in sizes]
        steps = [apart(policy, b, a) for a, b in itertools.pairwise(sizes)]
        verdict = either(ends[0] > 0.9, ends[-1] < 0.8, all(step.below_zero for step in steps))
        why = f"judged on {policy}: the first above 0.9, the last below 0.8, each step below 0: "
        why += ", ".join(map(str, steps))
        return listed("mast-m-paper", sizes), listed("mast-m", sizes), verdict, why

    def easier() -> Judged:
        others, clusters = (
            ("circle", "two-lines", "text"),
            [n for n in names if n.startswith("clusters") and n[-2:] != "-1"],
        )
        policy = "mast-m-paper" if found.has(f"mast-m-paper {n}" for n in (*others, *clusters)) else "mast-m"
        easiest = max(clusters, key=lambda name: end(policy, name))
        gaps = {name: apart(policy, name, easiest) for name in others}
        verdict = overall(*(sign(gap, wanted=1) for gap in gaps.values()))
        chosen = [*others, *clusters]
        listing = ", ".join(f"{name} minus {easiest} {gap}" for name, gap in gaps.items())
        why = f"judged on {policy}: easier if above the easiest of these clusters, {easiest}; {listing}"
        return listed("mast-m-paper", chosen), listed("mast-m", chosen), verdict, why

    def explained() -> Judged:
        from scipy.stats import spearmanr

        def rank(share: list[float], ends: list[float]) -> float:
            return float(spearmanr(share, ends).statistic) if len(set(ends)) > 1 < len(set(share)) else 0.0

        together = [float(np.mean(found[f"graph {name}"].table["together"].to_numpy())) for name in names]
        texts, strong = {}, {}
        for policy in ("mast-m-paper", "mast-m", "dhba-8"):
            if found.has(f"{policy} {name}" for name in names):
                ends = [round(end(policy, name), 6) for name in names]  # a tie stays one
                texts[policy] = f"rank correlation {rank(together, ends):+.2f}"
                strong[policy] = rank(together, ends) > 0.7
                if len(names) > 2:  # of few scenarios a single one can make a correlation: it has to hold without any
                    least, without = min((rank(_but(i, together), _but(i, ends)), i) for i in range(len(names)))
                    texts[policy] += f", least without {names[without]}: {least:+.2f}"
                    strong[policy] &= least > 0.7
        best = f"{texts.get('mast-m', 'not run')}; dhba-8 {texts.get('dhba-8', 'not run')}"
        why = "rank correlation of the success rate at the end with the chance that two robots are connected at the "
        why += "start; holds if above 0.7 for all three policies, also when any one scenario is left out; this chance, "
        why += f"which stands in its section, is from {min(together):.2f} to {max(together):.2f}"
        larger = [share for name, share in zip(names, together, strict=True) if name.startswith("clusters-")][1:]
        if len(larger) > 1 and all(np.diff(larger) > 0):
            why += "; so it rises with the size of clusters from the second on, where the paper says that it falls"
        if found.has(("mast-m-paper clusters-1", "mast-m-paper text")):
            gap = apart("mast-m-paper", "text", "clusters-1")
            why += f"; robots start alike in clusters-1 and text, yet mast-m-paper differs by {gap}"
        if len(strong) < 3:  # some part is open
            return texts.get("mast-m-paper", "not run"), best, shown(sum(strong.values()), 3), why
        return texts["mast-m-paper"], best, either(*strong.values()), why

    judges = {27: drawn, 28: falls, 29: easier, 30: explained}
    return [judged(found, claim, judge) for claim, judge in judges.items()]


RIVALS = {"mast-m": "dhba-8-relay-explore", "mast-m-paper": "dhba-8"}


def _by_scenario(found: Found) -> str:
    """How connected each scenario is at the start, and how MAST-M stands to a rival at the end."""
    rows = []
    for name in found.size.some(SCENARIOS):
        graph = found.results.get(f"graph {name}")
        row = ["not run" if graph is None else f"{np.mean(graph.table['together'].to_numpy()):.2f}"]
        for pair in RIVALS.items():
            one, other = (f"{policy} {name}" for policy in pair)
            there = found.has((one, other))
            row.append(str(difference(found.measured(one), found.measured(other), S)) if there else "not run")
        rows.append([f"`{name}`", *row])
    head = ["scenario", "chance that two robots are connected at the start"]
    head += [f"success rate at the end: `{policy}` minus `{rival}`" for policy, rival in RIVALS.items()]
    return table(head, rows) if len(found) else ""


def _but(index: int, values: list[float]) -> list[float]:
    return values[:index] + values[index + 1 :]


def _draw(found: Found, figure: Figure) -> None:
    policies = ("mast-m", "mast-m-paper", "dhba-8-relay-explore", "dhba-8-explore", "dhba-8")
    *panels, rest = figure.subplots(2, 3, sharex=True, sharey=True).flat
    for axes, policy in zip(panels, policies, strict=True):
        curves(axes, found, [f"{policy} {name}" for name in SCENARIOS], S, lambda name: name.split(" ", 1)[1])
        axes.set_title(policy, loc="left")
        axes.set(ylim=(0, 1.02), ylabel="success rate" if policy in (policies[0], policies[3]) else "")
        if not axes.lines:
            blank(axes)
    for axes in panels[:2]:
        axes.set_xlabel("")
    panels[2].tick_params(labelbottom=True)  # what is below it has no axes
    rest.axis("off")
    fullest = max(reversed(panels), key=lambda axes: len(axes.lines))  # the last, whose curves have no marks
    rest.legend(*fullest.get_legend_handles_labels(), loc="center", fontsize=9)


declare(
    Experiment(
        "scenarios",
        "eight scenarios over time, and how connected their graphs are",
        "Fig. 8",
        _rows,
        _cells,
        _draw,
        shape=(9.6, 5.6),
        notes="mast-m, mast-m-paper and dhba-8-relay-explore hear messages that take 1 s per hop; dhba-8 and "
        f"dhba-8-explore have no delay. {DOTS}",
        says=_by_scenario,
    )
)
