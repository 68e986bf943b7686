"""Benchmarks of this machine: how a closed-loop step grows with the team, the world alone, and every robot alone.

All run the shipped MAST-M in the navigation world at 100 robots per square kilometre, in bf16 on a GPU and in fp32 on
the CPU unless told otherwise. Times are medians; each function gives what `mast bench` writes to a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from mast_swarm.comms.config import Channel
from mast_swarm.comms.decentral import decide
from mast_swarm.comms.relay import Relay
from mast_swarm.evaluate import cost
from mast_swarm.evaluate.bench_config import DecentralBenchConfig, ScaleConfig, WorldBenchConfig
from mast_swarm.evaluate.measure import Clock, Memory, arithmetic, free_memory, machine, medians
from mast_swarm.model.policy import Policy
from mast_swarm.model.windowed import choose, find_window
from mast_swarm.world.config import NavigationConfig
from mast_swarm.world.navigation import Navigation

POLICY = "navigation/mast-m"
DENSITY = 100.0  # robots per km^2, as the world's width follows from its agents
SECONDS = 2.0  # of each measurement, at least three runs
DENSE_SECONDS = 30.0  # a forward pass over all pairs is expected to stay below, or does not run
TRAINED = 1_000  # robots of the largest team whose training step is measured
WARM = (50, 3_000)  # robots of teams that load every compiled loop before memory is measured
SETTLED = 30  # control periods after which what robots know of each other is about as old as it gets

Report = Callable[[dict[str, Any]], None]


def _silent(row: dict[str, Any]) -> None:
    """Says nothing of a row that has been measured."""


def bench_scale(config: ScaleConfig, device: torch.device, report: Report = _silent) -> dict[str, Any]:
    """Time, memory and robots a second of a closed-loop step against the size of the team.

    report: is told of each row when it is there.
    """
    policy, about, precision = Policy.load(POLICY).to(device), machine(device), config.arithmetic(device.type)
    sizes = _fitting(policy, config, device)
    flops, source = arithmetic(device, precision)
    rows: list[dict[str, Any]] = []
    with torch.inference_mode():
        for agents in WARM:
            Together(policy, agents, device, precision).step(Clock(device))
    memory = Memory(device)
    for agents in sizes:
        row = _scale_row(policy, agents, device, precision, memory, rows[-1] if rows else None)
        rows.append(row | {"floor_ms": 1e3 * agents * cost.forward_flops(policy.config, row["neighbours"]) / flops})
        report(rows[-1])
    return _heading("scale", about, precision) | {
        "attention_radius_m": policy.config.attention_radius,
        "layers": policy.config.layers,
        "width": policy.config.width,
        "flops_a_second": flops,
        "flops_from": source,
        "rows": rows,
        "growth": {part: cost.growth(sizes, [row[f"{part}_ms"] for row in rows]) for part in ("step", "forward")},
        "against_dense": _against_dense(rows),
        "training": _training(policy, sizes, device, precision),
    }


def _heading(benchmark: str, about: dict[str, Any], precision: str) -> dict[str, Any]:
    return {
        "benchmark": benchmark,
        "machine": about,
        "policy": POLICY,
        "precision": precision,
        "robots_per_km2": DENSITY,
    }


def _fitting(policy: Policy, config: ScaleConfig, device: torch.device) -> list[int]:
    """The sizes to measure: of those that were asked for all must fit in memory, of the others those that do."""
    sizes, free = config.sizes(device.type), free_memory(device)
    needed = {agents: cost.step_bytes(policy.config, agents, DENSITY) for agents in sizes}
    if config.agents:
        most, each = sizes[-1], needed[sizes[-1]] / sizes[-1] / 1e3
        what = f"{most:,} robots, {each:.0f} kB each for activations and neighbour lists,"
        cost.check_fits(what, needed[most], free, "give fewer --agents")
        return list(sizes)
    return [agents for agents in sizes if free is None or needed[agents] <= free]


def _world(agents: int, device: torch.device) -> Navigation:
    return Navigation(NavigationConfig(agents=agents, scenario="clusters-1"), device)


def _half(device: torch.device, precision: str) -> AbstractContextManager[Any]:
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


class Together:
    """A team of one environment in a closed loop, one forward pass for all, with the parts of a step apart."""

    def __init__(self, policy: Policy, agents: int, device: torch.device, precision: str) -> None:
        self.policy, self.device, self.precision = policy, device, precision
        self.world = _world(agents, device)
        self.state = self.world.reset([0])
        self.seeds = torch.zeros(1, dtype=torch.int64, device=device)

    def step(self, clock: Clock) -> None:
        """One control period."""
        clock.mark()
        observation = self.world.observe(self.state)
        clock.mark("observe")
        given = self.policy.inputs(observation)
        clock.mark("components")
        with _half(self.device, self.precision):
            prediction = self.policy(**given)
        clock.mark("policy")
        time = self.state.step * self.world.config.dt
        command = self.policy.command(prediction, observation.landmark, self.seeds, time)
        self.state = self.world.step(self.state, command)
        clock.mark("motion")
        self.world.metrics(self.state)
        clock.mark("metric")


@torch.inference_mode()
def _scale_row(
    policy: Policy, agents: int, device: torch.device, precision: str, memory: Memory, before: dict[str, Any] | None
) -> dict[str, Any]:
    """One size: the whole step by parts, and the forward pass alone on the start state. before: the last size's."""
    team = Together(policy, agents, device, precision)
    given = policy.inputs(team.world.observe(team.state))
    memory.restart()
    parts = medians(team.step, device, SECONDS)
    peak, whole = memory.peak(), parts.pop("whole")
    config = policy.config
    assert config.attention_radius is not None  # the shipped MAST-M has a window
    listed = find_window(given["positions"], config.attention_radius, given["component"], "lists").lists
    return {
        "agents": agents,
        "path": choose(policy.path, agents, config.attention_radius, device, config.heads, config.head_dim),
        "neighbours": len(listed.rows) / agents,
        "step_ms": whole,
        "parts_ms": parts,
        "robots_per_s": 1e3 * agents / whole,
        "forward_ms": _forward(policy, given, device, precision)["whole"],
        "peak_bytes": peak,
        **_dense(policy, given, device, precision, memory, before),
    }


