"""The coverage world: start states, sensing, observation, motion, cost."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from devices import GPU, few, plainly
from mast_swarm.errors import MastError
from mast_swarm.space.maps import unpack, words
from mast_swarm.tasks.coverage import _dense as dense
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.world import Coverage, CoverageState, resize_filter
from mast_swarm.tasks.registry import find

SMALL = {"agents": 5, "side": 150.0, "features": 4, "sigma": (8.0, 15.0), "sensor": 16.0, "local_map": 64.0}
SMALL |= {"communication_range": 60.0, "pixels": 8}


def world(device: str = "cpu", **fields) -> Coverage:
    return Coverage(CoverageConfig(**(SMALL | fields)), device)


def wander(w: Coverage, state: CoverageState, steps: int, seed: int = 0) -> list[CoverageState]:
    """The states of a walk in random directions, long enough to meet the walls."""
    rng, states = np.random.default_rng(seed), [state]
    heading = torch.from_numpy(rng.normal(size=tuple(state.positions.shape)))
    for _ in range(steps):
        heading = heading + 0.3 * torch.from_numpy(rng.normal(size=tuple(state.positions.shape)))
        states.append(w.step(states[-1], (heading / heading.norm(dim=-1, keepdim=True)).to(state.positions)))
    return states


def windows(p: np.ndarray, config: CoverageConfig) -> np.ndarray:
    """[S, S] bool: what a robot at p senses, from the rule."""
    seen = np.zeros((config.cells, config.cells), bool)
    half = config.sensor_cells // 2
    x, y = (math.floor(c / config.resolution + 0.5) - half for c in p.tolist())
    size = config.sensor_cells
    seen[max(y, 0) : max(y + size, 0), max(x, 0) : max(x + size, 0)] = True
    return seen


def test_a_seed_gives_the_same_start_in_any_batch():
    w = world()
    together = w.reset([3, 11, 7])
    for place, seed in enumerate([3, 11, 7]):
        alone = w.reset([seed])
        for field in dataclasses.fields(CoverageState):
            assert torch.equal(getattr(alone, field.name)[0], getattr(together, field.name)[place]), field.name
    assert not torch.equal(together.density[0], together.density[1])
    assert not torch.equal(together.positions[0], together.positions[1])


def test_robots_start_alike_whatever_the_features():
    assert torch.equal(world().reset([4]).positions, world(features=9).reset([4]).positions)


@pytest.mark.parametrize("resolution", [1.0, 2.0, 0.5])
def test_robots_sense_and_never_forget(resolution):
    w = world(resolution=resolution, dt=1.0, max_speed=9.0)
    states = wander(w, w.reset([0, 1]), 12)
    known = np.zeros((2, 5, w.config.cells, w.config.cells), bool)
    for state in states:
        for b in range(2):
            for i in range(5):
                known[b, i] |= windows(state.positions[b, i], w.config)
        assert (unpack(state.seen, w.config.cells).numpy() == known).all()
        assert (unpack(state.seen_by_any, w.config.cells).numpy() == known.any(axis=1)).all()
    assert states[0].seen.ne(states[-1].seen).any()  # the first state still knows what it knew


def test_half_a_metre_rounds_up():
    w = world(agents=1)
    state = w.state(torch.tensor([[[50.5, 51.5]]]), w.reset([0]).density)
    rows, columns = np.nonzero(unpack(state.seen, w.config.cells)[0, 0].numpy())
    assert (columns.min(), columns.max(), rows.min(), rows.max()) == (43, 58, 44, 59)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 2**40),
    resolution=st.sampled_from([1.0, 2.0, 0.5]),
    pixels=st.sampled_from([8, 11, 16]),
    steps=st.integers(0, 15),
    seen_map=st.booleans(),
)
def test_observation_against_plain_maps(seed, resolution, pixels, steps, seen_map):
    w = world(resolution=resolution, pixels=pixels, dt=1.0, max_speed=9.0, seen_map=seen_map)
    state = wander(w, w.reset([seed]), steps, seed)[-1]
    seen = w.observe(state)
    assert seen.features.shape == (1, 5, *w.config.observation_shape)
    cells, size, reach = w.config.cells, w.config.map_cells, w.config.communication_range
    p = state.positions[0].numpy().astype(float)
    for i in range(5):
        looked = unpack(state.seen[0, i], cells).float()
        known = looked * state.density[0]
        x, y = (math.floor(c / resolution + 0.5) - size // 2 + size for c in p[i])
        padded = torch.nn.functional.pad(torch.stack([known, torch.zeros_like(known), looked]), (size,) * 4, value=0.0)
        padded[1] = torch.nn.functional.pad(torch.zeros_like(known), (size,) * 4, value=1.0)
        crop = padded[None, :, y : y + size, x : x + size]
        expected = torch.nn.functional.interpolate(crop, (pixels, pixels), mode="bilinear", antialias=True)[0]
        np.testing.assert_allclose(seen.features[0, i, :2], expected[:2], atol=2e-6)
        if seen_map:
            np.testing.assert_allclose(seen.features[0, i, 4], expected[2], atol=2e-6)
        neighbours = np.zeros((2, pixels, pixels))
        for j in range(5):
            away = (p[j] - p[i]) / reach
            if j != i and np.hypot(*away) < 1:
                column, row = np.floor((away + 1) / 2 * pixels).astype(int)
                neighbours[:, row, column] += away
        np.testing.assert_allclose(seen.features[0, i, 2:4], neighbours, atol=1e-5)
    distance = np.linalg.norm(p[:, None] - p[None], axis=-1)
    np.testing.assert_array_equal(seen.graph.adjacency()[0], (distance < reach) & ~np.eye(5, dtype=bool))
    assert torch.equal(seen.positions, state.positions)


def test_filter_is_the_antialiased_resize():
    picture = torch.rand((1, 1, 256, 256), generator=torch.Generator().manual_seed(0))
    weights = resize_filter(256, 32)
    expected = torch.nn.functional.interpolate(picture, (32, 32), mode="bilinear", antialias=True)
    torch.testing.assert_close(weights.T @ picture[0, 0] @ weights, expected[0, 0], atol=1e-6, rtol=1e-5)


def test_full_size_observation():
    w = Coverage()
    seen = w.observe(w.reset([0]))
    assert seen.features.shape == (1, 32, 4, 32, 32) and seen.features.dtype == torch.float32
    assert seen.features[:, :, 0].amax() > 0.1
    assert seen.features[:, :, 1].amin() >= 0 and 0.9 < seen.features[:, :, 1].amax() <= 1.0


def test_cost_is_the_sum_over_cells():
    w = world(resolution=2.0, dt=1.0)
    start, *_, end = wander(w, w.reset([5, 6]), 4)
    c = (np.arange(w.config.cells) + 0.5) * 2.0

    def cost(state: CoverageState, b: int) -> float:
        p = state.positions[b].numpy().astype(float)
        d2 = (c[None, :, None] - p[:, 0]) ** 2 + (c[:, None, None] - p[:, 1]) ** 2
        return float((d2.min(-1) * state.density[b].numpy()).sum())

    for b in range(2):
        assert float(start.start_cost[b]) == pytest.approx(cost(start, b), rel=1e-9)
        assert float(w.metrics(end)["cost"][b]) == pytest.approx(cost(end, b) / cost(start, b), rel=1e-9)


def test_time_average_counts_every_control_period_once():
    w = world(dt=1.0)
    states = wander(w, w.reset([1, 2]), 6)
    costs = torch.stack([w.metrics(state)["cost"] for state in states])
    assert torch.equal(costs[0], torch.ones(2, dtype=torch.float64))
    assert costs[1:].ne(1).all()
    for t, state in enumerate(states):
        torch.testing.assert_close(w.metrics(state)["cost_time_average"], costs[: max(t, 1)].mean(0))


def test_motion_is_limited_and_stays_inside():
    w = world(agents=2)
    state = w.state(torch.tensor([[[100.0, 50.0], [0.5, 149.5]]]), w.reset([0]).density)
    after = w.step(state, torch.tensor([[[3.0, 4.0], [-1.0, 0.0]]]))
    torch.testing.assert_close(after.positions[0, 0], torch.tensor([100.6, 50.8]))
    assert after.positions[0, 1].tolist() == [0.0, 149.5]
    torch.testing.assert_close(after.velocity[0, 0], torch.tensor([0.6, 0.8]))
    assert after.step.tolist() == [1]
    everywhere = wander(w, state, 40)[-1].positions
    assert (everywhere >= 0).all() and (everywhere <= 150).all()


def test_step_leaves_the_given_state_alone():
    w = world(dt=1.0)
    state = w.reset([0])
    before = {f.name: getattr(state, f.name).clone() for f in dataclasses.fields(state)}
    twice = [w.step(state, torch.ones((1, 5, 2))) for _ in range(2)]
    for name, value in before.items():
        assert torch.equal(getattr(state, name), value), name
        assert torch.equal(getattr(twice[0], name), getattr(twice[1], name)), name


@pytest.mark.parametrize("device", ["cpu", GPU])
@settings(deadline=None, max_examples=few(20, 2))
@given(seed=st.integers(0, 2**32), dt=st.sampled_from([0.2, 1.0, 9.0]))
def test_in_place_a_state_becomes_the_next_one(seed: int, dt: float, device: str) -> None:
    """And only what belongs to it does: a density may be shared by many states."""
    w = world(device, agents=few(5, 2), dt=dt)
    start = w.reset([seed, seed + 1])
    state, ours = start, dataclasses.replace(start, **{name: value.clone() for name, value in vars(start).items()})
    held = {name: value.data_ptr() for name, value in vars(ours).items()}
    for command in torch.randn((few(6, 2), *state.positions.shape), generator=torch.Generator().manual_seed(seed)):
        state = w.step(state, command.to(device))
        w.advance(ours, command.to(device))
        for name, value in vars(state).items():
            assert torch.equal(getattr(ours, name), value), name
            assert getattr(ours, name).data_ptr() == held[name], name
    assert not torch.equal(state.seen, start.seen) and state.density is start.density


def test_memory_of_an_environment_is_small():
    state = Coverage().reset([0])
    size = sum(getattr(state, f.name).nbytes for f in dataclasses.fields(state))
    assert size < 438e6 / 10  # a tenth of what the reference takes


def test_positions_in_double_stay_so():
    w = world(agents=1)
    state = w.state(torch.tensor([[[10.0, 20.0]]], dtype=torch.float64), w.reset([0]).density)
    assert w.step(state, torch.zeros((1, 1, 2), dtype=torch.float64)).positions.dtype == torch.float64


def test_arrays_start_a_world_too():
    w = world()
    drawn = w.reset([3])
    density = drawn.density.numpy()[:, ::-1]  # upside down, as a picture is
    state = w.state(drawn.positions.numpy(), density)
    assert torch.equal(state.density, drawn.density.flip(1)) and torch.equal(state.positions, drawn.positions)
    assert torch.equal(w.state(drawn.positions, (density * 1000).astype(np.uint16)).density[0].max(), torch.ones(()))


@pytest.mark.parametrize(("side", "agents"), [(1024.0, 32), (512.0, 100), (2048.0, 2)])
def test_memory_is_estimated_from_the_settings(side, agents):
    config = CoverageConfig(agents=agents, side=side)
    w = Coverage(config)
    state = w.reset([0])
    kept = sum(getattr(state, f.name).nbytes for f in dataclasses.fields(state))
    least = kept + state.seen.nbytes + w.observe(state).features.nbytes  # a step has what was seen before and after
    assert least < config.bytes < max(1.5 * least, 24 * config.cells**2)


@pytest.mark.parametrize("seen_map", [False, True])
def test_both_ways_to_compute_agree(seen_map):
    """The torch functions that CUDA uses against the compiled loops."""
    w = world(dt=1.0, max_speed=9.0, seen_map=seen_map)
    states = wander(w, w.reset([8, 9]), 6)
    for before, after in itertools.pairwise(states):
        corner = w._corner(after.positions, w.config.sensor_cells)
        seen, union = before.seen.clone(), before.seen_by_any.clone()
        dense.mark(corner, w.config.sensor_cells, seen, union)
        assert torch.equal(seen, after.seen) and torch.equal(union, after.seen_by_any)
        corner = w._corner(after.positions, w.config.map_cells)
        reach = w.config.communication_range
        given = (after.density, after.seen, corner, w._filter, w._share, after.positions, reach)
        maps = dense.pictures(*given, seen_map)
        torch.testing.assert_close(maps, w.observe(after).features, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize(("cells", "size", "n"), [(150, 16, 32), (64, 64, 1), (200, 300, 3), (63, 5, 2), (1200, 65, 2)])
def test_squares_are_marked_on_what_was_seen(cells: int, size: int, n: int, device: str) -> None:
    g = torch.Generator().manual_seed(cells)
    seen = torch.randint(-(2**63), 2**63 - 1, (2, n, cells, words(cells)), generator=g)
    seen &= -seen  # one bit a word
    union = torch.randint(-(2**63), 2**63 - 1, (2, cells, words(cells)), generator=g)
    union &= -union
    corner = torch.randint(-size - 2, cells + 2, (2, n, 2), generator=g)
    marked, together = seen.clone().to(device), union.clone().to(device)
    dense.mark(corner.to(device), size, marked, together)
    marked, together = marked.cpu(), together.cpu()
    expected, of_any = unpack(seen, cells), unpack(union, cells)
    for b, i in itertools.product(range(2), range(n)):
        x, y = corner[b, i].tolist()
        square = slice(max(y, 0), max(y + size, 0)), slice(max(x, 0), max(x + size, 0))
        expected[(b, i, *square)] = of_any[(b, *square)] = True
    assert torch.equal(unpack(marked, cells), expected) and torch.equal(unpack(together, cells), of_any)
    for after, before in ((marked, seen), (together, union)):
        rows = after[..., -1] & ~before[..., -1]
        assert cells % 64 == 0 or (rows >> cells % 64 == 0).all()  # nothing is set past the last cell


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_maps_that_lie_apart_are_marked_too(device: str) -> None:
    """As one robot's are that lie among those of many."""
    seen, union = (torch.zeros((1, *n, 70, 4), dtype=torch.int64, device=device) for n in ((2,), ()))
    corner = torch.tensor([[[3, 60], [66, -2]]], device=device)
    dense.mark(corner, 9, seen[..., ::2], union[..., ::2])
    whole = [torch.zeros((1, *n, 70, 2), dtype=torch.int64, device=device) for n in ((2,), ())]
    dense.mark(corner, 9, *whole)
    for apart, one in zip((seen, union), whole, strict=True):
        assert torch.equal(apart[..., ::2], one) and not apart[..., 1::2].any() and one.any()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_captured_in_a_cuda_graph() -> None:
    w = world("cuda", seen_map=True)
    state = w.reset([8, 9])
    corner = w._corner(state.positions, w.config.sensor_cells)

    def work() -> tuple[torch.Tensor, ...]:
        seen, union = state.seen.clone(), state.seen_by_any.clone()
        dense.mark(corner, w.config.sensor_cells, seen, union)
        given = (state.density, seen, corner, w._filter, w._share, state.positions, w.config.communication_range)
        return seen, union, dense.pictures(*given, True)

    work()
    torch.cuda.synchronize()
    capture = torch.cuda.CUDAGraph()
    with torch.cuda.graph(capture):
        captured = work()
    corner.add_(7)
    capture.replay()
    torch.cuda.synchronize()
    for replayed, again in zip(captured, work(), strict=True):
        assert torch.equal(replayed, again)


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_devices_agree(device):
    def wandered(where: str) -> tuple[list[CoverageState], torch.Tensor]:
        w = world(where, agents=few(5, 2), dt=1.0, max_speed=9.0, seen_map=True)
        states = wander(w, w.reset([8, 9]), few(6, 1))
        return states, w.observe(states[-1]).features

    with plainly():
        here, shown_here = wandered("cpu")
    there, shown_there = wandered(device)
    for a, b in zip(here, there, strict=True):
        for field in dataclasses.fields(a):
            left, right = getattr(a, field.name), getattr(b, field.name).cpu()
            torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-4)
            if field.name.startswith("seen"):
                assert torch.equal(left, right)
    torch.testing.assert_close(shown_here, shown_there.cpu(), rtol=1e-5, atol=1e-5)


