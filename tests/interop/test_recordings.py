"""Recordings as MCAP and RRD files, read back by the libraries of these formats."""

from __future__ import annotations

import json
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mcap")
pytest.importorskip("rerun")

from mcap.reader import make_reader

import mast_swarm
from mast_swarm import Recording, rollout
from mast_swarm.errors import MastError
from mast_swarm.interop.mcap import SCHEMAS
from mast_swarm.interop.recordings import export, links, points
from shared import mast, one_line
from strolling import own_tasks, strolling


def chunks(path: Path) -> dict[str, list[Any]]:
    """What Rerun's own reader finds of each entity, Arrow tables."""
    from rerun.chunk import RrdReader

    found: dict[str, list[Any]] = defaultdict(list)
    for chunk in RrdReader(path).stream():
        found[chunk.entity_path].append(chunk.to_record_batch())
    return found


def column(batches: list[Any], name: str) -> list[Any]:
    """A column over all tables that have it."""
    return [value for batch in batches if name in batch.schema.names for value in batch.column(name).to_pylist()]


def messages(path: Path) -> dict[str, list[tuple[float, dict[str, Any]]]]:
    """Seconds and content of what MCAP's own reader finds, by topic."""
    found: dict[str, list[tuple[float, dict[str, Any]]]] = defaultdict(list)
    with path.open("rb") as file:
        for schema, channel, message in make_reader(file, validate_crcs=True).iter_messages():
            assert channel.message_encoding == "json" and schema is not None and schema.encoding == "jsonschema"
            assert json.loads(schema.data) == SCHEMAS[schema.name]
            found[channel.topic].append((message.log_time / 1e9, json.loads(message.data)))
    return found


@pytest.fixture(scope="module")
def recorded() -> Iterator[dict[str, Recording]]:
    with own_tasks():
        task = mast_swarm.register(strolling())
        made = {
            "navigation": rollout(
                mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=6)), "dhba-1", [3], 4, record=1
            ),
            "coverage": rollout(
                mast_swarm.Coverage(mast_swarm.CoverageConfig(agents=3, side=256.0)), "d-cvt", [3], 4, record=1
            ),
            "strolling": rollout(task.make(), "inwards", [3], 4, record=1),
        }
        yield {name: run.recordings[0] for name, run in made.items()}


@pytest.fixture(params=["navigation", "coverage", "strolling"])
def recording(request: pytest.FixtureRequest, recorded: dict[str, Recording]) -> Recording:
    return recorded[request.param]


def test_mcap_holds_all_of_a_recording(recording: Recording, tmp_path: Path) -> None:
    path = export([recording], tmp_path / "one.mcap")
    found, name = messages(path), recording.policy
    times = np.arange(5) * recording.dt
    for topic in ("robots", "metrics", "view", *(f"frames/{what}" for what in recording.frames)):
        np.testing.assert_allclose([t for t, _ in found[f"/{name}/{topic}"]], times, atol=1e-9)
    told = np.array([said["positions"] for _, said in found[f"/{name}/robots"]])
    np.testing.assert_array_equal(told.astype(np.float32), recording.positions)
    for metric, values in recording.metrics.items():
        measured = np.array([said[metric] for _, said in found[f"/{name}/metrics"]], dtype=np.float32)
        np.testing.assert_array_equal(measured, values)
    for group in ("frames", "scene"):
        for what, values in getattr(recording, group).items():
            said = [message["values"] for _, message in found[f"/{name}/{group}/{what}"]]
            np.testing.assert_array_equal(np.array(said if group == "frames" else said[0]), values)
    with path.open("rb") as file:
        reader = make_reader(file)
        about = {record.name: record.metadata for record in reader.iter_metadata()}[name]
        statistics = reader.get_summary().statistics
    assert statistics.message_count == sum(map(len, found.values()))
    assert json.loads(about["task"]) == recording.task and json.loads(about["seed"]) == 3
    assert json.loads(about["settings"]).keys() == recording.settings.keys()


def test_foxglove_is_shown_robots_links_and_places(recorded: dict[str, Recording], tmp_path: Path) -> None:
    recording = recorded["navigation"]
    found = messages(export([recording], tmp_path / "one.mcap"))["/dhba-1/view"]
    pairs = links(recording)
    assert pairs is not None
    for index, (t, update) in enumerate(found):
        entities = {entity["id"]: entity for entity in update["entities"]}
        assert set(entities) == ({"robots", "links", "goals"} if index == 0 else {"robots", "links"})
        places = [sphere["pose"]["position"] for sphere in entities["robots"]["spheres"]]
        np.testing.assert_allclose([[p["x"], p["y"]] for p in places], recording.positions[index])
        assert len(entities["links"]["lines"][0]["points"]) == 2 * len(pairs[index])
        assert entities["robots"]["timestamp"]["sec"] == int(t)


