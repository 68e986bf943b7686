"""The map that robots share of where they have looked."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mast_swarm import survey as rule
from mast_swarm.comms.config import Channel
from mast_swarm.comms.decentral import DecentralPolicy
from mast_swarm.comms.timing import Timing
from mast_swarm.errors import MastError, MastWarning
from mast_swarm.evaluate import run as evaluation
from mast_swarm.evaluate.actors import Decentral, make_actor
from mast_swarm.evaluate.loop import Loop
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.policy import Policy
from mast_swarm.space.graph import MatrixGraph
from mast_swarm.survey import Survey, guided, idle, sights_of
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.world import Coverage
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation


class Plain:
    """The same rule for one robot, cell by cell, in Python's own numbers."""

    def __init__(self, side: float, cell: float) -> None:
        self.along, self.cell = max(1, round((side + 2 * rule.BORDER) / cell)), cell
        self.worth: set[int] = set()
        self.searched: set[int] = set()
        self.chosen = -1

    def middle(self, number: int) -> tuple[float, float]:
        x, y = number % self.along, number // self.along
        return (x + 0.5 - self.along / 2) * self.cell, (y + 0.5 - self.along / 2) * self.cell

    def look(self, here: np.ndarray, sights: np.ndarray) -> None:
        for number in range(self.along**2):
            at = self.middle(number)
            away = math.dist(at, here)
            if any(math.dist(at, here + sight) <= rule.LEASH for sight in sights):
                self.worth.add(number)
            inside = max(abs(at[0] - here[0]), abs(at[1] - here[1])) <= self.cell / 2
            if inside or away <= math.hypot(*sights[-1]):
                self.searched.add(number)

    def choose(self, here: np.ndarray, rivals: list[np.ndarray]) -> int:
        """The cell to search, -1: none."""
        rivals = sorted(rivals, key=lambda place: math.dist(place, here))[: rule._RIVALS]
        best, least = -1, math.inf
        for number in sorted(self.worth - self.searched):
            at = self.middle(number)
            away = math.dist(at, here)
            cost = max([away, *(away + rule._YIELD * (away - math.dist(at, place)) for place in rivals)])
            cost *= rule._STAY if number == self.chosen else 1.0
            if cost < least:
                best, least = number, cost
        return best


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), robots=st.integers(1, 5))
def test_robots_agree_with_the_rule_written_out(seed: int, robots: int) -> None:
    rng = np.random.default_rng(seed)
    survey, plain = Survey(side=300.0, cell=40.0), [Plain(300.0, 40.0) for _ in range(robots)]
    places = rng.uniform(-200, 200, (robots, 2)).astype(np.float32)
    survey.begin(torch.from_numpy(places)[None])
    before, told = places.copy(), np.zeros(robots, bool)
    for _ in range(4):
        heard = rng.random((robots, robots)) < 0.4
        sent = [(set(one.worth), set(one.searched)) for one in plain]
        for i in range(robots):
            for j in np.flatnonzero(heard[i]):
                plain[i].worth |= sent[j][0]
                plain[i].searched |= sent[j][1]
        survey.hear(torch.from_numpy(heard)[None])
        places = places + rng.uniform(-30, 30, (robots, 2)).astype(np.float32)
        sights = np.sort(rng.uniform(-150, 150, (robots, 3, 2)).astype(np.float32), axis=1)
        sights = np.take_along_axis(sights, np.hypot(*np.moveaxis(sights, -1, 0)).argsort(1)[..., None], axis=1)
        free = rng.random(robots) < 0.7
        survey.look(torch.from_numpy(places)[None], torch.from_numpy(sights)[None])
        way = survey.ways(torch.from_numpy(places)[None], torch.from_numpy(free)[None], torch.from_numpy(heard)[None])
        for i, one in enumerate(plain):
            one.look(places[i].astype(float), sights[i].astype(float))
            rivals = [before[j].astype(float) for j in np.flatnonzero(heard[i] & told) if j != i]
            wanted = one.choose(places[i].astype(float), rivals) if free[i] else -1
            assert set(survey.maps[0, i, 0].nonzero()[:, 0].tolist()) == one.worth
            assert set(survey.maps[0, i, 1].nonzero()[:, 0].tolist()) == one.searched
            found = int(survey.chosen[0, i])
            assert (found == survey.along**2) == (wanted < 0)
            if wanted >= 0:  # two cells may cost the same but for rounding
                assert found == wanted or math.dist(one.middle(found), one.middle(wanted)) < 2 * 40.0
                towards = np.array(one.middle(found)) - places[i]
                assert np.allclose(way[0, i].numpy(), towards / max(np.hypot(*towards), 1e-6), atol=1e-4)
            else:
                assert not way[0, i].any()
            one.chosen = wanted if found == survey.along**2 else found
        before, told = places.copy(), survey.searching[0].numpy().copy()


