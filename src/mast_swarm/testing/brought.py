"""What a task brings beside its world is checked for: controllers, names of settings, and its view."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.config import DemoConfig, EvaluateConfig
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.model.config import PolicyConfig
from mast_swarm.tasks.base import Controller, FunctionController, Task, numbered
from mast_swarm.tasks.registry import find
from mast_swarm.testing.worlds import SEEDS, AnyWorld, Findings, changed, copied
from mast_swarm.train.config import TrainConfig
from mast_swarm.view.choose import check_shown, view_for


def controls(world: AnyWorld, task: Task) -> Findings:
    """Controllers: a command for every robot."""
    state = world.reset(SEEDS)
    observation = world.observe(state)
    for name in task.controllers:
        found = task.controller(numbered(name))
        assert found is not None  # its name comes from the task
        controller, kept = _made(found, world), copied(state)
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
        yield from changed(kept, state, f"controller {name}")
        if not isinstance(command, Tensor) or command.shape != state.positions.shape:
            given = list(command.shape) if isinstance(command, Tensor) else type(command).__name__
            yield f"controller {name} gives {given}: expected a tensor {list(state.positions.shape)}"
        elif not bool(torch.isfinite(command).all()):
            yield f"controller {name} gives commands that are not finite"
        elif isinstance(controller, FunctionController) and (controller.act(state, observation) != command).any():
            yield f"controller {name} gives two commands for one state: a function keeps nothing; make it a class"


def shows(world: AnyWorld, task: Task) -> Findings:
    """The view: what recordings keep can be shown."""
    view = view_for(find(task))  # a recording has the name of a known task
    ran = rollout(world, lambda state, observation: 0 * state.positions, SEEDS[:1], 1, name="robots at rest", record=1)
    try:
        check_shown(view, ran.recordings[0])
    except MastError as error:
        keep = "let frame give {**super().frame(state, observation), ...}, or give the task a view of its own"
        yield str(error) if task.view is not None else f"{str(error).removesuffix('; record again')}: {keep}"
        return
    view.embedded(ran.recordings[0])


def names(world: AnyWorld) -> Findings:
    """Settings: none is called as an option of a command."""
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
