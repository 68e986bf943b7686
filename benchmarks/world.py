"""The navigation world on one CPU thread: a batched step against a plain loop with scipy, and how it grows with N."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import numba
import numpy as np
import torch
from scipy.spatial import cKDTree

from benchmarks.measure import benchmark, medians
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation

ENVIRONMENTS, AGENTS = 256, 100
SIZES = (100, 1_000, 10_000)


def plain_step(positions: np.ndarray, goals: np.ndarray, velocity: np.ndarray, command: np.ndarray) -> np.ndarray:
    """The same step for one environment as one would write it with scipy: motion, metrics, observation."""
    length = np.linalg.norm(command, axis=1, keepdims=True)
    velocity = command / np.maximum(length, 1)
    positions = positions + velocity * 5
    robots, targets = cKDTree(positions), cKDTree(goals)
    (robots.query(goals)[0] < 5).mean()
    len(robots.query_pairs(5, output_type="ndarray"))
    near_goals = goals[targets.query(positions, k=3)[1]] - positions[:, None]
    near_robots = positions[robots.query(positions, k=4)[1][:, 1:]] - positions[:, None]
    flat = (len(positions), 6)
    return np.concatenate([velocity, near_goals.reshape(flat) / 100, near_robots.reshape(flat) / 100], axis=1)


def ratio() -> dict[str, float]:
    """Batched step against the loop, the same work on both sides."""
    world = Navigation(NavigationConfig(agents=AGENTS))
    state = world.reset(range(ENVIRONMENTS))
    command = torch.rand((ENVIRONMENTS, AGENTS, 2), generator=torch.Generator().manual_seed(0)) * 2 - 1

    def batched() -> torch.Tensor:
        after = world.step(state, command)
        world.metrics(after)
        return world.observe(after).features

    arrays = [x.numpy().astype(float) for x in (state.positions, state.goals, state.velocity, command)]

    def loop() -> np.ndarray:
        return np.stack([plain_step(*rows) for rows in zip(*arrays, strict=True)])

    assert np.allclose(batched().numpy(), loop(), atol=1e-3)  # it is the same work
    found = medians({"batched": batched, "loop": loop})
    return {
        "batched_ms": found["batched"] * 1e3,
        "loop_ms": found["loop"] * 1e3,
        "ratio": found["loop"] / found["batched"],
    }


def growth(agents: int) -> dict[str, float]:
    """Time per step and peak memory of one environment of this size."""
    import resource

    world = Navigation(NavigationConfig(agents=agents))
    small = Navigation(NavigationConfig(agents=3_000))  # compiles both the dense and the cell kernels
    for warm in (Navigation(NavigationConfig(agents=50)), small):
        state = warm.reset([0])
        warm.observe(state)
        warm.metrics(state)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    state = world.reset([0])
    command = torch.rand((1, agents, 2), generator=torch.Generator().manual_seed(0)) * 2 - 1
    times = []
    for _ in range(20):
        began = time.perf_counter()
        state = world.step(state, command)
        world.metrics(state)
        world.observe(state)
        times.append(time.perf_counter() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "agents": agents,
        "step_ms": float(np.median(times)) * 1e3,
        "peak_mb_above_start": (peak - before) / 1024,
    }


def growth_apart(agents: int) -> dict[str, float]:
    """The same in a process of its own."""
    code = f"import json; from benchmarks import world; world.one_thread(); print(json.dumps(world.growth({agents})))"
    done = subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def one_thread() -> None:
    torch.set_num_threads(1)
    numba.set_num_threads(1)


def main() -> dict[str, Any]:
    one_thread()
    sizes = [growth_apart(agents) for agents in SIZES]
    return {"environments": ENVIRONMENTS, "agents": AGENTS, "threads": 1, **ratio(), "growth": sizes}


if __name__ == "__main__":
    benchmark("world", __doc__, main)
