"""Assignment: this project's solver against scipy along the expert's way, and the cost of DHBA-8 for a thousand robots.

    python -m benchmarks.assignment [--out FOLDER]

Everything runs on one thread, and both solvers see the same steps of the same trajectories: robots drive at 5 m/s
straight to the goals that LSAP gives them, solved anew each second, in a square of width 1000 m * sqrt(N/100).
scipy's time includes the matrix of squared distances, ours everything from tensors to tensors. 32 environments in a
call is what training does; with one environment of 100 robots in a call, much of our time goes into the call itself.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from types import SimpleNamespace
from typing import Any

import numba
import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from torch import Tensor

from benchmarks import measure
from mast_swarm.space import nearest, neighbour_graph
from mast_swarm.space.assignment import assign
from mast_swarm.tasks.navigation.controllers import Dhba

STARTS = {"uniform": (1, 1), "robots in tens": (10, 1), "goals in tens": (1, 10), "both in tens": (10, 10)}


def scatter(rng: np.random.Generator, batch: int, number: int, cluster: int) -> Tensor:
    """Points [batch, number, 2] in metres: clusters of so many, uniform over disks; 1 is uniform over the square."""
    half = 500.0 * np.sqrt(number / 100)
    centres = rng.uniform(-half, half, (batch, -(-number // cluster), 2)).repeat(cluster, axis=1)[:, :number]
    radius = 0.0 if cluster == 1 else 25.0 * np.sqrt(cluster)
    angle = rng.uniform(0, 2 * np.pi, (batch, number))
    offset = radius * np.sqrt(rng.uniform(0, 1, (batch, number)))
    points = centres + np.stack([offset * np.cos(angle), offset * np.sin(angle)], axis=-1)
    return torch.tensor(points, dtype=torch.float32)


def step(positions: Tensor, goals: Tensor, goal: Tensor) -> Tensor:
    way = goals.gather(1, goal.unsqueeze(-1).expand(-1, -1, 2)) - positions
    return positions + way * (5.0 / way.norm(dim=-1, keepdim=True).clamp(min=5.0))


def scipy_solve(positions: Tensor, goals: Tensor) -> list[float]:
    """The least totals, one environment after the other."""
    totals = []
    for p, g in zip(positions.double().numpy(), goals.double().numpy(), strict=True):
        matrix = cdist(p, g, "sqeuclidean")
        totals.append(matrix[linear_sum_assignment(matrix)].sum())
    return totals


def compare(number: int, batch: int, steps: int, seeds: int, kind: str) -> dict[str, Any]:
    """Medians over the steps and starts of one kind, after the first step of each, which has no warm start."""
    ours, theirs, first, error = [], [], [], 0.0
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        positions, goals = (scatter(rng, batch, number, cluster) for cluster in STARTS[kind])
        warm = None
        for t in range(steps):
            begin = time.perf_counter()
            goal, warm = assign(positions, goals, warm)
            middle = time.perf_counter()
            least = np.array(scipy_solve(positions, goals))
            end = time.perf_counter()
            total = (goals.double().gather(1, goal.unsqueeze(-1).expand(-1, -1, 2)) - positions.double()).square()
            gap = np.abs(total.sum(dim=(1, 2)).numpy() - least) / np.maximum(least, 1e-6)
            error = max(error, float(gap.max()))
            if t == 0:
                first.append((end - middle) / (middle - begin))
            else:
                ours.append(middle - begin)
                theirs.append(end - middle)
            positions = step(positions, goals, goal)
    return {
        "robots": number,
        "batch": batch,
        "start": kind,
        "steps": len(ours),
        "ours_us": 1e6 * float(np.median(ours)),
        "scipy_us": 1e6 * float(np.median(theirs)),
        "ratio": float(np.median(theirs) / np.median(ours)),
        "ratio_of_sums": float(np.sum(theirs) / np.sum(ours)),
        "ratio_first_step": float(np.median(first)),
        "largest_relative_error": error,
    }


def dhba(number: int, k: int, steps: int) -> dict[str, Any]:
    """Seconds for a step of one environment, and memory; to be run in a process of its own."""
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    _dhba_steps(Dhba(k, dt=1.0, max_speed=5.0), scatter(rng, 1, 20, 1), scatter(rng, 1, 20, 1), 2)
    positions, goals = scatter(rng, 1, number, 1), scatter(rng, 1, number, 1)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = _dhba_steps(Dhba(k, dt=1.0, max_speed=5.0), positions, goals, steps)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "robots": number,
        "k": k,
        "steps": steps,
        "seconds_first_step": seconds[0],
        "seconds_a_step": float(np.median(seconds)),
        "seconds_slowest_step": max(seconds),
        "memory_added_mb": (after - before) / 1024,
        "memory_of_process_mb": after / 1024,
    }


def _dhba_steps(controller: Dhba, positions: Tensor, goals: Tensor, steps: int) -> list[float]:
    seconds = []
    for _ in range(steps):
        neighbours = nearest(positions, positions, 3, exclude_self=True)[1]
        goals_seen = nearest(positions, goals, 3)[1]
        observation = SimpleNamespace(neighbours=neighbours, goals_seen=goals_seen, graph=neighbour_graph(neighbours))
        begin = time.perf_counter()
        command = controller.act(SimpleNamespace(positions=positions, goals=goals), observation)
        seconds.append(time.perf_counter() - begin)
        positions = positions + 5.0 * command
    return seconds


def main() -> dict[str, Any]:
    numba.set_num_threads(1)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    for batch in (1, 2):  # compile
        assign(scatter(rng, batch, 10, 1), scatter(rng, batch, 10, 1))
    dhba(20, 1, 1)
    rows = []
    print(f"{'robots':>6} {'batch':>5} {'start':<15} {'ours':>10} {'scipy':>12} {'ratio':>7} {'of sums':>8}")
    for number, batch, steps, seeds in ((100, 1, 150, 4), (100, 32, 150, 1), (1000, 1, 100, 1)):
        for kind in STARTS:
            row = compare(number, batch, steps, seeds, kind)
            rows.append(row)
            times = f"{row['ours_us']:>7.0f} us {row['scipy_us']:>9.0f} us"
            print(f"{number:>6} {batch:>5} {kind:<15} {times} {row['ratio']:>7.1f} {row['ratio_of_sums']:>8.1f}")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        thousand = pool.apply(dhba, (1000, 8, 20))
    seconds = f"{thousand['seconds_a_step']:.3f} s a step (slowest {thousand['seconds_slowest_step']:.3f} s)"
    memory = f"{thousand['memory_added_mb']:.0f} MB more, {thousand['memory_of_process_mb']:.0f} MB in all"
    print(f"DHBA-8, 1000 robots: {seconds}, {memory}")
    return {"threads": 1, "against_scipy": rows, "dhba": thousand}


if __name__ == "__main__":
    measure.benchmark("assignment", __doc__, main)
