"""Who drives: a controller, a learned policy run centrally, or one run by every robot alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from mast_swarm import chance
from mast_swarm.comms.config import Channel
from mast_swarm.comms.decentral import DecentralPolicy
from mast_swarm.comms.lpac import DecentralLPAC
from mast_swarm.errors import MastError
from mast_swarm.evaluate.controlled import controlled
from mast_swarm.evaluate.policies import find_learned
from mast_swarm.model.learned import Learned
from mast_swarm.model.lpac import LPAC
from mast_swarm.model.policy import Policy, load_learned
from mast_swarm.observation import Mark, Observed, unmarked
from mast_swarm.tasks.base import Controller, factory
from mast_swarm.tasks.registry import from_file, is_reference, task_of
from mast_swarm.tasks.world import State, World


@runtime_checkable
class Actor(Protocol):
    """Drives all robots of a batch of environments, one control instant after the other."""

    attention_radius: float | None  # m; None: no window
    channel: Channel | None  # what messages travel over; None: the commands come from one place

    def start(self, seeds: Sequence[int]) -> None:
        """Forget the last episode; one seed per environment."""

    def act(self, state: State, observation: Observed, mark: Mark = unmarked) -> Tensor:
        """Commands [B, N, 2] in units of u_max."""


class Central:
    """A learned policy in one forward pass for all robots, with the component mask where it has one."""

    channel: Channel | None = None
    SETTLES = 0  # control periods until what it does at each is about the same work
    unsteady: str | None = None  # why it has to ask a GPU for numbers at every step

    def __init__(self, policy: Learned, world: World[Any, Any]) -> None:
        self.policy, self.world = policy.eval(), world
        self.attention_radius = policy.config.attention_radius
        self.extras = policy.surroundings(world.config.side)
        self.seeds = torch.zeros(0, dtype=torch.int64)
        self.trail, self.survey = policy.trail(world.config.dt), policy.survey(world.config.side)

    def start(self, seeds: Sequence[int]) -> None:
        """The seeds decide how robots explore, and robots may remember where they have been."""
        self.seeds = chance.as_tensor(seeds, self.world.device)
        self.trail, self.survey = self.policy.trail(self.world.config.dt), self.policy.survey(self.world.config.side)

    def begin(self, positions: Tensor) -> None:
        """Nothing is remembered of robots at positions [B, N, 2]."""
        for part in (self.trail, self.survey):
            if part is not None:
                part.begin(positions)

    def memory(self) -> dict[str, Tensor]:
        """All that a decision leaves behind for the next; `remember` takes it."""
        kept: dict[str, Tensor] = {}
        for part in (self.trail, self.survey):
            kept |= {} if part is None else part.memory()
        return kept

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Go on with what `memory` gave, wherever it lies now."""
        for part in (self.trail, self.survey):
            if part is not None:
                part.remember(memory)

    def given(self, observation: Observed) -> dict[str, Tensor]:
        """What the policy is given of an observation, by name, each [B, N, ...]."""
        return self.policy.inputs(self.world.shown(observation, self.policy.config.observation_shape))

    def predict(self, given: dict[str, Tensor]) -> Tensor:
        """What the policy predicts, [B, N, 2 or 3]."""
        return self.policy(**given, **self.extras)

    def command(self, prediction: Tensor, landmark: Tensor, step: Tensor, away: Tensor | None = None) -> Tensor:
        """What robots do, [B, N, 2], given what the policy (or an expert in its place) predicts; step [B] int64."""
        return self.policy.command(prediction, landmark, self.seeds, step * self.world.config.dt, away)

    def act(self, state: State, observation: Observed, mark: Mark = unmarked) -> Tensor:
        given = self.given(observation)
        mark("components")
        prediction = self.predict(given)
        mark("policy")
        away = None if self.trail is None else self.trail.away(observation.positions)
        command = self.command(prediction, observation.landmark, state.step, away)
        return command if self.survey is None else self.survey.commanded(command, prediction, observation)


RUNS: dict[type[Learned], Any] = {Policy: DecentralPolicy, LPAC: DecentralLPAC}  # each kind's way to run alone


