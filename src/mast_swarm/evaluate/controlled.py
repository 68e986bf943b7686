"""Robots that a controller drives, which is not learned: all from one place, or each on what it has heard."""

from __future__ import annotations

import copy
import inspect
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from mast_swarm import chance
from mast_swarm.comms.config import Channel, periods
from mast_swarm.comms.failures import survivors
from mast_swarm.comms.handed import Handed
from mast_swarm.comms.held import slot_of, stamp_of
from mast_swarm.comms.relay import Held, Relay
from mast_swarm.errors import MastError
from mast_swarm.observation import Heard, Mark, Observed, unmarked
from mast_swarm.space import Graph
from mast_swarm.survey import Survey
from mast_swarm.tasks.base import Controller
from mast_swarm.tasks.world import State, checked_command


class Controlled:
    """A controller that is not learned. Of a channel it meets the failures alone: it sends no messages."""

    attention_radius: float | None = None
    channel: Channel | None = None

    def __init__(self, controller: Controller, channel: Channel | None = None) -> None:
        self.controller, self.failing = controller, channel if channel is not None and channel.failure else None
        self.failure = 0.0 if channel is None else channel.failure
        self.seeds: Sequence[int] = ()
        self.alive: Tensor | None = None  # [B, N] bool
        self.instant = 0

    def start(self, seeds: Sequence[int]) -> None:
        self.controller.start(seeds)
        self.seeds, self.alive, self.instant = seeds, None, 0

    def act(self, state: State, observation: Observed, mark: Mark = unmarked) -> Tensor:
        if self.failing is not None:
            observation = self._less_failed(self.failing, observation)
        command = checked_command(self.controller.act(state, observation), tuple(state.positions.shape))
        mark("control")
        return command if self.alive is None else command * self.alive[..., None]

    def _less_failed(self, channel: Channel, observation: Observed) -> Observed:
        """The observation where nobody hears the robots that have failed by now, nor do they hear: the same robots at
        the same instants as under a policy that every robot runs alone."""
        places = observation.positions
        if self.alive is None:
            self.alive = torch.ones(places.shape[:2], dtype=torch.bool, device=places.device)
        else:
            keys = chance.keys_of(channel.seed, self.seeds, places.device)
            self.alive = survivors(self.alive, keys, self.instant, channel.failure)
            self.instant += 1
        return _among(observation, self.alive)


def _among(observation: Observed, alive: Tensor) -> Observed:
    """The observation where only the living, [B, N] bool, hear and are heard."""
    less = copy.copy(observation)
    object.__setattr__(less, "graph", observation.graph.among(alive))  # of a copy, which may be frozen
    return less


