"""Robots that exchange datagrams on a virtual clock know and do what the batched simulation says."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import teams
from mast_swarm import Channel, DecentralPolicy, Navigation, NavigationConfig, Policy, PolicyConfig
from mast_swarm.robot import Faults, News, Node, VirtualNetwork, explore
from mast_swarm.robot.handed import Handed
from mast_swarm.robot.survey import Survey
from relaying import Story

PERIOD = 1000  # ticks of a control period
ZERO = np.zeros(1)
ROBOTS, STEPS = 12, 10


CELL = 25.0  # metres


def small_policy() -> Policy:
    config = PolicyConfig(task="navigation", layers=2, heads=2, head_dim=8, attention_radius=150.0)
    return Policy(config, seed=3).eval().requires_grad_(False)


def searching_policy() -> Policy:
    """One whose robots are often left idle, and that has a map."""
    config = PolicyConfig(
        **{"task": "navigation", "layers": 2, "heads": 2, "head_dim": 8, "attention_radius": 150.0},
        **{"exploration_time": 50.0, "exploration_survey": CELL},
    )
    policy = Policy(config, seed=3).eval().requires_grad_(False)
    policy.head[2].weight.data[2] *= 3.0
    policy.head[2].bias.data[2] = 1.2  # untrained, it would have all stand still
    return policy


Told = list[tuple[list[list[int]], Tensor]]  # stamps [N][N] and commands [N, 2] at each instant
Maps = list[np.ndarray]  # [N, 2, A, A] bool at each instant


def simulated(policy: Policy, channel: Channel, seed: int, maps: Maps | None = None) -> tuple[Told, DecentralPolicy]:
    """What the batched simulation says, and itself. maps: is given those of a policy that has one."""
    world = Navigation(NavigationConfig(agents=ROBOTS))
    survey = policy.survey(world.config.side)
    state, run = world.reset([seed]), DecentralPolicy(policy, channel, world.config.dt, survey)
    run.start([seed])
    told = []
    for _ in range(STEPS):
        command = run.act(world.observe(state))
        assert run.state is not None
        told.append((run.state.stamps[0].tolist(), command[0]))
        if survey is not None and maps is not None:
            maps.append(survey.maps[0].unflatten(-1, (survey.along, survey.along)).numpy().copy())
        state = world.step(state, command)
    return told, run


class Team:
    """The same team as nodes on a virtual network, each with the policy for itself alone."""

    def __init__(self, policy: Policy, channel: Channel, seed: int, early: bool, signed: bool) -> None:
        self.policy, self.channel, self.early = policy, channel, early
        self.world = Navigation(NavigationConfig(agents=ROBOTS))
        self.state = self.world.reset([seed])
        self.hop = round(channel.delay / self.world.config.dt * PERIOD)
        self.luck = Story(seed, ROBOTS, STEPS).lost(channel)
        # The time of a hop passes in the sender, or, `early`, but for one tick on the network.
        rules: dict[str, Any] = {"hop": 1, "again": self.hop} if early else {"hop": self.hop}
        faults = Faults(delay=self.hop - 1 if early else 0)
        self.network = VirtualNetwork(faults, lost=self.lost if channel.loss else None)
        rules["relay_radius"] = channel.relay_radius
        if channel.max_age is not None:
            rules["max_age"] = round(channel.max_age / self.world.config.dt * PERIOD)
        wire = teams.form(policy.config.message_width, kind="float32")
        rules |= {"perceive": self.perceive, "policy": self.alone}
        self.nodes = [
            teams.node(trust, wire, maps=self.map_of(rules), **rules) for trust in teams.trusts(ROBOTS, signed)
        ]
        self.seed, self.maps, self.searched = seed, Maps(), 0

    def map_of(self, rules: dict[str, Any]) -> Handed | None:
        """What a robot's node is given where the policy has a map."""
        if self.policy.config.exploration_survey is None:
            return None
        return Handed(Survey(CELL, self.world.config.side), hop=rules["hop"], again=self.hop)

    def acts(self, robot: int, n: int, seen: Any) -> Tensor:
        """The command [2] of a robot at instant n."""
        node, place = self.nodes[robot], seen.positions[0, robot].double().numpy()
        prediction = node.control(n * PERIOD, seen.features[0, robot], place)
        if node.maps is None:
            return prediction
        config, predicted = self.policy.config, prediction.numpy()
        assert config.exploration_time is not None
        heading = explore.heading(self.seed, robot, n * self.world.config.dt / config.exploration_time)
        heading = explore.leashed(heading, seen.landmark[0, robot].double().numpy(), config.exploration_reach)
        given = place, seen.sights[0, robot].numpy(), explore.fill(predicted, heading), predicted
        command = node.maps.searched(n * PERIOD, *given)
        self.searched += node.maps.survey.searching
        return torch.from_numpy(np.asarray(command, np.float32))

    def perceive(self, features: Tensor) -> Any:
        return self.policy.perceive(features[None, None])[0, 0].numpy()

    def alone(self, known: list[News]) -> Tensor:
        message = torch.stack([torch.from_numpy(news.message) for news in known])
        positions = torch.stack([torch.from_numpy(news.position) for news in known])
        return self.policy.decide(message[None], positions[None])[0, 0]

    def lost(self, sender: int, receiver: int, sent: int, arrives: int) -> bool:
        """The losses of the batched relay: by instant, round, sender and receiver."""
        n = max(0, math.ceil(arrives / PERIOD) - 1)
        q = math.ceil((arrives - n * PERIOD) / self.hop)
        return self.luck(n, q)[sender][receiver]

    def run(self) -> Told:
        told = []
        for n in range(STEPS):
            seen = self.world.observe(self.state)
            now = n * PERIOD
            commands = [self.acts(robot, n, seen) for robot in range(ROBOTS)]
            told.append((self.stamps(), torch.stack(commands)))
            self.maps.append(np.stack([one.maps.survey.marks.copy() for one in self.nodes if one.maps] or [ZERO]))
            self.state = self.world.step(self.state, told[-1][1][None])
            heard = seen.graph.adjacency()[0]

            def hearers(robot: int, heard: Tensor = heard) -> Collection[int]:
                return [i for i in heard[:, robot].nonzero()[:, 0].tolist() if i != robot]

            for hop in range(self.hop, PERIOD + 1, self.hop):
                moments = (now + hop - self.hop + 1, now + hop) if self.early else (now + hop,)
                for moment in moments:
                    teams.carry(self.nodes, self.network, moment, hearers)
        return told

    def stamps(self) -> list[list[int]]:
        held = [teams.stamps(one.robot.known()) for one in self.nodes]
        return [[known.get(j, -PERIOD) // PERIOD for j in range(ROBOTS)] for known in held]


def compare(
    delay: float, loss: float, seed: int, early: bool = False, signed: bool = False, **limits: float
) -> list[Node]:
    policy, channel = small_policy(), Channel(delay=delay, loss=loss, seed=seed, **limits)
    team = Team(policy, channel, seed, early, signed)
    expected, found = simulated(policy, channel, seed)[0], team.run()
    for n, ((stamps, command), (wanted, asked)) in enumerate(zip(found, expected, strict=True)):
        assert stamps == wanted, f"instant {n}"
        assert torch.allclose(command, asked, rtol=0, atol=1e-3), f"instant {n}"
    ages = {n - stamp for n, (stamps, _) in enumerate(found) for row in stamps for stamp in row if stamp >= 0}
    assert max(ages) > 0  # there is something to agree on
    return team.nodes


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("delay", [1.0, 0.5])
def test_nodes_agree_with_the_batched_simulation(delay: float, loss: float, seed: int) -> None:
    for one in compare(delay, loss, seed):
        assert set(one.counters.refused) <= {"duplicate", "own origin", "old stamp"}


@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("delay", [1.0, 0.5, 0.2])
def test_and_where_the_network_takes_the_time(delay: float, loss: float) -> None:
    for seed in (11, 12):
        compare(delay, loss, seed, early=True)


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("loss", [0.0, 0.3])
@pytest.mark.parametrize("delay", [1.0, 0.5])
def test_and_with_a_map_they_search_alike(delay: float, loss: float, early: bool) -> None:
    seed = 1 + early
    policy, channel, expected = searching_policy(), Channel(delay=delay, loss=loss, seed=seed), Maps()
    team = Team(policy, channel, seed, early, signed=False)
    wanted, found = simulated(policy, channel, seed, expected)[0], team.run()
    for n in range(STEPS):
        assert (team.maps[n] == expected[n]).all(), f"instant {n}"
        assert found[n][0] == wanted[n][0] and torch.allclose(found[n][1], wanted[n][1], rtol=0, atol=1e-3)
    assert 10 < team.searched < ROBOTS * STEPS  # some of them did, not all of them always
    assert not (team.maps[-1][0] == team.maps[-1]).all()  # and they do not all know the same


@pytest.mark.parametrize("early", [False, True])
def test_and_with_limits_of_place_and_age(early: bool) -> None:
    for seed in (40, 105):
        nodes = compare(0.5, 0.3, seed, early, relay_radius=120.0, max_age=2.0)
        assert any(one.counters.refused["out of reach"] for one in nodes)


def test_and_with_signatures() -> None:
    for one in compare(0.5, 0.3, 20, signed=True):
        assert one.counters.verified == one.counters.entries_kept > 50


def test_only_what_is_new_is_sent() -> None:
    """Algorithm 1 to the letter repeats all that is held in every round; the nodes send what others may lack."""
    nodes = compare(0.2, 0.0, 30)
    run = simulated(small_policy(), Channel(delay=0.2, seed=30), 30)[1]
    assert run.state is not None
    kept = sum(one.counters.entries_kept for one in nodes)
    assert kept < sum(one.counters.entries_out for one in nodes) < int(run.state.entries) / 4
