"""Who drives: a controller, a learned policy run centrally, or one run by every robot alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from mast_swarm import controllers
from mast_swarm.comms.config import Channel
from mast_swarm.comms.decentral import DecentralPolicy
from mast_swarm.errors import MastError, unknown
from mast_swarm.model.policy import Policy, zoo_names
from mast_swarm.space import components, reachable
from mast_swarm.world.base import Observation, World


class Actor(Protocol):
    """Drives all robots of a batch of environments, one control instant after the other."""

    attention_radius: float | None

    def start(self, seeds: Sequence[int]) -> None:
        """Forget the last episode; one seed an environment."""

    def act(self, state: Any, observation: Any) -> Tensor:
        """Commands [B, N, 2] in units of u_max."""


class Controlled:
    """A controller that is not learned."""

    attention_radius: float | None = None

    def __init__(self, controller: Any) -> None:
        self.controller = controller

    def start(self, seeds: Sequence[int]) -> None:
        self.controller.start()

    def act(self, state: Any, observation: Any) -> Tensor:
        return self.controller.act(state, observation)


class Central:
    """A learned policy in one forward pass for all robots, with the component mask where it has one."""

    def __init__(self, policy: Policy, dt: float, directed: bool = False) -> None:
        self.policy = policy.eval()
        self.dt, self.directed = dt, directed
        self.attention_radius = policy.config.attention_radius
        self.seeds = torch.zeros(0, dtype=torch.int64)

    def start(self, seeds: Sequence[int]) -> None:
        """The policy has no memory; the seeds decide how robots explore."""
        self.seeds = torch.tensor(seeds)

    def act(self, state: Any, observation: Observation) -> Tensor:
        goals = state.goals if self.policy.config.variant == "C" else None
        component = component_of(self.policy, observation, self.directed)
        prediction = self.policy(observation.features, observation.positions, component, goals)
        return self.policy.command(prediction, self.seeds.to(prediction.device), state.step * self.dt)


class Decentral:
    """A learned policy run by every robot alone on the messages that have reached it (Algorithm 1)."""

    def __init__(self, policy: Policy, channel: Channel, dt: float) -> None:
        self.run = DecentralPolicy(policy.eval(), channel, dt)
        self.attention_radius = policy.config.attention_radius

    def start(self, seeds: Sequence[int]) -> None:
        self.run.start(seeds)

    def act(self, state: Any, observation: Observation) -> Tensor:
        return self.run.act(observation)


def component_of(policy: Policy, observation: Observation, directed: bool) -> Tensor | None:
    """The component mask's input: labels [B, N]; for directed links reachability [B, N, N]; None without the mask."""
    if not policy.config.component_mask:
        return None
    return reachable(observation.graph) if directed else components(observation.graph)


def make_actor(name: str, world: World, channel: Channel | None) -> Actor:
    """The actor behind a policy's name: a controller, a zoo name (the task may be left out), or a folder."""
    config = world.config
    controller = controllers.find(name, task=world.task)
    if controller is not None:
        return Controlled(controller(dt=config.dt, max_speed=config.max_speed))
    policy = load_policy(name, world.task).to(world.device)
    if policy.config.task != world.task:
        raise MastError(f"policy '{name}' was trained for {policy.config.task}, not for {world.task}")
    expected = getattr(config, "observation_dim", None)
    if expected is not None and policy.config.observation_dim != expected:
        raise MastError(
            f"policy '{name}' takes {policy.config.observation_dim} observed numbers but this world gives {expected}: "
            "set the world's `observed` to what the policy was trained with"
        )
    if channel is not None:
        return Decentral(policy, channel, config.dt)
    return Central(policy, config.dt, directed=getattr(config, "directed", False))


def load_policy(name: str, task: str) -> Policy:
    """A trained policy by zoo name, short zoo name, or folder."""
    for candidate in (name, f"{task}/{name}"):
        if candidate in zoo_names():
            return Policy.load(candidate)
    if Path(name).is_dir():
        return Policy.load(name)
    short = [zoo.removeprefix(f"{task}/") for zoo in zoo_names() if zoo.startswith(f"{task}/")]
    raise unknown("policy", name, [*controllers.names(task), *short])


def pick_device(name: str) -> torch.device:
    """The device for a setting auto, cpu or cuda."""
    if name == "cuda" and not torch.cuda.is_available():
        raise MastError("--device cuda: no CUDA device is available here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
