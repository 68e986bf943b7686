"""Work for a cluster, in a module that its processes can import."""

from __future__ import annotations

import os
import time
from pathlib import Path

import ray


def doomed(folder: str, node: str, number: int) -> int:
    """Says where it began. On the node that is to die it never ends; elsewhere it waits until that node has begun."""
    here = ray.get_runtime_context().get_node_id()
    (Path(folder) / f"{number}-{here}-{os.getpid()}-{time.monotonic_ns()}").touch()
    until = time.monotonic() + 120.0  # nothing waits for ever, should the node be given no work or not die
    while time.monotonic() < until and (here == node or not any(Path(folder).glob(f"*-{node}-*"))):
        time.sleep(0.05)
    return number * number
