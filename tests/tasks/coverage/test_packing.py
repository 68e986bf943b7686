"""What training keeps of an observation: a small part, from which with the positions all of it comes back."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm import CoverageConfig, NavigationConfig
from mast_swarm.tasks.coverage import _dense as dense
from mast_swarm.tasks.coverage.world import Coverage
from mast_swarm.tasks.navigation.world import Navigation


@settings(deadline=None, max_examples=20)
@given(
    seed=st.integers(0, 1000),
    agents=st.integers(1, 12),
    resolution=st.sampled_from([1.0, 2.0]),
    seen_map=st.booleans(),
)
def test_the_local_maps_and_the_positions_are_enough(seed: int, agents: int, resolution: float, seen_map: bool) -> None:
    world = Coverage(
        CoverageConfig(
            agents=agents, features=4, side=128.0, resolution=resolution, sigma=(8.0, 20.0), communication_range=60.0,
            sensor=32.0, local_map=96.0, pixels=12, seen_map=seen_map,
        )
    )  # fmt: skip
    state = world.reset([seed, seed + 1])
    for _ in range(3):
        features = world.observe(state).features
        packed = world.pack(features)
        assert packed.dtype == torch.uint8 and packed.shape == (2, agents, 1 + seen_map, 12, 12)
        again = world.unpack(packed, state.positions)
        assert again.shape == features.shape and again.dtype == features.dtype
        assert torch.equal(again[:, :, 1:4], features[:, :, 1:4])
        torch.testing.assert_close(again, features, rtol=0, atol=0.5 / 255 + 1e-6)
        assert torch.equal(world.pack(again), packed)
        corner = world._corner(state.positions, world.config.map_cells)
        in_torch = dense.with_surroundings(
            packed / 255, corner, world._share, world.config.cells, state.positions, world.config.communication_range
        )
        torch.testing.assert_close(in_torch, again, rtol=1e-5, atol=1e-6)
        away = torch.full_like(state.positions, 10.0) * torch.tensor([1.0, 0.3])
        state = world.step(state, away)


def test_the_maps_use_all_of_their_range() -> None:
    world = Coverage(CoverageConfig(agents=20, features=4, side=256.0, sensor=128.0, local_map=128.0))
    features = world.observe(world.reset([0])).features
    assert int(world.pack(features).max()) > 200


@pytest.mark.parametrize("agents", [2, 9])
def test_navigation_keeps_its_few_numbers_as_they_are(agents: int) -> None:
    world = Navigation(NavigationConfig(agents=agents))
    state = world.reset([0, 1])
    features = world.observe(state).features
    assert torch.equal(world.unpack(world.pack(features), state.positions), features)
