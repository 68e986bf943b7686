"""The encodings: their frequencies, what they turn or add, and how far they can be trusted."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm.model.config import ENCODINGS, PolicyConfig
from mast_swarm.model.encoding import Absolute, Rotary, frequencies, make_encoding, near_origin, rotate


def test_frequencies_are_those_of_the_paper() -> None:
    geometric, linear = frequencies("g", 16, 1000.0), frequencies("l", 16, 1000.0)
    assert geometric[15].item() == pytest.approx(2 * math.pi / 1000.0)  # k = K: one turn a wavelength
    assert geometric[7].item() == pytest.approx(2 * math.pi * 1000.0**-0.5)
    assert linear[0].item() == pytest.approx(2 * math.pi / 1000.0)
    assert linear[15].item() == pytest.approx(2 * math.pi * 16 / 1000.0)


def test_rotation_is_the_complex_product_of_equation_rope1() -> None:
    config = PolicyConfig(head_dim=16)
    encoding = make_encoding(config)
    assert isinstance(encoding, Rotary)
    positions = torch.tensor([[30.0, -70.0]])
    x = torch.randn(1, 16, generator=torch.Generator().manual_seed(0))
    turned = torch.view_as_complex(rotate(x, encoding.rotation(positions)).view(1, 8, 2))
    omega = frequencies("g", 4, 1000.0).double()
    for k in range(4):
        for axis in range(2):
            n = 2 * k + axis
            phase = (omega[k] * positions[0, axis].double()).item()
            expected = complex(x[0, 2 * n], x[0, 2 * n + 1]) * complex(math.cos(phase), math.sin(phase))
            assert abs(complex(turned[0, n]) - expected) < 1e-5


@settings(deadline=None, max_examples=30)
@given(
    st.sampled_from(["rope-g", "rope-l"]),
    st.tuples(st.integers(-400, 400), st.integers(-400, 400)),
    st.tuples(st.integers(-400, 400), st.integers(-400, 400)),
    st.tuples(st.integers(-200, 200), st.integers(-200, 200)),
)
def test_scores_depend_on_relative_positions_alone(encoding: str, a: tuple, b: tuple, shift: tuple) -> None:
    rope = make_encoding(PolicyConfig(encoding=encoding))
    q, k = torch.randn(2, 64, generator=torch.Generator().manual_seed(1))
    pa, pb, s = (torch.tensor(v, dtype=torch.float32) for v in (a, b, shift))
    here = rotate(q, rope.rotation(pa)) @ rotate(k, rope.rotation(pb))
    there = rotate(q, rope.rotation(pa + s)) @ rotate(k, rope.rotation(pb + s))
    assert torch.allclose(here, there, atol=1e-3)


@pytest.mark.parametrize("axis", [0, 1])
def test_every_head_turns_with_both_axes(axis: int) -> None:
    rope = make_encoding(PolicyConfig(heads=4, head_dim=16))
    step = torch.zeros(2)
    step[axis] = 40.0
    cos, _ = rope.rotation(step)
    assert ((cos - 1).abs() > 1e-3).sum() == 4  # half of a head's complex elements, the same table for every head


def test_absolute_encoding_alternates_sines_and_cosines() -> None:
    encoding = make_encoding(PolicyConfig(encoding="ape-l", heads=1, head_dim=8))
    assert isinstance(encoding, Absolute)
    added = encoding.embed(torch.zeros(8), torch.tensor([100.0, 250.0]))
    w = 2 * math.pi / 1000
    expected = [f(k * w * p) for k in (1, 2) for p in (100.0, 250.0) for f in (math.sin, math.cos)]
    assert torch.allclose(added, torch.tensor(expected), atol=1e-5)


@pytest.mark.parametrize("name", ENCODINGS)
def test_each_encoding_is_made_and_moves_what_it_should(name: str) -> None:
    encoding = make_encoding(PolicyConfig(encoding=name, heads=2, head_dim=8))
    x, p = torch.zeros(1, 3, 16), torch.tensor([[[0.0, 0.0], [120.0, 0.0], [0.0, 120.0]]])
    added, rotation = encoding.embed(x, p), encoding.rotation(p)
    assert (rotation is not None) == name.startswith("rope")
    distinct = len(torch.unique(added[0].detach(), dim=0))
    assert distinct == (3 if name.startswith("ape") or name == "mlp" else 1)


def test_the_nearby_origin_keeps_phases_exact_100_km_away() -> None:
    points = torch.randint(-32000, 32000, (1, 50, 2), generator=torch.Generator().manual_seed(2)) / 64.0
    far = points + 100_000.0  # multiples of 1/64 m stay exact in fp32 here
    # The origins may differ by whole metres; the places relative to them then differ by exactly that.
    offset = (far - near_origin(far)) - (points - near_origin(points))
    assert torch.equal(offset, offset[:, :1].expand_as(offset))
    assert (offset == offset.round()).all()
