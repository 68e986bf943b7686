"""Sums and norms in one pass compute what they compute one by one, forwards and backwards."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from mast_swarm.model import Policy, PolicyConfig, mast

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def add_norm(
    x: Tensor, y: Tensor | None, y_bias: Tensor | None, weight: Tensor, bias: Tensor, eps: float
) -> tuple[Tensor, Tensor]:
    """What the kernels compute, in plain torch and in the precision of x."""
    total = x if y is None or y_bias is None else x + y + y_bias
    return total, F.layer_norm(total, x.shape[-1:], weight, bias, eps)


def count_calls(monkeypatch: pytest.MonkeyPatch, function: Any) -> list[int]:
    """Put a function in the place of the kernels'; one entry is added to the answer each time it is called."""
    calls: list[int] = []

    def counted(*args: Any) -> Any:
        calls.append(len(calls))
        return function(*args)

    monkeypatch.setattr(mast, "norms", SimpleNamespace(add_norm=counted, takes=lambda width: True))
    return calls


def test_the_chain_of_sums_and_norms_is_the_stack_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = mast.MAST(PolicyConfig(layers=3, heads=2, head_dim=16)).double()
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in stack.parameters():  # norms and biases that matter
            parameter += 0.3 * torch.randn(parameter.shape, generator=rng, dtype=torch.float64)
    x = torch.randn(2, 9, 32, generator=rng, dtype=torch.float64)
    mask = (torch.rand(2, 9, 9, generator=rng) < 0.5) | torch.eye(9, dtype=torch.bool)
    expected = stack(x, None, mask)
    calls = count_calls(monkeypatch, add_norm)
    monkeypatch.setattr(mast, "_fuses", lambda x: True)
    found = stack(x, None, mask)
    assert len(calls) == 7
    torch.testing.assert_close(found, expected)
    weight = torch.randn(x.shape, generator=rng, dtype=torch.float64)
    ours, theirs = (torch.autograd.grad(y, list(stack.parameters()), weight) for y in (found, expected))
    torch.testing.assert_close(ours, theirs)


def test_without_autocast_blocks_run_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count_calls(monkeypatch, add_norm)
    mast.MAST(PolicyConfig(layers=1, heads=2, head_dim=16))(torch.randn(2, 3, 32), None, None)
    assert not calls


@needs_cuda
@pytest.mark.parametrize(
    ("shape", "width"),
    [((128, 100), 256), ((3, 7), 256), ((4001,), 64), ((1,), 64), ((2, 333), 512), ((1000,), 32), ((0, 5), 128)],
)
@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize("onward", [True, False])
def test_kernels_equal_plain_torch_in_value_and_gradient(
    shape: tuple[int, ...], width: int, added: bool, onward: bool
) -> None:
    from mast_swarm.model import norms

    rng = torch.Generator().manual_seed(width)
    x, y = (torch.randn(*shape, width, generator=rng) * 2 + 1 for _ in range(2))
    y_bias, weight, bias = (torch.randn(width, generator=rng) for _ in range(3))
    given = [x, y.bfloat16(), y_bias, weight, bias] if added else [x, weight, bias]
    given = [t.cuda().requires_grad_() for t in given]
    exact = [t.detach().double().requires_grad_() for t in given]
    between = () if added else (None, None)
    total, normed = norms.add_norm(given[0], *between, *given[1:], 1e-5)
    total_there, normed_there = add_norm(exact[0], *between, *exact[1:], 1e-5)
    torch.testing.assert_close(total.double(), total_there, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(normed.double(), normed_there, rtol=1e-2, atol=1e-2)

    d_total, d_normed = torch.randn(*shape, width, generator=rng), torch.randn(*shape, width, generator=rng)
    into = [d_normed.bfloat16().cuda(), d_total.cuda()][: 1 + onward]
    ours = torch.autograd.grad([normed, total][: 1 + onward], given, into)
    theirs = torch.autograd.grad([normed_there, total_there][: 1 + onward], exact, [g.double() for g in into])
    for one, other in zip(ours, theirs, strict=True):
        error = (one.double() - other).norm()
        assert error <= (1e-2 if one.dtype == torch.bfloat16 else 1e-5) * other.norm()


@needs_cuda
def test_rows_may_lie_apart() -> None:
    from mast_swarm.model import norms

    x = torch.randn(64, 6, 5, device="cuda").permute(2, 1, 0).requires_grad_()
    weight, bias = torch.randn(2, 64, device="cuda").unbind(0)
    total, normed = norms.add_norm(x, None, None, weight, bias, 1e-5)
    assert torch.equal(total, x)
    torch.testing.assert_close(normed.float(), F.layer_norm(x, (64,), weight, bias), rtol=1e-2, atol=1e-2)
    (ours,) = torch.autograd.grad(normed, x, torch.ones_like(normed).mT.contiguous().mT)
    (theirs,) = torch.autograd.grad(F.layer_norm(x, (64,), weight, bias), x, torch.ones_like(x))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@needs_cuda
def test_widths_that_the_kernels_do_not_take() -> None:
    from mast_swarm.model import norms

    assert [width for width in (16, 32, 96, 256, 512, 1024) if norms.takes(width)] == [32, 256, 512]


def gradients(policy: Policy, half: bool, seed: int) -> Tensor:
    """Of a loss of one batch, all parameters' in one vector, in front of them the predictions."""
    rng = torch.Generator().manual_seed(seed)
    features, positions = torch.randn(8, 50, 14, generator=rng), torch.rand(8, 50, 2, generator=rng) * 500
    label, target = torch.randint(0, 2, (8, 50), generator=rng), torch.randn(8, 50, 2, generator=rng)
    policy.zero_grad()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=half):
        prediction = policy(features.cuda(), positions.cuda(), label.cuda())
    (prediction - target.cuda()).square().mean().backward()
    every = [prediction.detach(), *(parameter.grad for parameter in policy.parameters() if parameter.grad is not None)]
    return torch.cat([one.flatten() for one in every])


@needs_cuda
@pytest.mark.parametrize("compiled", [False, True])
def test_a_policy_learns_the_same_with_and_without(monkeypatch: pytest.MonkeyPatch, compiled: bool) -> None:
    policy = Policy(PolicyConfig(layers=2, heads=4, head_dim=32), seed=1).cuda().train()
    exact = gradients(policy, False, 0)
    with monkeypatch.context() as without:
        without.setattr(mast, "norms", None)
        plain = gradients(policy, True, 0)
    calls = count_calls(monkeypatch, mast.norms.add_norm)
    fused = gradients(policy, True, 0)
    assert len(calls) == 5
    monkeypatch.undo()
    if compiled:
        policy.compile(dynamic=False)
        fused = gradients(policy, True, 0)
    assert (plain - exact).norm() < 0.05 * exact.norm()
    assert (fused - exact).norm() < 2 * (plain - exact).norm()
    assert len(fused) == len(exact)  # the same parameters have a gradient
