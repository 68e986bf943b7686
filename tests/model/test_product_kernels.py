"""Products by kernels, with what is done to their results on the way out: as in plain torch, but for rounding."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import mast_swarm
from devices import DEVICE, HALF, few
from mast_swarm.model import lists
from mast_swarm.model.attention import Attention
from mast_swarm.model.encoding import rotate
from mast_swarm.model.mast import Block

pytestmark = pytest.mark.kernels
MANY = settings(deadline=None, max_examples=few(60, 6), suppress_health_check=[HealthCheck.too_slow])


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    """To the rounding of half precision, of which bfloat16 has 8 bits and float16 11."""
    off = (found.double().cpu() - expected.double().cpu()).norm() / expected.double().norm().clamp_min(1e-3)
    assert found.shape == expected.shape and off < (2e-2 if torch.bfloat16 == HALF else 3e-3)


def layers(inputs: int, hidden: int, outputs: int) -> nn.Sequential:
    both = nn.Linear(inputs, hidden), nn.LeakyReLU(0.1), nn.Linear(hidden, outputs)
    return nn.Sequential(*both).requires_grad_(False)


@MANY
@given(
    seed=st.integers(0, 10**6),
    rows=st.sampled_from(few([1, 15, 128, 1000, 20_000], [1, 17, 130])),
    inputs=st.sampled_from([2, 14, 48, few(256, 64)]),
    hidden=st.sampled_from(few([32, 96, 512], [32, 96])),
    outputs=st.sampled_from([1, 3, 32, few(256, 64)]),
    precise=st.booleans(),
)
def test_two_layers_are_one_kernel(seed: int, rows: int, inputs: int, hidden: int, outputs: int, precise: bool) -> None:
    """Rows in fp32, as perception gets them, or in half precision, as norms give them."""
    from mast_swarm.model import product_kernels as products

    torch.manual_seed(seed)
    mlp, x = layers(inputs, hidden, outputs), torch.randn(2, rows, inputs)
    expected = mlp.double()(x.double())
    mlp, x = mlp.float().to(DEVICE), x.to(DEVICE) if precise else x.to(DEVICE, HALF)
    assert products.takes_feed(inputs, hidden, outputs, x.device)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=HALF):
        found = lists.feed(mlp, x)
    assert found.dtype == HALF
    close(found, expected)


def test_other_layers_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp32, with gradients, and where the layers are others."""
    monkeypatch.setattr(lists.products, "feed", None)
    mlp, x = layers(8, 32, 4).to(DEVICE), torch.randn(1, 5, 8, device=DEVICE)
    with torch.no_grad():
        assert torch.equal(lists.feed(mlp, x), mlp(x))
    with torch.autocast(DEVICE, dtype=HALF):
        assert torch.equal(lists.feed(mlp, x), mlp(x))
        others = nn.Sequential(mlp[0], nn.ReLU(), mlp[2])
        with torch.no_grad():
            assert torch.equal(lists.feed(others, x), others(x))


@MANY
@given(
    seed=st.integers(0, 10**6),
    rows=st.sampled_from(few([1, 17, 64, 130, 1000, 20_000], [1, 17, 130])),
    shape=st.sampled_from(few([(4, 64), (8, 32), (2, 64), (1, 64)], [(2, 32), (1, 64)])),
    spare=st.booleans(),
    kept=st.booleans(),
)
def test_what_follows_attention_is_one_kernel(
    seed: int, rows: int, shape: tuple[int, int], spare: bool, kept: bool
) -> None:
    """The embeddings after a block, and their norm; what is not to spare is left as it was."""
    torch.manual_seed(seed)
    block = Block(mast_swarm.PolicyConfig(heads=shape[0], head_dim=shape[1])).requires_grad_(False)
    d = shape[0] * shape[1]
    norm = nn.LayerNorm(d).requires_grad_(False)
    for one in (block.norm2, norm):
        one.weight.uniform_(0.5, 1.5)
        one.bias.uniform_(-1, 1)
    x, answer = torch.randn(1, rows, d) * 3 + 1, torch.randn(1, rows, d).to(HALF)
    after, added = block.double().after_attention(x.double(), answer.double())
    expected = after + added, norm.double()(after + added)
    block, norm = block.float().to(DEVICE), norm.float().to(DEVICE)
    given_, over = x.to(DEVICE, copy=True), answer.to(DEVICE, copy=True)
    parts = (block.attention.out, block.norm2, block.mlp, norm)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=HALF), patch.object(lists.products, "_KEPT", kept):
        assert lists.takes_after(given_, over, *parts)
        total, normed = block.whole(given_, over, norm, spare)
    assert total.dtype == torch.float32 and normed.dtype == HALF
    close(total, expected[0])
    close(normed, expected[1])
    assert torch.equal(given_.cpu(), total.cpu() if spare else x)


