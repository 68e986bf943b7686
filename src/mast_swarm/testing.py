"""Checks for worlds of your own: `check_world(world)` in a test, `mast check FILE.py:TASK` on the command line.

Each check is a function that gives what is wrong, one sentence per finding with what to mend, or nothing.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.config import DemoConfig, EvaluateConfig
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.model.config import PolicyConfig
from mast_swarm.observation import Observed
from mast_swarm.space import Graph
from mast_swarm.survey import sights_of
from mast_swarm.tasks.base import COLUMNS, Controller, FunctionController, Task, numbered
from mast_swarm.tasks.registry import find
from mast_swarm.tasks.world import State, World
from mast_swarm.train.config import TrainConfig
from mast_swarm.view.choose import check_shown, view_for

SEEDS = (0, 7, 12345)
STEPS = 4  # control periods that are tried
_CLOSE: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-3}  # metres: sums may run in another order on another device

Findings = Iterator[str]
AnyWorld = World[Any, Any]


def check_world(world: AnyWorld, task: Task | None = None) -> list[str]:
    """Run all checks; gives a line per check that passed. What is wrong is one MastError that lists everything.

    task: checks its metrics and controllers too.
    """
    passed: list[str] = []
    wrong: list[str] = []
    checks: dict[str, Callable[[], Findings]] = {
        "starts depend on their seed alone": lambda: _draws(world),
        "states are frozen dataclasses of tensors": lambda: _states(world),
        "robots observe what was promised": lambda: _observes(world),
        "a step makes a new state and leaves the old one": lambda: _steps(world),
        "environments do not depend on their batch": lambda: _batches(world),
        "metrics are finite numbers": lambda: _metrics(world, task),
        "recordings and samples have the right shapes": lambda: _keeps(world),
    }
    if task is not None:
        checks["controllers command every robot"] = lambda: _controls(world, task)
        checks["settings have names of their own"] = lambda: _names(world)
        checks["recordings can be shown"] = lambda: _shows(world, task) if not wrong else iter(())
    for title, check in checks.items():
        found, usable = _tried(check)
        wrong += [f"{title}: {finding}" for finding in found]
        if not found:
            passed.append(f"ok: {title}")
        elif not usable or title.startswith(("starts", "states")):
            break  # nothing else can be tried
    if wrong:
        raise MastError(f"{type(world).__name__} needs mending:\n" + "\n".join(f"- {line}" for line in wrong))
    return passed


class _Unusable(Exception):
    """A finding after which there is nothing else to try."""


def _tried(check: Callable[[], Findings]) -> tuple[list[str], bool]:
    """What a check finds, each once, and whether others can be tried after it."""
    found: dict[str, None] = {}
    try:
        for finding in check():
            found[finding] = None
    except _Unusable as error:
        return [*found, str(error)], False
    except Exception as error:  # a world may raise anything
        found[f"{_where(error)}{type(error).__name__}: {error}"] = None
    return list(found), True


def _where(error: BaseException) -> str:
    """The line of the world's own code that an error came through last, if any."""
    here, ours = Path(__file__).parent, None
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if here not in path.parents and "site-packages" not in path.parts and path.exists():
            ours = f"{frame.filename} line {frame.lineno}: "
    return ours or ""


def check_task(task: Task, device: str = "auto", agents: int | None = None) -> list[str]:
    """All checks of a task, and on a GPU, if there is one or `device` is cuda, that it gives what a CPU gives.

    agents: how many robots; None: as its settings have it.
    """
    config = task.Config() if agents is None else dataclasses.replace(task.Config(), agents=agents)
    world = task.make(config)
    if not isinstance(world, World):
        raise MastError(f"the World of task {task.name} is {type(world).__name__}: derive it from mast_swarm.World")
    passed = check_world(world, task)
    if device == "cuda" and not torch.cuda.is_available():
        raise MastError("--device cuda: no CUDA device is available here; use --device cpu")
    if device != "cpu" and torch.cuda.is_available():
        found, _ = _tried(lambda: _devices(world, task.make(config, "cuda")))
        if found:
            raise MastError(f"{type(world).__name__} needs mending:\n" + "\n".join(f"- {line}" for line in found))
        passed.append("ok: a GPU gives what the CPU gives")
    return passed


def _draws(world: AnyWorld) -> Findings:
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


def _states(world: AnyWorld) -> Findings:
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


