"""Whom policies imitate: any controller of a task, told no more than it reads, in units that the policy predicts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from mast_swarm import MastError, NavigationConfig, PolicyConfig, load_policy, register
from mast_swarm.space import components, radius_graph
from mast_swarm.tasks.base import FunctionController
from mast_swarm.tasks.coverage.controllers import CentralizedCvt, Clairvoyant
from mast_swarm.tasks.navigation.controllers import Dhba, Explorer, Lsap, Searcher
from mast_swarm.tasks.registry import task_of
from mast_swarm.train.config import TrainConfig, from_run
from mast_swarm.train.run import train
from mast_swarm.train.teacher import Teacher, thinks_as_one
from mast_swarm.train.team import example, world_of
from shared import mast as command
from shared import one_line, recipe
from strolling import Config, Eastwards, own_tasks, strolling

SEEDS = [3, 8, 21]


def inspected(config: TrainConfig, steps: int = 3) -> Iterator[tuple[Teacher, Any, Any, dict[str, Tensor]]]:
    """A teacher in the states of a rollout that it drives: itself, the state, what is sensed, what it is told."""
    world, (state, observation, given) = world_of(config), example(config)
    teacher = Teacher(config, world, state, observation, given)
    state = world.reset(SEEDS)
    teacher.start(SEEDS)
    for _ in range(steps):
        observation = world.observe(state)
        labels = {} if getattr(config.policy, "variant", "M") != "M" else {"component": components(observation.graph)}
        told = teacher.asks(state, observation, labels)
        yield teacher, state, observation, told
        state = world.step(state, teacher.label(told, state)[..., :2])
    assert given  # an example has been given something


@pytest.fixture
def direct(small: TrainConfig) -> TrainConfig:
    """A policy that does not explore: targets are commands alone."""
    return replace(small, policy=replace(small.policy, exploration_time=None))


# Any controller.


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("", Lsap),
        ("lsap", Lsap),
        ("clairvoyant", Lsap),
        ("dhba-2", Dhba),
        ("explorer", Explorer),
        ("searcher-2", Searcher),
    ],
)
def test_any_controller_of_navigation_can_be_the_expert(direct: TrainConfig, name: str, kind: type) -> None:
    config = replace(direct, expert=name)
    own: Any = kind(2, dt=1.0, max_speed=5.0) if kind in (Dhba, Searcher) else kind(dt=1.0, max_speed=5.0)
    own.start(SEEDS)
    for teacher, state, observation, told in inspected(config):
        assert type(teacher.expert) is kind
        expected = own.plan(state, observation, components(observation.graph)) if hasattr(own, "plan") else None
        expected = own.act(state, observation) if expected is None else expected[..., :2]
        label = teacher.label(told, state)
        assert label.shape == (3, 10, 2) and torch.equal(label, expected)
        assert (torch.linalg.vector_norm(label, dim=-1) > 0.5).any()


def test_coverage_has_others_too(small_coverage: TrainConfig) -> None:
    own = CentralizedCvt(dt=1.0, max_speed=small_coverage.world.max_speed)
    others = []
    for teacher, state, observation, told in inspected(replace(small_coverage, expert="c-cvt")):
        assert type(teacher.expert) is CentralizedCvt and told == {} and teacher.observes
        label = teacher.label(told, state)
        assert torch.equal(label, own.act(state, observation))
        others.append((label - Clairvoyant(dt=1.0, max_speed=5.0).act(state, observation)).abs().max())
    assert max(others) > 0.01  # it knows less than the clairvoyant


@pytest.mark.parametrize(
    ("task", "expert", "given"),
    [
        ("navigation", "dhba-2", "--recipe tiny --agents 6"),
        ("navigation", "explorer", "--recipe tiny --agents 6"),
        ("coverage", "c-cvt", "--recipe tiny --agents 4 --features 3 --side 64 --sigma 6 8 --sensor 16 --local-map 48"),
    ],
)
def test_the_command_line_takes_them(task: str, expert: str, given: str, tmp_path: Path) -> None:
    tiny = "--layers 1 --epochs 1 --environments 2 --steps 3 --replay 20 --batch 4 --validation 1 --validation-steps 2"
    out = tmp_path / "run"
    assert (
        command("train", task, "--expert", expert, *given.split(), *tiny.split(), "--device", "cpu", "--out", out) == 0
    )
    assert from_run(out).expert == expert and (out / "best" / "model.safetensors").exists()


def test_an_expert_that_does_not_exist(small: TrainConfig, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MastError, match="unknown expert 'lsp': did you mean lsap"):
        replace(small, expert="lsp")
    assert command("train", "navigation", "--recipe", "tiny", "--expert", "dhba") == 2
    assert "unknown expert 'dhba': did you mean dhba-K" in one_line(capsys)


# Functions.


@pytest.fixture
def strollers() -> Iterator[TrainConfig]:
    with own_tasks():
        register(strolling())
        policy = PolicyConfig(layers=1, heads=2, head_dim=8, observation_dim=4, attention_radius=100.0)
        yield TrainConfig(Config(), policy, epochs=1, environments=2, steps=2, replay=8, batch=2, validation=1)


def test_what_a_function_says_is_limited_as_the_world_limits_it(strollers: TrainConfig) -> None:
    task = task_of(strollers.world)
    for teacher, state, observation, told in inspected(strollers):
        assert isinstance(teacher.expert, FunctionController) and told == {} and teacher.reads is None
        raw = task.controllers["inwards"](state, observation)
        assert torch.linalg.vector_norm(raw, dim=-1).max() > 1
        label = teacher.label(told, state)
        torch.testing.assert_close(label, raw / torch.linalg.vector_norm(raw, dim=-1, keepdim=True).clamp(min=1))
        torch.testing.assert_close(label, world_of(strollers).moved(state, raw)[0])


def test_a_function_tells_those_that_explore_its_speed(strollers: TrainConfig) -> None:
    config = replace(strollers, policy=replace(strollers.policy, exploration_time=20.0))
    for teacher, state, _, told in inspected(config):
        label = teacher.label(told, state)
        assert label.shape == (3, 5, 3)
        torch.testing.assert_close(label[..., 2], torch.linalg.vector_norm(label[..., :2], dim=-1))


def test_a_function_knows_no_limit(strollers: TrainConfig, tmp_path: Path) -> None:
    config = replace(strollers, target_limit=2.0)
    with pytest.raises(MastError, match="--target-limit 2: expert 'inwards' is a function and knows no limit"):
        train(config, tmp_path / "run", device="cpu")
    config = replace(config, expert="eastwards")  # a class, which is told
    for teacher, state, _, told in inspected(config, steps=1):
        assert isinstance(teacher.expert, Eastwards) and teacher.expert.max_speed == 10.0
        assert torch.equal(teacher.label(told, state)[..., 0], torch.full((3, 5), 2.0))


def test_a_task_without_an_expert_says_so(strollers: TrainConfig, tmp_path: Path) -> None:
    register(replace(strolling(), expert=None))
    with pytest.raises(MastError, match="task strolling has no expert: give --expert one of inwards, eastwards"):
        train(strollers, tmp_path / "run", device="cpu")
    assert isinstance(next(inspected(replace(strollers, expert="eastwards")))[0].expert, Eastwards)


# Those that say what they read.


@pytest.mark.parametrize(("limit", "expert"), [(1.0, "lsap"), (3.0, "lsap")])
def test_what_is_read_is_all_that_navigation_needs(direct: TrainConfig, limit: float, expert: str) -> None:
    config = replace(direct, target_limit=limit, expert=expert)
    own, longest = Lsap(dt=1.0, max_speed=5.0 * limit), 0.0
    for teacher, state, observation, told in inspected(config):
        assert set(told) == {"positions", "goals"} and not teacher.observes
        assert told["positions"] is state.positions and told["goals"] is state.goals
        label = teacher.label(told, state)
        assert torch.equal(label, limit * own.act(state, observation))
        assert torch.equal(label, teacher.label(teacher.asks(state, None, {}), state))  # nobody needs to look
        longest = max(longest, float(torch.linalg.vector_norm(label, dim=-1).max()))
    assert longest == pytest.approx(limit, abs=1e-4)


def test_what_is_read_is_all_that_coverage_needs(small_coverage: TrainConfig) -> None:
    own, moved = Clairvoyant(dt=1.0, max_speed=small_coverage.world.max_speed), 0.0
    for teacher, state, observation, told in inspected(small_coverage):
        assert set(told) == {"positions", "moments"} and not teacher.observes
        assert teacher.scales["side"] == small_coverage.world.side  # the same in every state
        label = teacher.label(told, state)
        assert torch.equal(label, own.act(state, observation))
        moved += float(label.abs().max())
    assert moved > 0.1


# An expert that knows what robots can know.


def at(config: TrainConfig, expert: str = "informed") -> tuple[Teacher, Any, Any, dict[str, Tensor], Tensor]:
    """A teacher, one state, what is sensed there, what it is told and what it says."""
    config = replace(config, expert=expert)
    world, (_, _, given) = world_of(config), example(config)
    teacher, state, observation, _ = next(inspected(config))
    labels = {"component": components(observation.graph)} if "component" in given else {}
    told = teacher.asks(state, observation, labels)
    assert set(told) == {"positions", "goals", "goals_seen", "component"} and teacher.observes
    assert world.config == config.world
    return teacher, state, observation, told, teacher.label(told, state)


def planned(state: Any, observation: Any, labels: Tensor) -> Tensor:
    return Explorer(dt=1.0, max_speed=5.0).plan(state, observation, labels)


@pytest.fixture
def wide(small: TrainConfig) -> TrainConfig:
    """A team in several components, which windows of 150 m join otherwise."""
    world = NavigationConfig(agents=24, scenario="clusters-5", width=800.0, observed=2)
    return replace(small, world=world, policy=replace(small.policy, observation_dim=10))


def joined(positions: Tensor, radius: float) -> Tensor:
    """The lowest robot that a chain of steps shorter than `radius` leads to, found by trying."""
    near = torch.cdist(positions.double(), positions.double()) < radius
    for _ in range(positions.shape[1]):
        near = (near.float() @ near.float()) > 0
    return near.int().argmax(-1)


def test_with_the_mask_a_component_thinks_as_one(wide: TrainConfig) -> None:
    assert wide.policy.component_mask
    _, state, observation, told, label = at(wide)
    labels = components(observation.graph)
    assert 1 < len(labels[0].unique()) < 24
    assert torch.equal(told["component"], labels)
    assert torch.equal(label, planned(state, observation, labels))
    everyone = planned(state, observation, torch.zeros_like(labels))
    assert not torch.equal(label, everyone)  # so that it matters who thinks as one


def test_without_it_a_chain_of_windows_does(wide: TrainConfig) -> None:
    config = replace(wide, policy=replace(wide.policy, variant="L", attention_radius=120.0))
    assert not config.policy.component_mask
    _, state, observation, told, label = at(config)
    labels = joined(state.positions, 120.0)
    assert torch.equal(told["component"], labels)
    assert torch.equal(label, planned(state, observation, labels))
    assert not torch.equal(labels, components(observation.graph)) and 1 < len(labels[0].unique()) < 24
    assert torch.equal(labels, components(radius_graph(state.positions, 120.0)))


def test_without_a_window_the_whole_team_does(wide: TrainConfig) -> None:
    config = replace(wide, policy=replace(wide.policy, variant="L", attention_radius=None))
    _, state, observation, told, label = at(config)
    assert told["component"].dtype == torch.int64 and not told["component"].any()
    assert torch.equal(label, planned(state, observation, torch.zeros(3, 24, dtype=torch.int64)))
    assert not torch.equal(label, planned(state, observation, components(observation.graph)))


def test_directed_links_have_no_components_to_think_as_one(wide: TrainConfig, tmp_path: Path) -> None:
    config = replace(wide, world=replace(wide.world, directed=True), expert="informed")
    with pytest.raises(MastError, match="needs links that carry both ways: leave --directed away, or take another"):
        train(config, tmp_path / "run", device="cpu")
    world = world_of(config)
    observation = world.observe(world.reset(SEEDS))
    with pytest.raises(MastError, match="needs links that carry both ways"):
        thinks_as_one(config.policy, observation, {"component": torch.ones(3, 24, 24, dtype=torch.bool)})
    # Windows do not ask who hears whom.
    free = replace(config, policy=replace(wide.policy, variant="L", attention_radius=120.0))
    assert torch.equal(at(free)[3]["component"], joined(next(inspected(free))[1].positions, 120.0))


def test_one_that_does_not_explore_learns_the_command_alone(wide: TrainConfig) -> None:
    config = replace(wide, policy=replace(wide.policy, exploration_time=None))
    teacher, state, observation, _, label = at(config)
    assert not teacher.explores and label.shape == (3, 24, 2)
    assert torch.equal(label, planned(state, observation, components(observation.graph))[..., :2])


def test_the_recipe_sharp_learns_from_a_searcher(tmp_path: Path) -> None:
    """At a size for a test: it trains, its loss falls, and its policy explores as the recipe says."""
    sharp = recipe("sharp")
    config = replace(
        sharp,
        world=NavigationConfig(agents=20),
        policy=replace(sharp.policy, layers=1, heads=2, head_dim=16),
        scenarios=("clusters-5",),
        **{"epochs": 2, "environments": 6, "steps": 20, "batch": 16, "replay": 2000},
        **{"validation": 4, "validation_steps": 5, "validate_every": 2},
    )
    assert config.expert == "searcher-250" and config.policy.exploration_push == 4
    folder = train(config, tmp_path / "run", device="cpu")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert rows[1]["loss"] < 0.9 * rows[0]["loss"]
    assert load_policy(folder / "best").config == config.policy
