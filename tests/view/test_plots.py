"""Plots: they exist, have the size asked for, and show the data (other data, other pixels)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from PIL import Image

import mast_swarm
from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.view.choose import view_of
from mast_swarm.view.plots import frame, frames, metric_curves
from mast_swarm.view.scene import channel_words
from mast_swarm.view.style import SCENE, policy_colour, policy_dash, style

MakeRecording = Callable[..., Recording]


def pixels(path: Path) -> np.ndarray:
    """[height, width, 3], 0..255."""
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def count(image: np.ndarray, colour: str) -> int:
    """Pixels that wear `colour` (a little off at most)."""
    wanted = np.rint(np.array(to_rgb(colour)) * 255)
    return int((np.abs(image - wanted).max(axis=2) <= 3).sum())


def curve(top: float, half: float = 0.03) -> tuple[np.ndarray, ...]:
    t = np.arange(201.0)
    mean = top * (1 - np.exp(-t / 40))
    return t, mean, mean - half, mean + half


def test_metric_curves_draws_a_line_and_a_band_for_each_policy(tmp_path: Path) -> None:
    curves = {"lsap": curve(1.0), "dhba-4": curve(0.8), "dhba-0": curve(0.6)}
    path = metric_curves(curves, tmp_path / "curves.png", label="success rate", title="Navigation")
    image = pixels(path)
    assert image.shape == (640, 1024, 3)
    assert all(count(image, policy_colour(number)) > 300 for number in range(3))
    assert count(image, policy_colour(3)) == 0
    narrow = pixels(
        metric_curves({k: curve(1.0, 0.001) for k in curves}, tmp_path / "narrow.png", label="success rate")
    )
    assert (image < 250).any(axis=2).sum() > (narrow < 250).any(axis=2).sum()


def test_metric_curves_takes_one_point_and_more_policies_than_colours(tmp_path: Path) -> None:
    metric_curves({"one": ([0.0], [0.5], [0.4], [0.6])}, tmp_path / "point.png", label="cost")
    many = {f"dhba-{k}": curve(0.5 + 0.04 * k) for k in range(10)}
    assert pixels(metric_curves(many, tmp_path / "many.png", label="cost")).shape == (640, 1024, 3)
    assert (policy_colour(9), policy_dash(9)) != (policy_colour(1), policy_dash(1))


LONG = "a_very_long_folder_name_of_a_policy_that_was_trained_on_a_tuesday"


@pytest.mark.parametrize("names", [[*map(str, range(13)), LONG], [f"{LONG}{number}" for number in range(8)]])
def test_a_long_legend_leaves_the_curves_their_room(names: list[str], tmp_path: Path) -> None:
    image = pixels(metric_curves({name: curve(0.9) for name in names}, tmp_path / "many.png", label="cost"))
    last = np.abs(image - np.rint(np.array(to_rgb(policy_colour(len(names) - 1))) * 255)).max(axis=2) <= 3
    drawn = np.flatnonzero(last.sum(axis=1) > 3)  # rows; in the legend those of its sample, at the bottom
    assert drawn[drawn < image.shape[0] // 2].size > 100
    assert (image[:, :2] == 255).all() and (image[:, -2:] == 255).all() and (image[-2:] == 255).all()


@pytest.mark.parametrize(
    ("curves", "message"),
    [
        ({}, "at least one policy"),
        ({"lsap": ([0, 1], [0, 1], [0], [0, 1])}, "lsap has shapes"),
        ({"lsap": ([0, 1], [0, np.nan], [0, 1], [0, 1])}, "not finite"),
    ],
)
def test_metric_curves_names_what_is_wrong(tmp_path: Path, curves: dict, message: str) -> None:
    with pytest.raises(MastError, match=message):
        metric_curves(curves, tmp_path / "curves.png", label="success rate")
    assert not list(tmp_path.iterdir())


def test_frame_shows_robots_links_and_goals_in_the_papers_colours(
    tmp_path: Path, make_recording: MakeRecording
) -> None:
    recording = make_recording(robots=60, taking_part=0.7)
    start = pixels(frame(recording, 0, tmp_path / "start.png"))
    end = pixels(frame(recording, 60, tmp_path / "end.png"))
    assert start.shape[1] == pytest.approx(5.1 * 160, abs=1)
    for name in ("robot", "link", "seen", "unseen"):
        assert count(start, SCENE[name]) > 50, name
    disk = to_hex(1 - 0.2 * (1 - np.array(to_rgb(SCENE["reached"]))))  # a fifth of the green on white
    assert count(end, disk) > 5 * count(start, disk)  # at the start, hardly more than the key
    assert (start != end).any()


def test_frames_are_a_grid_of_policies_and_times(tmp_path: Path, make_recording: MakeRecording) -> None:
    first, second = make_recording(), make_recording(taking_part=0.5, policy="dhba-0")
    short = pixels(frames(first, tmp_path / "row.png"))  # a run of 60 s has pictures at 0, 50 and 60 s
    assert short.shape[1] == pytest.approx((3 * 3.3 + 0.1) * 160, abs=1)
    grid = pixels(frames([first, second], tmp_path / "grid.png", [0, 20, 40]))
    assert grid.shape[0] == pytest.approx((2 * 3.6 + 0.4) * 160, abs=1)
    assert grid.shape[1] == pytest.approx((3 * 3.3 + 0.1) * 160, abs=1)


def test_nothing_is_cut_off(
    tmp_path: Path, make_recording: MakeRecording, make_cover: Callable[..., Recording]
) -> None:
    two = [make_recording(), make_recording(policy="two")]
    long = [make_recording(policy=LONG)]
    for number, drawn in enumerate(([make_recording()], [make_cover()], two, long)):
        for times in ([0.0], [0.0, 10.0, 20.0]):
            image = pixels(frames(drawn, tmp_path / f"{number}-{len(times)}.png", times))
            edge = (
                np.concatenate([image[:2], image[-2:]], axis=None),
                np.concatenate([image[:, :2], image[:, -2:]], axis=None),
            )
            assert all((part == 255).all() for part in edge), (number, times)


def test_one_robot_can_be_drawn(tmp_path: Path, make_recording: MakeRecording) -> None:
    frame(make_recording(robots=1), 3, tmp_path / "one.svg")
    assert "<svg" in (tmp_path / "one.svg").read_text()


def test_bad_requests_leave_nothing_behind(tmp_path: Path, make_recording: MakeRecording) -> None:
    recording = make_recording(steps=5)
    for t in (-3, 6, float("nan")):
        with pytest.raises(MastError, match="no frame at t"):
            frame(recording, t, tmp_path / "frame.png")
    with pytest.raises(MastError, match=r"one of .*png"):
        frame(recording, 0, tmp_path / "frame.xyz")
    with pytest.raises(MastError, match="at least one recording"):
        frames([], tmp_path / "frame.png")
    with pytest.raises(MastError, match="cannot write"):
        frame(recording, 0, tmp_path / "missing" / "frame.png")
    assert not list(tmp_path.iterdir())


def test_style_leaves_matplotlib_as_it_was() -> None:
    import matplotlib as mpl

    before = mpl.rcParams["axes.grid"], mpl.rcParams["legend.frameon"]
    with style():
        assert mpl.rcParams["axes.grid"] != before[0]
    assert (mpl.rcParams["axes.grid"], mpl.rcParams["legend.frameon"]) == before


def test_failed_robots_are_crossed_and_their_links_gone(tmp_path: Path) -> None:
    world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=12, scenario="circle"))
    channel = mast_swarm.Channel(delay=1.0, loss=0.25, failure=0.1)
    ran = mast_swarm.rollout(world, "dhba-1", [3], 12, channel=channel, record=1)
    recording = ran.recordings[0]
    assert (recording.loss, recording.failure) == (0.0, 0.1)  # a controller sends nothing that could be lost
    assert recording.alive(0).all() and 0 < recording.alive(12).sum() < 12
    recording.save(tmp_path / "r.npz")
    assert np.array_equal(Recording.load(tmp_path / "r.npz").alive(12), recording.alive(12))
    view = view_of([recording])
    assert view.times(recording) == [0.0, 12.0]  # it ends at the end
    figure = Figure()
    axes = figure.subplots()
    view.draw(axes, recording, 12, 0.3)
    crosses = axes.collections[-1].get_offsets()
    assert np.allclose(crosses, recording.positions[12][~recording.alive(12)])
    ends = np.concatenate([path.vertices for path in axes.collections[0].get_paths()])
    dead = {tuple(place) for place in recording.positions[12][~recording.alive(12)]}
    assert len(ends) and not any(tuple(place) in dead for place in ends.astype(np.float32))
    facts = view.embedded(recording)["facts"]
    assert "failure 0.1 per robot and step" in facts and "no delay" in facts
    assert channel_words(2.0, 0.25, 0.0) == ["delay 2 s per hop", "loss 0.25 per link and hop"]
    assert frames(recording, tmp_path / "f.png").stat().st_size > 1000
