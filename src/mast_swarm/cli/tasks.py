"""`mast list` and `check`: the tasks there are, and one of your own."""

from __future__ import annotations

import inspect
import textwrap
from dataclasses import dataclass, fields
from typing import Annotated, Literal

import tyro

from mast_swarm.cli.reading import UNSET, parse
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Task, imported
from mast_swarm.train.config import recipes


@dataclass(frozen=True)
class ListConfig:
    """What there is to name on the command line: tasks, how they start, controllers, shipped policies, recipes."""

    tasks: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which tasks, or path/to/file.py:TASK; none: all that are installed."""


def list_verb(args: list[str]) -> None:
    config = parse(ListConfig, args, "mast list")
    from mast_swarm import zoo
    from mast_swarm.evaluate.cards import opening

    most = 1000 if config.tasks else 130  # characters of a sentence: of a task that is asked for all
    for task in [tasks.find(name) for name in config.tasks or tasks.names()]:
        shipped = [name for name in zoo.policies() if name.startswith(f"{task.name}/")]
        families = " (K: a number)" if task.families else ""
        sections: dict[str, list[tuple[str, str]]] = {
            f"controllers{families}": [(name, _about(task, name, most)) for name in task.controller_names],
            "trained policies": [(name.split("/", 1)[1], _sentence(opening(name), most)) for name in shipped],
        }
        starts = task.part("starts")
        if starts is not None:
            sections[starts.plural] = [(found.usage, found.summary) for found in starts]
        sections["recipes for training"] = [(name, "") for name in recipes(task)]
        print(f"task {task.name}")
        for title, rows in sections.items():
            if rows:
                print(f"  {title}")
            width = max((len(name) for name, _ in rows), default=0)
            for name, summary in rows:
                print(f"    {name:<{max(12, width)}} {summary}".rstrip())
    if not config.tasks:
        for name, why in tasks.broken().items():
            print(f"task {name} of another package cannot be used: {why}")


def _about(task: Task, controller: str, most: int) -> str:
    """The first sentence of a controller's docstring."""
    return _sentence(inspect.getdoc(imported(task.controllers[controller])) or "", most)


def _sentence(text: str, most: int) -> str:
    """The first sentence of a text, in one line and cut where it has more characters."""
    if not text:
        return ""
    sentence = " ".join(text.split()).split(". ")[0].rstrip(".") + "."
    return textwrap.shorten(sentence, most, placeholder=" ...")


@dataclass(frozen=True)
class CheckConfig:
    """Check a world of your own: seeds, batches, shapes, dtypes, devices. Says what to mend."""

    task: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="TASK")]]
    """path/to/file.py:TASK, or the name of an installed task."""
    agents: Annotated[int | None, tyro.conf.DisallowNone, UNSET] = None
    """How many robots; unset: as many as its settings have. What breaks for 1 or 2 shows with these."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run besides the CPU; auto: a GPU too where there is one."""


def check_verb(args: list[str]) -> None:
    config = parse(CheckConfig, args, "mast check")
    from mast_swarm.cli.train import TrainCommand
    from mast_swarm.swarm.config import SwarmConfig
    from mast_swarm.testing import check_task

    task = tasks.find(config.task)
    for command, kind in (("mast train", TrainCommand), ("mast swarm", SwarmConfig)):  # `testing` knows the others
        task.Config().check_apart(command, [field.name for field in fields(kind)])
    for line in check_task(task, config.device, config.agents):
        print(line)
    print(f"{config.task}: all checks passed")
