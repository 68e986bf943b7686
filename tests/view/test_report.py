"""What a results folder and the terminal show, for either task."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording, recording_name
from mast_swarm.evaluate.results import episode_table, summarise
from mast_swarm.tasks.registry import find
from mast_swarm.view.choose import task_view
from mast_swarm.view.report import _line, replay_folder, report
from mast_swarm.view.terminal import result_table

EPISODES = 5


def table(recordings: list[Recording]) -> pa.Table:
    """Episodes like the recordings, each a little different."""
    parts = []
    for recording in recordings:
        keys = {"policy": recording.policy, "task": recording.task, "scenario": recording.scenario, "agents": 9}
        keys |= {"delay": None, "loss": 0.0, "seed": 0}
        episodes = [{"start": recording.scenario, "episode": e, "episode_seed": e} for e in range(EPISODES)]
        spread = 0.9 + 0.1 * np.arange(EPISODES)[:, None]
        metrics = {name: values[None] * spread for name, values in recording.metrics.items()}
        parts.append(episode_table(keys, episodes, recording.dt, metrics))
    return pa.concat_tables(parts)


def folder_of(folder: Path, recordings: list[Recording]) -> Path:
    for number, recording in enumerate(recordings):
        recording.save(folder / recording_name(number, recording.policy, 0))
    pq.write_table(table(recordings), folder / "episodes.parquet")
    return folder


def shown(recordings: list[Recording]) -> list[str]:
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(result_table(summarise(table(recordings))))
    return console.export_text().splitlines()


def test_a_coverage_folder_is_drawn(tmp_path: Path, make_cover: Callable[..., Recording]) -> None:
    recordings = [make_cover(), make_cover("d-cvt")]
    made = report(folder_of(tmp_path, recordings))
    assert {path.name for path in made.values()} >= {"curves.png", "frames.png", "replay.html"}
    assert all(made[name].stat().st_size > 10_000 for name in ("curves", "frames", "replay"))
    one = replay_folder(tmp_path, policies=["d-cvt"], out=tmp_path / "one.html")
    assert one.stat().st_size < made["replay"].stat().st_size
    with pytest.raises(MastError, match="unknown recorded policy 'd-cv': did you mean d-cvt"):
        replay_folder(tmp_path, policies=["d-cv"])


def test_curves_are_of_the_tasks_metric(
    make_cover: Callable[..., Recording], make_recording: Callable[..., Recording]
) -> None:
    for recording in (make_cover(), make_recording()):
        view = task_view(recording.task)
        t, mean, low, high = (np.asarray(part) for part in _line(table([recording]), recording.policy, view))
        np.testing.assert_allclose(t, np.arange(61) * recording.dt)
        np.testing.assert_allclose(mean, 1.1 * recording.metrics[find(recording.task).drawn.name], rtol=1e-5)
        assert (low >= 0).all() and (low[mean > 0] < mean[mean > 0]).all()
        # A cost may rise above what it was at the start, a success rate is 1 at most.
        assert high.max() > 1.2 if recording.task == "coverage" else high.max() <= 1


def test_the_terminal_shows_success_over_time(make_recording: Callable[..., Recording]) -> None:
    recording = make_recording(steps=110)
    lines = shown([recording])
    assert "success rate (mean ± 95 % interval)" in lines[0]
    assert [f"t = {t} s" in "".join(lines) for t in (0, 50, 100, 110)] == [False, True, True, True]
    assert f"{1.1 * recording.metrics['success_rate'][50]:.3f} [0.904, 1.000]" in "".join(lines)  # a rate is 1 at most


def test_the_terminal_shows_both_costs_at_the_end(make_cover: Callable[..., Recording]) -> None:
    recordings = [make_cover(), make_cover("d-cvt")]
    lines = shown(recordings)
    assert "after 60 s (mean ± 95 % interval, lower is better)" in lines[0]
    assert "cost time average" in lines[2]
    for recording in recordings:
        line = next(line for line in lines if recording.policy in line)
        values = [float(part.split()[0]) for part in line.replace("│", "|").split("|")[2:4]]
        assert values == [round(1.1 * float(recording.metrics[m][-1]), 3) for m in ("cost", "cost_time_average")]
