"""Studies of how navigation is learned: encodings and windows, wavelengths, team sizes, training, search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import FAILS, HOLDS, PARTLY, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, curves, either, judged, present
from mast_swarm.paper.navigation import S, by_paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENCODINGS = ("rope-g", "rope-l", "ape-g", "ape-l", "mlp")
WINDOWS = (250.0, 500.0, 1000.0, None)
SIZES = (100, 200, 300, 500, 700, 1000)
WAVELENGTHS = (250.0, 500.0, 1000.0, 2000.0, 4000.0)
WIDTH = 1000.0  # m, of the training world
SHORT = 40  # epochs of every policy of a study, of the paper's 500


# Encodings and windows.


def _short(size: Size, label: str, **policy: object) -> Cell:
    """A policy of a study: the paper's recipe for fewer epochs."""
    every = {"epochs": SHORT, "validate_every": 20}
    return size.trained("navigation", "paper", label, **every, policy=policy)


def _window(radius: float | None) -> str:
    return "inf" if radius is None else f"{radius:g}"


def _at_size(size: Size, policy: str | Cell, agents: int, label: str = "") -> Cell:
    """Centralised, t = 200 s; fewer start states of larger teams."""
    return size.navigation(policy, agents=agents, steps=200, episodes=54 if agents <= 300 else 18, label=label)


def _studied(size: Size, variant: str, encoding: str, radius: float | None) -> Cell:
    """A model of the study of encodings and windows."""
    label = f"{variant}-{encoding}-{_window(radius)}"
    return _short(size, label, variant=variant, encoding=encoding, attention_radius=radius)


def _encoding_cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for variant in size.some("MLC"):
        for encoding in size.some(ENCODINGS):
            for radius in size.some(WINDOWS):
                policy = _studied(size, variant, encoding, radius)
                for agents in size.some(SIZES):
                    cells[f"{variant} {encoding} {_window(radius)} {agents}"] = _at_size(size, policy, agents)
    return cells


def _encoding_rows(found: Found) -> list[Row]:
    def end(variant: str, encoding: str, radius: str, agents: int) -> float:
        return found.measured(f"{variant} {encoding} {radius} {agents}").at(S).mean

    windows = [_window(radius) for radius in WINDOWS]

    def trained() -> Judged:
        ready = [e for e in ENCODINGS if f"M {e} 250 100" in found.results]
        texts = ", ".join(f"{e} {end('M', e, '250', 100):.3f}" for e in ready)
        if not ready:
            found["M rope-g 250 100"]
        return texts, "-", HOLDS if len(ready) == len(ENCODINGS) else PARTLY, f"M, R_att 250, N = 100, {SHORT} epochs"

    def study() -> Judged:
        there = {name.rsplit(" ", 1)[0] for name in found.results}
        whole = {name.rsplit(" ", 1)[0] for name in found.cells}
        if not there:
            found["M rope-g 250 100"]
        text = f"{len(there)} of {len(whole)} models, {SHORT} epochs each"
        return (
            text,
            "-",
            HOLDS if there == whole else PARTLY,
            "one shorter schedule for all; the paper has 75 models of 500",
        )

    def masked() -> Judged:
        best = [max(ENCODINGS, key=lambda e: end("M", e, w, 100)).startswith("rope") for w in windows]
        spread = {e: np.ptp([end("M", e, w, 100) for w in windows]) for e in ENCODINGS[:4]}
        robust = spread["rope-g"] <= spread["rope-l"] and spread["ape-g"] <= spread["ape-l"]
        large = [end("M", "rope-g", w, 1000) for w in windows]
        drop = {e: end("M", e, "250", 100) - end("M", e, "250", 1000) for e in ENCODINGS}
        verdict = either(all(best), bool(robust), large[0] == max(large), drop["ape-g"] == max(drop.values()))
        text = (
            f"RoPE best in {sum(best)} of 4 windows; spread over them G {spread['rope-g']:.3f}, {spread['ape-g']:.3f}, "
            f"L {spread['rope-l']:.3f}, {spread['ape-l']:.3f}; RoPE-G at N = 1000 by window "
            + ", ".join(f"{value:.3f}" for value in large)
        )
        return text, "-", verdict, f"{SHORT} epochs"

    def local() -> Judged:
        above = {v: sum(end(v, e, w, 1000) > 0.6 for e in ENCODINGS for w in ("1000", "inf")) for v in "ML"}
        text = f"above 0.6 at N = 1000, R_att >= 1000: M {above['M']} of 10, L {above['L']} of 10"
        return text, "-", HOLDS if above["L"] < above["M"] else FAILS, f"{SHORT} epochs; two windows of five encodings"

    def clairvoyant() -> Judged:
        there = [(e, w) for w in windows for e in ENCODINGS if f"C {e} {w} 100" in found.results]
        small = [end("C", e, w, 100) for e, w in there]
        narrow = np.mean([end("C", e, "250", 100) - end("C", e, "250", 1000) for e in ("rope-g", "rope-l", "mlp")])
        wide = np.mean([end("C", e, "inf", 100) - end("C", e, "inf", 1000) for e in ("rope-g", "rope-l", "mlp")])
        above = sum(value > 0.9 for value in small)
        text = f"N = 100: {min(small):.3f} to {max(small):.3f}, {above} of {len(small)} models above 0.9; "
        text += f"loss to N = 1000: {narrow:.3f} (250 m), {wide:.3f} (no window)"
        why = f"{SHORT} epochs; {len(there)} of {len(ENCODINGS) * len(windows)} models"
        return text, "-", either(above == len(small), bool(wide > narrow)), why

    judges = {12: trained, 16: study, 17: masked, 18: local, 19: clairvoyant}
    return [judged(found, claim, judge) for claim, judge in judges.items()]


