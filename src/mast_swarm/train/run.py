"""The training that `mast train` runs: one process or torchrun's many, with live progress."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import pick_device
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.trainer import RunOptions, Trainer


def train(
    config: TrainConfig | None,
    out: Path | None,
    *,
    resume: bool = False,
    device: str = "auto",
    checkpoint_seconds: float = 60.0,
    keep_replay: bool = True,
) -> Path:
    """Train to the end, from the start or from where `out` stands; gives the folder of the run."""
    folder = out or Path("runs") / f"train-{datetime.now():%Y%m%d-%H%M%S}"
    if not resume and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MastError(f"{folder} is already used: give another --out, or go on with `mast train --resume {folder}`")
    with _processes(pick_device(device)) as place:
        options = RunOptions(folder, place, checkpoint_seconds, keep_replay)
        try:
            if resume:
                trainer = Trainer.resume(options, config)
            elif config is None:
                raise MastError("nothing to train: give a task and a recipe")
            else:
                trainer = Trainer(config, options)
            with _progress(trainer) as report:
                trainer.run(report)
        except torch.OutOfMemoryError as error:
            raise MastError(
                f"the GPU is out of memory ({str(error).splitlines()[0]}): lower --batch, --environments or --replay"
            ) from None
    return folder


@contextlib.contextmanager
def _processes(device: torch.device) -> Iterator[torch.device]:
    """Join the other processes that torchrun started, if any; gives this process's device."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield device
        return
    if device.type == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        dist.destroy_process_group()


@contextlib.contextmanager
def _progress(trainer: Trainer) -> Iterator[Any]:
    """Shows each epoch on the terminal, and to TensorBoard where it is installed."""
    if trainer.rank != 0:
        yield lambda row: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("epoch {task.completed:.0f}/{task.total:.0f}"),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  success {task.fields[success]}  {task.fields[speed]:,.0f} samples/s"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as bars, _board(trainer.options.out) as board:
        bar = bars.add_task(
            "",
            total=trainer.config.epochs,
            completed=trainer.epoch,
            loss=float("nan"),
            success="-",
            speed=0.0,
        )

        def report(row: dict[str, Any]) -> None:
            shown: dict[str, Any] = {"loss": row["loss"], "speed": row["samples_per_second"]}
            if "success_rate" in row:
                shown["success"] = f"{row['success_rate']:.3f}"
            bars.update(bar, completed=row["epoch"], **shown)
            for name, value in row.items():
                if board is not None and name != "epoch":
                    board.add_scalar(name, value, row["epoch"])

        yield report


@contextlib.contextmanager
def _board(folder: Path) -> Iterator[Any]:
    """A TensorBoard writer, or None where TensorBoard is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        yield None
        return
    with SummaryWriter(str(folder / "tensorboard")) as writer:
        yield writer
