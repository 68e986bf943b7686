"""The view of coverage: cells, links and what was seen are right, and the page holds what was recorded."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from PIL import Image

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.tasks.coverage.view import cells, links, seen_by, shaded
from mast_swarm.tasks.registry import find, names
from mast_swarm.view.choose import task_view
from mast_swarm.view.plots import frame, frames
from mast_swarm.view.replay import write_replay
from mast_swarm.view.style import DENSITY, SCENE

MakeCover = Callable[..., Recording]
SIDE = 100.0  # m


def test_every_task_has_a_view_and_a_painter() -> None:
    for name in names():
        view = task_view(name)
        assert view.metric is find(name).drawn
        package, file = view.script.split(":")
        assert (resources.files(package) / file).is_file()


points = st.lists(st.tuples(*[st.integers(0, 40)] * 2), min_size=1, max_size=12).map(lambda at: np.array(at) * 2.5)


@settings(deadline=None, max_examples=60)
@given(robots=points)
def test_cells_share_out_the_world(robots: np.ndarray) -> None:
    """At no corner of a cell is another robot nearer, and the cells fill the world; on its edge and on one spot too."""
    found = cells(robots.astype(np.float32), SIDE)
    assert len(found) == len(robots)
    total = 0.0
    for robot, corners in zip(robots, found, strict=True):
        far = np.linalg.norm(corners[:, None] - robots, axis=-1)
        assert (np.linalg.norm(corners - robot, axis=1) <= far.min(axis=1) + 1e-6).all()
        (x, y), (next_x, next_y) = corners.T, np.roll(corners, -1, axis=0).T
        total += (x * next_y - next_x * y).sum() / 2 / (robots == robot).all(axis=1).sum()
    assert total == pytest.approx(SIDE**2)


def test_links_join_robots_that_hear_each_other(make_cover: MakeCover) -> None:
    recording = make_cover()
    robots = recording.positions[30].astype(np.float64)
    apart = np.linalg.norm(robots[:, None] - robots, axis=-1)
    pairs = np.argwhere(np.triu(apart < recording.settings["communication_range"], 1))
    assert 0 < len(pairs) < len(robots) * (len(robots) - 1) / 2
    found = {tuple(np.sort(pair, axis=0).ravel()) for pair in links(recording, 30)}
    assert found == {tuple(np.sort(recording.positions[30][pair], axis=0).ravel()) for pair in pairs}


def test_a_picture_is_in_colour_where_the_team_has_been(make_cover: MakeCover) -> None:
    recording = make_cover()
    shares = []
    for index in (0, 10, 60):
        known, picture = seen_by(recording, index), shaded(recording, index)
        np.testing.assert_array_equal(
            picture[..., 0] > picture[..., 2], known
        )  # amber, or a grey that is a little blue
        shares.append(known.mean())
    assert 0 < shares[0] < shares[1] < shares[2] < 1
    top = np.unravel_index(recording.scene["density"].argmax(), recording.scene["density"].shape)
    expected = DENSITY["density_high" if seen_by(recording, 60)[top] else "hidden_high"]
    np.testing.assert_allclose(shaded(recording, 60)[top], to_rgb(expected), atol=1e-6)


def test_frames_show_the_start_the_way_and_the_end(tmp_path: Path, make_cover: MakeCover) -> None:
    recordings = [make_cover(), make_cover("d-cvt")]
    assert task_view("coverage").times(recordings[0]) == [0.0, 12.0, 60.0]
    image = np.asarray(Image.open(frames(recordings, tmp_path / "grid.png")).convert("RGB")).astype(int)
    assert image.shape[:2] == pytest.approx(((2 * 3.6 + 0.4) * 160, (3 * 3.3 + 0.1) * 160), abs=1)
    for colour in (SCENE["robot"], DENSITY["hidden_low"]):
        wanted = np.rint(np.array(to_rgb(colour)) * 255)
        assert (np.abs(image - wanted).max(axis=2) <= 3).sum() > 500
    one, other = (np.asarray(Image.open(frame(recordings[0], t, tmp_path / f"{t}.png"))) for t in (0, 60))
    assert (one != other).any()


def test_one_robot_can_be_drawn(tmp_path: Path, make_cover: MakeCover) -> None:
    frame(make_cover(robots=1, steps=1), 0, tmp_path / "one.svg")
    assert "<svg" in (tmp_path / "one.svg").read_text()
    write_replay(tmp_path / "one.html", [make_cover(robots=1, steps=1)])


@pytest.mark.parametrize(
    ("scene", "message"),
    [
        ({"density": np.ones((8, 9), np.uint8)}, r"density that is uint8 of shape \(8, 9\)"),
        ({"density": np.ones((128, 128), np.float32)}, "density that is float32"),
        ({"density": np.zeros((128, 128), np.uint8)}, "not all 0"),
        ({"seen_at": np.zeros((64, 64), np.int32)}, r"seen_at of shape \(64, 64\)"),
        ({"seen_at": np.full((128, 128), 61, np.int32)}, r"expected one of -1\.\.60 a pixel"),
    ],
)
def test_a_bad_recording_is_named_and_leaves_no_file(
    tmp_path: Path, make_cover: MakeCover, scene: dict[str, Any], message: str
) -> None:
    recording = make_cover()
    with pytest.raises(MastError, match=message):
        write_replay(tmp_path / "replay.html", [dataclasses.replace(recording, scene=recording.scene | scene)])
    with pytest.raises(MastError, match=message):
        frame(dataclasses.replace(recording, scene=recording.scene | scene), 0, tmp_path / "frame.png")
    assert not list(tmp_path.iterdir())


def test_tasks_are_not_mixed(tmp_path: Path, make_cover: MakeCover, make_recording: Callable[..., Recording]) -> None:
    with pytest.raises(MastError, match="recordings of coverage and navigation cannot be shown together"):
        write_replay(tmp_path / "replay.html", [make_recording(), make_cover()])
    assert not list(tmp_path.iterdir())