def test_marks_are_never_taken_back_and_order_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = Survey(side=500.0, cell=25.0), Survey(side=500.0, cell=25.0)
    places = torch.rand((1, 6, 2), generator=generator) * 400 - 200
    links = [torch.rand((1, 6, 6), generator=generator) < 0.5 for _ in range(2)]
    sights = torch.rand((1, 6, 3, 2), generator=generator) * 100
    for one in (first, second):
        one.begin(places)
        one.look(places, sights)
    seen = first.maps.clone()
    everybody = torch.ones((1, 6, 6), dtype=torch.bool)
    for heard in (*links, everybody):
        first.hear(heard)
        assert bool((first.maps | ~seen).all())
    for heard in (*reversed(links), everybody):
        second.hear(heard)
    assert torch.equal(first.maps, second.maps) and bool((first.maps == first.maps[:, :1]).all())


def test_with_fewer_goals_than_a_robot_can_sense_all_is_searched() -> None:
    world = Navigation(NavigationConfig(agents=2, scenario="clusters-1"))
    observation = world.observe(world.reset([0]))
    sights = sights_of(observation)
    assert torch.isinf(sights[:, :, 2]).all() and torch.isfinite(sights[:, :, :2]).all()
    survey = Survey(side=world.config.side, cell=25.0)
    survey.begin(observation.positions)
    survey.look(observation.positions, sights)
    assert bool(survey.maps[:, :, 1].all())
    idle_ = torch.ones((1, 2), dtype=torch.bool)
    assert not survey.ways(observation.positions, idle_, torch.ones((1, 2, 2), dtype=torch.bool)).any()


def test_who_is_idle_and_what_they_do() -> None:
    prediction = torch.tensor([[[0.0, 0.0, 1.0], [0.9, 0.0, 1.0], [0.0, 0.0, 0.1], [0.3, 0.4, 0.9]]])
    assert idle(prediction).tolist() == [[True, False, False, True]]
    way = torch.tensor([[[0.6, 0.8], [0.0, 0.0], [0.0, 0.0], [1.0, 0.0]]])
    command = guided(torch.full((1, 4, 2), 0.25), prediction, way)
    expected = torch.tensor([[[0.6, 0.8], [0.25, 0.25], [0.25, 0.25], [0.9, 0.0]]])
    torch.testing.assert_close(command, expected)


def _policy(seed: int = 0) -> Policy:
    explores = {"exploration_time": 100.0, "exploration_memory": 5, "exploration_survey": 40.0}
    config = PolicyConfig(task="navigation", layers=2, heads=2, head_dim=16, **explores)  # type: ignore[arg-type]
    policy = Policy(config, seed=seed).eval()
    with torch.no_grad():
        policy.head[-1].bias[2] = 0.9  # robots have speed to spare
    return policy


def _maps(actor: Any) -> Survey:
    """The maps of robots that run a policy alone, or a controller."""
    survey: Survey = (actor.run._maps if isinstance(actor, Decentral) else actor.maps).survey
    return survey


