"""What a results folder and the terminal show, for either task."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from rich.console import Console
from rich.table import Table

from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.recording import Recording, recording_name
from mast_swarm.evaluate.results import curves, episode_table, interval, summarise
from mast_swarm.evaluate.run import evaluate
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.registry import find
from mast_swarm.view.choose import task_view
from mast_swarm.view.report import _line, _title, load_recordings, replay_folder, report
from mast_swarm.view.terminal import paired_table, result_table

EPISODES = 5


def table(recordings: list[Recording]) -> pa.Table:
    """Episodes like the recordings, each a little different."""
    parts = []
    for recording in recordings:
        keys = {"policy": recording.policy, "task": recording.task, "scenario": recording.scenario, "agents": 9}
        keys |= {"delay": recording.delay, "loss": 0.0, "seed": 0}
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


def lines_of(shown: Table) -> list[str]:
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(shown)
    return console.export_text().splitlines()


def shown(recordings: list[Recording]) -> list[str]:
    return lines_of(result_table(summarise(table(recordings))))


def row_of(lines: list[str], policy: str) -> list[str]:
    """The cells of a policy's row."""
    return (
        next(line for line in lines if f" {policy} " in line and line[0] in "│┃")
        .strip("│┃")
        .replace("│", " ")
        .replace("┃", " ")
        .split()
    )


@pytest.mark.parametrize("name", ["dhba-8-relay-explore", "train-20260101-120000/best"])
def test_names_and_numbers_stay_whole_in_a_narrow_terminal(name: str) -> None:
    told = {"task": "navigation", "delay": None, "mean": 0.5, "ci95": 0.01, "episodes": 9}
    rows = [
        {**told, "policy": policy, "metric": metric, "t": t}
        for policy in ("dhba-8-relay", name)
        for metric in ("success_rate", "collisions", "distance")
        for t in (50.0, 100.0, 200.0, 400.0, 800.0)
    ]
    out = io.StringIO()
    Console(width=80, file=out).print(result_table({"rows": rows}))
    shown = out.getvalue()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line]
    assert name in "".join(cell[0] for cell in cells) and "…" not in shown
    assert shown.count("0.500") == 10 and max(map(len, shown.splitlines())) <= 80


def test_a_coverage_folder_is_drawn(tmp_path: Path, make_cover: Callable[..., Recording]) -> None:
    recordings = [make_cover(), make_cover("d-cvt")]
    made = report(folder_of(tmp_path, recordings))
    assert {path.name for path in made.values()} >= {"curves.png", "frames.png", "replay.html"}
    assert all(made[name].stat().st_size > 10_000 for name in ("curves", "frames", "replay"))
    one = replay_folder(tmp_path, policies=["d-cvt"], out=tmp_path / "one.html")
    assert one.stat().st_size < made["replay"].stat().st_size
    with pytest.raises(MastError, match="unknown recorded policy 'd-cv': did you mean d-cvt"):
        replay_folder(tmp_path, policies=["d-cv"])


def test_curves_say_who_hears_late(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[list[str], str]] = []
    monkeypatch.setattr(
        "mast_swarm.view.report.metric_curves", lambda lines, path, *, title, **_: drawn.append((list(lines), title))
    )
    for number, policies in enumerate((["dhba-2", "dhba-2-relay"], ["dhba-2-relay"], ["dhba-2"])):
        out = tmp_path / str(number)
        world = NavigationConfig(agents=10)
        evaluate("navigation", EvaluateConfig(world, tuple(policies), 1, 3, delay=1.0, loss=0.25, out=out))
        report(out)
    both, late, soon = drawn
    assert both[0] == ["dhba-2 (no delay)", "dhba-2-relay (delay 1 s per hop)"] and "delay" not in both[1]
    assert late[0] == ["dhba-2-relay"] and late[1].endswith("\ndelay 1 s per hop, loss 0.25 per link and hop")
    assert soon[0] == ["dhba-2"] and "\n" not in soon[1]


def test_one_robot_is_one(tmp_path: Path) -> None:
    folder, _ = evaluate("navigation", policy="dhba-1", agents=1, episodes=1, steps=2, record=1, out=tmp_path / "one")
    assert _title(pq.read_table(folder / "episodes.parquet")) == "navigation: clusters, 1 robot, 1 start state"
    one = load_recordings(folder)[0]
    assert "1 robot" in task_view("navigation").embedded(one)["facts"]


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
    assert f"{1.1 * recording.metrics['success_rate'][50]:.3f} ± " in "".join(lines)
    assert "the interval of a rate ends at 0 and at 1" in lines[-1]


def test_the_terminal_shows_both_costs_at_the_end(make_cover: Callable[..., Recording]) -> None:
    recordings = [make_cover(), make_cover("d-cvt")]
    lines = shown(recordings)
    assert "after 60 s (mean ± 95 % interval, lower is better)" in lines[0]
    assert "cost time average" in lines[2]
    for recording in recordings:
        line = next(line for line in lines if recording.policy in line)
        values = [float(part.split()[0]) for part in line.replace("│", "|").split("|")[2:4]]
        assert values == [round(1.1 * float(recording.metrics[m][-1]), 3) for m in ("cost", "cost_time_average")]


def test_the_terminal_shows_delays_where_anybody_sends_messages(make_recording: Callable[..., Recording]) -> None:
    late, at_once = make_recording(policy="mast-m", delay=0.5), make_recording(policy="dhba-8")
    lines = shown([late, at_once])
    assert row_of(lines, "policy")[1] == "delay"
    assert row_of(lines, "mast-m")[1:3] == ["0.5", "s"] and row_of(lines, "dhba-8")[1] == "none"
    for alike in ([late, make_recording(delay=0.5)], [make_recording(delay=0.0), at_once]):
        assert row_of(shown(alike), "policy")[1] == "delay"
    assert "delay" not in "".join(shown([at_once, make_recording()]))


def test_the_terminal_shows_differences_on_the_same_start_states(make_recording: Callable[..., Recording]) -> None:
    recordings = [make_recording(policy=policy, steps=110) for policy in ("mast-m", "dhba-8", "lsap")]
    recordings[1].metrics["success_rate"] = recordings[0].metrics["success_rate"] * 0.5
    measured = table(recordings)
    found = paired_table(summarise(measured))
    assert found is not None
    lines = lines_of(found)
    assert "policy minus mast-m, same start states" in lines[0] and "significant where 0 is outside" in lines[-1]
    assert not any("│ mast-m" in line for line in lines)
    # The instants of the table above, and the difference episode by episode.
    assert [f"t = {t} s" in "".join(lines) for t in (0, 50, 100, 110)] == [False, True, True, True]
    one, other = (curves(measured, policy, "success_rate")[1][:, 50] for policy in ("mast-m", "dhba-8"))
    mean, half = interval(other - one)
    assert row_of(lines, "dhba-8")[1:4] == [f"{mean:+.3f}", "±", f"{half:.3f}"] and mean < 0
    assert row_of(lines, "lsap")[1:4] == ["+0.000", "±", "0.000"]


def test_differences_need_two_policies_and_two_start_states(make_recording: Callable[..., Recording]) -> None:
    two = table([make_recording(), make_recording(policy="dhba-8")])
    assert paired_table(summarise(table([make_recording()]))) is None
    assert paired_table(summarise(two.filter(pc.less(two["episode"], 1)))) is None
    few = paired_table(summarise(two.filter(pc.less(two["episode"], 2))))  # too few for an interval
    assert few is not None and few.caption == "mean" and "±" not in "".join(lines_of(few))
