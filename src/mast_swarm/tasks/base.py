"""What a task is: its settings, its world and everything it brings along, in one record. Imports no torch.

A task of this package is a folder beside this file whose `TASK` is such a record. A task of another package is named
by an entry point of the group `mast_swarm.tasks`; one in a single file is `path/to/file.py:TASK` on the command line.
All three are the same thing. Parts that need torch or matplotlib are given as "module:Name" and imported when used.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import inspect
import math
import pkgutil
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from mast_swarm import tasks as builtin
from mast_swarm import zoo
from mast_swarm.errors import MastError, unknown

if TYPE_CHECKING:
    from torch import Tensor

_Sampler = TypeVar("_Sampler", bound=Callable[..., Any])
GROUP = "mast_swarm.tasks"  # of entry points
_NUMBER = re.compile("(?<![A-Za-z0-9])K(?![A-Za-z0-9])")  # in the name of a family of controllers
ROBOT_BYTES = 2_100  # of a robot in a world without maps, at the worst moment of a step; seen in `mast bench world`


@dataclass(frozen=True)
class Feature:
    """A part of what one robot senses, in words that let somebody measure it on a robot."""

    name: str
    """For example goal_1."""
    shape: tuple[int, ...] = (1,)
    """Of its numbers; of an image height and width."""
    unit: str = ""
    """Unit of what is measured, for example m; left out: it has none."""
    scale: float = 1.0
    """What is measured, in that unit, is divided by this."""
    meaning: str = ""
    """What it is, where it is measured from, and what stands there if there is nothing to measure."""


@dataclass(frozen=True)
class WorldConfig:
    """The settings that every world has. A world's own settings extend it, each with a sentence of help.

    The area where environments start is a square of `side` metres. It follows from the number of robots here, so
    that teams of any size are equally dense; a world that lets people set it declares a field `side`.
    """

    trains: ClassVar[tuple[str, ...]] = ()  # `weighted`, `mirrored`: settings of training that the world supports
    goals: ClassVar[bool] = False  # whether its observations have goals, which a clairvoyant policy sees
    starts_may_fail: ClassVar[bool] = False  # whether a start state may be impossible for one seed and not for another

    agents: int = 32
    """Number of robots."""
    dt: float = 1.0
    """Seconds between two control instants."""
    max_speed: float = 5.0
    """Longest velocity command, m/s."""

    def __post_init__(self) -> None:
        if self.agents < 1:
            raise MastError(f"agents is {self.agents}: a team needs at least 1 robot")
        self.check_positive("dt", "max_speed", "side")

    def check_positive(self, *names: str) -> None:
        """Raise an error that names the first of these settings that is not a positive number."""
        for name in names:
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                shown = "width" if name == "side" and hasattr(self, "width") else name
                raise MastError(f"{shown} is {value}: give a positive number")

    @property
    def task(self) -> str:
        """The name of the task that these settings belong to."""
        return task_of(self).name

    @property
    def side(self) -> float:
        """Side of the square, metres: 100 robots per square kilometre."""
        return 1000.0 * math.sqrt(self.agents / 100)

    @property
    def scenario(self) -> str:
        """How environments start, by name, where there is more than one way."""
        return "random"

    def scenarios(self, count: int) -> list[str]:
        """How each of `count` episodes of a test starts."""
        return [self.scenario] * count

    @property
    def stated(self) -> tuple[str, ...]:
        """Settings that results state beside every number."""
        return ("scenario", "agents")

    @property
    def observation_shape(self) -> tuple[int, ...] | None:
        """Shape of one robot's features; None: known only once the world has been observed."""
        return None

    def shows(self, shape: tuple[int, ...]) -> bool:
        """Whether a policy that takes features of this shape can run in the world."""
        return self.observation_shape is None or shape == self.observation_shape

    def fitted(self, shapes: Iterable[tuple[int, ...]]) -> WorldConfig:
        """The same world, which shows all that policies with features of these shapes take."""
        return self

    def sensed(self) -> tuple[Feature, ...]:
        """The parts of one robot's features in their order, images by channel; none: the world does not name them."""
        return ()

    @property
    def bytes(self) -> int:
        """Memory of one environment of the world alone, estimated."""
        return ROBOT_BYTES * self.agents


@dataclass(frozen=True)
class Metric:
    """A number that a world measures, and how people see it."""

    name: str
    """As in the world's `metrics`, for example success_rate."""
    label: str = ""
    """In words; left out: the name with spaces."""
    unit: str = ""
    """For example m; left out: it has none."""
    lower_is_better: bool = False
    limits: tuple[float, float] = (-math.inf, math.inf)
    """The least and the greatest value that it can have."""
    digits: int = 3
    """Decimals that people see."""

    @property
    def words(self) -> str:
        """The label, with the unit."""
        label = self.label or self.name.replace("_", " ")
        return f"{label} ({self.unit})" if self.unit else label


