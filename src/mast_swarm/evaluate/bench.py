"""Benchmarks of this machine: how a closed-loop step grows with the team, the world alone, and every robot alone.

All run a policy of the task in its world, in bf16 on a GPU and in fp32 on the CPU unless told otherwise. Times are
medians; each function gives what `mast bench` writes to a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor

from mast_swarm import zoo
from mast_swarm.comms import decentral
from mast_swarm.comms.config import Channel
from mast_swarm.comms.relay import Relay
from mast_swarm.errors import MastError
from mast_swarm.evaluate import cost
from mast_swarm.evaluate.actors import Central, Decentral
from mast_swarm.evaluate.bench_config import DecentralBenchConfig, PolicyBenchConfig, ScaleConfig, WorldBenchConfig
from mast_swarm.evaluate.graphs import CapturedLoop, capture
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.measure import Clock, Memory, arithmetic, free_memory, machine, medians
from mast_swarm.evaluate.policies import find_learned, suiting
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.policy import Policy
from mast_swarm.model.windowed import choose, find_window
from mast_swarm.observation import unmarked
from mast_swarm.tasks.base import Task, WorldConfig
from mast_swarm.tasks.registry import find
from mast_swarm.tasks.world import World

SECONDS = 2.0  # of each measurement, at least three runs
DENSE_SECONDS = 30.0  # a forward pass over all pairs is expected to stay below, or does not run
TRAINED = 1_000  # robots of the largest team whose training step is measured
WARM = (50, 3_000)  # robots of teams that load every compiled loop before memory is measured
SETTLED = 30  # control periods after which what robots know of each other is about as old as it gets

Report = Callable[[dict[str, Any]], None]


def _silent(row: dict[str, Any]) -> None:
    """Says nothing of a row that has been measured."""


class Setting:
    """What a benchmark runs: a task, a policy of it, a device and the arithmetic."""

    def __init__(self, config: PolicyBenchConfig, device: torch.device) -> None:
        self.task, self.device, self.precision = find(config.task), device, config.arithmetic(device.type)
        self.name, self.policy = _policy(self.task, config.policy)
        if self.model.task not in ("", self.task.name):
            raise MastError(
                f"policy {self.name} was trained for {self.model.task}, not for {self.task.name}: give --task"
            )
        self.policy.to(device)

    @property
    def model(self) -> PolicyConfig:
        return self.policy.config

    def world(self, agents: int) -> World[Any, Any]:
        return self.task.make(_world(self.task, agents).fitted([self.model.observation_shape]), self.device)

    def given(self, loop: Loop) -> dict[str, Tensor]:
        """What the policy is given of what robots sense now."""
        return Central(self.policy, loop.world).given(loop.sense())

    def density(self, agents: int) -> float:
        """Robots per square kilometre."""
        return agents / (_world(self.task, agents).side / 1000) ** 2

    def together(self, agents: int) -> Loop:
        """A team of one environment, one forward pass for all."""
        world = self.world(agents)
        loop = Loop(world, Central(self.policy, world), precision=self.precision)
        loop.start([0])
        return loop

    def channel(self, world: WorldConfig, relay_radius: float | Literal["auto"] | None) -> Channel:
        """A message takes one control period per hop."""
        return Channel(delay=world.dt, relay_radius=relay_radius).fitted(self.model.field, world)

    def alone(self, environments: int, agents: int, relay_radius: float | Literal["auto"] | None = None) -> Loop:
        """A team in which every robot decides alone, a message taking one control period per hop."""
        world = self.world(agents)
        channel = self.channel(world.config, relay_radius)
        loop = Loop(world, Decentral(self.policy, channel, world), precision=self.precision)
        loop.start(range(environments))
        return loop

    def heading(self, benchmark: str, about: dict[str, Any], agents: int) -> dict[str, Any]:
        return {
            "benchmark": benchmark,
            "machine": about,
            "task": self.task.name,
            "policy": self.name,
            "precision": self.precision,
            "robots_per_km2": self.density(agents),
        }


def _world(task: Task, agents: int) -> WorldConfig:
    return replace(task.Config(), agents=agents, **task.benchmark)


def _policy(task: Task, name: str) -> tuple[str, Policy]:
    """The policy of that name; without one the task's MAST-M, or an untrained one: speed asks nothing of weights."""
    shipped = f"{task.name}/mast-m"
    if not name and shipped not in zoo.policies():
        return "untrained", Policy(suiting(task))
    found = find_learned(name, task.name) if name else shipped
    return found, Policy.load(found)


