"""Whether the Triton kernels can be used, and on which tensors: the one place that decides it.

Three cases. Where there are a GPU and Triton, kernels run on tensors of the GPU. Where there is no GPU, but the
environment has TRITON_INTERPRET=1 and Triton is installed, Triton's interpreter runs them in numpy, and the CPU stands
for the GPU: slow, for tests alone. Everywhere else there are no kernels, and Triton is never imported.

A module that has kernels imports them where `USABLE` says so, and asks `on_gpu` before it gives them a tensor.
"""

from __future__ import annotations

import importlib.util
import os
from typing import Protocol

import torch

_WANTED = os.environ.get("TRITON_INTERPRET") == "1" and not torch.cuda.is_available()
USABLE = (torch.cuda.is_available() or _WANTED) and importlib.util.find_spec("triton") is not None
INTERPRETED = USABLE and _WANTED  # the CPU stands for the GPU


class _Placed(Protocol):
    """What lies on a device: a tensor, a graph."""

    @property
    def device(self) -> torch.device: ...


def on_gpu(what: _Placed) -> bool:
    """Whether this takes the GPU's way through the code, which kernels are a part of where they are usable."""
    return what.device.type == "cuda" or INTERPRETED