@dataclass(frozen=True)
class Demo:
    """What `mast demo` shows: two policies on the same start state."""

    policies: tuple[str, ...]
    """Side by side. Learned ones run by every robot alone, a message taking one control period per hop."""
    steps: int = 200
    """Control periods."""
    config: WorldConfig | None = None
    """The world; left out: with its own settings."""
    outcome: str = ""
    """What a policy did, from its last metrics: "reached {success_rate:.0%} of the goals". Left out: the metric."""


class Controller(Protocol):
    """Drives robots without having learned to. Made from `dt` (s) and `max_speed` (m/s) as keywords.

    A controller may also have `reads`, the names of what it reads of the state and the observation (and `component`,
    the lowest robot of each robot's component). Training then sends these alone to the CPU, while a GPU learns. And it
    may have `plan`, like `act` but [B, N, 3], for robots that explore: a command, and the speed that they mean to have.
    In training `plan` is given the component as a keyword if it takes one.
    """

    def start(self, seeds: Sequence[int] = ()) -> None:
        """Begin an episode, one seed per environment: forget what is kept from step to step."""

    def act(self, state: Any, observation: Any) -> Tensor:
        """The command of every robot, [B, N, 2] in units of max_speed."""


class FunctionController:
    """A controller that is a plain function (state, observation) -> command, and keeps nothing."""

    def __init__(self, function: Callable[[Any, Any], Tensor]) -> None:
        self.act = function

    def start(self, seeds: Sequence[int] = ()) -> None:
        """There is nothing to forget."""


@dataclass(frozen=True)
class Start:
    """A named way in which environments start: `name`, or with an argument as `usage` shows it (text:WORD)."""

    name: str
    usage: str
    summary: str
    sampler: Callable[..., Any]


class Starts:
    """The named ways to start of a task. Called with a name it is a decorator that adds one: a function whose
    docstring's first line says what it is."""

    def __init__(self, kind: str, plural: str) -> None:
        self.kind, self.plural = kind, plural
        self._known: dict[str, Start] = {}

    def __call__(self, name: str, usage: str | None = None) -> Callable[[_Sampler], _Sampler]:
        def add(sampler: _Sampler) -> _Sampler:
            summary = (sampler.__doc__ or "").strip().split("\n")[0]
            self._known[name] = Start(name, usage or name, summary, sampler)
            return sampler

        return add

    def __iter__(self) -> Iterator[Start]:
        return iter(sorted(self._known.values(), key=lambda start: start.name))

    def find(self, name: str) -> tuple[Start, str]:
        """The start and its argument ('' if none): 'two-lines', 'clusters-20', 'text:ICRA'."""
        if name in self._known:
            return self._known[name], ""
        for start in self._known.values():
            separator = start.usage[len(start.name) : len(start.name) + 1]
            head, _, argument = name.partition(separator) if separator else (name, "", "")
            if head == start.name and argument:
                return start, argument
        raise unknown(self.kind, name, [start.usage for start in self])


