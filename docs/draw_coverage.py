"""The pictures of the coverage page, for docs/make.py --pictures. A policy that has not been run is left out."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from blocks import DOCS
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
from mast_swarm.view.style import INK, LINE, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LEARNED = "coverage/mast-m" in zoo.policies()
CITIES = {"gridport": ("gridport.geojson", (45.0, -30.0)), "twogrids": ("twogrids.json", (-25.0, -15.0))}


def draw(folder: Path) -> None:
    """All of them."""
    densities(folder / "coverage-densities.png")
    cover(folder / "coverage-frames.png", CoverageConfig(), ("clairvoyant", "mast-m", "d-cvt"))
    cover(folder / "coverage-city.png", city_world("gridport"), ("mast-m" if LEARNED else "clairvoyant", "d-cvt"))


def city_world(city: str) -> CoverageConfig:
    """32 robots among the signals of a made-up city."""
    file, window = CITIES[city]
    return CoverageConfig(density=f"points:{DOCS / 'cities' / file}", window=window)


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
