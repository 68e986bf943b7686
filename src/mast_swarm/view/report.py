"""What a results folder shows: curves, pictures and a replay, made from the files in it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq

from mast_swarm.errors import MastError, unknown
from mast_swarm.evaluate.recording import Recording
from mast_swarm.evaluate.results import curves, interval
from mast_swarm.view.plots import frames, success_curves
from mast_swarm.view.replay import write_replay


def report(folder: Path) -> dict[str, Path]:
    """Draw what can be drawn; what each file is -> its path."""
    made = {"tables": folder / "episodes.parquet", "summary": folder / "summary.json"}
    table = pq.read_table(folder / "episodes.parquet")
    lines = {}
    for policy in dict.fromkeys(table["policy"].to_pylist()):
        t, values = curves(table, policy, "success_rate")
        means, halves = zip(*(interval(values[:, i]) for i in range(len(t))), strict=True)
        lines[policy] = (t, *_band(means, halves))
    made["curves"] = success_curves(lines, folder / "curves.png")
    if any(folder.glob("recording-*.npz")):
        recordings = _recordings(folder, 0, ())
        made["frames"] = frames(recordings[0], folder / "frames.png")
        made["replay"] = replay_folder(folder)
    return made


def replay_folder(folder: Path, episode: int = 0, policies: Sequence[str] = (), out: Path | None = None) -> Path:
    """Write the HTML replay of one recorded episode, all recorded policies side by side or those named."""
    path = out or folder / "replay.html"
    write_replay(path, _recordings(folder, episode, policies))
    return path


def _recordings(folder: Path, episode: int, policies: Sequence[str]) -> list[Recording]:
    if not folder.is_dir():
        raise MastError(f"{folder} is no folder: give one that `mast evaluate ... --record N` wrote")
    found = sorted(folder.glob(f"recording-*-{episode:03d}.npz"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        kept = sorted({int(path.stem.rsplit("-", 1)[1]) for path in folder.glob("recording-*-*.npz")})
        raise MastError(f"{folder} has no recording of episode {episode}; recorded: {kept or 'none (use --record)'}")
    loaded = {recording.policy: recording for recording in map(Recording.load, found)}
    for name in policies:
        if name not in loaded:
            raise unknown("recorded policy", name, loaded)
    return [loaded[name] for name in policies or loaded]


def _band(means: Sequence[float], halves: Sequence[float]) -> tuple[list[float], list[float], list[float]]:
    """Mean, low and high of a 95 % band."""
    pairs = list(zip(means, halves, strict=True))
    return [m for m, _ in pairs], [m - h for m, h in pairs], [m + h for m, h in pairs]
