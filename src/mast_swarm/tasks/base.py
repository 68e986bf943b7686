"""What a task is: its settings, its world and everything it brings along, in one record. Imports no torch.

Parts that need torch or matplotlib are given as "module:Name" and imported when used. registry.py finds tasks by name.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from mast_swarm.errors import MastError, unknown

if TYPE_CHECKING:
    from torch import Tensor

_Sampler = TypeVar("_Sampler", bound=Callable[..., Any])
_NUMBER = re.compile("(?<![A-Za-z0-9])K(?![A-Za-z0-9])")  # in the name of a family of controllers
# Columns of tables and of a training run's log, which no metric may be called.
_KEYS = {"policy", "task", "scenario", "agents", "delay", "loss", "failure", "relay_radius", "max_age", "safe", "seed"}
COLUMNS = _KEYS | {"start", "episode", "episode_seed", "t", "epoch", "samples_per_second", "seconds"}
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

    scales: ClassVar[tuple[str, ...]] = ("dt", "max_speed")  # settings that say what observed numbers and commands mean

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

    def check_apart(self, command: str, options: Iterable[str]) -> None:
        """Raise an error if a setting has the name of one of a command's own options."""
        for name in options:
            if name in vars(self):
                raise MastError(
                    f"{type(self).__name__} has a setting '{name}', which is an option of `{command}` too: give the "
                    "world's another name"
                )

    @property
    def task(self) -> str:
        """The name of the task that these settings belong to."""
        from mast_swarm.tasks.registry import task_of  # which knows the tasks, and they their settings

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
    def start_states(self) -> int | None:
        """How many start states there are, one after the other by seed; None: another one for every seed."""
        return None

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

    def completed(self, given: Iterable[str]) -> WorldConfig:
        """The same settings, those that follow from a file taken from it; given: names of those that people set."""
        return self

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

    def better(self, value: float, than: float | None) -> bool:
        """Whether a value is better than another; any is better than None, and any number than one that is none."""
        if than is None or math.isnan(than):
            return True
        return value < than if self.lower_is_better else value > than


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
    """Drives robots without having learned to. Made from `dt` (s) and `max_speed` (m/s) as keywords, and from the
    world's settings as `config` if its `__init__` names that too.

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
    reward: Any = None
    """What reinforcement learning is paid per control period: a function (world, before, command, after) -> [B] for the
    team or [B, N] for each robot, between two states; left out: by how much the metric drawn over time got better."""
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
        others = (self.others,) if isinstance(self.others, Metric | str) else self.others
        object.__setattr__(self, "others", tuple(Metric(m) if isinstance(m, str) else m for m in others))
        for field_name in ("controllers", "experts"):
            if not isinstance(given := getattr(self, field_name), Mapping):
                raise MastError(f"{field_name} of task {self.name} are a {type(given).__name__}: give a dict of names")
        if self.expert is not None and not isinstance(self.expert, str):
            # One that is a controller already has its name; that of a family is none.
            names = (name for name, known in self.controllers.items() if known is self.expert)
            named = next((name for name in names if not _NUMBER.search(name)), "expert")
            object.__setattr__(self, "controllers", {named: self.expert, **self.controllers})
            object.__setattr__(self, "expert", named)

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
        """Raise an error if a metric of the task is not among those that the world has measured, or one of these has
        the name of a column of tables."""
        measured = list(found)
        for name in measured:
            if name in COLUMNS.union(self.Config().stated):
                raise MastError(
                    f"a metric of task {self.name} is called '{name}', as a column of tables is: give it another name"
                )
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
        """What makes the controller of that name from `dt`, `max_speed` and `config`; None if there is none."""
        found = self._match(name)
        return None if found is None else factory(imported(found[0]), *found[1])

    def make_controller(self, name: str, *, dt: float, max_speed: float) -> Controller:
        """The controller of that name; one that does not exist is an error."""
        found = self.controller(name)
        if found is None:
            raise unknown("controller", name, self.controller_names)
        return found(dt=dt, max_speed=max_speed, config=self.Config())

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
    """What makes a controller from `dt`, `max_speed` and, if its class takes it, the world's `config`; of a class or a
    plain function."""
    if numbers and not inspect.isclass(controller):
        raise MastError("a controller whose name has a number is a class, which takes the number as its first argument")
    if inspect.isclass(controller):
        takes = "config" in inspect.signature(controller).parameters

        def made(*, config: Any = None, **own: Any) -> Any:
            return controller(*numbers, **own, **({"config": config} if takes else {}))

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