def _encoding_draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import policy_colour

    grid = figure.subplots(3, len(WINDOWS), sharex=True, sharey=True)
    for row, variant in zip(grid, "MLC", strict=True):
        for axes, radius in zip(row, WINDOWS, strict=True):
            for number, encoding in enumerate(ENCODINGS):
                prefix = f"{variant} {encoding} {_window(radius)} "
                points = sorted((int(name[len(prefix) :]), name) for name in found.results if name.startswith(prefix))
                if points:
                    means = [found.measured(name).at(S).mean for _, name in points]
                    axes.plot([n for n, _ in points], means, color=policy_colour(number), marker=".", label=encoding)
            if not axes.lines:
                blank(axes)
            axes.set_title(f"MAST-{variant}, R_att {_window(radius)}", loc="left", fontsize=9)
            axes.set(ylim=(0, 1.02))
    for axes in grid[-1]:
        axes.set_xlabel("robots")
    handles, labels = grid[0, 0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=5)


declare(
    Experiment(
        "encodings",
        "five encodings, four windows, N from 100 to 1000, for M, L and C",
        "fig:masked-comparison, fig:local-comparison, tab:encoding-schemes",
        _encoding_rows,
        _encoding_cells,
        _encoding_draw,
        shape=(9.0, 7.0),
        notes=f"Every model is trained by the paper's recipe for {SHORT} epochs of the paper's 500.",
    )
)


# Lambda.


def _wavelength_cells(size: Size) -> Mapping[str, Cell]:
    cells: dict[str, Cell] = {}
    for encoding in ("ape-l", "rope-g"):
        for wavelength in size.some(WAVELENGTHS):
            label = f"{encoding}-lambda{wavelength:g}"
            policy = _short(size, label, encoding=encoding, wavelength=wavelength, attention_radius=None)
            cells[f"{encoding} {wavelength:g}"] = _at_size(size, policy, 100)
    return cells