def test_bad_start_states():
    w = world(agents=2)
    density = w.reset([0]).density
    fine = torch.tensor([[[10.0, 10.0], [20.0, 20.0]]])
    with pytest.raises(MastError, match=r"robot 1 of environment 0 starts at \[20.0, 151.0\].*0\.\.150"):
        w.state(fine + torch.tensor([[0.0, 0.0], [0.0, 131.0]]), density)
    with pytest.raises(MastError, match="robot 0 of environment 0"):
        w.state(fine * torch.nan, density)
    with pytest.raises(MastError, match=r"2 robots of environment 0 start on one spot, \[10.0, 10.0\]"):
        w.state(fine[:, [0, 0]], density)
    with pytest.raises(MastError, match=r"positions have shape \[2, 2\]"):
        w.state(fine[0], density)
    with pytest.raises(MastError, match=r"positions have shape \[1, 1, 2\]: expected \[environments, 2, 2\]"):
        w.state(fine[:, :1], density)
    with pytest.raises(MastError, match=r"density has shape \[1, 3, 3\]: expected \[1, 150, 150\]"):
        w.state(fine, torch.ones((1, 3, 3)))
    for bad, message in ((0.0, "zero everywhere"), (-1.0, "negative"), (math.nan, "not finite")):
        with pytest.raises(MastError, match=f"the density of environment 0.*{message}"):
            w.state(fine, torch.full_like(density, bad))
    spot = torch.zeros_like(density)
    spot[0, 9, 9] = 1.0
    with pytest.raises(MastError, match="environment 0 start on all that matters"):
        w.state(fine - 0.5, spot)
    with pytest.raises(MastError, match="seed is -1"):
        w.reset([-1])
    with pytest.raises(MastError, match="1 scenarios for 2 seeds"):
        w.reset([0, 1], ["gaussians"])
    with pytest.raises(MastError, match="not finite"):
        w.step(w.state(fine, density), torch.full((1, 2, 2), math.inf))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"agents": 0}, "agents is 0"),
        ({"features": 0}, "features is 0"),
        ({"side": -1.0}, "side is -1"),
        ({"side": 100.5}, "side is 100.5 m: give a whole number of cells of 1 m"),
        ({"resolution": math.nan}, "resolution is nan"),
        ({"sensor": 0.2}, "sensor is 0.2 m"),
        ({"dt": 0.0}, "dt is 0"),
        ({"sigma": (5.0, 4.0)}, r"sigma is drawn from 5\.\.4"),
        ({"local_map": 16.0, "pixels": 32}, "local_map covers 16 x 16 cells but is observed in 32 x 32 pixels"),
        ({"window": (95.0, 0.0)}, "window is 95,0"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(MastError, match=message):
        CoverageConfig(**fields)


@pytest.mark.parametrize("seen_map", [False, True])
@pytest.mark.parametrize("how", range(8))
def test_mirror_images_are_what_the_mirrored_world_gives(how: int, seen_map: bool) -> None:
    config = CoverageConfig(
        agents=6, features=5, side=256.0, resolution=2.0, sigma=(10.0, 15.0), dt=1.0, communication_range=96.0,
        sensor=32.0, local_map=96.0, pixels=12, seen_map=seen_map,
    )  # fmt: skip
    world, expert = Coverage(config), find("coverage").make_controller("clairvoyant", dt=1.0, max_speed=500.0)
    state = world.reset([4])

    def laid(positions: torch.Tensor, density: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for axis in (0, 1):
            if how >> axis & 1:
                positions = positions.clone()
                positions[..., axis] = config.side - positions[..., axis]
                density = density.flip(-1 - axis)
        return (positions.flip(-1), density.transpose(-1, -2)) if how & 4 else (positions, density)

    other = world.state(*laid(state.positions, state.density))
    samples = []
    for one in (state, other):
        seen = world.observe(one)
        target = expert.act(one, seen)
        samples.append({"features": world.pack(seen.features), "positions": seen.positions, "target": target})
    turned = world.mirrored(samples[0], torch.tensor([how]))
    torch.testing.assert_close(turned["positions"], samples[1]["positions"])
    torch.testing.assert_close(turned["target"], samples[1]["target"], rtol=1e-3, atol=1e-4)
    assert (turned["features"].int() - samples[1]["features"].int()).abs().max() <= 1
    expected = world.observe(other).features
    torch.testing.assert_close(world.unpack(turned["features"], turned["positions"]), expected, rtol=0, atol=1 / 128)
    if how:
        assert not torch.equal(turned["features"], samples[0]["features"])
