"""Five encodings, four windows, teams of several sizes, for M, L and C."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.effort import needed, told
from mast_swarm.paper.experiment import FAILS, HOLDS, LEVEL, PARTLY, Experiment, Found, Missing, Row, Size, declare
from mast_swarm.paper.judge import Judged, bars, blank, choice, curves, in_part, judged, overall, sign, table
from mast_swarm.paper.measured import estimated
from mast_swarm.paper.navigation.common import S
from mast_swarm.paper.study.common import ENCODINGS, LITTLE, NAMES, SHORT, SIZES, WINDOWS, at_size, studied, window

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SMALL, LARGE = SIZES[0], SIZES[-1]  # robots
_WINDOWS = [window(radius) for radius in WINDOWS]
_WIDE = ("1000", "inf")
_HOW = f"t = 200 s, centralized, {SHORT} epochs, one training each"
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

    def lost(self, *model: Any) -> np.ndarray:
        """How much lower it is in large teams, of other start states."""
        return self.drawn(*model, SMALL) - self.drawn(*model, LARGE)

    def gained(self, variant: str, encoding: str, radius: str) -> np.ndarray:
        """How much higher that of large teams is with the smallest window."""
        return self.drawn(variant, encoding, _WINDOWS[0], LARGE) - self.drawn(variant, encoding, radius, LARGE)

    def learned(self, variant: str, encodings: Iterable[str] = ENCODINGS) -> list[str]:
        """Encodings of which every model of a variant that is there has learned something."""
        there = {
            e: [self.end(variant, e, w, SMALL) for w in _WINDOWS if self.name(variant, e, w) in self.found.results]
            for e in encodings
        }
        return [e for e, ends in there.items() if ends and min(ends) > LITTLE]

    def left_out(self, variants: str) -> str:
        """What is said of the others, that is of those that were run and of which a model has learned nothing."""
        ends: dict[str, float] = {}
        for variant in variants:
            for e in (e for e in ENCODINGS if e not in self.learned(variant)):
                names = [name for w in _WINDOWS if (name := self.name(variant, e, w)) in self.found.results]
                least = min((self.found.measured(name).mean(S) for name in names), default=None)
                if least is not None:
                    ends[e] = min(least, ends.get(e, 1.0))
        if not ends:
            return ""
        least_of = ", ".join(f"{end:.2f}" for end in ends.values())
        little = f"after {SHORT} epochs a model has learned almost nothing ({least_of} at N = {SMALL})"
        return f"; {', '.join(ends)} left out: {little}"

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
    why = f"M, R_att 250, N = {SMALL}, {_HOW}; holds: all five are run"
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
    why = f"{by}; one shorter schedule for all, of the paper's 500 epochs; three variants, five encodings and four "
    why += f"windows are {len(whole)}: the 75 are named in a note of the source that is not printed, which says no more"
    return text, "-", PARTLY, why + models.absent()


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
    loss = {e: models.lost("M", e, "250") for e in known}
    apart = {e: estimated(loss["ape-g"] - one, signed=True, paired=False) for e, one in loss.items() if e != "ape-g"}
    flat = estimated(spread["ape-g"] - spread["rope-l"], signed=True)
    parts = {
        "RoPE best": overall(*(sign(one, wanted=1) for one in ahead)),
        "rope-g more robust to the window than rope-l": sign(robust, wanted=-1),
        "so is ape-g": sign(flat, wanted=-1),
        f"250 m the best of RoPE-G at N = {LARGE}": choice(*trade),
        "ape-g loses with N": sign(estimated(loss["ape-g"], signed=True), wanted=1),
        "more than any other": choice(*apart.values()),
    }
    text = (
        f"N = {SMALL}: best RoPE minus best other by window {', '.join(map(str, ahead))}; spread over windows "
        + ", ".join(f"{e} {estimated(spread[e]).to_its_ends()}" for e in ("rope-g", "rope-l", "ape-g"))
        + f"; rope-g at N = {LARGE} by window "
        + ", ".join(f"{w} {estimated(one)}" for w, one in large.items())
        + f"; loss from N = {SMALL} to {LARGE} at 250 m "
        + ", ".join(f"{e} {estimated(one, signed=True, paired=False)}" for e, one in loss.items())
    )
    share = ", ".join(
        f"{e} {estimated(loss[e] / models.drawn('M', e, '250', SMALL)).mean:.0%}" for e in ("ape-g", "mlp")
    )
    why = f"{_HOW}; " + "; ".join(f"{part}: {verdict}" for part, verdict in parts.items())
    why += f"; spread of rope-g minus rope-l {robust}, of ape-g minus rope-l {flat}; 250 m minus the others "
    why += f"{', '.join(map(str, trade))}; as a share of N = {SMALL} the losses are {share}"
    return text, "-", overall(*parts.values()), why + models.left_out("M")


def _local(models: _Models) -> Judged:
    ends = {v: {e: [estimated(models.drawn(v, e, w, LARGE)) for w in _WIDE] for e in ENCODINGS} for v in "ML"}
    above = {v: sum(all(one.above(ENOUGH) for one in each) for each in by.values()) for v, by in ends.items()}
    below = {v: sum(any(one.below(ENOUGH) for one in each) for each in by.values()) for v, by in ends.items()}
    text = f"encodings above {ENOUGH} at N = {LARGE}, with R_att 1000 and without a window: "
    open_ = {v: len(ENCODINGS) - above[v] - below[v] for v in "ML"}
    text += ", ".join(f"{v} {above[v]}" + (f", {open_[v]} open" if open_[v] else "") for v in "ML")
    text += f" of {len(ENCODINGS)}"
    least, most = above["M"] - above["L"] - open_["L"], above["M"] + open_["M"] - above["L"]  # how many fewer
    fewer = HOLDS if least > 0 else FAILS if most <= 0 else LEVEL
    known = [e for e in models.learned("M") if e in models.learned("L")]
    more = {
        (e, w): estimated(models.gained("L", e, w) - models.gained("M", e, w), signed=True)
        for e in known
        for w in _WIDE
    }
    judged_by = [gap for (e, _), gap in more.items() if e != "mlp"]  # "except for MLP-PE"
    if not judged_by:
        raise Missing
    sensitive = overall(*(sign(gap, wanted=1) for gap in judged_by))
    why = f"{_HOW}; fewer encodings of L above: {fewer}; more sensitive: {sensitive}, by how much more L gains at "
    why += f"N = {LARGE} from a window of 250 m than M, against one of 1000 m and none: "
    why += ", ".join(f"{e} {w} {gap}" for (e, w), gap in more.items()) + "; mlp is not judged, which the paper excepts"
    verdict, gone = overall(fewer, sensitive), models.absent("L")
    return text, "-", in_part(verdict) if gone else verdict, why + models.left_out("ML") + gone


def _clairvoyant(models: _Models) -> Judged:
    there = [(e, w) for w in _WINDOWS for e in ENCODINGS if models.name("C", e, w) in models.found.results]
    small = {at: estimated(models.drawn("C", *at, SMALL)) for at in there}
    if not small:
        raise Missing
    above = sum(one.above(0.9) for one in small.values())
    judged_by = ("rope-g", "rope-l", "mlp")  # as the paper does
    narrow = {e: models.lost("C", e, "250") for e in judged_by}
    text = (
        f"N = {SMALL}: at most {max(one.mean for one in small.values()):.3f}, {above} of {len(small)} models above 0.9"
    )
    each = ", ".join(f"{e} {estimated(value, signed=True, paired=False)}" for e, value in narrow.items())
    text += f"; loss to N = {LARGE} at 250 m {each}; more than that with other windows "
    wider = {w: [e for e in judged_by if models.name("C", e, w) in models.found.results] for w in _WINDOWS[1:]}
    more = {(w, e): estimated(models.lost("C", e, w) - narrow[e], signed=True) for w, es in wider.items() for e in es}
    text += ", ".join(f"{e} {w} {gap}" for (w, e), gap in more.items())
    little = (
        HOLDS if estimated(one).below(0.1) else FAILS if estimated(one).above(0.1) else LEVEL for one in narrow.values()
    )
    parts = {"some above 0.9": HOLDS if above else FAILS, "less than 0.1 lost at 250 m": overall(*little)}
    parts |= {
        f"more with {'no window' if w == 'inf' else f'{w} m'}": overall(*(sign(more[w, e], wanted=1) for e in es))
        for w, es in wider.items()
        if es
    }
    why = f"{_HOW}; " + "; ".join(f"{part}: {verdict}" for part, verdict in parts.items())
    others = [models.found.measured(name) for name in models.found if name[0] in "ML" and name.endswith(f" {SMALL}")]
    why += f"; L and M reach {max((one.mean(S) for one in others), default=float('nan')):.3f} at most"
    why += "; from a note of the source that is not printed"
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
    from matplotlib.lines import Line2D

    from mast_swarm.view.style import policy_colour

    parts: Any = figure.subfigures(3, 1)
    for part, variant in zip(parts, "MLC", strict=True):
        over_time, over_size = part.subplots(2, len(WINDOWS), sharex="row", sharey=True)
        for top, bottom, radius in zip(over_time, over_size, WINDOWS, strict=True):
            for number, encoding in enumerate(ENCODINGS):
                name, colour = partial(_Models.name, variant, encoding, window(radius)), policy_colour(number)
                curves(top, found, [name(SMALL)], S, looks={name(SMALL): (colour, "-")})
                sizes = [(n, found.measured(name(n)).at(S)) for n in SIZES if name(n) in found.results]
                if sizes:
                    agents, ends = zip(*sizes, strict=True)
                    bars(bottom, agents, ends, color=colour, markersize=3, linewidth=1.2)
            for axes in (top, bottom):
                if not axes.lines:
                    blank(axes)
            near = "no window" if radius is None else f"window {radius:g} m"
            top.set_title(f"MAST-{variant}, {near}", loc="left", fontsize=9)
            top.set(ylim=(0, 1.02), yticks=(0, 0.25, 0.5, 0.75, 1), xlabel=f"time (s), N = {SMALL}")
            bottom.set(xlabel="robots N, t = 200 s")
        for axes in (over_time[0], over_size[0]):
            axes.set_ylabel("success rate")
    lines = [Line2D([], [], color=policy_colour(number), label=NAMES[e]) for number, e in enumerate(ENCODINGS)]
    parts[0].legend(handles=lines, loc="outside upper center", ncols=len(ENCODINGS))


declare(
    Experiment(
        "encodings",
        "five encodings, four windows, N from 100 to 1000, for M, L and C",
        "Figs. 19 and 20, Table 1",
        _encoding_rows,
        _encoding_cells,
        _encoding_draw,
        shape=(9.0, 13.0),
        notes=f"Every model is trained once, by the paper's recipe for {SHORT} epochs of the paper's 500. Intervals "
        "are over start states, 54 up to N = 300 and 18 above. They say nothing of other trainings: how far apart "
        "three trainings by the paper's recipe are stands in [seeds](#seeds).",
        says=_by_window,
    )
)
