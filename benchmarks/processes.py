"""Cells of a study in one process, in several, and on a Ray cluster of this machine: python -m benchmarks.processes.

Eight evaluations of the shipped MAST-M take the same ways that `mast reproduce --jobs N` and `--ray` take. Ways take
turns, so that a noisy spell hits all alike. The time is that of all cells, with the start of the processes that run
them; a Ray cluster runs already. Each node of the cluster has one processor core.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from benchmarks.measure import line, machine
from mast_swarm.files import write_json

WAYS = {  # processes or nodes, whether of Ray, and threads of each
    "one process, one thread": (1, False, 1),
    "one process, a thread per core": (1, False, os.cpu_count() or 1),
    "two processes, one thread each": (2, False, 1),
    "Ray, one node": (1, True, 1),
    "Ray, two nodes": (2, True, 1),
}
CELLS, TEAM = 8, {"agents": 100, "episodes": 9, "steps": 100}


def timed(jobs: int, cells: int, ray: bool) -> float:
    """Seconds for all cells, in this process and those that it starts."""
    from mast_swarm.paper.experiment import Size
    from mast_swarm.paper.work import run
    from mast_swarm.pool import Job, pool

    cluster: Any = None
    if ray:
        from ray.cluster_utils import Cluster

        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        for _ in range(jobs - 1):
            cluster.add_node(num_cpus=1)
    with tempfile.TemporaryDirectory() as scratch:
        made = [Size().navigation("mast-m", **TEAM, seed=seed) for seed in range(cells)]
        work = [Job(cell.name, run, (cell, {}, "cpu", scratch)) for cell in made]
        workers = pool(cluster.address if cluster else None, jobs)
        began = time.perf_counter()
        found = [result for _, result in workers.run(work)]
        seconds = time.perf_counter() - began
        workers.close()
    if cluster:
        cluster.shutdown()
    assert len(found) == cells
    return seconds


def apart(way: str, cells: int) -> float:
    """The same in a process of its own, which has the threads of the way."""
    jobs, ray, threads = WAYS[way]
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS")
    env = os.environ | {name: str(threads) for name in names}
    words = f"from benchmarks.processes import timed; print(timed({jobs}, {cells}, {ray}))"
    done = subprocess.run([sys.executable, "-c", words], env=env, check=True, stdout=subprocess.PIPE, text=True)
    return float(done.stdout.splitlines()[-1])


@dataclass(frozen=True)
class Config:
    """Cells in several processes."""

    turns: int = 2
    """How often each way is taken."""
    cells: int = CELLS
    """How many evaluations."""
    out: Path = Path(__file__).parent / "results" / "processes.json"
    """File for the result."""

    def __post_init__(self) -> None:
        if min(self.turns, self.cells) < 1:
            raise SystemExit(f"--turns {self.turns} --cells {self.cells}: give 1 or more of each")


def main(config: Config) -> None:
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(config.turns):
        for way in list(WAYS) if turn % 2 == 0 else reversed(WAYS):
            found[way].append(apart(way, config.cells))
            print(f"{way}: {found[way][-1]:.1f} s", flush=True)
    one = statistics.median(found["one process, one thread"])
    rows = [
        {"way": way, "seconds": statistics.median(times), "faster": one / statistics.median(times)}
        for way, times in found.items()
    ]
    about = {"machine": machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0], "turns": config.turns}
    write_json(config.out, {"benchmark": "processes", **about, "cells": config.cells, "each": TEAM, "rows": rows})
    print("\n".join(map(line, rows)))


if __name__ == "__main__":
    main(tyro.cli(Config, prog="python -m benchmarks.processes"))
