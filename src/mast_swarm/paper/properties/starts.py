"""Start states of all scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mast_swarm.paper.experiment import HOLDS, Experiment, Found, Row, declare
from mast_swarm.paper.judge import Judged, judged
from mast_swarm.paper.navigation.common import SCENARIOS
from mast_swarm.space import components
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def start(scenario: str, agents: int = 100, seed: int = 2) -> tuple[Any, Any]:
    """The start state of a scenario and what robots see in it."""
    world = Navigation(NavigationConfig(agents=agents, scenario=scenario))
    state = world.reset([seed])
    return state, world.observe(state)


CLUSTERS = ("clusters-1", "clusters-5-1", "clusters-10-5")  # of the paper's first figure


def _start_rows(found: Found) -> list[Row]:
    def drawn(names: tuple[str, ...]) -> Judged:
        parts = {name: len(torch.unique(components(start(name)[1].graph)[0])) for name in names}
        text = "parts of the graph: " + ", ".join(f"{name} {count}" for name, count in parts.items())
        return "-", text, HOLDS, "the figure"

    return [judged(found, 11, lambda: drawn(CLUSTERS)), judged(found, 31, lambda: drawn(SCENARIOS))]


def _start_draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import SCENE

    names = (*CLUSTERS, *SCENARIOS)
    for axes, name in zip(figure.subplots(3, 4).flat, (*names, None), strict=True):
        if name is None:
            axes.axis("off")
            continue
        state, seen = start(name)
        places, goals = state.positions[0].numpy(), state.goals[0].numpy()
        for source, target in zip(seen.graph.source.tolist(), seen.graph.target.tolist(), strict=True):
            axes.plot(*places[[source, target]].T, color=SCENE["link"], linewidth=0.5, zorder=1)
        observed = np.zeros(len(goals), bool)
        observed[np.unique(seen.goals_seen.numpy())] = True
        axes.plot(*places.T, "o", color=SCENE["robot"], markersize=2, zorder=3)
        axes.plot(*goals[observed].T, "x", color=SCENE["seen"], markersize=3, zorder=2)
        axes.plot(*goals[~observed].T, "x", color=SCENE["unseen"], markersize=3, zorder=2)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.set_title(name, loc="left", fontsize=9)
    figure.supxlabel(
        "blue: robots and their links; green: goals that some robot senses; red: goals that none senses", fontsize=8
    )


declare(
    Experiment(
        "starts",
        "start states of all scenarios",
        "Figs. 6 and 9",
        _start_rows,
        draw=_start_draw,
        shape=(10.0, 7.6),
    )
)
