"""The tasks that are timed against the peer are done, not put off."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from mast_swarm import Coverage, CoverageConfig

ROOT = Path(__file__).parents[2]


def test_the_timed_observation_draws_its_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import coverage

    world = Coverage(CoverageConfig(agents=3, features=3, side=128.0, sensor=32.0, local_map=64.0))
    state = world.reset([0])
    found = coverage.ours(world, state)["observation"]()
    assert isinstance(found, torch.Tensor) and torch.equal(found, world.observe(state).features)
