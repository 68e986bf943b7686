"""Runs so small that they train in a second, one a task and kind of policy."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from mast_swarm import CoverageConfig, NavigationConfig
from mast_swarm.model.config import LPACConfig, PolicyConfig
from mast_swarm.tasks.coverage.recipes import MAST as COVERAGE
from mast_swarm.train.config import TrainConfig
from shared import recipe


@pytest.fixture(scope="session")
def small() -> TrainConfig:
    return replace(
        recipe("paper"),
        world=NavigationConfig(agents=10, scenario="clusters-1"),
        policy=PolicyConfig(layers=2, heads=2, head_dim=8, exploration_time=50.0),
        epochs=3,
        environments=4,
        steps=6,
        carry=0.5,
        replay=40,
        batch=8,
        lr=1e-3,
        schedule="cosine",
        clip=1.0,
        ema=0.9,
        validation=2,
        validation_steps=4,
        validate_every=2,
    )


@pytest.fixture(scope="session")
def small_coverage(small: TrainConfig) -> TrainConfig:
    """Two of its eight pictures' pixels are sensed at once, and some cells have no mass."""
    return replace(
        small,
        world=CoverageConfig(
            agents=5,
            features=3,
            side=128.0,
            resolution=2.0,
            sigma=(6.0, 10.0),
            dt=1.0,
            communication_range=64.0,
            sensor=16.0,
            local_map=64.0,
            pixels=8,
        ),
        policy=replace(
            COVERAGE, layers=2, heads=2, head_dim=8, message_dim=4, attention_radius=64.0, observation_dim=(4, 8, 8)
        ),
        keep_every=2,
        replay=60,
    )


@pytest.fixture(scope="session")
def small_lpac(small_coverage: TrainConfig) -> TrainConfig:
    policy = LPACConfig(layers=2, hops=2, width=8, head_width=8, message_dim=4, observation_dim=(4, 8, 8))
    return replace(small_coverage, policy=policy)


@pytest.fixture(scope="session")
def mast() -> list[str]:
    """The command `mast` of this very Python."""
    return [sys.executable, "-c", "from mast_swarm.cli import main; main()"]


@pytest.fixture(scope="session")
def alone() -> dict[str, str]:
    """The environment of a process with one thread: on a busy machine more would wait for one another."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
