"""What a world is checked for: each check gives what is wrong, one sentence per finding, or nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast_swarm.observation import Observed
from mast_swarm.space import Graph
from mast_swarm.survey import sights_of
from mast_swarm.tasks.base import COLUMNS, Task
from mast_swarm.tasks.world import State, World

SEEDS = (0, 7, 12345)
STEPS = 4  # control periods that are tried
_CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-3}  # metres: sums may run in another order on another device

Findings = Iterator[str]
AnyWorld = World[Any, Any]


class Unusable(Exception):
    """A finding after which there is nothing else to try."""


def draws(world: AnyWorld) -> Findings:
    """Start states: arrays that follow from the seed alone."""
    ours = np.random.get_state(), torch.get_rng_state()
    try:
        yield from _draws_by_seed(world, world.config.scenario)
    finally:
        np.random.set_state(ours[0])
        torch.set_rng_state(ours[1])


def _draws_by_seed(world: AnyWorld, scenario: str) -> Findings:
    for seed in SEEDS:
        np.random.seed(1)
        torch.manual_seed(1)
        before = (np.random.get_state()[1].copy(), torch.get_rng_state())  # type: ignore[index]
        first = world.draw(seed, scenario)
        if not isinstance(first, tuple) or not all(isinstance(part, np.ndarray) for part in first):
            yield f"draw gives {type(first).__name__}: return a tuple of numpy arrays, also for a single one"
            return
        after = (np.random.get_state()[1], torch.get_rng_state())  # type: ignore[index]
        if not np.array_equal(before[0], after[0]) or not torch.equal(before[1], after[1]):
            yield "draw uses the global random state: use np.random.default_rng(seed)"
        np.random.seed(2)
        torch.manual_seed(2)
        again = world.draw(seed, scenario)
        if not all(np.array_equal(a, b) for a, b in zip(first, again, strict=True)):
            yield f"draw gives two different starts for seed {seed}: all chance must come from the seed"
        for number, part in enumerate(first):
            if part.dtype.kind not in "fiub":
                yield f"array {number} of draw is of {part.dtype}: give numbers"
            elif not np.isfinite(part).all():
                yield f"array {number} of draw for seed {seed} holds NaN or infinity"


def states(world: AnyWorld) -> Findings:
    """The state at the start."""
    state, batch, agents = world.reset(SEEDS), len(SEEDS), world.config.agents
    if not isinstance(state, State):
        yield f"begin gives {type(state).__name__}: derive the state from mast_swarm.State"
        return
    for name, value in vars(state).items():
        if not isinstance(value, Tensor):
            yield f"state.{name} is {type(value).__name__}: a state holds tensors [B, ...] alone"
        elif value.shape[:1] != (batch,):
            yield f"state.{name} has shape {list(value.shape)}: the first axis is the {batch} environments"
        elif value.device.type != world.device.type:
            yield f"state.{name} is on {value.device}, the world on {world.device}: begin moves what was drawn there"
    if tuple(state.positions.shape) != (batch, agents, 2) or not state.positions.is_floating_point():
        given = f"{state.positions.dtype} {list(state.positions.shape)}"
        yield f"state.positions is {given}: expected float [{batch}, {agents}, 2] for {agents} agents"
    if tuple(state.step.shape) != (batch,) or state.step.dtype != torch.int64 or bool(state.step.any()):
        yield f"state.step is {state.step.dtype} {list(state.step.shape)}: expected int64 [{batch}], all 0 at the start"


def observes(world: AnyWorld) -> Findings:
    """What robots sense, and who hears whom."""
    state = world.reset(SEEDS)
    kept = copied(state)
    observation, again = world.observe(state), world.observe(state)
    batch, agents, _ = state.positions.shape
    yield from changed(kept, state, "observe")
    for name in ("features", "positions", "graph", "landmark", "goals"):
        if not hasattr(observation, name):
            yield f"the observation has no {name}: return a mast_swarm.Observation"
            return
    features, shape = observation.features, world.config.observation_shape
    for name in ("features", "positions", "landmark"):
        value = getattr(observation, name)
        if not isinstance(value, Tensor):
            advice = "; torch.from_numpy makes one of an array" if isinstance(value, np.ndarray) else ""
            raise Unusable(f"{name} of the observation is {type(value).__name__}: give a torch tensor{advice}")
    if features.shape[:2] != (batch, agents) or features.ndim not in (3, 5) or not features.is_floating_point():
        given = f"{features.dtype} {list(features.shape)}"
        yield f"features are {given}: expected float [{batch}, {agents}, F], or [{batch}, {agents}, C, H, W] for images"
    elif shape is not None and tuple(features.shape[2:]) != tuple(shape):
        yield f"features are {list(features.shape[2:])} per robot, but config.observation_shape says {list(shape)}"
    if not bool(torch.isfinite(features).all()):
        yield "features hold NaN or infinity: check divisions by distances that may be 0"
    if not _same(features, again.features):
        yield "observing one state twice gives two observations: a world keeps nothing between calls"
    if not torch.equal(observation.positions, state.positions):
        yield "observation.positions are not state.positions: robots know where they are"
    yield from _graph(observation, batch, agents)
    if observation.landmark.shape != state.positions.shape:
        yield f"landmark has shape {list(observation.landmark.shape)}: expected {list(state.positions.shape)}"
    goals = observation.goals
    if (goals is not None) != world.config.goals:
        have = "goals" if goals is not None else "no goals"
        yield f"observations have {have}, but the config says goals = {world.config.goals}"
    if goals is not None and (goals.ndim != 3 or goals.shape[0] != batch or goals.shape[2] != 2):
        yield f"goals have shape {list(goals.shape)}: expected [{batch}, G, 2]"
    if getattr(observation, "sights", None) is not None:
        yield from _sights(sights_of(observation))


def _sights(sights: Tensor) -> Findings:
    if not sights.is_floating_point() or bool(sights.isnan().any()):
        yield "sights hold NaN, or are no floating-point numbers: where there is nothing more to sense, give infinity"
        return
    away = torch.linalg.vector_norm(sights, dim=-1)
    if bool((away[..., 1:] < away[..., :-1]).any()):
        yield "sights are not sorted: give the farthest last, as what is nearer than it counts as searched"


def _graph(observation: Observed, batch: int, agents: int) -> Findings:
    graph = observation.graph
    if not isinstance(graph, Graph):
        yield f"graph is {type(graph).__name__}: make it with mast_swarm.radius_graph or mast_swarm.neighbour_graph"
        return
    if (graph.batch, graph.nodes) != (batch, agents):
        yield f"graph is of {graph.batch} x {graph.nodes} robots: expected {batch} x {agents}"
        return
    links = graph.adjacency()
    if not graph.directed and not torch.equal(links, links.mT):
        yield "some links carry one way only: make the graph with directed=True"


def _commands(world: AnyWorld, step: int) -> Tensor:
    """One environment's commands per seed, the same in every batch."""
    drawn = [np.random.default_rng([seed, step]).uniform(-0.7, 0.7, (world.config.agents, 2)) for seed in SEEDS]
    return torch.from_numpy(np.stack(drawn)).float().to(world.device)


