"""Small made-up rollouts: robots go straight to the goals that an assignment gives them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

from mast_swarm.evaluate.recording import Recording

SPEED = 5.0  # m/s
SUCCESS_RADIUS = 5.0  # m


def simulate(
    robots: int = 30,
    steps: int = 60,
    seed: int = 0,
    policy: str = "lsap",
    delay: float | None = None,
    attention_radius: float | None = 250.0,
    taking_part: float = 1.0,
) -> Recording:
    """`taking_part` is the share of the robots that move at all."""
    rng = np.random.default_rng(seed)
    width = 1000 * np.sqrt(robots / 100)
    start = rng.uniform(-width / 2, width / 2, (robots, 2))
    goals = rng.uniform(-width / 2, width / 2, (robots, 2)).astype(np.float32)
    _, chosen = linear_sum_assignment(cdist(start, goals) ** 2)
    way = goals[chosen] - start
    length = np.linalg.norm(way, axis=1)
    still = np.arange(robots) >= taking_part * robots
    reach = np.minimum(np.arange(steps + 1)[:, None] * SPEED, np.where(still, 0, length))
    positions = (start + way * (reach / length)[..., None]).astype(np.float32)  # [T+1, N, 2]

    k = 3
    neighbours = np.full((steps + 1, robots, k), -1, np.int32)
    goals_seen = np.full((steps + 1, robots, k), -1, np.int32)
    success_rate = np.zeros(steps + 1, np.float32)
    for frame, points in enumerate(positions):
        tree = cKDTree(points)
        others = min(k, robots - 1)
        if others:
            neighbours[frame, :, :others] = tree.query(points, k=others + 1)[1][:, 1:]
        near = min(k, robots)
        goals_seen[frame, :, :near] = np.reshape(cKDTree(goals).query(points, k=near)[1], (robots, near))
        success_rate[frame] = (tree.query(goals)[0] < SUCCESS_RADIUS).mean()
    return Recording(
        policy=policy,
        scenario="clusters",
        seed=seed,
        delay=delay,
        dt=1.0,
        width=float(width),
        success_radius=SUCCESS_RADIUS,
        attention_radius=attention_radius,
        goals=goals,
        positions=positions,
        neighbours=neighbours,
        goals_seen=goals_seen,
        success_rate=success_rate,
    )


@pytest.fixture(scope="session")
def make_recording() -> Callable[..., Recording]:
    return simulate
