"""The sweep over the paper's tests of coverage: what it writes, what it does not run again, how it is divided."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.run import evaluate
from mast_swarm.model.policy import Policy, load_learned
from mast_swarm.tasks.coverage.config import CoverageConfig
from shared import use_zoo

ROOT = Path(__file__).parents[2]
SMALL = CoverageConfig(agents=4, features=3, side=128.0, resolution=4.0, sensor=32.0, local_map=128.0)


@pytest.fixture
def sweep(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with two small cells in place of the paper's."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import coverage_sweep

    cells = {"one": SMALL, "two": replace(SMALL, agents=5)}
    monkeypatch.setattr(coverage_sweep, "worlds", lambda: {"sides": cells})
    return coverage_sweep


def settings(sweep: ModuleType, folder: Path, **changes: Any) -> Any:
    given = {"only": ("sides",), "episodes": 3, "steps": 4, "device": "cpu", **changes}
    return sweep.SweepConfig(out=folder / "out", scratch=folder / "scratch", **given)


def written(folder: Path, cell: str = "one") -> dict[str, Any]:
    return json.loads((folder / "out" / f"{cell}.json").read_text())


def test_a_cell_holds_what_evaluate_gives(
    sweep: ModuleType, tmp_path: Path, coverage_zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_zoo(monkeypatch, coverage_zoo)
    sweep.main(settings(sweep, tmp_path))
    cell = written(tmp_path)
    assert list(cell["policies"]) == ["clairvoyant", "c-cvt", "d-cvt", "lpac-k3", "mast-m"]
    assert {name: run["delay"] for name, run in cell["policies"].items() if run["weights"]} == {
        "lpac-k3": None,
        "mast-m": SMALL.dt,
    }
    alone = EvaluateConfig(SMALL, ("d-cvt", "mast-m"), episodes=3, steps=4, delay=SMALL.dt, out=tmp_path / "evaluated")
    _, summary = evaluate("coverage", alone)
    for kind in ("rows", "paired"):
        ends = [row for row in summary[kind] if row["t"] == pytest.approx(4 * SMALL.dt)]
        assert len(ends) == (4 if kind == "rows" else 2)
        for row in ends:
            named = {key: row[key] for key in ("policy", "minus", "metric") if key in row}
            (ours,) = (r for r in cell[kind] if all(r.get(key) == value for key, value in named.items()))
            assert ours["mean"] == pytest.approx(row["mean"], abs=2e-6)
            assert ours["ci95"] == pytest.approx(row["ci95"], abs=5e-6)
    assert not list((tmp_path / "scratch").iterdir())  # nothing large is left


def test_only_what_is_missing_or_learned_anew_runs(
    sweep: ModuleType, tmp_path: Path, coverage_zoo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def counted(task: str, config: EvaluateConfig, progress: Any) -> Any:
        ran.extend(config.policy)
        return evaluate(task, config, progress)

    monkeypatch.setattr(sweep.kept, "evaluate", counted)
    use_zoo(monkeypatch, tmp_path / "empty")
    sweep.main(settings(sweep, tmp_path, shard="1/2"))
    assert ran == ["clairvoyant", "c-cvt", "d-cvt"]  # what is not shipped is left out
    before = written(tmp_path)

    mine = tmp_path / "zoo"
    policy = load_learned(coverage_zoo / "coverage" / "mast-m")
    policy.save(mine / "coverage" / "mast-m")
    use_zoo(monkeypatch, mine)
    sweep.main(settings(sweep, tmp_path, shard="1/2"))
    assert ran[3:] == ["mast-m"]
    after = written(tmp_path)
    assert {name: after["policies"][name] for name in before["policies"]} == before["policies"]

    sweep.main(settings(sweep, tmp_path, shard="1/2"))
    assert ran[4:] == []
    Policy(policy.config, seed=9).save(tmp_path / "other")
    for file in (tmp_path / "other").iterdir():
        file.replace(mine / "coverage" / "mast-m" / file.name)
    sweep.main(settings(sweep, tmp_path, shard="1/2"))
    assert ran[4:] == ["mast-m"]
    assert not (tmp_path / "out" / "two.json").exists()  # the other shard's


def test_a_file_of_other_settings_is_an_error(sweep: ModuleType, tmp_path: Path) -> None:
    sweep.main(settings(sweep, tmp_path, policy=("d-cvt",)))
    with pytest.raises(MastError, match=r"one\.json was made with other settings \(steps 4 -> 5\)"):
        sweep.main(settings(sweep, tmp_path, policy=("d-cvt",), steps=5))


def test_shards_share_the_cells(sweep: ModuleType, tmp_path: Path) -> None:
    cells = [str(number) for number in range(7)]
    parts = [settings(sweep, tmp_path, shard=f"{i}/3").mine(cells) for i in (1, 2, 3)]
    assert sorted(cell for part in parts for cell in part) == cells
    for wrong in ("0/3", "4/3", "1", "a/b"):
        with pytest.raises(MastError, match="give I/N"):
            settings(sweep, tmp_path, shard=wrong).mine(cells)
    with pytest.raises(MastError, match="there is no policy 'dcvt' here"):
        settings(sweep, tmp_path, policy=("dcvt",))


def test_the_cells_are_those_of_the_paper(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.coverage_cells import worlds

    tests = worlds()
    sides = [(world.side, world.agents, world.features) for world in tests["sides"].values()]
    assert sides == [(1024.0, 32, 32), (1448.0, 64, 64), (1774.0, 96, 96), (2048.0, 128, 128)]
    assert {(world.agents, world.features) for world in tests["grid"].values()} == {
        (agents, features) for agents in range(8, 65, 8) for features in range(8, 65, 8)
    }
    assert {world.agents for world in tests["cities"].values()} == {32}
    assert set(tests["sides"]) & set(tests["grid"]) == {"n32-f32-s1024"}