def test_other_blocks_run_as_they_are() -> None:
    """With dropout, in fp32, with gradients, and of another make."""
    config = mast_swarm.PolicyConfig(heads=2, head_dim=32)
    x, norm = torch.randn(1, 5, 64, device=DEVICE), nn.LayerNorm(64).to(DEVICE)

    class Other(Block):
        pass

    for block, half, grad in (
        (Block(replace(config, dropout=0.1)), True, False),
        (Block(config), False, False),
        (Block(config), True, True),
        (Other(config), True, False),
    ):
        block.to(DEVICE).eval()
        arithmetic = torch.set_grad_enabled(grad), torch.autocast(DEVICE, dtype=HALF, enabled=half)
        with patch.object(lists.products, "after", None), arithmetic[0], arithmetic[1]:
            answer = x.to(HALF) if half else x
            total, normed = block.whole(x, answer, norm)
            after, added = block.after_attention(x, answer)
        assert torch.equal(total, after + added) and normed.shape == x.shape


@pytest.mark.parametrize("inputs", [7, 9])
def test_rows_of_another_width_are_refused(inputs: int) -> None:
    """As torch does: a kernel would read what lies beyond them."""
    mlp, x = layers(8, 32, 4).to(DEVICE), torch.randn(1, 5, inputs, device=DEVICE)
    with pytest.raises(RuntimeError, match="shapes"), torch.no_grad(), torch.autocast(DEVICE, dtype=HALF):
        lists.feed(mlp, x)


@MANY
@given(
    seed=st.integers(0, 10**6),
    rows=st.sampled_from(few([1, 130, 5000], [1, 40])),
    asked=st.sampled_from([1.0, 0.6]),
    shape=st.sampled_from(few([(4, 64), (8, 32), (1, 32), (2, 128)], [(2, 16), (8, 8), (1, 32)])),
)
def test_projections_are_turned(seed: int, rows: int, asked: float, shape: tuple[int, int]) -> None:
    """Queries and keys are those of rows that are projected, then turned; the values are as they are."""
    heads, width = shape
    d, some = heads * width, max(1, int(asked * rows))
    config = mast_swarm.PolicyConfig(heads=heads, head_dim=width)
    torch.manual_seed(seed)
    attention = Attention(config).requires_grad_(False)
    h, entry, phase = torch.randn(rows, d), torch.randint(0, 9, (rows,)), torch.rand(9, width // 2).double() * 6
    q, k, v = attention.double().qkv(h.double()).view(rows, 3, heads, width).unbind(1)
    tables = tuple(table[entry][:, None] for table in (phase.cos(), phase.sin()))
    q, k = rotate(q, tables), rotate(k, tables)
    attention, there = attention.float().to(DEVICE), (h.to(DEVICE, HALF), entry.to(DEVICE))
    with torch.no_grad(), torch.autocast(DEVICE, dtype=HALF):
        given_ = tuple(table.float().to(DEVICE) for table in (phase.cos(), phase.sin()))
        found, kv = lists.projected(attention, there[0], some, given_, there[1])
    assert found.shape == (some, d) and kv.shape == (rows, 2 * d) and found.dtype == kv.dtype == HALF
    close(kv[:, d:], v.flatten(1))
    close(kv[:, :d], k.flatten(1))
    close(found, q[:some].flatten(1))


@MANY
@given(
    seed=st.integers(0, 10**6),
    rows=st.sampled_from(few([1, 17, 130, 5000, 20_000], [1, 40])),
    shape=st.sampled_from(few([(4, 64), (8, 32), (1, 64), (2, 64)], [(2, 32), (4, 16)])),
)
def test_projections_of_all_rows_are_one_kernel(seed: int, rows: int, shape: tuple[int, int]) -> None:
    """Whatever the order within heads: products of queries and keys are those of plain torch, and so are values."""
    heads, width = shape
    d = heads * width
    torch.manual_seed(seed)
    attention = Attention(mast_swarm.PolicyConfig(heads=heads, head_dim=width)).requires_grad_(False)
    h, phase = torch.randn(rows, d), torch.rand(rows, width // 2).double() * 6
    q, k, v = attention.double().qkv(h.double()).view(rows, 3, heads, width).unbind(1)
    tables = phase.cos(), phase.sin()
    q, k = (rotate(part, tuple(table[:, None] for table in tables)) for part in (q, k))
    attention, there = attention.float().to(DEVICE), tuple(table.float().to(DEVICE) for table in tables)
    asked = patch.object(lists.products, "project", wraps=lists.products.project)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=HALF), asked as kernel:
        found, kv = lists.projected_all(attention, h.to(DEVICE, HALF), there)
    assert kernel.called and found.dtype == kv.dtype == HALF
    close(kv[:, d:], v.flatten(1))
    ours = (part.reshape(rows, heads, width).double() for part in (found, kv[:, :d]))
    some, other = torch.randint(0, rows, (2, 500))
    one, two = (part.cpu() for part in ours)
    close((one[some] * two[other]).sum(-1), (q[some] * k[other]).sum(-1))
    close(one.norm(dim=-1), q.norm(dim=-1))
