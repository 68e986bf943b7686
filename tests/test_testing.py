"""The checks that users run on worlds of their own: good worlds pass, and each kind of mistake is named."""

from __future__ import annotations

import inspect
import random
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import mast_swarm
from mast_swarm import Coverage, CoverageConfig, Graph, MastError, Metric, Navigation, NavigationConfig, register
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.tasks.registry import find
from mast_swarm.testing import check_task, check_world
from strolling import Config, State, Strolling, inwards, own_tasks, strolling

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL_COVERAGE = CoverageConfig(
    agents=4, features=3, side=64.0, sigma=(6.0, 8.0), communication_range=40.0, sensor=16.0, local_map=48.0, pixels=8
)


@pytest.fixture(autouse=True)
def known() -> None:
    register(strolling())


def mending(world: Any, task: Any = None) -> list[str]:
    """What is wrong with a world, a line per finding."""
    with pytest.raises(MastError) as raised:
        check_world(world, task)
    title, *lines = str(raised.value).splitlines()
    assert title == f"{type(world).__name__} needs mending:"
    assert lines and all(line.startswith("- ") for line in lines)
    return [line.removeprefix("- ") for line in lines]


# What is good.


def test_a_good_world_passes_every_check() -> None:
    passed = check_world(Strolling(Config()), strolling())
    assert len(passed) == 10 and all(line.startswith("ok: ") for line in passed)
    assert (
        check_world(Strolling(Config())) == passed[:-3]
    )  # without its task there are no controllers, views and commands


@pytest.mark.parametrize("directed", [False, True])
def test_navigation_passes(directed: bool) -> None:
    config = NavigationConfig(agents=12, scenario="clusters-5", directed=directed)
    task = find("navigation")
    if directed:  # explorers refuse such links, and say so
        refuse = ("explorer", "searcher-K", "searcher-K-map")
        left = {name: made for name, made in task.controllers.items() if name not in refuse}
        wrong = mending(Navigation(config), task)
        assert len(wrong) == 1 and "explorer and searcher-K need links that carry both ways" in wrong[0]
        task = replace(task, controllers=left)
    assert len(check_world(Navigation(config), task)) == 10


def test_coverage_passes() -> None:
    assert len(check_world(Coverage(SMALL_COVERAGE), find("coverage"))) == 10


@pytest.mark.parametrize("example", ["rendezvous", "flocking"])
def test_examples_pass(example: str) -> None:
    assert len(check_task(find(f"{EXAMPLES / example}.py"), "cpu")) == 10


def test_random_states_are_left_as_they_were() -> None:
    class Greedy(Strolling):
        def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
            torch.rand(3)
            return (np.random.uniform(-1, 1, (5, 2)).astype(np.float32),)

    for world in (Strolling(Config()), Greedy(Config())):
        ours = random.getstate(), np.random.get_state()[1].copy(), torch.get_rng_state()  # type: ignore[index]
        with pytest.raises(MastError) if isinstance(world, Greedy) else own_tasks():
            check_world(world)
        assert random.getstate() == ours[0]
        np.testing.assert_array_equal(np.random.get_state()[1], ours[1])  # type: ignore[index]
        assert torch.equal(torch.get_rng_state(), ours[2])


# Start states.


class GlobalNumpy(Strolling):
    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        np.random.seed(seed)
        return (np.random.uniform(-1, 1, (5, 2)).astype(np.float32),)


class GlobalTorch(Strolling):
    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        return (torch.rand(5, 2).numpy(),)


class GlobalPython(Strolling):
    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        return (np.array([[random.random()] * 2] * 5, dtype=np.float32),)


class OneArray(Strolling):
    def draw(self, seed: int, scenario: str) -> Any:
        return super().draw(seed, scenario)[0]


class OfTensors(Strolling):
    def draw(self, seed: int, scenario: str) -> Any:
        return (torch.zeros(5, 2),)


class Endless(Strolling):
    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        return (np.full((5, 2), np.inf if seed == 7 else 0.0, np.float32),)