def steps(world: AnyWorld) -> Findings:
    """Control periods: each gives a new state."""
    state = world.reset(SEEDS)
    for step in range(STEPS):
        kept, command = copied(state), _commands(world, step)
        asked = command.clone()
        after, again = world.step(state, command), world.step(copied(kept), asked.clone())
        yield from changed(kept, state, "step")
        if not torch.equal(command, asked):
            yield "step changes the command in place: work on a copy"
        if type(after) is not type(state):
            yield f"step gives {type(after).__name__}: expected {type(state).__name__}; use dataclasses.replace"
            return
        if not torch.equal(after.step, state.step + 1):
            yield "state.step does not count the steps: set step=state.step + 1"
        for name, value in vars(after).items():
            before = getattr(state, name)
            if not isinstance(value, Tensor):
                raise Unusable(f"state.{name} becomes {type(value).__name__} in a step: a state holds tensors alone")
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                yield f"state.{name} holds NaN or infinity after step {step + 1}"
            if _kind(value) != _kind(before):
                yield f"state.{name} becomes {_kind(value)} from {_kind(before)}"
            elif not _same(value, getattr(again, name)):
                yield f"state.{name} differs when the same state takes the same step again: a world keeps nothing"
        if all(_kind(value) == _kind(getattr(state, name)) for name, value in vars(after).items()):
            world.advance(kept, asked)
            for name, value in vars(again).items():
                if _same(value, getattr(after, name)) and not _same(value, getattr(kept, name)):
                    yield f"state.{name} is not the same after advance as after step: both are one control period"
        state = after


def _kind(value: Tensor) -> str:
    return f"{value.dtype} {list(value.shape)}"


def batches(world: AnyWorld) -> Findings:
    """Environments together, and each alone."""
    together = world.reset(SEEDS)
    alone = [world.reset([seed]) for seed in SEEDS]
    for step in range(STEPS + 1):
        seen = world.observe(together)
        for number, state in enumerate(alone):
            for name, value in vars(state).items():
                if not _near(getattr(together, name)[number : number + 1], value):
                    yield f"state.{name} of an environment depends on the others in its batch (step {step})"
                    return
            alone_seen = world.observe(state)
            if not _near(seen.features[number : number + 1], alone_seen.features):
                yield f"features of an environment depend on the others in its batch (step {step})"
                return
            if not torch.equal(seen.graph.adjacency()[number : number + 1], alone_seen.graph.adjacency()):
                yield f"links of an environment depend on the others in its batch (step {step})"
                return
        command = _commands(world, step)
        together = world.step(together, command)
        alone = [world.step(state, command[n : n + 1]) for n, state in enumerate(alone)]
    measured = world.metrics(together)
    for number, state in enumerate(alone):
        for name, value in world.metrics(state).items():
            comparable = isinstance(value, Tensor) and value.shape == (1,)  # what is not is told elsewhere
            if comparable and not _near(measured[name][number : number + 1], value):
                yield f"metric {name} of an environment depends on the others in its batch"
                return


