"""The plots and the tables of `mast bench`: they show what was measured, and nothing that was not."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from mast_swarm.errors import MastError
from mast_swarm.view.scale import (
    DENSE,
    FORWARD,
    STEP,
    _draw_fit,
    _each,
    bench_table,
    conclusions,
    duration,
    memory,
    row_line,
    scale_plot,
    short,
    table_rows,
)


def row(agents: int) -> dict[str, Any]:
    parts = {"observe": 1e-4, "components": 1e-5, "policy": 2e-3, "motion": 1e-5, "metric": 1e-5}
    found = {
        "agents": agents,
        "path": "kernel",
        "neighbours": 20.0,
        "step_ms": 3e-3 * agents,
        "parts_ms": {name: spent * agents for name, spent in parts.items()},
        "robots_per_s": 1e6 / 3,
        "forward_ms": 2e-3 * agents,
        "floor_ms": 5e-4 * agents,
        "peak_bytes": 12_000 * agents,
    }
    return found | ({"dense_ms": 1e-6 * agents**2, "dense_peak_bytes": 16 * agents**2} if agents < 50_000 else {})


@pytest.fixture
def result() -> dict[str, Any]:
    sizes = [1_000, 10_000, 100_000]
    return {
        "benchmark": "scale",
        "machine": {"device": "A Machine"},
        "precision": "fp32",
        "rows": [row(agents) for agents in sizes],
        "against_dense": [{"agents": 10_000, "ratio": 5.0}],
        "training": {"agents": 1_000, "ratio": 3.25},
    }


def pixels(path: Path, colour: str) -> int:
    image = np.asarray(Image.open(path).convert("RGB")).astype(int)
    return int((np.abs(image - np.rint(np.array(to_rgb(colour)) * 255)).max(axis=2) <= 3).sum())


def test_the_plot_draws_what_was_measured(result: dict[str, Any], tmp_path: Path) -> None:
    path = scale_plot(result, tmp_path / "scale.png")
    assert all(pixels(path, colour) > 500 for colour in (STEP, FORWARD, DENSE))
    bare = copy.deepcopy(result)
    for one in bare["rows"]:
        one.pop("dense_ms", None)
        one.pop("dense_peak_bytes", None)
    assert pixels(scale_plot(bare, tmp_path / "bare.png"), DENSE) == 0


def test_the_plot_takes_one_size_and_no_memory(result: dict[str, Any], tmp_path: Path) -> None:
    result["rows"] = [result["rows"][-1] | {"peak_bytes": 0}]
    assert scale_plot(result, tmp_path / "one.png").stat().st_size > 10_000
    with pytest.raises(MastError, match="at least one size"):
        scale_plot(result | {"rows": []}, tmp_path / "none.png")


RESULTS = Path(__file__).parents[2] / "benchmarks/results"
TEAMS = [file for name in ("world", "decentral") for file in sorted(RESULTS.glob(f"{name}-*.json"))]


@pytest.mark.parametrize("file", TEAMS, ids=[file.stem for file in TEAMS])
def test_files_of_every_benchmark_have_a_plot_and_robots_a_second(file: Path, tmp_path: Path) -> None:
    found = json.loads(file.read_text())
    path = scale_plot(found, tmp_path / "teams.png")
    assert all(pixels(path, colour) > 500 for colour in (STEP, FORWARD, DENSE))
    for one, text in zip(found["rows"], table_rows(found), strict=True):
        assert text["robots/s"] == f"{1e3 * one['environments'] * one['agents'] / one['step_ms']:,.0f}"
    first = conclusions(found)[0]
    assert "robots: a whole step takes" in first and ("; fit: " in first) != ("; not proportional: " in first)


def test_lines_join_the_teams_of_one_environment(tmp_path: Path) -> None:
    def teams(*pairs: tuple[int, int]) -> dict[str, Any]:
        parts = {"motion": 0.0, "metric": 0.0, "observe": 0.0}
        rows = [{"environments": b, "agents": n, "parts_ms": parts, "peak_bytes": 0} for b, n in pairs]
        rows = [one | {"step_ms": 1e-3 * b * n} for one, (b, n) in zip(rows, pairs, strict=True)]
        return {"benchmark": "world", "machine": {"device": "A Machine"}, "rows": rows}

    def drawn(*pairs: tuple[int, int]) -> int:
        return pixels(scale_plot(teams(*pairs), tmp_path / "teams.png"), STEP)

    assert drawn((1, 1_000), (1, 10)) > drawn((10, 100), (10, 1)) + 500  # no line from team to team
    assert len(conclusions(teams((1, 1_000), (1, 10)))) == 1  # in any order
    assert conclusions(teams((10, 100), (10, 1))) == conclusions(teams((1, 10), (1, 10))) == []


def test_rows_of_text(result: dict[str, Any]) -> None:
    first, _, last = table_rows(result)
    assert first["robots"] == "1,000" and first["step"] == "3.00 ms" and first["dense forward"] == "1.00 ms"
    assert last["dense forward"] == "-" and last["memory"] == "1.20 GB" and list(first) == list(last)
    shown = bench_table(result)
    assert shown.row_count == 3 and "observe" in first
    assert [column.header for column in shown.columns] == [name for name in first if name not in row(1)["parts_ms"]]
    alone = {"environments": 4, "agents": 5, "step_ms": 2.0, "parts_ms": {"relay": 0.5}, "peak_bytes": 0}
    alone |= {"central_ms": 1.0, "ratio": 2.0}
    (text,) = table_rows({"rows": [alone]})
    assert list(text) == ["robots", "step", "relay", "floor", "central", "ratio", "robots/s", "memory"]
    assert (text["robots"], text["robots/s"]) == ("4 x 5", "10,000")
    assert row_line(alone) == "4 x 5 robots: 2.00 ms per step"
    assert (text["floor"], conclusions({"rows": [alone]})) == ("-", [])
    told = conclusions({"rows": [alone, alone | {"floor_ms": 0.8}]})
    assert told == ["a whole step takes 2.5 (4 x 5) times the floor"]


def test_conclusions_are_sentences(result: dict[str, Any]) -> None:
    told = conclusions(result)
    assert told[0] == (
        "10,000 to 100,000 robots: a whole step takes 10.00 times the time for 10 times the robots "
        "(1.00 times proportional); fit: 3.00 µs per robot, within 1 % of each time"
    )
    assert told[2:] == [
        "a dense forward pass takes 5.0 (10,000 robots) times the time of a forward pass with windows",
        "1,000 robots: a dense training step takes 3.2 times the time of a training step with windows",
    ]
    one = {"rows": result["rows"][:1], "against_dense": [], "training": None}
    assert conclusions(result | one) == []


def test_a_fit_is_told_and_drawn_only_where_it_is_near_all_times() -> None:
    def grown(*times: float) -> str:
        sizes = (5_000, 10_000, 20_000, 40_000)[: len(times)]
        rows = [row(size) | {"step_ms": ms} for size, ms in zip(sizes, times, strict=True)]
        told, axes = conclusions({"rows": rows})[0].split("; ")[1], Figure().add_subplot()
        _draw_fit(axes, rows)
        assert len(axes.lines) == told.startswith("fit: ")
        if axes.lines:  # through the times that it is near to, and no others
            assert np.asarray(axes.lines[0].get_xdata())[[0, -1]] == pytest.approx([10_000, sizes[-1]])
        return told

    assert grown(9.0, 10.0, 20.0, 41.0) == "fit: 1.01 µs per robot, within 2 % of each time"
    assert grown(9.0, 10.0, 20.0, 80.0) == "not proportional: 1.00 µs per robot at 10,000, 2.00 µs at 40,000"
    assert grown(9.0, 12.0, 22.0, 42.0) == "fit: 2.00 ms + 1.00 µs per robot, within 1 % of each time"
    assert grown(9.0, 10.0, 20.0) == "fit: 1.00 µs per robot, within 1 % of each time"
    told = "no line is near all times: 1.00 µs per robot at 10,000, 1.00 µs at 40,000"
    assert grown(9.0, 10.0, 30.0, 40.0) == told
    # Some line with a constant goes through any two points.
    assert grown(9.0, 12.0, 22.0) == "not proportional: 1.20 µs per robot at 10,000, 1.10 µs at 20,000"


TIMES = {4.85e-4: "485 ns", 0.0123: "12 µs", 1.234: "1.23 ms", 12.34: "12.3 ms", 123.4: "123 ms", 5432: "5.43 s"}
TIMES |= {0.05451: "55 µs", 9.9999e-4: "1 µs", 0.99999: "1.00 ms", 9.9999: "10.0 ms", 999.99: "1.00 s"}


@pytest.mark.parametrize(("given", "text"), TIMES.items())
def test_durations(given: float, text: str) -> None:
    assert duration(given) == text


def test_sizes_in_few_letters() -> None:
    assert [short(n) for n in (300, 3_000, 12_500, 1_000_000)] == ["300", "3k", "12.5k", "1M"]
    assert (memory(2.5e6), memory(999.99e6), memory(1.7e10)) == ("2.50 MB", "1.00 GB", "17.0 GB")
    assert [_each(ms) for ms in (9.9999e-4, 3.2e-5)] == ["1.00 µs", "32.0 ns"]