def _observes(world: AnyWorld) -> Findings:
    state = world.reset(SEEDS)
    kept = _copy(state)
    observation, again = world.observe(state), world.observe(state)
    batch, agents, _ = state.positions.shape
    yield from _changed(kept, state, "observe")
    for name in ("features", "positions", "graph", "landmark", "goals"):
        if not hasattr(observation, name):
            yield f"the observation has no {name}: return a mast_swarm.Observation"
            return
    features, shape = observation.features, world.config.observation_shape
    for name in ("features", "positions", "landmark"):
        value = getattr(observation, name)
        if not isinstance(value, Tensor):
            advice = "; torch.from_numpy makes one of an array" if isinstance(value, np.ndarray) else ""
            raise _Unusable(f"{name} of the observation is {type(value).__name__}: give a torch tensor{advice}")
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


def _steps(world: AnyWorld) -> Findings:
    state = world.reset(SEEDS)
    for step in range(STEPS):
        kept, command = _copy(state), _commands(world, step)
        asked = command.clone()
        after, again = world.step(state, command), world.step(_copy(kept), asked.clone())
        yield from _changed(kept, state, "step")
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
                raise _Unusable(f"state.{name} becomes {type(value).__name__} in a step: a state holds tensors alone")
            if value.is_floating_point() and not bool(torch.isfinite(value).all()):
                yield f"state.{name} holds NaN or infinity after step {step + 1}"
            if value.shape != before.shape or value.dtype != before.dtype:
                yield f"state.{name} becomes {value.dtype} {list(value.shape)} from {before.dtype} {list(before.shape)}"
            elif not _same(value, getattr(again, name)):
                yield f"state.{name} differs when the same state takes the same step again: a world keeps nothing"
        state = after


def _batches(world: AnyWorld) -> Findings:
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


def _metrics(world: AnyWorld, task: Task | None) -> Findings:
    state, command = world.reset(SEEDS), _commands(world, 0)
    after = world.step(state, command)
    both = world.metrics(state), world.metrics(after)
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


def _keeps(world: AnyWorld) -> Findings:
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


def _controls(world: AnyWorld, task: Task) -> Findings:
    state = world.reset(SEEDS)
    observation = world.observe(state)
    for name in task.controllers:
        found = task.controller(numbered(name))
        assert found is not None  # its name comes from the task
        controller, kept = _made(found, world), _copy(state)
        if hasattr(controller, "tell"):  # it acts on what it has heard
            talking = make_actor(controller, world)
            talking.start(SEEDS)
            command = talking.act(state, observation)
        else:
            controller.start(SEEDS)
            command = controller.act(state, observation)
        if isinstance(command, np.ndarray):
            yield f"controller {name} gives a numpy array: give a torch tensor; torch.from_numpy makes one of it"
            continue
        yield from _changed(kept, state, f"controller {name}")
        if not isinstance(command, Tensor) or command.shape != state.positions.shape:
            given = list(command.shape) if isinstance(command, Tensor) else type(command).__name__
            yield f"controller {name} gives {given}: expected a tensor {list(state.positions.shape)}"
        elif not bool(torch.isfinite(command).all()):
            yield f"controller {name} gives commands that are not finite"
        elif isinstance(controller, FunctionController) and (controller.act(state, observation) != command).any():
            yield f"controller {name} gives two commands for one state: a function keeps nothing; make it a class"


def _shows(world: AnyWorld, task: Task) -> Findings:
    view = view_for(find(task))  # a recording has the name of a known task
    ran = rollout(world, lambda state, observation: 0 * state.positions, SEEDS[:1], 1, name="robots at rest", record=1)
    try:
        check_shown(view, ran.recordings[0])
    except MastError as error:
        keep = "let frame give {**super().frame(state, observation), ...}, or give the task a view of its own"
        yield str(error) if task.view is not None else f"{str(error).removesuffix('; record again')}: {keep}"
        return
    view.embedded(ran.recordings[0])


def _names(world: AnyWorld) -> Findings:
    commands = {
        "mast evaluate": (EvaluateConfig,),
        "mast demo": (DemoConfig,),
        "mast train": (TrainConfig, PolicyConfig),
    }
    for command, kinds in commands.items():
        try:
            world.config.check_apart(command, [field.name for kind in kinds for field in dataclasses.fields(kind)])
        except MastError as error:
            yield str(error)


def _made(controller: Callable[..., Controller], world: AnyWorld) -> Controller:
    config = world.config
    return controller(dt=config.dt, max_speed=config.max_speed, config=config)


def _devices(cpu: AnyWorld, gpu: AnyWorld) -> Findings:
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


def _copy(state: Any) -> Any:
    return dataclasses.replace(state, **{name: value.clone() for name, value in vars(state).items()})


def _changed(kept: Any, state: Any, by: str) -> Findings:
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
