"""Products by kernels, with what is done to their results on the way out: as in plain torch, but for rounding."""

from __future__ import annotations

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
    given_=st.sampled_from([None, torch.float32]),
)
def test_two_layers_are_one_kernel(
    seed: int, rows: int, inputs: int, hidden: int, outputs: int, precise: bool, given_: torch.dtype | None
) -> None:
    """Rows in fp32, as perception gets them, or in half precision, as norms give them; and the same of results."""
    from mast_swarm.model import product_kernels as products

    torch.manual_seed(seed)
    mlp, x = layers(inputs, hidden, outputs), torch.randn(2, rows, inputs)
    expected = mlp.double()(x.double())
    mlp, x = mlp.float().to(DEVICE), x.to(DEVICE) if precise else x.to(DEVICE, HALF)
    assert products.takes_feed(inputs, hidden, outputs, x.device)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=HALF):
        found = lists.feed(mlp, x, given_)
    assert found.dtype == (given_ or HALF)
    close(found, expected)


def test_other_layers_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """In fp32, with gradients, and where the layers are others."""
    monkeypatch.setattr(lists.products, "feed", None)
    mlp, x = layers(8, 32, 4).to(DEVICE), torch.randn(1, 5, 8, device=DEVICE)
    with torch.no_grad():
        assert torch.equal(lists.feed(mlp, x), mlp(x))
    with torch.autocast(DEVICE, dtype=HALF):
        assert torch.equal(lists.feed(mlp, x), mlp(x))
        assert lists.feed(mlp, x, x.dtype).dtype == x.dtype
        others = nn.Sequential(mlp[0], nn.ReLU(), mlp[2])
        with torch.no_grad():
            assert torch.equal(lists.feed(others, x), others(x))


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
