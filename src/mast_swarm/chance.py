"""Chance without state: numbers that depend on what they are for and on nothing else.

A counter-based generator: an event is named by integers (seed, step, round, sender, receiver, ...) and mixing
them gives its number. So the fate of a transmission is the same on every device, in every batch and in any
order of asking, which no stream of random numbers can offer.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

_ALL = (1 << 64) - 1  # bits


def _signed(value: int) -> int:
    """The 64 low bits of an integer as int64 holds them."""
    value &= _ALL
    return value - (1 << 64) if value >> 63 else value


_GOLDEN = _signed(0x9E3779B97F4A7C15)
_MULTIPLIERS = ((30, _signed(0xBF58476D1CE4E5B9)), (27, _signed(0x94D049BB133111EB)))
MIXING = (_GOLDEN, *(multiplier for _, multiplier in _MULTIPLIERS))  # for kernels that do the same


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right; torch's own keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def mix(x: Tensor) -> Tensor:
    """The finaliser of splitmix64, a bijection of int64 that leaves no pattern; wraps around."""
    for bits, multiplier in _MULTIPLIERS:
        x = (x ^ _shift(x, bits)) * multiplier
    return x ^ _shift(x, 31)


def combine(key: Tensor, *counters: Tensor | int) -> Tensor:
    """A new key from a key and integers that name an event; all broadcast together, int64."""
    for counter in counters:
        named = mix(counter * _GOLDEN) if isinstance(counter, Tensor) else _mixed(counter * _GOLDEN)
        key = mix(key + _GOLDEN + named)
    return key


def _mixed(x: int) -> int:
    """`mix` of one number, which is not sent to a device for it: that would wait for all that the device has to do."""
    x &= _ALL
    for bits, multiplier in _MULTIPLIERS:
        x = ((x ^ x >> bits) * multiplier) & _ALL
    return _signed(x ^ x >> 31)


def uniform(key: Tensor) -> Tensor:
    """The number in [0, 1) of a key, float64."""
    return _shift(key, 11).to(torch.float64) * 2.0**-53


def as_tensor(seeds: Iterable[int] | Tensor, device: torch.device | str | None = None) -> Tensor:
    """Seeds as [B] int64; of each its 64 low bits count, so any integer is a seed."""
    return torch.tensor([_signed(int(seed)) for seed in seeds], dtype=torch.int64, device=device)


def keys_of(seed: int, environments: Iterable[int] | Tensor, device: torch.device) -> Tensor:
    """A key for each environment from the channel's seed and the environment's own, [B] int64."""
    return combine(mix(torch.tensor(_signed(seed), device=device)), as_tensor(environments, device))
