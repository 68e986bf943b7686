"""Small rollouts: made-up ones of navigation, where robots go straight to the goals that an assignment gives them, and
real ones of coverage."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist

import mast_swarm.tasks.coverage.controllers  # noqa: F401  registers what drives the robots
from mast_swarm.evaluate.recording import Recording
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.world import Coverage

if TYPE_CHECKING:
    from browsing import WebDriver

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
        task="navigation",
        policy=policy,
        scenario="clusters",
        seed=seed,
        delay=delay,
        dt=1.0,
        width=float(width),
        attention_radius=attention_radius,
        settings={"success_radius": SUCCESS_RADIUS},
        positions=positions,
        metrics={"success_rate": success_rate},
        frames={"neighbours": neighbours, "goals_seen": goals_seen},
        scene={"goals": goals},
    )


@functools.cache
def cover(policy: str = "clairvoyant", robots: int = 12, steps: int = 60, seed: int = 0) -> Recording:
    """A rollout in a world of 512 m, where robots walk up to 5 m a step."""
    world = Coverage(CoverageConfig(agents=robots, features=6, side=512.0, dt=1.0, communication_range=160.0))
    return rollout(world, policy, [seed], steps, record=1).recordings[0]


@pytest.fixture(scope="session")
def make_recording() -> Callable[..., Recording]:
    return simulate


@pytest.fixture(scope="session")
def make_cover() -> Callable[..., Recording]:
    return cover


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebDriver]:
    from browsing import chromium  # skips what asks for it on a machine without one

    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        yield driver
