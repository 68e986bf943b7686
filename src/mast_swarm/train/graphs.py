"""Run a fixed piece of work again and again: on a GPU as a captured CUDA graph, elsewhere as it is."""

from __future__ import annotations

from collections.abc import Callable

import torch


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
