"""Products of many rows with a layer's weights on a CPU, in full precision and without gradients, by oneDNN.

torch leaves them to MKL, which takes a processor's widest instructions only where these are of its own maker; on others
oneDNN, which is part of torch too, takes half the time. It makes code for each number of rows that it meets, and keeps
it, some megabytes each; and robots alone have another number of rows in each step. So rows are taken some at a time, as
many as one of a few numbers says, and the ones that are missing of the last are zeros. Numbers of rows that come again,
as those of a team, are taken as they are, as long as they are few.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from mast_swarm.kernels import on_gpu

_FEWEST = 96  # rows below which MKL is as quick
_ROWS = (2048, 1024, 512, 256, 128, 64)  # at a time
_MOST, _REMEMBERED = 64, 1024  # numbers of rows that are taken as they are, and of those that came once
_again: set[tuple[int, ...]] = set()
_once: set[tuple[int, ...]] = set()
# Torch's own compiler calls it, but gives it no public name: where it is missing, MKL stays.
_linear: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)


class Layer(NamedTuple):
    """Times weight [m, k], plus bias [m]; with a slope a leaky ReLU of that."""

    weight: Tensor
    bias: Tensor
    slope: float | None = None


@cache
def _works() -> bool:
    """Whether a product is what it should be."""
    try:
        rows, none = torch.tensor([[1.0, -2.0]]), torch.zeros(1)
        products = [_linear(rows, way * rows, none, "leaky_relu", [0.5], "").item() for way in (1, -1)]
    except (AttributeError, NotImplementedError, RuntimeError, TypeError):
        return False
    return products == [5.0, -2.5]


def takes(x: Tensor, weight: Tensor) -> bool:
    """Whether `linear` takes these rows, [..., k], with first weights [m, k]."""
    if _linear is None or x.device.type != "cpu" or on_gpu(x) or torch.is_grad_enabled():
        return False
    if torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling() or type(x) is not Tensor:
        return False
    if not _works():
        return False
    full = x.dtype == weight.dtype == torch.float32
    return full and x.ndim > 1 and x.shape[-1] == weight.shape[1] and x.numel() >= _FEWEST * x.shape[-1] > 0


def linear(x: Tensor, *layers: Layer) -> Tensor:
    """Rows x [..., k] through layers, one after the other: [..., m] of the last."""
    rows = x.reshape(-1, x.shape[-1])
    if _comes_again((*rows.shape, *(len(layer.weight) for layer in layers))):
        return _through(rows, layers).view(*x.shape[:-1], -1)
    y = rows.new_empty(len(rows), len(layers[-1].weight))
    first = 0
    while first < len(rows):
        size = _at_a_time(len(rows) - first)
        some, part = rows[first : first + size], y[first : first + size]
        some = F.pad(some, (0, 0, 0, size - len(some))) if len(some) < size else some
        part.copy_(_through(some, layers)[: len(part)])
        first += size
    return y.view(*x.shape[:-1], -1)


def _through(rows: Tensor, layers: Iterable[Layer]) -> Tensor:
    for weight, bias, slope in layers:
        rows = _linear(rows, weight, bias, *(("none", [], "") if slope is None else ("leaky_relu", [slope], "")))
    return rows


def _comes_again(shape: tuple[int, ...]) -> bool:
    """Whether rows and layers of these numbers have been here before, and there is room for code of their own. Of many
    rows it would be larger, and gain less."""
    if shape[0] > _ROWS[0]:
        return False
    if shape in _once and len(_again) < _MOST:
        _again.add(shape)
    if len(_once) == _REMEMBERED:
        _once.clear()
    _once.add(shape)
    return shape in _again


def _at_a_time(left: int) -> int:
    """How many of the rows that are left to take: the most of which three quarters are there."""
    return next((size for size in _ROWS if 4 * left > 3 * size), _ROWS[-1])
