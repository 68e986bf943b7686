"""Who drives: a controller, a learned policy run centrally, or one run by every robot alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from mast_swarm import controllers
from mast_swarm.comms.config import Channel
from mast_swarm.comms.decentral import DecentralPolicy
from mast_swarm.comms.lpac import DecentralLPAC
from mast_swarm.errors import MastError, unknown
from mast_swarm.model.learned import Learned
from mast_swarm.model.lpac import LPAC
from mast_swarm.model.policy import Policy, config_of, zoo_names
from mast_swarm.model.policy import load as load_learned
from mast_swarm.world.base import Observation, World
from mast_swarm.world.config import WORLDS


@runtime_checkable
class Actor(Protocol):
    """Drives all robots of a batch of environments, one control instant after the other."""

    attention_radius: float | None  # m; None: no window
    channel: Channel | None  # what messages travel over; None: the commands come from one place

    def start(self, seeds: Sequence[int]) -> None:
        """Forget the last episode; one seed an environment."""

    def act(self, state: Any, observation: Any) -> Tensor:
        """Commands [B, N, 2] in units of u_max."""


class Controlled:
    """A controller that is not learned."""

    attention_radius: float | None = None
    channel: Channel | None = None

    def __init__(self, controller: controllers.Controller) -> None:
        self.controller = controller

    def start(self, seeds: Sequence[int]) -> None:
        self.controller.start(seeds)

    def act(self, state: Any, observation: Any) -> Tensor:
        return self.controller.act(state, observation)


class Central:
    """A learned policy in one forward pass for all robots, with the component mask where it has one."""

    channel: Channel | None = None

    def __init__(self, policy: Learned, dt: float, directed: bool = False) -> None:
        self.policy = policy.eval()
        self.dt, self.directed = dt, directed
        self.attention_radius = getattr(policy.config, "attention_radius", None)
        self.seeds = torch.zeros(0, dtype=torch.int64)

    def start(self, seeds: Sequence[int]) -> None:
        """The policy has no memory; the seeds decide how robots explore."""
        self.seeds = torch.tensor(seeds)

    def act(self, state: Any, observation: Observation) -> Tensor:
        goals, observation = getattr(state, "goals", None), shown_to(self.policy, observation)
        prediction = self.policy(**self.policy.inputs(observation, directed=self.directed, goals=goals))
        return self.policy.command(
            prediction, observation.landmark, self.seeds.to(prediction.device), state.step * self.dt
        )


RUNS: dict[type[Learned], Any] = {Policy: DecentralPolicy, LPAC: DecentralLPAC}  # each kind's way to run alone


class Decentral:
    """A learned policy run by every robot alone on the messages that have reached it (Algorithm 1)."""

    def __init__(self, policy: Learned, channel: Channel, dt: float) -> None:
        self.policy = policy.eval()
        self.run = RUNS[type(policy)](self.policy, channel, dt)
        self.attention_radius = getattr(policy.config, "attention_radius", None)
        self.channel: Channel | None = channel

    def start(self, seeds: Sequence[int]) -> None:
        self.run.start(seeds)

    def act(self, state: Any, observation: Observation) -> Tensor:
        return self.run.act(shown_to(self.policy, observation))


def shown_to(policy: Learned, observation: Any) -> Any:
    """What a policy takes of an observation: the first of the maps that a world shows, where it shows more."""
    maps = policy.config.observation_shape[0]
    if observation.features.ndim == 3 or observation.features.shape[2] == maps:
        return observation
    return observation.narrowed(maps)


def make_actor(
    policy: str | Learned | controllers.Controller | Actor, world: World, channel: Channel | None = None
) -> Actor:
    """The actor behind a policy: a controller's or shipped policy's name, a folder, or such an object itself.

    With a channel every robot runs a learned policy alone; controllers do not use messages.
    """
    config = world.config
    if isinstance(policy, str):
        controller = controllers.find(policy, task=world.task)
        if controller is not None:
            return Controlled(controller(dt=config.dt, max_speed=config.max_speed))
        policy, name = load(policy, world.task), f"policy '{policy}'"
    else:
        name = "the policy"
    if isinstance(policy, Actor):
        return policy
    if not isinstance(policy, Learned):
        return Controlled(policy)
    if policy.config.task != world.task:
        raise MastError(f"{name} was trained for {policy.config.task}, not for {world.task}")
    taken, given = policy.config.observation_shape, config.observation_shape
    if taken != given and not (len(given) == 3 and taken[0] < given[0] and taken[1:] == given[1:]):
        raise MastError(
            f"{name} takes observations of shape {list(taken)} but this world gives {list(given)}: set the world to "
            "what the policy was trained with"
        )
    policy = policy.to(world.device)
    policy.enter(config.side)
    if channel is not None:
        return Decentral(policy, channel, config.dt)
    return Central(policy, config.dt, directed=getattr(config, "directed", False))


def load(name: str, task: str = "navigation") -> Learned:
    """A learned policy by the name it is shipped under (of `task`'s own the task may be left out), or from a folder."""
    return load_learned(_found(name, task))


def fitting(world: Any, policies: Sequence[str]) -> Any:
    """The settings of a world with all observed that the learned ones of these policies take."""
    learned = [name for name in policies if controllers.find(name, task=world.task) is None]
    return world.shown_to(config_of(_found(name, world.task)).observation_shape for name in learned)


def _found(name: str, task: str) -> str:
    """The full name or the folder of a learned policy; what is none is an error."""
    shipped = _shipped(name, task)
    if shipped is not None or Path(name).exists():
        return shipped or name
    if name.split("/")[0] in WORLDS:
        raise unknown("policy", name, zoo_names())
    if "/" in name:
        raise MastError(f"there is no policy folder '{name}': give one with config.json and model.safetensors")
    short = [zoo.removeprefix(f"{task}/") for zoo in zoo_names() if zoo.startswith(f"{task}/")]
    raise unknown("policy", name, [*controllers.names(task), *short])


def _shipped(name: str, task: str) -> str | None:
    """The full name of a policy that comes with the package; None if there is none of that name."""
    return next((full for full in (name, f"{task}/{name}") if full in zoo_names()), None)


def labels(policies: Sequence[str], task: str) -> list[str]:
    """What results call the policies: names as they are; folders by as much of their path's end as tells them apart.

    `best` and `last` are what training calls its folders, so those always carry the name of the run.
    """
    paths: dict[int, tuple[str, ...]] = {}
    found: list[str] = []
    for number, given in enumerate(policies):
        shipped = _shipped(given, task)
        if controllers.find(given, task=task) is None and shipped is None:
            paths[number] = Path(given).resolve().parts
        found.append((shipped or given).removeprefix(f"{task}/"))
    depth = {number: 2 if path[-1] in ("best", "last") else 1 for number, path in paths.items()}
    while True:
        for number, path in paths.items():
            found[number] = str(Path(*path[-depth[number] :]))
        clashing = [n for n, path in paths.items() if found.count(found[n]) > 1 and depth[n] < len(path)]
        if not clashing:
            break
        for number in clashing:
            depth[number] += 1
    if len(set(found)) != len(found):
        raise MastError(f"a policy was given twice: {' '.join(policies)}")
    return found


def pick_device(name: str) -> torch.device:
    """The device for a setting auto, cpu or cuda."""
    if name == "cuda" and not torch.cuda.is_available():
        raise MastError("--device cuda: no CUDA device is available here; use --device cpu")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")