class Decentral:
    """A learned policy run by every robot alone on the messages that have reached it (Algorithm 1)."""

    SETTLES = 32  # control periods until robots have heard of about as many others as they will

    def __init__(self, policy: Learned, channel: Channel, world: World[Any, Any]) -> None:
        self.policy, self.world = policy.eval(), world
        kind, config = next(kind for kind in RUNS if isinstance(policy, kind)), world.config
        channel = channel.fitted(policy.config.field, config)
        survey = policy.survey(config.side)
        given = policy.surroundings(config.side) | ({} if survey is None else {"survey": survey})
        self.run = RUNS[kind](policy, channel, config.dt, **given)
        self.attention_radius = policy.config.attention_radius
        self.channel: Channel | None = channel
        self.failure = channel.failure

    @property
    def alive(self) -> Tensor | None:
        """Who has not failed by now, [B, N] bool; None before the first decision."""
        state = getattr(self.run, "state", None)
        return None if state is None else state.alive

    @property
    def unsteady(self) -> str | None:
        """As in `Central`."""
        if not isinstance(self.run, DecentralPolicy):
            return "only policies of kind mast run alone without waiting"
        return self.run.unsteady(self.world.config.agents)

    def memory(self) -> dict[str, Tensor]:
        """As in `Central`, of robots that are not `unsteady`, and have decided once."""
        memory: dict[str, Tensor] = self.run.memory()
        return memory

    def remember(self, memory: dict[str, Tensor]) -> None:
        """As in `Central`."""
        self.run.remember(memory)

    def start(self, seeds: Sequence[int]) -> None:
        self.run.start(seeds)

    def act(self, state: State, observation: Observed, mark: Mark = unmarked) -> Tensor:
        return self.run.act(self.world.shown(observation, self.policy.config.observation_shape), mark)


def is_learned(actor: Actor) -> bool:
    """Whether a policy of ours drives, which alone computes in half precision; rules stay in full."""
    return isinstance(actor, Central | Decentral)


Drives = str | Path | Learned | Controller | Actor | Callable[[Any, Any], Tensor]
"""What can drive robots: a controller's or shipped policy's name, a folder, file.py:NAME, or such a thing itself."""


def make_actor(policy: Drives, world: World[Any, Any], channel: Channel | None = None) -> Actor:
    """The actor behind a policy. With a channel every robot runs a learned policy alone; of controllers only those that
    `tell` something use it."""
    if isinstance(policy, Path):
        policy = str(policy)
    if channel is not None and not isinstance(channel, Channel):
        raise MastError(f"a channel is of type {type(channel).__name__}: give mast_swarm.Channel(delay=1.0)")
    config, name = world.config, f"policy '{policy}'" if isinstance(policy, str) else "the policy"
    made: Any = None
    if isinstance(policy, str):
        made = task_of(config).controller(policy)
        if made is None:
            policy = (
                from_file(policy, "act") if is_reference(policy) else load_learned(find_learned(policy, world.task))
            )
    if isinstance(policy, Learned):
        return _learned_actor(policy, name, world, channel)
    if isinstance(policy, Actor) and not inspect.isclass(policy):
        if channel is not None:
            raise MastError(
                "a ready-made actor was given together with a channel: give the channel when making the actor"
            )
        return policy
    if made is None and (inspect.isclass(policy) or not hasattr(policy, "act")):
        made = factory(policy)
    try:
        controller: Any = policy if made is None else made(dt=config.dt, max_speed=config.max_speed, config=config)
    except TypeError as error:
        raise MastError(
            f"{name} cannot be made: {error}; the class takes dt and max_speed as keywords, and config if it names it"
        ) from None
    return controlled(controller, name, channel, config.dt, config.side)


def _learned_actor(policy: Learned, name: str, world: World[Any, Any], channel: Channel | None) -> Actor:
    config, taken = world.config, policy.config.observation_shape
    if policy.config.task not in ("", world.task):
        raise MastError(f"{name} was trained for {policy.config.task}, not for {world.task}")
    if not config.shows(taken):
        raise MastError(
            f"{name} takes observations of shape {list(taken)} but this world gives {list(config.observation_shape)}: "
            "set the world to what the policy was trained with"
        )
    policy = policy.to(world.device)
    return Central(policy, world) if channel is None else Decentral(policy, channel, world)


def pick_device(name: str) -> torch.device:
    """The device for a setting auto, cpu or cuda."""
    if name == "cuda" and not torch.cuda.is_available():
        raise MastError("--device cuda: no CUDA device is available here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
