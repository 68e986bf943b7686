"""Rollouts: who drives, where start states come from, and what a sample holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.model.policy import Policy
from mast_swarm.space import components, reachable
from mast_swarm.tasks.navigation.world import Navigation
from mast_swarm.train.collector import Collector, sample_layout
from mast_swarm.train.config import MOST_ENVIRONMENTS, MOST_EPOCHS, MOST_SEED, TrainConfig
from mast_swarm.train.replay import Replay
from mast_swarm.train.team import TRAINING_SEEDS, Validator, start_seeds, validation_seeds

CPU = torch.device("cpu")


def collector(config: TrainConfig, first: int = 0, count: int | None = None) -> Collector:
    count = config.environments if count is None else count
    return Collector(
        config, Policy(config.policy), Replay(sample_layout(config), config.replay, CPU), CPU, first, count
    )


def step(made: Collector) -> None:
    made.look()
    made.label()
    made.move()


def test_the_plan_of_an_epoch_depends_on_the_settings_alone(small: TrainConfig) -> None:
    one, other = collector(small), collector(small)
    for _ in range(3):
        one.begin(0)
        step(one)
    for epoch in (0, 3, 7):
        for a, b in zip(one._plan(epoch), other._plan(epoch), strict=True):
            assert np.array_equal(a, b)
    changed = collector(replace(small, seed=1))
    assert not np.array_equal(one._plan(3)[2], changed._plan(3)[2])
    assert not np.array_equal(one._plan(3)[2], one._plan(4)[2])


def test_shares_of_drivers_and_of_carried_environments(small: TrainConfig) -> None:
    config = replace(small, environments=2000, replay=2000, carry=0.75, expert_share=0.2)
    made = collector(config, count=2000)
    carried, by_expert, _ = made._plan(0)
    assert not carried.any()  # there is nothing to carry yet
    for epoch in (1, 2):
        before = made._plan(epoch - 1)[1]
        carried, by_expert, seeds = made._plan(epoch)
        assert by_expert.mean() == pytest.approx(0.2, abs=0.03)
        assert not (carried & before).any()  # what the expert drove is solved
        assert carried[~before].mean() == pytest.approx(0.75, abs=0.04)
        assert len(set(seeds.tolist())) == 2000


def test_start_states_go_round_the_scenarios(small: TrainConfig) -> None:
    names = ("clusters-1", "two-lines", "circle")
    made, plain = collector(replace(small, scenarios=names, environments=6)), Navigation(small.world)
    made.begin(0)
    seeds = start_seeds(made.config, 0, range(6))
    expected = plain.reset(seeds, [names[seed % 3] for seed in seeds])
    assert torch.equal(made.team.state.positions, expected.positions)
    assert torch.equal(made.team.state.goals, expected.goals)
    assert not torch.equal(plain.reset(seeds).positions, expected.positions)


def test_an_expert_that_always_drives_carries_nothing(small: TrainConfig) -> None:
    made = collector(replace(small, expert_share=1.0, carry=1.0))
    assert made._plan(5)[1].all() and not made._plan(5)[0].any()
    made = collector(replace(small, expert_share=0.0, carry=1.0))
    assert not made._plan(5)[1].any() and made._plan(5)[0].all()


def test_carried_environments_go_on_and_the_others_start_afresh(small: TrainConfig) -> None:
    config = replace(small, environments=12)
    made = collector(config)
    epoch = next(e for e in range(1, 50) if 0 < made._plan(e)[0].sum() < 12)
    made.begin(epoch - 1)
    for _ in range(3):
        step(made)
    before = made.team.state.positions.clone()
    made.begin(epoch)
    carried = torch.from_numpy(made._plan(epoch)[0])
    assert torch.equal(made.team.state.positions[carried], before[carried])
    assert (made.team.state.step[~carried] == 0).all() and (made.team.state.step[carried] == 3).all()
    fresh = Navigation(config.world).reset(start_seeds(config, epoch, (~carried).nonzero()[:, 0].tolist()))
    assert torch.equal(made.team.state.positions[~carried], fresh.positions)
    assert torch.equal(made.team.state.goals[~carried], fresh.goals)


def test_no_seed_is_used_twice_and_none_is_a_tests(small: TrainConfig) -> None:
    seen: set[int] = set()
    for seed in (0, 1, MOST_SEED):
        for epoch in (0, 1, MOST_EPOCHS - 1):
            config = replace(small, seed=seed)
            halves = [range(MOST_ENVIRONMENTS // 2), range(MOST_ENVIRONMENTS // 2, MOST_ENVIRONMENTS)]
            for half in halves:  # two processes
                found = start_seeds(config, epoch, half)
                assert seen.isdisjoint(found)
                seen.update(found)
    assert len(seen) == 9 * MOST_ENVIRONMENTS
    assert min(seen) == TRAINING_SEEDS == 2**40
    validation = validation_seeds(replace(small, validation=5000))
    assert len(set(validation)) == 5000 and max(seen) < min(validation)
    assert max(EvaluateConfig(small.world, ("lsap",), episodes=1000, seed=1000).seeds()) < 2**40


def test_the_collector_resets_to_those_seeds(small: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(small, carry=0.0, epochs=3)
    processes = [collector(config, first, 2) for first in (0, 2)]  # with two environments each
    asked: list[int] = []
    real = Navigation.draw

    def noted(self: Navigation, seed: int, scenario: str) -> Any:
        if any(self is made.team.world for made in processes):  # not what an earlier test still draws in the background
            asked.append(seed)
        return real(self, seed, scenario)

    monkeypatch.setattr(Navigation, "draw", noted)
    for made in processes:
        for epoch in range(3):
            made.begin(epoch)
        made.close()
    # The next epoch's start states are drawn ahead, but no more than there are epochs.
    assert config.epochs == 3 and len(asked) == len(set(asked)) == 2 * 3 * 2
    assert sorted(asked) == sorted(s for epoch in range(3) for s in start_seeds(config, epoch, range(4)))
    drawn: list[int] = []
    monkeypatch.setattr(Navigation, "draw", lambda self, seed, *rest: drawn.append(seed) or real(self, seed, *rest))
    Validator(config, Policy(config.policy), CPU)
    assert set(validation_seeds(config)) <= set(drawn)


@pytest.mark.parametrize("variant", ["M", "L", "C"])
def test_a_sample_holds_what_was_seen_and_the_experts_command(small: TrainConfig, variant: str) -> None:
    config = replace(small, policy=replace(small.policy, variant=variant), expert_share=0.5, replay=24)
    made, world = collector(config), Navigation(config.world)
    made.begin(0)
    assert (set(made.replay.fields) == {"features", "positions", "target"}) == (variant == "L")
    for _ in range(6):
        positions, goals = made.team.state.positions.clone(), made.team.state.goals.clone()
        observation = world.observe(made.team.state)
        pushed = int(made.replay.pushed)
        step(made)
        kept = {name: field[pushed : pushed + 4] for name, field in made.replay.fields.items()}
        assert torch.equal(kept["features"], observation.features)
        assert torch.equal(kept["positions"], positions)
        if variant == "M":
            assert torch.equal(kept["component"].long(), components(observation.graph))
        if variant == "C":
            assert torch.equal(kept["goals"], goals)
        for p, g, target in zip(positions.numpy(), goals.numpy(), kept["target"].numpy(), strict=True):
            _, goal = linear_sum_assignment(cdist(p.astype(float), g.astype(float), "sqeuclidean"))
            way = (g[goal] - p) / (config.world.dt * config.world.max_speed)
            expected = way / np.maximum(1, np.linalg.norm(way, axis=1, keepdims=True))
            np.testing.assert_allclose(target[:, :2], expected, atol=1e-4)
            np.testing.assert_allclose(target[:, 2], np.linalg.norm(expected, axis=1), atol=1e-4)


def test_directed_links_keep_who_can_be_heard(small: TrainConfig) -> None:
    config = replace(small, world=replace(small.world, directed=True))
    made, world = collector(config), Navigation(config.world)
    made.begin(0)
    heard = reachable(world.observe(made.team.state).graph)
    step(made)
    assert made.replay.fields["component"].dtype == torch.bool
    assert torch.equal(made.replay.fields["component"][:4], heard)
    assert not torch.equal(heard, heard.transpose(1, 2))  # so the test can fail


def test_the_expert_drives_its_environments_and_the_policy_the_others(small: TrainConfig) -> None:
    made = collector(replace(small, environments=8, replay=80))
    made.begin(0)
    by_expert = made.by_expert[:, 0, 0]
    assert 0 < int(by_expert.sum()) < 8
    before = made.team.state.positions.clone()
    step(made)
    moved = (made.team.state.positions - before) / (5.0 * 1.0)
    torch.testing.assert_close(moved[by_expert], made.target[by_expert, :, :2], atol=1e-4, rtol=0)
    wanted = made.team.command / torch.linalg.vector_norm(made.team.command, dim=-1, keepdim=True).clamp_min(1)
    torch.testing.assert_close(moved[~by_expert], wanted[~by_expert], atol=1e-4, rtol=0)


def test_validation_is_the_same_each_time_and_sees_the_policy_change(small: TrainConfig) -> None:
    policy = Policy(small.policy)
    validator = Validator(replace(small, validation=8, validation_steps=20), policy, CPU)
    first = validator.headlines()
    assert first == validator.headlines()
    end = validator.team.state.positions.clone()
    with torch.no_grad():
        policy.head[-1].bias.add_(1.0)
    validator.headlines()
    assert not torch.equal(end, validator.team.state.positions)


def test_a_world_may_remember_where_robots_were(small: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a tensor of the state before a step is one of the state after it, under another name."""
    made = collector(small)
    made.begin(0)
    world, before = made.team.world, made.team.state.positions.clone()
    moves = world.step
    monkeypatch.setattr(world, "step", lambda state, u: replace(moves(state, u), velocity=state.positions))
    step(made)
    assert torch.equal(made.team.state.velocity, before) and not torch.equal(made.team.state.positions, before)
