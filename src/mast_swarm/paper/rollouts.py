"""The paper's figure of MAST-M in two cities: the signals, the team on its way, the team at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mast_swarm.evaluate.recording import Recording
from mast_swarm.paper.cells import Cell, Result, evaluation
from mast_swarm.paper.cities import CITIES, FOLDER, SIDE, City, content, window
from mast_swarm.paper.experiment import HOLDS, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, blank, judged
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.coverage.config import CoverageConfig

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# The paper shows Philadelphia and Portland; of these San Jose stands for the second (the same count of signals).
DRAWN = tuple(city for name in ("Philadelphia", "San Jose") for city in CITIES if city.name == name)
EVERY = 5  # steps between two rows of a path: a robot moves 5 m at most


def _cells(size: Size) -> Mapping[str, Cell]:
    given: dict[str, Any] = {
        "agents": 32,
        "side": SIDE,
        "dt": 0.2,
        "delay": 0.2,
        "episodes": 1,
        "steps": 600,
        "seed": 5,
    }
    if size.quick:
        given |= {"agents": 6, "steps": 10}
    cells = {}
    for city in DRAWN:
        where: dict[str, Any] = {
            "city": city.file,
            "points": content(city.file),
            "window": list(window(city.file, city.signals)),
        }
        one = evaluation("coverage", "mast-m", **given, **where)
        cells[city.name] = Cell("paths", {**one.settings, "every": EVERY}, f"paths-{city.name}")
    return cells


def _recording(cell: Cell, found: Result) -> Recording:
    """A path as a recording, one frame per row of it: what was seen when follows from where robots were."""
    given, table = cell.settings, found.table
    robots = int(given["agents"])
    track = np.stack([table[axis].to_numpy() for axis in "xy"], axis=-1).reshape(-1, robots, 2).astype(np.float32)
    place = (given["window"][0], given["window"][1])
    density = f"points:{FOLDER / given['city']}"
    world = tasks.find("coverage").make(
        CoverageConfig(agents=robots, side=given["side"], dt=given["dt"], density=density, window=place)
    )
    scene = world.scene(world.reset([given["seed"]]), torch.from_numpy(track)[None])
    return Recording(
        task="coverage",
        policy="mast-m",
        scenario=density,
        seed=given["seed"],
        delay=given["delay"],
        dt=given["dt"] * given["every"],
        width=given["side"],
        attention_radius=None,
        settings=vars(world.config),
        positions=track,
        metrics={"cost": table["cost"].to_numpy()[::robots].astype(np.float32)},
        frames={},
        scene={name: value[0].numpy() for name, value in scene.items()},
    )


def _idle(recording: Recording) -> float:
    """The share of the robots that stand, at the end, where the density is below its mean."""
    density = recording.scene["density"].astype(np.float64)
    at = (recording.positions[-1] * (len(density) / recording.width)).astype(int).clip(0, len(density) - 1)
    return float((density[at[:, 1], at[:, 0]] < density.mean()).mean())


def _rows(found: Found) -> list[Row]:
    def drawn() -> Judged:
        ends = []
        for name, cell in found.cells.items():
            made = _recording(cell, found[name])
            ends.append(f"{name}: cost {made.metrics['cost'][-1]:.3f} at the end, {_idle(made):.0%} of the robots idle")
        return "-", "; ".join(ends), HOLDS, "the figure; idle: where the density is below its mean (the paper: a few)"

    return [judged(found, 56, drawn)]


def _shown(city: City) -> str:
    return city.name if city.name == city.paper else f"{city.name} (for {city.paper})"


def _draw(found: Found, figure: Figure) -> None:
    from mast_swarm.tasks.coverage.points import read_points
    from mast_swarm.tasks.coverage.view import CoverageView

    view = CoverageView(tasks.find("coverage"))
    for row, city in zip(figure.subplots(len(DRAWN), 4), DRAWN, strict=True):
        points = read_points(str(FOLDER / city.file), SIDE, window(city.file, city.signals))
        row[0].plot(points[:, 0], points[:, 1], "x", color="#D5371E", markersize=5)
        row[0].set(xlim=(0, SIDE), ylim=(0, SIDE), aspect="equal", xticks=[], yticks=[])
        row[0].set_title(f"{_shown(city)}: {len(points)} signals", loc="left", fontsize=8)
        if city.name not in found.results:
            for axes in row[1:]:
                blank(axes)
            continue
        made = _recording(found.cells[city.name], found[city.name])
        last = len(made.positions) - 1
        for axes, share in zip(row[1:], (1 / 6, 5 / 6, 1.0), strict=True):  # 100, 500 and 600 of 600 steps
            index = round(share * last)
            view.draw(axes, made, index, points_per_metre=axes.bbox.width / figure.dpi * 72 / SIDE)
            axes.set(xlim=(0, SIDE), ylim=(0, SIDE), aspect="equal", xticks=[], yticks=[])
            axes.set_title(f"step {index * EVERY}", loc="left", fontsize=8)
            axes.set_title(f"cost {made.metrics['cost'][index]:.3f}", loc="right", fontsize=8)
    handles, labels = view.legend()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), fontsize=8)
    figure.suptitle("signals © OpenStreetMap contributors, ODbL 1.0", fontsize=7, x=0.99, ha="right")


declare(
    Experiment(
        "coverage-rollouts",
        "MAST-M in two cities: after 100, 500 and 600 steps",
        "Fig. 18",
        _rows,
        _cells,
        _draw,
        shape=(11.0, 6.2),
        notes="Every robot alone, 0.2 s per hop, N = 32; one start state (seed 5), the first that was run.",
    )
)