def likeness(encoding: str, wavelength: float, distance: np.ndarray) -> np.ndarray:
    """How alike the encodings of two places so far apart along x are (cosine), [D]; 1: it cannot tell them apart."""
    from mast_swarm.model.encoding import frequencies

    omega = frequencies(encoding[-1], 64, wavelength).numpy().astype(float)
    return np.cos(distance[:, None] * omega).mean(axis=1)


def _wavelength_rows(found: Found) -> list[Row]:
    def best() -> Judged:
        ends = {
            e: {w: found.measured(f"{e} {w:g}").at(S).mean for w in found.size.some(WAVELENGTHS)}
            for e in ("ape-l", "rope-g")
        }
        alias = float(likeness("ape-l", 250.0, np.array([250.0]))[0])
        parts = []
        for encoding, values in ends.items():
            at_width = found.measured(f"{encoding} {WIDTH:g}").at(S).mean
            parts += [value < at_width for w, value in values.items() if w < WIDTH]  # shorter ones alias
            parts += [value <= at_width for w, value in values.items() if w > WIDTH]  # longer ones gain nothing
        text = "; ".join(
            f"{e}: " + ", ".join(f"{w:g} m {v:.3f}" for w, v in values.items()) for e, values in ends.items()
        )
        why = f"linear encodings of places 250 m apart are alike by {alias:.3f} for lambda = 250 m; {SHORT} epochs"
        return text, "-", either(*parts), why

    return [judged(found, 5, best)]


