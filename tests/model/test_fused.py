"""The fused GPU kernel computes what the library's attention computes, forwards and backwards."""

from __future__ import annotations

import math

import pytest
import torch

from mast_swarm.model.attention import allowed, attend
from mast_swarm.model.encoding import rotate

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


SIZES = [(4, 100, 4, 64), (2, 200, 4, 64), (3, 1, 2, 32), (2, 65, 8, 32), (17_000, 3, 4, 32)]  # the last: many programs


@pytest.mark.parametrize(("batch", "tokens", "heads", "width"), SIZES)
@pytest.mark.parametrize("labelled", [True, False])
@pytest.mark.parametrize("radius", [300.0, None])
def test_fused_equals_plain_in_value_and_gradient(
    batch: int, tokens: int, heads: int, width: int, labelled: bool, radius: float | None
) -> None:
    from mast_swarm.model.fused import turned_attention

    rng = torch.Generator("cuda").manual_seed(0)
    half = torch.randn(batch, tokens, 3 * heads * width, device="cuda", generator=rng).bfloat16().requires_grad_()
    phase = torch.rand(batch, tokens, width // 2, device="cuda", generator=rng) * 6
    tables = phase.cos(), phase.sin()
    place = torch.rand(batch, tokens, 2, device="cuda", generator=rng) * 1000
    label = torch.randint(0, 3, (batch, tokens), device="cuda", generator=rng) if labelled else None
    y, _ = turned_attention(half, *tables, place, label, math.inf if radius is None else radius, heads)

    whole = half.detach().float().requires_grad_()
    q, k, v = whole.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    spread = tables[0][:, None], tables[1][:, None]
    mask = allowed(place, radius, label)
    expected = attend(rotate(q, spread), rotate(k, spread), v, mask).transpose(1, 2).flatten(-2)
    assert torch.allclose(y.float(), expected, atol=3e-2)
    weight = torch.randn(expected.shape, device="cuda", generator=rng)
    (ours,) = torch.autograd.grad(y, half, weight.bfloat16())
    (theirs,) = torch.autograd.grad(expected, whole, weight)
    assert torch.allclose(ours.float(), theirs, atol=5e-2)
