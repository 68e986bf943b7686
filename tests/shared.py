"""What several test files call: the command line in this process, and training runs that are stopped midway."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mast_swarm.cli import main

if TYPE_CHECKING:
    from mast_swarm.train.trainer import RunOptions


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


class Stopped(Exception):
    """Thrown into a run to stop it between two epochs."""


def stop_after(epochs: int) -> Callable[[dict[str, Any]], None]:
    """A report that stops a run after so many epochs."""

    def report(row: dict[str, Any]) -> None:
        if row["epoch"] == epochs:
            raise Stopped

    return report


def options(folder: Path, **kwargs: Any) -> RunOptions:
    """Of a run on the CPU that writes a checkpoint after every epoch."""
    import torch

    from mast_swarm.train.trainer import RunOptions

    return RunOptions(folder, torch.device("cpu"), **{"checkpoint_seconds": 0.0, **kwargs})
