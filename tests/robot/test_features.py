"""Features made of one robot's own data are those of the simulated worlds, in the manifest's order and scales."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm import CoverageConfig, NavigationConfig
from mast_swarm.errors import MastError
from mast_swarm.interop.manifest import perceived
from mast_swarm.robot.features import CoverageFeatures, Features, NavigationFeatures, nearest, resize_filter
from mast_swarm.tasks.base import Feature, WorldConfig
from mast_swarm.tasks.coverage.world import Coverage
from mast_swarm.tasks.coverage.world import resize_filter as torch_filter
from mast_swarm.tasks.navigation.world import Navigation


def manifest(config: Any) -> dict[str, Any]:
    return {"observation": perceived(config.observation_shape, config)}


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 7),
    st.integers(1, 7),
    st.integers(1, 4),
    st.sampled_from([20.0, 100.0]),
    st.booleans(),
)
def test_navigation(seed: int, robots: int, goals: int, observed: int, scale: float, grid: bool) -> None:
    config = NavigationConfig(agents=robots, observed=observed, length_scale=scale, max_speed=3.0)
    world, luck = Navigation(config), np.random.default_rng(seed)
    places, targets = (luck.uniform(-400, 400, (count, 2)).astype(np.float32) for count in (robots, goals))
    if grid:  # equal distances: the first of equals counts
        places, targets = np.round(places / 200) * 200, np.round(targets / 200) * 200
    state = world.state(torch.from_numpy(places)[None], torch.from_numpy(targets)[None])
    state = world.step(state, torch.from_numpy(luck.normal(size=(1, robots, 2)).astype(np.float32)))
    seen, features = world.observe(state), NavigationFeatures(manifest(config))
    place, velocity = state.positions[0].double().numpy(), state.velocity[0].double().numpy()
    for i in range(robots):
        told = velocity[i] * config.max_speed
        others = np.delete(place, i, axis=0) - place[i]
        sensed = features.sensed(place[i], told, targets - place[i], others)
        expected = seen.features[0, i].numpy()
        np.testing.assert_allclose(sensed.features, expected, rtol=1e-6, atol=2e-6)
        np.testing.assert_allclose(sensed.landmark, seen.landmark[0, i].numpy(), rtol=0, atol=1e-4)
        np.testing.assert_array_equal(sensed.position, place[i])
        np.testing.assert_allclose(sensed.sights, seen.sights[0, i].numpy(), rtol=0, atol=1e-4)
        parts = [features.last_command(told)[None], features.goals(targets - place[i]), features.robots(others)]
        np.testing.assert_array_equal(np.concatenate(parts).reshape(-1), sensed.features)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.booleans(), st.sampled_from([1.0, 2.0]))
def test_coverage(seed: int, with_seen: bool, resolution: float) -> None:
    config = CoverageConfig(
        agents=5, side=256.0, local_map=128.0, sensor=32.0, communication_range=90.0, seen_map=with_seen
    )
    config = CoverageConfig(**{**vars(config), "resolution": resolution})
    world, luck = Coverage(config), np.random.default_rng(seed)
    robots = [CoverageFeatures(manifest(config)) for _ in range(5)]
    density = luck.uniform(0.01, 1, (config.cells, config.cells)).astype(np.float32)
    state = world.state(luck.uniform(0, config.side, (1, 5, 2)).astype(np.float32), density[None])
    truth = np.pad(state.density[0].numpy(), config.sensor_cells)  # what lies outside is never looked at
    for step in range(4):
        place = state.positions[0].double().numpy()
        for i, robot in enumerate(robots):
            x, y = (corner + config.sensor_cells for corner in robot.window(place[i]))
            robot.looked(place[i], truth[y : y + config.sensor_cells, x : x + config.sensor_cells])
            sensed = robot.sensed(place[i], np.delete(place, i, axis=0) - place[i])
            if step == 3:
                expected = world.observe(state).features[0, i].numpy()
                np.testing.assert_allclose(sensed.features, expected, rtol=0, atol=3e-6)
        state = world.step(state, torch.from_numpy(luck.normal(size=(1, 5, 2)).astype(np.float32) * 3))
    others = np.delete(place, 4, axis=0) - place[4]
    maps = [robot.density(place[4]), robot.boundary(place[4]), robot.neighbours_x(others), robot.neighbours_y(others)]
    maps += [robot.seen_map(place[4])] if with_seen else []
    np.testing.assert_array_equal(np.stack(maps), sensed.features)


@settings(deadline=None)
@given(st.integers(1, 20), st.integers(0, 40))
def test_the_resize_is_that_of_torch(pixels: int, more: int) -> None:
    found = resize_filter(pixels + more, pixels)
    np.testing.assert_allclose(found, torch_filter(pixels + more, pixels).numpy(), rtol=0, atol=4e-6)


def test_a_task_of_ones_own() -> None:
    class Config(WorldConfig):
        def sensed(self) -> tuple[Feature, ...]:
            return (Feature("height", (1,), "m", 50.0), Feature("wind", (2,), "m/s", 10.0))

    features = Features({"observation": perceived((3,), Config())})
    np.testing.assert_array_equal(features.assembled({"wind": [5, -20], "height": [25]}), np.float32([0.5, 0.5, -2]))
    with pytest.raises(MastError, match="also perceives wind"):
        features.assembled({"height": [25]})
    with pytest.raises(MastError, match=r"does not perceive rain: its manifest has height, wind"):
        features.assembled({"height": [25], "wind": [0, 0], "rain": [1]})
    with pytest.raises(MastError, match=r"wind has shape \[3\]: expected \[2\]"):
        features.scaled("wind", [1, 2, 3])
    with pytest.raises(MastError, match="wind holds NaN or infinity: expected m/s"):
        features.scaled("wind", [1, np.nan])
    with pytest.raises(MastError, match="names no features"):
        Features({"observation": perceived((3,), WorldConfig())})


def test_features_of_another_task_are_refused() -> None:
    with pytest.raises(MastError, match="does not perceive density"):
        CoverageFeatures(manifest(NavigationConfig()))
    with pytest.raises(MastError, match="does not perceive goal_1"):
        NavigationFeatures(manifest(CoverageConfig())).sensed((0, 0), (0, 0), [], [])


def test_mistakes() -> None:
    with pytest.raises(MastError, match="places hold NaN"):
        nearest([[np.inf, 0]], 2)
    robot = CoverageFeatures(manifest(CoverageConfig()))
    with pytest.raises(MastError, match=r"importance has shape \[3, 3\]: expected \[64, 64\]"):
        robot.looked((5, 5), np.zeros((3, 3)))
    with pytest.raises(MastError, match="importance holds NaN"):
        robot.looked((5, 5), np.full((64, 64), np.nan))
