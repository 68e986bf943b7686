"""The blocks of the coverage page: of what exists, and honest about what does not."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pytest

from mast_swarm.paper.cells import Result, Store
from mast_swarm.paper.experiment import EXPERIMENTS, Size

ROOT = Path(__file__).parents[2]


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The module, reading its results from a folder that is empty at first."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import make_coverage

    monkeypatch.setattr(make_coverage, "DOCS", tmp_path)
    monkeypatch.setattr(make_coverage, "found", make_coverage.found.__wrapped__)  # reads anew each time
    return make_coverage


def put(folder: Path, experiment: str, costs: dict[str, float]) -> None:
    """Cells of two environments in which the policies have the given mean time averages, 0.1 above and below."""
    cells = EXPERIMENTS[experiment].cells(Size())
    for name, cost in costs.items():
        values = [cost - 0.1, cost + 0.1]
        table = pa.table({"episode": [0, 1], "t": [120.0] * 2, "cost_time_average": values, "cost": values})
        Store(folder / "results").save(cells[name], Result(table, {}))


def test_nothing_has_been_run(blocks: ModuleType) -> None:
    for block in (blocks.policies, blocks.pairs, blocks.sides, blocks.grid, blocks.cities):
        assert "not run yet" in block()


def test_controllers_alone(blocks: ModuleType, tmp_path: Path) -> None:
    put(tmp_path, "coverage-curves", {"end clairvoyant": 0.3, "end d-cvt": 0.8})
    assert "| `clairvoyant` | centralized | 0.300 ± 0.100 | 0.300 ± 0.100 |" in blocks.policies()
    assert "| `d-cvt` | decentralized | 0.800 ± 0.100 | 0.800 ± 0.100 |" in blocks.policies()
    assert "| `mast-m` | decentralized, 0.2 s per hop | not run yet | not run yet |" in blocks.policies()
    assert "| MAST-M | not run yet |" in blocks.pairs()
    put(tmp_path, "coverage-sides", {"d-cvt 1448": 0.8})
    (line,) = (line for line in blocks.sides().splitlines() if line.startswith("| `d-cvt` |"))
    assert [cell.strip()[:5] for cell in line.split("|")[2:-1]] == ["0.800", "0.800", "not r", "not r"]


def test_the_ends_of_the_grid_are_found(blocks: ModuleType, tmp_path: Path) -> None:
    few = {"d-cvt 8 8": 0.8, "lpac-k3 8 8": 0.5, "mast-m 8 8": 0.6}
    many = {"d-cvt 64 8": 0.8, "lpac-k3 64 8": 0.8, "mast-m 64 8": 0.4}
    put(tmp_path, "coverage-grid", {**few, **many, "d-cvt 64 64": 0.8, "mast-m 64 64": 0.5})
    text = blocks.grid()
    assert "| `d-cvt` | +25 % (8, 8) | +50 % (64, 8) | 3 of 64 | 3 | +6 % (8, 8) | +43 % (40, 32) |" in text
    assert "| `lpac-k3` | -20 % (8, 8) | +50 % (64, 8) | 2 of 64 | 1 |" in text
    assert "| `c-cvt` | not run yet | not run yet | 0 of 64 | 0 | - | - |" in text
    put(tmp_path, "coverage-curves", {"end d-cvt": 0.8, "end mast-m": 0.5})
    assert "| `mast-m` minus `d-cvt` | -0.300 ± 0.000 |" in blocks.pairs()
