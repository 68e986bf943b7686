"""The relay three times over one environment: as events in a queue, as a network of robots, and batched.

All three take the same links, losses and failures, and tell which stamps everybody holds.
"""

from __future__ import annotations

import functools
import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast_swarm import chance
from mast_swarm.comms import Channel, Relay
from mast_swarm.comms.config import periods
from mast_swarm.robot import News, Robot
from mast_swarm.space import Graph

Stamps = list[list[int]]  # [N][N]: the newest stamp of j that i holds; -1: none
Luck = Callable[[int, int], list[list[bool]]]  # instant, round -> [sender][receiver]: whether the link fails


@dataclass(frozen=True)
class Story:
    """What happens to one team, whatever carries its messages."""

    seed: int
    robots: int
    steps: int
    dt: float = 1.0
    share: float = 0.25  # of all links that exist

    def links(self, n: int) -> Tensor:
        """[N, N] bool at instant n: i hears j."""
        rng = torch.Generator().manual_seed(self.seed * 1000 + n)
        return torch.rand(self.robots, self.robots, generator=rng) < self.share

    def positions(self, n: int) -> Tensor:
        """[N, 2] float64 metres at instant n: robots that wander through 100 m, far from the world's origin."""
        rng = torch.Generator().manual_seed(self.seed)
        start = torch.rand(self.robots, 2, generator=rng, dtype=torch.float64) * 100 + 1e5
        way = torch.randn(self.robots, 2, generator=rng, dtype=torch.float64) * 20
        return start + way * math.sin(n)

    def lost(self, channel: Channel) -> Luck:
        key = chance.keys_of(channel.seed, [self.seed], torch.device("cpu"))
        robot = torch.arange(self.robots)

        @functools.cache
        def lost(n: int, q: int) -> list[list[bool]]:
            drawn = chance.uniform(chance.combine(key, 1, n, q, robot[:, None], robot))
            return (drawn < channel.loss).tolist()

        return lost

    def alive(self, channel: Channel) -> Iterator[list[bool]]:
        """Who lives at each instant."""
        key = chance.keys_of(channel.seed, [self.seed], torch.device("cpu"))
        living = torch.ones(self.robots, dtype=torch.bool)
        for n in range(self.steps):
            yield living.tolist()
            drawn = chance.uniform(chance.combine(key, 2, n, torch.arange(self.robots)))
            living = living & (drawn >= channel.failure)


def by_events(story: Story, channel: Channel) -> list[Stamps]:
    """Messages (time, holder, origin, stamp) in a queue: each waits for tau seconds; then the newest that is due of its
    origin reaches all that hear its holder, and is put in again if nothing newer is there. For tau > 0."""
    tau, age = periods(channel.delay, story.dt), math.inf
    if channel.max_age is not None:
        age = periods(channel.max_age, story.dt)
    radius = math.inf if channel.relay_radius is None else channel.relay_radius
    lost, robots = story.lost(channel), range(story.robots)
    holds: list[dict[int, set[int]]] = [{j: set() for j in robots} for _ in robots]
    queue: list[tuple[Fraction, int, int, int]] = []
    told = []

    places = [story.positions(n).tolist() for n in range(story.steps)]

    def near(i: int, n: int, j: int, stamp: int) -> bool:
        return radius == math.inf or math.dist(places[n][i], places[stamp][j]) <= radius

    for n, living in enumerate(story.alive(channel)):
        for i in robots:
            if living[i]:
                holds[i][i].add(n)
                heapq.heappush(queue, (n + tau, i, i, n))
                for j in robots:
                    holds[i][j] = {s for s in holds[i][j] if n - s <= age and near(i, n, j, s)}
        told.append([[max(holds[i][j], default=-1) for j in robots] for i in robots])
        links = story.links(n).tolist()
        while queue and queue[0][0] <= n + 1:
            time = queue[0][0]
            due: dict[tuple[int, int], set[int]] = defaultdict(set)
            reached = []
            while queue and queue[0][0] == time:
                _, k, origin, stamp = heapq.heappop(queue)
                if living[k] and stamp in holds[k][origin]:
                    due[k, origin].add(stamp)
            luck = lost(n, math.ceil((time - n) / tau))
            for (k, origin), stamps in due.items():
                stamp = max(stamps)
                for i in robots:
                    good = time - stamp <= age and near(i, n, origin, stamp)
                    if i != k and living[i] and links[i][k] and good and not luck[k][i]:
                        reached.append((i, origin, stamp))
            for i, origin, stamp in sorted(set(reached), key=lambda message: -message[2]):
                if stamp > max(holds[i][origin], default=-1):
                    holds[i][origin].add(stamp)
                    heapq.heappush(queue, (time + tau, i, origin, stamp))
            for (k, origin), stamps in due.items():
                newest = max(holds[k][origin])
                holds[k][origin] -= stamps - {newest}
                if newest in stamps:
                    heapq.heappush(queue, (time + tau, k, origin, newest))
    return told