class Words(Strolling):
    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        return (*super().draw(seed, scenario), np.array(["a"]))


@pytest.mark.parametrize(
    ("world", "findings"),
    [
        (GlobalNumpy, ["draw uses the global random state: use np.random.default_rng(seed)"]),
        (GlobalTorch, ["draw uses the global random state", "draw gives two different starts for seed 7"]),
        (GlobalPython, ["draw gives two different starts for seed 0: all chance must come from the seed"]),
        (OneArray, ["draw gives ndarray: return a tuple of numpy arrays, also for a single one"]),
        (OfTensors, ["draw gives tuple: return a tuple of numpy arrays"]),
        (Endless, ["array 0 of draw for seed 7 holds NaN or infinity"]),
        (Words, ["array 1 of draw is of <U1: give numbers"]),
    ],
)
def test_starts(world: type[Strolling], findings: list[str]) -> None:
    wrong = mending(world(Config()))
    for finding in findings:
        assert any(line.startswith(f"starts depend on their seed alone: {finding}") for line in wrong), wrong
    assert not any(not line.startswith("starts") for line in wrong)  # nothing else can be tried


# States.


@dataclass
class Loose:
    """Has all that a state has, and can be changed."""

    positions: Tensor
    step: Tensor
    velocity: Tensor


class NotAState(Strolling):
    def begin(self, *drawn: Tensor) -> Any:
        return Loose(**vars(super().begin(*drawn)))


@dataclass(frozen=True, kw_only=True)
class Named(State):
    name: Any = None


class Begun(Strolling):
    """A world whose start state has something else in it."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(Config())
        self.parts = parts

    def begin(self, *drawn: Tensor) -> State:
        return replace(Named(**vars(super().begin(*drawn))), **self.parts)


@pytest.mark.parametrize(
    ("world", "finding"),
    [
        (lambda: NotAState(Config()), "begin gives Loose: derive the state from mast_swarm.State"),
        (lambda: Begun(name="a"), "state.name is str: a state holds tensors [B, ...] alone"),
        (
            lambda: Begun(name=torch.zeros(5, 3)),
            "state.name has shape [5, 3]: the first axis is the 3 environments",
        ),
        (
            lambda: Begun(name=torch.zeros(3), positions=torch.zeros(3, 4, 2)),
            "state.positions is torch.float32 [3, 4, 2]: expected float [3, 5, 2] for 5 agents",
        ),
        (
            lambda: Begun(name=torch.zeros(3), positions=torch.zeros(3, 5, 2, dtype=torch.int64)),
            "state.positions is torch.int64 [3, 5, 2]: expected float",
        ),
        (
            lambda: Begun(name=torch.zeros(3), step=torch.zeros(3)),
            "state.step is torch.float32 [3]: expected int64 [3], all 0 at the start",
        ),
        (
            lambda: Begun(name=torch.zeros(3), step=torch.ones(3, dtype=torch.int64)),
            "state.step is torch.int64 [3]: expected int64 [3], all 0 at the start",
        ),
    ],
)
def test_states(world: Any, finding: str) -> None:
    wrong = mending(world())
    assert len(wrong) == 1 and wrong[0].startswith(f"states are frozen dataclasses of tensors: {finding}"), wrong


def test_a_state_cannot_help_being_frozen() -> None:
    with pytest.raises(TypeError, match="cannot inherit non-frozen"):

        @dataclass
        class Changing(State):
            pass


# Observations.


class Observing(Strolling):
    """A world whose observations have something else in them."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(Config())
        self.parts = parts

    def observe(self, state: State) -> Any:
        seen = super().observe(state)
        # What has the right shape in one environment has it in all.
        return replace(seen, **{k: v(seen) if callable(v) else v for k, v in self.parts.items()})


