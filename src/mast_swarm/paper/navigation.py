"""The paper's experiments on navigation (DAN)."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import FAILS, HOLDS, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, curves, either, judged, present, shown, sign
from mast_swarm.paper.measured import Estimate, difference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

S = "success_rate"
SCENARIOS = ("clusters-1", "clusters-5", "clusters-10", "clusters-20", "clusters-25", "circle", "two-lines", "text")
TAUS = tuple(round(0.1 * step, 1) for step in range(1, 11))


def by_paper(size: Size, variant: str) -> str | Cell:
    """A policy of the paper's recipe: M is shipped, L and C are trained."""
    if variant == "M" and not size.quick:
        return "mast-m-paper"
    return size.trained("navigation", "paper", f"{variant.lower()}-paper", policy={"variant": variant})


# MAST-M against LSAP, DHBA and the fair rivals.

HOPS = (0, 1, 2, 4, 8, 16)
LOOK = 10.0  # s between the instants that a cell keeps
LATE = {"delay": 1.0}
FORGETFUL = LATE | {"max_age": 30.0}  # as mast-m-sharp is to be run
BEST = {"mast-m-sharp": FORGETFUL, "mast-m": LATE}
RIVALS: dict[str, dict[str, float]] = {
    "dhba-8-explore": {},
    "explorer": {},
    "searcher-250": {},
    "dhba-8-map": {},
    "dhba-8-relay": LATE,
    "dhba-8-relay-explore": LATE,
    "searcher-250-relay": FORGETFUL,
    "dhba-8-relay-map": FORGETFUL,
    "searcher-250-relay-map": FORGETFUL,
}


def _baseline_cells(size: Size) -> Mapping[str, Cell]:
    cells = {name: size.navigation(name, **settings) for name, settings in BEST.items()}
    cells["mast-m-paper"] = size.navigation(by_paper(size, "M"), **LATE)
    cells |= {f"dhba-{k}": size.navigation(f"dhba-{k}") for k in size.some(HOPS)} | {"lsap": size.navigation("lsap")}
    cells["dhba-8"] = size.navigation("dhba-8")
    return cells | {name: size.navigation(name, **settings) for name, settings in RIVALS.items()}


def _baseline_rows(found: Found) -> list[Row]:
    m, end = found.measured, None
    ours = next(iter(present(found, BEST)), "")

    def beats() -> Judged:
        recipe = difference(m("mast-m-paper"), m("dhba-8"), S, end)
        best = f"{ours} {difference(m(ours), m('dhba-8'), S, end)}"
        others = [f"dhba-{k} {difference(m('mast-m-paper'), m(f'dhba-{k}'), S, end)}" for k in (0, 4)]
        why = f"minus dhba-8 at the end, by which it is judged; mast-m-paper minus {'; '.join(others)}"
        for name in present(found, BEST):
            rivals = [f"{rival} {difference(m(name), m(rival), S, end)}" for rival in present(found, RIVALS)]
            why += f"; {name} minus rivals that explore, search by a map or hear as late: {'; '.join(rivals)}"
        return str(recipe), best, sign(recipe, wanted=1), why

    def share() -> Judged:
        recipe, best = m("mast-m-paper").at(S), ", ".join(f"{name} {m(name).at(S)}" for name in present(found, BEST))
        return str(recipe), best, HOLDS if abs(recipe.mean - 0.85) < 0.05 else FAILS, "within 0.05 of 0.85"

    def crossing(name: str, other: str) -> float:
        """The last of the instants of both at which the other is significantly ahead."""
        behind = [t for t in np.intersect1d(m(name).t, m(other).t) if difference(m(name), m(other), S, t).below_zero]
        return float(max(behind, default=0.0))

    def behind(name: str, other: str) -> str:
        until = crossing(name, other)
        return f"until {until:g} s" if until else "never"

    def slower() -> Judged:
        recipe = crossing("mast-m-paper", "dhba-8")
        verdict = HOLDS if 200 <= recipe < m("mast-m-paper").end else FAILS
        why = "the last instant at which dhba-8 is significantly ahead; holds from 200 s on, but not if it is the end"
        for name in present(found, BEST):
            step = float(np.diff(m(name).t).max())
            where = f", which is known each {step:g} s," if step > LOOK else ""
            rivals = [f"{rival} {behind(name, rival)}" for rival in present(found, RIVALS)]
            why += f"; {name}{where} is behind {', '.join(rivals)}"
        return f"behind {behind('mast-m-paper', 'dhba-8')}", f"{ours} behind {behind(ours, 'dhba-8')}", verdict, why

    def rises() -> Judged:
        names = [f"dhba-{k}" for k in HOPS if f"dhba-{k}" in found.cells and k <= 8]
        text = ", ".join(f"{m(name).at(S).mean:.3f}" for name in names)
        steps = [difference(m(after), m(before), S) for before, after in itertools.pairwise(names)]
        why = f"{', '.join(names)} at the end; each step above 0: {', '.join(map(str, steps))}"
        return "-", text, either(*(step.above_zero for step in steps)), why

    def no_more() -> Judged:
        gain = difference(m("dhba-16"), m("dhba-8"), S, end)
        verdict = {HOLDS: FAILS}.get(sign(gain, wanted=1), HOLDS)
        return "-", f"dhba-16 minus dhba-8 {gain}", verdict, "something is gained if the interval is above 0"

    def bound() -> Judged:
        top = m("lsap").at(S)
        rest = {name: m(name).at(S).mean for name in found.cells if name != "lsap"}
        first = max(rest, key=lambda name: rest[name])
        ahead = {name: crossing("lsap", name) for name in rest}
        late = max(ahead.values())
        why = "the highest at the end, and nobody significantly ahead of it at any instant"
        if late:
            why += f": {', '.join(name for name in ahead if ahead[name] == late)} are until {late:g} s"
        verdict = either(top.mean >= rest[first], not late)
        return "-", f"lsap {top}, next {first} {rest[first]:.3f}", verdict, why

    judges = {21: beats, 22: share, 23: slower, 24: rises, 25: no_more, 26: bound}
    return [judged(found, claim, judge) for claim, judge in judges.items()]


