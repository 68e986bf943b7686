"""Control periods as one graph: the same states and metrics as one kernel after the other."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import mast_swarm
from devices import DEVICE, few
from mast_swarm import explore, kernels, steady
from mast_swarm.comms import decentral, held, wide
from mast_swarm.comms.config import Channel
from mast_swarm.evaluate import graphs
from mast_swarm.evaluate.actors import Central, Decentral, make_actor
from mast_swarm.evaluate.graphs import CapturedLoop, capturable, capture
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.model import lists, windowed
from mast_swarm.space import graph, neighbours
from mast_swarm.steady import Steady, answer, may_ask, room_for, rooms_for
from waiting import Waits, as_on_a_gpu, unwaiting, waits

NAVIGATION = mast_swarm.NavigationConfig(agents=12)
SMALL = mast_swarm.PolicyConfig(
    task="navigation", layers=2, heads=2, head_dim=16, attention_radius=250.0, exploration_time=5.0
)
REMEMBERS = dataclasses.replace(SMALL, exploration_memory=2)
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are captured on a GPU")


@pytest.fixture(autouse=True)
def nothing_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be captured is said once in a process, and here once in a test."""
    monkeypatch.setattr(graphs, "told", set())


def searching(config: mast_swarm.PolicyConfig) -> mast_swarm.Policy:
    """A policy whose robots do explore: an untrained one predicts no speed that a heading could fill."""
    policy = mast_swarm.Policy(config, seed=1)
    with torch.no_grad():
        policy.head[-1].weight[:2] *= 0.1
        policy.head[-1].bias[2] = 1.0
    return policy


def captured_rollout(loop: Loop, seeds: list[int], steps: int, **room: float) -> CapturedLoop:
    """On the CPU the work of a graph runs as it is, so its logic is tested everywhere."""
    loop.start(seeds)
    whole = CapturedLoop(loop, steps + 1, **room)
    for _ in range(steps):
        whole.step()
    whole.measure()
    return whole


@pytest.mark.parametrize("config", [SMALL, REMEMBERS], ids=["forgets", "remembers"])
def test_captured_steps_are_those_of_a_rollout(
    config: mast_swarm.PolicyConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More periods than are looked at together, and robots have been in more places than they remember."""
    monkeypatch.setattr(CapturedLoop, "LOOK", 4)
    monkeypatch.setattr(explore, "EVERY", 2.0)
    world, seeds, steps = mast_swarm.Navigation(NAVIGATION), [3, 4], 10
    policy = searching(config)
    plain = rollout(world, policy, seeds, steps)
    with torch.inference_mode():
        whole = captured_rollout(Loop(world, Central(policy, world)), seeds, steps)
    assert torch.equal(whole.loop.state.positions, plain.state.positions)
    assert torch.equal(whole.loop.state.step, plain.state.step)
    for name, values in plain.metrics.items():
        assert torch.equal(whole.metrics[name].float(), torch.from_numpy(values))


@pytest.fixture
def large_from_one(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every team takes the way of the largest, by cells and neighbour lists."""
    monkeypatch.setattr(neighbours, "CUDA_DENSE", 0)
    monkeypatch.setattr(neighbours, "STEADY_DENSE", 0)
    monkeypatch.setattr(graph, "CUDA_DENSE", 0)
    monkeypatch.setattr(windowed, "DENSE", {"cpu": 0, "cuda": 0})
    yield


@pytest.mark.kernels
@pytest.mark.parametrize("room", [1.25, 0.3], ids=["roomy", "outgrown"])
def test_steps_of_a_large_team(room: float, large_from_one: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """By lists of a fixed length, also where they turn out too short: then with more room again. By the same kernels as
    the plain steps, however few robots there are."""
    monkeypatch.setattr(lists, "_WORTH_A_KERNEL", 0)
    config = mast_swarm.NavigationConfig(agents=few(300, 5))
    world, seeds, steps = mast_swarm.Navigation(config, DEVICE), few([3, 4], [3]), few(40, 2)
    policy = searching(REMEMBERS).to(DEVICE)
    plain = rollout(world, policy, seeds, steps, plain=True)
    with torch.inference_mode():
        whole = captured_rollout(Loop(world, Central(policy, world)), seeds, steps, room=room)
    assert whole.steady.answers and whole.room > min(room, 1.0)  # of many robots lists may outgrow any room
    torch.testing.assert_close(whole.loop.state.positions, plain.state.positions, rtol=0, atol=1e-3)
    for name, values in plain.metrics.items():
        torch.testing.assert_close(whole.metrics[name].float().cpu(), torch.from_numpy(values), rtol=0, atol=1e-3)


def world_of(name: str, agents: int = 12) -> tuple[mast_swarm.World, str]:
    """A small world of the policy's task, where the GPU's way is tested, and the policy's name in it."""
    task, _, policy = name.partition("/")
    if task == "navigation":
        return mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=agents), DEVICE), policy
    maps = {"side": 128.0, "sensor": 32.0, "local_map": 64.0, "seen_map": policy == "mast-m"}
    config = mast_swarm.CoverageConfig(agents=2, features=2, **maps)
    return mast_swarm.Coverage(config, DEVICE), policy