class Sighting(Strolling):
    """A world whose robots sense things that there are to find."""

    def __init__(self, sights: torch.Tensor) -> None:
        super().__init__(Config())
        self.sights = sights

    def observe(self, state: State) -> Any:
        seen = super().observe(state)
        sights = self.sights.expand(len(seen.features), *self.sights.shape)  # the same in every environment
        return SimpleNamespace(**{f.name: getattr(seen, f.name) for f in fields(seen)}, sights=sights)


class Counting(Strolling):
    """Keeps a number between calls."""

    calls = 0

    def observe(self, state: State) -> Any:
        self.calls += 1
        seen = super().observe(state)
        return replace(seen, features=seen.features + self.calls)


class MovingOnSight(Strolling):
    def observe(self, state: State) -> Any:
        state.positions.add_(1.0)
        return super().observe(state)


class Blind(Strolling):
    def observe(self, state: State) -> Any:
        return SimpleNamespace(features=torch.zeros(3, 5, 1), positions=state.positions)


@dataclass(frozen=True)
class Promising(Config):
    @property
    def observation_shape(self) -> tuple[int, ...]:
        return (6,)


def one_way(seen: Any) -> Graph:
    first = 5 * torch.arange(seen.graph.batch)  # of every environment
    return Graph(first + 1, first, seen.graph.batch, 5)


@pytest.mark.parametrize(
    ("world", "findings"),
    [
        (
            lambda: Observing(features=lambda seen: seen.features / 0 * 0),
            ["features hold NaN or infinity: check divisions by distances that may be 0"],
        ),
        (
            lambda: Observing(features=lambda seen: seen.features[..., 0]),
            ["features are torch.float32 [3, 5]: expected float [3, 5, F], or [3, 5, C, H, W] for images"],
        ),
        (lambda: Observing(features=lambda seen: seen.features.long()), ["features are torch.int64 [3, 5, 4]"]),
        (
            lambda: Strolling(Promising()),
            ["features are [4] per robot, but config.observation_shape says [6]"],
        ),
        (
            lambda: Observing(positions=lambda seen: seen.positions + 1),
            ["observation.positions are not state.positions: robots know where they are"],
        ),
        (
            lambda: Observing(graph=lambda seen: seen.graph.adjacency()),
            ["graph is Tensor: make it with mast_swarm.radius_graph or mast_swarm.neighbour_graph"],
        ),
        (
            lambda: Observing(graph=lambda seen: replace(seen.graph, nodes=6)),
            ["graph is of 3 x 6 robots: expected 3 x 5"],
        ),
        (lambda: Observing(graph=one_way), ["some links carry one way only: make the graph with directed=True"]),
        (
            lambda: Observing(landmark=torch.zeros(3, 5)),
            ["landmark has shape [3, 5]: expected [3, 5, 2]"],
        ),
        (
            lambda: Observing(goals=torch.zeros(3, 2)),
            ["observations have goals, but the config says goals = False", "goals have shape [3, 2]"],
        ),
        (
            lambda: Counting(Config()),
            ["observing one state twice gives two observations: a world keeps nothing between calls"],
        ),
        (
            lambda: MovingOnSight(Config()),
            ["observe changes state.positions in place: a state is a value; use dataclasses.replace"],
        ),
        (lambda: Sighting(torch.zeros(5, 2)), ["MastError: `sights` of the observation have shape [3, 5, 2]"]),
        (lambda: Sighting(torch.full((5, 1, 2), torch.nan)), ["sights hold NaN"]),
        (
            lambda: Sighting(torch.tensor([[9.0, 0.0], [0.0, 3.0]]).repeat(5, 1, 1)),
            ["sights are not sorted: give the farthest last"],
        ),
        (lambda: Blind(Config()), ["the observation has no graph: return a mast_swarm.Observation"]),
    ],
)
def test_observations(world: Any, findings: list[str]) -> None:
    wrong = mending(world())
    for finding in findings:
        assert any(line.startswith(f"robots observe what was promised: {finding}") for line in wrong), wrong


def test_sights_end_where_there_is_nothing_more() -> None:
    sights = torch.tensor([[3.0, 0.0], [torch.inf, torch.inf]]).repeat(5, 1, 1)
    assert len(check_world(Sighting(sights))) == 7


