"""The replay file: what is embedded is what was recorded, and nothing points outside."""

from __future__ import annotations

import base64
import dataclasses
import json
import re
import subprocess
import sys
import zlib
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.view.packing import Ruler, from_one
from mast_swarm.view.replay import write_replay

MakeRecording = Callable[..., Recording]


class Page(HTMLParser):
    """The text of the data element, the page's title, and every address an attribute holds."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.data = self.title = ""
        self.addresses: list[str] = []
        self.inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.inside = "data" if given.get("id") == "mast-data" else tag
        self.addresses += [given[name] or "" for name in ("src", "href", "action", "poster") if name in given]

    def handle_endtag(self, tag: str) -> None:
        self.inside = ""

    def handle_data(self, data: str) -> None:
        if self.inside == "data":
            self.data += data
        elif self.inside == "title":
            self.title += data


def unpacked(entry: dict[str, Any]) -> np.ndarray:
    raw = zlib.decompress(base64.b64decode(entry["data"]))
    stored = np.frombuffer(raw, np.dtype(entry["dtype"]).newbyteorder("<")).reshape(entry["shape"])
    values = stored.astype(entry["dtype"])
    return np.cumsum(values, axis=0, dtype=values.dtype) if entry["delta"] else values


def embedded(path: Path) -> list[dict[str, Any]]:
    return json.loads(Page(path.read_text(encoding="utf-8")).data)["recordings"]


def assert_holds(packed: dict[str, Any], recording: Recording) -> None:
    arrays = {name: unpacked(entry) for name, entry in packed["arrays"].items()}
    half = packed["unit"] / 2 * 1.001
    goals, success_rate = recording.scene["goals"], recording.metrics["success_rate"]
    for name, points in (("positions", recording.positions), ("goals", goals)):
        metres = arrays[name] * packed["unit"] + np.array(packed["origin"])
        np.testing.assert_allclose(metres, points, rtol=0, atol=half)
    for name in ("neighbours", "goals_seen"):
        np.testing.assert_array_equal(arrays[name].astype(int) - 1, recording.frames[name])
    np.testing.assert_array_equal(arrays["success_rate"], success_rate)
    bits = np.unpackbits(arrays["reached"], axis=1, count=len(goals), bitorder="little")
    np.testing.assert_allclose(bits.mean(axis=1), success_rate, atol=1e-6)
    for name in ("policy", "dt", "width", "attention_radius"):
        assert packed[name] == getattr(recording, name)
    assert packed["success_radius"] == recording.settings["success_radius"]
    assert packed["metric"]["name"] == "success_rate"


def test_round_trip(tmp_path: Path, make_recording: MakeRecording) -> None:
    recordings = [make_recording(), make_recording(policy="dhba-4", delay=0.5, attention_radius=None)]
    path = write_replay(tmp_path / "replay.html", recordings, title="Two policies")
    packed = embedded(path)
    assert len(packed) == 2
    for one, recording in zip(packed, recordings, strict=True):
        assert_holds(one, recording)
    assert packed[0]["facts"] == ["navigation", "clusters", "30 robots", "seed 0", "no delay"]
    assert packed[1]["facts"][-1] == "delay 0.5 s per hop"
    assert [file.name for file in tmp_path.iterdir()] == ["replay.html"]


@settings(deadline=None, max_examples=25)
@given(
    robots=st.integers(1, 12),
    steps=st.integers(0, 5),
    seed=st.integers(0, 1000),
    scale=st.floats(0.01, 1e5),
    offset=st.floats(-1e5, 1e5),
)
def test_any_world_fits(
    tmp_path_factory: pytest.TempPathFactory,
    make_recording: MakeRecording,
    robots: int,
    steps: int,
    seed: int,
    scale: float,
    offset: float,
) -> None:
    recording = make_recording(robots=robots, steps=steps, seed=seed)
    moved = dataclasses.replace(
        recording,
        positions=(recording.positions.astype(float) * scale + offset).astype(np.float32),
        scene={"goals": (recording.scene["goals"].astype(float) * scale + offset).astype(np.float32)},
    )
    goals = moved.scene["goals"]
    # The share of goals reached changes with the scale, so it is counted again here.
    distance = np.linalg.norm(moved.positions[:, :, None].astype(float) - goals, axis=-1).min(axis=1)
    rate = (distance < 5).mean(axis=1).astype(np.float32)
    moved = dataclasses.replace(moved, metrics={"success_rate": rate})
    path = write_replay(tmp_path_factory.mktemp("replay") / "replay.html", [moved])
    packed = embedded(path)[0]
    assert_holds(packed, moved)
    points = np.concatenate([moved.positions.reshape(-1, 2), goals]).astype(float)
    assert packed["unit"] <= max(0.1, np.ptp(points, axis=0).max() / 65533)


def test_many_robots_take_wider_indices() -> None:
    index = np.array([[-1, 65534]])
    assert from_one(index, 65535).dtype == np.uint16
    assert from_one(index, 65536).dtype == np.uint32
    np.testing.assert_array_equal(from_one(index, 65535).astype(int) - 1, index)


def test_nothing_points_outside(tmp_path: Path, make_recording: MakeRecording) -> None:
    text = write_replay(tmp_path / "replay.html", [make_recording()]).read_text(encoding="utf-8")
    assert all(address.startswith("data:") for address in Page(text).addresses)
    code = text.replace(Page(text).data, "")
    assert not re.search(r"https?:|//cdn|url\(|@import|fetch\(|XMLHttpRequest|WebSocket|import\(", code)
    assert "{{" not in code


def test_text_in_the_data_stays_text(tmp_path: Path, make_recording: MakeRecording) -> None:
    name = "</script><script>alert(1)</script> {{title}} & <b>"
    path = write_replay(tmp_path / "replay.html", [make_recording(policy=name)], title=name)
    text = path.read_text(encoding="utf-8")
    assert embedded(path)[0]["policy"] == name
    assert Page(text).title == name
    assert text.count("</script>") == 2


def test_the_data_is_small(tmp_path: Path, make_recording: MakeRecording) -> None:
    recording = make_recording(robots=100, steps=200)
    path = write_replay(tmp_path / "replay.html", [recording])
    raw = recording.positions.nbytes + sum(values.nbytes for values in recording.frames.values())
    assert path.stat().st_size < raw / 4


def test_an_infinite_window_is_none(tmp_path: Path, make_recording: MakeRecording) -> None:
    path = write_replay(tmp_path / "replay.html", [make_recording(attention_radius=float("inf"))])
    assert embedded(path)[0]["attention_radius"] is None


def changed(recording: Recording, **change: Any) -> Recording:
    """A recording with a field replaced, or an entry of one of its groups."""
    for group in ("settings", "metrics", "frames", "scene"):
        before = getattr(recording, group)
        after = {name: change.pop(name, value) for name, value in before.items()}
        recording = dataclasses.replace(recording, **{group: after})
    return dataclasses.replace(recording, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": np.full((61, 30, 2), np.nan, np.float32)}, "positions that are not finite"),
        ({"positions": np.zeros((61, 30, 3), np.float32)}, "positions of shape"),
        ({"goals": np.zeros((0, 2), np.float32)}, "goals of shape"),
        ({"goals": np.full((30, 2), np.inf, np.float32)}, "goals that are not finite"),
        ({"neighbours": np.full((61, 30, 3), 30, np.int32)}, "neighbours outside -1..29"),
        ({"goals_seen": np.zeros((61, 29, 3), np.int32)}, "goals_seen of shape"),
        ({"success_rate": np.zeros(60, np.float32)}, "60 values of success_rate for 61 frames"),
        ({"dt": 0.0}, "dt = 0.0"),
        ({"success_radius": None}, "success_radius = None"),
        ({"scene": {}}, "has no goals"),
        ({"metrics": {}}, "has no success_rate"),
        ({"task": "chess"}, "unknown task 'chess'"),
    ],
)
def test_a_bad_recording_is_named_and_leaves_no_file(
    tmp_path: Path, make_recording: MakeRecording, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(MastError, match=message):
        write_replay(tmp_path / "replay.html", [changed(make_recording(), **change)])
    assert not list(tmp_path.iterdir())


def test_no_recordings_and_no_folder(tmp_path: Path, make_recording: MakeRecording) -> None:
    with pytest.raises(MastError, match="at least one recording"):
        write_replay(tmp_path / "replay.html", [])
    with pytest.raises(MastError, match="cannot write"):
        write_replay(tmp_path / "missing" / "replay.html", [make_recording()])


def test_a_failed_write_keeps_the_old_file(
    tmp_path: Path, make_recording: MakeRecording, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_replay(tmp_path / "replay.html", [make_recording()])
    before = path.read_bytes()

    def full(self: Path, text: str, encoding: str) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(MastError, match="No space left"):
        write_replay(path, [make_recording(seed=1)])
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_importing_the_views_does_not_import_matplotlib() -> None:
    code = "import sys, mast_swarm.view.plots, mast_swarm.view.replay; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_coverage_round_trip(tmp_path: Path, make_cover: MakeRecording) -> None:
    recording = make_cover("d-cvt")
    path = write_replay(tmp_path / "replay.html", [recording])
    packed = embedded(path)[0]
    arrays = {name: unpacked(entry) for name, entry in packed["arrays"].items()}
    assert packed["unit"] == pytest.approx(0.1)
    metres = arrays["positions"] * packed["unit"] + np.array(packed["origin"])
    np.testing.assert_allclose(metres, recording.positions, rtol=0, atol=0.051)
    np.testing.assert_array_equal(arrays["density"], recording.scene["density"])
    np.testing.assert_array_equal(arrays["seen_at"].astype(int) - 1, recording.scene["seen_at"])
    for name in ("cost", "cost_time_average"):
        np.testing.assert_array_equal(arrays[name], recording.metrics[name])
    for name in ("communication_range", "sensor", "resolution"):
        assert packed[name] == recording.settings[name]
    assert packed["facts"] == ["coverage", "gaussians", "12 robots", "512 m", "seed 0", "no delay"]
    short = dataclasses.replace(recording, dt=0.2, scenario="points:/somewhere/far/signals.geojson")
    packed = embedded(write_replay(path, [short]))[0]
    assert packed["unit"] == pytest.approx(0.02)  # so that speeds hold to 0.1 m/s at any rate of control
    assert packed["facts"][1] == "points of signals.geojson"


@given(side=st.floats(0.01, 1e5), dt=st.sampled_from([0.01, 0.1, 1.0]), seed=st.integers(0, 99))
def test_positions_are_as_fine_as_the_world_is_small(side: float, dt: float, seed: int) -> None:
    points = np.random.default_rng(seed).uniform(-side, side, (50, 2))
    ruler = Ruler(dt, points)
    found = ruler.origin + ruler.unit * ruler.measured(points).astype(float)
    extent = np.ptp(points, axis=0).max()
    assert np.abs(found - points).max() <= max(min(0.05 * dt, extent / 8000), extent / 2**16) * 1.01