def _run(channel: Channel | None, steps: int = 12, drives: str | Policy | None = None) -> tuple[Loop, list[Tensor]]:
    world = Navigation(NavigationConfig(agents=14))
    loop = Loop(world, make_actor(drives or _policy(), world, channel))
    places = []
    with torch.inference_mode():
        loop.start([1, 2])
        for _ in range(steps):
            loop.step()
            places.append(loop.state.positions.clone())
    return loop, places


def test_without_delay_robots_alone_do_as_in_one_pass() -> None:
    (central, one), (alone, other) = _run(None), _run(Channel(delay=0.0))
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=0)
    assert torch.equal(central.actor.survey.maps, _maps(alone.actor).maps)  # type: ignore[attr-defined]
    assert bool(central.actor.survey.searching.any())  # type: ignore[attr-defined]


def test_without_delay_a_controller_whose_robots_talk_does_as_one_whose_components_think_as_one() -> None:
    (_, one), (talking, other) = (
        _run(None, 120, "searcher-250-map"),
        _run(Channel(delay=0.0), 120, "searcher-250-relay-map"),
    )
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, atol=1e-3, rtol=0)
    _, bare = _run(Channel(delay=0.0), 120, "searcher-250-relay")
    assert not torch.allclose(bare[-1], other[-1], atol=1.0)  # robots have searched
    late, _ = _run(Channel(delay=1.0), 120, "searcher-250-relay-map")
    assert not torch.equal(_maps(late.actor).maps, _maps(talking.actor).maps)


@pytest.mark.parametrize("drives", [None, "dhba-2-relay-map", "searcher-250-relay-map"])
@pytest.mark.parametrize("delay, arrives", [(1.0, 3), (0.5, 2), (0.25, 1), (2.0, 6), (3.0, 9)])
def test_maps_move_one_hop_in_tau(delay: float, arrives: int, drives: str | None) -> None:
    """Robots in a row, each hears the next: marks of the last reach the first, three hops away, after 3 tau."""
    world = Navigation(NavigationConfig(agents=4))
    actor = make_actor(drives or _policy(), world, Channel(delay=delay))
    state = world.state(
        torch.tensor([[[-300.0, 0.0], [-100.0, 0.0], [100.0, 0.0], [300.0, 0.0]]]),
        torch.tensor([[[-300.0, 9.0], [-100.0, 9.0], [100.0, 9.0], [300.0, 9.0]]]),
    )
    observation = world.observe(state)
    link = torch.zeros((1, 4, 4), dtype=torch.bool)
    for i in range(3):
        link[0, i, i + 1] = True
    observation = replace(observation, graph=MatrixGraph(link))
    actor.start([0])
    with torch.inference_mode():
        own = torch.zeros(0, dtype=torch.bool)  # marks that only the last robot has at first
        for instant in range(arrives + 1):
            actor.act(state, observation)
            maps = _maps(actor).maps[0]
            own = maps[3] & ~maps[:3].any(0) if instant == 0 else own
            assert bool((maps[0] & own).any()) == (instant >= arrives)


def test_lost_and_failed_robots_hand_on_nothing() -> None:
    for drives in (None, "dhba-2-relay-map"):
        quiet, _ = _run(Channel(delay=1.0, loss=1.0), drives=drives)
        spoken, _ = _run(Channel(delay=1.0), drives=drives)
        assert _maps(quiet.actor).maps.sum() < _maps(spoken.actor).maps.sum()
        _, places = _run(Channel(delay=1.0, failure=1.0), drives=drives)
        assert torch.equal(places[2], places[-1])  # none moves once it has failed


def test_a_controller_forgets_its_maps_between_episodes() -> None:
    world = Navigation(NavigationConfig(agents=5))
    for drives, channel in (("dhba-2-map", None), ("dhba-2-relay-map", Channel(delay=1.0))):
        actor = make_actor(drives, world, channel)
        found = []
        for _ in range(2):
            loop = Loop(world, actor)
            loop.start([3])
            for _ in range(5):
                loop.step()
            found.append(actor.controller.survey.maps)  # type: ignore[attr-defined]
            actor.start([4])
        assert torch.equal(*found)


