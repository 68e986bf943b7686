"""Coverage through the evaluation: the same tables and summaries, with costs instead of success rates."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from mast_swarm import Channel, Coverage, CoverageConfig, MastError, Navigation, NavigationConfig, rollout
from mast_swarm.comms.decentral import DecentralPolicy
from mast_swarm.comms.lpac import DecentralLPAC
from mast_swarm.evaluate.actors import Central, Decentral, make_actor
from mast_swarm.evaluate.config import EvaluateConfig, defaults
from mast_swarm.evaluate.policies import labels
from mast_swarm.evaluate.results import curves, interval
from mast_swarm.evaluate.run import _batch, evaluate, prepare
from mast_swarm.model import policy as policy_module
from mast_swarm.model.policy import load_learned
from mast_swarm.tasks.coverage.density import sample
from mast_swarm.tasks.coverage.points import read_points
from mast_swarm.tasks.coverage.recipes import MAST as COVERAGE
from mast_swarm.tasks.registry import find, names
from shared import use_zoo

CITIES = Path(__file__).parents[2] / "docs" / "cities"
WORLD = CoverageConfig(agents=6, features=5, side=256.0, sensor=32.0, local_map=128.0, communication_range=96.0)
METRICS = ["cost", "cost_time_average"]


def small(folder: Path | None = None, **changes: Any) -> EvaluateConfig:
    config = EvaluateConfig(
        world=WORLD, policy=("clairvoyant", "d-cvt"), episodes=3, steps=255, out=folder, device="cpu"
    )
    return replace(config, **changes)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    return evaluate("coverage", small(tmp_path_factory.mktemp("runs") / "whole"))


def test_rows_state_what_a_cost_depends_on(finished: tuple[Path, dict[str, Any]]) -> None:
    _, summary = finished
    found = [(row["metric"], row["policy"], row["t"]) for row in summary["rows"]]
    assert found == [(m, p, t) for m in METRICS for p in ("clairvoyant", "d-cvt") for t in (0.0, 50.0, 51.0)]
    keys = {"scenario": "gaussians", "agents": 6, "features": 5, "side": 256.0, "dt": 0.2}
    for row in summary["rows"]:
        limits = ["relay_radius", "max_age"]
        assert list(row)[:14] == ["policy", "task", *keys, "delay", "loss", "failure", *limits, "safe", "seed"]
        assert {key: row[key] for key in keys} == keys
    last = {row["metric"]: row for row in summary["paired"] if row["t"] == 51.0}
    assert last["cost_time_average"]["mean"] < 0  # who knows the density is below who must discover it
    assert "features" not in CoverageConfig(density="raster:a.png").stated


def test_the_time_average_is_over_the_instants_at_which_control_periods_begin(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    """After 600 steps it is the mean over the instants 0..599, and so for any number of steps."""
    folder, summary = finished
    table = pq.read_table(folder / "episodes.parquet")
    t, costs = curves(table, "d-cvt", "cost")
    _, averages = curves(table, "d-cvt", "cost_time_average")
    assert t.tolist() == [round(0.2 * k, 9) for k in range(256)]  # 0.6, not 0.6000000000000001
    assert (costs[:, 0] == 1).all() and (costs[:, 1:] != 1).any()
    for k in (1, 7, 255):
        np.testing.assert_allclose(averages[:, k], costs[:, :k].mean(1, dtype=np.float64), rtol=1e-6)
    row = next(r for r in summary["rows"] if (r["policy"], r["metric"], r["t"]) == ("d-cvt", METRICS[1], 51.0))
    mean, half = interval(costs[:, :255].mean(1, dtype=np.float64))
    assert row["mean"] == pytest.approx(mean, rel=1e-6)
    assert row["ci95"] == (None if half is None else pytest.approx(half, rel=1e-4))


def test_the_batch_does_not_matter_and_a_stopped_run_goes_on(
    tmp_path: Path, finished: tuple[Path, dict[str, Any]]
) -> None:
    whole = pq.read_table(finished[0] / "episodes.parquet")

    def stop(policy: str, done: int, total: int) -> None:
        if policy == "d-cvt" and done > 256:
            raise KeyboardInterrupt

    config = small(tmp_path / "r", batch=1)
    with pytest.raises(KeyboardInterrupt):
        evaluate("coverage", config, stop)
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["complete"] is False
    _, summary = evaluate("coverage", replace(config, resume=True))
    assert summary == finished[1]
    assert pq.read_table(tmp_path / "r" / "episodes.parquet").equals(whole)


def test_memory_bounds_how_many_environments_run_at_once() -> None:
    team = Navigation(NavigationConfig(agents=100))
    assert _batch(team, 0, "clusters-1-1") == 18  # robots alone decide where a state is small
    sizes = {}
    for agents, side in ((32, 1024.0), (128, 2048.0)):
        world = Coverage(CoverageConfig(agents=agents, side=side))
        state = world.reset([0])
        held = sum(part.nbytes for part in vars(state).values())
        sizes[agents] = _batch(world, 0, "gaussians")
        assert sizes[agents] * held < 1e8 or sizes[agents] == 1
    assert sizes[32] >= 4 and sizes[128] == 1
    assert _batch(Coverage(CoverageConfig(agents=700, side=64.0, sensor=16.0)), 0, "gaussians") == 2


@pytest.mark.skipif(not torch.cuda.is_available(), reason="a GPU's memory")
def test_memory_that_torch_keeps_for_later_is_free() -> None:
    """That of the graphs of the policy before, for example."""
    world = Coverage(CoverageConfig(agents=128, side=2048.0), "cuda")
    size = _batch(world, 0, "gaussians")
    torch.empty(int(0.6 * torch.cuda.mem_get_info()[0]), dtype=torch.uint8, device="cuda")
    assert _batch(world, 0, "gaussians") == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize(("task", "drawn"), [("navigation", 5), ("coverage", 1)])
def test_start_states_are_tried_where_that_tells_something(
    task: str, drawn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = {"navigation": Navigation, "coverage": Coverage}[task]
    world = {"navigation": NavigationConfig(agents=8), "coverage": WORLD}[task]
    asked: list[Any] = []
    reset = kind.reset
    monkeypatch.setattr(kind, "reset", lambda self, *args: asked.append(args) or reset(self, *args))
    prepare(task, replace(defaults(find(task)), world=world, episodes=5, device="cpu"))
    assert len(asked) == drawn


def test_every_task_has_defaults_and_scenarios() -> None:
    for name in names():
        config = defaults(find(name))
        assert type(config.world) is find(name).Config
        assert len(config.scenarios()) == len(config.seeds()) == config.episodes
    assert set(defaults(find("coverage")).scenarios()) == {"gaussians"}
    with pytest.raises(MastError, match="of a world for coverage, not for navigation"):
        prepare("navigation", defaults(find("coverage")))
    pairs = [f"clusters-{robots}-{goals}" for robots in (1, 5, 10) for goals in (1, 5, 10)]
    assert defaults(find("navigation")).scenarios() == pairs * 6


def test_shipped_policies_by_name(coverage_zoo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_zoo(monkeypatch, coverage_zoo)
    world = Coverage(WORLD)
    for name, alone in (("mast-m", DecentralPolicy), ("lpac-k3", DecentralLPAC)):
        assert load_learned(f"coverage/{name}").config.task == "coverage"
        assert isinstance(make_actor(name, world), Central)
        actor = make_actor(name, world, Channel(delay=0.2))
        assert isinstance(actor, Decentral) and isinstance(actor.run, alone)
        ran = rollout(world, name, [0, 1], 4, channel=Channel(delay=0.2))
        assert ran.metrics["cost"].shape == (2, 5) and (ran.metrics["cost"][:, -1] != 1).all()
    given = ["coverage/mast-m", "lpac-k3", "d-cvt"]
    assert labels(given, "coverage") == ["mast-m", "lpac-k3", "d-cvt"]
    with pytest.raises(MastError, match="unknown policy 'coverage/mast-n': did you mean coverage/mast-m"):
        load_learned("coverage/mast-n")
    with pytest.raises(MastError, match="unknown policy 'lsap': "):
        make_actor("lsap", world)
    with pytest.raises(MastError, match="'coverage/mast-m' was trained for coverage, not for navigation"):
        make_actor("coverage/mast-m", Navigation(NavigationConfig(agents=4)))
    with pytest.raises(MastError, match=r"observations of shape \[4, 32, 32\] but this world gives \[4, 16, 16\]"):
        make_actor("mast-m", Coverage(replace(WORLD, pixels=16)))


def test_delay_is_that_of_learned_policies(tmp_path: Path, coverage_zoo: Path) -> None:
    folders = [str(coverage_zoo / "coverage" / name) for name in ("mast-m", "lpac-k3")]
    config = small(tmp_path / "r", policy=("c-cvt", *folders), delay=0.2, episodes=2, steps=3)
    _, summary = evaluate("coverage", config)
    assert {(row["policy"], row["delay"]) for row in summary["rows"]} == {
        ("c-cvt", None),
        ("mast-m", 0.2),
        ("lpac-k3", 0.2),
    }
    with pytest.raises(MastError, match="lpac runs over channels with delay alone"):
        prepare("coverage", replace(config, loss=0.5))


def test_policies_that_observe_more_and_less_run_side_by_side(tmp_path: Path, coverage_zoo: Path) -> None:
    """A policy that takes a fifth map is shown it; one that takes four does as it would alone."""
    four, five = str(coverage_zoo / "coverage" / "mast-m"), tmp_path / "more"
    policy_module.make(replace(policy_module.config_of(four), observation_dim=(5, 32, 32)), seed=3).save(five)
    for delay in (None, 0.2):
        config = small(policy=(str(five), four), delay=delay, episodes=2, steps=3)
        _, both = evaluate("coverage", replace(config, out=tmp_path / f"both-{delay}"))
        _, alone = evaluate("coverage", replace(config, policy=(four,), out=tmp_path / f"alone-{delay}"))
        means = [[row["mean"] for row in run["rows"] if row["policy"] == "mast-m"] for run in (both, alone)]
        assert means[0] == means[1] != [row["mean"] for row in both["rows"] if row["policy"] == "more"]
    with pytest.raises(MastError, match=r"shape \[5, 32, 32\] but this world gives \[4, 32, 32\]"):
        make_actor(str(five), Coverage(WORLD))


def test_nobody_draws_pictures_for_a_controller(monkeypatch: pytest.MonkeyPatch, coverage_zoo: Path) -> None:
    drawn: list[int] = []
    draw = Coverage._pictures
    monkeypatch.setattr(Coverage, "_pictures", lambda *given: drawn.append(1) or draw(*given))
    world = Coverage(WORLD)
    for name in ("clairvoyant", "c-cvt", "d-cvt"):
        rollout(world, name, [0], 3)
    assert not drawn
    rollout(world, str(coverage_zoo / "coverage" / "mast-m"), [0], 3)
    assert len(drawn) == 3  # once an instant at which it acts
    observation = world.observe(world.reset([0]))
    assert observation.features is observation.features


@pytest.mark.parametrize(("name", "middle"), [("gridport.geojson", (45.0, -30.0)), ("twogrids.json", (-25.0, -15.0))])
def test_cities(name: str, middle: tuple[float, float], tmp_path: Path) -> None:
    made = runpy.run_path(str(CITIES / "make.py"))
    assert made["cities"]()[name] == (CITIES / name).read_text()
    whole = read_points(str(CITIES / name), 2048.0, None)
    assert 150 <= len(whole) <= 400
    assert (np.ptp(whole, axis=0) > 1000).all() and (np.ptp(whole, axis=0) < 1500).all()
    world = CoverageConfig(agents=4, density=f"points:{CITIES / name}", window=middle, resolution=4.0)
    assert 100 <= len(read_points(str(CITIES / name), world.side, world.window)) < len(whole)
    first, second = (torch.from_numpy(sample(world.density, world, seed)) for seed in (0, 1))
    assert not torch.equal(first, second)  # the points stay, sizes and masses are drawn
    config = EvaluateConfig(world=world, policy=("clairvoyant",), episodes=2, steps=2, out=tmp_path / "r", device="cpu")
    folder, summary = evaluate("coverage", config)
    assert {row["scenario"] for row in summary["rows"]} == {world.density}
    assert json.loads((folder / "config.json").read_text())["window"] == list(middle)
    assert evaluate("coverage", replace(config, resume=True)) == (folder, summary)


def test_lpac_is_told_how_wide_the_world_is() -> None:
    policy = policy_module.LPAC()
    assert policy.surroundings(512.0) == {"side": 512.0}
    worlds = [Coverage(CoverageConfig(side=side, resolution=8.0, agents=2)) for side in (512.0, 1024.0)]
    states = [world.reset([1]) for world in worlds]
    seen = [world.observe(state) for world, state in zip(worlds, states, strict=True)]
    for channel in (None, Channel(delay=0.2)):
        together = [make_actor(policy, world, channel) for world in worlds]  # one policy in two worlds
        for actor in together:
            actor.start([1])
        mixed = [[a.act(*given) for a, *given in zip(together, states, seen, strict=True)] for _ in range(3)]
        for n, world in enumerate(worlds):
            alone = make_actor(policy, world, channel)
            alone.start([1])
            commands = [alone.act(states[n], seen[n]) for _ in range(3)]
            assert all(torch.equal(row[n], command) for row, command in zip(mixed, commands, strict=True))
        given = policy.inputs(seen[0])
        assert not torch.equal(mixed[0][0], policy(**given))  # which takes the training world's width
        if channel is None:
            assert torch.equal(mixed[0][0], policy(**given, side=512.0))


LARGE = 2**63 + 1  # more than int64 holds


@pytest.mark.parametrize("channel", [None, Channel(delay=0.2)])
@pytest.mark.parametrize("double", [False, True])
@torch.no_grad()
def test_an_exploring_policy_runs_in_float64_from_any_seed(channel: Channel | None, double: bool) -> None:
    world = Coverage(CoverageConfig(side=256.0, resolution=4.0, agents=4))
    start = world.reset([LARGE])
    policy = policy_module.Policy(replace(COVERAGE, layers=1, exploration_time=50.0), seed=1)
    actor = make_actor(policy.double() if double else policy, world, channel)
    ends = []
    for kind in (torch.float64, torch.float32):
        state = world.state(start.positions.to(kind), start.density)
        actor.start([LARGE])
        for _ in range(3):
            state = world.step(state, actor.act(state, world.observe(state)))
        assert state.positions.dtype == kind  # the world keeps its precision, whatever the policy has
        ends.append(state.positions)
    assert torch.allclose(ends[0].float(), ends[1].float(), atol=1e-3)


def test_controllers_take_any_seed() -> None:
    world = Navigation(NavigationConfig(agents=5))
    state = world.reset([LARGE])
    actor = make_actor("explorer", world)
    actor.start([LARGE])
    assert torch.isfinite(actor.act(state, world.observe(state))).all()
