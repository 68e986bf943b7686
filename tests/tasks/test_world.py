"""The base of all worlds: start states, motion, and what a world that says nothing more does."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from mast_swarm import MastError, Observation, radius_graph, register
from mast_swarm.tasks.base import WorldConfig
from mast_swarm.tasks.world import World, checked_command, limited, packed_bits
from strolling import Config, Strolling, strolling

SEEDS = [3, 1, 4, 15, 9, 2, 6]


@pytest.fixture(autouse=True)
def known() -> None:
    register(strolling())


@pytest.fixture
def world() -> Strolling:
    return Strolling(Config())


def test_a_world_has_five_methods_of_its_own() -> None:
    assert World.__abstractmethods__ == {"draw", "begin", "observe", "step", "metrics"}
    with pytest.raises(TypeError, match="abstract"):
        World(Config())  # type: ignore[abstract]


def test_start_states_stand_in_the_order_of_their_seeds_in_any_batch(world: Strolling) -> None:
    (drawn,) = world.draw_all(SEEDS)
    assert drawn.dtype == torch.float32 and drawn.shape == (7, 5, 2)
    for number, seed in enumerate(SEEDS):
        np.testing.assert_array_equal(drawn[number], world.draw(seed, "random")[0])
        assert torch.equal(world.reset([seed]).positions[0], drawn[number])
    assert torch.equal(world.reset(SEEDS[::-1]).positions, drawn.flip(0))
    assert torch.equal(world.reset(np.array(SEEDS)).positions, drawn)  # type: ignore[arg-type]
    assert len(np.unique(drawn[:, 0, 0])) == 7  # so that the order can be wrong


def test_scenarios_are_given_to_the_draw_one_per_seed() -> None:
    class Named(Strolling):
        def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
            return (np.full((5, 2), len(scenario) * 100 + seed),)

    world = Named(Config())
    assert world.draw_all([1, 2])[0][:, 0, 0].tolist() == [601, 602]  # the config's own is `random`
    assert world.draw_all([1, 2], ["ab", "abc"])[0][:, 0, 0].tolist() == [201, 302]
    with pytest.raises(MastError, match="2 scenarios for 3 seeds: give one per seed"):
        world.draw_all([1, 2, 3], ["a", "b"])


def test_a_world_without_seeds_or_with_a_negative_one_is_refused(world: Strolling) -> None:
    with pytest.raises(MastError, match="0 scenarios for 0 seeds"):
        world.reset([])
    with pytest.raises(MastError, match="seed is -1: give a whole number, 0 or more"):
        world.reset([4, -1])


@pytest.mark.parametrize("seeds", [[0, 1], [0, 0, 0, 2]])
def test_environments_of_different_shapes_do_not_go_together(seeds: list[int]) -> None:
    class Growing(Strolling):
        def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
            return (np.zeros((5 + seed, 2)),)

    world = Growing(Config())
    shapes = rf"\[5, 2\] for seed 0 and float64 \[{5 + seeds[-1]}, 2\] for seed {seeds[-1]}"
    with pytest.raises(MastError, match=f"draw gives float64 {shapes}: environments of one batch"):
        world.draw_all(seeds)


def test_draws_of_one_batch_have_one_type_and_number() -> None:
    class Mixed(Strolling):
        def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
            whole = np.zeros((5, 2), np.int64)
            return ((whole,), (whole + 0.5,), (whole, whole))[seed]

    for other, told in ((1, "float64"), (2, r"int64 \[5, 2\], int64")):
        with pytest.raises(MastError, match=rf"draw gives int64 \[5, 2\] for seed 0 and {told}"):
            Mixed(Config()).draw_all([0, other])


def test_an_error_of_a_draw_comes_through() -> None:
    class Failing(Strolling):
        def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
            if seed == 9:
                raise MastError("no room for seed 9")
            return super().draw(seed, scenario)

    with pytest.raises(MastError, match="no room for seed 9"):
        Failing(Config()).reset(SEEDS)


def test_robots_move_as_far_as_they_can(world: Strolling) -> None:
    world = Strolling(Config(dt=0.5, max_speed=4.0))
    state = world.reset([0])
    command = torch.tensor([[[0.0, 0.0], [0.5, 0.0], [0.6, -0.8], [3.0, 4.0], [-1.0, 1.0]]])
    followed, moved = world.moved(state, command)
    half = 0.5**0.5
    torch.testing.assert_close(
        followed, torch.tensor([[[0.0, 0.0], [0.5, 0.0], [0.6, -0.8], [0.6, 0.8], [-half, half]]])
    )
    torch.testing.assert_close(moved, followed * 2.0)  # metres: 4 m/s for half a second
    assert torch.equal(world.step(state, command).positions, state.positions + moved)


@given(arrays.arrays(np.float64, (3, 4, 2), elements=st.floats(-1e6, 1e6)))
def test_a_command_is_scaled_back_not_clipped(given_command: np.ndarray) -> None:
    command = torch.from_numpy(given_command)
    followed = limited(command)
    length = torch.linalg.vector_norm(command, dim=-1)
    assert torch.equal(followed[length <= 1], command[length <= 1])
    torch.testing.assert_close(torch.linalg.vector_norm(followed, dim=-1), length.clamp(max=1))
    cross = followed[..., 0] * command[..., 1] - followed[..., 1] * command[..., 0]
    assert (cross.abs() <= 1e-9 * length.clamp(min=1)).all()  # the direction is kept


def test_a_command_that_cannot_be_meant_is_refused(world: Strolling) -> None:
    state = world.reset([0, 1])
    for shape in ((2, 5), (2, 4, 2), (1, 5, 2), (2, 5, 3)):
        with pytest.raises(MastError, match=r"command has shape .*: expected \[2, 5, 2\] \(environments, robots, 2\)"):
            world.moved(state, torch.zeros(shape))
    for value in (float("nan"), float("inf")):
        command = torch.zeros(2, 5, 2)
        command[1, 3, 0] = value
        with pytest.raises(MastError, match="command of robot 3 in environment 1 is not finite: check the policy"):
            world.step(state, command)
    command = torch.zeros(2, 5, 2)
    assert checked_command(command, (2, 5, 2)) is command


@settings(deadline=None)
@given(arrays.arrays(np.bool_, arrays.array_shapes(min_dims=1, max_dims=4, min_side=1, max_side=19)))
def test_bits_are_packed_as_numpy_packs_them(mask: np.ndarray) -> None:
    packed = packed_bits(torch.from_numpy(mask))
    assert packed.dtype == torch.uint8
    np.testing.assert_array_equal(packed.numpy(), np.packbits(mask, axis=-1, bitorder="little"))


def test_a_frame_keeps_who_hears_whom(world: Strolling) -> None:
    state = world.reset(SEEDS)
    frame = world.frame(state, world.observe(state))
    assert set(frame) == {"links"} and frame["links"].shape == (7, 5, 1)
    bits = np.unpackbits(frame["links"].numpy(), axis=-1, count=5, bitorder="little").astype(bool)
    p = state.positions.double().numpy()
    near = np.linalg.norm(p[:, :, None] - p[:, None], axis=-1) < world.config.reach
    np.testing.assert_array_equal(bits, near & ~np.eye(5, dtype=bool))
    assert 0 < bits.mean() < 0.8
    assert world.scene(state, torch.zeros(7, 1, 5, 2)) == {}


def test_a_frame_says_who_hears_not_who_is_heard(world: Strolling) -> None:
    state = world.reset([0])
    one_way = replace(world.observe(state).graph, source=torch.tensor([4]), target=torch.tensor([1]), directed=True)
    links = world.frame(state, replace(world.observe(state), graph=one_way))["links"]
    assert links[0, :, 0].tolist() == [0, 1 << 4, 0, 0, 0]  # robot 1 hears robot 4


def test_what_a_world_says_nothing_about(world: Strolling) -> None:
    state = world.reset(SEEDS)
    observation = world.observe(state)
    assert world.task == world.config.task == "strolling"
    assert world.pack(observation.features) is observation.features
    assert world.unpack(observation.features, state.positions) is observation.features
    assert world.shown(observation, (9,)) is observation
    with pytest.raises(MastError, match="strolling has no weights for --weighted: leave it out"):
        world.weights(state)
    with pytest.raises(MastError, match="strolling has no mirror images for --mirrored: leave it out"):
        world.mirrored({}, torch.zeros(1, dtype=torch.int64))


def test_an_observation_without_a_landmark_has_nothing_to_stay_near() -> None:
    positions = torch.randn(2, 3, 2, dtype=torch.float64)
    graph = radius_graph(positions, 1.0)
    seen = Observation(features=torch.zeros(2, 3, 1), positions=positions, graph=graph)
    assert torch.equal(seen.landmark, torch.zeros_like(positions)) and seen.landmark.dtype == torch.float64
    assert seen.goals is None
    told = Observation(features=torch.zeros(2, 3, 1), positions=positions, graph=graph, landmark=positions + 1)
    assert torch.equal(told.landmark, positions + 1)
    assert torch.equal(replace(told, features=torch.ones(2, 3, 1)).landmark, positions + 1)


def test_settings_that_every_world_has() -> None:
    config = Config()
    assert (config.agents, config.dt, config.max_speed, config.scenario) == (5, 1.0, 5.0, "random")
    assert WorldConfig(agents=100).side == 1000.0 and WorldConfig(agents=25).side == 500.0
    assert config.scenarios(3) == ["random"] * 3 and config.stated == ("scenario", "agents")
    assert config.observation_shape is None and config.shows((7,)) and config.fitted([(7,)]) is config
    assert Config(agents=10).bytes == 2 * config.bytes > 0
    for wrong, message in (
        ({"agents": 0}, "agents is 0: a team needs at least 1 robot"),
        ({"dt": 0.0}, "dt is 0.0: give a positive number"),
        ({"max_speed": float("nan")}, "max_speed is nan: give a positive number"),
    ):
        with pytest.raises(MastError, match=message):
            Config(**wrong)  # type: ignore[arg-type]


def test_a_step_in_place_keeps_the_state_as_it_is_made(world: Strolling) -> None:
    state, command = world.reset(SEEDS), torch.full((7, 5, 2), 0.3)
    after, places = world.step(state, command), state.positions
    world.advance(state, command)
    assert state.positions is places and torch.equal(places, after.positions) and torch.equal(state.step, after.step)

    class Doubling(Strolling):
        def step(self, state, command):  # type: ignore[no-untyped-def]
            after = super().step(state, command)
            return replace(after, positions=after.positions.double())

    with pytest.raises(MastError, match=r"positions of the state was torch\.float32"):
        Doubling(Config()).advance(state, command)
