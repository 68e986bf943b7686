"""Checks for worlds of your own: `check_world(world)` in a test, `mast check FILE.py:TASK` on the command line.

Each check is a function that gives what is wrong, one sentence per finding with what to mend, or nothing.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from mast_swarm.errors import MastError
from mast_swarm.tasks.base import Task
from mast_swarm.tasks.world import World
from mast_swarm.testing import brought, worlds
from mast_swarm.testing.worlds import AnyWorld, Findings, Unusable


def check_world(world: AnyWorld, task: Task | None = None) -> list[str]:
    """Run all checks; gives a line per check that passed. What is wrong is one MastError that lists everything.

    task: checks its metrics and controllers too.
    """
    passed: list[str] = []
    wrong: list[str] = []
    checks: dict[str, Callable[[], Findings]] = {
        "starts depend on their seed alone": lambda: worlds.draws(world),
        "states are frozen dataclasses of tensors": lambda: worlds.states(world),
        "robots observe what was promised": lambda: worlds.observes(world),
        "a step makes a new state and leaves the old one": lambda: worlds.steps(world),
        "environments do not depend on their batch": lambda: worlds.batches(world),
        "metrics are finite numbers": lambda: worlds.metrics(world, task),
        "recordings and samples have the right shapes": lambda: worlds.keeps(world),
    }
    if task is not None:
        checks["controllers command every robot"] = lambda: brought.controls(world, task)
        checks["settings have names of their own"] = lambda: brought.names(world)
        checks["recordings can be shown"] = lambda: brought.shows(world, task) if not wrong else iter(())
    for title, check in checks.items():
        found, usable = _tried(check)
        wrong += [f"{title}: {finding}" for finding in found]
        if not found:
            passed.append(f"ok: {title}")
        elif not usable or title.startswith(("starts", "states")):
            break  # nothing else can be tried
    if wrong:
        raise MastError(f"{type(world).__name__} needs mending:\n" + "\n".join(f"- {line}" for line in wrong))
    return passed


def _tried(check: Callable[[], Findings]) -> tuple[list[str], bool]:
    """What a check finds, each once, and whether others can be tried after it."""
    found: dict[str, None] = {}
    try:
        for finding in check():
            found[finding] = None
    except Unusable as error:
        return [*found, str(error)], False
    except Exception as error:  # a world may raise anything
        found[f"{_where(error)}{type(error).__name__}: {error}"] = None
    return list(found), True


def _where(error: BaseException) -> str:
    """The line of the world's own code that an error came through last, if any."""
    here, ours = Path(__file__).parents[1], None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if here not in path.parents and "site-packages" not in path.parts and path.exists():
            ours = f"{frame.filename} line {frame.lineno}: "
    return ours or ""


def check_task(task: Task, device: str = "auto", agents: int | None = None) -> list[str]:
    """All checks of a task, and on a GPU, if there is one or `device` is cuda, that it gives what a CPU gives.

    agents: how many robots; None: as its settings have it.
    """
    config = task.Config() if agents is None else dataclasses.replace(task.Config(), agents=agents)
    world = task.make(config)
    if not isinstance(world, World):
        raise MastError(f"the World of task {task.name} is {type(world).__name__}: derive it from mast_swarm.World")
    passed = check_world(world, task)
    if device == "cuda" and not torch.cuda.is_available():
        raise MastError("--device cuda: no CUDA device is available here; use --device cpu")
    if device != "cpu" and torch.cuda.is_available():
        found, _ = _tried(lambda: worlds.devices(world, task.make(config, "cuda")))
        if found:
            raise MastError(f"{type(world).__name__} needs mending:\n" + "\n".join(f"- {line}" for line in found))
        passed.append("ok: a GPU gives what the CPU gives")
    return passed
