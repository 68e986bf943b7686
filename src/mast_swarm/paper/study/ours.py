"""What is due to what, and the spread over training seeds: not in the paper."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.coverage.common import C
from mast_swarm.paper.experiment import Experiment, Found, Size, declare
from mast_swarm.paper.judge import blank, curves, present, table
from mast_swarm.paper.measured import Measured, difference
from mast_swarm.paper.navigation.common import FORGETFUL, LATE, S, by_paper
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


@dataclass(frozen=True)
class Headline:
    """A policy that is shipped, and how others like it are trained and all of them are run."""

    shipped: str
    recipe: str
    ways: Mapping[str, Mapping[str, Any]]
    """How the policies run: settings of evaluations, by what a reader calls it."""
    task: str = "navigation"
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the training that differ from the recipe's."""

    @property
    def name(self) -> str:
        return self.recipe if self.task == "navigation" else f"{self.task} {self.recipe}"

    @property
    def metric(self) -> str:
        return S if self.task == "navigation" else C

    def policies(self, size: Size) -> dict[int, str | Cell]:
        """By their seeds; that of seed 0 is shipped."""
        first = by_paper(size, "M") if self.shipped == "mast-m-paper" else self.shipped
        label = f"{'m' if self.task == 'navigation' else self.task}-{self.recipe}"
        return {0: first} | {
            seed: size.trained(self.task, self.recipe, f"{label}-seed{seed}", **self.changes, seed=seed)
            for seed in size.some((1, 2))
        }

    def evaluated(self, size: Size, policy: str | Cell, way: str) -> Cell:
        run = size.navigation if self.task == "navigation" else size.coverage
        return run(policy, **self.ways[way])

    def names(self, found: Found, way: str) -> list[str]:
        """Of the cells of all seeds."""
        return [name for name in found.cells if name.rsplit(" ", 2)[::2] == [self.name, way]]


_BOTH: dict[str, dict[str, Any]] = {"alone": LATE, "centralized": {}}
HEADLINES = (
    Headline("mast-m", "best", _BOTH),
    Headline("mast-m-paper", "paper", _BOTH),
    # The shipped one had as many epochs as fitted into 400 s.
    Headline("mast-m-sharp", "sharp", {"alone": FORGETFUL}, changes={"epochs": 339}),
    Headline("mast-m", "best", {"alone": {"delay": 0.2, "seed": 2}}, "coverage"),  # as in `coverage-curves`
)
_EVERY = tuple((one, way) for one in HEADLINES for way in one.ways)
_PANELS = tuple(dict.fromkeys((one.task, way) for one, way in _EVERY))


def _seed_cells(size: Size) -> Mapping[str, Cell]:
    policies = {one.name: one.policies(size) for one in HEADLINES}
    return {
        f"{one.name} {seed} {way}": one.evaluated(size, policy, way)
        for one, way in _EVERY
        for seed, policy in policies[one.name].items()
    }


def _spread(found: Found) -> str:
    """What all seeds that are there reach, of navigation early too: their means and standard deviations."""
    if not len(found):
        return ""
    texts = ["sd: standard deviation over the seeds."]
    for metric, words in ((S, "success rates"), (C, "time averages of the cost")):
        every = [(one, way) for one, way in _EVERY if one.metric == metric]
        names = [name for one, way in every for name in present(found, one.names(found, way))]
        if not names:
            continue
        end = max(found.measured(name).end for name in names)
        times = sorted({min(t, end) for t in (50.0, 200.0, end)}) if metric == S else [end]
        rows = []
        for one, way in every:
            expected = one.names(found, way)
            seeds = [found.measured(name) for name in present(found, expected)]
            where = {f"{seed.about['device']} {seed.about.get('precision', '')}".strip() for seed in seeds}
            row = [f"`{one.name}`, {way}", f"{len(seeds)} of {len(expected)}", ", ".join(sorted(where)) or "-"]
            rows.append([*row, *(in_full(seeds, metric, t) for t in times)])
        head = ["recipe, and how it ran", "seeds", "evaluated on", *(f"{words} at {t:g} s" for t in times)]
        texts.append(table(head, rows))
    return "\n\n".join(texts)


def in_full(seeds: Sequence[Measured], metric: str, t: float) -> str:
    """What each seed reaches at an instant, their mean and their standard deviation (sd)."""
    rates = [seed.mean(metric, t) for seed in seeds]
    about = f" (mean {np.mean(rates):.3f}, sd {np.std(rates, ddof=1):.3f})" if len(rates) > 1 else ""
    return ", ".join(f"{rate:.3f}" for rate in rates) + about


def _draw_seeds(found: Found, figure: Figure) -> None:
    """A colour for each recipe, and a kind of line for each seed."""
    for axes, (task, way) in zip(figure.subplots(1, len(_PANELS)), _PANELS, strict=True):
        here = [one for one in HEADLINES if one.task == task and way in one.ways]
        looks = {
            name: (POLICIES[HEADLINES.index(one)], DASHES[seed])
            for one in here
            for seed, name in enumerate(one.names(found, way))
        }
        metric = S if task == "navigation" else "cost"
        curves(axes, found, looks, metric, lambda name: "{}, seed {}".format(*name.split()[-3:-1]), looks)
        axes.set(ylabel="success rate" if metric == S else "cost as a share of that at the start", ylim=(0, 1.02))
        axes.set_title(f"{task}, {way}", loc="left")
        if axes.lines:
            axes.legend(loc="lower right" if metric == S else "upper right", fontsize=7)
        else:
            blank(axes)


declare(
    Experiment(
        "seeds",
        "the headline policies trained with three seeds",
        "not in the paper, which trained each model once",
        lambda found: [],
        _seed_cells,
        _draw_seeds,
        shape=(12.6, 4.0),
        notes="Seed 0 of each recipe is the shipped policy. Robots alone hear messages that take 1 s per hop, of "
        "coverage 0.2 s; those of `sharp` forget news older than 30 s. Seeds 1 and 2 of `sharp` are trained for 339 "
        "epochs, and their rate is planned for them; the shipped one had as many, planned anew three times for what "
        "fits into 400 s.",
        says=_spread,
    )
)
