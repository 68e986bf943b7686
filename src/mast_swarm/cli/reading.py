"""What all commands do with the words they are given."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable, Mapping
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from dataclasses import fields, replace
from typing import Annotated, Any, TypeVar

import tyro

from mast_swarm.cli.verbs import summary
from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import defaults
from mast_swarm.tasks import DEFAULT
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Task

Config = TypeVar("Config")
UNSET = tyro.conf.arg(help_behavior_hint="")  # the help says what happens without a value


Topics = Mapping[str, Iterable[str]]  # of a help text: title -> names of settings


def parse(
    kind: type[Config], args: list[str], prog: str, default: Config | None = None, topics: Topics | None = None
) -> Config:
    """A config from the command line. topics: how its help is grouped; settings of none come first."""

    # tyro draws a box around a ValueError of a class; through a function our errors arrive as they are.
    def given(config: Any) -> Any:
        return config

    given.__annotations__["config"] = Annotated[kind, tyro.conf.arg(name="")]
    if default is not None:
        given.__defaults__ = (default,)
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"  # decides whether there are letters for boxes
    shown = io.TextIOWrapper(io.BytesIO(), encoding=encoding.lower())
    asks = topics is not None and any(word in ("-h", "--help") for word in args)
    wrong = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    try:
        with redirect_stdout(shown) if asks else nullcontext(), redirect_stderr(wrong):
            return tyro.cli(
                given, args=args, prog=prog, description=kind.__doc__, config=(tyro.conf.FlagCreatePairsOff,)
            )
    except SystemExit as end:
        wrong.seek(0)
        if end.code:
            raise MastError(in_one_line(wrong.read(), prog)) from None
        raise
    finally:
        if asks:
            shown.seek(0)
            print(grouped(shown.read(), topics or {}), end="")


def in_one_line(box: str, prog: str) -> str:
    """What tyro says of bad input, of a box with a title, parts between lines, and a hint at the help."""
    # Parts are between lines of dashes; without letters for boxes the title is a part too, and the first.
    parts: list[list[str]] = [[]]
    for line in (line.strip("│ ") for line in box.splitlines() if not line.startswith(("╭", "╰"))):
        if line and set(line) <= set("─-"):
            parts.append([])
        else:
            parts[-1].append(line)
    inside = parts[0] if "╭" in box else parts[1] if len(parts) > 1 else box.split()
    said = " ".join(" ".join(inside).split())
    hints = [line for part in parts if "Perhaps you meant:" in part for line in part]
    meant = [line.split()[0] for line in hints if line.startswith("--")]
    hint = f"; did you mean {' or '.join(meant)}?" if meant else ";"
    return f"{said[:1].lower()}{said[1:]}".rstrip(".") + f"{hint} `{prog} --help` shows all"


def completed(config: Any, args: list[str]) -> Any:
    """A config whose world took what follows from files, but for what the command line gives."""
    return replace(config, world=config.world.completed(given_in(args, own_names(config.world))))


def given_in(args: list[str], names: Iterable[str]) -> list[str]:
    """Those of these settings that the command line gives."""
    return [name for name in names if option(args, f"--{name.replace('_', '-')}") is not None]


def own_names(config: Any, *without: str) -> list[str]:
    """The settings that a config itself has."""
    return [field.name for field in fields(config) if field.name not in without]


def grouped(text: str, topics: Topics) -> str:
    """A help text whose options, in one box (or under one heading, without letters for boxes), are in one for
    each topic, in the order of `topics`."""
    lines = text.splitlines()
    begin = next((n for n, line in enumerate(lines) if re.match("╭─ options| options *$", line)), None)
    if begin is None:
        return text
    boxed, width = lines[begin].startswith("╭"), len(lines[begin])
    end = next((n for n, line in enumerate(lines) if n > begin and line.startswith("╰")), len(lines))
    places = {name.replace("_", "-"): title for title in topics for name in topics[title]}
    found: dict[str, list[str]] = {title: [] for title in ("options", *topics)}
    title = "options"
    for line in lines[begin + (1 if boxed else 2) : end]:
        option = re.match(r"(?:│ |  )(?:-\w, )?--(?:no-)?([\w-]+)", line)
        if option:
            title = places.get(option[1], "options")
        found[title].append(line)
    made = lines[:begin]
    for title, inside in found.items():
        if inside and boxed:
            made += [f"╭─ {title} ".ljust(width - 1, "─") + "╮", *inside, "╰" + "─" * (width - 2) + "╯"]
        elif inside:
            made += [f" {title}", lines[begin + 1], *inside]
    return "\n".join([*made, *lines[end + 1 :]]) + "\n"


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
    task = tasks.find(args[0])
    defaults(task)  # refuses settings that a command could not take: before anything is trained
    return task, args[1:]


def option(args: list[str], name: str) -> str | None:
    """The value given for an option, as `--name value` or `--name=value`; None without one."""
    for number, given in enumerate(args):
        if given == name:
            return args[number + 1] if number + 1 < len(args) else None
        if given.startswith(f"{name}="):
            return given.removeprefix(f"{name}=")
    return None
