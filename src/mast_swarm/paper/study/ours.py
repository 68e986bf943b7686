"""What is due to what, and the spread over training seeds: not in the paper."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Experiment, Found, Size, declare
from mast_swarm.paper.judge import curves, present, table
from mast_swarm.paper.measured import difference
from mast_swarm.paper.navigation.common import S, by_paper
from mast_swarm.view.style import DASHES, POLICIES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _ablation_cells(size: Size) -> Mapping[str, Cell]:
    steps: dict[str, str | Cell] = {
        "paper": by_paper(size, "M"),
        "+ informed expert": size.trained("navigation", "paper", "m-informed", expert="informed"),
        "+ exploration": size.trained(
            "navigation", "paper", "m-informed-explore", expert="informed", policy={"exploration_time": 100.0}
        ),
        "+ all else of best": "mast-m",
    }
    return {name: size.navigation(policy, delay=1.0) for name, policy in steps.items()}


def _draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    curves(axes, found, list(found.cells), S)
    axes.set(ylabel="success rate", ylim=(0, 1.02))
    axes.legend(loc="lower right")


def _each_step(found: Found) -> str:
    """How much each step brings, early and at the end: of those that are there, as is the one before."""
    first, texts = next(iter(found.cells)), []
    end = max((found.measured(name).end for name in found), default=0.0)
    for t in sorted({min(50.0, end), end}):
        told = [f"{first} {found.measured(first).at(S, t)}"] if first in found else []
        for before, after in itertools.pairwise(found.cells):
            if found.has((before, after)):
                told.append(f"{after} {difference(found.measured(after), found.measured(before), S, t)}")
        texts += [f"Success rate at {t:g} s: {'; '.join(told)}."] if told else []
    return " ".join(texts)


declare(
    Experiment(
        "ablation",
        "from the paper's recipe to ours, one step at a time, on the same starts",
        "not in the paper",
        lambda found: [],
        _ablation_cells,
        _draw,
        notes="Each line has what the one before has, and more; each was trained once; messages take 1 s per hop. The "
        "last is the shipped mast-m: late states, a larger replay from more environments, fewer of them driven by the "
        "expert, larger batches, another rate and schedule, clipped gradients, averaged weights, 312 epochs instead of "
        "500, and validation at 400 s; while it was trained, explorers did not yet turn back when they had left all "
        "goals behind.",
        says=_each_step,
    )
)

_WAYS = {"alone": 1.0, "centralised": None}  # how the policies of several seeds run, and the delay


def _seed_cells(size: Size) -> Mapping[str, Cell]:
    trained: dict[str, str | Cell] = {"best 0": "mast-m", "paper 0": by_paper(size, "M")}
    for seed in size.some((1, 2)):
        for recipe in ("best", "paper"):
            policy = size.trained("navigation", recipe, f"m-{recipe}-seed{seed}", seed=seed)
            trained[f"{recipe} {seed}"] = policy
    return {
        f"{name} {way}": size.navigation(policy, **({} if delay is None else {"delay": delay}))
        for way, delay in _WAYS.items()
        for name, policy in trained.items()
    }


def _spread(found: Found) -> str:
    """The success rates of all seeds that are there, early and at the end, their means and standard deviations."""
    if not len(found):
        return ""
    end = max(found.measured(name).end for name in found)
    times = sorted({min(t, end) for t in (50.0, 200.0, end)})
    rows = []
    for recipe, way in itertools.product(("best", "paper"), _WAYS):
        every = [name for name in found.cells if name.startswith(recipe) and name.endswith(way)]
        seeds = [found.measured(name) for name in present(found, every)]
        where = {f"{seed.about['device']} {seed.about.get('precision', '')}".strip() for seed in seeds}
        row = [f"`{recipe}`, {way}", f"{len(seeds)} of {len(every)}", ", ".join(sorted(where))]
        for t in times:
            rates = [seed.mean(S, t) for seed in seeds]
            about = f" (mean {np.mean(rates):.3f}, sd {np.std(rates, ddof=1):.3f})" if len(rates) > 1 else ""
            row.append(", ".join(f"{rate:.3f}" for rate in rates) + about)
        rows.append(row)
    head = ["recipe, and how it ran", "seeds", "evaluated on", *(f"success rates at {t:g} s" for t in times)]
    return "sd: standard deviation over the seeds.\n\n" + table(head, rows)


def _draw_seeds(found: Found, figure: Figure) -> None:
    """A colour for each recipe, and a kind of line for each seed."""
    looks = {}
    for name in found.cells:
        recipe, seed, _ = name.split()
        looks[name] = (POLICIES[("best", "paper").index(recipe)], DASHES[int(seed)])
    for axes, way in zip(figure.subplots(1, 2, sharey=True), _WAYS, strict=True):
        names = [name for name in found.cells if name.endswith(way)]
        curves(axes, found, names, S, lambda name: "{}, seed {}".format(*name.split()[:2]), looks)
        axes.set(ylabel="success rate" if way == "alone" else "", ylim=(0, 1.02))
        axes.set_title(way, loc="left")
        axes.legend(loc="lower right")


declare(
    Experiment(
        "seeds",
        "the headline policies trained with three seeds",
        "not in the paper, which trained each model once",
        lambda found: [],
        _seed_cells,
        _draw_seeds,
        shape=(9.6, 4.0),
        notes="Robots alone hear messages that take 1 s per hop.",
        says=_spread,
    )
)
