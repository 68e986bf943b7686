"""What of a training run its checkpoint holds, and how a run takes it up again. See checkpoint.py for the file."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from mast_swarm.errors import MastError
from mast_swarm.train import checkpoint, memory
from mast_swarm.train.config import TrainConfig, from_plain, from_run, plain
from mast_swarm.train.folder import METRICS
from mast_swarm.train.learner import under

if TYPE_CHECKING:
    from mast_swarm.train.trainer import Trainer


@dataclasses.dataclass
class Within:
    """How far an epoch has come."""

    step: int = 0  # steps that are done
    updates: int = 0  # of the whole run, when the epoch began
    pushes: int = 0  # to the replay
    seconds: float = 0.0  # that it had taken when this was written
    row: dict[str, Any] | None = None  # its numbers, once its steps are done; its validation may not be


def write(run: Trainer, more: dict[str, Any]) -> bool:
    """Write the checkpoint, which says `more` too. Process 0 writes last: its file makes those of the others count, or
    they never do.

    Midway through rollouts by an expert that keeps what no file can hold, the last checkpoint stays as it is: False.
    """
    within = dataclasses.asdict(run.within)
    if within["step"] or within["row"]:
        within["seconds"] = time.monotonic() - run.began
    about = {
        "config": plain(run.config),
        "processes": run.processes.count,
        "epoch": run.epoch,
        "best": run.best,
        "updates": run.learner.done,
        "within": within,
        **more,
    }
    tensors = {f"learner.{k}": v for k, v in run.learner.tensors().items()}
    tensors |= {f"worlds.{k}": v for k, v in run.collector.tensors(run.midway).items()}
    if run.within.step:
        tensors["epoch.loss_sum"] = run.learner.loss_sum
    if run.midway:
        try:
            about["expert"], kept = run.collector.teacher.kept()
            tensors |= {f"expert.{k}": v for k, v in kept.items()}
        except memory.Unkept as what:
            run.unkept = str(what)
    if run.processes.agreed(run.midway and "expert" not in about):
        return False
    if run.keeps_replay:
        tensors |= {f"replay.{k}": v for k, v in run.replay.tensors().items()}
    out, name = run.options.out, _name(run)
    if not run.processes.first:
        checkpoint.write(out, tensors, about, name)
    run.processes.meet()
    if run.processes.first:
        checkpoint.write(out, tensors, about)
    run.processes.meet()
    if not run.processes.first:
        for path in out.glob(f"checkpoint-{run.processes.rank}-*.safetensors"):
            if path.name != name:
                path.unlink()
    return True


def _name(run: Trainer) -> str:
    """The checkpoint of a process: those other than the first have worlds and a replay of their own."""
    step = f"-{run.within.step}" if run.within.step else ""
    return checkpoint.FILE if run.processes.first else f"checkpoint-{run.processes.rank}-{run.epoch}{step}.safetensors"


def size(run: Trainer) -> tuple[int, int]:
    """About how large one process's checkpoint gets: with the replay, and without."""
    weights = sum(parameter.nbytes for parameter in run.learner.policy.parameters())
    copies = 3 if run.learner.average is None else 4  # the policy, two moments of AdamW, the averaged policy
    rest = copies * weights + sum(value.nbytes for value in run.collector.tensors().values())
    return rest + run.replay.nbytes, rest


def found(out: Path, wanted: TrainConfig | None = None) -> tuple[TrainConfig, dict[str, Any] | None]:
    """The settings of the run in a folder, and what its checkpoint says; None: it was killed before its first one.

    wanted: its settings, of which `epochs` may differ.
    """
    about = checkpoint.about(out) if (out / checkpoint.FILE).exists() else None
    if about is None and (out / METRICS).exists() and (out / METRICS).stat().st_size:
        raise MastError(
            f"{out} has {METRICS} but no {checkpoint.FILE}, so there is nothing to go on from: put the checkpoint "
            "back, or start again with another --out"
        )
    config = from_run(out) if about is None else from_plain(about["config"])
    if wanted is not None:
        config = dataclasses.replace(config, epochs=wanted.epochs)
        if wanted != config:
            changed = checkpoint.differences(plain(config), plain(wanted))
            raise MastError(f"cannot resume {out} with other settings: {'; '.join(changed)}")
    return config, about


def restore(run: Trainer, about: dict[str, Any]) -> None:
    """Take up what `write` wrote."""
    out, processes = run.options.out, run.processes
    try:
        if processes.count != about["processes"]:
            raise MastError(
                f"{out} was trained by {about['processes']} processes and there are {processes.count}: worlds and "
                f"replay are shared out among them; resume with `torchrun --nproc-per-node {about['processes']}`"
            )
        run.epoch, run.best = about["epoch"], about["best"]
        run.within = Within(**about.get("within", {}))
        begun = run.epoch + (run.within.step > 0)
        if begun > run.config.epochs:
            raise MastError(f"--epochs is {run.config.epochs}, but {out} is in epoch {begun}: give that or more")
        name = _name(run)
        tensors, own = checkpoint.read(out, name), about if processes.first else checkpoint.about(out, name)
        run.learner.restore(under(tensors, "learner."), about["updates"])
        if run.within.step:
            run.learner.loss_sum.copy_(tensors["epoch.loss_sum"])
        replay = under(tensors, "replay.")
        if replay:
            run.replay.restore(replay)
            run.empty = int(run.replay.pushed) == 0  # as in the checkpoint at the start
        elif run.config.collect and run.midway:  # the replay is gathered anew, with it this epoch
            run.within = Within()
        run.collector.restore(under(tensors, "worlds."), run.epoch, run.midway)
        if run.midway:
            run.collector.teacher.restore(own["expert"], under(tensors, "expert."))
    except torch.OutOfMemoryError:
        raise
    except (KeyError, RuntimeError) as error:  # something is missing, or a tensor of another shape
        raise MastError(f"the checkpoint in {out} does not fit its own settings: {error}") from None
