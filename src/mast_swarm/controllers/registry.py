"""Controllers by name. What registers itself here is what exists: nothing keeps a second list."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from torch import Tensor

from mast_swarm.errors import unknown


class Controller(Protocol):
    """Anything that drives robots without having learned to."""

    def start(self, seeds: Sequence[int] = ()) -> None:
        """Begin an episode, one seed an environment: forget what is kept from step to step."""

    def act(self, state: Any, observation: Any) -> Tensor:
        """The command of every robot, [B, N, 2] in units of u_max."""


Factory = TypeVar("Factory", bound=Callable[..., Controller])


@dataclass(frozen=True)
class _Entry:
    name: str  # what lists show; K stands for a number
    task: str
    factory: Callable[..., Controller]

    def numbers(self, given: str) -> list[int] | None:
        """The numbers that stand for K in a name of this family; None if the name is not of it."""
        pattern = re.escape(self.name).replace("K", "([0-9]{1,9})")
        match = re.fullmatch(pattern, given)
        return [int(number) for number in match.groups()] if match else None


_ENTRIES: list[_Entry] = []


def register(name: str, task: str = "navigation") -> Callable[[Factory], Factory]:
    """Decorator: make(name, ...) calls the class or function. A capital K in the name stands for a number, its
    first argument."""

    def add(factory: Factory) -> Factory:
        _ENTRIES.append(_Entry(name, task, factory))
        return factory

    return add


def names(task: str | None = "navigation") -> list[str]:
    """The registered names of a task (of every task: None), sorted; 'dhba-K' stands for dhba-0, dhba-1, ..."""
    return sorted(entry.name for entry in _entries(task))


def find(name: str, *, task: str | None = "navigation") -> Callable[..., Controller] | None:
    """What makes the controller of that name from settings; None if there is none."""
    for entry in _entries(task):
        numbers = entry.numbers(name)
        if numbers is not None:
            return partial(entry.factory, *numbers)
    return None


def make(name: str, *, task: str | None = "navigation", **settings: Any) -> Controller:
    """The controller of that name, such as make("dhba-4", dt=1.0, max_speed=5.0)."""
    factory = find(name, task=task)
    if factory is None:
        raise unknown("controller", name, names(task))
    return factory(**settings)


def _entries(task: str | None) -> Iterator[_Entry]:
    return (entry for entry in _ENTRIES if task is None or entry.task == task)