def _forward(
    policy: Policy, given: dict[str, Tensor], device: torch.device, precision: str, **repeats: int
) -> dict[str, float]:
    def run(clock: Clock) -> None:
        clock.mark()
        with _half(device, precision):
            policy(**given)
        clock.mark("forward")

    return medians(run, device, SECONDS, **repeats)


def _dense(
    policy: Policy,
    given: dict[str, Tensor],
    device: torch.device,
    precision: str,
    memory: Memory,
    before: dict[str, Any] | None,
) -> dict[str, Any]:
    """The forward pass over all pairs, where memory and time, judged by the team before, allow it."""
    agents, free = given["positions"].shape[1], free_memory(device)
    if free is not None and cost.dense_bytes(agents) > free / 2:
        return {}
    seconds = 0.0 if before is None else before.get("dense_ms", math.inf) / 1e3 * (agents / before["agents"]) ** 2
    if seconds > DENSE_SECONDS:
        return {}
    policy.path = "dense"
    try:
        memory.restart()
        repeats = {"least": 1, "warm": 0} if seconds > SECONDS else {}
        spent = _forward(policy, given, device, precision, **repeats)["whole"]
        return {"dense_ms": spent, "dense_peak_bytes": memory.peak()}
    finally:
        policy.path = "auto"


