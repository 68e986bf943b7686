"""Blocks that are trained by hand-written kernels give what the plain ones do, and the same gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from devices import DEVICE, HALF, few
from mast_swarm.model.attention import Dense, Fused, allowed
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.mast import MAST

pytestmark = pytest.mark.kernels
SMALL = PolicyConfig(layers=2, heads=2, head_dim=32)


def case(config: PolicyConfig, batch: int, tokens: int, seed: int, labelled: bool) -> tuple[MAST, Tensor, Dense, Fused]:
    """Blocks whose norms and biases are not what they begin with, tokens, and a plain pattern and its fused twin."""
    from mast_swarm.model.fused import sight

    rng = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        stack = MAST(config)
    for parameter in stack.parameters():
        if parameter.ndim == 1:
            parameter.data += torch.randn(parameter.shape, generator=rng) / 4
    x = torch.randn(batch, tokens, config.width, generator=rng).to(DEVICE)
    phase = torch.rand(batch, tokens, config.head_dim // 2, generator=rng).to(DEVICE) * 6
    rotation = phase.cos(), phase.sin()
    place = torch.rand(batch, tokens, 2, generator=rng).to(DEVICE) * 1000
    label = torch.randint(0, 2, (batch, tokens), generator=rng).to(DEVICE) if labelled else None
    plain = Dense(allowed(place, 600.0, label), rotation)
    return stack.to(DEVICE), x, plain, Fused(sight(place, label, 600.0), rotation)


def gradients(stack: MAST, x: Tensor, y: Tensor, weight: Tensor) -> dict[str, Tensor]:
    named = {"x": x} | dict(stack.named_parameters())
    return dict(zip(named, torch.autograd.grad((y.float() * weight).sum(), list(named.values())), strict=True))


def check(config: PolicyConfig, batch: int, tokens: int, seed: int, labelled: bool, dtype: torch.dtype) -> None:
    from mast_swarm.model import trained

    stack, x, plain, quick = case(config, batch, tokens, seed, labelled)
    x.requires_grad_()
    weight = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)
    expected = stack(x, plain)
    with torch.autocast(DEVICE, dtype=HALF, enabled=dtype == HALF):
        y, half = trained.run(stack, quick, x), stack(x, plain)
    assert y.dtype == dtype
    exact, slack = gradients(stack, x, expected, weight), 2e-4 if dtype == torch.float32 else 2e-2
    rounded = gradients(stack, x, half, weight)  # as far off as half precision is; most by activations that flip
    assert (y - expected).norm() <= slack * expected.norm()
    for name, found in gradients(stack, x, y, weight).items():
        assert found.dtype == exact[name].dtype and found.shape == exact[name].shape
        room = slack * max(exact[name].norm().item(), tokens**0.5) + 1.5 * (rounded[name] - exact[name]).norm()
        assert (found - exact[name]).norm() <= room, name


@settings(deadline=None, max_examples=few(20, 6))
@given(
    layers=st.integers(1, 2),
    heads=st.sampled_from([1, 2]),
    batch=st.integers(1, 3),
    tokens=st.integers(1, 20),
    seed=st.integers(0, 1000),
    labelled=st.booleans(),
)
def test_value_and_gradients_in_full_precision(
    layers: int, heads: int, batch: int, tokens: int, seed: int, labelled: bool
) -> None:
    if DEVICE == "cuda":
        pytest.skip("products of fp32 are rounded to tf32 on a GPU")
    check(replace(SMALL, layers=layers, heads=heads), batch, tokens, seed, labelled, torch.float32)


@pytest.mark.parametrize(("batch", "tokens"), few([(128, 100), (3, 200), (2, 17)], [(2, 9), (1, 40), (1, 130)]))
def test_value_and_gradients_in_half_precision(batch: int, tokens: int) -> None:
    check(few(PolicyConfig(), replace(SMALL, heads=1)), batch, tokens, 1, True, HALF)


def test_it_is_what_trains_on_a_gpu_and_nothing_else() -> None:
    from mast_swarm.model import trained

    stack, x, plain, quick = case(SMALL, 2, 5, 0, False)
    with torch.autocast(DEVICE, dtype=HALF):
        assert trained.takes(stack, quick, x) and not trained.takes(stack, plain, x)
        with torch.no_grad():
            assert not trained.takes(stack, quick, x)
        assert torch.equal(stack(x, quick), trained.run(stack, quick, x))
        stack.blocks[0].dropout = torch.nn.Dropout(0.1)
        assert not trained.takes(stack, quick, x)
    assert not trained.takes(case(SMALL, 2, 5, 0, False)[0], quick, x)


def test_it_compiles_to_one_graph() -> None:
    stack, x, _, quick = case(SMALL, 2, 5, 0, True)

    def loss(x: Tensor) -> Tensor:
        with torch.autocast(DEVICE, dtype=HALF):
            return stack(x, quick).float().square().sum()

    x.requires_grad_()
    plain = loss(x)
    found = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=False)(x)
    assert torch.equal(found, plain)
    given = [x, *stack.parameters()]
    for one, other in zip(torch.autograd.grad(found, given), torch.autograd.grad(plain, given), strict=True):
        assert torch.equal(one, other)
