"""What is due to what, and the spread over training seeds: not in the paper."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import Experiment, Found, Size, declare
from mast_swarm.paper.judge import curves
from mast_swarm.paper.navigation import S, by_paper

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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


def _draw(found: Found, figure: Figure) -> None:
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
        _draw,
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


declare(
    Experiment(
        "seeds",
        "the headline policies trained with three seeds",
        "not in the paper, which trained each model once",
        lambda found: [],
        _seed_cells,
        _draw,
    )
)
