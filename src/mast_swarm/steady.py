"""Work that is the same again and again need not ask each time how large things are.

Of a large team only the data know how fine its cells should be and how long its neighbour lists are, and to ask a GPU
means to wait for it. A `Steady` asks once, when the work is first done; afterwards the answers are taken for granted:
nothing waits, and the work can be captured as a CUDA graph. Lists get some room to grow. Where one outgrows it, the
results are of no use, and `outgrown` says so on the device, to whoever looks there later.

    steady = Steady(device)
    with steady.asking():
        work()  # as ever; what it finds is kept
    with steady.granted():
        work()  # the same on other data: waits for nothing
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from torch import Tensor

Found = TypeVar("Found")
_current: ContextVar[Steady | None] = ContextVar("steady", default=None)  # what runs now, if it is steady
_graphed: ContextVar[bool] = ContextVar("graphed", default=False)  # whether a graph will launch what runs now


class Steady:
    """The answers of some work, in the order in which it asks."""

    def __init__(self, device: torch.device | str, room: float = 1.25) -> None:
        """room: how long lists may become, in units of what they are at first."""
        self.room = room
        self.outgrown = torch.zeros(1, dtype=torch.bool, device=device)
        self.answers: list[Any] = []
        self.given: int | None = None  # how many answers have been taken for granted; None: they are asked for

    def asking(self) -> Any:
        """In here work asks, and answers are kept."""
        self.answers, self.given = [], None
        return self._run()

    def granted(self) -> Any:
        """In here nothing is asked."""
        self.given = 0
        return self._run()

    @contextmanager
    def _run(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def running() -> bool:
    """Whether the work that runs now is steady."""
    return _current.get() is not None


@contextmanager
def graphed() -> Iterator[None]:
    """What runs in here is captured as a graph, or is run for that to be possible."""
    token = _graphed.set(True)
    try:
        yield
    finally:
        _graphed.reset(token)


def launches_are_free() -> bool:
    """Whether what is launched now costs no time of Python's, because a graph will launch it."""
    return running() or _graphed.get()


def may_ask() -> bool:
    """Whether work may ask the device for a number, and wait for it."""
    steady = _current.get()
    return steady is None or steady.given is None


def answer(find: Callable[[], Found]) -> Found:
    """What `find` gives, or gave when it could be asked."""
    steady = _current.get()
    if steady is None:
        return find()
    if steady.given is None:
        steady.answers.append(find())
        return steady.answers[-1]
    steady.given += 1
    return steady.answers[steady.given - 1]


def room_for(total: Tensor) -> int:
    """Places for as many as total [1] says: just as many, or where that cannot be asked what has to do."""
    steady = _current.get()
    if steady is None:
        return int(total)
    if steady.given is None:
        exact = int(total)
        answer(lambda: int(steady.room * exact) + 1)
        return exact
    room: int = answer(lambda: 0)
    steady.outgrown |= total > room
    return room


MORE = 2048  # places that a room for rows of numbers has to spare: few enough to cost nothing


def rooms_for(total: Tensor, most: Sequence[int], more: Sequence[int]) -> tuple[list[int], Tensor | None]:
    """Places for as many as total [n] int64 says, and each at most `most`: just as many, and None. In steady work what
    has to do, and the same on the device [n], where whoever fills the places must leave out what finds none.

    more: places to spare in any case; there is one at least. Beyond them there is half the room that lists get: work on
    places that stay empty takes as long as on others, and the totals of many change less than each.
    """
    steady = _current.get()
    if steady is None:
        return total.tolist(), None
    if steady.given is None:
        share, exact = (1 + steady.room) / 2, min(1.0, steady.room)
        needed = [int(max(1, share * n, exact * n + some)) for n, some in zip(total.tolist(), more, strict=True)]
        rooms = [min(n, limit) for n, limit in zip(needed, most, strict=True)]
        return answer(lambda: (rooms, torch.tensor(rooms, device=total.device)))
    rooms, device = answer(lambda: ([0], total))
    steady.outgrown |= (total > device).any()
    return rooms, device


def outgrown() -> Tensor | None:
    """Where steady work says that something found no room, [1] bool; None: the work is not steady."""
    steady = _current.get()
    return None if steady is None else steady.outgrown