def test_directed_links_may_carry_one_way() -> None:
    directed = Observing(graph=lambda seen: replace(one_way(seen), directed=True))
    assert len(check_world(directed)) == 7


# Steps.


class Stepping(Strolling):
    """A world whose step does something else too."""

    def __init__(self, spoil: Any) -> None:
        super().__init__(Config())
        self.spoil = spoil
        self.calls = 0

    def step(self, state: State, command: Tensor) -> Any:
        self.calls += 1
        return self.spoil(self, state, command, super().step(state, command))


def in_place(world: Any, state: State, command: Tensor, after: State) -> State:
    state.velocity.copy_(after.velocity)
    return after


def into_the_command(world: Any, state: State, command: Tensor, after: State) -> State:
    command.mul_(0.5)
    return after


@pytest.mark.parametrize(
    ("spoil", "finding"),
    [
        (in_place, "step changes state.velocity in place: a state is a value; use dataclasses.replace"),
        (into_the_command, "step changes the command in place: work on a copy"),
        (
            lambda world, state, command, after: replace(after, step=state.step),
            "state.step does not count the steps: set step=state.step + 1",
        ),
        (
            lambda world, state, command, after: replace(after, velocity=after.velocity + world.calls),
            "state.velocity differs when the same state takes the same step again: a world keeps nothing",
        ),
        (
            lambda world, state, command, after: replace(after, velocity=torch.rand_like(after.velocity)),
            "state.velocity differs when the same state takes the same step again",
        ),
        (
            lambda world, state, command, after: replace(after, velocity=after.velocity.double()),
            "state.velocity becomes torch.float64 [3, 5, 2] from torch.float32 [3, 5, 2]",
        ),
        (
            lambda world, state, command, after: replace(after, velocity=after.velocity[:, :, 0]),
            "state.velocity becomes torch.float32 [3, 5] from torch.float32 [3, 5, 2]",
        ),
        (
            lambda world, state, command, after: Named(**vars(after)),
            "step gives Named: expected State; use dataclasses.replace",
        ),
    ],
)
def test_steps(spoil: Any, finding: str) -> None:
    wrong = mending(Stepping(spoil))
    assert any(line.startswith(f"a step makes a new state and leaves the old one: {finding}") for line in wrong), wrong


def test_steps_in_place_are_steps() -> None:
    class Hasty(Strolling):
        def advance(self, state: State, command: Tensor) -> None:
            super().advance(state, command * 2)

    wrong = mending(Hasty(Config()))
    assert len(wrong) == 2 and all("is not the same after advance as after step" in line for line in wrong), wrong


# Batches.


class Crowded(Strolling):
    """Robots of all environments bother each other."""

    def step(self, state: State, command: Tensor) -> State:
        after = super().step(state, command)
        return replace(after, positions=after.positions + after.positions.mean())


class Compared(Strolling):
    def observe(self, state: State) -> Any:
        seen = super().observe(state)
        return replace(seen, features=seen.features - seen.features.mean())


class ByNumber(Strolling):
    """Environments start where their place in the batch says."""

    def begin(self, *drawn: Tensor) -> State:
        state = super().begin(*drawn)
        return replace(state, positions=state.positions + 10.0 * torch.arange(len(state.positions))[:, None, None])


@pytest.mark.parametrize(
    ("world", "finding"),
    [
        (Crowded, "state.positions of an environment depends on the others in its batch (step 1)"),
        (Compared, "features of an environment depend on the others in its batch (step 0)"),
        (ByNumber, "state.positions of an environment depends on the others in its batch (step 0)"),
    ],
)
def test_batches(world: type[Strolling], finding: str) -> None:
    assert mending(world(Config())) == [f"environments do not depend on their batch: {finding}"]


class Ranked(Strolling):
    """Measures an environment by the others of its batch."""

    def metrics(self, state: State) -> Any:
        spread = super().metrics(state)["spread"]
        return {"spread": spread / spread.max()}


