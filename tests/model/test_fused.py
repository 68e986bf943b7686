"""The fused GPU kernel computes what the library's attention computes, forwards and backwards."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch

from devices import DEVICE, HALF, few
from mast_swarm.model.attention import allowed, attend
from mast_swarm.model.encoding import rotate

pytestmark = pytest.mark.kernels

SIZES = few(
    [(4, 100, 4, 64), (2, 200, 4, 64), (3, 1, 2, 32), (2, 65, 8, 32), (17_000, 3, 4, 32)],  # the last: many programs
    [(2, 5, 2, 32), (1, 70, 1, 32), (1, 130, 1, 32), (3, 1, 2, 32)],
)


@pytest.mark.parametrize(("batch", "tokens", "heads", "width"), SIZES)
@pytest.mark.parametrize(
    ("labelled", "radius"), few(list(product([True, False], [300.0, None])), [(True, 300.0), (False, None)])
)
@pytest.mark.parametrize("dtype", few([HALF], [HALF, torch.float32]))  # products of fp32 are exact in the interpreter
def test_fused_equals_plain_in_value_and_gradient(
    batch: int, tokens: int, heads: int, width: int, labelled: bool, radius: float | None, dtype: torch.dtype
) -> None:
    from mast_swarm.model.fused import sight, turned_attention

    rng = torch.Generator(DEVICE).manual_seed(0)
    half = torch.randn(batch, tokens, 3 * heads * width, device=DEVICE, generator=rng).to(dtype).requires_grad_()
    phase = torch.rand(batch, tokens, width // 2, device=DEVICE, generator=rng) * 6
    tables = phase.cos(), phase.sin()
    place = torch.rand(batch, tokens, 2, device=DEVICE, generator=rng) * 1000
    label = torch.randint(0, 3, (batch, tokens), device=DEVICE, generator=rng) if labelled else None
    y, _ = turned_attention(half, *tables, sight(place, label, math.inf if radius is None else radius), heads)

    whole = half.detach().float().requires_grad_()
    q, k, v = whole.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    spread = tables[0][:, None], tables[1][:, None]
    mask = allowed(place, radius, label)
    expected = attend(rotate(q, spread), rotate(k, spread), v, mask).transpose(1, 2).flatten(-2)
    assert torch.allclose(y.float(), expected, atol=1e-5 if dtype == torch.float32 else 3e-2)
    weight = torch.randn(expected.shape, device=DEVICE, generator=rng)
    (ours,) = torch.autograd.grad(y, half, weight.to(dtype))
    (theirs,) = torch.autograd.grad(expected, whole, weight)
    assert torch.allclose(ours.float(), theirs, atol=1e-5 if dtype == torch.float32 else 5e-2)


def test_no_more_tokens_than_words_can_be_counted() -> None:
    """One word more, and a kernel would write before its tensors."""
    from mast_swarm.model.fused import takes

    most = 262_143
    assert takes(most, 64) and not takes(most + 1, 64) and not takes(16, 16)
    assert most * -(-most // 32) < 2**31 <= (most + 1) * -(-(most + 1) // 32)


@pytest.mark.parametrize("radius", [10.0, None])
@pytest.mark.parametrize("what", ["labels", "far", "nowhere"])
def test_who_is_allowed_at_the_edges(what: str, radius: float | None) -> None:
    """Labels whose low 32 bits are alike; places whose distance overflows, or is no number."""
    from mast_swarm.model.fused import sight, turned_attention

    rng = torch.Generator().manual_seed(0)
    qkv = torch.randn(1, 4, 3 * 32, generator=rng).to(DEVICE, HALF)
    tables = torch.ones(1, 4, 16, device=DEVICE), torch.zeros(1, 4, 16, device=DEVICE)
    place = torch.rand(1, 4, 2, generator=rng).to(DEVICE)
    label = torch.tensor([[0, 2**32, 1, 2**33 + 1]], device=DEVICE) if what == "labels" else None
    if what != "labels":
        place[0, 1:3] = 1e25 if what == "far" else math.nan
    y, _ = turned_attention(qkv, *tables, sight(place, label, math.inf if radius is None else radius), 1)
    q, k, v = qkv.float().unflatten(-1, (3, 1, -1)).permute(2, 0, 3, 1, 4).unbind(0)
    expected = attend(q, k, v, allowed(place, radius, label))[:, 0]
    assert torch.allclose(y.float(), expected, atol=3e-2)
