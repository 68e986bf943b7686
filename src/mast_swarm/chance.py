"""Chance as a function: random numbers from whole numbers, the same in any batch, order and device."""

from __future__ import annotations

import torch
from torch import Tensor


def mixed(*parts: Tensor | int) -> Tensor:
    """One well-mixed int64 of several (broadcast together), each folded in by the finaliser of SplitMix64."""
    state: Tensor | int = 0
    for part in parts:
        state = _finalise(state * 6364136223846793005 + part + _GOLDEN) if isinstance(state, Tensor) else _first(part)
    assert isinstance(state, Tensor)
    return state


def uniform(*parts: Tensor | int) -> Tensor:
    """A number in [0, 1), fp32, for each combination of whole numbers (broadcast together)."""
    return (_shift(mixed(*parts), 40)).float() * 2.0**-24


_GOLDEN = -7046029254386353131  # 0x9E3779B97F4A7C15 as int64


def _first(part: Tensor | int) -> Tensor:
    return _finalise((part if isinstance(part, Tensor) else torch.tensor(part)) + _GOLDEN)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right (torch's own keeps the sign)."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _finalise(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * -4658895280553007687  # 0xBF58476D1CE4E5B9
    x = (x ^ _shift(x, 27)) * -7723592293110705685  # 0x94D049BB133111EB
    return x ^ _shift(x, 31)