def metrics(world: AnyWorld, task: Task | None) -> Findings:
    """What the world measures, and what the task says of that."""
    state, command = world.reset(SEEDS), _commands(world, 0)
    after = world.step(state, command)
    kept = copied(state)
    both = world.metrics(state), world.metrics(after)
    yield from changed(kept, state, "metrics")
    for found in both:
        for name, value in found.items():
            if name in COLUMNS.union(world.config.stated):
                yield f"metric {name} has the name of a column of tables: give it another"
            if not isinstance(value, Tensor) or tuple(value.shape) != (len(SEEDS),):
                given = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
                yield f"metric {name} is {given}: expected a tensor [{len(SEEDS)}]"
            elif not bool(torch.isfinite(value.float()).all()):
                yield f"metric {name} is not finite"
        for metric in task.shown if task is not None else ():
            shown, (low, high) = found.get(metric.name), metric.limits
            if shown is None:
                known = ", ".join(found)
                yield f"the task's metric {metric.name} is not among those of the world: {known}"
            elif isinstance(shown, Tensor) and not bool(((shown >= low) & (shown <= high)).all()):
                yield f"metric {metric.name} leaves its limits {metric.limits}"
    if task is not None and task.reward is not None:
        reward, team = task.part("reward")(world, state, command, after), state.positions.shape[:2]
        if not isinstance(reward, Tensor) or reward.shape not in (team[:1], team):
            found_shape = list(reward.shape) if isinstance(reward, Tensor) else type(reward).__name__
            yield f"the task's reward is {found_shape}: expected a tensor {list(team[:1])} or {list(team)}"
        elif not bool(torch.isfinite(reward).all()):
            yield "the task's reward is not finite"


def keeps(world: AnyWorld) -> Findings:
    """What recordings and samples for learning keep."""
    state = world.reset(SEEDS)
    observation = world.observe(state)
    for name, value in world.frame(state, observation).items():
        if value.shape[:1] != (len(SEEDS),):
            yield f"{name} of frame has shape {list(value.shape)}: the first axis is the {len(SEEDS)} environments"
    track = state.positions.float().cpu()[:, None]
    for name, value in world.scene(state, track).items():
        if value.shape[:1] != (len(SEEDS),):
            yield f"{name} of scene has shape {list(value.shape)}: the first axis is the {len(SEEDS)} environments"
    features = observation.features
    back = world.unpack(world.pack(features), state.positions)
    if back.shape != features.shape:
        yield f"features of shape {list(features.shape)} come back from pack and unpack as {list(back.shape)}"
    elif back.dtype != features.dtype:
        yield f"features come back from unpack as {back.dtype}: it must give what was packed, {features.dtype}"
    elif not torch.allclose(back, features, atol=0.01):
        yield "features that were packed come back from unpack changed by more than 0.01"


def devices(cpu: AnyWorld, gpu: AnyWorld) -> Findings:
    """A GPU beside the CPU."""
    here, there = cpu.reset(SEEDS), gpu.reset(SEEDS)
    for step in range(STEPS):
        seen, also = cpu.observe(here).features, gpu.observe(there).features
        if also.device.type != "cuda":
            yield "features of a world on a GPU are not on it: make tensors with device=self.device"
            return
        if not torch.allclose(seen, also.cpu(), **_CLOSE):
            yield f"features differ between CPU and GPU (step {step})"
            return
        command = _commands(cpu, step)
        here, there = cpu.step(here, command), gpu.step(there, command.to(gpu.device))
        for name, value in vars(here).items():
            if not _near(value, getattr(there, name).cpu()):
                yield f"state.{name} differs between CPU and GPU (step {step})"
                return


def copied(state: Any) -> Any:
    """The same state in memory of its own."""
    return dataclasses.replace(state, **{name: value.clone() for name, value in vars(state).items()})


def changed(kept: Any, state: Any, by: str) -> Findings:
    """What of a state is no longer as it was kept."""
    for name, value in vars(kept).items():
        if not _same(value, getattr(state, name)):
            yield f"{by} changes state.{name} in place: a state is a value; use dataclasses.replace"


def _near(a: Tensor, b: Tensor) -> bool:
    if not a.is_floating_point():
        return torch.equal(a, b)
    return a.shape == b.shape and torch.allclose(a, b, **_CLOSE, equal_nan=True)  # NaN is told of elsewhere


def _same(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal, with NaN where the other has it."""
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())