@dataclass(frozen=True)
class Task:
    """A task: what there is to do, and all that comes with it. A part may be given as "module:Name"."""

    name: str
    """As on the command line."""
    Config: type[WorldConfig]
    """The world's settings, a frozen dataclass of its own."""
    World: Any
    """The world, a subclass of `mast_swarm.World`."""
    metric: Metric
    """What says how well a policy does."""
    curve: Metric | None = None
    """What is drawn over time; left out: the same."""
    others: tuple[Metric, ...] = ()
    """Further metrics of the world that tables show."""
    expert: Any = None
    """Whom policies imitate unless told otherwise: the name of a controller, or a function or class itself."""
    controllers: Mapping[str, Any] = field(default_factory=dict)
    """Functions (state, observation) -> command, or classes of `Controller`. A capital K in a name stands for a
    number, the class's first argument: `dhba-K` makes dhba-0, dhba-1 and so on."""
    experts: Mapping[str, str] = field(default_factory=dict)
    """Other names of controllers as `mast train --expert` takes them."""
    policies: Any = None
    """Settings of learned policies by kind (mast, lpac), for runs that change the kind of a recipe's policy."""
    recipes: Any = None
    """Settings of training by name, or a function that gives them; left out: one that is small enough for a laptop."""
    view: Any = None
    """How recordings are drawn, a subclass of `mast_swarm.view.scene.TaskView`; left out: robots, links and trails."""
    starts: Any = None
    """The named ways to start, a `Starts`, where there is more than one."""
    compared: tuple[str, ...] = ()
    """What `mast evaluate` runs unless told otherwise; left out: all controllers."""
    episodes: int = 54
    """Start states of an evaluation."""
    steps: int = 200
    """Control periods of an episode."""
    demo: Demo | None = None
    """Left out: the first two of `compared`."""
    benchmark: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the world in which `mast bench` measures."""
    zoo: Path | None = None
    """Folder of trained policies that come with the task."""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_-]*", self.name):
            raise MastError(f"a task is called '{self.name}': use small letters, digits, - and _")
        if isinstance(self.metric, str):
            object.__setattr__(self, "metric", Metric(self.metric))
        if isinstance(self.others, Metric):
            object.__setattr__(self, "others", (self.others,))
        if self.expert is not None and not isinstance(self.expert, str):
            object.__setattr__(self, "controllers", {"expert": self.expert, **self.controllers})
            object.__setattr__(self, "expert", "expert")

    def part(self, name: str) -> Any:
        """A part of the record by its field's name, imported if it is given as "module:Name"."""
        return imported(getattr(self, name))

    def make(self, config: WorldConfig | None = None, device: Any = "cpu") -> Any:
        """The world."""
        world = self.part("World")
        missing = sorted(getattr(world, "__abstractmethods__", ()))
        if missing:
            raise MastError(f"{world.__name__} of task {self.name} lacks {', '.join(missing)}: see docs/own-task.md")
        return world(self.Config() if config is None else config, device)

    @property
    def drawn(self) -> Metric:
        """The metric that is drawn over time."""
        return self.curve or self.metric

    @property
    def shown(self) -> tuple[Metric, ...]:
        """The metrics that tables show: the one drawn over time, the one that counts if it is another, the others."""
        return tuple(dict.fromkeys((self.drawn, self.metric, *self.others)))

    def metric_named(self, name: str) -> Metric:
        """The record of a metric; one that the task does not describe has no more than its name."""
        return next((metric for metric in self.shown if metric.name == name), Metric(name))

    def check_measured(self, found: Iterable[str]) -> None:
        """Raise an error if a metric of the task is not among those that the world has measured."""
        measured = list(found)
        for metric in self.shown:
            if metric.name not in measured:
                raise unknown(f"metric of task {self.name} among those of its world", metric.name, measured)

    @property
    def controller_names(self) -> list[str]:
        """Sorted; `dhba-K` stands for dhba-0, dhba-1 and so on."""
        return sorted(self.controllers)

    def _match(self, name: str) -> tuple[Any, list[int]] | None:
        """What makes the controller of that name, not yet imported, and the numbers in its name."""
        for known, given in self.controllers.items():
            match = re.fullmatch(_NUMBER.sub("([0-9]{1,9})", re.escape(known)), name)
            if match:
                return given, [int(number) for number in match.groups()]
        return None

    @property
    def families(self) -> bool:
        """Whether some names of controllers hold a number."""
        return any(map(_NUMBER.search, self.controllers))

    def has_controller(self, name: str) -> bool:
        """Whether there is a controller of that name; imports nothing."""
        return self._match(name) is not None

    def controller(self, name: str) -> Callable[..., Controller] | None:
        """What makes the controller of that name from `dt` and `max_speed`; None if there is none."""
        found = self._match(name)
        return None if found is None else factory(imported(found[0]), *found[1])

    def make_controller(self, name: str, *, dt: float, max_speed: float) -> Controller:
        """The controller of that name; one that does not exist is an error."""
        found = self.controller(name)
        if found is None:
            raise unknown("controller", name, self.controller_names)
        return found(dt=dt, max_speed=max_speed)

    @property
    def default_policies(self) -> tuple[str, ...]:
        """What `mast evaluate` runs unless told otherwise."""
        return self.compared or tuple(name for name in self.controllers if not _NUMBER.search(name))

    @property
    def default_demo(self) -> Demo:
        """What `mast demo` shows."""
        return self.demo or Demo(self.default_policies[:2], steps=self.steps)


def numbered(name: str, number: int = 1) -> str:
    """One of a family of controllers by its name: dhba-1 for dhba-K. Other names stay as they are."""
    return _NUMBER.sub(str(number), name)


def factory(controller: Any, *numbers: int) -> Callable[..., Controller]:
    """What makes a controller from `dt` and `max_speed`, of a class or a plain function."""
    if numbers and not inspect.isclass(controller):
        raise MastError("a controller whose name has a number is a class, which takes the number as its first argument")
    if inspect.isclass(controller):
        made: Callable[..., Any] = partial(controller, *numbers)
        return made
    if not callable(controller):
        given = f"of type {type(controller).__name__}"
        raise MastError(f"a controller is {given}: give a function (state, observation) -> command, or a class")
    return lambda **settings: FunctionController(controller)


def imported(part: Any) -> Any:
    """The part itself, or what "module:Name" names."""
    if not isinstance(part, str):
        return part
    module, _, name = part.partition(":")
    return getattr(importlib.import_module(module), name)


_TASKS: dict[str, Task] = {}
_sources: dict[str, str] = {}  # of tasks that come from a file: path/to/file.py:TASK, the path absolute
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
            register(importlib.import_module(f"{builtin.__name__}.{module.name}").TASK)
    for entry in importlib.metadata.entry_points(group=GROUP):
        try:
            register(entry.load())
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
    _discover()
    if name not in _TASKS and name in _broken:
        raise MastError(f"task '{name}' of another package cannot be used: {_broken[name]}")
    if name not in _TASKS:
        raise unknown("task", name, _TASKS)
    return _TASKS[name]


def source(name: str) -> dict[str, str]:
    """What settings on disk say beside a task's name, so that it is found again: its file, where it comes from one."""
    return {"source": _sources[name]} if name in _sources else {}


def recall(settings: Mapping[str, Any]) -> None:
    """Make the task known again that settings on disk name, where it comes from a file."""
    if isinstance(settings.get("source"), str):
        find(settings["source"])


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