def test_rerun_reads_it_back(recording: Recording, tmp_path: Path) -> None:
    path = export([recording], tmp_path / "one.rrd")
    found, name = chunks(path), f"/{recording.policy}"
    told = np.array(column(found[f"{name}/robots"], "Points3D:positions")).reshape(5, -1, 3)
    np.testing.assert_array_equal(told[..., :2].astype(np.float32), recording.positions)
    assert not told[..., 2].any()
    seconds = [t.total_seconds() for t in column(found[f"{name}/robots"], "time")]
    np.testing.assert_allclose(seconds, np.arange(5) * recording.dt, atol=1e-6)
    for metric, values in recording.metrics.items():
        measured = np.array(column(found[f"{name}/metrics/{metric}"], "Scalars:scalars"))
        np.testing.assert_array_equal(measured[:, 0].astype(np.float32), values)
    for what, values in points(recording).items():
        (places,) = column(found[f"{name}/scene/{what}"], "Points3D:positions")
        np.testing.assert_array_equal(np.array(places, dtype=np.float32)[:, :2], values)
    assert {f"{name}/scene/{what}" for what in recording.scene} <= set(found)
    pairs = links(recording)
    assert (f"{name}/links" in found) == (pairs is not None)
    if pairs is not None:
        strips = column(found[f"{name}/links"], "LineStrips3D:strips")
        assert [len(each or ()) for each in strips] == [len(each) for each in pairs]
    (about,) = column(found[f"{name}/about"], "TextDocument:text")
    assert json.loads(about[0])["task"] == recording.task


def test_links_are_those_of_the_world(recorded: dict[str, Recording]) -> None:
    world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=6))
    start = world.observe(world.reset([3])).graph.adjacency()[0].numpy()
    found = links(recorded["navigation"])
    assert found is not None and found[0].tolist() == np.argwhere(np.triu(start | start.T, 1)).tolist()
    recording = recorded["strolling"]
    found = links(recording)
    assert found is not None
    for index, pairs in enumerate(found):
        away = np.linalg.norm(recording.positions[index][:, None] - recording.positions[index], axis=-1)
        assert pairs.tolist() == np.argwhere(np.triu(away < 150.0, 1)).tolist()
    assert links(recorded["coverage"]) is None  # it keeps positions alone


@pytest.mark.parametrize("ending", ["mcap", "rrd"])
def test_from_the_command_line(ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = shlex.split("navigation --agents 5 --episodes 1 --steps 3 --record 1 --device cpu --policy dhba-0 lsap")
    assert mast("evaluate", *given, "--out", tmp_path / "run") == 0
    out = tmp_path / f"team.{ending}"
    assert mast("replay", tmp_path / "run", "--out", out) == 0
    assert f"replay: {out}" in capsys.readouterr().out
    found = messages(out) if ending == "mcap" else chunks(out)
    assert {"/dhba-0/robots", "/lsap/robots"} <= set(found)
    assert mast("replay", tmp_path / "run", "--out", out) == 2
    assert "is already there" in one_line(capsys)
    assert mast("replay", tmp_path / "run", "--policy", "lsap", "--out", tmp_path / f"lsap.{ending}") == 0


def test_bad_input_is_one_clear_line(
    recorded: dict[str, Recording], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = recorded["navigation"]
    with pytest.raises(MastError, match=r"cannot export to x\.bag: give it one of the endings \.mcap, \.rrd"):
        export([one], tmp_path / "x.bag")
    with pytest.raises(MastError, match="nothing to export"):
        export([], tmp_path / "x.mcap")
    assert set(messages(export([one, one], tmp_path / "two.mcap"))) >= {"/dhba-1/robots", "/dhba-1-2/robots"}
    for module, ending, extra in (("mcap.writer", "mcap", "mcap"), ("rerun", "rrd", "rerun")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(MastError, match=rf"pip install 'mast-swarm\[{extra}\]'"):
            export([one], tmp_path / f"x.{ending}")
        assert not (tmp_path / f"x.{ending}").exists()
