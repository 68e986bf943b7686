"""Work that is the same again and again: on a GPU a captured CUDA graph, which waits for no Python; elsewhere as it
is."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from functools import cache
from typing import Any, cast

import torch
from torch import Tensor

from mast_swarm import steady
from mast_swarm.evaluate.actors import Central, Decentral
from mast_swarm.evaluate.loop import Loop
from mast_swarm.kernels import KernelFailed
from mast_swarm.steady import Steady

_ROOM = 1.25  # how long lists may become, in units of what they are when a graph is captured


def captured(
    work: Callable[[], None], device: torch.device, *, alone: bool = False, stream: torch.cuda.Stream | None = None
) -> Callable[[], None]:
    """`work` reads and writes fixed tensors only. It runs a few times here before it is captured on a GPU: the caller
    puts back what that changed. Work that waits for the GPU cannot be captured: a RuntimeError says so. alone: no other
    thread of this process uses the GPU now, so that it is found out before anything is captured. stream: to capture it
    on. Graphs that are to run at the same time need a stream each: cuBLAS has one workspace for all that is captured on
    a stream."""
    if device.type != "cuda":
        return work
    stream = _aside(device) if stream is None else stream
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with steady.graphed():
        try:
            with torch.cuda.stream(stream):
                for _ in range(2):
                    work()
                with _never_waiting() if alone else nullcontext():
                    work()
        finally:  # of work that failed too: whoever uses its memory next must not do so before it ends
            torch.cuda.current_stream().wait_stream(stream)
        # Torch leaves its stream in place where a capture fails: the outer context puts back the caller's.
        with torch.cuda.stream(torch.cuda.current_stream()), torch.cuda.graph(graph, stream=stream):
            work()
    return graph.replay


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    """Where graphs are captured. One for all, since torch keeps a workspace of cuBLAS for each stream for good."""
    return torch.cuda.Stream(device)


@contextmanager
def _never_waiting() -> Iterator[None]:
    """Whatever in here would wait for the GPU raises a RuntimeError."""
    before, waits = torch.cuda.get_sync_debug_mode(), torch.cuda.synchronize

    def refused(device: Any = None) -> None:
        raise RuntimeError("torch.cuda.synchronize waits for the GPU")

    with warnings.catch_warnings(action="ignore"):  # torch says that it may miss some
        torch.cuda.set_sync_debug_mode("error")
    torch.cuda.synchronize = refused  # missed by torch's mode
    try:
        yield
    finally:
        torch.cuda.synchronize = waits
        torch.cuda.set_sync_debug_mode(before)


class CapturedLoop:
    """A loop whose control periods run as one graph each: sense, measure, decide, move.

    The state lives in the same tensors for good, and so do the metrics of all instants. `metrics[name]` [B, T + 1] is
    filled up to the instant before the present one; `loop.state` is the present state. The graph takes for granted how
    long lists become and of how many others robots have heard (`steady`); `settle` looks whether that held. Where it
    did not, the periods since it last looked run again as they would without a graph, and the next ones in a graph with
    the room that is needed now. Robots that run alone hear of more and more others at first: meanwhile there is no
    graph.
    """

    LOOK = 32  # periods after which `step` settles by itself: to look means to wait
    steady: Steady

    def __init__(self, loop: Loop, instants: int, room: float = _ROOM, settles: int | None = None) -> None:
        """loop: one that has started and that `capturable` takes; instants: how many are measured; room: how long lists
        may become, in units of what they are when a graph is captured; settles: periods before that; None: as many as
        the actor says."""
        self.loop, self.room, self.since = loop, room, 0  # periods that nobody has looked at
        self.actor = cast("Central | Decentral", loop.actor)
        self.settles = self.actor.SETTLES if settles is None else settles
        if isinstance(self.actor, Central):
            self.actor.begin(loop.state.positions)
        self.at = torch.zeros(1, dtype=torch.int64, device=loop.world.device)  # the present instant
        self.metrics = {
            name: value.new_zeros(len(value), instants) for name, value in loop.world.metrics(loop.state).items()
        }
        self.steady, self._period = Steady(loop.world.device), self._plain
        # The tensors that a graph knows: all that a period changes, but for the metrics, and of the actor alone by
        # name; and the same when somebody last looked.
        self.kept: tuple[Tensor, ...] = ()
        self.memory: dict[str, Tensor] = {}
        self.looked_at: tuple[Tensor, ...] = ()
        if not self.settles:
            try:
                self._capture()
            except RuntimeError:
                self._put_back()
                raise

    def step(self) -> None:
        """One control period."""
        self._period()
        if self.settles:
            self.settles -= 1
            if not self.settles:
                self._try_capture()
            return
        self.since += 1
        if self.since == self.LOOK:
            self.settle()

    def settle(self) -> None:
        """Look whether all periods so far are right, and run those again that are not."""
        if self.steady.answers and bool(self.steady.outgrown):
            self.room = max(_ROOM, self.room + _ROOM - 1)
            self._put_back()
            for _ in range(self.since):
                self._plain()
            self._try_capture()
        elif self.steady.answers:
            for before, now in zip(self.looked_at, self.kept, strict=True):
                before.copy_(now)
        self.since = 0

    def measure(self) -> None:
        """The metrics of the present instant, once all before it are right."""
        self.settle()
        self._note(self.loop.world.metrics(self.loop.state))

    def _try_capture(self) -> None:
        """A graph for the periods from here on; where there can be none they run as they always did."""
        while True:
            try:
                return self._capture()
            except RuntimeError as error:  # no memory for more room, for example
                self._put_back()
                if not isinstance(error, KernelFailed):  # after which it is tried again without the kernel
                    _tell(self.loop, str(error) or type(error).__name__)
                    self.steady, self._period = Steady(self.loop.world.device), self._plain
                    return None

    def _capture(self) -> None:
        self._period = self._unasking  # lets go of the memory of a graph before
        self.kept, self.memory, self.looked_at = (), {}, ()
        state = type(self.loop.state)(**{name: value.clone() for name, value in vars(self.loop.state).items()})
        memory = {name: value.clone() for name, value in self.actor.memory().items()}
        kept = (*vars(state).values(), self.at, *memory.values())
        self.looked_at = tuple(value.clone() for value in kept)
        self.loop.state, self.memory, self.kept = state, memory, kept
        self.actor.remember(memory)
        self.steady = Steady(self.loop.world.device, self.room)
        with self.steady.asking():
            self._instant()
        self._put_back()
        self._period = captured(self._unasking, self.loop.world.device, alone=True)
        self._put_back()
        self.steady.outgrown.zero_()

    def _put_back(self) -> None:
        for before, now in zip(self.looked_at, self.kept, strict=False):
            now.copy_(before)
        if self.memory:
            self.actor.remember(self.memory)

    def _unasking(self) -> None:
        with self.steady.granted():
            self._instant()

    def _instant(self) -> None:
        """A period in place, in the tensors that a graph knows."""
        self._note(self.loop.look())
        self.loop.world.advance(self.loop.state, self.loop.decide())
        self.at += 1
        for name, value in self.actor.memory().items():
            if value is not self.memory[name]:
                self.memory[name].copy_(value)
        self.actor.remember(self.memory)

    def _plain(self) -> None:
        self._note(self.loop.look())
        self.loop.move(self.loop.decide())
        self.at += 1

    def _note(self, metrics: Mapping[str, Tensor]) -> None:
        for name, value in metrics.items():
            rows = self.metrics[name]
            rows.index_copy_(1, self.at.clamp_max(rows.shape[1] - 1), value[:, None])  # warming up runs past the end


def capturable(loop: Loop) -> bool:
    """Whether a control period may be the same work each time: a policy that need not ask the GPU for numbers, in a
    world whose state is tensors there and nothing else. A controller may do anything."""
    parts = vars(loop.state)
    on_a_gpu = loop.world.device.type == "cuda" and type(loop.actor) in (Central, Decentral)
    alike = set(parts) == {field.name for field in fields(loop.state)}
    if not on_a_gpu or not alike or not all(isinstance(v, Tensor) and v.device.type == "cuda" for v in parts.values()):
        return False
    unsteady = cast("Central | Decentral", loop.actor).unsteady
    if unsteady is not None:
        _tell(loop, unsteady)
    return unsteady is None


def capture(loop: Loop, instants: int, settles: int | None = None) -> CapturedLoop | None:
    """The loop with captured control periods; None where they cannot be, and what stands in the way is told. settles:
    as in `CapturedLoop`."""
    if not capturable(loop):
        return None
    start = loop.state
    while True:
        try:
            return CapturedLoop(loop, instants, settles=settles)
        except RuntimeError as error:  # for example a world that asks the GPU for a number on its way
            loop.state = start
            if not isinstance(error, KernelFailed):  # after which it is tried again without the kernel
                _tell(loop, str(error) or type(error).__name__)
                return None


told: set[tuple[str, str]] = set()  # tasks whose steps were not captured, and why


def _tell(loop: Loop, reason: str) -> None:
    """Say it once: an evaluation has many batches and policies."""
    found = loop.world.task, reason.splitlines()[0]
    if found not in told:
        told.add(found)
        logging.getLogger("mast_swarm").warning(
            "steps of task %s cannot be captured as a CUDA graph and run one kernel after the other: %s", *found
        )
