"""Work for a cluster, in a module that its processes can import."""

from __future__ import annotations

import os
import time
from pathlib import Path

import ray


def slow(folder: str, number: int) -> int:
    """Says on which machine it began, and takes a second."""
    node = ray.get_runtime_context().get_node_id()
    (Path(folder) / f"{number}-{node}-{os.getpid()}-{time.monotonic_ns()}").touch()
    time.sleep(1.0)
    return number * number
