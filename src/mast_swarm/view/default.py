"""The view of a task that brings none: robots, their links and their trails."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.view.packing import Ruler, packed
from mast_swarm.view.scene import Box, TaskView, counted, draw_failed, mark_size
from mast_swarm.view.style import SCENE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

SHARES = (0.0, 0.2, 1.0)  # of a recording's time: the start, on the way, the end
_TRAIL = 0.2  # share of a recording's time that a trail shows


class DefaultView(TaskView):
    """Robots where they are, their ways there, and who hears whom. Scales come from the recording."""

    script = "mast_swarm.view.page:default.js"

    def check(self, recording: Recording) -> None:
        links, (frames, robots) = recording.frames["links"], recording.positions.shape[:2]
        expected = (frames, robots, -(-robots // 8))
        if links.dtype != np.uint8 or links.shape != expected:
            found = f"{links.dtype} of shape {links.shape}"
            raise MastError(
                f"the recording of {recording.policy} has links that are {found}; expected uint8 {expected}"
            )

    def times(self, recording: Recording) -> list[float]:
        last = len(recording.positions) - 1
        return [index * recording.dt for index in sorted({round(share * last) for share in SHARES})]

    def box(self, recording: Recording, chosen: Sequence[int]) -> Box:
        """The square around all that the robots went through up to the last of the chosen frames."""
        points = recording.positions[: max(chosen) + 1].reshape(-1, 2)
        low, high = points.min(axis=0), points.max(axis=0)
        middle, half = (low + high) / 2, 0.54 * max(float((high - low).max()), 1e-3 * recording.width)
        return tuple(map(float, (*(middle - half), *(middle + half))))  # type: ignore[return-value]

    def draw(self, axes: Axes, recording: Recording, index: int, points_per_metre: float) -> None:
        from matplotlib.collections import LineCollection

        robots = recording.positions[index]
        mark = mark_size(recording, len(robots), points_per_metre)
        begin = max(0, index - round(_TRAIL * len(recording.positions)))
        trails = recording.positions[begin : index + 1].swapaxes(0, 1)  # [N, T, 2]
        axes.add_collection(LineCollection(list(trails), colors=SCENE["robot"], alpha=0.3, linewidths=mark * 0.2))
        alive = recording.alive(index)
        heard, hears = np.nonzero(np.triu(linked(recording, index) & alive & alive[:, None]))
        lines = np.stack([robots[heard], robots[hears]], axis=1)  # [E, 2, 2]
        axes.add_collection(LineCollection(list(lines), colors=SCENE["link"], linewidths=mark * 0.16, zorder=1))
        x, y = robots.T
        axes.scatter(x, y, s=mark**2, color=SCENE["robot"], edgecolors="white", linewidths=mark * 0.12, zorder=4)
        draw_failed(axes, recording, index, mark)
        self.title(axes, recording, index)

    def legend(self) -> tuple[list[Artist], list[str]]:
        from matplotlib.lines import Line2D

        handles: list[Artist] = [
            Line2D([], [], linestyle="", marker="o", color=SCENE["robot"], markersize=5),
            Line2D([], [], color=SCENE["link"], linewidth=1.2),
            Line2D([], [], color=SCENE["robot"], alpha=0.3, linewidth=1.6),
        ]
        return handles, ["robot", "link", "trail"]

    def embedded(self, recording: Recording) -> dict[str, Any]:
        robots = recording.positions.shape[1]
        page = self.embedded_team(
            recording,
            Ruler(recording.dt, recording.positions),
            [*[recording.scenario] * (self.task.starts is not None), counted(robots, "robot")],
        )
        page["arrays"]["links"] = packed(recording.frames["links"], delta=True)
        return page


def linked(recording: Recording, frame: int) -> np.ndarray:
    """Who hears whom or is heard: [N, N] bool, symmetric."""
    robots = recording.positions.shape[1]
    bits = np.unpackbits(recording.frames["links"][frame], axis=1, count=robots, bitorder="little").astype(bool)
    return bits | bits.T
