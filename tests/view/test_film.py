"""Moving pictures: read again by Pillow and PyAV."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mast_swarm
from mast_swarm.errors import MastError
from mast_swarm.view.film import film


@pytest.fixture(scope="module")
def recordings() -> list[mast_swarm.Recording]:
    world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=8))
    return [
        mast_swarm.rollout(world, policy, [3], steps, record=1).recordings[0]
        for policy, steps in (("lsap", 12), ("dhba-0", 6))
    ]


def test_a_gif_moves(recordings: list[mast_swarm.Recording], tmp_path: Path) -> None:
    path = film(recordings, tmp_path / "one.gif")
    with Image.open(path) as picture:
        assert getattr(picture, "n_frames", 1) >= 13  # every step, and the end for a while
        first = np.asarray(picture.convert("RGB")).astype(int)
        picture.seek(12)
        last = np.asarray(picture.convert("RGB")).astype(int)
    assert first.shape[1] > 1.7 * first.shape[0]  # side by side
    assert (np.abs(first - last).max(-1) > 60).mean() > 0.002


def test_long_names_are_not_cut(recordings: list[mast_swarm.Recording], tmp_path: Path) -> None:
    long = "a_very_long_folder_name_of_a_policy_that_was_trained_on_a_tuesday"
    named = [replace(recordings[0], policy=long), *recordings[1:]]
    with Image.open(film(named, tmp_path / "long.gif")) as picture:
        shown = np.asarray(picture.convert("L"))
    assert (shown[:, :2] > 230).all() and (shown[-2:] > 230).all()
    middle = shown.shape[1] // 2
    assert (shown[-60:, middle - 4 : middle + 4] > 230).all()  # the other one's name is apart from it


def test_an_mp4_is_as_long_as_it_should_be(recordings: list[mast_swarm.Recording], tmp_path: Path) -> None:
    av = pytest.importorskip("av")
    with av.open(str(film(recordings, tmp_path / "one.mp4"))) as file:
        assert sum(1 for _ in file.decode(video=0)) == 13


def test_a_png_is_the_grid_of_pictures(recordings: list[mast_swarm.Recording], tmp_path: Path) -> None:
    with Image.open(film(recordings, tmp_path / "one.png")) as picture:
        assert min(picture.size) > 500


@pytest.mark.parametrize(("name", "told"), [("one.avi", "endings .gif, .mp4, .png"), ("there.gif", "already there")])
def test_bad_paths_are_told(name: str, told: str, recordings: list[mast_swarm.Recording], tmp_path: Path) -> None:
    (tmp_path / "there.gif").write_bytes(b"kept")
    with pytest.raises(MastError, match=told):
        film(recordings, tmp_path / name)
    assert (tmp_path / "there.gif").read_bytes() == b"kept"