def _against_dense(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """How many times faster than over all pairs the forward pass is, for each team that has both."""
    both = [row for row in rows if "dense_ms" in row and row["path"] != "dense"]
    return [{"agents": row["agents"], "ratio": row["dense_ms"] / row["forward_ms"]} for row in both]


def _training(policy: Policy, sizes: Sequence[int], device: torch.device, precision: str) -> dict[str, Any] | None:
    """A training step (forward and backward) of one environment by neighbour lists and over all pairs."""
    small = [agents for agents in sizes if agents <= TRAINED]
    if not small:
        return None
    config, world = policy.config, _world(small[-1], device)
    given = policy.inputs(world.observe(world.reset([0])))
    # What auto takes for a team without end: the fastest path over lists that this device has.
    lists = choose("auto", 2**40, config.attention_radius, device, config.heads, config.head_dim)

    def run(clock: Clock) -> None:
        for path in (lists, "dense"):
            policy.path = path
            policy.zero_grad()
            clock.mark()
            with _half(device, precision):
                loss = policy(**given).square().mean()
            loss.backward()
            clock.mark(path)

    try:
        spent = medians(run, device, SECONDS)
    finally:
        policy.path = "auto"
        policy.zero_grad()
    found = {"agents": small[-1], "path": lists, "lists_ms": spent[lists], "dense_ms": spent["dense"]}
    return found | {"ratio": spent["dense"] / spent[lists]}


def bench_world(config: WorldBenchConfig, device: torch.device, report: Report = _silent) -> dict[str, Any]:
    """A step of the world alone for several (environments, robots)."""
    pairs, about, rows = config.pairs(device.type), machine(device), []
    for environments, agents in pairs:
        needed = environments * NavigationConfig(agents=agents).bytes
        cost.check_fits(f"a world of {environments:,} x {agents:,} robots", needed, free_memory(device), _FEWER)
    for agents in WARM:
        warm = _world(agents, device)
        warm.metrics(warm.reset([0]))
        warm.observe(warm.reset([0]))
    memory = Memory(device)
    for environments, agents in pairs:
        rows.append(_world_row(environments, agents, device, memory))
        report(rows[-1])
    return {"benchmark": "world", "machine": about, "robots_per_km2": DENSITY, "rows": rows}


_FEWER = "give smaller --sizes"


@torch.inference_mode()
def _world_row(environments: int, agents: int, device: torch.device, memory: Memory) -> dict[str, Any]:
    world = _world(agents, device)
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
    """A decentralised step, a message taking one control period a hop, against one central forward pass."""
    policy, about, precision = Policy.load(POLICY).to(device), machine(device), config.arithmetic(device.type)
    pairs, rows = config.pairs(device.type), []
    for environments, agents in pairs:
        needed = cost.decentral_bytes(policy.config, environments, agents, DENSITY, device.type)
        what = f"{environments:,} x {agents:,} robots, with a table of who knows what of whom,"
        cost.check_fits(what, needed, free_memory(device), _FEWER)
    with torch.inference_mode():
        Alone(policy, 1, WARM[0], device, precision).step(Clock(device))
    memory = Memory(device)
    for environments, agents in pairs:
        rows.append(_decentral_row(policy, environments, agents, device, precision, memory))
        report(rows[-1])
    return _heading("decentral", about, precision) | {"settled_steps": SETTLED, "rows": rows}


class Alone:
    """A team in a closed loop in which every robot decides alone, with the parts of a step apart.

    It does what `DecentralPolicy` does. Until the tables have filled, `settle` lets a central pass decide, which costs
    far less and leaves them just as old.
    """

    def __init__(self, policy: Policy, environments: int, agents: int, device: torch.device, precision: str) -> None:
        self.policy, self.device, self.precision = policy, device, precision
        self.world = _world(agents, device)
        dt = self.world.config.dt
        self.relay = Relay(Channel(delay=dt), dt)
        self.state = self.world.reset(range(environments))
        self.seeds = torch.arange(environments, device=device)
        self.observation = self.world.observe(self.state)
        self.held = self.relay.start(range(environments), agents, policy.config.message_width, like=self._message())
        self._keep(self._message())

    def _message(self) -> Tensor:
        with _half(self.device, self.precision):
            return self.policy.perceive(self.observation.features)

    def _keep(self, message: Tensor) -> None:
        self.held = self.relay.sample(self.held, message, self.observation.positions, self.observation.graph)

    def _command(self, prediction: Tensor) -> Tensor:
        time = self.state.step * self.world.config.dt
        return self.policy.command(prediction, self.observation.landmark, self.seeds, time)

    def _move(self, command: Tensor, clock: Clock) -> None:
        """Moving and observing are not counted; what robots hear and say at the next instant is."""
        graph, self.state = self.observation.graph, self.world.step(self.state, command)
        self.observation = self.world.observe(self.state)
        clock.mark()
        message = self._message()
        clock.mark("perceive")
        self.held = self.relay.exchange(self.held, graph)
        self._keep(message)
        clock.mark("relay")

    def settle(self, steps: int) -> None:
        for _ in range(steps):
            with _half(self.device, self.precision):
                prediction = self.policy(**self.policy.inputs(self.observation))
            self._move(self._command(prediction), Clock(self.device))

    def step(self, clock: Clock) -> None:
        """One control period."""
        clock.mark()
        with _half(self.device, self.precision):
            prediction = decide(self.policy, self.held)
        command = self._command(prediction)
        clock.mark("decide")
        self._move(command, clock)


@torch.inference_mode()
def _decentral_row(
    policy: Policy, environments: int, agents: int, device: torch.device, precision: str, memory: Memory
) -> dict[str, Any]:
    team = Alone(policy, environments, agents, device, precision)
    team.settle(SETTLED)
    memory.restart()
    parts = medians(team.step, device, SECONDS, warm=1)
    whole, peak = parts.pop("whole"), memory.peak()
    central = _forward(policy, policy.inputs(team.observation), device, precision)["whole"]
    return {
        "environments": environments,
        "agents": agents,
        "step_ms": whole,
        "parts_ms": parts,
        "robots_per_s": 1e3 * environments * agents / whole,
        "central_ms": central,
        "ratio": whole / central,
        "peak_bytes": peak,
    }