def test_a_task_that_does_not_say_what_is_sensed_is_refused() -> None:
    world = Coverage(CoverageConfig(agents=2, features=2, side=64.0))
    with pytest.raises(MastError, match="does not say what they sense"):
        sights_of(world.observe(world.reset([0])))
    assert Policy(PolicyConfig(task="navigation", layers=1, heads=1, head_dim=8)).survey(1000.0) is None
    for side, cell in ((1000.0, 0.0), (25.0, 1000.0), (math.inf, 25.0), (1000.0, -1.0)):
        with pytest.raises(MastError, match=r"a map with side = .* smaller cells"):
            Survey(side=side, cell=cell)
    with pytest.raises(MastError, match="exploration_survey"):
        PolicyConfig(task="navigation", exploration_survey=-1.0)


@pytest.mark.parametrize("policy", ["mast-m-sharp", "dhba-8-map", "searcher-250-relay-map"])
def test_maps_that_do_not_fit_are_refused_before_anything_runs(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    monkeypatch.setattr(evaluation, "free_memory", lambda device: 4e9)
    with pytest.raises(MastError, match="the maps of 20,000 robots would take about"):
        evaluation.evaluate("navigation", policy=[policy], agents=20_000, episodes=1, steps=1, device="cpu")


def test_without_delay_marks_go_where_news_goes_and_no_farther() -> None:
    """Robot 0 hears robot 3, and not the other way round."""
    world = Navigation(NavigationConfig(agents=4, directed=True, width=2000.0))
    places = torch.tensor([[[-300.0, 0.0], [-250.0, 0.0], [300.0, 0.0], [350.0, 0.0]]])
    state = world.state(places, places + torch.tensor([0.0, 9.0]))
    link = torch.zeros((1, 4, 4), dtype=torch.bool)
    link[0, 0, 3] = True
    graph = MatrixGraph(link)
    object.__setattr__(graph, "directed", True)
    observation = replace(world.observe(state), graph=graph)
    for channel in (None, Channel(delay=0.0)):
        actor = make_actor(_policy(), world, channel)
        actor.start([0])
        with torch.inference_mode(), warnings.catch_warnings(action="ignore"):
            actor.act(state, observation)
        maps = (actor.survey if channel is None else _maps(actor)).maps[0]  # type: ignore[attr-defined]
        assert bool((maps[0] | ~maps[3]).all()) and not bool((maps[3] | ~maps[0]).all())


def test_times_of_handing_are_found_without_looking_at_every_tick() -> None:
    timing = Timing(Channel(delay=0.123456789), 1.0)
    assert [round(tick / timing.period, 6) for tick in timing.handings(1)][:2] == [0.111111, 0.234568]
    assert list(Timing(Channel(delay=2.0), 1.0).handings(0)) == []
    assert list(Timing(Channel(delay=2.0), 1.0).handings(1)) == [1]
    assert list(Timing(Channel(delay=0.25), 1.0).handings(7)) == [1, 2, 3, 4]


def test_a_policy_with_a_map_says_so_where_it_is_given_none() -> None:
    with pytest.warns(MastWarning, match="share a map"):
        DecentralPolicy(_policy(), Channel(), 1.0)


def test_sights_of_another_shape_and_a_map_without_exploration_are_refused() -> None:
    world = Navigation(NavigationConfig(agents=3))
    seen = world.observe(world.reset([0]))

    class Wrong:
        positions, sights = seen.positions, seen.positions

    with pytest.raises(MastError, match=r"have shape \[1, 3, 2\]: expected \[1, 3, things, 2\]"):
        sights_of(Wrong())
    with pytest.raises(MastError, match="does not explore"):
        PolicyConfig(task="navigation", exploration_survey=25.0)
