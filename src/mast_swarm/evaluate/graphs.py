"""Work that is the same again and again: on a GPU a captured CUDA graph, which waits for no Python; elsewhere as it
is."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch

from mast_swarm.evaluate.actors import Central
from mast_swarm.evaluate.loop import Loop
from mast_swarm.model.windowed import DENSE


def captured(work: Callable[[], None], device: torch.device, warm_up: int = 3) -> Callable[[], None]:
    """`work` reads and writes fixed tensors only. It runs `warm_up` times here before it is captured on a GPU: the
    caller puts back what that changed."""
    if device.type != "cuda":
        return work
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(warm_up):
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


class CapturedLoop:
    """A loop whose control periods run as one graph each: sense, measure, decide, move.

    The state lives in the same tensors for good, and so do the metrics of all instants. `metrics[name]` [B, T + 1] is
    filled up to the instant before the present one; `loop.state` is the present state.
    """

    def __init__(self, loop: Loop, instants: int) -> None:
        """loop: one that has started and that `capturable` takes; instants: how many are measured."""
        self.loop = loop
        start = loop.state
        loop.state = type(start)(**{name: value.clone() for name, value in vars(start).items()})
        self.at = torch.zeros(1, dtype=torch.int64, device=loop.world.device)  # the present instant
        self.metrics = {
            name: value.new_zeros(len(value), instants) for name, value in loop.world.metrics(start).items()
        }
        self.step = captured(self._instant, loop.world.device)
        for name, value in vars(start).items():
            getattr(loop.state, name).copy_(value)
        self.at.zero_()

    def measure(self) -> None:
        """The metrics of the present instant."""
        for name, value in self.loop.world.metrics(self.loop.state).items():
            rows = self.metrics[name]
            rows.index_copy_(1, self.at.clamp_max(rows.shape[1] - 1), value[:, None])  # warming up runs past the end

    def _instant(self) -> None:
        self.measure()
        self.loop.sense()
        after = self.loop.world.step(self.loop.state, self.loop.decide())
        for name, ours in vars(self.loop.state).items():
            ours.copy_(getattr(after, name))
        self.at += 1


def capturable(loop: Loop) -> bool:
    """Whether the whole control period is the same work each time: a policy in one pass on a GPU, over a mask of all
    pairs. Neighbour lists of larger teams are as long as the data say, and so are views of robots that run alone."""
    if loop.world.device.type != "cuda" or type(loop.actor) is not Central:
        return False
    tokens = loop.state.positions.shape[1] * (2 if getattr(loop.actor.policy.config, "variant", None) == "C" else 1)
    return loop.actor.attention_radius is None or tokens <= DENSE["cuda"]


def capture(loop: Loop, instants: int) -> CapturedLoop | None:
    """The loop with captured control periods; None where they cannot be, and a world that stands in the way is told."""
    if not capturable(loop):
        return None
    start = loop.state
    try:
        return CapturedLoop(loop, instants)
    except RuntimeError as error:  # for example a world that asks the GPU for a number on its way
        loop.state = start
        logging.getLogger("mast_swarm").warning(
            "steps of task %s cannot be captured as a CUDA graph and run one kernel after the other: %s",
            loop.world.task,
            str(error).splitlines()[0],
        )
        return None