CENTRAL = ["navigation/mast-m", "navigation/mast-c", "coverage/mast-m", "coverage/lpac-k3"]


@pytest.mark.parametrize("name", CENTRAL)
def test_no_step_waits_for_the_gpu(name: str) -> None:
    """What a graph captures, run where waiting is an error: in torch alone here, with kernels in the interpreter."""
    world, policy = world_of(name)
    with torch.inference_mode(), as_on_a_gpu():
        loop = Loop(world, make_actor(policy, world))
        loop.start([1, 2])
        whole = CapturedLoop(loop, 4)
        with unwaiting():
            whole._unasking()


@pytest.mark.kernels
@pytest.mark.parametrize("name", ["navigation", "coverage/mast-m"])
def test_no_step_by_kernels_waits_for_the_gpu(name: str, coverage_zoo: Path) -> None:
    world, _ = world_of(name)
    policy = mast_swarm.Policy(REMEMBERS) if name == "navigation" else coverage_zoo / name
    with torch.inference_mode():
        loop = Loop(world, make_actor(policy, world))
        loop.start([1])
        whole = CapturedLoop(loop, 4)
        with unwaiting():
            whole._unasking()


@pytest.mark.kernels
def test_no_step_of_a_large_team_waits_for_the_gpu(large_from_one: None) -> None:
    world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=few(3000, 5)), DEVICE)
    with torch.inference_mode():
        loop = Loop(world, Central(mast_swarm.Policy(REMEMBERS).to(DEVICE), world))
        loop.start([1])
        whole = CapturedLoop(loop, 4)
        with unwaiting():
            whole._unasking()