def _whole_step(loop: Loop) -> Callable[[Clock], None]:
    """One control period with its parts apart, and the metrics at its end."""

    def step(clock: Clock) -> None:
        loop.mark = clock.mark
        clock.mark()
        loop.step()
        loop.world.metrics(loop.state)
        clock.mark("metric")

    return step


def _step_of(captured: CapturedLoop) -> Callable[[Clock], None]:
    """A whole control period as one graph, the metrics among it."""

    def step(clock: Clock) -> None:
        clock.mark()
        captured.step()
        clock.mark("step")

    return step


def bench_scale(config: ScaleConfig, device: torch.device, report: Report = _silent) -> dict[str, Any]:
    """Time, memory and robots per second of a closed-loop step against the size of the team.

    report: is told of each row when it is there.
    """
    setting, about = Setting(config, device), machine(device)
    if setting.model.attention_radius is None:
        raise MastError(f"policy {setting.name} has no attention window: large teams need one")
    sizes = _fitting(setting, config)
    flops, source = arithmetic(device, setting.precision)
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        for agents in WARM:
            _whole_step(setting.together(agents))(Clock(device))
    memory = Memory(device)
    for agents in sizes:
        row = _scale_row(setting, agents, memory, rows[-1] if rows else None)
        rows.append(row | {"floor_ms": 1e3 * agents * cost.forward_flops(setting.model, row["neighbours"]) / flops})
        report(rows[-1])
    return setting.heading("scale", about, sizes[0]) | {
        "attention_radius_m": setting.model.attention_radius,
        "layers": setting.model.layers,
        "width": setting.model.width,
        "flops_a_second": flops,
        "flops_from": source,
        "rows": rows,
        "growth": {part: cost.growth(sizes, [row[f"{part}_ms"] for row in rows]) for part in ("step", "forward")},
        "against_dense": _against_dense(rows),
        "training": _training(setting, sizes),
    }


def _fitting(setting: Setting, config: ScaleConfig) -> list[int]:
    """The sizes to measure: of those that were asked for all must fit in memory, of the others those that do."""
    sizes, free = config.sizes(setting.device.type), free_memory(setting.device)
    needed = {agents: cost.step_bytes(setting.model, agents, setting.density(agents)) for agents in sizes}
    if config.agents:
        most, each = sizes[-1], needed[sizes[-1]] / sizes[-1] / 1e3
        what = f"{most:,} robots, {each:.0f} kB each for activations and neighbour lists,"
        cost.check_fits(what, needed[most], free, "give fewer --agents")
        return list(sizes)
    return [agents for agents in sizes if free is None or needed[agents] <= free]


@torch.inference_mode()
def _scale_row(setting: Setting, agents: int, memory: Memory, before: dict[str, Any] | None) -> dict[str, Any]:
    """One size: the whole step by parts, and the forward pass alone on the start state. before: the last size's."""
    loop, config = setting.together(agents), setting.model
    given = setting.given(loop)
    memory.restart()
    parts = medians(_whole_step(loop), setting.device, SECONDS)
    peak, plain = memory.peak(), parts.pop("whole")
    captured = capture(setting.together(agents), 1)
    peak = max(peak, memory.peak())  # a graph keeps the memory that its capture took
    whole = plain if captured is None else medians(_step_of(captured), setting.device, SECONDS)["whole"]
    assert config.attention_radius is not None  # checked at the start
    listed = find_window(given["positions"], config.attention_radius, given.get("component"), "lists").lists
    return {
        "agents": agents,
        "path": choose("auto", agents, config.attention_radius, setting.device, config.heads, config.head_dim),
        "neighbours": len(listed.rows) / agents,
        "step_ms": whole,
        "captured": captured is not None,  # as one CUDA graph; the parts below are those of the plain step
        "plain_ms": plain,
        "parts_ms": parts,
        "robots_per_s": 1e3 * agents / whole,
        "forward_ms": _forward(loop, setting.policy, given)["whole"],
        "peak_bytes": peak,
        **_dense(loop, setting.policy, given, memory, before),
    }


def _forward(
    loop: Loop, policy: Policy, given: dict[str, Tensor], path: str = "auto", **repeats: int
) -> dict[str, float]:
    def run(clock: Clock) -> None:
        clock.mark()
        with loop.autocast():
            policy(**given, path=path)
        clock.mark("forward")

    return medians(run, loop.world.device, SECONDS, **repeats)


