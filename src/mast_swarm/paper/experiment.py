"""An experiment: cells, a figure and rows "paper says / paper's recipe / recipes of ours / holds?"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from mast_swarm.errors import MastError
from mast_swarm.paper.cells import Cell, Result, evaluation, training
from mast_swarm.paper.measured import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
HOLDS, FAILS, PARTLY, LEVEL, NOT_RUN = "holds", "does not hold", "partly", "within interval", "not run"


@dataclass(frozen=True)
class Row:
    """One claim: what the paper says and what was measured."""

    claim: int
    says: str
    recipe: str = "-"  # by the paper's own recipe
    best: str = "-"  # by recipes of ours
    verdict: str = NOT_RUN
    why: str = ""


# A training of --quick.
_TINY: dict[str, Any] = {"epochs": 1, "environments": 2, "steps": 4, "batch": 4, "replay": 64, "collect": 0}
_TINY |= {"validation": 1, "validation_steps": 2, "validate_every": 1, "scenarios": ()}  # the world's own one
_SMALL = {"navigation": {"agents": 12, "scenario": "clusters-1"}, "coverage": {"agents": 4, "features": 4}}


@dataclass(frozen=True)
class Size:
    """How large an experiment is: in full as the paper has it, or quick, for tests."""

    quick: bool = False

    def some(self, things: Sequence[T]) -> list[T]:
        """All of a list; quick: its ends."""
        return list(things) if not self.quick else list(dict.fromkeys((things[0], things[-1])))

    def pick(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    def navigation(self, policy: str | Cell, **settings: Any) -> Cell:
        """An evaluation of navigation: 108 start states, 800 s."""
        given: dict[str, Any] = {
            "agents": 100,
            "scenario": "clusters",
            "episodes": 108,
            "steps": 800,
            "seed": 3,
            **settings,
        }
        if self.quick:
            given |= {"agents": 25 if given["agents"] == 100 else 50, "episodes": 2, "steps": 12}
        return evaluation("navigation", policy, **given)

    def coverage(self, policy: str | Cell, **settings: Any) -> Cell:
        """An evaluation of coverage: 100 environments, 600 steps of 0.2 s, N = F = 32 at 1024 m."""
        given: dict[str, Any] = {
            "agents": 32,
            "features": 32,
            "side": 1024.0,
            "dt": 0.2,
            "episodes": 100,
            "steps": 600,
            "seed": 0,
        }
        given |= settings
        if "city" in given:
            given.pop("features")
        if self.quick:
            given |= {"agents": min(8, given["agents"]), "episodes": 2, "steps": 5}
        return evaluation("coverage", policy, **given)

    def trained(self, task: str, recipe: str, label: str, **settings: Any) -> Cell:
        """A policy that is trained; quick: a very small one, for a moment."""
        if self.quick:
            given = dict(settings.get("policy", {}))
            size = {"layers": 1} if "kind" in given else {"layers": 1, "heads": 1, "head_dim": 8}
            settings = {**settings, **_TINY, "world": _SMALL[task], "policy": {**given, **size}}
        return training(task, recipe, label, **settings)


class Found(Mapping[str, Result]):
    """The results of an experiment's cells by name: those that are there."""

    def __init__(self, cells: Mapping[str, Cell], results: Mapping[str, Result], size: Size) -> None:
        self.cells, self.results, self.size = cells, results, size

    def __getitem__(self, name: str) -> Result:
        if name not in self.results:
            raise Missing([name])
        return self.results[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def __len__(self) -> int:
        return len(self.results)

    def measured(self, name: str) -> Measured:
        return Measured(self[name], self.cells[name].settings)

    def has(self, names: Iterable[str]) -> bool:
        return all(name in self.results for name in names)

    def lacking(self) -> list[str]:
        return [name for name in self.cells if name not in self.results]


class Missing(KeyError):
    """Cells that a row needs have not been run."""


Cells = Callable[[Size], Mapping[str, Cell]]


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper."""

    name: str
    title: str
    paper: str
    """What it is in the paper."""
    rows: Callable[[Found], list[Row]]
    cells: Cells = lambda size: {}
    draw: Callable[[Found, Figure], None] | None = None
    shape: tuple[float, float] = (6.4, 4.0)
    """Of the figure, inches."""
    table: Callable[[Found], list[dict[str, Any]]] | None = None
    """Rows of its Parquet table; left out: those of all its evaluations."""
    notes: str = ""
    """What a reader should know."""
    says: Callable[[Found], str] = lambda found: ""
    """What was measured, in a sentence or two, where no claim says it."""


EXPERIMENTS: dict[str, Experiment] = {}


def declare(experiment: Experiment) -> Experiment:
    """Make an experiment known."""
    if experiment.name in EXPERIMENTS:
        raise MastError(f"two experiments are called {experiment.name}")
    EXPERIMENTS[experiment.name] = experiment
    return experiment


@dataclass
class Report:
    """What an experiment gave."""

    experiment: Experiment
    rows: list[Row]
    cells: Mapping[str, Cell]
    results: Mapping[str, Result] = field(default_factory=dict)
    trained: Sequence[tuple[Cell, Result]] = ()
    """What is kept of the trainings of its policies."""

    @property
    def lacking(self) -> int:
        return len(self.cells) - len(self.results)
