"""The training that `mast train` runs: one process or torchrun's many, with live progress."""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import numba
import torch
import torch.distributed as dist
from torch.utils.flop_counter import FlopCounterMode

from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import pick_device
from mast_swarm.files import LOCK, new_folder, only_writer
from mast_swarm.model.learned import Learned
from mast_swarm.tasks import registry as tasks
from mast_swarm.train import checkpoint
from mast_swarm.train.config import TrainConfig, changed, from_run, in_tables, recipes
from mast_swarm.train.config import recipe as find_recipe
from mast_swarm.train.family import FamilyTrainer
from mast_swarm.train.trainer import RunOptions, Trainer

AGAIN = 1.0  # seconds after which another signal means: at once. torchrun passes on what a terminal sends to all


def train(
    config: TrainConfig | str | None,
    out: Path | str | None = None,
    *,
    recipe: str = "best",
    resume: bool = False,
    device: str = "auto",
    checkpoint_seconds: float = 60.0,
    keep_replay: bool = True,
    largest_replay: float = math.inf,
    **settings: Any,
) -> Path:
    """Train to the end, from the start or from where `out` stands; gives the folder of the run.

    config: what to learn, or the name of a task: then a recipe of it, with `settings` in place of some of its own, as
    epochs=20, agents=5, layers=2. Those of the world and the policy may also come as `world` and `policy`, in dicts or
    as a NavigationConfig(...). `mast train TASK --help` lists them all. To resume, None; `epochs` may then be another.

    Ctrl-C and SIGTERM end the step, write a checkpoint and raise `mast_swarm.train.trainer.Stopped`; a second one stops
    at once. checkpoint_seconds: longest time between two checkpoints. largest_replay: bytes above which they leave the
    replay out.
    """
    wanted: TrainConfig | None
    if isinstance(config, str):
        wanted = _begun(find_recipe(recipe, tasks.find(config)), settings)
    elif settings and config is None and resume and out is not None:
        wanted = _with(from_run(Path(out)), settings)
    elif settings:
        raise MastError(f"{', '.join(settings)}: settings go with the name of a task; a TrainConfig has all of them")
    else:
        wanted = config
    if wanted is None and not resume:
        raise MastError("nothing to train: give a task and a recipe")
    with _processes(pick_device(device)) as place, contextlib.ExitStack() as at_end:
        folder = _agreed_folder(None if out is None else Path(out), resume, at_end)
        options = RunOptions(folder, place, checkpoint_seconds, keep_replay, largest_replay)
        try:
            with _plain_errors(folder, "lower --batch, --environments or --replay"):
                if resume:
                    trainer = Trainer.resume(options, wanted)
                else:
                    assert wanted is not None  # checked above
                    trainer = Trainer(wanted, options)
                with _progress(trainer) as (report, log), _signals(trainer):
                    trainer.run(report, log)
        except KeyboardInterrupt as stopped:
            if not str(stopped) and not (folder / "config.json").exists():
                raise type(stopped)("interrupted before the run began; nothing was written") from None
            raise
    return folder


def train_family(configs: Sequence[TrainConfig], out: Path, device: str = "auto") -> bool:
    """Train many policies at once in a folder, or go on there, to the end; whether it went on. See train/family.py."""
    options = RunOptions(out, pick_device(device), checkpoint_seconds=180.0)  # they are large
    _share_cores(1)
    with only_writer(out), _plain_errors(out, "lower --together"):
        trainer = FamilyTrainer.begun(configs, options)
        begun = trainer.finished > 0 or trainer.within.step > 0
        with _lines(trainer) as report, _signals(trainer):
            trainer.run(report)
    return begun


