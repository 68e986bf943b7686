"""Products of many rows with a layer's weights on a CPU, in full precision and without gradients, by oneDNN.

torch leaves them to MKL, which takes a processor's widest instructions only where these are of its own maker; on others
oneDNN, which is part of torch too, takes half the time. It makes code for each number of rows that it meets, and keeps
it, some megabytes each; and robots alone have another number of rows in each step. So rows are taken some at a time, as
many as one of a few numbers says. Where the last are fewer, some before them are computed twice, and where there are
none before them, zeros follow. (To take numbers of rows as they are once they come again is quicker for small teams,
but then rounding depends on what a process has done before.)
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mast_swarm.kernels import on_gpu

_FEWEST = 96  # rows below which MKL is as quick
_ROWS = (2048, 1024, 512, 256, 128, 64)  # at a time
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
    count, size = len(rows), _at_a_time(len(rows))
    if size >= count:
        y = _through(rows if size == count else _lengthened(rows, size), layers)[:count]
    else:
        y, first = rows.new_empty(count, len(layers[-1].weight)), 0
        while first < count:
            size = _at_a_time(count - first)
            begin = min(first, count - size)
            y[begin : begin + size] = _through(rows[begin : begin + size], layers)
            first = begin + size
    return y.view(*x.shape[:-1], -1)


def _through(rows: Tensor, layers: Iterable[Layer]) -> Tensor:
    for weight, bias, slope in layers:  # a bias that is not contiguous is read as if it were
        way = ("none", [], "") if slope is None else ("leaky_relu", [slope], "")
        rows = _linear(rows, weight, bias.contiguous(), *way)
    return rows


def _lengthened(rows: Tensor, size: int) -> Tensor:
    """With zeros behind them: torch's `pad` fills all with zeros first, which takes as long as the copy."""
    longer = rows.new_empty(size, rows.shape[1])
    longer[: len(rows)] = rows
    longer[len(rows) :] = 0.0
    return longer


def _at_a_time(left: int) -> int:
    """How many of the rows that are left to take: the most of which three quarters are there."""
    return next((size for size in _ROWS if 4 * left > 3 * size), _ROWS[-1])
