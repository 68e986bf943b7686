"""`mast train`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mast_swarm.cli.reading import option, parse, task_in
from mast_swarm.errors import MastError
from mast_swarm.tasks import registry as tasks
from mast_swarm.train.config import TrainConfig, from_run, from_toml, recipe


@dataclass(frozen=True)
class TrainCommand:
    """Learn a policy by imitation. Start from a recipe and change what you like; `mast train --resume DIR` goes on."""

    train: Annotated[TrainConfig, tyro.conf.arg(name="")]
    """What to learn."""
    recipe: str = "best"
    """Where the settings start: best, or another that `mast list` shows for the task."""
    config: Path | None = None
    """A TOML file of settings that differ from the recipe, those of [world] and [policy] in tables of these names."""
    out: Path | None = None
    """Folder of the run; unset: a new one under runs/."""
    resume: Path | None = None
    """Go on with the run in this folder."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    checkpoint_seconds: float = 300.0
    """Least time between two checkpoints."""
    keep_replay: bool = True
    """Keep the replay in checkpoints (the run says how large they are); without it resuming is exact only where the
    expert alone has driven."""


def train_verb(args: list[str]) -> None:
    stopped, settings = option(args, "--resume"), option(args, "--config")
    if stopped is not None and args[0].startswith("-"):
        chosen, rest = from_run(Path(stopped)), args
        task = tasks.task_of(chosen.world)
    else:
        task, rest = task_in(args, "train")
        chosen = recipe(option(rest, "--recipe") or "best", task) if stopped is None else from_run(Path(stopped))
    if tasks.task_of(chosen.world) is not task:
        raise MastError(
            f"the run in {stopped} learns {chosen.world.task}, not {task.name}: `mast train --resume {stopped}`"
        )
    if settings is not None:
        chosen = from_toml(Path(settings), chosen)
    command = parse(TrainCommand, rest, f"mast train {task.name}", TrainCommand(train=chosen))
    if command.resume is not None and command.out is not None:
        raise MastError("--resume names the folder already: leave --out away")
    from mast_swarm.train.run import train

    folder = train(
        command.train,
        command.resume or command.out,
        resume=command.resume is not None,
        device=command.device,
        checkpoint_seconds=command.checkpoint_seconds,
        keep_replay=command.keep_replay,
    )
    if os.environ.get("RANK", "0") == "0":  # of torchrun's processes one speaks
        print(f"run: {folder}\nbest policy: {folder / 'best'}\nlast policy: {folder / 'last'}")
