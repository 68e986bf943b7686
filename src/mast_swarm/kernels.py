"""Whether the Triton kernels can be used, and on which tensors: the one place that decides it.

Three cases. Where there are a GPU and Triton, kernels run on tensors of the GPU. Where there is no GPU, but the
environment has TRITON_INTERPRET=1 and Triton is installed, Triton's interpreter runs them in numpy, and the CPU stands
for the GPU: slow, for tests alone. Everywhere else there are no kernels, and Triton is never imported.

A module that has kernels imports them where `USABLE` says so, and asks `on_gpu` before it gives them a tensor. Where it
asks by `tried`, a kernel that a GPU or its compiler does not take costs speed and nothing else: plain torch takes its
place, which is said. Elsewhere it is an error.
"""

from __future__ import annotations

import importlib.util
import logging
import os
from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

from mast_swarm import steady
from mast_swarm.errors import MastError

Result = TypeVar("Result")

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


failed: dict[str, str] = {}  # kernels that this machine did not take, and why


class KernelFailed(RuntimeError):
    """A kernel failed in steady work, which has to begin again: the answers that it has kept are those of work that
    has the kernel."""


def tried(name: str, quick: Callable[[], Result], plain: Callable[[], Result]) -> Result:
    """What `quick` gives by the kernel of this name; where that has failed, now or before, what `plain` gives, and the
    reason is told once. In Triton's interpreter a kernel that fails is an error: it is there for tests."""
    if name in failed:
        return plain()
    try:
        return quick()
    except (MastError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # Triton has many kinds, most of them no RuntimeError
        if INTERPRETED:
            raise
        failed[name] = f"{type(error).__name__}: {(str(error).splitlines() or ['no reason given'])[0]}"
        logging.getLogger("mast_swarm").warning(
            "the GPU kernel for %s cannot be used here, and plain torch takes its place: %s", name, failed[name]
        )
        if steady.running():
            raise KernelFailed(f"the kernel for {name} failed ({failed[name]})") from error
        return plain()