class Shared(Strolling):
    """Who hears whom depends on the first environment of the batch."""

    def observe(self, state: State) -> Any:
        first = super().observe(replace(state, positions=state.positions[:1].expand_as(state.positions)))
        return replace(super().observe(state), graph=first.graph)


@pytest.mark.parametrize(("world", "what"), [(Ranked, "metric spread"), (Shared, "links")])
def test_metrics_and_links_of_batches(world: type[Strolling], what: str) -> None:
    (wrong,) = mending(world(Config()))
    assert wrong.startswith("environments do not depend on their batch: ") and what in wrong


# Metrics.


class MovingOnMeasuring(Strolling):
    def metrics(self, state: State) -> Any:
        state.positions.add_(1.0)
        return super().metrics(state)


def test_measuring_changes_nothing() -> None:
    (wrong,) = mending(MovingOnMeasuring(Config()))
    assert wrong.startswith("metrics are finite numbers: metrics changes state.positions in place: a state is a value")


class Measured(Strolling):
    def __init__(self, found: Any) -> None:
        super().__init__(Config())
        self.found = found

    def metrics(self, state: State) -> Any:
        return {**super().metrics(state), **self.found}


@pytest.mark.parametrize(
    ("found", "finding"),
    [
        ({"a": torch.zeros(3, 5)}, "metric a is [3, 5]: expected a tensor [3]"),
        ({"a": torch.tensor(1.0)}, "metric a is []: expected a tensor [3]"),
        ({"a": 1.0}, "metric a is float: expected a tensor [3]"),
        ({"a": torch.full((3,), float("nan"))}, "metric a is not finite"),
        ({"spread": torch.tensor([1.0, -0.1, 1.0])}, "metric spread leaves its limits (0.0, inf)"),
    ],
)
def test_metrics(found: Any, finding: str) -> None:
    wrong = mending(Measured(found), strolling())
    assert set(wrong) == {f"metrics are finite numbers: {finding}"}


def test_a_metric_of_the_task_that_is_no_tensor_is_told_once() -> None:
    wrong = mending(Measured({"spread": 1.0}), strolling())
    assert set(wrong) == {"metrics are finite numbers: metric spread is float: expected a tensor [3]"}


def test_a_metric_that_the_world_does_not_measure() -> None:
    wrong = mending(Strolling(Config()), strolling(others=(Metric("speed"),)))
    assert set(wrong) == {"metrics are finite numbers: the task's metric speed is not among those of the world: spread"}
    assert len(check_world(Measured({"speed": torch.zeros(3)}), strolling(others=(Metric("speed"),)))) == 10


@pytest.mark.parametrize("name", ["delay", "episode", "agents"])
def test_a_metric_is_not_called_as_a_column_of_tables(name: str) -> None:
    wrong = mending(Measured({"spread": torch.zeros(3), name: torch.zeros(3)}), strolling())
    assert set(wrong) == {
        f"metrics are finite numbers: metric {name} has the name of a column of tables: give it another"
    }


# What is shown.


class Framed(Strolling):
    def frame(self, state: State, observation: Any) -> dict[str, Tensor]:
        return {"speed": state.positions[..., 0]}


def test_what_recordings_keep_can_be_shown() -> None:
    wrong = mending(Framed(Config()), strolling())
    assert wrong == [
        "recordings can be shown: the recording of robots at rest has no links: let frame give "
        "{**super().frame(state, observation), ...}, or give the task a view of its own"
    ]


# Settings.


@dataclass(frozen=True)
class Delayed(Config):
    """Robots stroll, and sense late."""

    delay: float = 0.0
    """Of what they sense, s."""


def test_a_setting_is_not_called_as_an_option_of_a_command() -> None:
    wrong = mending(Strolling(Delayed()), strolling(Config=Delayed, name="delayed"))
    assert wrong == [
        f"settings have names of their own: Delayed has a setting 'delay', which is an option of `mast {verb}` too: "
        "give the world's another name"
        for verb in ("evaluate", "demo")
    ]


