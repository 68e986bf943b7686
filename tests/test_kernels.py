"""A kernel that fails costs speed and nothing else, and it is said once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mast_swarm import explore, kernels
from mast_swarm.chance import as_tensor
from mast_swarm.errors import MastError
from mast_swarm.kernels import KernelFailed, tried
from mast_swarm.steady import Steady


class PTXASError(Exception):
    """Of Triton, whose errors are no RuntimeErrors."""


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kernels fail as on a GPU; what failed is forgotten after the test."""
    monkeypatch.setattr(kernels, "INTERPRETED", False)
    monkeypatch.setattr(kernels, "failed", {})
    yield


def broken(*given: Any, **more: Any) -> Any:
    raise PTXASError("too many registers\nand a long log")


def test_plain_torch_takes_the_place_of_a_kernel_that_fails(on_a_gpu: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "mast_swarm"):
        assert tried("sums", broken, lambda: 1) == 1 and tried("sums", broken, lambda: 2) == 2
    assert caplog.text.count("sums") == 1 and "PTXASError: too many registers" in caplog.text
    assert "long log" not in caplog.text
    assert tried("sums", lambda: 3, lambda: 4) == 4 and tried("other", lambda: 3, lambda: 4) == 3


@pytest.mark.parametrize("error", [MastError("bad input"), torch.OutOfMemoryError("no memory")])
def test_what_is_not_the_kernels_fault_is_an_error(on_a_gpu: None, error: Exception) -> None:
    def quick() -> int:
        raise error

    with pytest.raises(type(error)):
        tried("sums", quick, lambda: 1)
    assert not kernels.failed


def test_a_kernel_that_fails_in_the_interpreter_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "INTERPRETED", True)
    with pytest.raises(PTXASError):
        tried("sums", broken, lambda: 1)


def test_steady_work_begins_again(on_a_gpu: None) -> None:
    """The answers that it has kept may be those of the kernel that failed."""
    with pytest.raises(KernelFailed, match="sums"), Steady("cpu").asking():
        tried("sums", broken, lambda: 1)
    with Steady("cpu").asking():
        assert tried("sums", broken, lambda: 1) == 1


def test_robots_explore_without_the_kernel(on_a_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    prediction, landmark = torch.rand(2, 5, 3), torch.rand(2, 5, 2) * 100
    given = (prediction, landmark, as_tensor([1, 2], "cpu"), torch.tensor([0.3, 7.5]), 50.0)
    expected = explore.explored(*given)
    monkeypatch.setattr(explore, "gpu", SimpleNamespace(explored=broken))
    monkeypatch.setattr(explore, "on_gpu", lambda tensor: True)
    assert torch.equal(explore.explored(*given), expected) and set(kernels.failed) == {"exploration"}
