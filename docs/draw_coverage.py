"""The pictures of the coverage page, for docs/make.py --pictures. A policy that has not been run is left out."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from make_coverage import CITIES, CLAIMS, GRID, SIDES, cell, cell_name, city_world, gains, mean
from matplotlib.figure import Figure
from PIL import Image

from mast_swarm import zoo
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.run import evaluate
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.density import sample
from mast_swarm.tasks.coverage.points import read_points
from mast_swarm.tasks.coverage.view import ramp
from mast_swarm.view.report import report
from mast_swarm.view.style import INK, LINE, policy_colour, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEARNED = "coverage/mast-m" in zoo.policies()
NAMES = {"clairvoyant": "Clairvoyant", "mast-m": "MAST-M", "lpac-k3": "LPAC-K3", "c-cvt": "C-CVT", "d-cvt": "D-CVT"}
COLOURS = {name: policy_colour(number) for number, name in enumerate(NAMES)}


def draw(folder: Path) -> None:
    """All of them."""
    densities(folder / "coverage-densities.png")
    cover(folder / "coverage-frames.png", CoverageConfig(), ("clairvoyant", "mast-m", "d-cvt"))
    cover(folder / "coverage-city.png", city_world("gridport"), ("mast-m" if LEARNED else "clairvoyant", "d-cvt"))
    sides(folder / "coverage-sides.png")
    heat_maps(folder / "coverage-grid.png")


def densities(path: Path) -> None:
    """One density of Gaussians and the two cities with their signals."""
    worlds = {"Gaussians, F = 32": CoverageConfig()} | {name.capitalize(): city_world(name) for name in CITIES}
    with style():
        figure = Figure(figsize=(9.6, 3.5), layout="constrained")
        for axes, (name, world) in zip(figure.subplots(1, len(worlds)), worlds.items(), strict=True):
            side = world.side
            density = sample(world.density, world, 0)
            axes.imshow(density, origin="lower", extent=(0, side, 0, side), cmap=ramp("density"), vmin=0, vmax=1)
            if world.window is not None:
                x, y = read_points(world.density.removeprefix("points:"), side, world.window).T
                axes.plot(x, y, ".", color=INK, markersize=1.6)
                name += f", {len(x)} signals"
            _bare(axes, name)
        figure.savefig(path)
    _fewer_colours(path)


def _fewer_colours(path: Path) -> None:
    """A picture in 256 colours looks the same and takes a quarter of the space."""
    with Image.open(path) as picture:
        # The colours that lie apart, not the frequent ones, and then each moved to the middle of what it stands for.
        few = picture.convert("RGB").quantize(256, method=Image.Quantize.MAXCOVERAGE, kmeans=1)
    few.save(path, optimize=True)


def _bare(axes: Axes, title: str) -> None:
    """A picture without ticks."""
    axes.set(xticks=[], yticks=[])
    axes.grid(False)
    axes.set_title(title, loc="left")
    for spine in axes.spines.values():
        spine.set(visible=True, color=LINE)


def cover(path: Path, world: CoverageConfig, policies: tuple[str, ...]) -> None:
    """Policies on one start state at the start, on the way and at the end; MAST-M where it is shipped, alone."""
    chosen = tuple(name for name in policies if name != "mast-m" or LEARNED)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "results"
        delay = world.dt if "mast-m" in chosen else None
        evaluate("coverage", EvaluateConfig(world, chosen, episodes=1, steps=600, delay=delay, record=1, out=out))
        shutil.copyfile(report(out)["frames"], path)
    _fewer_colours(path)


def sides(path: Path) -> None:
    """The time average of every environment, a strip a policy and side, with its mean; of two sides or more."""
    cells = {side: cell(cell_name(count, count, side)) for side, count in SIDES.items()}
    present = [name for name in NAMES if any(name in found["policies"] for found in cells.values())]
    if sum("mast-m" in found["policies"] for found in cells.values()) < 2:
        return
    chance = np.random.default_rng(0)
    with style():
        figure = Figure(figsize=(8.0, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for number, name in enumerate(present):
            place = (number - (len(present) - 1) / 2) * 0.8 / len(present)
            for column, found in enumerate(cells.values()):
                if name not in found["policies"]:
                    continue
                values = found["policies"][name]["cost_time_average"]
                x = column + place + chance.uniform(-0.25, 0.25, len(values)) / len(present)
                axes.plot(x, values, ".", color=COLOURS[name], markersize=4, alpha=0.35, markeredgewidth=0)
                half = 0.38 / len(present)
                middle = mean(found, name)
                axes.plot([column + place - half, column + place + half], [middle] * 2, color=COLOURS[name])
            axes.plot([], [], "o", color=COLOURS[name], label=NAMES[name])
        axes.set_xticks(range(len(SIDES)), [f"{side} m\nN = F = {count}" for side, count in SIDES.items()])
        axes.set(ylabel="time-averaged cost (lower is better)", xlim=(-0.5, len(SIDES) - 0.5), ylim=(0, None))
        axes.grid(axis="x", visible=False)
        figure.legend(loc="outside upper center", ncols=len(present), handletextpad=0.2)
        figure.savefig(path)


def heat_maps(path: Path) -> None:
    """How far MAST-M is below each other policy for each N and F; where two cells have both."""
    found = {other: gains("mast-m", other) for other in CLAIMS}
    found = {other: values for other, values in found.items() if len(values) > 1}
    if not found:
        return
    rows = (len(found) + 1) // 2
    with style():
        figure = Figure(figsize=(10.0, 4.8 * rows), layout="constrained")
        places = list(figure.subplots(rows, 2).flat)
        for axes in places[len(found) :]:
            axes.set_axis_off()
        for axes, (other, values) in zip(places, found.items(), strict=False):
            _heat_map(axes, values)
            axes.set_title(f"MAST-M below {NAMES[other]}, %", loc="left")
        figure.savefig(path)
    _fewer_colours(path)


def _heat_map(axes: Axes, values: dict[tuple[int, int], float]) -> None:
    """A number a cell; blue is better, red worse; blank where nothing was run."""
    from matplotlib.patches import Rectangle

    grid = np.array([[values.get((agents, features), np.nan) for agents in GRID] for features in GRID])
    axes.imshow(grid, origin="lower", cmap="RdBu", vmin=-60, vmax=60)
    for (row, column), value in np.ndenumerate(grid):
        if np.isfinite(value):
            ink = "white" if abs(value) > 34 else INK
            axes.text(column, row, str(round(value)), ha="center", va="center", color=ink, fontsize=9)
    trained = GRID.index(32)
    axes.add_patch(Rectangle((trained - 0.5, trained - 0.5), 1, 1, fill=False, edgecolor=INK, linewidth=1.8))
    axes.set_xticks(range(len(GRID)), map(str, GRID))
    axes.set_yticks(range(len(GRID)), map(str, GRID))
    axes.set(xlabel="robots N", ylabel="features F")
    axes.grid(False)