class Talking:
    """A controller whose robots tell each other over a channel what they sense: besides `start` it has
    `tell(state, observation)` [B, N, W], and its `act` is given what every robot has heard. With a `survey` its robots
    hand each other a map of where they have looked."""

    attention_radius: float | None = None

    def __init__(self, controller: Any, name: str, channel: Channel, dt: float, side: float) -> None:
        """name: what errors call the controller; side: width of the world in metres."""
        self.controller, self.name, self.side = controller, name, side
        if channel.relay_radius == "auto":  # what a controller reads may come from anywhere
            channel = replace(channel, relay_radius=None)
        self.channel: Channel | None = channel
        self.failure = channel.failure
        self.relay, self.hop = Relay(channel, dt), periods(channel.delay, dt)
        self.seeds: Sequence[int] = ()
        self.held: Held | None = None
        self.graph: Graph | None = None
        self.maps: Handed | None = None

    @property
    def alive(self) -> Tensor | None:
        """Who has not failed by now, [B, N] bool; None before the first decision."""
        return None if self.held is None else self.held.alive

    def start(self, seeds: Sequence[int]) -> None:
        self.controller.start(seeds)
        self.seeds, self.held, self.graph = seeds, None, None
        survey = self.survey()
        self.maps = None if survey is None else Handed(survey, self.relay)

    def survey(self) -> Survey | None:
        """The maps that the controller's robots hand each other, of this world; None: they have none."""
        survey = survey_of(self.controller)
        if survey is not None and not math.isclose(survey.side, self.side):
            raise MastError(
                f"`survey` of {self.name} is the map of a square of {survey.side:g} m, and the world's is "
                f"{self.side:g} m wide: make it with side=config.side"
            )
        return survey

    def act(self, state: State, observation: Observed, mark: Mark = unmarked) -> Tensor:
        said = self._said(state, observation)
        if self.held is None or self.graph is None:
            held = self.relay.start(self.seeds, said.shape[1], said.shape[2], like=said)
        else:
            if self.maps is not None:
                self.maps.hear(self.held, self.graph)
            held = self.relay.exchange(self.held, self.graph)
        self.graph = observation.graph
        self.held = held = self.relay.sample(held, said, observation.positions, observation.graph)
        if self.maps is not None:
            self.maps.look(held, observation)
        mark("relay")
        batch, robots = held.alive.shape
        environment = torch.arange(batch, device=said.device)[:, None, None]
        newest = held.newest  # of lists a table is made each time
        slot = slot_of(newest).clamp_max(held.messages.shape[1] - 1)
        news = held.messages[environment, slot, torch.arange(robots, device=said.device)]
        news = news.masked_fill((newest < 0)[..., None], 0)
        age = torch.where(newest >= 0, held.step - stamp_of(newest), -1)
        if self.failure:
            observation = _among(observation, held.alive)
        searched = partial(self._searched, held, observation)
        command = self.controller.act(state, observation, Heard(age, news, self.hop, searched))
        command = checked_command(command, tuple(state.positions.shape)) * held.alive[..., None]
        mark("control")
        return command

    def _said(self, state: State, observation: Observed) -> Tensor:
        """What robots say now, [B, N, W]."""
        said = self.controller.tell(state, observation)
        batch, robots = observation.positions.shape[:2]
        before = None if self.held is None else self.held.messages.shape[-1]  # robots always say as many numbers
        if isinstance(said, Tensor) and said.ndim == 3 and said.shape == (batch, robots, before or said.shape[2]):
            # A GPU would have to wait for the answer.
            if said.device.type == "cpu" and not bool(torch.isfinite(said).all()):
                environment, robot = torch.nonzero(~torch.isfinite(said).all(-1))[0].tolist()
                raise MastError(
                    f"`tell` of {type(self.controller).__name__} lets robot {robot} in environment {environment} say "
                    "what is not finite: let it say a number that stands for nothing instead"
                )
            return said
        got = list(said.shape) if isinstance(said, Tensor) else type(said).__name__
        expected = f"[{batch}, {robots}, {'numbers' if before is None else before}]"
        raise MastError(
            f"`tell` of {type(self.controller).__name__} gave {got}: expected a torch tensor {expected} (environments, "
            "robots, what each says)"
        )

    def _searched(self, held: Held, observation: Observed, command: Tensor, plan: Tensor) -> Tensor:
        if self.maps is None:
            raise MastError(
                f"{self.name} asks `heard.searched`, and its robots have no map: give the controller a `survey` before "
                "an episode starts, as mast_swarm.Survey(side=config.side, cell=25.0)"
            )
        shape = list(held.alive.shape)
        for what, given, last in (("commands", command, 2), ("a plan", plan, 3)):
            if not isinstance(given, Tensor) or list(given.shape) != [*shape, last]:
                got = list(given.shape) if isinstance(given, Tensor) else type(given).__name__
                raise MastError(f"`searched` takes commands and a plan: expected {what} {[*shape, last]}, got {got}")
        return self.maps.searched(command, plan, held.alive, observation.positions)


def survey_of(controller: Any) -> Survey | None:
    """The maps that a controller's robots hand each other; None: they have none."""
    survey = getattr(controller, "survey", None)
    if survey is not None and not isinstance(survey, Survey):
        raise MastError(
            f"`survey` of {type(controller).__name__} is {type(survey).__name__}: expected a mast_swarm.survey.Survey, "
            "the map that its robots share; call it otherwise if it is something else"
        )
    return survey


def controlled(controller: Any, name: str, channel: Channel | None, dt: float, side: float) -> Controlled | Talking:
    """The actor of a controller that was made for a world of that side, m; name: what errors call it."""
    talks = hasattr(controller, "tell")
    takes = {"start": ("seeds",), "act": ("state", "observation", *["heard"] * talks)}
    for method, taken in (takes | ({"tell": ("state", "observation")} if talks else {})).items():
        if not callable(getattr(controller, method, None)):
            raise MastError(f"{name} has no method {method}: a controller has start(seeds) and act(state, observation)")
        _check_takes(getattr(controller, method), taken, f"{name} has a method {method}")
    if not talks:
        return Controlled(controller, channel)
    talking = Talking(controller, name, channel or Channel(), dt, side)
    talking.survey()
    return talking


def _check_takes(method: Any, taken: Sequence[str], what: str) -> None:
    """Refuse a method that cannot be called with so many arguments."""
    try:
        signature = inspect.signature(method)
    except ValueError:  # a builtin's, which nobody knows
        return
    try:
        signature.bind(*taken)
    except TypeError:
        talks = "heard" in taken or "heard" in signature.parameters
        why = " (what robots have heard is given to a class with a method tell, and to no other)" if talks else ""
        raise MastError(f"{what}{signature}: expected ({', '.join(taken)}){why}") from None