def _baseline_draw(found: Found, figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    ours = next(iter(present(found, BEST)), "mast-m")
    curves(left, found, [ours, "mast-m-paper", "lsap", *(f"dhba-{k}" for k in HOPS)], S)
    left.set(ylabel="success rate", ylim=(0, 1.02))
    left.set_title("the paper's baselines, without delay", loc="left")
    curves(right, found, [*BEST, *RIVALS], S)
    right.set(ylim=(0.7, 1.005))
    right.set_title("fair rivals", loc="left")
    for axes in (left, right):
        if axes.lines:
            axes.legend(loc="lower right", fontsize=7)


declare(
    Experiment(
        "baselines",
        "MAST-M against LSAP, DHBA-k and the fair rivals over 800 s",
        "Fig. 7",
        _baseline_rows,
        _baseline_cells,
        _baseline_draw,
        shape=(9.6, 4.6),
        notes="mast-m-sharp, mast-m, mast-m-paper and the controllers with relay in their names hear messages that "
        "take 1 s per hop; the other controllers have no delay. mast-m-sharp, searcher-250-relay, dhba-8-relay-map and "
        "searcher-250-relay-map forget news older than 30 s. mast-m-sharp and the controllers with map in their names "
        "search by a map of where robots have looked; maps move as late as news does. mast-m differs from the paper's "
        "recipe in its expert, in exploration, and in replay and schedule; mast-m-sharp besides in a better teacher, "
        "in scenarios and loss, and in memory and map.",
    )
)


# Scenarios.


def _scenario_cells(size: Size) -> Mapping[str, Cell]:
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


def _scenario_rows(found: Found) -> list[Row]:
    names = found.size.some(SCENARIOS)

    def end(policy: str, name: str) -> float:
        return found.measured(f"{policy} {name}").at(S).mean

    def listed(policy: str, chosen: list[str]) -> str:
        ready = [name for name in chosen if f"{policy} {name}" in found.results]
        return ", ".join(f"{name} {end(policy, name):.3f}" for name in ready) or "not run"

    def apart(policy: str, one: str, other: str) -> Estimate:
        return difference(found.measured(f"{policy} {one}"), found.measured(f"{policy} {other}"), S)

    def drawn() -> Judged:
        count = {p: len(present(found, (f"{p} {n}" for n in names))) for p in ("mast-m-paper", "mast-m")}
        texts = [f"{number} of {len(names)} curves" for number in count.values()]
        why = "the figure"
        pairs = (("mast-m", "dhba-8-relay-explore", "hears as late"), ("mast-m-paper", "dhba-8", "has no delay"))
        for policy, rival, which in pairs:
            both = [n for n in names if found.has((f"{policy} {n}", f"{rival} {n}"))]
            gaps = [difference(found.measured(f"{policy} {n}"), found.measured(f"{rival} {n}"), S) for n in both]
            listing = ", ".join(f"{name} {gap}" for name, gap in zip(both, gaps, strict=True))
            why += f"; {policy} minus {rival}, which {which}, at the end: {listing}" if both else ""
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
        verdict = either(*(gap.above_zero for gap in gaps.values()))
        chosen = [*others, *clusters]
        listing = ", ".join(f"{name} {gap}" for name, gap in gaps.items())
        why = f"judged on {policy}: easier if above the easiest of these clusters, {easiest}; minus that {listing}"
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
                if len(names) > 2:
                    texts[policy] += f", without {names[0]} {rank(together[1:], ends[1:]):+.2f}"
        best = f"{texts.get('mast-m', 'not run')}; dhba-8 {texts.get('dhba-8', 'not run')}"
        connected = ", ".join(f"{name} {share:.2f}" for name, share in zip(names, together, strict=True))
        why = "above 0.7 for each of the three policies; of the success rate at the end with the probability that two "
        why += f"robots are connected at the start: {connected}"
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


def _scenario_draw(found: Found, figure: Figure) -> None:
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
    rest.legend(*panels[0].get_legend_handles_labels(), loc="center", fontsize=9)


declare(
    Experiment(
        "scenarios",
        "eight scenarios over time, and how connected their graphs are",
        "Fig. 8",
        _scenario_rows,
        _scenario_cells,
        _scenario_draw,
        shape=(9.6, 5.6),
        notes="mast-m, mast-m-paper and dhba-8-relay-explore hear messages that take 1 s per hop; dhba-8 and "
        "dhba-8-explore have no delay.",
    )
)


# Delays.


def _delay_cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for letter in "ML":
        for kind, policy in (("best", f"mast-{letter.lower()}"), ("paper", by_paper(size, letter))):
            cells[f"{letter} {kind} central"] = size.navigation(policy)
            taus = size.some(TAUS) if kind == "paper" or size.quick else sorted({*TAUS, 0.0, 0.25, 0.75})
            cells |= {f"{letter} {kind} {tau:g}": size.navigation(policy, delay=float(tau)) for tau in taus}
    return cells


def _delay_rows(found: Found) -> list[Row]:
    def count(text: str) -> Judged:
        kinds = {
            k: len([n for n in found.results if f" {k} " in n and not n.endswith("central")]) for k in ("paper", "best")
        }
        whole = {k: len([n for n in found.cells if f" {k} " in n and not n.endswith("central")]) for k in kinds}
        texts = [f"{kinds[k]} of {whole[k]} delays" for k in kinds]
        return texts[0], texts[1], shown(sum(kinds.values()), sum(whole.values())), text

    def change(letter: str, kind: str, t: float | None = None) -> Estimate:
        return difference(found.measured(f"{letter} {kind} 1"), found.measured(f"{letter} {kind} central"), S, t)

    def unaffected() -> Judged:
        kind = "paper" if found.has(("M paper 1", "M paper central")) else "best"
        gaps = [change("M", kind, t) for t in (None, 50.0)]
        recipe = f"{gaps[0]}, at 50 s {gaps[1]}" if kind == "paper" else "not run"
        best = f"{change('M', 'best')}, at 50 s {change('M', 'best', 50.0)}"
        why = "tau = dt minus central, at the end and at 50 s; unaffected where the interval contains 0"
        return recipe, best, either(*(not (gap.below_zero or gap.above_zero) for gap in gaps)), why

    def falls() -> Judged:
        recipe = difference(found.measured("L paper 1"), found.measured("L paper central"), S)
        levels = [found.measured(f"L paper {at}").at(S).mean for at in ("central", "1")]
        verdict = either(recipe.below_zero, abs(levels[0] - 0.9) < 0.05, abs(levels[1] - 0.8) < 0.05)
        text = f"{levels[0]:.3f} to {levels[1]:.3f}: {recipe}"
        why = "tau = dt minus central at the end; holds if it falls, from 0.9 and to 0.8, each within 0.05"
        return text, str(change("L", "best")), verdict, why

    judges = {34: unaffected, 35: falls}
    drawn = [judged(found, c, lambda t=t: count(t)) for c, t in ((32, "the figure"), (33, "the figure"))]  # type: ignore[misc]
    return [*drawn, *(judged(found, claim, judge) for claim, judge in judges.items())]


def _delay_draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import policy_colour

    parts: Any = figure.subfigures(2, 1)
    top, bottom = parts
    for axes, letter in zip(top.subplots(1, 2, sharey=True), "LM", strict=True):
        chosen = [f"{letter} best {tau:g}" for tau in (0.2, 0.25, 0.4, 0.5, 0.6, 0.75, 0.8, 1.0)]
        curves(axes, found, [f"{letter} best central", *chosen], S, lambda name: name.split()[-1])
        axes.set_title(f"MAST-{letter}, our best", loc="left")
        axes.set(ylim=(0, 1.02), ylabel="success rate" if letter == "L" else "")
        if axes.lines:
            axes.legend(title="tau / dt", fontsize=7, ncols=2)
        else:
            blank(axes)
    axes = bottom.subplots()
    for number, (letter, kind) in enumerate((a, b) for a in "ML" for b in ("best", "paper")):
        points = []
        for name in found.results:
            if name.startswith(f"{letter} {kind} "):
                tau = 0.0 if name.endswith("central") else float(name.split()[-1])
                if not name.endswith(" 0"):
                    points.append((tau, found.measured(name).at(S)))
        points.sort(key=lambda point: point[0])
        if points:
            label = f"MAST-{letter}, {'our best' if kind == 'best' else 'paper recipe'}"
            axes.errorbar(
                [tau for tau, _ in points],
                [e.mean for _, e in points],
                [e.half or 0.0 for _, e in points],
                marker="o", capsize=2, color=policy_colour(number), label=label,
            )  # fmt: skip
    axes.set(xlabel="delay per hop, in control periods (0: centralised)", ylabel="success rate at the end")
    axes.legend(fontsize=8, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))


