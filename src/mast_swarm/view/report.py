"""What a results folder shows: curves, pictures and a replay, made from the files in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mast_swarm.errors import MastError, unknown
from mast_swarm.evaluate.recording import Recording
from mast_swarm.evaluate.results import curves, interval
from mast_swarm.files import read_json
from mast_swarm.tasks import registry as tasks
from mast_swarm.view.choose import task_view
from mast_swarm.view.plots import Curve, frames, metric_curves
from mast_swarm.view.replay import write_replay
from mast_swarm.view.scene import TaskView, channel_words, counted, late


def report(folder: Path) -> dict[str, Path]:
    """Draw what can be drawn; what each file is -> its path."""
    made = {"tables": folder / "episodes.parquet", "summary": folder / "summary.json"}
    table = pq.read_table(folder / "episodes.parquet")
    view = task_view(table["task"][0].as_py())
    delays = _delays(table)
    mixed = len(set(delays.values())) > 1  # then the legend says who hears late
    lines = {f"{name} ({late(delay)})" if mixed else name: _line(table, name, view) for name, delay in delays.items()}
    label = view.metric.words + (" (lower is better)" if view.metric.lower_is_better else "")
    title, limits = _title(table), view.metric.limits
    made["curves"] = metric_curves(lines, folder / "curves.png", label=label, limits=limits, title=title)
    if any(folder.glob("recording-*.npz")):
        recordings = load_recordings(folder, 0, ())
        made["frames"] = frames(recordings, folder / "frames.png")
        made["replay"] = replay_folder(folder)
    return made


def replay_folder(folder: Path, episode: int = 0, policies: Sequence[str] = (), out: Path | None = None) -> Path:
    """Write the HTML replay of one recorded episode, all recorded policies side by side or those named.

    A file that was given as `out` is never replaced; the folder's own replay.html is made anew.
    """
    if out is not None and out.exists():
        raise MastError(f"{out} is already there: give another --out")
    recordings = load_recordings(folder, episode, policies)
    *others, last = (recording.policy for recording in recordings)
    names = f"{', '.join(others)} and {last}" if others else last
    return write_replay(out or folder / "replay.html", recordings, title=f"MAST replay: {names}")


def load_recordings(folder: Path, episode: int = 0, policies: Sequence[str] = ()) -> list[Recording]:
    """The recordings of one episode in a results folder: of all policies, or of those named, in this order."""
    if not folder.is_dir():
        raise MastError(f"{folder} is no folder: give one that `mast evaluate ... --record N` wrote")
    tasks.recall(read_json(folder / "config.json") or {})
    found = sorted(folder.glob(f"recording-*-{episode:03d}.npz"))
    if not found:
        kept = sorted({path.stem.rsplit("-", 1)[1].lstrip("0") or "0" for path in folder.glob("recording-*-*.npz")})
        known = f"recorded: {', '.join(kept)}" if kept else "none was recorded, use `mast evaluate ... --record N`"
        raise MastError(f"{folder} has no recording of episode {episode}: {known}")
    loaded = {recording.policy: recording for recording in map(Recording.load, found)}
    for name in policies:
        if name not in loaded:
            raise unknown("recorded policy", name, loaded)
    return [loaded[name] for name in policies or loaded]


def _line(table: pa.Table, policy: str, view: TaskView) -> Curve:
    """The task's metric over time: t, mean, and the low and high end of its 95 % band (the mean itself if unknown)."""
    t, values = curves(table, policy, view.metric.name)
    found = [interval(values[:, index]) for index in range(len(t))]
    mean = [middle for middle, _ in found]
    half = [0.0 if width is None else width for _, width in found]
    # A success rate lies between 0 and 1, and so does its band.
    return t, mean, np.subtract(mean, half).clip(*view.metric.limits), np.add(mean, half).clip(*view.metric.limits)


def _delays(table: pa.Table) -> dict[str, float | None]:
    """Each policy, and the delay of its messages in seconds per hop; None: it sends none."""
    known = table["delay"].to_pylist() if "delay" in table.column_names else [None] * len(table)
    return dict(zip(table["policy"].to_pylist(), known, strict=True))


def _title(table: pa.Table) -> str:
    """What the episodes of a table have in common, in a line, and how robots talk and fail in a second one."""
    first = table.slice(0, 1).to_pylist()[0]
    episodes = len(pc.unique(table["episode"]))
    facts = [first["scenario"]] if "scenario" in first and tasks.find(first["task"]).starts is not None else []
    facts += [counted(first["agents"], "robot")] if "agents" in first else []
    losses, failures = (
        pc.unique(table[name]).to_pylist() if name in table.column_names else [] for name in ("loss", "failure")
    )
    delays = set(_delays(table).values())
    known = [delay for delay in delays if delay is not None]
    how = channel_words(max(known, default=None), max(losses, default=0.0), max(failures, default=0.0))
    if not known or len(delays) > 1:
        how = how[1:]  # nobody sends messages, or the legend says who does
    below = f"\n{', '.join(how)}" if how else ""
    return f"{first['task']}: {', '.join([*facts, counted(episodes, 'start state')])}{below}"
