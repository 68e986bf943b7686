"""The coverage world on one CPU thread against coverage-control 1.3.1: cost, clairvoyant, D-CVT, observation, memory.

Both sides work on the same density and positions and take turns, each in its own process. Times are taken at the start,
and again after the clairvoyant has driven both for a while: what our robots have seen is kept so that the little they
know at first costs little. coverage-control is GPL-3.0 and lives in an environment of its own, .venv-peer, which
`make bench-coverage` sets up; this project takes nothing from it.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from benchmarks.measure import benchmark, medians
from mast_swarm.space.voronoi import cell_moments
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.controllers import Clairvoyant, DecentralizedCvt
from mast_swarm.tasks.coverage.world import Coverage, CoverageState

PEER = Path(__file__).parents[1] / ".venv-peer" / "bin" / "python"
SIZES = ((32, 1024), (128, 2048))  # robots and features, side in metres
WALK = 200  # control periods of the clairvoyant between the two instants at which times are taken
TURNS, IN_A_ROW = 7, 5  # each side takes turns of a few runs; the other does not spoil its caches within one
LEAST, LEAST_MEMORY = 5.0, 10.0  # how many times faster, and smaller, this project promises to be


class Peer:
    """The other process, asked one thing at a time."""

    def __init__(self, starts: str) -> None:
        if not PEER.exists():
            raise SystemExit("the benchmark's peer is not installed: `make bench-coverage` does so in .venv-peer")
        names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
        command = [str(PEER), str(Path(__file__).with_name("coverage_peer.py")), starts]
        settings = os.environ | dict.fromkeys(names, "1")
        quiet = subprocess.DEVNULL  # it reports on standard error that it found no CUDA
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=quiet, text=True, env=settings)

    def ask(self, task: str) -> float:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(task + "\n")
        self.process.stdin.flush()
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise SystemExit(f"the benchmark's peer stopped at '{task}'")
            try:
                return float(line)
            except ValueError:
                continue  # what the library prints


def ours(world: Coverage, state: CoverageState) -> dict[str, Callable[[], object]]:
    """The same tasks on our side."""
    sight = world.observe(state)
    clairvoyant, d_cvt = (kind(dt=0.2, max_speed=5.0) for kind in (Clairvoyant, DecentralizedCvt))

    def moments() -> torch.Tensor:
        return cell_moments(state.positions, state.density, state.sums, 1.0)

    return {
        "cost": lambda: moments()[..., 3].sum(),
        # A state comes with what the clairvoyant reads; here it is computed anew, as the peer does.
        "clairvoyant": lambda: clairvoyant.act(replace(state, moments=moments()), sight),
        "d_cvt": lambda: d_cvt.act(state, sight),
        "observation": lambda: world.observe(state).features,
    }


def compare(agents: int, side: int) -> dict[str, object]:
    """Milliseconds a task on both sides and their ratios, at the start of one environment and later, and memory."""
    world = Coverage(CoverageConfig(agents=agents, features=agents, side=side))
    state = world.reset([0])
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/starts.npz"
        positions = state.positions[0].numpy().astype(np.float64)
        np.savez(path, positions=positions, density=state.density[0].numpy(), side=side)
        peer = Peer(path)
        start = times(peer, world, state)
        memory = {"ours_mb": state_bytes(state) / 1e6, "peer_mb": peer.ask("memory") / 1e6}
        clairvoyant = Clairvoyant(dt=world.config.dt, max_speed=world.config.max_speed)
        for _ in range(WALK):
            state = world.step(state, clairvoyant.act(state, world.observe(state)))
            peer.ask("walk")
        later = times(peer, world, state)
        peer.process.kill()
    memory["ratio"] = memory["peer_mb"] / memory["ours_mb"]
    return {"agents": agents, "side": side, "tasks": start, "tasks_later": later, "memory": memory}


def times(peer: Peer, world: Coverage, state: CoverageState) -> dict[str, dict[str, float]]:
    """Milliseconds of every task on both sides, taking turns, and their ratio."""
    value = peer.ask("value")
    assert abs(float(state.cost[0] * state.start_cost[0]) / value - 1) < 1e-4  # it is the same environment
    rows = {}
    for name, run in ours(world, state).items():
        found = [(medians({name: run}, IN_A_ROW)[name], peer.ask(name)) for _ in range(TURNS)]
        mine, theirs = (statistics.median(part) for part in zip(*found, strict=True))
        rows[name] = {"ours_ms": mine * 1e3, "peer_ms": theirs * 1e3, "ratio": theirs / mine}
    return rows


def state_bytes(state: CoverageState) -> int:
    """What the state of one environment holds."""
    return sum(value.nbytes for value in vars(state).values())


def measured() -> dict[str, Any]:
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    rows = [compare(*size) for size in SIZES]
    cells = [side * side for _, side in SIZES]
    costs = [row["tasks"]["cost"]["ours_ms"] for row in rows]  # type: ignore[index]
    growth = (costs[1] / cells[1]) / (costs[0] / cells[0])
    about = {"threads": 1, "peer": "coverage-control 1.3.1", "later": WALK}
    return {**about, "cost_per_cell_growth": growth, "rows": rows}


def main() -> None:
    rows = benchmark("coverage", __doc__, measured)["rows"]
    parts = [row[when] for row in rows for when in ("tasks", "tasks_later")]
    ratios = [task["ratio"] for part in parts for task in part.values()]  # type: ignore[attr-defined]
    if min(ratios) < LEAST or min(row["memory"]["ratio"] for row in rows) < LEAST_MEMORY:  # type: ignore[index]
        print(f"a ratio is below {LEAST:g} (memory: {LEAST_MEMORY:g})", file=sys.stderr)
        raise SystemExit(1)


if __name__ == "__main__":
    main()
