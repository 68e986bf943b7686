"""What every recording shows, whatever its task: a team of robots in a square world, and a metric over time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.evaluate.knowledge import KINDS, MOST_ROBOTS
from mast_swarm.evaluate.recording import Recording
from mast_swarm.tasks.base import Metric, Task
from mast_swarm.view.packing import Ruler, finite, packed
from mast_swarm.view.style import INK, SOFT

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_LETTERS = 38  # that fit above one picture
_OLDEST = 600.0  # seconds: news that is older is shown as if it were so old

Box = tuple[float, float, float, float]  # m: x, y of the lower left corner, x, y of the upper right one


class TaskView(ABC):
    """How one task is drawn, on paper and in the replay page, where `script` is its painter."""

    script: ClassVar[str | Path]
    """The painter of the page, a path or "package:file.js"; see page/team.js for what it has to have."""

    def __init__(self, task: Task) -> None:
        self.task = task

    @property
    def metric(self) -> Metric:
        """The metric that is drawn over time."""
        return self.task.drawn

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that the page shows: the one drawn over time, and the one that counts where it is another."""
        return tuple(dict.fromkeys((self.task.drawn, self.task.metric)))

    @abstractmethod
    def check(self, recording: Recording) -> None:
        """Raise a MastError unless what the task's world keeps fits the positions and can be drawn."""

    @abstractmethod
    def times(self, recording: Recording) -> list[float]:
        """Instants (s) that a row of pictures shows unless told which."""

    @abstractmethod
    def box(self, recording: Recording, chosen: Sequence[int]) -> Box:
        """What a picture of the chosen frames has to show."""

    @abstractmethod
    def draw(self, axes: Axes, recording: Recording, index: int, points_per_metre: float) -> None:
        """One frame."""

    @abstractmethod
    def legend(self) -> tuple[list[Artist], list[str]]:
        """What the marks of a picture mean."""

    @abstractmethod
    def embedded(self, recording: Recording) -> dict[str, Any]:
        """A recording as the page's painter of the task takes it, JSON without infinities."""

    def embedded_team(self, recording: Recording, ruler: Ruler, facts: Sequence[str]) -> dict[str, Any]:
        """The part of `embedded` that all tasks share; `facts` are the task's own."""
        frames, robots = recording.positions.shape[:2]
        how = channel_words(recording.delay, recording.loss, recording.failure)
        alive = recording.frames.get("alive")
        added = _embedded_processes(recording), _embedded_knowledge(recording)
        return {
            "task": self.task.name,
            "policy": recording.policy,
            "facts": [self.task.name, *facts, f"seed {recording.seed}", *how],
            "dt": recording.dt,
            "width": recording.width,
            "attention_radius": finite(recording.attention_radius),
            "frames": frames,
            "robots": robots,
            "origin": ruler.origin.tolist(),
            "unit": ruler.unit,
            "metric": {
                "name": self.metric.name,
                "label": self.metric.words,
                "digits": self.metric.digits,
                "limits": [finite(limit) for limit in self.metric.limits],
            },
            "arrays": {
                "positions": packed(ruler.measured(recording.positions), delta=True),
                **{m.name: packed(recording.metrics[m.name].astype(np.float32)) for m in self.metrics},
                **({"alive": packed(alive.astype(np.uint8), delta=True)} if alive is not None else {}),
                **{name: array for part in added for name, array in part.pop("arrays", {}).items()},
            },
            **added[0],
            **added[1],
        }

    def title(self, axes: Axes, recording: Recording, index: int) -> None:
        """Time and metric above one frame, and nothing around it."""
        time = f"t = {index * recording.dt:g} s"
        value = f"{self.metric.words} {recording.metrics[self.metric.name][index]:.{self.metric.digits}f}"
        below = "\n" * (len(time) + len(value) > _LETTERS)
        axes.set_title(time + below, loc="left")
        axes.set_title(value, loc="right", fontweight="normal", fontsize=9.5, color=SOFT)
        axes.set_aspect("equal")
        axes.grid(False)
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)


def draw_failed(axes: Axes, recording: Recording, index: int, mark: float) -> None:
    """Crosses over the robots that have failed by a frame; mark: points across a robot."""
    x, y = recording.positions[index][~recording.alive(index)].T
    if len(x):
        axes.scatter(
            x, y, s=(1.6 * mark) ** 2, marker="X", color=INK, edgecolors="white", linewidths=0.1 * mark, zorder=5
        )


