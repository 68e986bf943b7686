"""One update: the rate, the loss, the averaged weights."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from mast_swarm.train.collector import sample_layout
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.learner import Learner, imitation_loss, learning_rate
from mast_swarm.train.replay import Replay

CPU = torch.device("cpu")


def filled(config: TrainConfig, seed: int = 0) -> Replay:
    """A replay full of made-up samples."""
    replay, generator = Replay(sample_layout(config), config.replay, CPU), torch.Generator().manual_seed(seed)
    sample = {
        name: torch.randn((config.replay, *shape), generator=generator) * (100 if name == "positions" else 1)
        for name, (shape, _) in sample_layout(config).items()
    }
    if "component" in sample:
        sample["component"] = (sample["component"] > 0).long()
    replay.push(sample)
    return replay


def test_a_constant_rate_is_constant(small: TrainConfig) -> None:
    config = replace(small, schedule="constant", lr=3e-4)
    assert {learning_rate(config, done, 100) for done in range(100)} == {3e-4}


def test_the_cosine_rate_warms_up_and_comes_down(small: TrainConfig) -> None:
    total = 1000
    rates = [learning_rate(replace(small, lr=2.0), done, total) for done in range(total)]
    assert rates[0] == pytest.approx(2.0 / 20) and rates[19] == pytest.approx(2.0)  # 2 % of 1000 updates
    assert all(a < b for a, b in pairwise(rates[:20]))
    assert all(a > b for a, b in pairwise(rates[20:]))
    assert rates[510] == pytest.approx(2.0 * 0.505, rel=1e-3)  # half way down to a hundredth
    assert rates[-1] == pytest.approx(0.02, rel=1e-2)
    assert learning_rate(small, 5000, total) == pytest.approx(0.01 * small.lr)  # never below


def test_the_loss_is_the_mean_squared_error_of_the_command() -> None:
    prediction, target = torch.randn(3, 5, 2), torch.randn(3, 5, 2)
    by_hand = sum((float(p) - float(t)) ** 2 for p, t in zip(prediction.view(-1), target.view(-1), strict=True)) / 30
    assert float(imitation_loss(prediction, target)) == pytest.approx(by_hand, rel=1e-5)


def test_a_third_number_is_held_to_the_experts_speed() -> None:
    target = torch.tensor([[[0.6, 0.8, 1.0], [0.0, 0.0, 0.0]]])
    assert float(imitation_loss(target, target)) == 0.0
    assert float(imitation_loss(target + torch.tensor([0.0, 0.0, 0.5]), target)) == pytest.approx(0.25)
    assert float(imitation_loss(target + torch.tensor([0.5, 0.0, 0.0]), target)) == pytest.approx(0.125)


def test_the_norm_is_the_mean_length_of_the_error() -> None:
    target = torch.zeros(1, 2, 3)
    prediction = torch.tensor([[[3.0, 4.0, 0.0], [0.0, 0.0, 0.5]]])
    assert float(imitation_loss(prediction, target, norm=True)) == pytest.approx((5.0 + 0.25) / 2, abs=0.01)
    weight = torch.tensor([[2.0, 0.0]])
    assert float(imitation_loss(prediction, target, weight, norm=True)) == pytest.approx(5.0, abs=0.02)
    exact = target.clone().requires_grad_()
    imitation_loss(exact, target, norm=True).backward()
    assert exact.grad is not None and exact.grad.isfinite().all()  # the length itself has none at 0


def test_the_norm_finds_the_choice_of_most_and_the_square_the_mean() -> None:
    """Of ten experts seven go east and three go north: the point of least loss is east, or in between."""
    target = torch.tensor([[1.0, 0.0]] * 7 + [[0.0, 1.0]] * 3)[None]
    found = {}
    for norm in (False, True):
        choice = torch.zeros(2, requires_grad=True)
        optimiser = torch.optim.Adam([choice], lr=0.05)
        for _ in range(150):
            optimiser.zero_grad()
            imitation_loss(choice.expand_as(target), target, norm=norm).backward()
            optimiser.step()
        found[norm] = choice.detach()
    torch.testing.assert_close(found[False], torch.tensor([0.7, 0.3]), atol=0.02, rtol=0)
    torch.testing.assert_close(found[True], torch.tensor([1.0, 0.0]), atol=0.05, rtol=0)


def test_the_average_equals_a_loop_by_hand(small: TrainConfig) -> None:
    learner = Learner(replace(small, ema=0.8), filled(small), CPU)
    assert learner.average is not None and learner.shipped is learner.average
    expected = {name: value.clone() for name, value in learner.policy.state_dict().items()}
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        learner.update(torch.rand(small.batch, generator=generator))
        for name, value in learner.policy.state_dict().items():
            expected[name] = 0.8 * expected[name] + 0.2 * value
    for name, value in learner.average.state_dict().items():
        torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-7)
    assert not torch.equal(learner.average.head[0].weight, learner.policy.head[0].weight)


def test_without_an_average_the_last_weights_are_shipped(small: TrainConfig) -> None:
    learner = Learner(replace(small, ema=None), filled(small), CPU)
    assert learner.shipped is learner.policy


def test_an_update_is_one_step_of_adamw_on_the_clipped_gradient(small: TrainConfig) -> None:
    config = replace(small, clip=0.01, weight_decay=0.1)
    replay = filled(config)
    learner, uniform = Learner(config, replay, CPU), torch.rand(config.batch)
    other = Learner(config, replay, CPU).policy
    rate = learning_rate(config, 0, learner.total)
    plain = torch.optim.AdamW(other.parameters(), lr=rate, weight_decay=0.1)
    batch = replay.draw(uniform)
    loss = imitation_loss(other(batch["features"], batch["positions"], batch["component"]), batch["target"])
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_(other.parameters(), 0.01)
    assert norm > 0.01
    plain.step()
    learner.update(uniform)
    assert float(learner.loss) == pytest.approx(float(loss.detach()), rel=1e-6)
    for ours, theirs in zip(learner.policy.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-7)


def test_a_restored_learner_goes_on_bit_for_bit(small: TrainConfig) -> None:
    replay, draws = filled(small), torch.rand(8, small.batch)
    first = Learner(small, replay, CPU)
    for uniform in draws[:4]:
        first.update(uniform)
    kept = {name: value.clone() for name, value in first.tensors().items()}
    second = Learner(replace(small, seed=5), replay, CPU)
    second.restore(kept, first.done)
    for learner in (first, second):
        for uniform in draws[4:]:
            learner.update(uniform)
    ours, theirs = first.tensors(), second.tensors()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert any(not torch.equal(ours[name], kept[name]) for name in ours)


def test_the_first_checkpoint_of_a_run_without_updates_restores(small: TrainConfig) -> None:
    learner, other = (Learner(replace(small, seed=seed), filled(small), CPU) for seed in (0, 1))
    other.restore(learner.tensors(), 0)
    assert not learner.optimiser.state and not other.optimiser.state  # asking makes none: a GPU's capture would trip
    learner.update(torch.full((small.batch,), 0.5))
    other.update(torch.full((small.batch,), 0.5))
    assert torch.equal(learner.policy.head[0].weight, other.policy.head[0].weight)
