"""Plots: success-rate curves and pictures of the team. matplotlib is imported when a plot is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.files import whole_file
from mast_swarm.view import scene
from mast_swarm.view.style import INK, LINE, SCENE, SOFT, policy_colour, policy_dash, style

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]  # t [T] s; mean, low, high [T]
TIMES = (0.0, 50.0, 200.0)  # s: the start, on the way, and the end of a training episode


def success_curves(curves: Mapping[str, Curve], path: Path, *, title: str | None = None) -> Path:
    """Success rate over time, a line a policy (in the given order) with its 95 % band; the path again."""
    if not curves:
        raise MastError("a plot of success curves needs at least one policy, none was given")
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        lines = {name: _checked(name, curve) for name, curve in curves.items()}
        for number, (name, (t, mean, low, high)) in enumerate(lines.items()):
            colour = policy_colour(number)
            axes.fill_between(t, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.plot(t, mean, color=colour, linestyle=policy_dash(number), label=name)
        axes.set(xlabel="time (s)", ylabel="success rate", ylim=(0, 1.02))
        axes.margins(x=0)
        banded = any((high > low).any() for _, _, low, high in lines.values())
        meaning = "mean and 95 % interval" if banded else None
        axes.legend(loc="best", title=meaning, title_fontsize=8.5, alignment="left")
        if title:
            axes.set_title(title, loc="left")
        return _save(figure, path)


def _checked(name: str, curve: Curve) -> list[np.ndarray]:
    arrays = [np.asarray(values, dtype=float) for values in curve]
    shapes = [values.shape for values in arrays]
    if len(shapes) != 4 or len(set(shapes)) != 1 or len(shapes[0]) != 1 or shapes[0][0] < 1:
        raise MastError(f"the curve of {name} has shapes {shapes}; expected t, mean, low and high of one length")
    if not all(np.isfinite(values).all() for values in arrays):
        raise MastError(f"the curve of {name} has values that are not finite numbers")
    return arrays


def frame(recording: Recording, t: float, path: Path) -> Path:
    """One picture at time `t` (s): robots, seen and unseen goals, links; the path again."""
    return frames(recording, path, [t])


def frames(recordings: Recording | Sequence[Recording], path: Path, times: Sequence[float] | None = None) -> Path:
    """A grid of pictures, a row a recording, a column a time (s), all to one scale; the path again.

    Without `times`: those of `TIMES` that every recording has.
    """
    recordings = [recordings] if isinstance(recordings, Recording) else recordings
    if not recordings:
        raise MastError("a picture needs at least one recording, none was given")
    for recording in recordings:
        scene.check(recording)
    if times is None:
        times = [t for t in TIMES if all(t <= scene.duration(recording) for recording in recordings)]
    if not times:
        raise MastError("a picture needs at least one time, none was given")
    chosen = [[scene.frame_at(recording, t) for t in times] for recording in recordings]
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows, columns = len(recordings), len(times)
    with style():
        side = 5.0 if rows == columns == 1 else 3.3  # inches
        size = (side * columns + 0.1, (side + 0.3) * rows + 0.4)
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.04))
        grid = figure.subplots(rows, columns, squeeze=False)
        extent = max(_extent(recording, row) for recording, row in zip(recordings, chosen, strict=True))
        for axes_row, recording, row in zip(grid, recordings, chosen, strict=True):
            for axes, index in zip(axes_row, row, strict=True):
                _draw(axes, recording, index, side * 72 / (2 * extent))
                axes.set(xlim=(-extent, extent), ylim=(-extent, extent))
            axes_row[0].set_ylabel(recording.policy, fontsize=11, fontweight="bold", color=INK, labelpad=6)
        handles, labels = _legend()
        figure.legend(handles, labels, loc="outside lower center", ncols=3 if columns == 1 else 5, handletextpad=0.4)
        return _save(figure, path)


def _extent(recording: Recording, chosen: Sequence[int]) -> float:
    """Half the side (m) of the square about the origin that holds the world, the robots and the goals."""
    far = max(np.abs(recording.positions[list(chosen)]).max(), np.abs(recording.goals).max())
    return 1.03 * max(recording.width / 2, float(far))


def _draw(axes: Axes, recording: Recording, index: int, points_per_metre: float) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patches import Rectangle

    robots, goals = recording.positions[index], recording.goals
    # Marks shrink as the picture fills, so that 1000 robots stay apart.
    spacing = recording.width / np.sqrt(max(len(robots), len(goals))) * points_per_metre
    mark = float(np.clip(0.16 * spacing, 1.8, 6.0))  # points
    half = recording.width / 2
    world = Rectangle((-half, -half), recording.width, recording.width, fill=False, edgecolor=LINE, linewidth=1)
    axes.add_patch(world)

    neighbours = recording.neighbours[index]  # [N, K]
    at, k = np.nonzero(neighbours >= 0)
    lines = np.stack([robots[at], robots[neighbours[at, k]]], axis=1)  # [E, 2, 2]
    axes.add_collection(LineCollection(list(lines), colors=SCENE["link"], linewidths=mark * 0.16, zorder=1))

    reached, seen = scene.reached(recording, index), scene.seen(recording, index)
    size = mark**2
    green, width = SCENE["reached"], mark * 0.16
    x, y = goals[reached].T
    axes.scatter(x, y, s=2.4 * size, facecolors=green + "33", edgecolors=green, linewidths=width, zorder=2)
    for mask, colour in ((~seen & ~reached, SCENE["unseen"]), (seen & ~reached, SCENE["seen"])):
        x, y = goals[mask].T
        axes.scatter(x, y, s=size, marker="x", color=colour, linewidths=mark * 0.24, zorder=3)
    x, y = robots.T
    axes.scatter(x, y, s=0.8 * size, color=SCENE["robot"], edgecolors="white", linewidths=width / 3, zorder=4)

    rate = recording.success_rate[index]
    axes.set_title(f"t = {index * recording.dt:g} s", loc="left")
    axes.set_title(f"success {rate:.2f}", loc="right", fontweight="normal", fontsize=9.5, color=SOFT)
    axes.set_aspect("equal")
    axes.grid(False)
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set_visible(False)


def _legend() -> tuple[list[Artist], list[str]]:
    from matplotlib.lines import Line2D

    def mark(marker: str, colour: str, face: str, size: float) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, color=colour, mfc=face, mec=colour, markersize=size)

    handles: list[Artist] = [
        mark("o", SCENE["robot"], SCENE["robot"], 5),
        Line2D([], [], color=SCENE["link"], linewidth=1.2),
        mark("o", SCENE["reached"], SCENE["reached"] + "33", 8),
        mark("x", SCENE["seen"], SCENE["seen"], 6),
        mark("x", SCENE["unseen"], SCENE["unseen"], 6),
    ]
    return handles, ["robot", "link", "goal reached", "goal seen", "goal unseen"]


def _save(figure: Figure, path: Path) -> Path:
    kinds = figure.canvas.get_supported_filetypes()
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in kinds:
        raise MastError(f"cannot write a plot as {Path(path).name}: give it one of {', '.join(sorted(kinds))}")
    with whole_file(Path(path)) as part:
        figure.savefig(part)
    return Path(path)
