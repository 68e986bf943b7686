"""Whether exported files compute what the policy computes: the same states for both, and how far they are apart.

A state is what one robot holds. The random ones have few and many robots, some of them far outside the window; the real
ones come from a short episode of the task's world, where every robot runs the policy alone and a message takes one
control period per hop.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast_swarm.comms.config import Channel
from mast_swarm.comms.decentral import DecentralPolicy, decide
from mast_swarm.comms.held import slot_of, stamp_of
from mast_swarm.comms.lpac import DecentralLPAC
from mast_swarm.errors import MastError
from mast_swarm.model.learned import Learned
from mast_swarm.model.lpac import LPAC
from mast_swarm.model.policy import Policy
from mast_swarm.observation import Observation
from mast_swarm.robot.exported import Exported
from mast_swarm.space import radius_graph
from mast_swarm.tasks.world import World

KNOWN = (1, 2, 5, 17, 60)  # robots in the random states
ROBOTS, INSTANTS = 12, 5  # of the real states, at most
_FAR = (500_000.0, 4_000_000.0)  # metres, such as a team has in UTM coordinates


@dataclass
class Difference:
    """How far exported files are from the policy, over all states so far."""

    states: int = 0
    message: float = 0.0  # the largest difference of a message's number, as a share of the largest number or of 1
    worst: float = 0.0  # the largest difference of a number in a command as robots follow it, in units of the longest
    _sum: float = 0.0
    _numbers: int = field(default=0, repr=False)

    @property
    def mean(self) -> float:
        """The mean difference of such a number."""
        return self._sum / max(1, self._numbers)

    def add(self, message: np.ndarray, its_message: Tensor, prediction: np.ndarray, expected: Tensor) -> None:
        """Take in one state: what the files gave, and what the policy gave."""
        size = max(1.0, float(its_message.abs().max()))
        off = np.abs(_followed(prediction) - _followed(expected.numpy()))
        self.states += 1
        self.message = _larger(self.message, float(np.abs(message - its_message.numpy()).max()) / size)
        self.worst = _larger(self.worst, float(off.max()))
        self._sum, self._numbers = self._sum + float(off.sum()), self._numbers + off.size


def _followed(prediction: np.ndarray) -> np.ndarray:
    """A prediction [2 or 3] whose command is scaled back to length 1 if it is longer, as robots do."""
    command = prediction[:2] / max(1.0, float(np.hypot(*prediction[:2])))
    return np.concatenate((command, prediction[2:]))


def _larger(before: float, now: float) -> float:
    """The larger of two; not a number if one is none."""
    return max(before, now) if now == now else now


@torch.no_grad()
def compare(policy: Learned, exported: Exported, world: World[Any, Any] | None) -> Difference:
    """The files against the policy, on random states and, where there is a world, on real ones."""
    found = Difference()
    if isinstance(policy, Policy):
        for features, positions, expected in (*_random_states(policy), *(_real_states(policy, world) if world else ())):
            message = np.stack([exported.perceive(one) for one in features.numpy()])
            prediction = exported.decide(message, positions.numpy())
            found.add(message, policy.perceive(features[None])[0], prediction, expected)
    elif isinstance(policy, LPAC):
        _exchanges(policy, exported, _random_observations(policy), None, found)
        if world is not None:
            _exchanges(policy, exported, _seen(policy, world), world, found)
    return found


def real_world(world: World[Any, Any]) -> World[Any, Any]:
    """The same world with few robots, where it can have few."""
    try:
        return type(world)(replace(world.config, agents=min(ROBOTS, world.config.agents)))
    except MastError:
        return world


def _random_states(policy: Policy) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """What a robot holds, its own first: features [K, ...], positions [K, 2] float64 metres; and its prediction."""
    rng = torch.Generator().manual_seed(0)
    reach = policy.config.attention_radius or policy.config.wavelength
    relative = policy.config.encoding.startswith("rope") or policy.config.encoding == "none"
    for known in KNOWN:
        features = torch.randn(known, *policy.config.observation_shape, generator=rng)
        positions = (torch.rand(known, 2, generator=rng, dtype=torch.float64) - 0.5) * 3 * reach
        positions[known // 2 + 1 :] += 10 * reach * (known == KNOWN[-2])  # half of them far outside the window
        if relative:  # other encodings read where robots are in the world that they learned in
            positions += torch.tensor(_FAR, dtype=torch.float64)
        yield features, positions, policy.decide(policy.perceive(features[None]), positions[None], path="dense")[0, 0]


def _real_states(policy: Policy, world: World[Any, Any]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """The same of every robot at every instant of an episode."""
    period, survey = world.config.dt, policy.survey(world.config.side)
    run = DecentralPolicy(policy, Channel(delay=period), period, survey)
    run.start([0])
    features: list[Tensor] = []  # of each instant [N, ...]
    for observation in _episode(policy, world, run):
        assert run.state is not None
        features.append(observation.features[0])
        expected, held = decide(policy, run.state)[0], run.state
        for robot, entries in enumerate(held.newest[0]):
            origin = (entries >= 0).nonzero()[:, 0]
            origin = torch.cat((origin[origin == robot], origin[origin != robot]))
            stamps, slots = stamp_of(entries[origin]).tolist(), slot_of(entries[origin])
            sensed = torch.stack([features[s][o] for s, o in zip(stamps, origin.tolist(), strict=True)])
            yield sensed, held.positions[0, slots, origin], expected[robot]


def _episode(policy: Learned, world: World[Any, Any], run: Any) -> Iterator[Any]:
    """The observations of an episode that `run` drives, each after robots have acted on it."""
    state = world.reset([0])
    for _ in range(INSTANTS):
        observation = world.shown(world.observe(state), policy.config.observation_shape)
        command = run.act(observation)
        yield observation
        state = world.step(state, command)


def _seen(policy: LPAC, world: World[Any, Any]) -> list[Any]:
    """The observations of an episode in which robots exchange once per control period."""
    run = DecentralLPAC(policy, Channel(delay=world.config.dt), world.config.dt, world.config.side)
    run.start([0])
    return list(_episode(policy, world, run))


def _random_observations(policy: LPAC) -> list[Observation]:
    """Robots that are somewhere else at every instant, about a third of them within hearing of each."""
    rng, side = torch.Generator().manual_seed(0), policy.config.position_scale
    places = [torch.rand(1, 7, 2, generator=rng) * side for _ in range(INSTANTS)]
    shape = (1, 7, *policy.config.observation_shape)
    return [
        Observation(features=torch.randn(shape, generator=rng), positions=at, graph=radius_graph(at, side / 2))
        for at in places
    ]


def _exchanges(
    policy: LPAC, exported: Exported, observations: list[Any], world: World[Any, Any] | None, found: Difference
) -> None:
    """Robots that exchange once per control period, each by the files alone, beside the same in torch."""
    dt, side = (1.0, policy.config.position_scale) if world is None else (world.config.dt, world.config.side)
    run = DecentralLPAC(policy, Channel(delay=dt), dt, side)
    run.start([0])
    robots = observations[0].positions.shape[1]
    size = exported.manifest["exchange"]["floats"]
    sent, hears = np.zeros((robots, size), np.float32), np.zeros((robots, robots), dtype=bool)
    for observation in observations:
        expected, perceived = run.act(observation)[0], policy.perceive(observation.features)[0]
        next_sent = np.empty_like(sent)
        for robot in range(robots):
            message = exported.perceive(observation.features[0, robot].numpy())
            others = hears[robot]
            command, next_sent[robot] = exported.carry(
                message, observation.positions[0, robot].numpy(), side, sent[others], hears.sum(1)[others]
            )
            found.add(message, perceived[robot], command, expected[robot])
        sent, hears = next_sent, observation.graph.adjacency()[0].numpy() & ~np.eye(robots, dtype=bool)
