"""Rollouts: the three ways to drive, what they record, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mast_swarm.tasks.coverage.controllers  # noqa: F401  registers them
from devices import DEVICE
from mast_swarm import Channel, MastError, Navigation, NavigationConfig, Policy, PolicyConfig, Recording, rollout
from mast_swarm.evaluate.actors import make_actor, pick_device
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.policies import labels
from mast_swarm.space.cells import Cells
from mast_swarm.space.maps import unpack
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.world import Coverage
from mast_swarm.tasks.navigation.controllers import Lsap

SEEDS = [3, 8, 21]


class Kind(Enum):
    FAST = "fast"


@pytest.fixture(scope="module")
def world() -> Navigation:
    return Navigation(NavigationConfig(agents=16, scenario="clusters-5"))


def positions(ran: object) -> np.ndarray:
    return np.stack([recording.positions for recording in ran.recordings])  # type: ignore[attr-defined]


@pytest.mark.kernels
@pytest.mark.parametrize("environments", [1, 3])
def test_a_look_sorts_robots_once_for_what_they_sense_and_for_metrics(
    environments: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast_swarm.space.neighbours.CUDA_DENSE", 0)
    world = Navigation(NavigationConfig(agents=30), DEVICE)
    loop, built, build = Loop(world, make_actor("lsap", world)), 0, Cells.build

    def counted(*given: Any, **settings: Any) -> Cells:
        nonlocal built
        built += 1
        return build(*given, **settings)

    monkeypatch.setattr(Cells, "build", counted)
    loop.start(range(environments))
    apart = world.metrics(loop.state), loop.sense().features
    alone, built = built, 0
    together = loop.look(), loop.observation.features
    assert built == alone - 1
    assert all(torch.equal(together[0][name], value) for name, value in apart[0].items())
    assert torch.equal(together[1], apart[1])


@pytest.mark.parametrize("directed", [False, True])
def test_decentral_without_delay_equals_central(policy_folder: Path, directed: bool) -> None:
    world = Navigation(NavigationConfig(agents=16, scenario="clusters-5", directed=directed))
    # Over links that carry one way only, equality is a property of one layer (see tests/comms).
    policy = Policy(PolicyConfig(layers=1, heads=2, head_dim=8), seed=1) if directed else Policy.load(policy_folder)
    central, alone, late = (
        rollout(world, policy, SEEDS, 25, channel=channel, record=3)
        for channel in (None, Channel(delay=0.0), Channel(delay=2.0))
    )
    assert np.abs(positions(central)[:, -1] - positions(central)[:, 0]).max() > 1  # robots have moved at all
    np.testing.assert_allclose(positions(alone), positions(central), atol=2e-2)  # m, over 25 steps of rounding
    assert np.abs(positions(late) - positions(central)).max() > 0.1  # so that equality above says something
    assert [ran.recordings[0].delay for ran in (central, alone, late)] == [None, 0.0, 2.0]


@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("channel", [None, Channel(delay=0.0), Channel(delay=1.0)])
def test_a_policy_in_double_precision_drives_a_world_in_single(
    world: Navigation, channel: Channel | None, safe: bool
) -> None:
    policy = Policy(PolicyConfig(layers=1, heads=2, head_dim=8), seed=1)
    single, double = (
        rollout(world, policy.to(kind), SEEDS, 5, channel=channel, record=3, safe=safe)
        for kind in (torch.float32, torch.float64)
    )
    assert double.state.positions.dtype == torch.float32
    np.testing.assert_allclose(positions(double), positions(single), atol=1e-3)


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("encoding", ["rope-g", "ape-g"])
@pytest.mark.parametrize("agents", [16, 300])
def test_weights_in_half_precision_are_refused_where_a_cpu_attends_over_lists(
    kind: torch.dtype, encoding: str, agents: int
) -> None:
    world = Navigation(NavigationConfig(agents=agents, scenario="clusters-5"))
    policy = Policy(PolicyConfig(layers=1, heads=2, head_dim=8, encoding=encoding), seed=1).to(kind)
    channel = Channel(delay=1.0) if agents == 16 else None  # alone, and so many that all pairs would be slow
    with pytest.raises(MastError, match=rf"weights are {kind}: a CPU attends over lists in float32.*policy\.float\(\)"):
        rollout(world, policy, [3], 1, channel=channel)
    rollout(world, policy.float(), [3], 1, channel=channel)


@pytest.mark.parametrize("channel", [None, Channel(delay=1.0)])
def test_half_precision(world: Navigation, policy_folder: Path, channel: Channel | None) -> None:
    exact, half = (
        rollout(world, str(policy_folder), SEEDS, 5, channel=channel, record=1, precision=precision)
        for precision in ("fp32", "bf16")
    )
    assert 0 < np.abs(positions(half) - positions(exact)).max() < 1.0  # m, of 25


def test_who_is_not_learned_computes_in_full_precision(world: Navigation) -> None:
    class Products:
        """A controller that multiplies: half precision would show."""

        def start(self, seeds: object) -> None:
            pass

        def act(self, state: object, observation: object) -> torch.Tensor:
            return (state.positions @ torch.tensor([[0.6, -0.8], [0.8, 0.6]])) / 1000.0  # type: ignore[attr-defined]

    exact, asked = (
        rollout(world, Products(), SEEDS, 5, record=1, precision=precision) for precision in ("fp32", "bf16")
    )
    assert np.array_equal(positions(exact), positions(asked))


def test_safe_robots_never_touch_and_still_arrive() -> None:
    """In a crowd of goals, with a controller that runs robots through each other, and with an exploring one."""
    world = Navigation(NavigationConfig(agents=40, width=150.0, scenario="clusters-1"))
    for policy in ("lsap", "explorer"):
        plain, safe = (rollout(world, policy, SEEDS, 60, safe=safe) for safe in (False, True))
        assert plain.metrics["collisions"].sum() > 0  # so that the next line says something
        assert not safe.metrics["collisions"].any()
        ends = [ran.metrics["success_rate"][:, -1].mean() for ran in (plain, safe)]
        assert ends[1] > ends[0] - 0.05


def test_a_world_without_robots_of_a_size_has_no_safety_layer() -> None:
    with pytest.raises(MastError, match="coverage does not say how large robots are: the safety layer needs"):
        Coverage(CoverageConfig(agents=3)).kept_apart(None, torch.zeros(1, 3, 2))  # type: ignore[arg-type]


def test_robots_that_remember_explore_elsewhere(world: Navigation) -> None:
    """Centrally and alone, and the same twice: nothing is left of an episode that has ended."""
    config = PolicyConfig(layers=1, heads=2, head_dim=8, exploration_time=20.0)
    plain, remembers = (Policy(replace(config, exploration_memory=places), seed=1) for places in (0, 20))
    for policy in (plain, remembers):
        policy.head[2].bias.data[2] = 1.0  # untrained, it would have all stand still
    for channel in (None, Channel(delay=1.0)):
        runs = [rollout(world, policy, SEEDS, 40, channel=channel, record=3) for policy in (plain, remembers)]
        assert np.abs(positions(runs[0])[:, 1] - positions(runs[1])[:, 1]).max() < 1e-4  # nothing to remember yet
        assert np.abs(positions(runs[0]) - positions(runs[1])).max() > 5
        actor = make_actor(remembers, world, channel)
        for _ in range(2):
            again = rollout(world, actor, SEEDS, 40, record=3)
            assert np.array_equal(positions(again), positions(runs[1]))


def test_names_folders_and_objects_are_the_same_policy(world: Navigation, policy_folder: Path) -> None:
    by_name = rollout(world, "lsap", SEEDS, 5)
    by_object = rollout(world, Lsap(dt=1.0, max_speed=5.0), SEEDS, 5)
    np.testing.assert_array_equal(by_name.metrics["distance"], by_object.metrics["distance"])
    by_folder = rollout(world, str(policy_folder), SEEDS, 5)
    by_policy = rollout(world, Policy.load(policy_folder), SEEDS, 5)
    np.testing.assert_array_equal(by_folder.metrics["distance"], by_policy.metrics["distance"])
    assert (by_folder.metrics["distance"][:, -1] != by_name.metrics["distance"][:, -1]).all()


def test_metrics_and_recordings_agree_with_numpy(world: Navigation, tmp_path: Path) -> None:
    ran = rollout(world, "dhba-1", SEEDS, 30, record=2, name="nearby")
    assert {name: values.shape for name, values in ran.metrics.items()} == {
        "success_rate": (3, 31),
        "collisions": (3, 31),
        "distance": (3, 31),
    }
    for episode, recording in enumerate(ran.recordings):
        p = recording.positions.astype(np.float64)
        far = np.linalg.norm(p[:, :, None] - recording.scene["goals"][None, None], axis=-1)  # [T+1, N, M]
        np.testing.assert_allclose(ran.metrics["success_rate"][episode], (far.min(1) < 5.0).mean(1), atol=1e-6)
        pairs = np.linalg.norm(p[:, :, None] - p[:, None], axis=-1) < 5.0
        np.testing.assert_array_equal(ran.metrics["collisions"][episode], (pairs.sum((1, 2)) - 16) / 2)
        walked = np.linalg.norm(np.diff(p, axis=0), axis=-1).cumsum(0).mean(1)
        np.testing.assert_allclose(ran.metrics["distance"][episode, 1:], walked, rtol=1e-4)
    assert [(r.policy, r.seed, r.delay, r.scenario) for r in ran.recordings] == [
        ("nearby", 3, None, "clusters-5"),
        ("nearby", 8, None, "clusters-5"),
    ]
    ran.recordings[1].save(tmp_path / "one.npz")
    loaded = Recording.load(tmp_path / "one.npz")
    np.testing.assert_equal(vars(loaded), vars(ran.recordings[1]))
    (tmp_path / "cut.npz").write_bytes((tmp_path / "one.npz").read_bytes()[:500])
    with pytest.raises(MastError, match=r"cut\.npz is not a recording"):
        Recording.load(tmp_path / "cut.npz")
    np.savez(tmp_path / "other.npz", about=np.array("{}"), positions=np.zeros((1, 1, 2)))
    with pytest.raises(MastError, match=r"other\.npz is not a recording made by mast"):
        Recording.load(tmp_path / "other.npz")


@pytest.mark.parametrize("side", [256.0, 300.0])  # maps of one cell a pixel do not need the world to be a power of two
def test_a_coverage_recording_knows_what_was_seen_when(side: float, tmp_path: Path) -> None:
    world = Coverage(CoverageConfig(agents=5, features=4, side=side, dt=1.0, local_map=64.0))
    ran = rollout(world, "clairvoyant", SEEDS, 20, record=2)
    assert len(ran.recordings) == 2
    recording = ran.recordings[1]
    pixels = len(recording.scene["density"])
    assert pixels == 128 and recording.scene["density"].max() == 255
    middle = ((np.arange(pixels) + 0.5) * side / pixels).astype(int)
    state, actor = world.reset([SEEDS[1]]), make_actor("clairvoyant", world)
    for instant in range(21):
        np.testing.assert_array_equal(recording.positions[instant], state.positions[0])
        seen_by_any = unpack(state.seen_by_any[0], world.config.cells).numpy()[np.ix_(middle, middle)]
        seen_at = recording.scene["seen_at"]
        np.testing.assert_array_equal((seen_at >= 0) & (seen_at <= instant), seen_by_any)
        assert recording.metrics["cost"][instant] == pytest.approx(float(state.cost))
        state = world.step(state, actor.act(state, world.observe(state)))
    assert 0 < seen_by_any.mean() < 1 and recording.scene["seen_at"].max() > 0
    recording.save(tmp_path / "cover.npz")
    np.testing.assert_equal(vars(Recording.load(tmp_path / "cover.npz")), vars(recording))


def test_a_recorded_density_is_the_mean_of_the_map() -> None:
    world = Coverage(CoverageConfig(agents=3, features=4, side=512.0))
    density = world.reset([4]).density[0].numpy()
    means = density.reshape(128, 4, 128, 4).mean(axis=(1, 3))
    kept = rollout(world, "clairvoyant", [4], 1, record=1).recordings[0].scene["density"]
    assert kept.dtype == np.uint8
    np.testing.assert_allclose(kept, 255 * means / means.max(), atol=0.51)


def test_a_coverage_recording_is_small(tmp_path: Path) -> None:
    ran = rollout(Coverage(), "clairvoyant", [0], 600, record=1)
    ran.recordings[0].save(tmp_path / "cover.npz")
    assert (tmp_path / "cover.npz").stat().st_size < 300_000


@pytest.mark.parametrize("policy", ["lsap", "dhba-2", "folder"])
@pytest.mark.parametrize("agents", [1, 2])
def test_teams_of_one_and_two(policy: str, agents: int, policy_folder: Path) -> None:
    world = Navigation(NavigationConfig(agents=agents, width=60.0))
    name = str(policy_folder) if policy == "folder" else policy
    for channel in (None, Channel(delay=0.5)):
        ran = rollout(world, name, [0, 1], 30, channel=channel)
        assert np.isfinite(ran.metrics["distance"]).all() and (ran.metrics["distance"][:, -1] > 0).all()
        if policy == "lsap":
            assert (ran.metrics["success_rate"][:, -1] == 1).all()


class Lost:
    """A controller whose commands are no numbers."""

    def start(self, seeds: object = ()) -> None: ...

    def act(self, state: object, observation: object) -> torch.Tensor:
        return torch.full((1, 16, 2), torch.nan)


def test_a_metric_that_is_not_finite_is_named(world: Navigation, monkeypatch: pytest.MonkeyPatch) -> None:
    def metrics(state: Any) -> dict[str, torch.Tensor]:
        return {"good": state.step.float(), "bad": torch.where(state.step < 2, 1.0, torch.inf)}

    monkeypatch.setattr(world, "metrics", metrics)
    with pytest.raises(MastError, match=r"metric bad of navigation is inf at t = 2 s of seed 7, driven by 'lsap'"):
        rollout(world, "lsap", [7, 8], 3)


def test_bad_input_is_named(world: Navigation, policy_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="command of robot 0 in environment 0 is not finite"):
        rollout(world, Lost(), [0], 3)
    for seeds, steps, record in (([], 5, 0), ([0], 0, 0), ([0], 5, 2)):
        with pytest.raises(MastError, match=rf"{len(seeds)} seeds, {steps} steps, {record} recordings"):
            rollout(world, "lsap", seeds, steps, record=record)
    with pytest.raises(MastError, match="unknown policy 'lsapp': did you mean lsap"):
        rollout(world, "lsapp", [0], 3)
    with pytest.raises(MastError, match="no policy folder 'runs/nowhere/best'"):
        rollout(world, "runs/nowhere/best", [0], 3)
    with pytest.raises(MastError, match=r"a channel is of type float: give mast_swarm\.Channel"):
        rollout(world, "dhba-1-relay", [0], 3, channel=1.0)  # type: ignore[arg-type]
    with pytest.raises(MastError, match=r"takes observations of shape \[14\] but this world gives \[18\]"):
        rollout(Navigation(NavigationConfig(agents=16, observed=4)), str(policy_folder), [0], 3)
    Policy(PolicyConfig(task="coverage", layers=1, heads=1, head_dim=4)).save(tmp_path / "other")
    with pytest.raises(MastError, match="trained for coverage, not for navigation"):
        rollout(world, str(tmp_path / "other"), [0], 3)
    with pytest.raises(MastError, match="variant C"):
        make_actor(Policy(PolicyConfig(variant="C", layers=1, heads=1, head_dim=4)), world, Channel())
    if not torch.cuda.is_available():
        with pytest.raises(MastError, match="no CUDA device"):
            pick_device("cuda")


def test_labels_tell_policies_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert labels(["lsap", "dhba-4"], "navigation") == ["lsap", "dhba-4"]
    assert labels(["runs/mine", "lsap"], "navigation") == ["mine", "lsap"]
    assert labels(["runs/a/best", "runs/b/last"], "navigation") == ["a/best", "b/last"]
    assert labels(["x/run/p", "y/run/p", "z"], "navigation") == ["x/run/p", "y/run/p", "z"]
    assert labels(["lsap", "./lsap"], "navigation") == ["lsap", f"{tmp_path.name}/lsap"]
    with pytest.raises(MastError, match="given twice"):
        labels(["runs/mine", "./runs/../runs/mine"], "navigation")


def test_a_recording_is_whole_under_any_name_and_for_any_whole_seeds(world: Navigation, tmp_path: Path) -> None:
    kept = rollout(world, "lsap", np.arange(2), 2, record=1).recordings[0]
    kept = replace(kept, settings=kept.settings | {"kind": Kind.FAST, "map": Path("map.png")})
    kept.save(tmp_path / "episode.v1")
    assert [path.name for path in tmp_path.iterdir()] == ["episode.v1"]
    again = Recording.load(tmp_path / "episode.v1")
    assert (again.seed, again.settings["kind"], again.settings["map"]) == (0, "fast", "map.png")
    assert np.array_equal(again.positions, kept.positions)
    with pytest.raises(MastError, match=r"seeds are \[0\.5\]: give whole numbers"):
        rollout(world, "lsap", [0.5], 2)  # type: ignore[list-item]
