"""The training that `mast train` runs: one process or torchrun's many, with live progress."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numba
import torch
import torch.distributed as dist

from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import pick_device
from mast_swarm.files import new_folder
from mast_swarm.tasks import registry as tasks
from mast_swarm.train.config import TrainConfig, changed
from mast_swarm.train.config import recipe as find_recipe
from mast_swarm.train.trainer import RunOptions, Trainer


def train(
    config: TrainConfig | str | None,
    out: Path | str | None = None,
    *,
    recipe: str = "best",
    resume: bool = False,
    device: str = "auto",
    checkpoint_seconds: float = 60.0,
    keep_replay: bool = True,
    **settings: Any,
) -> Path:
    """Train to the end, from the start or from where `out` stands; gives the folder of the run.

    config: what to learn, or the name of a task: then a recipe of it, with `settings` in place of some of its own.
    """
    wanted: TrainConfig | None
    if isinstance(config, str):
        wanted = changed(find_recipe(recipe, tasks.find(config)), settings)
    elif settings:
        raise MastError(f"{', '.join(settings)}: settings go with the name of a task; a TrainConfig has all of them")
    else:
        wanted = config
    with _processes(pick_device(device)) as place:
        folder = _agreed_folder(None if out is None else Path(out), resume)
        options = RunOptions(folder, place, checkpoint_seconds, keep_replay)
        try:
            if resume:
                trainer = Trainer.resume(options, wanted)
            elif wanted is None:
                raise MastError("nothing to train: give a task and a recipe")
            else:
                trainer = Trainer(wanted, options)
            with _progress(trainer) as report:
                trainer.run(report)
        except torch.OutOfMemoryError as error:
            raise MastError(
                f"the GPU is out of memory ({str(error).splitlines()[0]}): lower --batch, --environments or --replay"
            ) from None
        except OSError as error:
            if isinstance(error, BrokenPipeError):  # the terminal is gone, not the folder
                raise
            raise MastError(f"cannot write to {folder}: {error}") from None
    return folder


@contextlib.contextmanager
def _processes(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes that torchrun started, if any; gives this process's device."""
    here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    _share_cores(here)
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        if here > torch.cuda.device_count():
            raise MastError(
                f"{here} processes for {torch.cuda.device_count()} GPUs: lower --nproc-per-node of torchrun to that"
            )
        device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


def _share_cores(processes: int) -> None:
    """Give numba (the expert) this process's share of the cores, and leave torch the threads it has.

    Both may use one OpenMP, where numba's threads, once started, would set torch's number too: the weights of a run
    would then depend on what ran first. So they are started here, and torch is told its number again.
    """
    threads = torch.get_num_threads()
    numba.set_num_threads(max(1, numba.get_num_threads() // processes))
    torch.set_num_threads(threads)


def _agreed_folder(out: Path | None, resume: bool) -> Path:
    """The folder of the run: process 0 chooses and looks whether it is free, before any process writes to it."""
    told: list[Any] = [None, None]  # the folder, what is wrong with it
    if not dist.is_initialized() or dist.get_rank() == 0:
        told[0] = folder = out or new_folder(Path("runs") / f"train-{datetime.now():%Y%m%d-%H%M%S}")
        try:
            if not resume and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
                told[1] = f"{folder} is already used: give another --out, or go on with `mast train --resume {folder}`"
        except OSError as error:
            told[1] = f"cannot look into {folder}: {error.strerror}"
    if dist.is_initialized():
        dist.broadcast_object_list(told, 0)
    if told[1] is not None:
        raise MastError(told[1])
    return told[0]


@contextlib.contextmanager
def _progress(trainer: Trainer) -> Iterator[Any]:
    """Shows each epoch on the terminal, and to TensorBoard where it is installed."""
    if trainer.rank != 0:
        yield lambda row: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    headline = trainer.metric.name
    short = headline.split("_")[0]
    columns = (
        TextColumn("epoch {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(bar_width=10),
        TextColumn("loss {task.fields[loss]}  " + short + " {task.fields[headline]}"),
        TextColumn(" {task.fields[speed]:,.0f} samples/s"),
        TimeRemainingColumn(),
        TextColumn("left"),
    )
    with Progress(*columns, speed_estimate_period=600.0) as bars, contextlib.ExitStack() as at_end:
        whole, less = (f"{size / 1e6:,.0f} MB" for size in trainer.checkpoint_bytes())
        kept = f"about {whole} with the replay" if trainer.options.keep_replay else f"{less} (with the replay {whole})"
        bars.console.print(f"run: {trainer.options.out}; checkpoint: {kept}", soft_wrap=True)
        bar = bars.add_task("", total=trainer.config.epochs, completed=trainer.epoch, loss="-", headline="-", speed=0.0)

        first = trainer.epoch + 1

        @cache  # opened with the first epoch: by then the folder is known to be writable
        def board() -> Any:
            return at_end.enter_context(_board(trainer.options.out, first))

        def report(row: dict[str, Any]) -> None:
            shown: dict[str, Any] = {"speed": row["samples_per_second"]}
            if "loss" in row:
                shown["loss"] = f"{row['loss']:.4f}"
            if headline in row:
                shown["headline"] = f"{row[headline]:.3f}"
            bars.update(bar, completed=row["epoch"], **shown)
            for name, value in row.items():
                if board() is not None and name != "epoch":
                    board().add_scalar(name, value, row["epoch"])

        yield report


@contextlib.contextmanager
def _board(folder: Path, epoch: int) -> Iterator[Any]:
    """A TensorBoard writer for a run that goes on at an epoch, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    # Epochs that a killed run showed after its last checkpoint are taken back.
    with SummaryWriter(str(folder / "tensorboard"), purge_step=epoch) as writer:
        yield writer
