"""A run so small that it trains in a second."""

from __future__ import annotations

import os
import sys
from dataclasses import replace

import pytest

from mast_swarm.model.config import PolicyConfig
from mast_swarm.train.config import TrainConfig, recipe
from mast_swarm.world.config import NavigationConfig


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
def mast() -> list[str]:
    """The command `mast` of this very Python."""
    return [sys.executable, "-c", "from mast_swarm.cli import main; main()"]


@pytest.fixture(scope="session")
def alone() -> dict[str, str]:
    """The environment of a process with one thread: on a busy machine more would wait for one another."""
    return {**os.environ, "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}
