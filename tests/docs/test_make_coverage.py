"""The blocks and pictures of the coverage page: of what exists, and honest about what does not."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module, reading its results and pictures from a folder that is empty at first."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import make_coverage

    monkeypatch.setattr(make_coverage, "SWEEP", tmp_path)
    monkeypatch.setattr(make_coverage, "PICTURES", tmp_path)
    return make_coverage


def put(folder: Path, name: str, costs: dict[str, float]) -> None:
    """A cell of two environments in which each policy has the given mean time average."""
    policies = {
        policy: {"delay": 0.2 if policy == "mast-m" else None, "cost_time_average": [cost - 0.1, cost + 0.1]}
        for policy, cost in costs.items()
    }
    metrics = ("cost_time_average", "cost")
    rows = [{"policy": p, "metric": m, "mean": cost, "ci95": 0.01} for p, cost in costs.items() for m in metrics]
    paired = [
        {"policy": one, "minus": other, "metric": "cost_time_average", "mean": costs[one] - costs[other], "ci95": 0.02}
        for one, other in itertools.combinations(costs, 2)
    ]
    cell: dict[str, Any] = {"episodes": 2, "rows": rows, "paired": paired, "policies": policies}
    (folder / f"{name}.json").write_text(json.dumps(cell))


def test_nothing_has_been_run(blocks: ModuleType, tmp_path: Path) -> None:
    for block in (blocks.policies, blocks.pairs, blocks.sides, blocks.grid, blocks.cities):
        assert "not run yet" in block()
    import draw_coverage

    draw_coverage.sides(tmp_path / "sides.png")
    draw_coverage.heat_maps(tmp_path / "grid.png")
    assert not list(tmp_path.iterdir())


def test_controllers_alone(blocks: ModuleType, tmp_path: Path) -> None:
    put(tmp_path, "n32-f32-s1024", {"clairvoyant": 0.3, "c-cvt": 0.6, "d-cvt": 0.8})
    assert "| `clairvoyant` | centralized | 0.300 ± 0.010 | 0.300 ± 0.010 |" in blocks.policies()
    assert "| `mast-m` |  | not run yet | not run yet |" in blocks.policies()
    assert blocks.pairs() == "MAST-M: not run yet.\n"
    assert "| `d-cvt` | 0.800 ± 0.010 | not run yet | not run yet | not run yet |" in blocks.sides()
    assert "| `d-cvt` | not run yet | not run yet | 0 of 64 | 0 | +6 % (8, 8) | +43 % (40, 32) |" in blocks.grid()
    assert blocks.gains("clairvoyant", "d-cvt") == {(32, 32): pytest.approx(62.5)}
    import draw_coverage

    draw_coverage.sides(tmp_path / "coverage-sides.png")
    draw_coverage.heat_maps(tmp_path / "coverage-grid.png")
    assert not list(tmp_path.glob("*.png"))  # of one cell there is nothing to compare


def test_the_ends_of_the_grid_are_found(blocks: ModuleType, tmp_path: Path) -> None:
    put(tmp_path, "n8-f8-s1024", {"d-cvt": 0.8, "lpac-k3": 0.5, "mast-m": 0.6})
    put(tmp_path, "n64-f8-s1024", {"d-cvt": 0.8, "lpac-k3": 0.8, "mast-m": 0.4})
    put(tmp_path, "n64-f64-s1024", {"d-cvt": 0.8, "mast-m": 0.5})
    text = blocks.grid()
    assert "| `d-cvt` | +25 % (8, 8) | +50 % (64, 8) | 3 of 64 | 3 |" in text
    assert "| `lpac-k3` | -20 % (8, 8) | +50 % (64, 8) | 2 of 64 | 1 |" in text
    put(tmp_path, "n32-f32-s1024", {"d-cvt": 0.8, "mast-m": 0.5})
    assert "| `mast-m` minus `d-cvt` | -0.300 ± 0.020 |" in blocks.pairs()
    assert "| `mast-m` | decentralized, 0.2 s per hop |" in blocks.policies()
    import draw_coverage

    put(tmp_path, "n64-f64-s1448", {"d-cvt": 0.8, "mast-m": 0.5})
    draw_coverage.heat_maps(tmp_path / "coverage-grid.png")
    draw_coverage.sides(tmp_path / "coverage-sides.png")
    assert "(pictures/coverage-sides.png)" in blocks.sides()
    assert "(pictures/coverage-grid.png)" in blocks.grid()
