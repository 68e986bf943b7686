"""What several test files call: the command line in this process, and training runs that are stopped midway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mast_swarm.cli import main
from mast_swarm.tasks.registry import find
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.config import recipe as find_recipe

if TYPE_CHECKING:
    from mast_swarm.train.trainer import RunOptions


def recipe(name: str, task: str = "navigation") -> TrainConfig:
    """A recipe of a task by name."""
    return find_recipe(name, find(task))


def use_zoo(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let the shipped policies be those in folder/TASK/NAME."""
    found = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    monkeypatch.setattr("mast_swarm.zoo._FOLDERS", found)


def mast(*args: object) -> int:
    """Exit status of a command."""
    try:
        main([str(arg) for arg in args])
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def one_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The error that was printed: one line, nothing else."""
    printed = capsys.readouterr()
    assert printed.err.startswith("mast: ") and printed.err.count("\n") == 1, printed.err
    return printed.err


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody uses."""
    from mast_swarm.swarm.fleet import free_ports as found

    return found(count)


class Stopped(Exception):
    """Thrown into a run to stop it between two epochs."""


def stop_after(epochs: int) -> Callable[[dict[str, Any]], None]:
    """A report that stops a run after so many epochs."""

    def report(row: dict[str, Any]) -> None:
        if row["epoch"] == epochs:
            raise Stopped

    return report


def options(folder: Path, **kwargs: Any) -> RunOptions:
    """Of a run on the CPU that writes a checkpoint after every step."""
    import torch

    from mast_swarm.train.trainer import RunOptions

    return RunOptions(folder, torch.device("cpu"), **{"checkpoint_seconds": 0.0, **kwargs})
