"""Controllers of somebody's own whose robots talk: what is wrong with one is told in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from mast_swarm.comms.config import Channel
from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.run import prepare
from mast_swarm.survey import Survey
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation

_FINE = """
import mast_swarm
import torch


class Fine:
    def __init__(self, *, dt, max_speed, config):
        self.side = config.side

    def start(self, seeds):
        self.survey = mast_swarm.Survey(side=self.side, cell=0.005)

    def tell(self, state, observation):
        return observation.positions

    def act(self, state, observation, heard):
        return torch.zeros_like(observation.positions)
"""


class Still:
    """Robots that say where they are, and stay there."""

    survey: Any = None

    def __init__(self, *, dt: float, max_speed: float) -> None:
        pass

    def start(self, seeds: Any) -> None:
        pass

    def tell(self, state: Any, observation: Any) -> Any:
        return observation.positions

    def act(self, state: Any, observation: Any, heard: Any) -> Tensor:
        return torch.zeros_like(observation.positions)


def _run(controller: Any) -> None:
    world = Navigation(NavigationConfig(agents=5))
    loop = Loop(world, make_actor(controller, world, Channel(delay=1.0)))
    with torch.inference_mode():
        loop.start([0, 1])
        loop.step()
        loop.step()


def test_one_that_is_right_runs() -> None:
    _run(Still)


class Wordless(Still):
    said: Any = None

    def tell(self, state: Any, observation: Any) -> Any:
        return self.said


class Rambling(Still):
    words = 0

    def tell(self, state: Any, observation: Any) -> Any:
        self.words += 1
        return torch.zeros((2, 5, self.words))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (None, "gave NoneType: expected a torch tensor"),
        (np.zeros((2, 5, 1)), "gave ndarray: expected a torch tensor"),
        (torch.zeros(2, 5), r"gave \[2, 5\]: expected a torch tensor \[2, 5, numbers\]"),
        (torch.full((2, 5, 1), torch.nan), "lets robot 0 in environment 0 say what is not finite"),
        (torch.zeros(2, 6, 1), r"gave \[2, 6, 1\]: expected a torch tensor \[2, 5, numbers\]"),
    ],
)
def test_what_robots_say_has_a_row_for_each(said: Any, told: str) -> None:
    with pytest.raises(MastError, match=f"`tell` of Wordless {told}"):
        _run(type("Wordless", (Wordless,), {"said": said}))


def test_robots_always_say_as_many_numbers() -> None:
    with pytest.raises(MastError, match=r"`tell` of Rambling gave \[2, 5, 2\]: expected a torch tensor \[2, 5, 1\]"):
        _run(Rambling)


class Deaf(Still):
    def act(self, state: Any, observation: Any) -> Tensor:  # type: ignore[override]
        return torch.zeros_like(observation.positions)


class Mute:
    def __init__(self, *, dt: float, max_speed: float) -> None:
        pass

    def start(self, seeds: Any) -> None:
        pass

    def act(self, state: Any, observation: Any, heard: Any) -> Tensor:
        return torch.zeros_like(observation.positions)


class Selfish(Still):
    def tell(self, observation: Any) -> Any:  # type: ignore[override]
        return observation.positions


class Wired(Still):
    tell = None  # type: ignore[assignment]


class Seedless(Still):
    def start(self) -> None:  # type: ignore[override]
        pass


class Startless(Still):
    start = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("controller", "told"),
    [
        (Deaf, r"has a method act\(state: .*\) -> .*: expected \(state, observation, heard\) \(what robots have heard"),
        (Mute, r"has a method act\(.*heard.*: expected \(state, observation\) .*with a method tell"),
        (Seedless, r"has a method start\(\) -> .*: expected \(seeds\)$"),
        (Startless, r"has no method start"),
        (Selfish, r"has a method tell\(observation: .*\) -> .*: expected \(state, observation\)"),
        (Wired, r"has no method tell"),
    ],
)
def test_methods_take_what_they_are_given(controller: Any, told: str) -> None:
    with pytest.raises(MastError, match=told):
        _run(controller)


@pytest.mark.parametrize(
    ("survey", "told"),
    [
        (25, "is int: expected a mast_swarm.survey.Survey"),
        (Survey, "is type: expected a mast_swarm.survey.Survey"),
        (Survey(side=100.0, cell=25.0), "is the map of a square of 100 m, and the world's is 223.607 m wide"),
    ],
)
def test_a_survey_is_a_map_of_this_world(survey: Any, told: str) -> None:
    with pytest.raises(MastError, match=told):
        _run(type("Mapped", (Still,), {"survey": survey}))
    with pytest.raises(MastError, match=told):  # a controller may make it only when an episode starts
        _run(type("Mapped", (Still,), {"start": lambda self, seeds: setattr(self, "survey", survey)}))


def test_maps_that_are_made_when_an_episode_starts_are_counted_in_memory(tmp_path: Path) -> None:
    (tmp_path / "fine.py").write_text(_FINE)
    config = EvaluateConfig(NavigationConfig(agents=5), policy=(f"{tmp_path}/fine.py:Fine",), delay=1.0)
    with pytest.raises(MastError, match="the maps of 5 robots would take"):
        prepare("navigation", config)


def test_who_has_no_map_is_told_so() -> None:
    class Mapless(Still):
        def act(self, state: Any, observation: Any, heard: Any) -> Tensor:
            searched: Tensor = heard.searched(torch.zeros(2, 5, 2), torch.zeros(2, 5, 3))
            return searched

    with pytest.raises(MastError, match=r"`heard\.searched`, and its robots have no map: give"):
        _run(Mapless)


@pytest.mark.parametrize("delay", [0.7, 1.0, 2.0])
def test_what_has_not_arrived_is_nothing(delay: float) -> None:
    """News that a robot does not hold is 0, also where what was said lies in the store for others."""
    seen: list[tuple[Tensor, Tensor]] = []

    class Listening(Still):
        def tell(self, state: Any, observation: Any) -> Any:
            return observation.positions.abs() + 1

        def act(self, state: Any, observation: Any, heard: Any) -> Tensor:
            seen.append((heard.age, heard.news))
            return torch.zeros_like(observation.positions)

    world = Navigation(NavigationConfig(agents=40))
    loop = Loop(world, make_actor(Listening, world, Channel(delay=delay, failure=0.01)))
    with torch.inference_mode():
        loop.start([0, 1])
        for _ in range(14):
            loop.step()
    assert any(bool((age < 0).any()) and bool((age > 4).any()) for age, _ in seen)
    assert all(bool(((news != 0).all(-1) == (age >= 0)).all()) for age, news in seen)


@pytest.mark.parametrize(
    ("command", "plan", "told"), [(2, 2, r"a plan \[2, 5, 3\], got \[2, 5, 2\]"), (3, 3, r"commands \[2, 5, 2\]")]
)
def test_who_searches_has_a_plan(command: int, plan: int, told: str) -> None:
    class Planless(Still):
        def __init__(self, *, dt: float, max_speed: float, config: Any) -> None:
            self.survey = Survey(side=config.side, cell=25.0)

        def act(self, state: Any, observation: Any, heard: Any) -> Tensor:
            searched: Tensor = heard.searched(torch.zeros(2, 5, command), torch.zeros(2, 5, plan))
            return searched

    with pytest.raises(MastError, match=told):
        _run(Planless)