declare(
    Experiment(
        "delays",
        "delay over time and at the end, for M and L",
        "Figs. 10 and 11",
        _delay_rows,
        _delay_cells,
        _delay_draw,
        shape=(7.2, 6.4),
    )
)


# Variants.


def _variant_cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for letter in "CLM":
        for kind, policy in (("best", f"mast-{letter.lower()}"), ("paper", by_paper(size, letter))):
            cells[f"{letter} {kind} central"] = size.navigation(policy)
            if letter != "C":
                cells[f"{letter} {kind} alone"] = size.navigation(policy, delay=1.0)
    return cells


def _variant_rows(found: Found) -> list[Row]:
    def end(letter: str, kind: str, how: str = "central") -> float:
        return found.measured(f"{letter} {kind} {how}").at(S).mean

    def text(kind: str, how: str, letters: str) -> str:
        try:
            return ", ".join(f"{letter} {end(letter, kind, how):.3f}" for letter in letters)
        except KeyError:
            return "not run"

    def order() -> Judged:
        pairs = [(a, b) for a, b in ("CL", "LM")]
        gaps = [
            difference(found.measured(f"{a} paper central"), found.measured(f"{b} paper central"), S) for a, b in pairs
        ]
        verdict = either(*(gap.above_zero for gap in gaps))
        apart = ", ".join(f"{a} minus {b} {gap}" for (a, b), gap in zip(pairs, gaps, strict=True))
        why = f"at the end, by one recipe for all three: {apart}; our best ones differ in theirs"
        return text("paper", "central", "CLM"), text("best", "central", "CLM"), verdict, why

    def below() -> Judged:
        gap = difference(found.measured("L paper alone"), found.measured("M paper alone"), S)
        why = f"L minus M at tau = dt {gap}"
        return text("paper", "alone", "LM"), text("best", "alone", "LM"), sign(gap, wanted=-1), why

    def only() -> Judged:
        ends = {letter: end(letter, "paper") for letter in "CLM"}
        verdict = HOLDS if [letter for letter, value in ends.items() if value > 0.9] == ["C"] else FAILS
        early = ", ".join(f"{v} {found.measured(f'{v} paper central').at(S, 200.0).mean:.3f}" for v in "CLM")
        why = f"centralised, at the end, by the paper's recipe; at t = 200 s {early}"
        return text("paper", "central", "CLM"), text("best", "central", "CLM"), verdict, why

    return [judged(found, claim, judge) for claim, judge in {36: order, 37: below, 38: only}.items()]


def _variant_draw(found: Found, figure: Figure) -> None:
    for axes, kind in zip(figure.subplots(1, 2, sharey=True), ("paper", "best"), strict=True):
        names = [
            f"{a} {kind} {how}"
            for a, how in (("C", "central"), ("L", "central"), ("M", "central"), ("L", "alone"), ("M", "alone"))
        ]
        curves(axes, found, names, S, lambda name: f"{name[0]} {name.split()[-1]}")
        axes.set_title({"paper": "the paper's recipe", "best": "our best"}[kind], loc="left")
        axes.set(ylim=(0, 1.02), ylabel="success rate")
        if axes.lines:
            axes.legend(fontsize=8, loc="lower right")
        else:
            blank(axes)


declare(
    Experiment(
        "variants",
        "C, L and M, centralised and decentralised",
        "Fig. 12",
        _variant_rows,
        _variant_cells,
        _variant_draw,
        shape=(7.4, 3.6),
    )
)
