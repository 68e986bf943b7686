"""Five encodings, four windows, teams of several sizes, for M, L and C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.effort import needed, told
from mast_swarm.paper.experiment import FAILS, HOLDS, LEVEL, PARTLY, Experiment, Found, Missing, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, choice, in_part, judged, overall, sign, table
from mast_swarm.paper.measured import estimated
from mast_swarm.paper.navigation.common import S
from mast_swarm.paper.study.common import ENCODINGS, LITTLE, SHORT, SIZES, WINDOWS, at_size, studied, window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL, LARGE = SIZES[0], SIZES[-1]  # robots
_WINDOWS = [window(radius) for radius in WINDOWS]
ENOUGH = 0.6  # success rate, of which the paper counts how many models exceed it at N = 1000


def _encoding_cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for variant in size.some("MLC"):
        for encoding in size.some(ENCODINGS):
            for radius in size.some(WINDOWS):
                policy = studied(size, variant, encoding, radius)
                for agents in size.some(SIZES):
                    cells[f"{variant} {encoding} {window(radius)} {agents}"] = at_size(size, policy, agents)
    return cells


class _Models:
    """What is there of the study, and what is not."""

    def __init__(self, found: Found) -> None:
        self.found = found

    @staticmethod
    def name(variant: str, encoding: str, radius: str, agents: int = SMALL) -> str:
        return f"{variant} {encoding} {radius} {agents}"

    def end(self, *model: Any) -> float:
        return self.found.measured(self.name(*model)).mean(S)

    def drawn(self, *model: Any) -> np.ndarray:
        """The success rate with its samples; teams of each size have start states of their own."""
        return self.found.measured(self.name(*model)).drawn(S, starts=model[-1])

    def learned(self, variant: str, encodings: Iterable[str] = ENCODINGS) -> list[str]:
        """Encodings of which every model of a variant that is there has learned something."""
        there = {
            e: [self.end(variant, e, w, SMALL) for w in _WINDOWS if self.name(variant, e, w) in self.found.results]
            for e in encodings
        }
        return [e for e, ends in there.items() if ends and min(ends) > LITTLE]

    def left_out(self, variant: str) -> str:
        """What is said of the others: how little the least of their models have learned."""
        out = [e for e in ENCODINGS if e not in self.learned(variant)]
        names = [self.name(variant, e, w) for e in out for w in _WINDOWS]
        ends = [self.found.measured(name).mean(S) for name in names if name in self.found.results]
        poor = [end for end in ends if end <= LITTLE]
        if not poor:
            return ""
        where = "" if len(poor) == len(ends) else " with some windows or all"
        most = f"{max(poor):.2f} at N = {SMALL} at most"
        return f"; {', '.join(out)} left out: after {SHORT} epochs almost nothing is learned{where}, {most}"

    def absent(self, variant: str = "") -> str:
        """Which models are missing, and what they take."""
        whole = dict.fromkeys(one.rsplit(" ", 1)[0] for one in self.found.cells if one.startswith(variant))
        there = {one.rsplit(" ", 1)[0] for one in self.found.results}
        gone: dict[str, list[str]] = {}
        for one in whole:
            if one not in there:
                letter, encoding, radius = one.split()
                gone.setdefault(f"{letter} {radius}", []).append(encoding)
        if not gone:
            return ""
        each = [f"{at} {'all' if len(es) == len(ENCODINGS) else ' '.join(es)}" for at, es in gone.items()]
        cells = [
            cell for one, cell in self.found.cells.items() if one not in self.found.results and one.startswith(variant)
        ]
        count = sum(map(len, gone.values()))
        return f"; {count} of {len(whole)} models are missing ({', '.join(each)}): {told(needed(cells))}"


def _trained(models: _Models) -> Judged:
    ready = [e for e in ENCODINGS if f"M {e} 250 100" in models.found.results]
    texts = ", ".join(f"{e} {models.end('M', e, '250', 100):.3f}" for e in ready)
    if not ready:
        models.found["M rope-g 250 100"]
    why = f"M, R_att 250, N = 100, t = 200 s, centralised, {SHORT} epochs; holds: all five are run"
    why += "".join(
        f"; {e} has learned almost nothing by then" for e in ready if models.end("M", e, "250", SMALL) <= LITTLE
    )
    return texts, "-", HOLDS if len(ready) == len(ENCODINGS) else PARTLY, why


def _study(models: _Models) -> Judged:
    there = {name.rsplit(" ", 1)[0] for name in models.found.results}
    whole = {name.rsplit(" ", 1)[0] for name in models.found.cells}
    if not there:
        models.found["M rope-g 250 100"]
    text = f"{len(there)} of {len(whole)} models, {SHORT} epochs each"
    by = ", ".join(f"{v} {sum(name[0] == v for name in there)}" for v in "MLC")
    why = f"{by}; one shorter schedule for all; the 75 models are named in a note of the source that is not printed"
    why += models.absent()
    return text, "-", HOLDS if there == whole else PARTLY, why


def _masked(models: _Models) -> Judged:
    known = models.learned("M")
    if not {"rope-g", "rope-l", "ape-g"} <= set(known):
        raise Missing
    at_small = {e: np.array([models.drawn("M", e, w, SMALL) for w in _WINDOWS]) for e in known}
    rope, rest = (
        np.max([at_small[e] for e in known if e.startswith("rope") == is_rope], axis=0) for is_rope in (True, False)
    )
    ahead = [estimated(one, signed=True) for one in rope - rest]
    spread = {e: np.ptp(values, axis=0) for e, values in at_small.items()}
    robust = estimated(spread["rope-g"] - spread["rope-l"], signed=True)
    large = {w: models.drawn("M", "rope-g", w, LARGE) for w in _WINDOWS}
    trade = [estimated(large["250"] - large[w], signed=True) for w in _WINDOWS if w != "250"]
    loss = {e: at_small[e][0] - models.drawn("M", e, "250", LARGE) for e in known}
    most = [estimated(loss["ape-g"] - one, signed=True) for e, one in loss.items() if e != "ape-g"]
    parts = {
        "RoPE best": overall(*(sign(one, wanted=1) for one in ahead)),
        "rope-g more robust than rope-l": sign(robust, wanted=-1),
        "250 m the best of RoPE-G at N = 1000": choice(*trade),
        "ape-g loses the most": choice(*most),
    }
    text = (
        f"N = {SMALL}: best RoPE minus best other by window {', '.join(map(str, ahead))}; spread over windows "
        + ", ".join(f"{e} {estimated(spread[e]).to_its_ends()}" for e in ("rope-g", "rope-l"))
        + f"; rope-g at N = {LARGE} by window "
        + ", ".join(f"{w} {estimated(one)}" for w, one in large.items())
        + f"; loss from N = {SMALL} to {LARGE} at 250 m "
        + ", ".join(f"{e} {estimated(one, signed=True)}" for e, one in loss.items())
    )
    why = f"{SHORT} epochs; " + "; ".join(f"{part}: {verdict}" for part, verdict in parts.items())
    why += f"; rope-g minus rope-l in spread {robust}; 250 m minus the others {', '.join(map(str, trade))}"
    return text, "-", overall(*parts.values()), why + models.left_out("M")


def _local(models: _Models) -> Judged:
    wide = [(e, w) for e in ENCODINGS for w in ("1000", "inf")]
    ends = {v: {at: estimated(models.drawn(v, *at, LARGE)) for at in wide} for v in "ML"}
    above = {v: sum(one.above(ENOUGH) for one in each.values()) for v, each in ends.items()}
    open_ = {v: sum(not (one.above(ENOUGH) or one.below(ENOUGH)) for one in each.values()) for v, each in ends.items()}
    text = f"surely above {ENOUGH} at N = {LARGE}, R_att >= 1000: "
    text += ", ".join(f"{v} {above[v]} of {len(wide)}" + f", {open_[v]} open" * bool(open_[v]) for v in "ML")
    known = [e for e in models.learned("M") if e in models.learned("L")]
    pairs = [(e, w) for e, w in wide if e in known]
    if not pairs:
        raise Missing

    def lost(variant: str, at: tuple[str, str]) -> np.ndarray:
        return models.drawn(variant, *at, SMALL) - models.drawn(variant, *at, LARGE)

    more = [estimated(lost("L", at) - lost("M", at), signed=True) for at in pairs]
    surely, less = sum(gap.above_zero for gap in more), sum(gap.below_zero for gap in more)
    sure = above["L"] + open_["L"] < above["M"]
    fewer = HOLDS if sure else FAILS if above["L"] >= above["M"] + open_["M"] else LEVEL
    parts = [
        fewer,
        HOLDS if surely == len(more) else PARTLY if surely else FAILS,
    ]
    why = f"{SHORT} epochs; fewer of L above, as the paper counts; more sensitive: L loses more than M from "
    why += f"N = {SMALL} to {LARGE} without a window or with one of 1000 m: surely in {surely}, surely less in {less} "
    of_all = sorted(zip(more, pairs, strict=True), key=lambda one: one[0].mean)
    between = " to ".join(f"{gap} ({e}, {w})" for gap, (e, w) in (of_all[0], of_all[-1]))
    why += f"of {len(more)} pairs of models, {between}"
    verdict, gone = overall(*parts), models.absent("L")
    return text, "-", in_part(verdict) if gone else verdict, why + models.left_out("L") + gone


def _clairvoyant(models: _Models) -> Judged:
    there = [(e, w) for w in _WINDOWS for e in ENCODINGS if models.name("C", e, w) in models.found.results]
    small = {at: estimated(models.drawn("C", *at, SMALL)) for at in there if at[0] in models.learned("C")}
    if not small:
        raise Missing
    above = sum(one.above(0.9) for one in small.values())

    def losses(radius: str) -> dict[str, np.ndarray]:
        chosen = models.learned("C", ("rope-g", "rope-l", "mlp"))
        return {e: models.drawn("C", e, radius, SMALL) - models.drawn("C", e, radius, LARGE) for e in chosen}

    narrow, wide = losses("250"), losses("inf")
    ends = sorted(one.mean for one in small.values())
    text = f"N = {SMALL}: {ends[0]:.3f} to {ends[-1]:.3f}, {above} of {len(small)} surely above 0.9"
    for kind, lost in (("250 m", narrow), ("no window", wide)):
        each = ", ".join(f"{e} {estimated(value, signed=True)}" for e, value in lost.items())
        text += f"; loss to N = {LARGE}, {kind}: {each}"
    more = {e: estimated(wide[e] - narrow[e], signed=True) for e in narrow}
    parts = {
        "some above 0.9": HOLDS if above else FAILS,
        "more lost without a window": overall(*(sign(gap, wanted=1) for gap in more.values())),
        "less than 0.1 lost with it": overall(
            *(
                HOLDS if estimated(one).below(0.1) else FAILS if estimated(one).above(0.1) else LEVEL
                for one in narrow.values()
            )
        ),
    }
    why = f"{SHORT} epochs; " + "; ".join(f"{part}: {verdict}" for part, verdict in parts.items())
    why += "; more without a window: " + ", ".join(f"{e} {gap}" for e, gap in more.items())
    why += f"; from a note of the source that is not printed{models.left_out('C')}"
    verdict, gone = overall(*parts.values()), models.absent("C")
    return text, "-", in_part(verdict) if gone else verdict, why + gone


def _encoding_rows(found: Found) -> list[Row]:
    models = _Models(found)
    judges = {12: _trained, 16: _study, 17: _masked, 18: _local, 19: _clairvoyant}
    return [judged(found, claim, partial(judge, models)) for claim, judge in judges.items()]


def _by_window(found: Found) -> str:
    """The success rate of every model that is there, of small and large teams."""
    rows = []
    for variant in "MLC":
        for encoding in ENCODINGS:
            names = [f"{variant} {encoding} {window(radius)} {n}" for n in (SMALL, LARGE) for radius in WINDOWS]
            ends = [f"{found.measured(name).mean(S):.3f}" if name in found.results else "-" for name in names]
            rows += [[f"MAST-{variant}, {encoding}", *ends]] if any(end != "-" for end in ends) else []
    head = [f"N = {n}, R_att {window(radius)}" for n in (SMALL, LARGE) for radius in WINDOWS]
    return f"Success rate at t = 200 s:\n\n{table(['model', *head], rows)}" if rows else ""


def _encoding_draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import policy_colour

    grid = figure.subplots(3, len(WINDOWS), sharex=True, sharey=True)
    for row, variant in zip(grid, "MLC", strict=True):
        for axes, radius in zip(row, WINDOWS, strict=True):
            for number, encoding in enumerate(ENCODINGS):
                prefix = f"{variant} {encoding} {window(radius)} "
                points = sorted((int(name[len(prefix) :]), name) for name in found.results if name.startswith(prefix))
                if points:
                    means = [found.measured(name).mean(S) for _, name in points]
                    axes.plot([n for n, _ in points], means, color=policy_colour(number), marker=".", label=encoding)
            if not axes.lines:
                blank(axes)
            axes.set_title(f"MAST-{variant}, R_att {window(radius)}", loc="left", fontsize=9)
            axes.set(ylim=(0, 1.02))
    for axes in grid[-1]:
        axes.set_xlabel("robots")
    for axes in grid[:, 0]:
        axes.set_ylabel("success rate at 200 s")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=5)


declare(
    Experiment(
        "encodings",
        "five encodings, four windows, N from 100 to 1000, for M, L and C",
        "Figs. 19 and 20, Table 1",
        _encoding_rows,
        _encoding_cells,
        _encoding_draw,
        shape=(9.0, 7.0),
        notes=f"Every model is trained by the paper's recipe for {SHORT} epochs of the paper's 500.",
        says=_by_window,
    )
)