@contextlib.contextmanager
def _plain_errors(folder: Path, less: str) -> Iterator[None]:
    """What the machine refuses in one line. less: what to do where a GPU has too little memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MastError(f"the GPU is out of memory ({str(error).splitlines()[0]}): {less}") from None
    except OSError as error:
        if isinstance(error, BrokenPipeError):  # the terminal is gone, not the folder
            raise
        raise MastError(f"cannot write to {folder}: {error}") from None


def _with(base: TrainConfig, settings: dict[str, Any]) -> TrainConfig:
    return changed(base, in_tables(base, settings))


def _begun(base: TrainConfig, settings: dict[str, Any]) -> TrainConfig:
    """As `_with`, for a new run: what follows from files is taken from them, unless the world came whole."""
    made, world = _with(base, settings), settings.get("world", {})
    if not isinstance(world, Mapping):
        return made
    return replace(made, world=made.world.completed((*settings, *world)))


@contextlib.contextmanager
def _signals(trainer: Trainer) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM lets the run end its step and write a checkpoint; the next one stops it at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first = 0.0

    def asked(number: int, frame: Any) -> None:
        nonlocal first
        if not trainer.stopping:
            trainer.stopping, first = number, time.monotonic()
            if trainer.processes.first:  # not print: the signal may have come in the middle of one
                os.write(2, b"mast: ending the step, then writing a checkpoint; once more stops at once\n")
        elif time.monotonic() - first > AGAIN:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, asked) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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


def _agreed_folder(out: Path | None, resume: bool, at_end: contextlib.ExitStack) -> Path:
    """The folder of the run: process 0 chooses it, looks whether it is free, and keeps other runs out of it."""
    told: list[Any] = [None, None]  # the folder, what is wrong with it
    if not dist.is_initialized() or dist.get_rank() == 0:
        told[0] = folder = out or new_folder(Path("runs") / f"train-{datetime.now():%Y%m%d-%H%M%S}")
        try:
            used = folder.exists() and (not folder.is_dir() or any(path.name != LOCK for path in folder.iterdir()))
            if not resume and used:
                told[1] = f"{folder} is already used: give another --out, or go on with `mast train --resume {folder}`"
            elif resume and not (folder / "config.json").exists():
                from_run(folder)  # says that there is no run
            else:
                at_end.enter_context(only_writer(folder, stays=out is not None and folder.exists()))
        except MastError as error:
            told[1] = str(error)
        except OSError as error:
            told[1] = f"cannot look into {folder}: {error.strerror}"
    if dist.is_initialized():
        dist.broadcast_object_list(told, 0)
    if told[1] is not None:
        raise MastError(told[1])
    return told[0]


Told = Callable[[dict[str, Any]], None]


@contextlib.contextmanager
def _progress(trainer: Trainer) -> Iterator[tuple[Told, Told]]:
    """Shows each epoch: a bar on a terminal, a line in a file or a pipe. And logs it to TensorBoard where that is
    installed."""
    if not trainer.processes.first:
        yield (lambda row: None), (lambda row: None)
        return
    from rich.console import Console

    console, options = Console(), trainer.options
    whole, less = (f"{size / 1e6:,.0f} MB" for size in trainer.checkpoint_bytes())
    kept = f"about {whole} with the replay" if trainer.keeps_replay else f"{less} (with the replay {whole})"
    told = [f"run: {options.out}; checkpoint: {kept}"]
    if (options.out / "config.json").exists():
        there = (options.out / checkpoint.FILE).exists()
        done, last = trainer.finished, trainer.config.epochs
        told.append(
            (f"goes on after epoch {done} of {last}" if done < last else f"is finished; --epochs {2 * last} goes on")
            if there
            else "it was stopped before its first checkpoint: begins at epoch 1"
        )
    elif not _has_board():
        told.append("TensorBoard is not installed (pip install 'mast-swarm[tensorboard]'): see metrics.jsonl")
    told += _long(trainer)
    console.print("\n".join(told), soft_wrap=True, highlight=False, markup=False)
    with contextlib.ExitStack() as at_end:
        first = trainer.finished + 1

        @cache  # opened with the first epoch: by then the folder is known to be writable
        def board() -> Any:
            return at_end.enter_context(_board(options.out, first))

        def log(row: dict[str, Any]) -> None:
            if board() is not None:
                for name, value in row.items():
                    if name != "epoch":
                        board().add_scalar(name, value, row["epoch"])
                board().flush()  # what waits would be lost in a kill

        shown = _bar(trainer, console) if console.is_terminal else _lines(trainer)
        yield at_end.enter_context(shown), log


_CORE = 5e10  # operations per second of a processor core, roughly
_PATIENCE = 3 * 3600.0  # s


def _long(trainer: Trainer) -> list[str]:
    """What to know of a run whose arithmetic alone takes hours on a CPU."""
    config = trainer.config
    if trainer.options.device.type != "cpu":
        return []
    last, first = config.epochs, trainer.finished
    learned = config.batch * config.updates_an_epoch() * (last - max(first, config.collect))
    driven = config.environments * config.steps * (last - first)
    samples = (6 * max(0, learned) + 2 * driven) * config.world.agents  # forward and backward; a rollout forward alone
    hours = samples * _products(trainer.learner.policy) / (_CORE * torch.get_num_threads()) / 3600
    if hours * 3600 < _PATIENCE:
        return []
    about = f"about {hours / 24:.0f} days" if hours > 48 else f"about {hours:.0f} hours"
    hint = "; the recipe tiny is made for a CPU" if "tiny" in recipes(tasks.find(config.world.task)) else ""
    return [f"on this CPU it takes {about} or more, on a GPU minutes{hint}"]


def _products(policy: Learned) -> float:
    """Multiplications and additions of a forward pass for one robot: one per weight, but of images one per pixel."""
    seeing = copy.deepcopy(policy.perception).eval()  # of which no statistics are to change
    seen = torch.zeros(1, 1, *policy.config.observation_shape)
    with torch.no_grad(), FlopCounterMode(display=False) as counted:
        seeing(seen)
    rest = set(policy.parameters()) - set(policy.perception.parameters())
    return counted.get_total_flops() / 2 + sum(part.numel() for part in rest)


@contextlib.contextmanager
def _lines(trainer: Trainer) -> Iterator[Told]:
    """Prints a line for each epoch."""
    headline, last = trainer.metric.name, trainer.config.epochs

    def report(row: dict[str, Any]) -> None:
        parts = [f"epoch {row['epoch']}/{last}"]
        parts += [f"{name} {row[name]:.4f}" for name in ("loss", headline) if name in row]
        parts += [f"{row['samples_per_second']:,.0f} samples/s", f"{row['seconds']:.1f} s"]
        print("  ".join(parts), flush=True)

    yield report


@contextlib.contextmanager
def _bar(trainer: Trainer, console: Any) -> Iterator[Told]:
    """Shows a bar that moves with each epoch."""
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
    with Progress(*columns, console=console, speed_estimate_period=600.0) as bars:
        bar = bars.add_task(
            "", total=trainer.config.epochs, completed=trainer.finished, loss="-", headline="-", speed=0.0
        )

        def report(row: dict[str, Any]) -> None:
            shown: dict[str, Any] = {"speed": row["samples_per_second"]}
            if "loss" in row:
                shown["loss"] = f"{row['loss']:.4f}"
            if headline in row:
                shown["headline"] = f"{row[headline]:.3f}"
            bars.update(bar, completed=row["epoch"], **shown)

        yield report


def _has_board() -> bool:
    return importlib.util.find_spec("tensorboard") is not None


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