def _wavelength_draw(found: Found, figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    distance = np.linspace(0, 1000, 501)
    for wavelength in (250.0, 500.0, 1000.0, 2000.0):
        left.plot(distance, likeness("ape-l", wavelength, distance), label=f"lambda {wavelength:g} m", linewidth=1.4)
    left.set(xlabel="distance (m)", ylabel="likeness of two linear encodings")
    left.legend(fontsize=8)
    for encoding in ("ape-l", "rope-g"):
        points = [
            (w, found.measured(f"{encoding} {w:g}").at(S)) for w in WAVELENGTHS if f"{encoding} {w:g}" in found.results
        ]
        if points:
            right.errorbar(
                [w for w, _ in points],
                [e.mean for _, e in points],
                [e.half or 0 for _, e in points],
                marker="o",
                label=encoding,
            )
    if right.containers:
        right.set_xscale("log")
        right.set_xticks(WAVELENGTHS, [f"{w:g}" for w in WAVELENGTHS])
        right.minorticks_off()
        right.legend(fontsize=8, loc="center right")
    else:
        blank(right)
    right.set(xlabel="lambda (m)", ylabel="success rate, N = 100, t = 200 s")


declare(
    Experiment(
        "wavelength",
        "lambda against the width of the world, and aliasing",
        "the choice of the base wavelength",
        _wavelength_rows,
        _wavelength_cells,
        _wavelength_draw,
        shape=(7.4, 3.4),
    )
)


# Larger teams, with and without a window.


def _team_cells(size: Size) -> Mapping[str, Cell]:
    kinds: dict[str, str | Cell] = {"mast-m": "mast-m", "paper": by_paper(size, "M")}
    # A pair that differs in the window alone: two models of the study of encodings.
    kinds |= {name: _studied(size, "M", "rope-g", radius) for name, radius in (("window", 250.0), ("no-window", None))}
    return {f"{kind} {n}": _at_size(size, policy, n) for kind, policy in kinds.items() for n in size.some(SIZES)}


def _team_rows(found: Found) -> list[Row]:
    sizes = found.size.some(SIZES)

    def end(kind: str, agents: int) -> float:
        return found.measured(f"{kind} {agents}").at(S).mean

    def listed(kind: str) -> str:
        return ", ".join(f"{n}: {end(kind, n):.3f}" for n in sizes if f"{kind} {n}" in found.results) or "not run"

    def sizes_run() -> Judged:
        if not present(found, (f"mast-m {n}" for n in sizes)):
            found[f"mast-m {sizes[0]}"]
        done = found.has(f"{kind} {n}" for kind in ("mast-m", "paper") for n in sizes)
        return (
            listed("paper"),
            listed("mast-m"),
            HOLDS if done else PARTLY,
            "success rate at t = 200 s by N, centralised",
        )

    def window() -> Judged:
        held, lost = (end(kind, sizes[-1]) - end(kind, sizes[0]) for kind in ("window", "no-window"))
        text = f"N = {sizes[0]} to {sizes[-1]}: with a window {held:+.3f}, without {lost:+.3f}"
        verdict = HOLDS if held > lost else FAILS
        return text, listed("mast-m"), verdict, f"both by the paper's recipe, {SHORT} epochs, RoPE-G, centralised"

    return [judged(found, 20, sizes_run), judged(found, 7, window)]


def _team_draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    names = {"mast-m": "mast-m", "paper": "paper's recipe, 500 epochs, R_att 250"}
    names |= {"window": f"{SHORT} epochs, R_att 250", "no-window": f"{SHORT} epochs, no window"}
    for kind, label in names.items():
        points = [(n, found.measured(f"{kind} {n}").at(S)) for n in SIZES if f"{kind} {n}" in found.results]
        if points:
            axes.errorbar(
                [n for n, _ in points],
                [e.mean for _, e in points],
                [e.half or 0 for _, e in points],
                marker="o",
                capsize=2,
                label=label,
            )
    axes.set(xlabel="robots", ylabel="success rate at t = 200 s", ylim=(0, 1.02))
    if axes.containers:
        axes.legend()
    else:
        blank(axes)


declare(
    Experiment(
        "teams",
        "N from 100 to 1000 at t = 200 s, with and without a window",
        "fig:masked-comparison (bottom), size generalisation",
        _team_rows,
        _team_cells,
        _team_draw,
        shape=(6.4, 3.8),
    )
)


# What is due to what, and the spread over training seeds: not in the paper.


def _ablation_cells(size: Size) -> Mapping[str, Cell]:
    steps: dict[str, str | Cell] = {
        "paper": by_paper(size, "M"),
        "+ informed expert": size.trained("navigation", "paper", "m-informed", expert="informed"),
        "+ exploration": size.trained(
            "navigation", "paper", "m-informed-explore", expert="informed", policy={"exploration_time": 100.0}
        ),
        "+ replay and schedule": "mast-m",
    }
    return {name: size.navigation(policy, delay=1.0) for name, policy in steps.items()}


def _ablation_draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    curves(axes, found, list(found.cells), S)
    axes.set(ylabel="success rate", ylim=(0, 1.02))
    axes.legend(loc="lower right")


declare(
    Experiment(
        "ablation",
        "from the paper's recipe to ours, one step at a time, on the same starts",
        "not in the paper",
        lambda found: [],
        _ablation_cells,
        _ablation_draw,
        notes="Each line has what the one before has, and one thing more; messages take 1 s per hop.",
    )
)


def _seed_cells(size: Size) -> Mapping[str, Cell]:
    cells = {"best 0": size.navigation("mast-m", delay=1.0), "paper 0": size.navigation(by_paper(size, "M"), delay=1.0)}
    for seed in size.some((1, 2)):
        for recipe in ("best", "paper"):
            policy = size.trained("navigation", recipe, f"m-{recipe}-seed{seed}", seed=seed)
            cells[f"{recipe} {seed}"] = size.navigation(policy, delay=1.0)
    return cells


def _seed_draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    curves(axes, found, list(found.cells), S)
    axes.set(ylabel="success rate", ylim=(0, 1.02))
    axes.legend(loc="lower right")


declare(
    Experiment(
        "seeds",
        "the headline policies trained with three seeds",
        "not in the paper, which trained each model once",
        lambda found: [],
        _seed_cells,
        _seed_draw,
    )
)


# Training and search.


def _training_cells(size: Size) -> Mapping[str, Cell]:
    return {v: size.trained("navigation", "paper", f"{v.lower()}-paper", policy={"variant": v}) for v in "MLC"}


def _training_rows(found: Found) -> list[Row]:
    def epochs() -> Judged:
        count = {name: int(max(found[name].table["epoch"].to_pylist())) for name in found.cells}
        last = {name: [x for x in found[name].table[S].to_pylist() if x is not None][-1] for name in found.cells}
        text = ", ".join(f"{name} {count[name]} epochs, validation {last[name]:.3f}" for name in count)
        return (
            text,
            "mast-m: another recipe",
            HOLDS if set(count.values()) == {500} else FAILS,
            "validation is at t = 200 s",
        )

    return [judged(found, 15, epochs)]


def _training_draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    for name in found.results:
        rows = [(r["epoch"], r[S]) for r in found[name].table.to_pylist() if r.get(S) is not None]
        axes.plot(*zip(*rows, strict=True), label=f"MAST-{name}", linewidth=1.2)
    axes.set(xlabel="epoch", ylabel="success rate in validation", ylim=(0, 1.02))
    if axes.lines:
        axes.legend()
    else:
        blank(axes)


declare(
    Experiment(
        "training",
        "the paper's recipe: 500 epochs of M, L and C",
        "section Hyperparameters and Training",
        _training_rows,
        _training_cells,
        _training_draw,
    )
)

OPTIMUM = {"layers": 4, "heads": 4, "head_dim": 64, "lr": 1e-4, "weight_decay": 0.0, "dropout": 0.0}


TRIALS, LEAST, MOST = 24, 2, 32  # of our search, where the paper has 400 trials of 10 to 100 epochs


def _search_cells(size: Size) -> Mapping[str, Cell]:
    settings: dict[str, Any] = {"trials": TRIALS, "least": LEAST, "most": MOST, "seed": 0}
    given: dict[str, Any] = {"task": "navigation", "settings": settings}
    if size.quick:
        settings |= {"trials": 2, "least": 1, "most": 2, "recipe": "tiny", "layers": [1, 1], "heads": [1, 2]}
        settings |= {"head_dim": [8, 8]}
        given["changes"] = {"environments": 2, "steps": 4, "batch": 4, "validation": 1, "validation_steps": 2}
    return {"search": Cell("search", given, "search-navigation")}


def _search_rows(found: Found) -> list[Row]:
    def ran() -> Judged:
        table = found["search"].table
        states = table["state"].to_pylist()
        text = f"{len(states)} trials, {states.count('PRUNED')} stopped early"
        why = f"TPE and Hyperband, factor 4, {LEAST} to {MOST} epochs"
        return text, "-", HOLDS if len(states) >= 400 else PARTLY, why

    def optimum() -> Judged:
        best = found["search"].about["best"]
        text = ", ".join(f"{name} {value:.3g}" for name, value in best.items())
        near = [
            abs(best[name] - OPTIMUM[name]) <= tolerance
            for name, tolerance in (("layers", 1), ("heads", 2), ("head_dim", 32))
        ]
        near += [3e-5 < best["lr"] < 3e-4, best["dropout"] < 0.1]
        return (
            text,
            "the paper's optimum is used",
            either(*near),
            "within a layer, 2 heads, 32 of width, a factor 3 of the rate",
        )

    return [judged(found, 13, ran), judged(found, 14, optimum)]


def _search_draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    if "search" in found.results:
        values = [row["value"] for row in found["search"].table.to_pylist() if row["value"] is not None]
        axes.plot(values, ".", label="trial")
        axes.plot(np.maximum.accumulate(values), label="best so far")
        axes.legend()
    else:
        blank(axes)
    axes.set(xlabel="trial", ylabel="success rate in validation")


declare(
    Experiment(
        "search",
        "the hyper-parameter search",
        "tab:dan_hyperparameters1",
        _search_rows,
        _search_cells,
        _search_draw,
        notes=f"{TRIALS} trials of {LEAST} to {MOST} epochs; `mast tune navigation` is the paper's search in full.",
    )
)
