"""The package as Python programs use it, and as other programs start it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import Tensor

import mast_swarm
from mast_swarm import Channel, MastError, Navigation, NavigationConfig, Policy, chance, rollout
from mast_swarm.comms.failures import survivors
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.tasks.navigation.controllers import Dhba, Lsap
from mast_swarm.train.config import from_run
from shared import mast, recipe

SMALL: dict[str, Any] = {"agents": 6, "episodes": 2, "steps": 3, "device": "cpu"}
ALONE = {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def world() -> Navigation:
    return Navigation(NavigationConfig(agents=8, scenario="clusters-5"))


# Packages that can be called.


def test_evaluate_is_a_package_and_a_function(tmp_path: Path) -> None:
    from mast_swarm.evaluate.config import EvaluateConfig

    assert isinstance(mast_swarm.evaluate, ModuleType) and callable(mast_swarm.evaluate)
    folder, summary = mast_swarm.evaluate("navigation", policy=["dhba-1", "lsap"], out=tmp_path / "r", **SMALL)
    assert folder == tmp_path / "r" and summary["complete"]
    table = pq.read_table(folder / "episodes.parquet")
    assert set(table["policy"].to_pylist()) == {"dhba-1", "lsap"} and set(table["agents"].to_pylist()) == {6}
    assert sorted(set(table["episode"].to_pylist())) == [0, 1] and max(table["t"].to_pylist()) == 3.0
    # The same by a config, and by the command line.
    config = EvaluateConfig(NavigationConfig(agents=6), ("dhba-1", "lsap"), 2, 3, out=tmp_path / "s", device="cpu")
    assert mast_swarm.evaluate("navigation", config)[1]["rows"] == summary["rows"]
    words = "--agents 6 --episodes 2 --steps 3 --device cpu --policy dhba-1 lsap --out"
    assert mast("evaluate", "navigation", *words.split(), tmp_path / "t") == 0
    assert json.loads((tmp_path / "t" / "summary.json").read_text())["rows"] == summary["rows"]


def test_evaluate_names_settings_that_it_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(MastError, match="unknown setting 'episode': did you mean episodes"):
        mast_swarm.evaluate("navigation", episode=3, out=tmp_path / "r")
    with pytest.raises(MastError, match="unknown setting 'agnts': did you mean agents"):
        mast_swarm.evaluate("navigation", agnts=3)
    with pytest.raises(MastError, match="unknown setting 'features': "):  # of another task's world
        mast_swarm.evaluate("navigation", features=3)
    with pytest.raises(MastError, match="--episodes is 0"):
        mast_swarm.evaluate("navigation", episodes=0)
    with pytest.raises(MastError, match="unknown task 'nav'"):
        mast_swarm.evaluate("nav")
    with pytest.raises(MastError, match="settings are those of a world for coverage, not for navigation"):
        mast_swarm.evaluate("navigation", world=mast_swarm.CoverageConfig())
    assert not (tmp_path / "r").exists()


def test_evaluate_takes_a_config_or_settings_but_not_both(tmp_path: Path) -> None:
    from mast_swarm.evaluate.config import EvaluateConfig

    config = EvaluateConfig(NavigationConfig(agents=4), ("lsap",), 1, 1, out=tmp_path / "r", device="cpu")
    with pytest.raises(MastError, match="episodes"):
        mast_swarm.evaluate("navigation", config, episodes=2)


def test_one_policy_needs_no_list(tmp_path: Path) -> None:
    folder, _ = mast_swarm.evaluate("navigation", policy="lsap", out=tmp_path / "r", **SMALL)
    assert set(pq.read_table(folder / "episodes.parquet")["policy"].to_pylist()) == {"lsap"}


@pytest.mark.parametrize("what", ["evaluate", "train"])
def test_a_folder_may_be_a_text(what: str, tmp_path: Path) -> None:
    out = str(tmp_path / "r")
    if what == "evaluate":
        mast_swarm.evaluate("navigation", policy=["lsap"], out=out, **SMALL)
    else:
        mast_swarm.train("navigation", out, recipe="tiny", device="cpu", world={"agents": 6}, **TINY)
    assert (tmp_path / "r" / "config.json").exists()


TINY: dict[str, Any] = {
    "epochs": 1,
    "environments": 2,
    "steps": 2,
    "replay": 8,
    "batch": 2,
    "validation": 1,
    "validation_steps": 2,
}


def test_train_is_a_package_and_a_function(tmp_path: Path) -> None:
    assert isinstance(mast_swarm.train, ModuleType) and callable(mast_swarm.train)
    out = tmp_path / "run"
    made = mast_swarm.train(
        "navigation", out, recipe="tiny", device="cpu", world={"agents": 6}, policy={"layers": 1}, **TINY
    )
    assert made == out
    config, base = from_run(out), recipe("tiny")
    assert (config.epochs, config.world.agents, config.policy.layers) == (1, 6, 1)
    assert (config.lr, config.policy.heads) == (base.lr, base.policy.heads)  # the rest is the recipe's
    policy = mast_swarm.load_policy(str(out / "best"))
    ran = rollout(Navigation(NavigationConfig(agents=6)), policy, [0], 1)
    assert ran.metrics["distance"][0, 1] > 0


def test_train_names_settings_that_it_does_not_know(tmp_path: Path) -> None:
    for given, message in (
        ({"epoch": 3}, "unknown setting 'epoch': did you mean epochs"),
        ({"agnts": 3}, r"unknown setting 'agnts': did you mean world\.agents"),
        ({"world": {"agnts": 3}}, r"unknown setting 'world\.agnts': did you mean world\.agents"),
        ({"epochs": "many"}, "epochs is 'many': expected a whole number"),
        ({"recipe": "tny"}, "unknown recipe 'tny': task navigation has paper, "),
    ):
        with pytest.raises(MastError, match=message):
            mast_swarm.train("navigation", tmp_path / "run", **{"recipe": "tiny", **given})
    with pytest.raises(MastError, match="epochs: settings go with the name of a task; a TrainConfig has all of them"):
        mast_swarm.train(recipe("tiny"), tmp_path / "run", epochs=3)
    with pytest.raises(MastError, match="nothing to train"):
        mast_swarm.train(None, tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Rollouts.


def still(state: Any, observation: Any) -> Tensor:
    return torch.zeros_like(state.positions)


def test_rollout_takes_a_function_a_class_or_an_instance(world: Navigation) -> None:
    found = [
        rollout(world, policy, [3, 8], 6).metrics["distance"]
        for policy in ("lsap", Lsap, Lsap(dt=1.0, max_speed=5.0), Lsap(dt=1.0, max_speed=5.0).act)
    ]
    assert found[0][:, -1].min() > 1
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])
    assert rollout(world, still, [3, 8], 6).metrics["distance"].max() == 0
    assert [r.policy for r in rollout(world, still, [3], 1, record=1).recordings] == ["still"]
    assert [r.policy for r in rollout(world, Lsap, [3], 1, record=1).recordings] == ["Lsap"]


@pytest.mark.parametrize("policy", ["lsap", still])
def test_the_last_state_is_the_one_that_the_last_metrics_measure(world: Navigation, policy: Any) -> None:
    ran = rollout(world, policy, [3, 8, 21], 7, record=1)
    assert ran.state.step.tolist() == [7, 7, 7]
    for name, value in world.metrics(ran.state).items():
        np.testing.assert_array_equal(ran.metrics[name][:, -1], value.float().numpy())
    np.testing.assert_array_equal(ran.recordings[0].positions[-1], ran.state.positions[0].numpy())


def test_what_rollout_refuses(world: Navigation, policy_folder: Path) -> None:
    with pytest.raises(MastError, match="precision is 'bfloat16': expected fp32 or bf16"):
        rollout(world, "lsap", [0], 1, precision="bfloat16")
    for ready in (make_actor("lsap", world), make_actor(str(policy_folder), world)):
        assert rollout(world, ready, [0], 1).metrics["distance"].shape == (1, 2)
        with pytest.raises(MastError, match="a ready-made actor was given together with a channel: give the channel"):
            rollout(world, ready, [0], 1, channel=Channel(delay=1.0))


def test_a_controller_is_no_learned_policy() -> None:
    with pytest.raises(MastError) as raised:
        mast_swarm.load_policy("lsap")
    assert str(raised.value) == (
        "'lsap' is a controller, which has no weights to load: give its name where it is to drive"
    )
    with pytest.raises(MastError, match="'dhba-3' is a controller"):
        mast_swarm.load_policy("dhba-3")
    with pytest.raises(MastError, match="'d-cvt' is a controller"):
        mast_swarm.load_policy("d-cvt", task="coverage")
    with pytest.raises(MastError, match="unknown policy 'mast-n': did you mean mast-m"):
        mast_swarm.load_policy("mast-n")


def test_evaluations_of_one_second_have_folders_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from datetime import datetime

    class Stuck(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Stuck:
            return cls(2030, 1, 2, 3, 4, 5)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("mast_swarm.evaluate.run.datetime", Stuck)
    folders = [mast_swarm.evaluate("navigation", policy=["lsap"], seed=seed, **SMALL)[0] for seed in (1, 2, 3)]
    assert [str(folder) for folder in folders] == [
        f"runs/evaluate-navigation-20300102-030405{end}" for end in ("", "-2", "-3")
    ]
    assert [json.loads((folder / "config.json").read_text())["seed"] for folder in folders] == [1, 2, 3]


# Started by others.


@pytest.mark.parametrize("module", ["mast_swarm", "mast_swarm.cli"])
def test_the_package_is_a_program(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"mast {mast_swarm.__version__}\n", "")


def test_torchrun_starts_the_package(tmp_path: Path) -> None:
    out = tmp_path / "run"
    settings = """-m mast_swarm train navigation --recipe tiny --agents 6 --layers 1 --heads 2 --head-dim 8 --epochs 1
    --environments 4 --steps 3 --replay 16 --batch 4 --validation 2 --validation-steps 2 --device cpu --out"""
    started = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*started, *shlex.split(settings), str(out)], capture_output=True, text=True, env=ALONE, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"best policy: {out / 'best'}") >= 1 and "epoch 1/1" in done.stdout
    assert (from_run(out).epochs, from_run(out).world.agents) == (1, 6)
    assert [json.loads(line)["epoch"] for line in (out / "metrics.jsonl").read_text().splitlines()] == [1]
    assert Policy.load(out / "best").config.layers == 1 and Policy.load(out / "last").config.layers == 1


# Failures.


CHANNEL = Channel(delay=1.0, failure=0.1, seed=4)
STEPS = 12


def moving(ran: Any) -> np.ndarray:
    """Which robots moved in each control period, [E, T, N] bool."""
    track = np.stack([recording.positions for recording in ran.recordings])
    return (np.abs(np.diff(track, axis=1)) > 0).any(-1)


def never_rests(state: Any, observation: Any) -> Tensor:
    return torch.ones_like(state.positions)


def test_the_same_robots_fail_at_the_same_instants_whoever_drives(world: Navigation, policy_folder: Path) -> None:
    seeds = [3, 8, 21]
    policy = Policy.load(policy_folder)
    with torch.no_grad():
        policy.head[-1].bias.add_(1.0)  # so that nobody stands still of its own accord
    kept: dict[str, Any] = {"record": 3, "channel": CHANNEL}
    driven, learned = (moving(rollout(world, who, seeds, STEPS, **kept)) for who in (never_rests, policy))
    np.testing.assert_array_equal(driven, learned)
    assert driven[:, 0].all() and 0.1 < driven[:, -1].mean() < 0.7  # some fail, and not at once
    assert not (driven[:, 1:] & ~driven[:, :-1]).any()  # for good
    alive = torch.ones(3, 8, dtype=torch.bool)
    for instant in range(STEPS):
        np.testing.assert_array_equal(driven[:, instant], alive)
        alive = survivors(alive, chance.keys_of(4, seeds, torch.device("cpu")), instant, 0.1)
    # In another batch they are the same, and over a channel without failures there are none.
    np.testing.assert_array_equal(moving(rollout(world, never_rests, [8], STEPS, **kept | {"record": 1}))[0], driven[1])
    assert moving(rollout(world, never_rests, seeds, STEPS, record=3, channel=Channel(delay=1.0))).all()


def test_a_controller_begins_each_rollout_with_the_whole_team(world: Navigation) -> None:
    actor = make_actor(never_rests, world, CHANNEL)
    first, second = (moving(rollout(world, actor, [3], STEPS, record=1)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert second[:, 0].all() and not second[:, -1].all()


def test_nobody_hears_a_robot_that_has_failed(world: Navigation) -> None:
    class Listening(Dhba):
        """DHBA that notes who is in the graph."""

        def __init__(self) -> None:
            super().__init__(3, dt=1.0, max_speed=5.0)
            self.linked: list[Tensor] = []

        def act(self, state: Any, observation: Any) -> Tensor:
            links = observation.graph.adjacency()
            self.linked.append(links.any(1) | links.any(2))
            whole = world.observe(state).graph.adjacency()
            alive = self.alive[len(self.linked) - 1]
            assert torch.equal(links, whole & alive[:, None] & alive[:, :, None])
            return super().act(state, observation)

    seeds, listening = [3, 8, 21], Listening()
    alive = [torch.ones(3, 8, dtype=torch.bool)]
    for instant in range(STEPS):
        alive.append(survivors(alive[-1], chance.keys_of(4, seeds, torch.device("cpu")), instant, 0.1))
    listening.alive = alive  # type: ignore[attr-defined]
    ran = rollout(world, listening, seeds, STEPS, channel=CHANNEL, record=3)
    assert len(listening.linked) == STEPS and not all(part.all() for part in listening.linked)
    stands = ~moving(ran)
    assert stands[~torch.stack(alive[:STEPS], dim=1).numpy()].all()
    # What the living do depends on who is heard: without failures they act otherwise.
    whole = rollout(world, "dhba-3", seeds, STEPS, record=3)
    both = torch.stack(alive[:STEPS], 1)[:, -1].numpy()
    ends = [np.stack([r.positions[-1] for r in one.recordings])[both] for one in (ran, whole)]
    assert np.abs(ends[0] - ends[1]).max() > 0.1


def test_failures_stand_beside_results(tmp_path: Path, policy_folder: Path) -> None:
    given = ("--agents", 6, "--episodes", 2, "--steps", 8, "--device", "cpu", "--policy", "lsap", policy_folder)
    for out, failure in (("none", ()), ("some", ("--failure", 0.2))):
        assert mast("evaluate", "navigation", *given, "--delay", 1, *failure, "--out", tmp_path / out) == 0
    tables = {out: pq.read_table(tmp_path / out / "episodes.parquet") for out in ("none", "some")}
    for out, failure in (("none", 0.0), ("some", 0.2)):
        assert set(tables[out]["failure"].to_pylist()) == {failure}
        rows = json.loads((tmp_path / out / "summary.json").read_text())["rows"]
        assert {(row["policy"], row["failure"]) for row in rows} == {("lsap", failure), ("small", failure)}
    walked = {
        out: {
            row["policy"]: row["mean"]
            for row in json.loads((tmp_path / out / "summary.json").read_text())["rows"]
            if row["metric"] == "distance" and row["t"] == 8.0
        }
        for out in tables
    }
    assert all(walked["some"][policy] < walked["none"][policy] for policy in ("lsap", "small"))


def test_settings_of_a_world_may_be_of_any_plain_type(tmp_path: Path) -> None:
    """What a file holds of them comes back as it was."""
    from dataclasses import dataclass
    from enum import Enum
    from typing import Optional

    from mast_swarm.train.config import _checked

    class Kind(Enum):
        ROUND = "round"

    @dataclass(frozen=True)
    class Mixed(NavigationConfig):
        limit: Optional[float] = 3.0  # noqa: UP045  the older way to write it
        many: tuple[float, ...] = (1.0, 2.0)
        place: Path = Path("here")
        kind: Kind = Kind.ROUND

    folder, _ = mast_swarm.evaluate("navigation", world=Mixed(agents=4), policy="lsap", out=tmp_path / "r", **FEW)
    kept = json.loads((folder / "config.json").read_text())
    assert (kept["limit"], kept["many"], kept["place"], kept["kind"]) == (3.0, [1.0, 2.0], "here", "round")
    assert _checked("limit", Optional[float], None) is None  # noqa: UP045
    assert _checked("many", tuple[float, ...], [1, 2, 3]) == (1.0, 2.0, 3.0)
    assert _checked("place", Path, "there") == Path("there") and _checked("kind", Kind, "round") is Kind.ROUND


FEW: dict[str, Any] = {"episodes": 1, "steps": 2, "device": "cpu"}


def test_a_run_is_no_policy_and_a_task_is_found_by_itself(tmp_path: Path) -> None:
    from mast_swarm.tasks.registry import find

    run = mast_swarm.train("navigation", tmp_path / "run", recipe="tiny", device="cpu", world={"agents": 6}, **TINY)
    with pytest.raises(MastError, match=r"is a training run: give .*best or .*last"):
        mast_swarm.evaluate("navigation", policy=[str(run)], agents=6, out=tmp_path / "r", **FEW)
    folder, _ = mast_swarm.evaluate(find("navigation"), policy="lsap", agents=6, out=tmp_path / "r", **FEW)
    assert (folder / "summary.json").exists()
