"""The CVT controllers: parity with reference numbers, and the rules one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.special import erfc

from mast_swarm.errors import MastError
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.controllers import CentralizedCvt, Clairvoyant, DecentralizedCvt
from mast_swarm.tasks.coverage.density import gaussian_sum, normalised
from mast_swarm.tasks.coverage.world import Coverage
from mast_swarm.tasks.registry import find

CONTROLLERS = {
    "ClairvoyantCVT": Clairvoyant,
    "CentralizedCVT": CentralizedCvt,
    "DecentralizedCVT": DecentralizedCvt,
}
SETTINGS = {"dt": 0.2, "max_speed": 5.0}


@pytest.fixture(scope="module")
def reference() -> dict[str, np.ndarray]:
    with np.load(Path(__file__).parents[2] / "fixtures" / "coverage_reference.npz") as file:
        return dict(file)


def noisy_density(reference: dict[str, np.ndarray], environment: int) -> np.ndarray:
    """The density [y, x] of an environment with the very roundings of the reference: a cell's integral is added as four
    quarter-plane integrals one after the other, in float32 (see the fixture's README)."""
    f = np.float32
    total = np.zeros((1024, 1024), f)
    features = (reference[name][environment] for name in ("mean", "sigma", "scale", "erfc_ulps"))
    for mean, sigma, scale, ulps in zip(*features, strict=True):
        tails, offsets, first = [], [], np.floor(mean - 2 * sigma).astype(int)
        for axis in range(2):
            edge = np.arange(first[axis], first[axis] + ulps.shape[1])
            at = (edge.astype(f) - f(mean[axis])) / f(sigma) * f(1 / np.sqrt(2))
            tail = erfc(at.astype(float)).astype(f)
            tails.append((tail.view(np.int32) + ulps[axis].astype(np.int32)).view(f))
            offsets.append((edge[:-1].astype(f) + f(0.5) - f(mean[axis])).astype(float))
        quarter = f(scale / 4) * tails[0] * tails[1][:, None]
        x, y = (slice(max(k, 0), min(k + len(quarter) - 1, 1024)) for k in first)
        rows, columns = slice(y.start - first[1], y.stop - first[1]), slice(x.start - first[0], x.stop - first[0])
        value = total[y, x]
        value = value + quarter[:-1, :-1][rows, columns] - quarter[:-1, 1:][rows, columns]
        value = value - quarter[1:, :-1][rows, columns] + quarter[1:, 1:][rows, columns]
        inside = np.hypot(offsets[0], offsets[1][:, None]) < 2 * float(f(sigma))
        total[y, x] = np.where(inside[rows, columns], value, total[y, x])
    return total * (f(1) / total.max())


@pytest.fixture(scope="module")
def densities(reference) -> np.ndarray:
    return np.stack([noisy_density(reference, e) for e in range(len(reference["J0"]))])


@pytest.fixture(scope="module")
def start(reference, densities):
    world = Coverage()
    state = world.state(torch.from_numpy(reference["pos0"]), torch.from_numpy(densities))
    return state, world.observe(state)


def test_density_agrees_with_the_reference(reference, densities):
    for e, noisy in enumerate(densities):
        features = (reference[name][e] for name in ("mean", "sigma", "scale"))
        exact = normalised(gaussian_sum(*features, CoverageConfig()), "the reference")
        # One cell in all 20 maps has its centre on a feature's edge to 1e-7, where float32 decides otherwise.
        assert (np.abs(exact - noisy) > 2e-3).sum() <= 1


def test_cost_agrees_with_the_reference(reference, start):
    assert start[0].start_cost.numpy() == pytest.approx(reference["J0"], rel=1e-6)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_goals_and_commands_agree_with_the_reference(name, reference, start):
    controller = CONTROLLERS[name](**SETTINGS)
    goals = controller.goals(*start)
    np.testing.assert_allclose(goals, reference[f"goals0_{name}"], rtol=0, atol=1e-6)
    # A goal that is off by 1e-6 m gives a command that is off by 1e-6 m / dt.
    commands = controller.act(*start) * SETTINGS["max_speed"]
    np.testing.assert_allclose(commands, reference[f"actions0_{name}"], rtol=0, atol=5e-6)


@pytest.mark.parametrize("name", CONTROLLERS)
def test_whole_trajectory_agrees_with_the_reference(name, reference, densities):
    """600 steps of environment 0 with the freeze rule; the trajectory is kept in float32, good to 6e-5 m."""
    world, controller = Coverage(), CONTROLLERS[name](**SETTINGS, freeze=True)
    controller.start()
    state = world.state(torch.from_numpy(reference["pos0"][:1]), torch.from_numpy(densities[:1]))
    path = [state.positions]
    for _ in range(600):
        state = world.step(state, controller.act(state, world.observe(state)))
        path.append(state.positions)
    np.testing.assert_allclose(torch.cat(path)[::5], reference[f"X_{name}"], rtol=0, atol=6.2e-5)


def test_freeze_rule_matters_and_is_forgotten_at_the_start(reference, densities):
    """A robot that stands three instants is held, until an episode begins."""
    world = Coverage()
    state = world.state(torch.from_numpy(reference["pos0"][:1]), torch.from_numpy(densities[:1]))
    sight, controller = world.observe(state), Clairvoyant(**SETTINGS, freeze=True)
    lengths = [float(controller.act(state, sight).norm()) for _ in range(4)]
    assert min(lengths[:3]) > 0 and lengths[3] == 0
    controller.start()
    assert controller.act(state, sight).norm() > 0


def test_registered_for_coverage():
    assert find("coverage").controller_names == ["c-cvt", "clairvoyant", "d-cvt"]
    assert isinstance(find("coverage").make_controller("d-cvt", **SETTINGS), DecentralizedCvt)


def test_area_rule_changes_empty_cells_only(start):
    state, sight = start
    by_vertices = DecentralizedCvt(**SETTINGS).goals(state, sight)
    by_area = DecentralizedCvt(**SETTINGS, empty="area").goals(state, sight)
    changed = (by_vertices - by_area).norm(dim=-1)
    empty = DecentralizedCvt(**SETTINGS)._moments(state, sight)[..., 0] == 0
    assert 0 < int(empty.sum()) < empty.numel()
    assert (changed[~empty] == 0).all()
    assert changed[empty].max() > 1.0


def test_commands_are_limited_and_reach_near_goals():
    world = Coverage(CoverageConfig(agents=4, side=128, sensor=32, local_map=64, features=3, sigma=(5, 10)))
    state = world.reset([0, 1])
    controller = Clairvoyant(dt=0.2, max_speed=5.0)
    goals = controller.goals(state, world.observe(state))
    command = controller.act(state, world.observe(state)).double()
    assert (command.norm(dim=-1) < 1 + 1e-6).all()
    way = goals - state.positions.double()
    cross = way[..., 0] * command[..., 1] - way[..., 1] * command[..., 0]
    assert cross.abs().max() < 1e-4
    swift = Clairvoyant(dt=1000.0, max_speed=5.0).act(state, world.observe(state))
    np.testing.assert_allclose(state.positions + swift * 5000, goals, atol=1e-3)


def test_bad_settings():
    with pytest.raises(MastError, match="dt is 0"):
        Clairvoyant(dt=0.0, max_speed=5.0)
    with pytest.raises(MastError, match=r"rule for empty cells 'verteces'.*did you mean vertices"):
        Clairvoyant(dt=0.2, max_speed=5.0, empty="verteces")


def test_order_of_the_controllers():
    """Who knows more covers better: the table in small, 2 environments (benchmarks/coverage_means has it whole)."""
    world = Coverage()
    averages = {}
    for name in ("clairvoyant", "c-cvt", "d-cvt"):
        controller, state = find("coverage").make_controller(name, **SETTINGS), world.reset(range(2))
        for _ in range(300):
            state = world.step(state, controller.act(state, world.observe(state)))
        averages[name] = float(world.metrics(state)["cost_time_average"].mean())
    assert averages["clairvoyant"] < 0.5 < averages["c-cvt"] < averages["d-cvt"] < 0.9
