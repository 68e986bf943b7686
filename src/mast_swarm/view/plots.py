"""Plots: curves of a metric over time and pictures of the team. matplotlib is imported when a plot is drawn."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.files import whole_file
from mast_swarm.view import scene
from mast_swarm.view.choose import view_of
from mast_swarm.view.style import INK, policy_colour, policy_dash, style, wrapped

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike]  # t [T] s; mean, low, high [T]


def metric_curves(
    curves: Mapping[str, Curve],
    path: Path,
    *,
    label: str,
    limits: tuple[float, float] = (-np.inf, np.inf),
    title: str | None = None,
) -> Path:
    """A metric over time, a line per policy (in the given order) with its 95 % band; the path again.

    label: what the metric is called; limits: the least and the greatest value that it can have, where it has them.
    """
    if not curves:
        raise MastError("a plot of curves needs at least one policy, none was given")
    from matplotlib.figure import Figure

    with style():
        lines = {wrapped(name): _checked(name, curve) for name, curve in curves.items()}
        longest = max(len(row) for name in lines for row in name.split("\n"))
        columns = min(len(lines), max(1, 85 // (8 + longest)))  # a row has room for some 85 letters
        deep = math.ceil(len(lines) / columns) * max(name.count("\n") + 1 for name in lines)
        figure = Figure(figsize=(6.4, 4.0 + 0.2 * max(0, deep - 2)), layout="constrained")
        axes = figure.add_subplot()
        for number, (name, (t, mean, low, high)) in enumerate(lines.items()):
            colour = policy_colour(number)
            axes.fill_between(t, low, high, color=colour, alpha=0.18, linewidth=0)
            axes.plot(t, mean, color=colour, linestyle=policy_dash(number), label=name)
        axes.set(xlabel="time (s)", ylabel=label, ylim=_scale(lines.values(), limits))
        axes.margins(x=0)
        banded = any((high > low).any() for _, _, low, high in lines.values())
        meaning = "mean and 95 % interval" if banded else None
        figure.legend(loc="outside lower center", ncols=columns, title=meaning, title_fontsize=8.5)
        if title:
            axes.set_title(title, loc="left")
        return save_figure(figure, path)


def _scale(lines: Iterable[list[np.ndarray]], limits: tuple[float, float]) -> tuple[float, float]:
    """Both ends of an axis: those of the data, stretched to limits that are finite, and to 0 unless values go below."""
    lows, highs = zip(*((float(low.min()), float(high.max())) for *_, low, high in lines), strict=True)
    bottom = min(0.0, *lows) if not np.isfinite(limits[0]) else min(limits[0], *lows)
    top = max(highs) if not np.isfinite(limits[1]) else max(limits[1], *highs)
    room = 0.02 * ((top - bottom) or 1.0)
    return (bottom - room if bottom < 0 else bottom), top + room


def _checked(name: str, curve: Curve) -> list[np.ndarray]:
    arrays = [np.asarray(values, dtype=float) for values in curve]
    shapes = [values.shape for values in arrays]
    if len(shapes) != 4 or len(set(shapes)) != 1 or len(shapes[0]) != 1 or shapes[0][0] < 1:
        raise MastError(f"the curve of {name} has shapes {shapes}; expected t, mean, low and high of one length")
    if not all(np.isfinite(values).all() for values in arrays):
        raise MastError(f"the curve of {name} has values that are not finite numbers")
    return arrays


def frame(recording: Recording, t: float, path: Path) -> Path:
    """One picture at time `t` (s), as the view of the task draws it; the path again."""
    return frames(recording, path, [t])


def frames(recordings: Recording | Sequence[Recording], path: Path, times: Sequence[float] | None = None) -> Path:
    """A grid of pictures, a row a recording, a column a time (s), all to one scale; the path again.

    The recordings are of one task. Without `times`: those that its view chooses for the shortest of them.
    """
    recordings = [recordings] if isinstance(recordings, Recording) else recordings
    if not recordings:
        raise MastError("a picture needs at least one recording, none was given")
    view = view_of(recordings)
    if times is None:
        times = view.times(min(recordings, key=scene.duration))
    if not times:
        raise MastError("a picture needs at least one time, none was given")
    chosen = [[scene.frame_at(recording, t) for t in times] for recording in recordings]
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    rows, columns = len(recordings), len(times)
    with style():
        handles, labels = view.legend()
        if any(not recording.alive(i).all() for recording, row in zip(recordings, chosen, strict=True) for i in row):
            handles, labels = [*handles, scene.failed_key()], [*labels, "failed robot"]
        across = len(labels) if columns > 1 else 3 if rows == 1 else 2
        side = 5.0 if rows == columns == 1 else 3.3  # inches
        names = [wrapped(recording.policy) for recording in recordings]
        beside = 0.19 * max(name.count("\n") for name in names)  # inches
        size = (side * columns + 0.1 + beside, (side + 0.3) * rows + 0.2 + 0.2 * math.ceil(len(labels) / across))
        figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(wspace=0.04))
        grid = figure.subplots(rows, columns, squeeze=False)
        boxes = np.array([view.box(recording, row) for recording, row in zip(recordings, chosen, strict=True)])
        low, high = boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)  # m
        for axes_row, recording, name, row in zip(grid, recordings, names, chosen, strict=True):
            for axes, index in zip(axes_row, row, strict=True):
                view.draw(axes, recording, index, side * 72 / float((high - low).max()))
                axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
            axes_row[0].set_ylabel(name, fontsize=11, fontweight="bold", color=INK, labelpad=6)
        _scale_bar(grid[-1, 0], float(high[0] - low[0]), float(low[0]))
        figure.legend(handles, labels, loc="outside lower center", ncols=across, handletextpad=0.4)
        return save_figure(figure, path)


def _scale_bar(axes: Axes, width: float, left: float) -> None:
    """A length in metres under a picture of that width, m."""
    tens = 10 ** np.floor(np.log10(width / 4))
    length = max(step * tens for step in (1, 2, 5) if step * tens <= width / 4)
    place = axes.get_xaxis_transform()  # x in metres, y in heights of the picture
    axes.plot([left, left + length], [-0.035, -0.035], color=INK, linewidth=1.6, transform=place, clip_on=False)
    text = f"{length / 1000:g} km" if length >= 1000 else f"{length:g} m"
    axes.text(left + 1.1 * length, -0.035, text, transform=place, fontsize=8.5, color=INK, va="center")


def save_figure(figure: Figure, path: Path) -> Path:
    """Write a figure in the format that the path's ending names; the path again."""
    kinds = figure.canvas.get_supported_filetypes()
    kind = Path(path).suffix.lstrip(".").lower()
    if kind not in kinds:
        raise MastError(f"cannot write a plot as {Path(path).name}: give it one of {', '.join(sorted(kinds))}")
    with whole_file(Path(path)) as part:
        figure.savefig(part)
    return Path(path)