class Network:
    """Robots of `mast_swarm.robot` and the links between them."""

    def __init__(self, story: Story, channel: Channel) -> None:
        self.story, self.channel, self.lost = story, channel, story.lost(channel)
        tau = periods(channel.delay, story.dt)
        self.hop, self.period = tau.numerator, tau.denominator
        age = None
        if channel.max_age is not None:
            age = math.floor(periods(channel.max_age, story.dt) * self.period)
        rules: dict[str, Any] = {"hop": self.hop, "relay_radius": channel.relay_radius, "max_age": age}
        self.robots = [Robot(i, lambda seen: seen, lambda known: known, **rules) for i in range(story.robots)]
        self.crossed: dict[tuple[int, int, int], int] = {}  # holder, origin, stamp in ticks -> links on its way there

    def stamps(self) -> Stamps:
        told = []
        for robot in self.robots:
            known = {news.origin: news.stamp // self.period for news in robot.known()}
            told.append([known.get(j, -1) for j in range(len(self.robots))])
        return told

    def hops(self) -> Stamps:
        """The links that the newest news of j has crossed to i; -1: none is held."""
        told = []
        for robot in self.robots:
            known = {news.origin: self.crossed[robot.name, news.origin, news.stamp] for news in robot.known()}
            told.append([known.get(j, -1) for j in range(len(self.robots))])
        return told

    def run(self) -> Iterator[Stamps]:
        for n, living in enumerate(self.story.alive(self.channel)):
            now, positions, links = n * self.period, self.story.positions(n).numpy(), self.story.links(n).tolist()
            for robot in self.robots:
                if living[robot.name]:
                    robot.sense(now, np.array([robot.name, now]), positions[robot.name])
                    self.crossed[robot.name, robot.name, now] = 0
            if self.hop == 0:
                while self.carry(now, n, 0, links, living):
                    pass
            yield self.stamps()
            if self.hop > 0:
                for tick in range(1, self.period + 1):
                    self.carry(now + tick, n, math.ceil(tick / self.hop), links, living)

    def carry(self, now: int, n: int, q: int, links: list[list[bool]], living: list[bool]) -> bool:
        """What is due now, over all links; whether anybody learnt anything."""
        offers = [robot.offer(now) if living[robot.name] else [] for robot in self.robots]
        if not any(offers):
            return False
        luck, learnt, crossed = self.lost(n, q), [], {}
        for i, robot in enumerate(self.robots):
            heard: list[News] = []
            ways: dict[tuple[int, int], int] = {}
            for k, offer in enumerate(offers):
                if i != k and living[i] and living[k] and links[i][k] and not luck[k][i]:
                    heard += offer
                    for news in offer:
                        way = self.crossed[k, news.origin, news.stamp] + 1
                        ways[news.origin, news.stamp] = min(way, ways.get((news.origin, news.stamp), way))
            held = {(news.origin, news.stamp) for news in robot.known()}
            learnt.append(robot.hear(now, heard))
            for origin, stamp in {(news.origin, news.stamp) for news in robot.known()} - held:
                crossed[i, origin, stamp] = ways[origin, stamp]
        self.crossed |= crossed
        return any(learnt)


def batched(story: Story, channel: Channel) -> list[Stamps]:
    """The same by `Relay`, beside an environment of another seed."""
    return [stamps for stamps, _ in counted(story, channel, count=False)]


def counted(story: Story, channel: Channel, count: bool = True) -> list[tuple[Stamps, Stamps]]:
    """The same, with the links that news has crossed where they are counted."""
    relay = Relay(channel, story.dt)
    relay.counted = 2 if count else 0
    state = relay.start([story.seed + 1, story.seed], story.robots, 2)
    told: list[tuple[Stamps, Stamps]] = []
    for n in range(story.steps):
        b, i, j = torch.stack((story.links(n + 1), story.links(n))).nonzero().unbind(1)
        graph = Graph(b * story.robots + j, b * story.robots + i, 2, story.robots)
        message = torch.stack((torch.arange(story.robots), torch.full((story.robots,), n)), -1).float()
        positions = torch.stack((story.positions(n + 1), story.positions(n)))
        state = relay.sample(state, message.expand(2, -1, -1), positions, graph)
        told.append((state.stamps[1].tolist(), state.hops[1].tolist() if count else []))
        state = relay.exchange(state, graph)
    return told
