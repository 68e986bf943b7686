"""Fair rivals of learned policies: DHBA that explores, and DHBA whose news is late, against plain slow code."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mast_swarm.comms.config import Channel
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.controlled import Talking
from mast_swarm.evaluate.loop import Loop
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation
from shared import mast, one_line

SCENARIOS = ["clusters-5", "clusters-1", "clusters-10-5"]


def world(agents: int = 30) -> Navigation:
    return Navigation(NavigationConfig(agents=agents))


def started(policy: str, delay: float, agents: int = 30) -> Loop:
    loop = Loop(world(agents), make_actor(policy, world(agents), Channel(delay=delay)))
    loop.start([3, 4, 5], SCENARIOS)
    return loop


class Gossip:
    """Messages as tuples in dictionaries: robots hand on all they hold, one hop per control period."""

    def __init__(self, robots: int) -> None:
        self.held: list[dict[int, tuple[int, dict, list, tuple]]] = [{} for _ in range(robots)]
        self.links: list[tuple[int, int]] = []

    def step(self, now: int, positions: np.ndarray, neighbours: np.ndarray, goals: np.ndarray, links: list) -> None:
        before = [dict(held) for held in self.held]
        for source, target in self.links:
            for origin, news in before[source].items():
                if origin not in self.held[target] or self.held[target][origin][0] < news[0]:
                    self.held[target][origin] = news
        for i, place in enumerate(positions):
            near = {int(j): tuple(positions[j]) for j in neighbours[i] if j >= 0}
            self.held[i][i] = (now, near, [int(g) for g in goals[i] if g >= 0], tuple(place))
        self.links = links

    def goal(self, me: int, now: int, oldest: int, goals: np.ndarray) -> int:
        """What robot `me` gives itself: scipy on the youngest news of every robot that it has heard of."""
        where: dict[int, tuple[int, tuple]] = {}
        known: set[int] = set()
        for origin, (stamp, near, seen, place) in self.held[me].items():
            if now - stamp > oldest:
                continue
            known.update(seen)
            for robot, at in ((origin, place), *near.items()):
                if robot not in where or where[robot][0] < stamp:
                    where[robot] = (stamp, at)
        robots, columns = sorted(where), sorted(known)
        cost = cdist(np.array([where[r][1] for r in robots]), goals[columns], "sqeuclidean")
        for row, column in zip(*linear_sum_assignment(cost), strict=True):
            if robots[row] == me:
                return columns[column]
        return -1


@pytest.mark.parametrize("k", [0, 2, 8])
def test_late_news_is_what_dictionaries_and_scipy_say(k: int) -> None:
    loop = started(f"dhba-{k}-relay", 1.0)
    gossip = [Gossip(30) for _ in SCENARIOS]
    late = 0
    for now in range(12):
        seen = loop.sense()
        for b, team in enumerate(gossip):
            at = (seen.graph.target // 30) == b
            links = list(zip((seen.graph.source[at] % 30).tolist(), (seen.graph.target[at] % 30).tolist(), strict=True))
            arrays = (loop.state.positions[b], seen.neighbours[b], seen.goals_seen[b])
            team.step(now, *(array.numpy() for array in arrays), links)
        command = loop.decide()
        assert isinstance(loop.actor, Talking)
        own = loop.actor.controller._known[2]
        for b, team in enumerate(gossip):
            goals = loop.state.goals[b].numpy()
            expected = [team.goal(i, now, k, goals) for i in range(30)]
            assert own[b].tolist() == expected
            late += sum(len(held) > 1 for held in team.held)
        loop.move(command)
    assert late  # some robots have heard others


def test_without_delay_a_late_relay_is_the_component() -> None:
    """Its assignment is that of dhba over as many hops as there are robots."""
    one, other = started("dhba-8-relay", 0.0), started("dhba-29", 0.0)
    for _ in range(8):
        one.sense(), other.sense()
        torch.testing.assert_close(one.decide(), other.decide())
        command = other.decide()
        one.move(command), other.move(command)


def test_searchers_alone_without_delay_think_as_their_component() -> None:
    one, other = started("searcher-200-relay", 0.0), started("searcher-200", 0.0)
    apart = 0
    for _ in range(12):
        one.sense(), other.sense()
        command = one.decide()
        torch.testing.assert_close(command, other.decide(), atol=1e-4, rtol=0)
        apart += int((one.actor.controller._known[3] != 0).any(-1).sum())
        one.move(command), other.move(command)
    assert apart  # some robots have parted from others


@pytest.mark.parametrize("policy", ["dhba-2-explore", "dhba-2-relay-explore"])
def test_only_robots_without_a_goal_explore(policy: str) -> None:
    exploring, plain = started(policy, 1.0), started(policy.removesuffix("-explore"), 1.0)
    free = 0
    for _ in range(10):
        exploring.sense(), plain.sense()
        told, said = exploring.decide(), plain.decide()
        apart = plain.state.positions[:, :, None] - plain.state.goals[:, None]
        arrived = torch.linalg.vector_norm(apart, dim=-1).amin(-1) < 1e-2  # it holds that goal
        stands = (said == 0).all(-1) & ~arrived
        torch.testing.assert_close(told[~stands], said[~stands])
        assert torch.allclose(torch.linalg.vector_norm(told[stands], dim=-1), torch.ones(1), atol=1e-5)
        free += int(stands.sum())
        exploring.move(told), plain.move(told)
    assert free


def test_robots_that_fail_are_silent_and_stand() -> None:
    loop = Loop(world(), make_actor("dhba-8-relay", world(), Channel(delay=1.0, failure=0.1)))
    loop.start([3])
    for _ in range(10):
        loop.sense()
        command = loop.decide()
        loop.move(command)
    alive = loop.actor.held.alive[0]
    assert 0 < int(alive.sum()) < 30 and not command[0, ~alive].any()


def test_news_from_k_hops_away_is_that_old() -> None:
    actor = make_actor("dhba-8-relay", world(), Channel(delay=0.25))
    loop = Loop(world(), actor)
    loop.start([1])
    loop.sense()
    loop.decide()
    assert actor.hop * 8 == 2 and math.ceil(actor.hop * 3) == 1


def test_late_news_cannot_label(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = ("--device", "cpu", "--out", tmp_path / "run")
    assert mast("train", "navigation", "--recipe", "tiny", "--expert", "dhba-8-relay", *out) == 2
    assert "late news" in one_line(capsys)
