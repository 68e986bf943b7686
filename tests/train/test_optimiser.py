"""AdamW in one pass over weights in one piece is torch's, tensor by tensor."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from devices import DEVICE, HALF, few
from mast_swarm.model.config import LPACConfig, PolicyConfig
from mast_swarm.model.learned import Learned
from mast_swarm.model.lpac import LPAC
from mast_swarm.model.policy import make
from mast_swarm.train import optimiser as optimisers
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.learner import Learner
from mast_swarm.train.optimiser import Flat, FlatAdamW, PlainAdamW, Settings, in_half
from train.test_learner import CPU, filled

SMALL = PolicyConfig(task="navigation", layers=2, heads=2, head_dim=8, exploration_time=50.0)


def learned(
    kind: type, settings_: Settings, steps: int, seed: int
) -> tuple[Learned, Learned | None, dict[str, Tensor]]:
    """A policy and its average after some steps down made-up gradients; and what the optimiser keeps."""
    policy = make(SMALL, seed=1).to(DEVICE)
    average = copy.deepcopy(policy).requires_grad_(False) if settings_.ema else None
    rate = torch.tensor(3e-3, device=DEVICE)
    given_ = (policy, average, rate, settings_)

    def clip(longest: float) -> None:
        torch.nn.utils.clip_grad_norm_(policy.parameters(), longest)

    optimiser = PlainAdamW(*given_, clip) if kind is PlainAdamW else FlatAdamW(*given_, None)
    generator = torch.Generator().manual_seed(seed)
    for step in range(steps):
        rate.fill_(3e-3 / (1 + step))
        slopes = {name: torch.randn(p.shape, generator=generator).to(DEVICE) for name, p in policy.named_parameters()}
        optimiser.learn(sum((slopes[name] * p).sum() for name, p in optimiser.network.named_parameters()))
    kept = {f"{name} {key}": value for name, state in optimiser.state.items() for key, value in state.items()}
    return policy, average, kept


@pytest.mark.parametrize("way", ["torch", pytest.param("kernel", marks=pytest.mark.kernels)])
@settings(deadline=None, max_examples=few(15, 3), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 10**6),
    decay=st.sampled_from([0.0, 0.1]),
    clip=st.sampled_from([None, 1.0, 1e6]),
    ema=st.sampled_from([None, 0.9]),
    steps=st.integers(1, 4),
)
def test_one_pass_is_torchs_adamw(
    way: str, seed: int, decay: float, clip: float | None, ema: float | None, steps: int
) -> None:
    """To the rounding of fp32: a weight moves by about the rate, 3e-3, and sums are taken in another order."""
    chosen = Settings(decay, clip, ema)
    with pytest.MonkeyPatch.context() as patch:
        if way == "torch":
            patch.setattr(optimisers, "gpu", None)
        one, average, kept = learned(FlatAdamW, chosen, steps, seed)
    other, expected, wanted = learned(PlainAdamW, chosen, steps, seed)
    for name, value in other.state_dict().items():
        torch.testing.assert_close(one.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    assert (average is None) == (expected is None)
    if average is not None and expected is not None:
        for name, value in expected.state_dict().items():
            torch.testing.assert_close(average.state_dict()[name], value, rtol=1e-5, atol=1e-6)
    assert kept.keys() == wanted.keys()
    for name, value in wanted.items():
        torch.testing.assert_close(kept[name], value, rtol=1e-4, atol=1e-7)


def test_a_network_in_half_precision_learns_what_autocast_does() -> None:
    """The same predictions and gradients, bit by bit: it has the numbers that autocast makes of the weights."""
    policy = make(replace(SMALL, layers=1), seed=2).train()
    flat = Flat(copy.deepcopy(policy), torch.bfloat16)
    names = {name for name, p in flat.network.named_parameters() if p.dtype == torch.bfloat16}
    of_blocks = {name for name in names if name.startswith("mast.blocks.0.") and "norm" not in name}
    assert len(of_blocks) == 8 and len(names - of_blocks) == 6  # perception's and the head's last
    generator = torch.Generator().manual_seed(0)
    seen = torch.randn(2, 5, 14, generator=generator), torch.rand(2, 5, 2, generator=generator) * 100
    predictions, gradients = [], []
    for network in (policy, flat.network):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            predictions.append(network(*seen))
        predictions[-1].square().sum().backward()
        gradients.append({name: p.grad for name, p in network.named_parameters()})
    assert torch.equal(*predictions)
    for name, gradient in gradients[0].items():
        other = gradients[1][name]
        assert other is not None and other.dtype == (torch.bfloat16 if name in names else torch.float32)
        assert torch.equal(other.float(), gradient)


@pytest.mark.parametrize("config", [SMALL, replace(SMALL, message_dim=5), replace(SMALL, variant="C")])
def test_a_copy_in_half_precision_predicts_what_autocast_does(config: PolicyConfig) -> None:
    policy = make(config, seed=1)
    twin = in_half(policy, torch.bfloat16)
    assert twin.dtype == torch.float32 and any(p.dtype == torch.bfloat16 for p in twin.parameters())
    given_ = {"features": torch.randn(2, 6, config.observation_dim), "positions": torch.rand(2, 6, 2) * 100}
    if config.variant == "C":
        given_["goals"] = torch.rand(2, 6, 2) * 100
    for _ in range(2):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            assert torch.equal(twin(**given_), policy(**given_))
        with torch.no_grad():
            policy.head[2].weight += 1
        torch._foreach_copy_(*optimisers.alike(twin, policy))


@pytest.mark.kernels
def test_the_kernel_writes_weights_in_half_precision() -> None:
    policy = make(SMALL, seed=1).to(DEVICE)
    found = FlatAdamW(policy, None, torch.tensor(1e-2, device=DEVICE), Settings(0.0, 1.0, None), HALF)
    before = found.flat.weights.clone()
    found.learn(sum((p.float() * torch.randn_like(p, dtype=torch.float32)).sum() for p in found.network.parameters()))
    assert 0 < found.flat.border < found.flat.size and not torch.equal(found.flat.weights, before)
    assert torch.equal(found.flat.half, found.flat.weights[: found.flat.border].to(HALF))
    for name, parameter in policy.named_parameters():  # of the policy, and of the network that learns
        network = dict(found.network.named_parameters())[name]
        assert torch.equal(parameter.to(network.dtype), network)


def test_weights_in_one_piece_are_kept_and_taken_up(small: TrainConfig) -> None:
    """A learner goes on where another was, whichever way each has its weights."""
    replay, generator = filled(small), torch.Generator().manual_seed(1)
    draws = [torch.rand(small.batch, generator=generator) for _ in range(6)]
    ways = [(True, True), (True, False), (False, True), (False, False)]
    ends = []
    for first, second in ways:
        learner = Learner(small, replay, CPU, flat=first)
        for uniform in draws[:3]:
            learner.update(uniform)
        other = Learner(small, replay, CPU, flat=second)
        other.restore({name: value.clone() for name, value in learner.tensors().items()}, learner.done)
        for uniform in draws[3:]:
            other.update(uniform)
        ends.append({name: value.clone() for name, value in other.tensors().items()})
    for end in ends[:-1]:
        assert end.keys() == ends[-1].keys()
        for name, value in ends[-1].items():
            torch.testing.assert_close(end[name], value, rtol=1e-3, atol=1e-5)


def test_a_parameter_that_was_never_used_does_not_set_the_steps_back() -> None:
    """Torch keeps nothing of it, and weights in one piece have one number of steps for all."""
    policy = make(SMALL, seed=1)
    last = [name for name, _ in policy.named_parameters()][-1]
    given_ = (policy, None, torch.tensor(1e-3), Settings(0.0, None, None))
    plain, flat = PlainAdamW(*given_, lambda longest: None), FlatAdamW(*given_, None)
    for _ in range(3):
        plain.learn(sum(p.square().sum() for name, p in policy.named_parameters() if name != last))
    flat.take_up(plain.state)
    assert last not in plain.state and float(flat.steps) == 3
    assert not flat.state[last]["exp_avg"].any() and flat.mean.any()


@pytest.mark.parametrize("flat", [True, False])
def test_who_acts_has_weights_of_its_own(small_coverage: TrainConfig, flat: bool) -> None:
    """They, and the running statistics, change when they are handed over and not before."""
    learner = Learner(small_coverage, filled(small_coverage), CPU, flat=flat)
    learner.acting, learner._handed = learner.optimiser.apart()
    before = {name: value.clone() for name, value in learner.acting.state_dict().items()}
    learner.update(torch.rand(small_coverage.batch))
    for name, value in learner.acting.state_dict().items():
        assert torch.equal(value, before[name])
    assert any(not torch.equal(v, before[n]) for n, v in learner.policy.state_dict().items() if "running" in n)
    learner.hand_over()
    for name, value in learner.acting.state_dict().items():
        if value.is_floating_point():
            assert torch.equal(value, learner.policy.state_dict()[name])


def test_an_update_that_fails_on_weights_in_one_piece_runs_tensor_by_tensor(
    small: TrainConfig, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As where the compiler does not take the network in half precision: nothing is lost, and it is said."""
    replay, uniform = filled(small), torch.rand(small.batch)
    expected = Learner(small, replay, CPU, flat=False)
    learner = Learner(small, replay, CPU, flat=True)
    learner._run = None  # as on a GPU, where the first update is captured
    learn, calls = FlatAdamW.learn, []

    def broken(self: FlatAdamW, loss: Tensor) -> None:
        learn(self, loss)
        calls.append(loss)
        if len(calls) > 1:
            raise TypeError("no such layout")

    def captured(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
        work()
        work()
        return work

    monkeypatch.setattr(FlatAdamW, "learn", broken)
    monkeypatch.setattr("mast_swarm.train.learner.captured", captured)
    with caplog.at_level(logging.WARNING, "mast_swarm"):
        for _ in range(2):
            learner.update(uniform)
            expected.update(uniform)
    assert caplog.text.count("no such layout") == 1 and learner.done == 2 and len(calls) == 2
    assert float(learner.loss_sum) == pytest.approx(float(expected.loss_sum))
    for name, value in expected.tensors().items():
        torch.testing.assert_close(learner.tensors()[name], value, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("way", ["torch", pytest.param("kernel", marks=pytest.mark.kernels)])
def test_a_policy_without_a_transformer_has_nothing_in_half_precision(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "torch":
        monkeypatch.setattr(optimisers, "gpu", None)
    policy = LPAC(LPACConfig(task="coverage", layers=2, width=16, message_dim=8), seed=3).to(DEVICE)
    found = FlatAdamW(policy, None, torch.tensor(1e-2, device=DEVICE), Settings(0.0, None, None), HALF)
    before = found.flat.weights.clone()
    found.learn(sum(parameter.square().sum() for parameter in found.network.parameters()))
    assert found.flat.border == 0 and len(found.flat.half) == 0 and not torch.equal(found.flat.weights, before)
    twin, (into, source) = found.apart()
    torch._foreach_copy_(into, source)
    for name, value in twin.state_dict().items():
        assert torch.equal(value, policy.state_dict()[name])
