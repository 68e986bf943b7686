"""What all tests share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from bounds import checked
from devices import INTERPRETED, why_not
from mast_swarm import Policy, PolicyConfig
from mast_swarm.model.config import LPACConfig
from mast_swarm.model.lpac import LPAC
from mast_swarm.tasks.coverage.recipes import MAST as COVERAGE
from strolling import own_tasks


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("kernels") and (reason := why_not()):
        pytest.skip(reason)


@pytest.fixture(autouse=True)
def no_kernel_fails() -> Iterator[None]:
    """On a GPU a kernel that fails is replaced by plain torch, which a test of results alone would not see."""
    yield
    from mast_swarm.kernels import failed

    assert not failed


@pytest.fixture(autouse=True)
def no_task_stays() -> Iterator[None]:
    """A task that a test makes known is forgotten after it."""
    with own_tasks():
        yield


@pytest.fixture(autouse=True, scope="session")
def within_bounds() -> Iterator[None]:
    """In Triton's interpreter no kernel reads or writes beyond its tensors."""
    with checked() if INTERPRETED else nullcontext():
        yield


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """One thread for torch: the tensors here are small, and waking others costs more than they bring."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def policy_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small policy that has learned nothing, in a folder called `small`."""
    folder = tmp_path_factory.mktemp("policies") / "small"
    config = PolicyConfig(
        task="navigation", layers=2, heads=2, head_dim=8, attention_radius=150.0, exploration_time=20.0
    )
    Policy(config, seed=3).save(folder)
    return folder


@pytest.fixture(scope="session")
def coverage_zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A zoo of two small policies for coverage that have learned nothing: coverage/mast-m and coverage/lpac-k3."""
    zoo = tmp_path_factory.mktemp("zoo")
    Policy(replace(COVERAGE, layers=2, heads=2, head_dim=8, message_dim=8), seed=3).save(zoo / "coverage" / "mast-m")
    LPAC(LPACConfig(task="coverage", layers=2, width=16, message_dim=8), seed=3).save(zoo / "coverage" / "lpac-k3")
    return zoo


@pytest.fixture(scope="session")
def exported_folder(policy_folder: Path) -> Path:
    """The same policy as robots run it, in a folder called `exported`."""
    pytest.importorskip("onnx", reason="policies are exported with the package onnx")
    from mast_swarm.interop.onnx import export

    folder = policy_folder.parent / "exported"
    export(policy_folder, folder)
    return folder
