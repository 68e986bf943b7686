"""The view of coverage recordings: what matters where, what of it the team has seen, and each robot's share of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.view.packing import Ruler, from_one, packed
from mast_swarm.view.scene import Box, TaskView, check_positive, counted, draw_failed, mark_size
from mast_swarm.view.style import DENSITY, SCENE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap

SHARES = (0.0, 0.2, 1.0)  # of a recording's time: most of the way to a good cover is made early


class CoverageView(TaskView):
    """The density, in colour where some robot has seen it and grey elsewhere; Voronoi cells, links and robots."""

    script = "mast_swarm.tasks.coverage:painter.js"

    def check(self, recording: Recording) -> None:
        name, frames = f"the recording of {recording.policy}", len(recording.positions)
        density, seen_at = recording.scene["density"], recording.scene["seen_at"]
        if density.ndim != 2 or density.shape[0] != density.shape[1] or density.dtype != np.uint8 or not density.any():
            found = f"{density.dtype} of shape {density.shape}"
            raise MastError(f"{name} has a density that is {found}; expected uint8 [pixels, pixels], not all 0")
        if seen_at.shape != density.shape or not (seen_at.min() >= -1 and seen_at.max() < frames):
            raise MastError(f"{name} has seen_at of shape {seen_at.shape}; expected one of -1..{frames - 1} a pixel")
        lengths = ("communication_range", "sensor", "resolution")
        check_positive(recording, {length: recording.settings[length] for length in lengths})

    def times(self, recording: Recording) -> list[float]:
        last = len(recording.positions) - 1
        return [index * recording.dt for index in sorted({round(share * last) for share in SHARES})]

    def box(self, recording: Recording, chosen: Sequence[int]) -> Box:
        margin = 0.012 * recording.width  # robots on the world's edge are whole
        return -margin, -margin, recording.width + margin, recording.width + margin

    def draw(self, axes: Axes, recording: Recording, index: int, points_per_metre: float) -> None:
        from matplotlib.collections import LineCollection, PolyCollection

        robots, side = recording.positions[index], recording.width
        mark = mark_size(recording, len(robots), points_per_metre)
        axes.imshow(shaded(recording, index), origin="lower", extent=(0, side, 0, side), interpolation="nearest")
        drawn = PolyCollection(cells(robots, side), facecolors="none", edgecolors=SCENE["cell"], linewidths=0.15 * mark)
        axes.add_collection(drawn)
        lines = list(links(recording, index))
        axes.add_collection(LineCollection(lines, colors=SCENE["robot"], alpha=0.45, linewidths=0.14 * mark))
        x, y = robots.T
        axes.scatter(x, y, s=mark**2, color=SCENE["robot"], edgecolors="white", linewidths=mark * 0.14, zorder=4)
        draw_failed(axes, recording, index, mark)
        self.title(axes, recording, index)

    def legend(self) -> tuple[list[Artist], list[str]]:
        from matplotlib.lines import Line2D
        from matplotlib.patches import Patch

        handles: list[Artist] = [
            Line2D([], [], linestyle="", marker="o", color=SCENE["robot"], markersize=5),
            Line2D([], [], color=SCENE["robot"], alpha=0.5, linewidth=1.2),
            Line2D([], [], color=SCENE["cell"], linewidth=1.2),
            Patch(color=ramp("density")(0.6)),
            Patch(color=ramp("hidden")(0.6)),
        ]
        return handles, ["robot", "link", "Voronoi cell", "density seen", "density unseen"]

    def embedded(self, recording: Recording) -> dict[str, Any]:
        frames, robots = recording.positions.shape[:2]
        ruler = Ruler(recording.dt, recording.positions)
        kind, _, path = recording.scenario.partition(":")
        where = f"{kind} of {Path(path).name}" if path else kind
        page = self.embedded_team(recording, ruler, [where, counted(robots, "robot"), f"{recording.width:g} m"])
        page["arrays"] |= {
            "density": packed(recording.scene["density"]),
            "seen_at": packed(from_one(recording.scene["seen_at"], frames)),
        }
        kept = ("communication_range", "sensor", "resolution")
        return page | {"pixels": len(recording.scene["density"])} | {name: recording.settings[name] for name in kept}


def shaded(recording: Recording, frame: int) -> np.ndarray:
    """The density as a picture [P, P, 3] of 0..1: in colour what the team has seen by then, grey the rest."""
    level = recording.scene["density"] / 255.0
    known = seen_by(recording, frame)
    return np.where(known[..., None], ramp("density")(level), ramp("hidden")(level))[..., :3]


def seen_by(recording: Recording, frame: int) -> np.ndarray:
    """What some robot has seen by a frame: [P, P] bool."""
    seen_at = recording.scene["seen_at"]
    return (seen_at >= 0) & (seen_at <= frame)


def ramp(name: str) -> Colormap:
    """The colours of `name` (density or hidden) from its low to its high end."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list(name, [DENSITY[key] for key in DENSITY if key.startswith(name)])


def links(recording: Recording, frame: int) -> np.ndarray:
    """Pairs of robots that hear each other, none of which has failed: [E, 2, 2] m."""
    robots = recording.positions[frame]
    nearer = np.nextafter(recording.settings["communication_range"], 0)  # the tree's radius is included, ours is not
    pairs = cKDTree(robots).query_pairs(nearer, output_type="ndarray")
    return robots[pairs[recording.alive(frame)[pairs].all(axis=1)]]


def cells(robots: np.ndarray, side: float) -> list[np.ndarray]:
    """The Voronoi cell of each of the robots [N, 2] m in the square 0..side: its corners in order, each [K, 2] m.

    By cutting, since robots may stand on the edge of the world or on one spot.
    """
    square = np.array([[0.0, 0.0], [side, 0.0], [side, side], [0.0, side]])
    points = robots.astype(np.float64)
    return [_cell(points, here, square) for here in points]


def _cell(points: np.ndarray, here: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """What of a convex polygon is nearer to `here` than to any other of the points."""
    way = points - here
    apart = (way**2).sum(axis=1)
    for other in np.argsort(apart):
        if apart[other] >= 4 * ((corners - here) ** 2).sum(axis=1).max():
            break  # its bisector is beyond all corners, and so are those of robots farther away
        if apart[other] > 0:
            corners = _clipped(corners, way[other], way[other] @ (here + points[other]) / 2)
    return corners


def _clipped(corners: np.ndarray, normal: np.ndarray, limit: float) -> np.ndarray:
    """The part of a convex polygon where normal . x <= limit."""
    past = corners @ normal - limit
    kept = []
    for corner, following, here, there in zip(corners, np.roll(corners, -1, 0), past, np.roll(past, -1), strict=True):
        if here <= 0:
            kept.append(corner)
        if min(here, there) < 0 < max(here, there):
            kept.append(corner + here / (here - there) * (following - corner))
    return np.array(kept)