@pytest.mark.kernels
@pytest.mark.parametrize("alone", [False, True], ids=["together", "alone"])
def test_steps_of_a_team_in_between(alone: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours by cells in steady work alone, attention and links of all pairs: the same, and nothing waits."""
    agents = few(600, 5)
    monkeypatch.setattr(neighbours, "STEADY_DENSE", few(neighbours.STEADY_DENSE, 0))
    world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=agents), DEVICE)
    policy, seeds, steps = searching(SMALL).to(DEVICE), few([3, 4], [3]), few(40, 4)
    channel = Channel(delay=1.0) if alone else None
    plain = rollout(world, policy, seeds, steps, channel=channel, plain=True)
    with torch.inference_mode():
        loop = Loop(world, make_actor(policy, world, channel))
        whole = captured_rollout(loop, seeds, steps, settles=few(4, 1))
        assert whole.steady.answers
        torch.testing.assert_close(loop.state.positions, plain.state.positions, rtol=0, atol=1e-3)
        with unwaiting():
            whole._unasking()


@pytest.mark.kernels
def test_links_within_a_radius_are_a_matrix_in_steady_work_too() -> None:
    """Up to the same size as ever: to list them would wait."""
    points = torch.rand(1, neighbours.STEADY_DENSE + 1, 2, device=DEVICE)
    assert neighbours.choose("auto", points, points.shape[1]) == "dense"
    with Steady(DEVICE).asking():
        assert neighbours.choose("auto", points, points.shape[1]) == "cells"
        assert isinstance(graph.radius_graph(points, 0.1), graph.MatrixGraph)


@pytest.mark.parametrize(
    "work",
    [
        lambda x: bool(x.sum() > 0),
        lambda x: x[x > 0],
        lambda x: x.nonzero(),
        lambda x: torch.tensor([1.0], device=x.device),
        lambda x: x.cpu().numpy() if x.is_cuda else x.numpy(),
        lambda x: torch.repeat_interleave(x.long()),
    ],
)
def test_waiting_is_found(work) -> None:
    x = torch.ones(4, device=DEVICE)
    with pytest.raises((Waits, RuntimeError)), unwaiting():
        work(x)


def test_answers_are_taken_for_granted() -> None:
    steady = Steady("cpu", room=2.0)

    def work(value: int) -> tuple[int, int]:
        return answer(lambda: value), room_for(torch.tensor([value]))

    assert work(3) == (3, 3) and may_ask()
    with steady.asking():
        assert may_ask() and work(100) == (100, 100)
    for value, outgrown in ((7, False), (201, False), (202, True), (5, True)):
        with steady.granted():
            assert not may_ask() and work(value) == (100, 201)
        assert bool(steady.outgrown) == outgrown  # once outgrown, it stays so until somebody has looked
    assert work(3) == (3, 3)


def test_rooms_for_totals() -> None:
    """Half the room that lists get, or some places more, and never more than there can be."""
    steady = Steady("cpu", room=1.5)

    def work(*values: int) -> list[int]:
        rooms, device = rooms_for(torch.tensor(values), (10**6, 10**6, 110), (16, 16, 16))
        assert device is None or device.tolist() == rooms
        return rooms

    assert work(4, 100, 100) == [4, 100, 100]
    with steady.asking():
        assert work(4, 100, 100) == [20, 125, 110]
    for values, outgrown in (((20, 125, 110), False), ((1, 126, 1), True), ((1, 1, 1), True)):
        with steady.granted():
            assert work(*values) == [20, 125, 110]
        assert bool(steady.outgrown) == outgrown


def test_nothing_is_captured_on_a_cpu() -> None:
    world = mast_swarm.Navigation(NAVIGATION)
    loop = Loop(world, make_actor("mast-m", world))
    loop.start([0])
    assert capture(loop, 3) is None


class Growing(mast_swarm.Navigation):
    """Its lists are longer from step to step."""

    def observe(self, state):
        room_for(4 * (state.step[:1] + 1))
        return super().observe(state)


@pytest.mark.parametrize("fails", ["never", "later", "at once"])
def test_what_cannot_be_captured_runs_as_before(
    fails: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No memory for a graph at the start, or when lists have outgrown their room."""
    monkeypatch.setattr(CapturedLoop, "LOOK", 4)
    monkeypatch.setattr(graphs, "capturable", lambda loop: True)
    captures = []

    def captured(work, device, alone):
        captures.append(work)
        if fails == "at once" or (fails == "later" and len(captures) > 1):
            with monkeypatch.context() as patch:  # in the middle of a period, when robots have decided
                patch.setattr(world, "step", no_memory)
                work()
        return work

    def no_memory(state, command):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(graphs, "captured", captured)
    monkeypatch.setattr(explore, "EVERY", 2.0)
    world, policy = Growing(NAVIGATION), searching(REMEMBERS)
    plain = rollout(world, policy, [3, 4], 20, plain=True)
    with caplog.at_level(logging.WARNING, "mast_swarm"):
        ran = rollout(world, policy, [3, 4], 20)
    assert caplog.text.count("cannot be captured") == (fails != "never")
    assert {"never": len(captures) > 2, "later": len(captures) == 2, "at once": len(captures) == 1}[fails]
    assert torch.equal(ran.state.positions, plain.state.positions)
    for metric, values in plain.metrics.items():
        assert (ran.metrics[metric] == values).all()


class Remembering(mast_swarm.Navigation):
    """Robots sense where they were, too: a tensor of the state before."""

    def step(self, state, command):
        return dataclasses.replace(super().step(state, command), velocity=state.positions)


def test_a_world_may_remember_where_robots_were() -> None:
    world, policy = Remembering(NAVIGATION), mast_swarm.Policy(SMALL, seed=1)
    plain = rollout(world, policy, [3, 4], 3)
    with torch.inference_mode():
        whole = captured_rollout(Loop(world, Central(policy, world)), [3, 4], 3)
    assert not torch.equal(plain.state.velocity, plain.state.positions)
    assert torch.equal(whole.loop.state.velocity, plain.state.velocity)
    assert torch.equal(whole.loop.state.positions, plain.state.positions)


class Rounded(mast_swarm.Navigation):
    """Of another type at the start than after a step."""

    def begin(self, *drawn):
        start = super().begin(*drawn)
        return dataclasses.replace(start, velocity=start.velocity.half())


def test_a_state_that_changes_its_type_is_not_captured(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What comes after would be rounded to the type of the start. It is said once, however many batches there are."""
    monkeypatch.setattr(graphs, "capturable", lambda loop: True)
    world, policy = Rounded(NAVIGATION), mast_swarm.Policy(SMALL, seed=1)
    plain = rollout(world, policy, [3, 4], 20, plain=True)
    with caplog.at_level(logging.WARNING, "mast_swarm"):
        for _ in range(2):
            ran = rollout(world, policy, [3, 4], 20)
            assert torch.equal(ran.state.velocity, plain.state.velocity)
    assert caplog.text.count("velocity of the state was torch.float16") == 1


def test_a_graph_is_captured_without_a_kernel_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*given):
        raise TypeError("no such instruction")

    world, policy = mast_swarm.Navigation(NAVIGATION), searching(REMEMBERS)
    plain = rollout(world, policy, [3], 16, plain=True)
    monkeypatch.setattr(graphs, "capturable", lambda loop: True)
    monkeypatch.setattr(kernels, "INTERPRETED", False)
    monkeypatch.setattr(kernels, "failed", {})
    monkeypatch.setattr(explore, "gpu", SimpleNamespace(explored=broken))
    monkeypatch.setattr(explore, "on_gpu", lambda tensor: True)
    with torch.inference_mode():
        loop = Loop(world, Central(policy, world))
        loop.start([3])
        whole = capture(loop, 17)
        assert whole is not None and set(kernels.failed) == {"exploration"}
        for _ in range(16):
            whole.step()
    assert torch.equal(loop.state.positions, plain.state.positions)


@on_a_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("agents", [60, 3000])
@pytest.mark.parametrize("name", CENTRAL)
def test_a_captured_rollout_is_the_plain_one(
    name: str, agents: int, precision: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3,000 robots: by neighbour lists, in half precision by tiles. Both by the same kernels: half precision rounds
    otherwise in others, and a closed loop goes its own way from there."""
    if agents > 60 and name != "navigation/mast-m":
        pytest.skip("one policy of large teams is enough")
    monkeypatch.setattr(lists, "_WORTH_A_KERNEL", 0)
    world, policy = world_of(name, agents=agents)
    loop = Loop(world, make_actor(policy, world), precision=precision)
    with torch.inference_mode():
        loop.start([0])
        assert capturable(loop) and capture(loop, 2) is not None
    plain = rollout(world, policy, range(3), 20, precision=precision, plain=True)
    quick = rollout(world, policy, range(3), 20, precision=precision)
    torch.testing.assert_close(quick.state.positions, plain.state.positions, rtol=0, atol=1e-3)
    for metric, values in plain.metrics.items():
        assert quick.metrics[metric] == pytest.approx(values, abs=1e-3)


@on_a_gpu
def test_a_short_rollout_is_not_written_past_its_end() -> None:
    """Warming up runs for more periods than there are."""
    world = mast_swarm.Navigation(NAVIGATION, "cuda")
    plain = rollout(world, "mast-m", [0, 1], 1)
    with torch.inference_mode():
        whole = captured_rollout(Loop(world, make_actor("mast-m", world)), [0, 1], 1)
    for name, values in plain.metrics.items():
        torch.testing.assert_close(whole.metrics[name].float().cpu(), torch.from_numpy(values), rtol=0, atol=1e-4)


WAITS = {
    "asks for a number": lambda positions: float(positions.sum()),
    "waits for all": lambda positions: torch.cuda.synchronize(),
    "waits for a stream": lambda positions: torch.cuda.current_stream().synchronize(),
}


@on_a_gpu
@pytest.mark.parametrize("how", WAITS)
def test_a_world_that_waits_for_the_gpu_runs_as_before(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """It is found out before anything is captured: of a capture that fails torch keeps memory and stream for good."""

    class Waiting(mast_swarm.Navigation):
        def observe(self, state):
            WAITS[how](state.positions)
            return super().observe(state)

    stream = torch.cuda.current_stream()
    with caplog.at_level(logging.WARNING, "mast_swarm"):
        ran = rollout(Waiting(NAVIGATION, "cuda"), "mast-m", [0], 20)
    assert "cannot be captured" in caplog.text
    assert torch.cuda.current_stream() == stream
    torch.cuda.empty_cache()  # an error while torch takes a capture for unfinished
    plain = rollout(mast_swarm.Navigation(NAVIGATION, "cuda"), "mast-m", [0], 20, plain=True)
    torch.testing.assert_close(ran.state.positions, plain.state.positions)


@on_a_gpu
def test_the_safety_layer_runs_without_a_graph(caplog: pytest.LogCaptureFixture) -> None:
    """How many robots are in each other's way only the data say."""
    world = mast_swarm.Navigation(NAVIGATION, "cuda")
    plain = rollout(world, "mast-m", [0, 1], 20, safe=True, plain=True)
    with caplog.at_level(logging.WARNING, "mast_swarm"):
        ran = rollout(world, "mast-m", [0, 1], 20, safe=True)
    assert "cannot be captured" in caplog.text
    torch.testing.assert_close(ran.state.positions, plain.state.positions)


ALONE = [
    ("navigation", Channel(1.0)),
    ("navigation", Channel(0.5, loss=0.1, failure=0.1)),
    ("navigation", Channel(0.5, loss=0.1, max_age=1.7)),
    ("coverage/mast-m", Channel(0.2)),
    ("coverage/lpac-k3", Channel(0.2)),
]


@pytest.mark.kernels
@pytest.mark.skipif(torch.cuda.is_available(), reason="counts by another way than a GPU's")
@pytest.mark.parametrize(("name", "channel"), ALONE)
def test_robots_alone_wait_only_for_their_views(name: str, channel: Channel, coverage_zoo: Path) -> None:
    """How many robots a robot hears of, only the data say. Nothing else waits: neither the world, nor perception, nor
    the relay. Steady steps wait for nothing."""
    world, _ = world_of(name, agents=4)
    policy = mast_swarm.Policy(SMALL, seed=1) if name == "navigation" else coverage_zoo / name
    loop = Loop(world, make_actor(policy, world, channel))
    with torch.inference_mode():
        loop.start([1])
        loop.step()
        with waits() as found:
            world.metrics(loop.state)
            loop.step()
        views = {f"views.py {part}" for part in ("look", "windows", "nodes", "_alike")}
        known = views | {"kernels.py windows", "steady.py rooms_for"}
        assert set(found) <= (set() if "lpac" in name else known)
        assert isinstance(loop.actor, Decentral) and (loop.actor.unsteady is None) == (name == "navigation")
        if loop.actor.unsteady is None:
            whole = CapturedLoop(loop, 4, settles=0)
            with unwaiting():
                whole._unasking()


@pytest.mark.kernels
@pytest.mark.parametrize(
    ("channel", "config", "room"),
    [
        (Channel(1.0), SMALL, 1.25),
        (Channel(0.5, loss=0.2, failure=0.05), REMEMBERS, 1.25),
        (Channel(0.5, loss=0.2, max_age=1.7), REMEMBERS, 1.25),
        (Channel(1.0), dataclasses.replace(SMALL, attention_radius=None), 0.3),
    ],
    ids=["still", "lossy", "forgetful", "outgrown"],
)
def test_steps_of_robots_alone(
    channel: Channel, config: mast_swarm.PolicyConfig, room: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commands of robots that run one kernel after the other, though what no robot has heard of takes part: before
    robots have heard of each other, and then with less room than they need."""
    monkeypatch.setattr(CapturedLoop, "LOOK", few(32, 2))
    monkeypatch.setattr(steady, "MORE", few(64, 1))
    monkeypatch.setattr(decentral, "_WIDER", 1)
    monkeypatch.setattr(lists, "_WORTH_A_KERNEL", 0)
    world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=few(30, 4)), DEVICE)
    seeds, steps, policy = few([3, 4, 5], [3]), few(80, 4), mast_swarm.Policy(config, seed=1).to(DEVICE)
    plain = rollout(world, policy, seeds, steps, channel=channel, plain=True)
    with torch.inference_mode():
        loop = Loop(world, make_actor(policy, world, channel))
        whole = captured_rollout(loop, seeds, steps, room=room, settles=few(4, 1))
    assert whole.steady.answers and whole.room > min(room, 1.0)
    assert isinstance(loop.actor, Decentral) and loop.actor.run.state.step.item() == steps - 1
    torch.testing.assert_close(whole.loop.state.positions, plain.state.positions, rtol=0, atol=1e-3)
    for name, values in plain.metrics.items():
        torch.testing.assert_close(whole.metrics[name].float().cpu(), torch.from_numpy(values), rtol=0, atol=1e-3)


@pytest.mark.kernels
def test_robots_alone_whose_messages_find_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    """More stamps of a robot are on their way than there are slots: periods run again with more."""
    monkeypatch.setattr(held, "_FIRST_SLOTS", 1)
    monkeypatch.setattr(CapturedLoop, "LOOK", 2)
    config = mast_swarm.NavigationConfig(agents=few(12, 3))
    world, policy, channel = mast_swarm.Navigation(config, DEVICE), mast_swarm.Policy(SMALL, seed=1), Channel(1.0)
    plain = rollout(world, policy.to(DEVICE), [3], 4, channel=channel, plain=True)
    with torch.inference_mode():
        loop = Loop(world, make_actor(policy, world, channel))
        whole = captured_rollout(loop, [3], 4, settles=1)
    assert whole.room > 1.25 and isinstance(loop.actor, Decentral)
    assert loop.actor.run.state.messages.shape[1] > 1
    torch.testing.assert_close(whole.loop.state.positions, plain.state.positions, rtol=0, atol=1e-3)


@on_a_gpu
@pytest.mark.parametrize(("precision", "captured", "apart"), [("fp32", 48, 1e-2), ("bf16", 1, 5 * 2**-8)])
@pytest.mark.parametrize(
    ("name", "environments", "agents"), [("mast-m", 4, 30), ("mast-m", 1, 300), ("mast-m-sharp", 4, 30)]
)
def test_a_captured_rollout_of_robots_alone(
    name: str,
    environments: int,
    agents: int,
    precision: str,
    captured: int,
    apart: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of `mast-m-sharp` with its maps. In half precision the first captured period alone, to a rounding of its 5 m:
    products of more rows, some of them nobody's, may take another algorithm, which sums in another order, and a closed
    loop goes its own way from there."""
    monkeypatch.setattr(lists, "_WORTH_A_KERNEL", 0)
    monkeypatch.setattr(wide, "NARROW", 0)  # the same kernels, as above
    world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=agents), "cuda")
    channel = Channel(1.0, max_age=30.0 if name == "mast-m-sharp" else None)  # as each is meant to be used
    seeds, steps = list(range(environments)), Decentral.SETTLES + captured
    plain = rollout(world, name, seeds, steps, channel=channel, precision=precision, plain=True)
    with torch.inference_mode():
        loop = Loop(world, make_actor(name, world, channel), precision=precision)
        assert captured_rollout(loop, seeds, steps).steady.answers
    torch.testing.assert_close(loop.state.positions, plain.state.positions, rtol=0, atol=apart)


@on_a_gpu
def test_robots_alone_that_cannot_be_captured_say_so(caplog: pytest.LogCaptureFixture) -> None:
    world = mast_swarm.Navigation(NAVIGATION, "cuda")
    with caplog.at_level(logging.WARNING, "mast_swarm"):
        rollout(world, "mast-m", [0], 60, channel=Channel(1.5))
    assert "cannot be captured" in caplog.text and "divides the control period" in caplog.text


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_rollout_on_another_gpu_than_the_current_one() -> None:
    one, other = (rollout(mast_swarm.Navigation(NAVIGATION, f"cuda:{n}"), "mast-m", [0, 1], 20) for n in range(2))
    torch.testing.assert_close(one.state.positions.cpu(), other.state.positions.cpu(), rtol=0, atol=1e-3)


@on_a_gpu
def test_graphs_leave_no_memory_behind() -> None:
    """A long evaluation captures one for each batch and policy: neither their pools nor workspaces pile up."""
    world, held = mast_swarm.Navigation(NAVIGATION, "cuda"), []
    for count in (2, 40):
        for seed in range(count):
            rollout(world, "mast-m", [seed], 16, precision="bf16")
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_reserved())
    assert held[1] <= held[0]