# Recordings and samples.


class Keeping(Strolling):
    def __init__(self, **instead: Any) -> None:
        super().__init__(Config())
        for name, method in instead.items():
            setattr(self, name, method)


@pytest.mark.parametrize(
    ("instead", "finding"),
    [
        ({"frame": lambda state, seen: {"sky": torch.zeros(5)}}, "sky of frame has shape [5]: the first axis is the 3"),
        ({"scene": lambda state, track: {"walls": torch.zeros(2, 2)}}, "walls of scene has shape [2, 2]"),
        (
            {"pack": lambda features: features[..., :2]},
            "features of shape [3, 5, 4] come back from pack and unpack as [3, 5, 2]",
        ),
        (
            {"pack": lambda features: features.half(), "unpack": lambda packed, positions: packed.float() * 1.1},
            "features that were packed come back from unpack changed by more than 0.01",
        ),
        (
            {"unpack": lambda packed, positions: packed + 0.02},
            "features that were packed come back from unpack changed by more than 0.01",
        ),
    ],
)
def test_recordings_and_samples(instead: Any, finding: str) -> None:
    wrong = mending(Keeping(**instead))
    assert len(wrong) == 1
    assert wrong[0].startswith(f"recordings and samples have the right shapes: {finding}"), wrong


def test_rounding_is_no_mistake() -> None:
    half = {"pack": lambda features: features.half(), "unpack": lambda packed, positions: packed.float()}
    assert len(check_world(Keeping(**half))) == 7


def test_features_that_come_back_as_another_type() -> None:
    wrong = mending(Keeping(pack=lambda features: features.half()))
    assert len(wrong) == 1 and "float16" in wrong[0] and "unpack" in wrong[0], wrong


# Controllers.


def shoves(state: State, observation: Any) -> Tensor:
    state.positions.add_(1.0)
    return torch.zeros_like(state.positions)


def forgets_a_robot(state: State, observation: Any) -> Tensor:
    return inwards(state, observation)[:, 1:]


def divides(state: State, observation: Any) -> Tensor:
    return state.positions / 0.0


def wavers(state: State, observation: Any) -> Tensor:
    return torch.rand_like(state.positions)


@pytest.mark.parametrize(
    ("controller", "finding"),
    [
        (shoves, "controller it changes state.positions in place: a state is a value"),
        (forgets_a_robot, "controller it gives [3, 4, 2]: expected a tensor [3, 5, 2]"),
        (lambda state, observation: None, "controller it gives NoneType: expected a tensor [3, 5, 2]"),
        (divides, "controller it gives commands that are not finite"),
        (wavers, "controller it gives two commands for one state: a function keeps nothing; make it a class"),
    ],
)
def test_controllers(controller: Any, finding: str) -> None:
    wrong = mending(Strolling(Config()), strolling(controllers={"it": controller}, expert="it"))
    assert len(wrong) == 1 and wrong[0].startswith(f"controllers command every robot: {finding}"), wrong


# Whatever else.


def test_whatever_a_world_raises_is_told_and_the_rest_is_still_checked() -> None:
    class Raising(Crowded):
        def metrics(self, state: State) -> Any:
            raise KeyError("speed")

    line = Raising.metrics.__code__.co_firstlineno + 1
    wrong = mending(Raising(Config()), strolling())
    assert wrong == [
        "environments do not depend on their batch: state.positions of an environment depends on the others in its "
        "batch (step 1)",
        f"metrics are finite numbers: {__file__} line {line}: KeyError: 'speed'",
    ]


def test_a_world_must_be_one() -> None:
    class Nothing:
        def __init__(self, config: Config, device: str) -> None:
            pass

    with pytest.raises(MastError, match=r"the World of task strolling is Nothing: derive it from mast_swarm\.World"):
        check_task(strolling(World=Nothing))


# What a new user met.


