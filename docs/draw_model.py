"""The two pictures of the model page: `python docs/draw_model.py`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Circle

import mast_swarm
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.loop import Loop
from mast_swarm.model.attention import allowed
from mast_swarm.space import components
from mast_swarm.view.style import INK, LINE, SCENE, SOFT, policy_colour, style

PICTURES = Path(__file__).parent / "pictures"
WORLD = mast_swarm.NavigationConfig(agents=48, scenario="clusters-1")
SEED, RADIUS = 8, 250.0  # m, as in MAST-M


def mask(path: Path) -> None:
    """Who may attend to whom: the plane and the matrix."""
    world = mast_swarm.Navigation(WORLD)
    seen = world.observe(world.reset([SEED]))
    places, labels = seen.positions[0].numpy(), components(seen.graph)[0].numpy()
    order = np.lexsort((places[:, 1], labels))
    found = allowed(seen.positions, RADIUS, torch.from_numpy(labels)[None])
    near = allowed(seen.positions, RADIUS, None)
    assert found is not None and near is not None  # there is a window
    kinds = (near[0].int() + found[0].int()).numpy()[np.ix_(order, order)]  # 0: too far, 1: other component, 2: allowed
    rank = {label: number for number, label in enumerate(dict.fromkeys(labels[order]))}
    one = int(np.abs(places - places.mean(0)).sum(1).argmin())
    with style():
        figure = Figure(figsize=(9.6, 4.6), layout="constrained")
        left, right = figure.subplots(1, 2)
        links = seen.graph.adjacency()[0].numpy()
        edges = [places[[i, j]] for i, j in np.argwhere(links)]
        left.add_collection(LineCollection(edges, colors=SCENE["link"], lw=0.8))
        left.add_patch(Circle(tuple(places[one]), RADIUS, facecolor="none", edgecolor=INK, lw=1, ls="--"))
        for label, number in rank.items():
            left.plot(*places[labels == label].T, "o", ms=6, color=policy_colour(number), mec="white", mew=0.6)
        left.plot(*places[one], "o", ms=11, mfc="none", mec=INK, mew=1.2)
        _plane(left, places)
        left.set_title("Components by colour, one robot's window")
        right.imshow(kinds, cmap=ListedColormap(["white", "#F3D9B1", SCENE["robot"]]), vmin=0, vmax=2)
        right.set_title("Row: who asks. Column: who may be attended to")
        right.set_xticks([])
        right.set_yticks([])
        row = int(np.flatnonzero(order == one)[0])
        right.plot([-1.1], [row], ">", color=INK, clip_on=False)
        for colour, text in ((SCENE["robot"], "allowed"), ("#F3D9B1", "near, but in another component")):
            right.plot([], [], "s", color=colour, label=text)
        right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.02), ncols=2, frameon=False)
        figure.savefig(path)


def alone(path: Path) -> None:
    """What one robot knows and attends to after 40 s, each hop taking a second."""
    world, policy = mast_swarm.Navigation(WORLD), mast_swarm.load_policy("navigation/mast-m")
    with torch.inference_mode():
        loop = Loop(world, make_actor(policy, world, mast_swarm.Channel(delay=1.0)))
        loop.start([SEED])
        for _ in range(40):
            loop.step()
        loop.sense()
        places = loop.state.positions[0].numpy()  # where everybody is now
        one = int(np.abs(places - places.mean(0)).sum(1).argmin())
        loop.decide()
    found = mast_swarm.explain(policy, loop.actor, one)
    there, weight = found.positions, found.attention
    with style():
        figure = Figure(figsize=(6.4, 5.2), layout="constrained")
        axes = figure.subplots()
        axes.plot(*places.T, "o", ms=6, mfc="none", mec=SOFT, mew=0.7, label="where robots are")
        axes.add_collection(
            LineCollection([(there[0], place) for place in there], colors=SCENE["robot"], lw=30 * weight, alpha=0.6)
        )
        lags = [(place, places[origin]) for place, origin in zip(there, found.origins, strict=True)]
        axes.add_collection(LineCollection(lags, colors=SOFT, lw=0.7, ls=":"))
        axes.add_patch(Circle(tuple(there[0]), RADIUS, facecolor="none", edgecolor=INK, lw=1, ls="--"))
        ages = axes.scatter(*there.T, s=34, c=found.ages, cmap="YlOrRd", edgecolors=INK, linewidths=0.5, zorder=3)
        axes.plot(*there[0], "o", ms=13, mfc="none", mec=INK, mew=1.2)
        figure.colorbar(ages, ax=axes, label="age of the news, s", shrink=0.7)
        _plane(axes, np.concatenate((places, there)))
        axes.legend(loc="upper left", frameon=False, fontsize=8)
        figure.savefig(path)


def _plane(axes: Axes, places: np.ndarray) -> None:
    low, high = places.min(0) - 60, places.max(0) + 60
    axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]), aspect="equal", xticks=[], yticks=[])
    axes.plot([low[0] + 20, low[0] + 120], [low[1] + 20] * 2, color=SOFT, lw=2)
    axes.text(low[0] + 70, low[1] + 28, "100 m", ha="center", color=SOFT, fontsize=8)
    for spine in axes.spines.values():
        spine.set_color(LINE)


if __name__ == "__main__":
    mask(PICTURES / "attention.png")
    alone(PICTURES / "attention-alone.png")
