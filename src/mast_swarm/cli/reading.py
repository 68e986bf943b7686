"""What all commands do with the words they are given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypeVar

import tyro

from mast_swarm.cli.verbs import summary
from mast_swarm.errors import MastError
from mast_swarm.tasks import DEFAULT
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Task

Config = TypeVar("Config")
UNSET = tyro.conf.arg(help_behavior_hint="")  # the help says what happens without a value


def parse(kind: type[Config], args: list[str], prog: str, default: Config | None = None) -> Config:
    """A config from the command line."""

    # tyro draws a box around a ValueError of a class; through a function our errors arrive as they are.
    def given(config: Any) -> Any:
        return config

    given.__annotations__["config"] = Annotated[kind, tyro.conf.arg(name="")]
    if default is not None:
        given.__defaults__ = (default,)
    return tyro.cli(given, args=args, prog=prog, description=kind.__doc__, config=(tyro.conf.FlagCreatePairsOff,))


def task_in(args: list[str], verb_name: str) -> tuple[Task, list[str]]:
    """The task that a verb's first word names."""
    if args and args[0] in ("-h", "--help"):
        rows = "\n".join(f"  {name}: mast {verb_name} {name} --help shows its options" for name in tasks.names())
        print(
            f"usage: mast {verb_name} TASK [options]\n\n{summary(verb_name)}\n\nTASK is one of\n{rows}\n"
            "  path/to/file.py:TASK: a task of your own"
        )
        raise SystemExit(0)
    if not args or args[0].startswith("-"):
        raise MastError(f"mast {verb_name} needs a task: mast {verb_name} {DEFAULT} ...")
    return tasks.find(args[0]), args[1:]


def option(args: list[str], name: str) -> str | None:
    """The value given for an option, as `--name value` or `--name=value`; None without one."""
    for number, given in enumerate(args):
        if given == name:
            return args[number + 1] if number + 1 < len(args) else None
        if given.startswith(f"{name}="):
            return given.removeprefix(f"{name}=")
    return None


def make_folder(folder: Path) -> None:
    """Make the folder before anything is measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MastError(f"cannot write to {folder}: {error.strerror}; give another --out") from None
