"""Settings of `mast tune`. No torch here: the command line reads these for its help."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mast_swarm.errors import MastError

_UNSET = tyro.conf.arg(help_behavior_hint="")
_TINY, _HUGE = 5e-324, sys.float_info.max  # all numbers above 0 that a computer has


@dataclass(frozen=True)
class TuneConfig:
    """Search for hyper-parameters: TPE proposes trials, Hyperband ends the poor ones early (Optuna). The same command
    goes on with a study that was stopped; on several machines with one --storage it is one study."""

    trials: int = 400
    """Trials of the study in all, on all machines."""
    least: int = 10
    """Epochs before a trial may be ended."""
    most: int = 100
    """Epochs of a trial that goes to its end."""
    factor: int = 4
    """Hyperband's reduction factor."""
    layers: tuple[int, int] = (2, 10)
    """Range of the number of layers."""
    heads: tuple[int, int] = (1, 8)
    """Range of the number of heads."""
    head_dim: tuple[int, int] = (16, 128)
    """Range of the width of a head, in steps of 4."""
    lr: tuple[float, float] = (1e-8, 1e-2)
    """Range of the learning rate, logarithmic."""
    weight_decay: tuple[float, float] = (1e-16, 1.0)
    """Range of the weight decay, logarithmic."""
    dropout: tuple[float, float] = (0.0, 1.0)
    """Range of the dropout."""
    recipe: Annotated[str, _UNSET] = ""
    """Recipe that all trials start from; unset: `search` where the task has it, else its first."""
    config: Annotated[Path | None, _UNSET, tyro.conf.DisallowNone] = None
    """A TOML file of settings that differ from the recipe, as of `mast train`."""
    storage: Annotated[str, _UNSET] = ""
    """Where the study is kept: a file, or postgresql://USER:PASSWORD@HOST/DATABASE; unset: study.db in --out."""
    study: Annotated[str, _UNSET] = ""
    """Name of the study in its storage; unset: the task's."""
    out: Annotated[Path | None, _UNSET, tyro.conf.DisallowNone] = None
    """Folder for trials, plots and the best settings; unset: runs/tune-TASK."""
    seed: int = 0
    """Of TPE, and of every trial's training."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    ray: Annotated[str | None, _UNSET, tyro.conf.DisallowNone] = None
    """HOST:PORT of a Ray cluster that runs the trials (with a --storage that all its machines reach), or auto."""
    workers: int = 1
    """Trials at a time: processes of this machine, or tasks of the Ray cluster."""
    gpus: float = 0.0
    """GPUs (or a share of one) that a trial asks of the Ray cluster."""

    def __post_init__(self) -> None:
        for name in ("trials", "least", "workers"):
            if getattr(self, name) < 1:
                raise MastError(f"--{name} is {getattr(self, name)}: give 1 or more")
        if self.factor < 2:
            raise MastError(f"--factor is {self.factor}: give 2 or more")
        if self.most < self.least:
            raise MastError(f"--most is {self.most} epochs, fewer than --least {self.least}")
        for name, allowed, (lowest, highest) in (
            ("layers", "from 1", (1, math.inf)), ("heads", "from 1", (1, math.inf)),
            ("head_dim", "from 4", (4, math.inf)),
            ("lr", "above 0", (_TINY, _HUGE)), ("weight_decay", "above 0", (_TINY, _HUGE)),
            ("dropout", "between 0 and 1", (0, 1)),
        ):  # fmt: skip
            low, high = getattr(self, name)
            flag = f"--{name.replace('_', '-')} is {low} {high}"
            if not (lowest <= low <= highest and lowest <= high <= highest):
                raise MastError(f"{flag}: give values {allowed}")
            if low > high:
                raise MastError(f"{flag}: give the least value first")
        if self.head_dim[0] % 4 or self.head_dim[1] % 4:
            raise MastError(f"--head-dim is {self.head_dim[0]} {self.head_dim[1]}: give multiples of 4")
