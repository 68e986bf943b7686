"""Tasks by name: those of this package, of other packages, and of single files. Imports no torch.

A task of this package is a folder beside this file whose `TASK` is a record (base.py). A task of another package is
named by an entry point of the group `mast_swarm.tasks`; one in a single file is `path/to/file.py:TASK` on the command
line. All three are the same thing.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import pickle
import pkgutil
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from mast_swarm import tasks as builtin
from mast_swarm import zoo
from mast_swarm.errors import MastError, unknown
from mast_swarm.tasks.base import Task, WorldConfig

GROUP = "mast_swarm.tasks"  # of entry points
_TASKS: dict[str, Task] = {}
_sources: dict[str, str] = {}  # of tasks that come from a file: path/to/file.py:TASK, the path absolute
_packaged: dict[str, Task] = {}  # tasks that every process finds by their names: of this package and of others
_broken: dict[str, str] = {}  # tasks of other packages that could not be imported, and why


def register(task: Task) -> Task:
    """Make a task known by its name; gives it back."""
    _check_record(task)
    before = _TASKS.get(task.name)
    if before is not None and before.Config is not task.Config and not _reloaded(before, task):
        raise MastError(f"there is a task '{task.name}' already: give yours another name")
    owner = next((known for known in _TASKS.values() if known.Config is task.Config and known.name != task.name), None)
    if owner is not None:
        raise MastError(f"tasks '{owner.name}' and '{task.name}' share {task.Config.__name__}: derive one for each")
    if before is not task:
        _sources.pop(task.name, None)  # that file has another one
    _TASKS[task.name] = task
    if task.zoo is not None:
        zoo.add(task.name, task.zoo)
    return task


def _check_record(task: Task) -> None:
    """Raise an error unless the settings are a dataclass that extends WorldConfig, and the expert is a controller."""
    name = getattr(task.Config, "__name__", repr(task.Config))
    if not (inspect.isclass(task.Config) and issubclass(task.Config, WorldConfig)):
        raise MastError(f"{name} of task '{task.name}' does not extend mast_swarm.WorldConfig")
    if "__dataclass_fields__" not in vars(task.Config):
        raise MastError(f"{name} of task '{task.name}' is no dataclass: write @dataclass(frozen=True) above it")
    if task.expert is not None and not task.has_controller(task.expert):
        raise unknown(f"expert of task {task.name}", task.expert, task.controllers)


def _reloaded(before: Task, task: Task) -> bool:
    """Whether both come from one place, which has been read again."""
    return (before.Config.__module__, before.Config.__qualname__) == (task.Config.__module__, task.Config.__qualname__)


@cache
def _discover() -> None:
    """Register the tasks of this package, and those that other installed packages name."""
    for module in pkgutil.iter_modules(builtin.__path__):
        if module.ispkg:
            task = register(importlib.import_module(f"{builtin.__name__}.{module.name}").TASK)
            _packaged[task.name] = task
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            task = register(entry.load())
            _packaged[task.name] = task
        except Exception as error:  # whatever another package does wrong must not stop the rest
            _broken[entry.name] = f"{type(error).__name__}: {error}"


def names() -> list[str]:
    """Names of the registered tasks, the default one first."""
    _discover()
    return sorted(_TASKS, key=lambda name: (name != builtin.DEFAULT, name))


def policies() -> dict[str, Path]:
    """The folder of every shipped policy by its name, such as navigation/mast-m: of this package and of others."""
    _discover()
    return zoo.policies()


def broken() -> Mapping[str, str]:
    """Tasks of other packages that could not be imported, and why."""
    _discover()
    return _broken


def find(name: str | Task) -> Task:
    """A task by its name, or from a file as `path/to/file.py:TASK`; a task itself is registered if it is not yet."""
    if not isinstance(name, str | Task):
        raise MastError(
            f"a task is of type {type(name).__name__}: give its name, 'path/to/file.py:TASK' or a mast_swarm.Task"
        )
    _discover()  # first of all: a name that is taken is refused at once
    if isinstance(name, Task):
        return name if _TASKS.get(name.name) is name else register(name)
    if is_reference(name):
        found = from_file(name, "TASK")
        if not isinstance(found, Task):
            raise MastError(f"{name} is {type(found).__name__}, not a Task: name the variable that holds the task")
        if _TASKS.get(found.name) is not found:
            register(found)
        path, _, variable = name.partition(":")
        _sources[found.name] = f"{Path(path).resolve()}:{variable or 'TASK'}"
        return found
    if name not in _TASKS and name in _broken:
        raise MastError(f"task '{name}' of another package cannot be used: {_broken[name]}")
    if name not in _TASKS:
        raise unknown("task", name, _TASKS)
    return _TASKS[name]


def source(name: str) -> dict[str, str]:
    """What settings on disk say beside a task's name, so that it is found again: its file, where it comes from one."""
    return {"source": _sources[name]} if name in _sources else {}