def failed_key() -> Artist:
    """What a cross over a robot looks like in a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="", marker="X", color=INK, markersize=6)


def counted(number: int, one: str) -> str:
    """So many of something, in words: 1 robot, 2 robots."""
    return f"{number} {one}" if number == 1 else f"{number} {one}s"


def late(delay: float | None) -> str:
    """How long messages take, in words; None: none are sent."""
    return "no delay" if delay is None else f"delay {delay:g} s per hop"


def channel_words(delay: float | None, loss: float, failure: float) -> list[str]:
    """How messages travel and robots fail, in words."""
    found = [late(delay)]
    found += [f"loss {loss:.3g} per link and hop"] * bool(loss)
    return found + [f"failure {failure:.3g} per robot and step"] * bool(failure)


def _embedded_processes(recording: Recording) -> dict[str, Any]:
    """What page/swarm.js shows, where the robots were processes of their own: the recording then says what became of
    each (`status`), how old its news was (`age`, seconds, -1: of nobody) and who got news from whom (`used`)."""
    if "status" not in recording.frames:
        return {}
    age = recording.frames["age"]
    stored = np.where(age < 0, 0, 1 + np.rint(100 * np.minimum(age, _OLDEST))).astype(np.uint16)
    fresh = float(np.median(age[age >= 0])) if (age >= 0).any() else 0.0  # what is usual in this team
    return {
        "fresh": fresh,
        "stale": max(float(age.max()), 2 * fresh, recording.dt),
        "arrays": {
            "status": packed(recording.frames["status"], delta=True),
            "age": packed(stored, delta=True),
            "used": packed(recording.frames["used"], delta=True),
        },
    }


def _embedded_knowledge(recording: Recording) -> dict[str, Any]:
    """What page/knowledge.js shows: what robots know of each other, and a sentence on how, for where that is little."""
    known, told = recording.known, KINDS.get(recording.knowledge, "")
    if recording.knowledge == "news" and not known:
        told += f"; how old it is, is not kept in teams of more than {MOST_ROBOTS:,}"
    elif not told and recording.delay is not None and "status" not in recording.frames:
        told = "this recording is from before the age of news was kept: record again to see it"
    found: dict[str, Any] = {"knows": told}
    if known:
        found |= {"every": int(known["every"]), "heads": int(known.get("heads", 0))}
        names = {"age": "news_age", "hops": "news_hops", "attends": "attends", "weights": "weights"}
        found["arrays"] = {names[name]: packed(known[name], delta=True) for name in names if name in known}
    return found


def _check_known(recording: Recording) -> None:
    """Raise a MastError unless what robots know fits the positions."""
    known, (frames, robots) = recording.known, recording.positions.shape[:2]
    kept = -(-frames // max(1, int(known.get("every", 1))))
    shapes: dict[str, tuple[int, ...]] = {
        "age": (kept, robots, robots),
        "hops": (kept, robots, robots),
        "attends": (kept, robots, -1),
        "weights": (kept, robots, -1, -1, known["attends"].shape[-1] if "attends" in known else 0),
    }
    for name, expected in shapes.items():
        found = known[name].shape if name in known else expected
        if len(found) != len(expected) or any(b not in (-1, a) for a, b in zip(found, expected, strict=True)):
            raise MastError(f"the recording of {recording.policy} has {name} of shape {found}; record again")
    at = np.arange(kept)[:, None, None] * int(known.get("every", 1))
    if "age" in known and (known["age"].astype(np.int64) > at + 1).any():
        raise MastError(f"the recording of {recording.policy} has news from before it began; record again")


def check(recording: Recording) -> None:
    """Raise a MastError unless positions and metrics fit each other and can be drawn."""
    name, positions = f"the recording of {recording.policy}", recording.positions
    if positions.ndim != 3 or positions.shape[2] != 2 or 0 in positions.shape:
        raise MastError(f"{name} has positions of shape {positions.shape}; expected [frames, robots, 2]")
    for metric, values in recording.metrics.items():
        if values.shape != positions.shape[:1]:
            raise MastError(f"{name} has {len(values)} values of {metric} for {len(positions)} frames")
    check_finite(recording, {"positions": positions, **recording.metrics})
    check_positive(recording, {"dt": recording.dt, "width": recording.width})
    _check_known(recording)


def check_finite(recording: Recording, arrays: dict[str, np.ndarray]) -> None:
    """Raise a MastError that names the first array with a number that is not finite."""
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise MastError(f"the recording of {recording.policy} has {name} that are not finite numbers; record again")


def check_positive(recording: Recording, lengths: dict[str, Any]) -> None:
    """Raise a MastError that names the first length or time that is not a positive number."""
    for name, value in lengths.items():
        if value is None or not 0 < value < np.inf:
            raise MastError(f"the recording of {recording.policy} has {name} = {value}; expected a positive number")


def duration(recording: Recording) -> float:
    """Seconds from the first frame to the last."""
    return (len(recording.positions) - 1) * recording.dt


def frame_at(recording: Recording, t: float) -> int:
    """The frame nearest to time `t` (s); a time outside the recording is an error."""
    last = len(recording.positions) - 1
    index = round(t / recording.dt) if np.isfinite(t) else -1
    if not 0 <= index <= last:
        raise MastError(f"no frame at t = {t} s: the recording of {recording.policy} has 0..{duration(recording):g} s")
    return index


def mark_size(recording: Recording, things: int, points_per_metre: float) -> float:
    """Points across a mark: smaller as the picture fills, so that 1000 robots stay apart."""
    spacing = recording.width / np.sqrt(things) * points_per_metre
    return float(np.clip(0.16 * spacing, 1.8, 6.0))
