"""`mast completion`: what a shell asks while somebody types."""

from __future__ import annotations

import contextlib
import io
import re
from dataclasses import dataclass
from typing import Annotated, Literal

import tyro

from mast_swarm.cli.reading import option, parse
from mast_swarm.cli.verbs import VERBS
from mast_swarm.errors import MastError
from mast_swarm.tasks import DEFAULT
from mast_swarm.tasks import registry as tasks

_BASH = """_mast() {
  local word=${COMP_WORDS[COMP_CWORD]}
  COMPREPLY=($(compgen -W "$(mast completion words "${COMP_WORDS[@]:1:COMP_CWORD-1}" 2>/dev/null)" -- "$word"))
}
complete -o default -F _mast mast"""
_SCRIPTS = {"bash": _BASH, "zsh": f"autoload -U +X bashcompinit && bashcompinit\n{_BASH}"}
_OF_TASKS = ("evaluate", "train")  # whose first word is a task


@dataclass(frozen=True)
class CompletionConfig:
    """Print a script that lets a shell complete commands, tasks, options and names: eval "$(mast completion bash)"."""

    shell: tyro.conf.Positional[Annotated[Literal["bash", "zsh"], tyro.conf.arg(metavar="bash|zsh")]]
    """Which shell."""


def completion(args: list[str]) -> None:
    if args[:1] == ["words"]:
        print("\n".join(words(args[1:])))
        return
    print(_SCRIPTS[parse(CompletionConfig, args, "mast completion").shell])


def words(typed: list[str]) -> list[str]:
    """What may come after the words that were typed."""
    if not typed:
        return [*VERBS, "--help", "--version"]
    verb, last = typed[0], typed[-1]
    named = typed[1] if verb in _OF_TASKS and len(typed) > 1 else option(typed, "--task") or DEFAULT
    try:
        if (verb in _OF_TASKS and len(typed) == 1) or last == "--task":
            return tasks.names()
        if last in ("--policy", "--from", "--recipe", "--expert"):
            return _names(tasks.find(named), last)
    except MastError:
        return []
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), contextlib.suppress(SystemExit, MastError):
        if verb in VERBS:
            from mast_swarm.cli import run

            run([verb, *typed[1:2], "--help"] if verb in (*_OF_TASKS, "bench", "team") else [verb, "--help"])
    return re.findall(r"^(?:│ |  )(?:-\w, )?(--[a-z][\w-]*)", shown.getvalue(), re.M)


def _names(task: tasks.Task, wanted: str) -> list[str]:
    """Names of a task's controllers, policies or recipes."""
    from mast_swarm.train.config import recipes

    shipped = [name.removeprefix(f"{task.name}/") for name in tasks.policies() if name.startswith(f"{task.name}/")]
    found = {
        "--policy": [*task.controller_names, *shipped],
        "--from": shipped,
        "--recipe": recipes(task),
        "--expert": [*task.experts, *task.controller_names],
    }
    return list(found[wanted])
