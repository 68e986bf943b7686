"""Products on a CPU by oneDNN, against torch's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import mast_swarm
from mast_swarm.model import cpu_products
from mast_swarm.model.cpu_products import Layer

pytestmark = pytest.mark.skipif(not cpu_products._works(), reason="this torch has no oneDNN")


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@settings(deadline=None, max_examples=40)
@given(
    rows=st.integers(96, 3000),
    widths=st.tuples(st.integers(1, 70), st.integers(1, 70)),
    slope=st.sampled_from([None, 0.01, 0.3]),
    cut=st.booleans(),
    seed=st.integers(0, 99),
)
def test_rows_times_weights(rows: int, widths: tuple[int, int], slope: float | None, cut: bool, seed: int) -> None:
    inputs, outputs = widths
    x, weight, bias = drawn(seed, rows, inputs + cut), drawn(seed + 1, outputs, inputs), drawn(seed + 2, outputs)
    x = x[:, :inputs]  # where it is cut, rows do not follow each other in memory
    with torch.inference_mode():
        assert cpu_products.takes(x, weight)
        found = cpu_products.linear(x, Layer(weight, bias, slope))
    expected = F.linear(x.double(), weight.double(), bias.double())
    expected = expected if slope is None else F.leaky_relu(expected, slope)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-4)


def test_environments_of_rows_and_weights_that_are_cut() -> None:
    x, weight, bias = drawn(0, 3, 130, 16), drawn(1, 12, 16), drawn(2, 12)
    with torch.inference_mode():
        found = cpu_products.linear(x, Layer(weight[4:], bias[4:]))
        strided = cpu_products.linear(x, Layer(weight[4:], drawn(2, 16)[::2]))
    torch.testing.assert_close(strided, F.linear(x, weight[4:], drawn(2, 16)[::2]), rtol=1e-5, atol=1e-4)
    assert found.shape == (3, 130, 8)
    torch.testing.assert_close(found, F.linear(x, weight[4:], bias[4:]), rtol=1e-5, atol=1e-4)


def test_one_layer_after_the_other() -> None:
    x, first, last = drawn(0, 2500, 16), Layer(drawn(1, 40, 16), drawn(2, 40), 0.1), Layer(drawn(3, 5, 40), drawn(4, 5))
    with torch.inference_mode():
        found = cpu_products.linear(x, first, last)
    hidden = F.leaky_relu(F.linear(x, first.weight, first.bias), 0.1)
    torch.testing.assert_close(found, F.linear(hidden, last.weight, last.bias), rtol=1e-5, atol=1e-3)


def test_rounding_depends_on_nothing_but_what_is_given() -> None:
    layer = Layer(drawn(0, 768, 256), drawn(1, 768))
    with torch.inference_mode():
        first = [cpu_products.linear(drawn(2, rows, 256), layer) for rows in (96, 100, 1000, 2500)]
        again = [cpu_products.linear(drawn(2, rows, 256), layer) for rows in (96, 100, 1000, 2500)]
    assert all(torch.equal(*both) for both in zip(first, again, strict=True))


def test_what_is_left_to_torch() -> None:
    x, weight = drawn(0, 300, 16), drawn(1, 8, 16)
    assert not cpu_products.takes(x, weight)  # gradients may be asked for
    with torch.no_grad():
        assert cpu_products.takes(x, weight)
        assert not cpu_products.takes(x[:95], weight) and not cpu_products.takes(x[:0], weight)
        assert not cpu_products.takes(x.double(), weight.double()) and not cpu_products.takes(x[0], weight)
        assert not cpu_products.takes(x[:, :9], weight)  # torch says what is wrong
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert not cpu_products.takes(x, weight)


@pytest.mark.parametrize("path", ["dense", "kernel"])
def test_a_policy_decides_the_same_without(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = mast_swarm.Policy(
        mast_swarm.PolicyConfig(layers=2, heads=2, head_dim=16, attention_radius=250.0, observation_dim=14), seed=1
    )
    positions, features = 900 * drawn(3, 1, 300, 2), drawn(1, 1, 300, 14)
    with torch.inference_mode():
        found = policy(features, positions, path=path)
        monkeypatch.setattr(cpu_products, "_linear", None)
        plain = policy(features, positions, path=path)
    torch.testing.assert_close(found, plain, rtol=1e-4, atol=1e-5)


def test_a_torch_without_it_keeps_its_own_products(monkeypatch: pytest.MonkeyPatch) -> None:
    x, weight = drawn(0, 300, 16), drawn(1, 8, 16)
    for missing in (None, lambda *given: torch.zeros(1)):
        monkeypatch.setattr(cpu_products, "_linear", missing)
        cpu_products._works.cache_clear()
        with torch.no_grad():
            assert not cpu_products.takes(x, weight)
    monkeypatch.undo()
    cpu_products._works.cache_clear()
    assert cpu_products._works()