def sendable(name: str) -> str | Task:
    """What another process finds a task by: its file, its name if a package brings it, else the record itself."""
    task = find(name)
    if name in _sources or _packaged.get(name) is task:
        return _sources.get(name, name)
    try:
        pickle.dumps(task)
    except Exception as error:  # whatever a class or a function says that no module has
        reason = str(error).splitlines()[0]
        raise MastError(
            f"task '{name}' cannot be sent to other processes ({reason}): define it at the top of a module, give it "
            "as path/to/file.py:TASK, or use --jobs 1"
        ) from None
    return task


def recall(settings: Mapping[str, Any]) -> None:
    """Make the task known again that settings on disk name, where it comes from a file.

    A file that has moved is an error, unless a task of that name is known already: somebody said where it is now.
    """
    source = settings.get("source")
    if not isinstance(source, str):
        return
    policy = settings.get("policy")
    name = settings.get("task") or (policy.get("task") if isinstance(policy, Mapping) else None)
    path, _, variable = source.partition(":")
    if Path(path).exists():
        find(source)
    elif name not in _TASKS:
        now = f"NEW/PATH/{Path(path).name}:{variable}"
        raise MastError(
            f"the file of task '{name}' is no longer at {path}: say where it is now, with `mast train {now} --resume "
            f"DIR`, `mast evaluate {now} --resume --out DIR` or `mast replay DIR --task {now}`"
        )


def task_of(config: WorldConfig) -> Task:
    """The task that a world's settings belong to."""
    for kind in type(config).__mro__:  # settings may be extended without making a new task
        for task in _TASKS.values():
            if task.Config is kind:
                return task
    if not _discover.cache_info().currsize:
        _discover()
        return task_of(config)
    raise MastError(
        f"no task has the settings {type(config).__name__}: declare one with mast_swarm.register(Task(...))"
    )


def is_reference(name: str) -> bool:
    """Whether a name is one of something in a Python file: path/to/file.py, or path/to/file.py:NAME."""
    return name.partition(":")[0].endswith(".py")


def from_file(reference: str, default: str) -> Any:
    """What `path/to/file.py:NAME` names; without a name, `default`."""
    path, _, name = reference.partition(":")
    name = name or default
    try:
        changed = Path(path).stat().st_mtime_ns
    except OSError as error:
        raise MastError(f"cannot read {path}: {error.strerror}") from None
    module = _module(str(Path(path).resolve()), changed)
    if not hasattr(module, name):
        own = [
            key
            for key, value in vars(module).items()
            if isinstance(value, Task) or getattr(value, "__module__", None) == module.__name__
        ]
        raise unknown(f"name in {path}", name, [key for key in own if not key.startswith("_")])
    return getattr(module, name)


@cache
def _module(path: str, changed: int) -> Any:
    """A Python file, run as a module; once, and again only when it has changed."""
    name = f"mast_file_{Path(path).stem}_{hashlib.sha1(path.encode()).hexdigest()[:8]}"
    before, module = sys.modules.get(name), ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # dataclasses look their module up there
    try:
        # Not through an import: Python's own cache of compiled files does not see changes within a second.
        exec(compile(Path(path).read_bytes(), path, "exec"), vars(module))
    except MastError:
        raise
    except Exception as error:
        sys.modules.pop(name)
        if before is not None:
            sys.modules[name] = before
        lines = [frame.lineno for frame in _frames(error) if frame.filename == path]
        where = f" line {lines[-1]}" if lines else ""
        raise MastError(f"{path}{where}: {type(error).__name__}: {error}") from error
    return module


def _frames(error: BaseException) -> list[Any]:
    import traceback

    found: list[Any] = list(traceback.extract_tb(error.__traceback__))
    if isinstance(error, SyntaxError):
        found.append(traceback.FrameSummary(error.filename or "", error.lineno or 0, ""))
    return found
