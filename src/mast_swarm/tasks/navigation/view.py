"""The view of navigation recordings: which goals are reached and which are seen, and the team's links."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import cKDTree

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.view.packing import Ruler, from_one, packed
from mast_swarm.view.scene import Box, TaskView, check_finite, check_positive, counted, draw_failed, duration, mark_size
from mast_swarm.view.style import LINE, SCENE

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

TIMES = (0.0, 50.0, 200.0)  # s: the start, on the way, and the end of a training episode; the end comes last


class NavigationView(TaskView):
    """Robots, their links, and goals in the colour and shape of their state."""

    script = "mast_swarm.tasks.navigation:painter.js"

    def check(self, recording: Recording) -> None:
        name, (frames, robots) = f"the recording of {recording.policy}", recording.positions.shape[:2]
        goals = recording.scene["goals"]
        if goals.ndim != 2 or goals.shape[1] != 2 or len(goals) == 0:
            raise MastError(f"{name} has goals of shape {goals.shape}; expected [goals, 2]")
        for field, among in (("neighbours", robots), ("goals_seen", len(goals))):
            index = recording.frames[field]
            if index.ndim != 3 or index.shape[:2] != (frames, robots):
                raise MastError(f"{name} has {field} of shape {index.shape}; expected [{frames}, {robots}, K]")
            if index.size and not (index.min() >= -1 and index.max() < among):
                raise MastError(f"{name} has {field} outside -1..{among - 1}")
        check_finite(recording, {"goals": goals})
        check_positive(recording, {"success_radius": recording.settings["success_radius"]})

    def times(self, recording: Recording) -> list[float]:
        end = duration(recording)
        return [*(t for t in TIMES if t < end), end]

    def box(self, recording: Recording, chosen: Sequence[int]) -> Box:
        """The square about the origin that holds the world, the robots and the goals."""
        far = max(np.abs(recording.positions[list(chosen)]).max(), np.abs(recording.scene["goals"]).max())
        half = 1.03 * max(recording.width / 2, float(far))
        return -half, -half, half, half

    def draw(self, axes: Axes, recording: Recording, index: int, points_per_metre: float) -> None:
        from matplotlib.collections import LineCollection
        from matplotlib.patches import Rectangle

        robots, goals = recording.positions[index], recording.scene["goals"]
        mark = mark_size(recording, max(len(robots), len(goals)), points_per_metre)
        half = recording.width / 2
        world = Rectangle((-half, -half), recording.width, recording.width, fill=False, edgecolor=LINE, linewidth=1)
        axes.add_patch(world)

        neighbours = recording.frames["neighbours"][index]  # [N, K]
        alive = recording.alive(index)
        at, k = np.nonzero((neighbours >= 0) & alive[:, None] & alive[neighbours])
        lines = np.stack([robots[at], robots[neighbours[at, k]]], axis=1)  # [E, 2, 2]
        axes.add_collection(LineCollection(list(lines), colors=SCENE["link"], linewidths=mark * 0.16, zorder=1))

        got, observed = reached(recording, index), goals_known(recording, index)
        size = mark**2
        green, width = SCENE["reached"], mark * 0.16
        x, y = goals[got].T
        axes.scatter(x, y, s=2.4 * size, facecolors=green + "33", edgecolors=green, linewidths=width, zorder=2)
        x, y = goals[~observed & ~got].T
        axes.scatter(
            x,
            y,
            s=0.9 * size,
            marker="D",
            facecolors="none",
            edgecolors=SCENE["unseen"],
            linewidths=mark * 0.24,
            zorder=3,
        )
        x, y = goals[observed & ~got].T
        axes.scatter(x, y, s=size, marker="x", color=SCENE["seen"], linewidths=mark * 0.24, zorder=3)
        x, y = robots.T
        axes.scatter(x, y, s=0.8 * size, color=SCENE["robot"], edgecolors="white", linewidths=width / 3, zorder=4)
        draw_failed(axes, recording, index, mark)
        self.title(axes, recording, index)

    def legend(self) -> tuple[list[Artist], list[str]]:
        from matplotlib.lines import Line2D

        def mark(marker: str, colour: str, face: str, size: float) -> Line2D:
            return Line2D([], [], linestyle="", marker=marker, color=colour, mfc=face, mec=colour, markersize=size)

        handles: list[Artist] = [
            mark("o", SCENE["robot"], SCENE["robot"], 5),
            Line2D([], [], color=SCENE["link"], linewidth=1.2),
            mark("o", SCENE["reached"], SCENE["reached"] + "33", 8),
            mark("x", SCENE["seen"], SCENE["seen"], 6),
            mark("D", SCENE["unseen"], "none", 5),
        ]
        return handles, ["robot", "link", "goal reached", "goal seen", "goal unseen"]

    def embedded(self, recording: Recording) -> dict[str, Any]:
        frames, robots = recording.positions.shape[:2]
        goals = recording.scene["goals"]
        count = len(goals)
        ruler = Ruler(recording.dt, recording.positions, goals)
        team = counted(robots, "robot") + (f", {counted(count, 'goal')}" if robots != count else "")
        page = self.embedded_team(recording, ruler, [recording.scenario, team])
        state = np.stack([reached(recording, frame) for frame in range(frames)])
        page["arrays"] |= {
            "goals": packed(ruler.measured(goals)),
            "neighbours": packed(from_one(recording.frames["neighbours"], robots), delta=True),
            "goals_seen": packed(from_one(recording.frames["goals_seen"], count), delta=True),
            "reached": packed(np.packbits(state, axis=1, bitorder="little"), delta=True),
        }
        return page | {"goals": count, "success_radius": recording.settings["success_radius"]}


def reached(recording: Recording, frame: int) -> np.ndarray:
    """Goals with some robot nearer than the success radius: [M] bool."""
    distance, _ = cKDTree(recording.positions[frame]).query(recording.scene["goals"])
    return np.asarray(distance < recording.settings["success_radius"])


def goals_known(recording: Recording, frame: int) -> np.ndarray:
    """Goals that some robot observes: [M] bool."""
    index = recording.frames["goals_seen"][frame]
    mask = np.zeros(len(recording.scene["goals"]), dtype=bool)
    mask[index[index >= 0]] = True
    return mask