def _dense(
    loop: Loop, policy: Policy, given: dict[str, Tensor], memory: Memory, before: dict[str, Any] | None
) -> dict[str, Any]:
    """The forward pass over all pairs, where memory and time, judged by the team before, allow it."""
    agents, free = given["positions"].shape[1], free_memory(loop.world.device)
    if free is not None and cost.dense_bytes(agents) > free / 2:
        return {}
    seconds = 0.0 if before is None else before.get("dense_ms", math.inf) / 1e3 * (agents / before["agents"]) ** 2
    if seconds > DENSE_SECONDS:
        return {}
    memory.restart()
    repeats = {"least": 1, "warm": 0} if seconds > SECONDS else {}
    spent = _forward(loop, policy, given, "dense", **repeats)["whole"]
    return {"dense_ms": spent, "dense_peak_bytes": memory.peak()}


def _against_dense(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times faster than over all pairs the forward pass is, for each team that has both."""
    both = [row for row in rows if "dense_ms" in row and row["path"] != "dense"]
    return [{"agents": row["agents"], "ratio": row["dense_ms"] / row["forward_ms"]} for row in both]


def _training(setting: Setting, sizes: Sequence[int]) -> dict[str, Any] | None:
    """A training step (forward and backward) of one environment by neighbour lists and over all pairs."""
    small = [agents for agents in sizes if agents <= TRAINED]
    if not small:
        return None
    config, policy, loop = setting.model, setting.policy, setting.together(small[-1])
    given = setting.given(loop)
    # What auto takes for a team without end: the fastest path over lists that this device has.
    lists = choose("auto", 2**40, config.attention_radius, setting.device, config.heads, config.head_dim)

    def run(clock: Clock) -> None:
        for path in (lists, "dense"):
            policy.zero_grad()
            clock.mark()
            with loop.autocast():
                loss = policy(**given, path=path).square().mean()
            loss.backward()
            clock.mark(path)

    try:
        spent = medians(run, setting.device, SECONDS)
    finally:
        policy.zero_grad()
    found = {"agents": small[-1], "path": lists, "lists_ms": spent[lists], "dense_ms": spent["dense"]}
    return found | {"ratio": spent["dense"] / spent[lists]}


def bench_world(config: WorldBenchConfig, device: torch.device, report: Report = _silent) -> dict[str, Any]:
    """A step of the world alone for several (environments, robots)."""
    task, pairs, about, rows = find(config.task), config.pairs(device.type), machine(device), []
    for environments, agents in pairs:
        needed = environments * _world(task, agents).bytes
        cost.check_fits(f"a world of {environments:,} x {agents:,} robots", needed, free_memory(device), _FEWER)
    for agents in WARM:
        warm = task.make(_world(task, agents), device)
        warm.metrics(warm.reset([0]))
        warm.observe(warm.reset([0]))
    memory = Memory(device)
    for environments, agents in pairs:
        rows.append(_world_row(task.make(_world(task, agents), device), environments, memory))
        report(rows[-1])
    side = _world(task, pairs[0][1]).side / 1000
    about = {"benchmark": "world", "machine": about, "task": task.name, "robots_per_km2": pairs[0][1] / side**2}
    return about | {"rows": rows}


_FEWER = "give smaller --sizes"


@torch.inference_mode()
def _world_row(world: World[Any, Any], environments: int, memory: Memory) -> dict[str, Any]:
    device, agents = world.device, world.config.agents
    state = world.reset(range(environments))
    drawn = torch.rand((environments, agents, 2), generator=torch.Generator().manual_seed(0)) * 2 - 1
    command = drawn.to(device)

    def step(clock: Clock) -> None:
        nonlocal state
        clock.mark()
        state = world.step(state, command)
        clock.mark("motion")
        world.metrics(state)
        clock.mark("metric")
        world.observe(state)
        clock.mark("observe")

    memory.restart()
    parts = medians(step, device, SECONDS)
    whole = parts.pop("whole")
    return {
        "environments": environments,
        "agents": agents,
        "step_ms": whole,
        "parts_ms": parts,
        "robots_per_s": 1e3 * environments * agents / whole,
        "peak_bytes": memory.peak(),
    }


def bench_decentral(config: DecentralBenchConfig, device: torch.device, report: Report = _silent) -> dict[str, Any]:
    """A decentralized step, a message taking one control period per hop, against one central forward pass."""
    setting, about = Setting(config, device), machine(device)
    pairs, rows = config.pairs(device.type), []
    for environments, agents in pairs:
        density, world = setting.density(agents), _world(setting.task, agents)
        held, kept, relay = None, "a table", Relay(setting.channel(world, config.relay_radius), world.dt)
        if relay.radius is not None and relay.lists(agents, device.type):
            held, kept = cost.list_bytes(environments, agents, density, relay.radius, device.type), "lists"
        needed = cost.decentral_bytes(setting.model, environments, agents, density, device.type, held)
        what = f"{environments:,} x {agents:,} robots, with {kept} of who knows what of whom,"
        cost.check_fits(what, needed, free_memory(device), _FEWER)
    flops, source = arithmetic(device, setting.precision)
    with torch.inference_mode():
        setting.alone(1, WARM[0]).step()
    memory = Memory(device)
    for environments, agents in pairs:
        rows.append(_decentral_row(setting, environments, agents, memory, config.relay_radius, flops))
        report(rows[-1])
    return setting.heading("decentral", about, pairs[0][1]) | {
        "settled_steps": SETTLED,
        "relay_radius": config.relay_radius,
        "flops_a_second": flops,
        "flops_from": source,
        "rows": rows,
    }


@torch.inference_mode()
def _decentral_row(
    setting: Setting,
    environments: int,
    agents: int,
    memory: Memory,
    relay_radius: float | Literal["auto"] | None,
    flops: float,
) -> dict[str, Any]:
    loop = setting.alone(environments, agents, relay_radius)
    _settle(loop, setting.policy, range(environments))
    floor = _floor_alone(setting, loop, flops)  # before memory is measured, of which it takes some

    def step(clock: Clock) -> None:
        """Moving and observing are not counted."""
        loop.mark = lambda part: clock.mark(part if part in ("perceive", "relay", "decide") else "")
        loop.step()

    memory.restart()
    parts = medians(step, setting.device, SECONDS, warm=1)
    plain, loop.mark = parts.pop("whole"), unmarked
    captured = capture(loop, 1, settles=0)
    whole = plain if captured is None else medians(_step_of(captured), setting.device, SECONDS)["whole"]
    peak = memory.peak()
    central = _forward(loop, setting.policy, setting.given(loop))["whole"]
    return {
        "environments": environments,
        "agents": agents,
        "relay_radius_m": loop.actor.channel.radius if loop.actor.channel else None,
        **_arithmetic_alone(setting, agents),
        **floor,
        "step_ms": whole,
        "captured": captured is not None,  # as one CUDA graph, moving, observing and the metrics among it
        "plain_ms": plain,
        "parts_ms": parts,
        "robots_per_s": 1e3 * environments * agents / whole,
        "central_ms": central,
        "ratio": whole / central,
        "peak_bytes": peak,
    }


def _arithmetic_alone(setting: Setting, agents: int) -> dict[str, float]:
    """What the decisions of a large team must compute, of policies with an attention window."""
    if setting.model.attention_radius is None:
        return {}
    return {"flops_per_robot": cost.alone_flops(setting.model, setting.density(agents))}


def _floor_alone(setting: Setting, loop: Loop, flops: float) -> dict[str, Any]:
    """What robots compute to decide from what they hold now, and the time that the arithmetic alone takes."""
    state = loop.actor.run.state  # type: ignore[attr-defined]
    work, robots = decentral.count(setting.policy, state), state.alive.numel()
    return {
        "rows_per_robot": [rows / robots for rows in work.rows],
        "floor_ms": 1e3 * cost.decided_flops(setting.model, robots, work) / flops,
    }


def _settle(loop: Loop, policy: Policy, seeds: Sequence[int], periods: int | None = None) -> None:
    """Let the tables of who knows what fill, for SETTLED control periods if not told otherwise. Meanwhile a central
    pass decides, which costs far less and leaves the tables just as old."""
    central, alone = Central(policy, loop.world), loop.actor
    assert isinstance(alone, Decentral)
    central.start(seeds)
    for _ in range(SETTLED if periods is None else periods):
        observation = loop.sense()
        with loop.autocast():
            alone.run.listen(loop.world.shown(observation, policy.config.observation_shape))
            command = central.act(loop.state, observation)
        loop.move(command)