def test_an_error_in_a_world_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "drift.py"
    text = (EXAMPLES / "rendezvous.py").read_text().replace('"rendezvous"', '"drift"')
    file.write_text(text.replace("middle = state.positions.mean(", "middle = state.nothing.mean("))
    line = next(n for n, row in enumerate(file.read_text().splitlines(), 1) if "state.nothing" in row)
    with pytest.raises(MastError, match=rf"{file} line {line}: AttributeError: .*nothing"):
        check_task(find(f"{file}:TASK"), "cpu")


def test_arrays_and_not_numbers_are_told_once() -> None:
    class Arrays(Strolling):
        def observe(self, state: Any) -> Any:
            seen = super().observe(state)
            return replace(seen, features=seen.features.numpy())

    assert mending(Arrays(Config())) == [
        "robots observe what was promised: features of the observation is ndarray: give a torch tensor; "
        "torch.from_numpy makes one of an array"
    ]

    class Undefined(Strolling):
        def observe(self, state: Any) -> Any:
            seen = super().observe(state)
            return replace(seen, features=seen.features * float("nan"))

    found = mending(Undefined(Config()))
    assert [line for line in found if "depend" in line or "twice" in line or "differs" in line] == []
    assert any("features hold NaN or infinity" in line for line in found)


def test_a_team_of_any_size_is_checked() -> None:
    assert len(check_task(find("strolling"), "cpu", agents=1)) == 10
    with pytest.raises(MastError, match="a team needs at least 1 robot"):
        check_task(find("strolling"), "cpu", agents=0)


def test_a_controller_gets_the_settings_if_it_asks_for_them() -> None:
    class Asks:
        def __init__(self, *, dt: float, max_speed: float, config: Any) -> None:
            self.config = config

        def start(self, seeds: Any = ()) -> None:
            pass

        def act(self, state: Any, observation: Any) -> Tensor:
            assert self.config.agents == state.positions.shape[1]
            return torch.zeros_like(state.positions)

    world = Strolling(replace(Config(), agents=3))
    assert rollout(world, Asks, [0], 2).metrics
    task = replace(strolling(), controllers={"asks": Asks}, expert="asks", compared=("asks",))
    check_world(world, task)
    numpy_commands = replace(task, controllers={"asks": lambda state, seen: state.positions.numpy() * 0}, expert=None)
    assert any(
        "controller asks gives a numpy array: give a torch tensor" in line for line in mending(world, numpy_commands)
    )


def test_swapped_and_mistaken_arguments_are_told() -> None:
    world = Strolling(Config())
    for call, told in (
        (lambda: rollout("still", world, [0], 2), "rollout takes a world, then the policy"),  # type: ignore[arg-type]
        (lambda: rollout(world, inwards, 2, range(2)), "give seeds as a sequence"),  # type: ignore[arg-type]
        (lambda: rollout(world, inwards, 8, 2), "give seeds as a sequence"),  # type: ignore[arg-type]
        (
            lambda: rollout(world, lambda s, o: s.positions.numpy(), [0], 2),
            "command is ndarray: .*from_numpy makes one",
        ),
        (lambda: mast_swarm.evaluate(inwards, policy="lsap"), "a task is of type function: give its name"),
        (
            lambda: mast_swarm.evaluate("strolling", policy=[inwards]),
            "put it in a file and give 'path/to/file.py:NAME'",
        ),
        (lambda: mast_swarm.evaluate("strolling", policy=inwards), "put it in a file and give 'path/to/file.py:NAME'"),
        (lambda: mast_swarm.load_policy(inwards), "a policy to load is of type function"),  # type: ignore[arg-type]
        (lambda: mast_swarm.write_replay([], "x.html"), "write_replay takes the file first"),  # type: ignore[arg-type]
    ):
        with pytest.raises(MastError, match=told):
            call()
    assert inspect.signature(mast_swarm.train).parameters["checkpoint_seconds"].default == 60.0
    assert "mast_swarm.train(TASK" in (mast_swarm.train.__doc__ or "")
