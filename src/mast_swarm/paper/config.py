"""Settings of `mast reproduce`. No torch here: the command line reads these for its help."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mast_swarm.errors import MastError

_UNSET = tyro.conf.arg(help_behavior_hint="")


@dataclass(frozen=True)
class ReproduceConfig:
    """Run the paper's experiments again: what is missing is run, what is there is kept. `--list` shows them."""

    names: Annotated[
        tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="[NAME ...]", help_behavior_hint="")
    ] = ()
    """Which experiments; --list shows them."""
    all: bool = False
    """All of them."""
    list: bool = False
    """Show the experiments and how much of each is there; run nothing."""
    report: bool = False
    """Write the page with a row for every claim of the paper, from all experiments, as far as they are there."""
    kept: bool = False
    """Run nothing: tables, figures and the report come from what is there."""
    quick: bool = False
    """Everything at a very small size, to see that it works: the numbers say nothing."""
    only: Annotated[tuple[str, ...], _UNSET] = ()
    """Run only the missing cells whose name (see --list of an experiment) holds one of these words; unset: all."""
    paired: bool = False
    """Run cells again of which only means are known, because they were taken over from a summary: differences between
    cells with every episode are paired over the same start states. What they need and is not at hand is trained
    first."""
    adopt: Annotated[tuple[Path, ...], _UNSET] = ()
    """Take over what evaluations have measured elsewhere: folders of `mast evaluate`, or their summary.json."""
    out: Annotated[Path | None, _UNSET, tyro.conf.DisallowNone] = None
    """Folder for cells, tables, figures and the report; unset: docs/results of the clone from which the package is
    installed or in which the command is given, else runs/reproduce (with --quick: runs/reproduce-quick)."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""
    jobs: Annotated[int | None, _UNSET, tyro.conf.DisallowNone] = None
    """Cells at a time, each in a process of its own; unset: 1 on a GPU, else one per processor core."""
    together: Annotated[int | None, _UNSET, tyro.conf.DisallowNone] = None
    """Policies that are trained at once where they differ in their encodings and windows alone; unset: 25 on a GPU,
    1 on a CPU and with --ray."""
    ray: Annotated[str | None, _UNSET, tyro.conf.DisallowNone] = None
    """HOST:PORT of a Ray cluster on which cells run, or auto; unset: on this machine."""
    gpus: float = 0.0
    """GPUs (or a share of one) that a cell asks of the Ray cluster."""
    seconds: Annotated[float | None, _UNSET, tyro.conf.DisallowNone] = None
    """Begin no further cell after so many seconds; the same command goes on later."""

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise MastError(f"--jobs is {self.jobs}: give 1 or more")
        if self.together is not None and self.together < 1:
            raise MastError(f"--together is {self.together}: give 1 or more")
        if self.gpus < 0:
            raise MastError(f"--gpus is {self.gpus}: give 0 or more")
        if self.gpus and self.ray is None:
            raise MastError(f"--gpus {self.gpus:g} is what a cell asks of a Ray cluster: give --ray, or leave it away")
        if self.seconds is not None and self.seconds <= 0:
            raise MastError(f"--seconds is {self.seconds}: give a positive number")
        if self.paired and self.kept:
            raise MastError("--paired runs cells again, and --kept runs nothing: give one of them")
        if self.all and self.names:
            raise MastError("--all runs every experiment: leave the names away, or --all")
