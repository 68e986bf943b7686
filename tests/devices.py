"""Where the GPU's way through the code is tested: on a GPU, or in Triton's interpreter, where the CPU stands for it.

A test marked `kernels` moves its tensors to DEVICE. On a machine with a GPU it runs like any other; without one it is
skipped, and runs in the process that `test_interpreter` starts. The interpreter is slow: sizes are `few` there.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar
from unittest.mock import patch

import pytest
import torch

from mast_swarm import kernels
from mast_swarm.kernels import INTERPRETED  # of the process, also in `plainly`

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
GPU = pytest.param(DEVICE, marks=pytest.mark.kernels, id="gpu")  # beside "cpu" in tests of several devices
TRITON = importlib.util.find_spec("triton") is not None
MISSING = "Triton is not installed, so that no GPU kernel can be tested here: install the extra `dev`"
Case = TypeVar("Case")


def why_not() -> str | None:
    """Why kernels cannot be tested in this process; None where they can."""
    if kernels.USABLE:
        return None
    return "needs a GPU, or Triton's interpreter, which test_interpreter.py starts" if TRITON else MISSING


def few(many: Case, interpreted: Case) -> Case:
    """The sizes of a test on a GPU, and in the interpreter."""
    return interpreted if INTERPRETED else many


# The interpreter keeps bfloat16 as its bits, and `tl.dot` multiplies these: half precision is float16 there.
HALF = few(torch.bfloat16, torch.float16)


@contextmanager
def plainly() -> Iterator[None]:
    """What runs on tensors of the CPU in here takes the CPU's own way, which kernels are compared with."""
    with patch.object(kernels, "INTERPRETED", False):
        yield
