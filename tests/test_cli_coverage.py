"""The command line for coverage: what it prints, what it leaves on disk, and what it says of bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from mast_swarm import Coverage
from shared import mast, one_line, use_zoo

CITIES = Path(__file__).parents[1] / "docs" / "cities"
WORLD = ["--agents", "4", "--side", "128", "--resolution", "4", "--sensor", "32", "--local-map", "128"]
SMALL = [*WORLD, "--episodes", "2", "--steps", "6", "--device", "cpu"]


def settings(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "config.json").read_text())


def test_evaluate_controllers_and_learned_policies(
    tmp_path: Path, coverage_zoo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    use_zoo(monkeypatch, coverage_zoo)
    policies = ["clairvoyant", "c-cvt", "d-cvt", "lpac-k3", "mast-m"]
    given = ("--policy", *policies, "--features", 7, "--delay", 1, "--dt", 1, "--record", 1, "--out", tmp_path / "r")
    assert mast("evaluate", "coverage", *SMALL, *given) == 0
    out = capsys.readouterr().out
    assert "cost" in out and "replay: " in out
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert list(dict.fromkeys(row["policy"] for row in summary["rows"])) == policies
    assert {row["metric"] for row in summary["rows"]} == {"cost", "cost_time_average"}
    assert {row["t"] for row in summary["rows"]} == {0.0, 6.0}
    assert {(row["features"], row["dt"]) for row in summary["rows"]} == {(7, 1.0)}
    assert {row["delay"] for row in summary["rows"] if row["policy"] in ("lpac-k3", "mast-m")} == {1.0}


@pytest.mark.parametrize(
    ("name", "words", "window"),
    [
        ("gridport.geojson", ["--window", "45.001,-30.002"], [45.001, -30.002]),
        ("twogrids.json", ["--window", "-25,-15"], [-25.0, -15.0]),
        ("twogrids.json", ["--window=-25.001,-15"], [-25.001, -15.0]),
        ("twogrids.json", ["--window", "-25", "-15.001"], [-25.0, -15.001]),
    ],
)
def test_a_city_around_a_place(name: str, words: list[str], window: list[float], tmp_path: Path) -> None:
    given = ("--agents", 4, "--resolution", 4, "--episodes", 1, "--steps", 2, "--policy", "d-cvt", "--device", "cpu")
    density = f"points:{CITIES / name}"
    assert mast("evaluate", "coverage", *given, *words, "--density", density, "--out", tmp_path / "r") == 0
    assert (settings(tmp_path / "r")["window"], settings(tmp_path / "r")["density"]) == (window, density)


def geojson(*geometries: dict[str, Any], **more: Any) -> str:
    features = [{"type": "Feature", "properties": {}, "geometry": geometry} for geometry in geometries]
    return json.dumps({"type": "FeatureCollection", "features": features, **more})


def point(longitude: float, latitude: float) -> dict[str, Any]:
    return {"type": "Point", "coordinates": [longitude, latitude]}


def text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content) and None


def array(values: np.ndarray) -> Callable[[Path], None]:
    return lambda path: np.save(path, values)


def picture(side: int) -> Callable[[Path], None]:
    return lambda path: Image.fromarray(np.full((side, side), 9, np.uint8)).save(path)


METRES = {"type": "name", "properties": {"name": "urn:ogc:def:crs:EPSG::32618"}}
ROAD = {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}
FILES: list[tuple[str, str, Callable[[Path], None], list[str], str]] = [
    ("raster", "zero.npy", array(np.zeros((32, 32))), [], "is zero everywhere"),
    ("raster", "negative.npy", array(np.full((32, 32), -1.0)), [], "has negative cells"),
    ("raster", "nan.npy", array(np.full((32, 32), np.nan)), [], "is not finite in 1024 of 1024 cells"),
    ("raster", "shape.npy", array(np.ones((32, 31))), [], "has shape [32, 31], expected [32, 32]"),
    ("raster", "words.npy", array(np.full((32, 32), "a")), [], "expected real numbers"),
    ("raster", "large.png", picture(33), [], "has shape [33, 33], expected [32, 32]"),
    ("raster", "no.png", text("no picture"), [], "cannot read a density from"),
    ("raster", "missing.npy", lambda path: None, [], "cannot read a density from"),
    ("raster", "empty.npy", text(""), [], "cannot read a density from"),
    ("points", "missing.csv", lambda path: None, [], "cannot read points from"),
    ("points", "empty.geojson", text(geojson()), [], "has no points: expected at least 1"),
    ("points", "road.geojson", text(geojson(point(0, 0), ROAD)), [], "has geometry of type LineString"),
    ("points", "metres.geojson", text(geojson(point(485000, 4420000))), [], "in another coordinate system; convert"),
    ("points", "named.geojson", text(geojson(point(0, 0), crs=METRES)), [], "coordinate system urn:ogc:def:crs:EPSG"),
    ("points", "short.geojson", text(geojson(point(0, 0), crs="EPSG:3857")), [], "the coordinate system EPSG:3857"),
    ("points", "count.geojson", text('{"type": "FeatureCollection", "features": 5}'), [], "are 5, expected a list"),
    ("points", "broken.geojson", text('{"type": '), [], "is not valid JSON"),
    ("points", "other.json", text('{"type": "Topology"}'), [], "found type 'Topology', expected GeoJSON points"),
    (
        "points",
        "way.json",
        text('{"elements": [{"type": "way"}]}'),
        [],
        "has a way without a place: end the query with `out center;`",
    ),
    (
        "points",
        "far.geojson",
        text(geojson(point(0, 0))),
        ["--window", "10,10"],
        "no point lies in the 128 m window",
    ),
    ("points", "wide.geojson", text(geojson(point(0, 0), point(1, 0))), [], "2 of 2 points lie outside the 128 m"),
    ("points", "out.csv", text("x,y\n5,5\n500,5\n"), [], "1 of 2 points lie outside the 128 m window"),
    ("points", "plane.csv", text("x,y\n5,5\n"), ["--window", "1,1"], "has x,y in metres: leave out --window"),
    ("points", "head.csv", text("5,5\n"), [], "line 1: expected a header"),
    ("points", "row.csv", text("x,y\n5,five\n"), [], "line 2: '5,five' has no two numbers"),
]


@pytest.mark.parametrize(("kind", "name", "write", "more", "message"), FILES, ids=[row[1] for row in FILES])
def test_a_bad_density_file_is_named_in_one_line(
    kind: str,
    name: str,
    write: Callable[[Path], None],
    more: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    write(tmp_path / name)
    density = f"{kind}:{tmp_path / name}"
    assert mast("evaluate", "coverage", *SMALL, *more, "--density", density, "--out", tmp_path / "r") == 2
    error = one_line(capsys)
    assert str(tmp_path / name) in error and message in error
    assert not (tmp_path / "r").exists()


BAD: list[tuple[list[str], str]] = [
    (["--density", "gausians"], "unknown density 'gausians': did you mean gaussians"),
    (["--density", "points"], "unknown density 'points': did you mean points:FILE"),
    (["--window", "1,1"], "window is for points on the globe"),
    (
        ["--density", "points:a.csv", "--features", "8"],
        "features is 8, but the density points:a.csv has features of its own",
    ),
    (["--density", "points:a.csv", "--window", "91,0"], "window is 91,0: give latitude (-90..90)"),
    (["--density", "points:a.csv", "--window", "nan,0"], "window is nan,0"),
    (["--policy", "lsap"], "unknown policy 'lsap': "),
    (["--policy", "coverage/mast-x"], "unknown policy 'coverage/mast-x'"),
    (["--policy", "navigation/mast-m"], "was trained for navigation, not for coverage"),
    (["--agents", "0"], "agents is 0"),
    (["--features", "0"], "features is 0"),
    (["--side", "127"], "side is 127 m: give a whole number of cells of 4 m"),
    (["--side", "nan"], "side is nan"),
    (["--dt", "0"], "dt is 0"),
    (["--sigma", "60", "40"], "sigma is drawn from 60..40"),
    (["--pixels", "64"], "local_map covers 32 x 32 cells but is observed in 64 x 64 pixels"),
    (["--delay", "-1"], "--delay is -1.0"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_bad_settings_are_one_line_and_leave_nothing(
    args: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert mast("evaluate", "coverage", *SMALL, *args, "--out", tmp_path / "r") == 2
    assert message in one_line(capsys)
    assert not any(tmp_path.iterdir())


def test_maps_that_do_not_fit_are_refused_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mast_swarm.evaluate.run.free_memory", lambda device: 1e9)
    assert mast("evaluate", "coverage", *SMALL, "--side", 40_000, "--out", tmp_path / "r") == 2
    told = one_line(capsys)
    assert "robots in 40,000 m would take about" in told and "1.0 GB are free here" in told and "smaller world" in told
    assert not any(tmp_path.iterdir())


def test_too_much_for_memory_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("evaluate", "coverage", *SMALL, "--out", tmp_path / "r")
    monkeypatch.setattr("mast_swarm.evaluate.run.free_memory", lambda device: None)
    assert mast(*args, "--side", 4_000_000) == 2  # refused by numpy
    monkeypatch.setattr(Coverage, "reset", lambda *_: torch.empty(10**15))
    assert mast(*args) == 2  # refused by torch

    def full(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setattr(Coverage, "reset", full)
    assert mast(*args) == 2  # refused by a GPU
    line = "mast: out of memory: give a smaller world, fewer --agents or a smaller --batch\n"
    assert capsys.readouterr().err == 3 * line
    monkeypatch.setattr(Coverage, "reset", lambda *_: torch.ones(2) @ torch.ones(3))
    with pytest.raises(RuntimeError, match="size"):  # what is no lack of memory is not hidden
        mast(*args)


def test_flags_are_those_of_the_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for task, args, named in (
        ("coverage", ("--scenario", "circle"), "--scenario"),
        ("navigation", ("--density", "gaussians"), "--density"),
        ("coverage", ("--window", "Paris"), "'Paris' is not LAT,LON"),
        ("coverage", ("--window", "1,2,3"), "'1,2,3' is not LAT,LON"),
    ):
        assert mast("evaluate", task, *args, "--out", tmp_path / "r") == 2
        assert named in capsys.readouterr().err  # drawn as a box
    assert not any(tmp_path.iterdir())


def test_help_lists_both_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("evaluate", "--help") == 0
    assert "mast evaluate coverage --help" in capsys.readouterr().out
    assert mast("evaluate", "coverage", "--help") == 0
    shown = capsys.readouterr().out
    assert "--window LAT,LON" in shown and "--features" in shown and "--scenario" not in shown


def test_demo(
    tmp_path: Path, coverage_zoo: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    use_zoo(monkeypatch, coverage_zoo)
    assert mast("demo", "--task", "coverage", *WORLD, "--steps", 5) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[-3].startswith("mast-m brought the cost to ") and out[-3].endswith(" on average) after 1 s")
    assert out[-2].startswith("d-cvt brought the cost to ")
    assert out[-1] == f"open in a browser: {tmp_path / 'runs/demo/replay.html'}"
    assert (tmp_path / "runs/demo/replay.html").exists()
    assert settings(tmp_path / "runs/demo")["delay"] == 0.2
    assert mast("demo", "--task=coverage", *WORLD, "--steps", 4) == 0  # made anew
    assert settings(tmp_path / "runs/demo")["steps"] == 4
    assert mast("demo", "--task", "covrage") == 2
    assert "unknown task 'covrage': did you mean coverage" in capsys.readouterr().err
