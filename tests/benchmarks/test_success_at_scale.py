"""Success rates of teams of several sizes: what is written, what is not run again, who is left out."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest

from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.run import evaluate
from mast_swarm.tasks.navigation.config import NavigationConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture
def scale(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module, with short episodes and small limits."""
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import success_at_scale

    monkeypatch.setattr(success_at_scale, "TIMES", (50.0, 60.0))
    drivers = {"lsap": success_at_scale.Driver("lsap", 10), "dhba-4": success_at_scale.Driver("dhba-4", 100)}
    monkeypatch.setattr(success_at_scale, "DRIVERS", drivers)
    return success_at_scale


def test_files_hold_what_an_evaluation_gives(scale: ModuleType, tmp_path: Path) -> None:
    config = scale.SuccessConfig(
        agents=(12, 10), policy=("dhba-4",), out=tmp_path / "out", scratch=tmp_path / "scratch", device="cpu", robots=1
    )
    scale.main(config)
    found = {n: json.loads((tmp_path / "out" / f"{n}.json").read_text()) for n in (10, 12)}
    assert [found[n]["episodes"] for n in (10, 12)] == [9, 9]
    settings = EvaluateConfig(
        world=NavigationConfig(agents=12), policy=("dhba-4",), episodes=9, steps=60, seed=3, out=tmp_path / "e"
    )
    _, summary = evaluate("navigation", settings)
    means = {row["t"]: row["mean"] for row in summary["rows"] if row["metric"] == "success_rate"}
    assert [(r["t"], r["mean"]) for r in found[12]["policies"]["dhba-4"]["success_rate"]] == [
        (50.0, means[50.0]),
        (60.0, means[60.0]),
    ]
    assert not any((tmp_path / "scratch").iterdir())
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    scale.main(config)  # already there
    assert before == {path: path.stat().st_mtime_ns for path in (tmp_path / "out").iterdir()}
    both = scale.SuccessConfig(
        agents=(12, 10), policy=("dhba-4", "lsap"), out=tmp_path / "out", scratch=tmp_path / "scratch", robots=1
    )
    scale.main(both)
    names = [list(json.loads((tmp_path / "out" / f"{n}.json").read_text())["policies"]) for n in (10, 12)]
    assert names == [["lsap", "dhba-4"], ["dhba-4"]]  # twelve robots are too many for one of them


def test_robots_alone_with_a_relay_radius(scale: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    near = scale.Driver("mast-m", 10, delay=1.0, relay_radius="auto")
    monkeypatch.setattr(scale, "DRIVERS", {"near": near})
    monkeypatch.setattr(scale, "TIMES", (4.0,))
    asked: list[EvaluateConfig] = []
    run = scale.kept.run
    monkeypatch.setattr(scale.kept, "run", lambda settings, *rest: asked.append(settings) or run(settings, *rest))
    folders = {"out": tmp_path / "out", "scratch": tmp_path / "scratch"}
    scale.main(scale.SuccessConfig(agents=(10, 11), policy=("near",), device="cpu", robots=1, **folders))
    assert [(s.delay, s.relay_radius, s.world.agents) for s in asked] == [(1.0, "auto", 10)]  # eleven are too many
    found = json.loads((tmp_path / "out" / "10.json").read_text())["policies"]["near"]
    assert found["relay_radius"] == "auto" and [row["t"] for row in found["success_rate"]] == [4.0]


def test_mistakes_are_told(scale: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="there is no policy 'dhba-5' here: give some of lsap, dhba-4"):
        scale.SuccessConfig(policy=("dhba-5",))
    with pytest.raises(MastError, match="give sizes from 10"):
        scale.SuccessConfig(agents=(9,), policy=("lsap",))
    settings = {"agents": (10,), "policy": ("lsap",), "scratch": tmp_path / "s", "out": tmp_path / "out", "robots": 1}
    scale.main(scale.SuccessConfig(**settings))
    with pytest.raises(MastError, match="made with other settings"):
        scale.main(scale.SuccessConfig(**settings, seed=4))


def test_episodes_of_a_size(scale: ModuleType) -> None:
    config = scale.SuccessConfig(policy=("lsap",))
    assert [config.episodes(n) for n in (100, 1_000, 10_000, 100_000)] == [108, 27, 9, 9]
