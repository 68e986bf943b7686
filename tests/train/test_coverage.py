"""Coverage in the same engine: what a sample keeps, whom it imitates, and rollouts that come before all learning."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from mast_swarm.comms.config import Channel
from mast_swarm.errors import MastError
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.model.policy import load_learned, make
from mast_swarm.space import components
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.world import Coverage
from mast_swarm.tasks.registry import find
from mast_swarm.train import checkpoint
from mast_swarm.train.bench import bench_train
from mast_swarm.train.collector import Collector, sample_layout
from mast_swarm.train.config import TrainConfig, from_run
from mast_swarm.train.draws import draws
from mast_swarm.train.learner import Learner
from mast_swarm.train.replay import Replay
from mast_swarm.train.run import train
from mast_swarm.train.team import start_seeds
from mast_swarm.train.trainer import Trainer
from mast_swarm.view.terminal import train_table
from shared import Stopped, options, recipe, stop_after

CPU = torch.device("cpu")


def collector(config: TrainConfig) -> Collector:
    replay = Replay(sample_layout(config), config.replay, CPU)
    return Collector(config, make(config.policy), replay, CPU, 0, config.environments)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_the_paper_recipe_is_the_papers() -> None:
    paper = recipe("paper", "coverage")
    assert (paper.gathered(), paper.replay, paper.keep_every, paper.expert_share) == (100_000, 100_000, 5, 1.0)
    assert paper.steps >= paper.validation_steps == 600
    assert (paper.lr, paper.weight_decay, paper.batch, paper.schedule) == (3.3e-4, 2e-9, 256, "constant")
    assert (paper.clip, paper.ema) == (None, None)
    assert paper.epochs - paper.collect == 100 and paper.updates_an_epoch() == 100_000 // 256
    assert (paper.policy.layers, paper.policy.message_width, paper.world) == (8, 32, CoverageConfig())
    assert {recipe(name, "coverage").policy.kind for name in ("paper", "best")} == {"mast"}


@pytest.mark.parametrize(("name", "maps"), [("lpac-k3", 4), ("lpac-k3-seen", 5)])
def test_the_baseline_learns_as_mast_m_does(name: str, maps: int) -> None:
    lpac, best = recipe(name, "coverage"), recipe("best", "coverage")
    assert lpac.policy.kind == "lpac" and lpac.policy.observation_shape == lpac.world.observation_shape == (
        maps,
        32,
        32,
    )
    assert replace(lpac, world=best.world, policy=best.policy, weight_decay=best.weight_decay) == best


def test_a_sample_of_the_paper_recipe_is_small() -> None:
    layout = sample_layout(recipe("paper", "coverage"))
    size = sum(torch.Size(shape).numel() * kind.itemsize for shape, kind in layout.values())
    assert size < 34_000  # 3.4 GB in all; the features as they are would be 52 GB
    assert layout["features"] == ((32, 1, 32, 32), torch.uint8)


@pytest.mark.parametrize("kind", ["small_coverage", "small_lpac"])
def test_a_sample_holds_what_was_seen_and_the_experts_command(kind: str, request: pytest.FixtureRequest) -> None:
    config = replace(request.getfixturevalue(kind), keep_every=1, expert_share=0.5, environments=12, replay=120)
    made, world = collector(config), Coverage(config.world)
    expert = find("coverage").make_controller("clairvoyant", dt=config.world.dt, max_speed=config.world.max_speed)
    made.begin(0)
    empty = 0
    for _ in range(10):
        state = type(made.team.state)(**{name: value.clone() for name, value in vars(made.team.state).items()})
        observation, pushed = world.observe(state), int(made.replay.pushed)
        made.look()
        made.label()
        made.move()
        kept = {name: field[pushed : pushed + 12] for name, field in made.replay.fields.items()}
        torch.testing.assert_close(
            world.unpack(kept["features"], kept["positions"]), observation.features, atol=0.5 / 255 + 1e-6, rtol=0
        )
        assert torch.equal(kept["positions"], state.positions)
        if config.policy.kind == "mast":
            assert torch.equal(kept["component"].long(), components(observation.graph))
        else:
            assert torch.equal(kept["adjacency"], observation.graph.adjacency())
        assert torch.equal(kept["target"], expert.act(state, observation))
        empty += int((state.moments[..., 0] <= 0).sum())
        by_expert = made.by_expert[:, 0, 0]
        moved = world.step(state, torch.where(by_expert[:, None, None], kept["target"], made.team.command))
        assert torch.equal(made.team.state.positions, moved.positions) and torch.equal(made.team.state.seen, moved.seen)
    assert empty > 0 and 0 < int(by_expert.sum()) < 12  # so that the test can fail


def test_samples_are_kept_as_often_as_asked_wherever_the_expert_drives_alone(small_coverage: TrainConfig) -> None:
    config = replace(small_coverage, expert_share=1.0, carry=0.0, keep_every=5, steps=12, collect=1, epochs=2, batch=4)
    trainer = Trainer(config, options(Path("unused")))
    trainer.one_epoch()
    assert int(trainer.replay.pushed) == 3 * config.environments
    world = Coverage(config.world)
    expert = find("coverage").make_controller("clairvoyant", dt=1.0, max_speed=5.0)
    state = world.reset(start_seeds(config, 0, range(config.environments)))
    for step in range(12):
        observation = world.observe(state)
        if step % 5 == 0:
            sample = {name: trainer.replay.fields[name][4 * step // 5 :][:4] for name in ("features", "positions")}
            assert torch.equal(sample["positions"], state.positions)
            assert torch.equal(sample["features"], world.pack(observation.features))
        state = world.step(state, expert.act(state, observation))
    assert torch.equal(trainer.collector.team.state.positions, state.positions)


def test_targets_may_tell_how_far_goals_are(small_coverage: TrainConfig) -> None:
    cut, whole = (collector(replace(small_coverage, target_limit=limit, expert_share=1.0)) for limit in (1.0, 4.0))
    goals = find("coverage").make_controller("clairvoyant", dt=1.0, max_speed=5.0)
    for made in (cut, whole):
        made.begin(0)
        state, observation = made.team.state, made.team.world.observe(made.team.state)
        way = (goals.goals(state, observation) - state.positions) / 5.0  # type: ignore[attr-defined]
        made.look()
        made.label()
        made.move()
    length = torch.linalg.vector_norm(way, dim=-1, keepdim=True)
    assert (length > 4).any() and ((length > 1) & (length < 4)).any()
    for made, limit in ((cut, 1.0), (whole, 4.0)):
        expected = way * (limit / length).clamp(max=1.0)
        torch.testing.assert_close(made.target, expected.float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(cut.team.state.positions, whole.team.state.positions)  # the world limits both alike


def test_the_loss_is_in_units_of_the_action_scale(small_lpac: TrainConfig) -> None:
    losses = []
    for scale in (1.0, 20.0):
        config = replace(small_lpac, policy=replace(small_lpac.policy, action_scale=scale))
        learner = Learner(config, Replay(sample_layout(config), config.replay, CPU), CPU)
        batch = {name: field[:3].clone() for name, field in learner.replay.fields.items()}
        batch["target"] = scale * torch.ones_like(batch["target"])
        losses.append(float(learner.batch_loss(batch).detach()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5) and losses[0] > 0


def test_errors_may_be_weighted_by_the_mass_of_a_cell(small_coverage: TrainConfig) -> None:
    config = replace(small_coverage, weighted=True)
    made = collector(config)
    made.begin(0)
    made.look()
    made.label()
    mass = made.team.state.moments[..., 0].clone()
    made.move()
    weight = made.replay.fields["weight"][: config.environments]
    torch.testing.assert_close(weight.mean(-1), torch.ones(config.environments))
    torch.testing.assert_close(weight.double() * 1.05 - 0.05, mass / mass.mean(-1, keepdim=True), rtol=1e-5, atol=1e-6)
    learner = Learner(config, made.replay, CPU)
    batch = {name: field[:3].clone() for name, field in made.replay.fields.items()}
    batch["weight"][:] = 0.0
    assert float(learner.batch_loss(batch).detach()) == 0.0
    batch["weight"][:, 1] = 1.0
    loss = float(learner.batch_loss(batch).detach())
    batch["target"][:, [i for i in range(config.world.agents) if i != 1]] += 5.0  # of those that do not count
    assert float(learner.batch_loss(batch).detach()) == loss > 0


CHANGES: dict[str, dict[str, Any]] = {
    "both": {},
    "weighted and mirrored": {"weighted": True, "mirrored": True},
    "first rollouts": {"collect": 2, "expert_share": 1.0, "carry": 0.0, "updates": 2},
    "first rollouts, some by the policy": {"collect": 2, "carry": 0.0},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("kind", ["small_coverage", "small_lpac"])
def test_a_run_that_was_stopped_ends_bit_for_bit_like_one_that_was_not(
    kind: str, change: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = replace(request.getfixturevalue(kind), epochs=4, **change)
    Trainer(config, options(tmp_path / "whole")).run()
    with pytest.raises(Stopped):
        Trainer(config, options(tmp_path / "parts")).run(stop_after(1))
    with pytest.raises(Stopped):
        Trainer.resume(options(tmp_path / "parts")).run(stop_after(3))
    Trainer.resume(options(tmp_path / "parts"), config).run()
    assert same(checkpoint.read(tmp_path / "whole"), checkpoint.read(tmp_path / "parts"))
    assert checkpoint.about(tmp_path / "whole") == checkpoint.about(tmp_path / "parts")
    for name in ("best", "last"):
        whole, parts = (load_file(tmp_path / run / name / "model.safetensors") for run in ("whole", "parts"))
        assert same(whole, parts)
    keys = ("epoch", "loss", "cost_time_average")
    for one, other in zip(rows(tmp_path / "whole"), rows(tmp_path / "parts"), strict=True):
        assert [one.get(key) for key in keys] == [other.get(key) for key in keys]
    assert from_run(tmp_path / "parts") == config
    assert load_learned(tmp_path / "parts" / "best").config == config.policy


@pytest.mark.parametrize("epochs", [1, 3])
def test_what_the_expert_alone_has_shown_is_made_again_where_the_replay_was_left_out(
    small_coverage: TrainConfig, tmp_path: Path, epochs: int
) -> None:
    config = replace(small_coverage, epochs=4, collect=2, expert_share=1.0, carry=0.0)
    Trainer(config, options(tmp_path / "whole", keep_replay=False)).run()
    with pytest.raises(Stopped):
        Trainer(config, options(tmp_path / "parts", keep_replay=False)).run(stop_after(epochs))
    kept = checkpoint.read(tmp_path / "parts")
    assert kept and all(name.startswith("learner.") for name in kept)  # neither samples nor worlds
    Trainer.resume(options(tmp_path / "parts", keep_replay=False)).run()
    assert same(checkpoint.read(tmp_path / "whole"), checkpoint.read(tmp_path / "parts"))


def test_rollouts_first_then_passes_over_all_samples(
    small_coverage: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(
        small_coverage, collect=2, epochs=4, expert_share=1.0, carry=0.0, steps=11, keep_every=5, batch=5, updates=2
    )
    assert (config.gathered(), config.updates_an_epoch()) == (24, 8)
    chosen: list[list[int]] = []
    monkeypatch.setattr(Learner, "update", choose(Learner.update, chosen))
    trainer = Trainer(config, options(tmp_path))
    trainer.run()
    assert int(trainer.replay.pushed) == 24 and trainer.learner.done == trainer.learner.total == 16
    passes = [[sample for batch in chosen[first : first + 4] for sample in batch] for first in range(0, 16, 4)]
    assert all(len(set(found)) == 20 for found in passes)  # each sample at most once a pass; 4 do not fill a batch
    assert len({tuple(found) for found in passes}) == 4
    told = rows(tmp_path)
    assert ["loss" in row for row in told] == [False, False, True, True]
    assert ["cost_time_average" in row for row in told] == [False, False, False, True]  # 2 is no time to validate
    assert all(row["samples_per_second"] > 0 for row in told)


def choose(real: Callable[..., None], chosen: list[list[int]]) -> Callable[..., None]:
    """An update that writes down which samples it takes."""

    def update(self: Learner, uniform: torch.Tensor) -> None:
        chosen.append((uniform * self.replay.pushed.clamp(max=self.replay.capacity)).long().tolist())
        real(self, uniform)

    return update


def test_a_pass_over_the_papers_samples_takes_each_once() -> None:
    config = replace(recipe("paper", "coverage"), batch=250)
    drawn = torch.stack(list(draws(config, 10, 0, 1, torch.device("cpu"))))
    assert drawn.shape == (400, 250)
    assert len((drawn * torch.tensor(100_000)).long().unique()) == 100_000


def test_the_best_policy_is_the_one_of_least_cost(
    small_coverage: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = iter((0.8, 0.5, 0.6))
    monkeypatch.setattr("mast_swarm.train.team.Validator.headlines", lambda self: [next(costs)])
    trainer = Trainer(replace(small_coverage, validate_every=1), options(tmp_path))
    kept: list[int] = []
    monkeypatch.setattr(trainer, "_keep_policy", lambda name: kept.append(trainer.epoch) if name == "best" else None)
    trainer.run()
    assert trainer.best == 0.5 and kept == [1, 2]
    assert [row["cost_time_average"] for row in rows(tmp_path)] == [0.8, 0.5, 0.6]


def test_validation_is_the_mean_cost_over_time(small_coverage: TrainConfig, tmp_path: Path) -> None:
    config = replace(small_coverage, validation_steps=7, validation=3, ema=None)
    trainer = Trainer(config, options(tmp_path))
    measured = trainer.validate()
    world, policy = Coverage(config.world), trainer.learner.policy
    state = world.reset([2**50 + episode for episode in range(3)])
    for _ in range(7):
        with torch.no_grad():
            state = world.step(state, policy(**policy.inputs(world.observe(state))))
    assert measured == pytest.approx(float(world.metrics(state)["cost_time_average"].mean()), rel=1e-6)
    assert load_learned(tmp_path / "best").config == config.policy


def test_batch_norm_learns_from_updates_alone_and_is_averaged(small_coverage: TrainConfig, tmp_path: Path) -> None:
    trainer = Trainer(replace(small_coverage, updates=1), options(tmp_path))
    trainer.run()
    policy, average = trainer.learner.policy.state_dict(), trainer.learner.shipped.state_dict()
    name = "perception.convolutions.1.running_mean"
    assert int(policy["perception.convolutions.1.num_batches_tracked"]) == trainer.learner.done
    assert policy[name].abs().max() > 0 and average[name].abs().max() > 0
    assert not torch.equal(policy[name], average[name])
    assert not trainer.learner.policy.training and not trainer.learner.shipped.training


@pytest.mark.parametrize("kind", ["small_coverage", "small_lpac"])
def test_it_teaches(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    config = replace(
        request.getfixturevalue(kind), epochs=6, steps=20, replay=1000, batch=16, lr=5e-3, carry=0.0, validate_every=6
    )
    told: list[dict[str, Any]] = []
    Trainer(config, options(tmp_path, checkpoint_seconds=1e9)).run(told.append)
    assert told[-1]["loss"] < 0.8 * told[0]["loss"], [row["loss"] for row in told]


def test_other_settings_are_listed_whatever_the_kind_of_policy(
    small_coverage: TrainConfig, small_lpac: TrainConfig, tmp_path: Path
) -> None:
    Trainer(replace(small_coverage, epochs=1), options(tmp_path)).run()
    wanted = replace(small_lpac, epochs=1, world=replace(small_lpac.world, sigma=(6.0, 11.0)))
    with pytest.raises(MastError, match=r"policy\.kind mast -> lpac.*world\.sigma \[6\.0, 10\.0\] -> \[6\.0, 11\.0\]"):
        train(wanted, tmp_path, resume=True, device="cpu")


def test_an_expert_that_the_task_does_not_have(small_coverage: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="unknown expert 'informed': known: c-cvt, clairvoyant, d-cvt"):
        train(replace(small_coverage, expert="informed"), tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_policy_that_sees_goals_needs_some(small_coverage: TrainConfig) -> None:
    policy = replace(small_coverage.policy, variant="C")
    with pytest.raises(
        MastError, match="--variant C is a policy that sees the goals, and coverage has none: use M or L"
    ):
        replace(small_coverage, policy=policy)
    assert replace(small_coverage, policy=replace(policy, variant="L")).policy.variant == "L"


@pytest.mark.parametrize("change", [{}, {"collect": 2, "expert_share": 1.0}], ids=str)
def test_the_parts_of_a_step_are_measured(small_coverage: TrainConfig, change: dict[str, Any]) -> None:
    found = bench_train(replace(small_coverage, carry=0.0, epochs=5, **change), CPU, repeats=2)
    table = train_table(found)
    assert table.row_count == len(found["parts_ms"]) + len(found["update_kernels_us"]) + 4
    assert set(found["parts_ms"]) == {"update", "sense_and_decide", "expert", "push_and_move"}
    assert all(value > 0 for value in found["parts_ms"].values()) and found["all_epochs_s"] > 0


@pytest.mark.parametrize("kind", ["small_coverage", "small_lpac"])
def test_a_policy_of_any_scale_runs_alone_as_it_runs_from_one_place(kind: str, request: pytest.FixtureRequest) -> None:
    config = request.getfixturevalue(kind)
    policy = make(replace(config.policy, action_scale=7.0), seed=3)
    plain = make(replace(config.policy, action_scale=1.0), seed=3)
    world = Coverage(config.world)
    observation = world.observe(world.reset([0, 1]))
    with torch.no_grad():
        predictions = [each(**each.inputs(observation)) for each in (policy, plain)]
    torch.testing.assert_close(predictions[0], 7.0 * predictions[1])
    together, alone = (rollout(world, policy, range(3), 5, channel=channel) for channel in (None, Channel(delay=0.0)))
    for metric, values in together.metrics.items():
        assert values == pytest.approx(alone.metrics[metric], rel=1e-3)
