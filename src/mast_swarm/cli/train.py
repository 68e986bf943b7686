"""`mast train`."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mast_swarm.cli.reading import completed, option, own_names, parse, task_in
from mast_swarm.errors import MastError
from mast_swarm.tasks import registry as tasks
from mast_swarm.train.config import TOPICS, TrainConfig, from_run, from_toml, recipe


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
    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints; there is one at the end of each epoch too where that takes no time."""
    keep_replay: bool = True
    """Keep the replay in checkpoints (the run says how large they are); without it resuming is exact only where the
    expert alone has driven."""

    def __post_init__(self) -> None:
        self.train.world.check_apart("mast train", (*vars(self), *vars(self.train.policy)))


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
    topics = {
        "the run": own_names(TrainCommand, "train"),
        **TOPICS,
        "the world": own_names(chosen.world),
        "the policy": own_names(chosen.policy),
    }
    command = parse(TrainCommand, rest, f"mast train {task.name}", TrainCommand(train=chosen), topics)
    if command.resume is None:
        command = replace(command, train=completed(command.train, rest))
    if command.resume is not None and command.out is not None:
        raise MastError("--resume names the folder already: leave --out away")
    from mast_swarm.train.run import train
    from mast_swarm.train.trainer import Stopped

    speaks = os.environ.get("RANK", "0") == "0"  # of torchrun's processes one does
    try:
        folder = train(
            command.train,
            command.resume or command.out,
            resume=command.resume is not None,
            device=command.device,
            checkpoint_seconds=command.checkpoint_seconds,
            keep_replay=command.keep_replay,
        )
    except Stopped as end:
        if speaks:
            print(f"mast: {end}", file=sys.stderr)
        raise SystemExit(128 + end.signal) from None
    if speaks:
        print(f"run: {folder}\nbest policy: {folder / 'best'}\nlast policy: {folder / 'last'}")
