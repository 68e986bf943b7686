"""Tasks: how they are declared, named and found, in this package, in others, and in a single file."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch

import mast_swarm
from mast_swarm import Demo, MastError, Metric, Policy, PolicyConfig, Task, WorldConfig, register, rollout
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.tasks import registry as base
from mast_swarm.tasks.base import COLUMNS, FunctionController
from mast_swarm.tasks.registry import find, names, task_of
from shared import mast, one_line
from strolling import ONE_FILE, AtSpeed, Config, Eastwards, Strolling, inwards, one_file, strolling

TESTS = Path(__file__).parents[1]


# Registration.


def test_a_task_is_known_once_it_is_registered() -> None:
    with pytest.raises(MastError, match="unknown task 'strolling'"):
        find("strolling")
    with pytest.raises(MastError, match=r"no task has the settings Config: declare one with mast_swarm\.register"):
        task_of(Config())
    task = strolling()
    assert register(task) is task
    assert find("strolling") is task and task_of(Config()) is task and Config().task == "strolling"
    assert names() == ["navigation", "coverage", "strolling"]  # the default one first


def test_a_task_may_be_registered_again() -> None:
    register(strolling(steps=10))
    register(strolling(steps=20))
    assert find("strolling").steps == 20 and names().count("strolling") == 1


def test_settings_may_be_extended_without_a_new_task() -> None:
    @dataclass(frozen=True)
    class Wider(Config):
        agents: int = 9

    register(strolling())
    assert task_of(Wider()).name == "strolling"
    wider = strolling(name="wider", Config=Wider)
    register(wider)
    assert task_of(Wider()) is wider and task_of(Config()).name == "strolling"


@dataclass(frozen=True)
class Foreign:
    """Settings that are no world's."""

    robots: int = 3


class Plain:
    """No settings at all."""


@dataclass
class Agents:
    """Looks like settings of a world, but derives from nothing."""

    agents: int = 3


def test_two_tasks_have_two_names() -> None:
    with pytest.raises(MastError, match="there is a task 'navigation' already: give yours another name"):
        register(strolling(name="navigation"))
    assert find("navigation").Config is mast_swarm.NavigationConfig


def test_two_tasks_have_settings_of_their_own() -> None:
    register(strolling())
    with pytest.raises(MastError, match="tasks 'strolling' and 'other' share Config: derive one for each"):
        register(strolling(name="other"))
    assert "other" not in names()


@pytest.mark.parametrize(
    "config",
    [
        Foreign,
        Plain,
        Agents,
    ],
)
def test_settings_extend_those_of_every_world(config: Any) -> None:
    with pytest.raises(MastError, match=f"{config.__name__} of task 'other' does not extend mast_swarm.WorldConfig"):
        register(strolling(name="other", Config=config))


@pytest.mark.parametrize("name", ["", "Strolling", "1st", "a b", "a/b", "a:b", "../a", "a.py", "é"])
def test_a_name_that_no_command_line_could_take(name: str) -> None:
    with pytest.raises(MastError, match="use small letters, digits, - and _"):
        strolling(name=name)


@pytest.mark.parametrize("name", ["a", "my-task_2"])
def test_good_names(name: str) -> None:
    assert strolling(name=name).name == name


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("navigaton", "did you mean navigation? known: coverage, navigation"),
        ("xyz", "known: coverage, navigation"),
    ],
)
def test_a_task_that_does_not_exist(given: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MastError, match=re.escape(f"unknown task '{given}': {said}")):
        find(given)
    assert mast("evaluate", given) == 2
    assert one_line(capsys) == f"mast: unknown task '{given}': {said}\n"


# What a record says where nothing is given.


def test_what_is_left_out() -> None:
    task = Task("strolling", Config, Strolling, Metric("spread"))
    assert (task.curve, task.expert, dict(task.controllers), task.others) == (None, None, {}, ())
    assert task.drawn is task.metric and task.shown == (task.metric,)
    assert task.default_policies == () and task.episodes == 54 and task.steps == 200
    curve, other = Metric("distance"), Metric("speed")
    task = replace(task, curve=curve, others=(other, Metric("spread")))
    assert task.drawn is curve and [metric.name for metric in task.shown] == ["distance", "spread", "speed"]
    assert task.metric_named("speed") is other and task.metric_named("mass") == Metric("mass")


def test_parts_of_another_kind_are_taken_or_told() -> None:
    assert [metric.name for metric in strolling(others="speed").others] == ["speed"]
    assert [metric.name for metric in strolling(others=("speed", Metric("mass"))).others] == ["speed", "mass"]
    with pytest.raises(MastError, match="controllers of task strolling are a tuple: give a dict of names"):
        strolling(controllers=(inwards,))


def test_an_expert_that_is_a_controller_keeps_its_name() -> None:
    task = strolling(expert=inwards, controllers={"inwards": inwards, "eastwards": Eastwards})
    assert task.expert == "inwards" and task.controller_names == ["eastwards", "inwards"]
    task = strolling(expert=Eastwards, controllers={"inwards": inwards, "to-K": Eastwards})  # a family's is none
    assert task.expert == "expert" and task.controller("expert") is not None
    task = strolling(expert=inwards, controllers={"eastwards": Eastwards})
    assert task.expert == "expert" and task.controller_names == ["eastwards", "expert"]


def test_what_is_better_depends_on_the_metric() -> None:
    high, low = Metric("success_rate"), Metric("cost", lower_is_better=True)
    assert high.better(0.6, 0.5) and low.better(0.5, 0.6)
    assert high.better(0.5, None) and low.better(0.5, None)
    for metric in (high, low):
        assert not metric.better(0.5, 0.5) and not metric.better(math.nan, 0.5)
        assert metric.better(0.5, math.nan)  # as that of a first validation in which nobody arrived


def test_metrics_have_words() -> None:
    metric = Metric("success_rate")
    assert (metric.words, metric.unit, metric.lower_is_better, metric.digits) == ("success rate", "", False, 3)
    assert metric.limits == (-float("inf"), float("inf"))
    assert Metric("d", label="distance", unit="m").words == "distance (m)"
    assert Metric("spread", unit="m").words == "spread (m)"


def test_a_demo_shows_the_first_two_of_what_is_compared() -> None:
    task = strolling(steps=33)
    assert task.default_policies == ("inwards", "eastwards")  # families need a number
    assert task.default_demo == Demo(("inwards", "eastwards"), steps=33)
    assert strolling(compared=("east-5", "inwards", "eastwards")).default_demo.policies == ("east-5", "inwards")
    own = Demo(("east-9",))
    assert strolling(demo=own).default_demo is own and own.steps == 200 and own.config is None and own.outcome == ""
    navigation = find("navigation").default_demo
    assert navigation.policies == ("mast-m-sharp", "dhba-8") and navigation.config is not None


def test_an_expert_that_is_given_itself_is_a_controller_too() -> None:
    task = strolling(expert=inwards, controllers={"eastwards": Eastwards})
    assert task.expert == "expert" and list(task.controllers) == ["expert", "eastwards"]
    assert task.make_controller("expert", dt=1.0, max_speed=5.0).act is inwards


# Controllers.


def test_functions_classes_and_families_are_controllers() -> None:
    task = strolling()
    made = {name: task.make_controller(name, dt=0.5, max_speed=2.0) for name in ("inwards", "eastwards", "east-30")}
    assert isinstance(made["inwards"], FunctionController) and made["inwards"].act is inwards
    assert isinstance(made["eastwards"], Eastwards) and (made["eastwards"].dt, made["eastwards"].max_speed) == (0.5, 2)
    assert isinstance(made["east-30"], AtSpeed) and made["east-30"].per_cent == 30
    assert task.make_controller("eastwards", dt=0.5, max_speed=2.0) is not made["eastwards"]
    assert task.controller_names == ["east-K", "eastwards", "inwards"]
    assert task.has_controller("east-0") and task.has_controller("east-123456789")
    for name in ("east-K", "east-", "east--1", "east-1.5", "east-1234567890", "east-3x", "xeast-3", "east-٣"):
        assert not task.has_controller(name), name
        assert task.controller(name) is None
    with pytest.raises(MastError, match="unknown controller 'inward': did you mean inwards"):
        task.make_controller("inward", dt=1.0, max_speed=5.0)


def test_a_name_may_hold_several_numbers_and_signs() -> None:
    class Two:
        """With two numbers."""

        def __init__(self, a: int, b: int, *, dt: float, max_speed: float) -> None:
            self.numbers = (a, b)

    task = strolling(controllers={"a.K+K": Two})
    made = task.make_controller("a.3+04", dt=1.0, max_speed=1.0)
    assert isinstance(made, Two) and made.numbers == (3, 4)
    assert not task.has_controller("ab3+04") and not task.has_controller("a.34")


def test_what_is_no_controller_is_refused() -> None:
    task = strolling(controllers={"it": 5})
    assert task.has_controller("it")  # nothing was looked at yet
    with pytest.raises(MastError, match=r"a controller is of type int: give a function \(state, obs"):
        task.make_controller("it", dt=1.0, max_speed=5.0)


def test_every_kind_of_controller_drives(tmp_path: Path) -> None:
    register(strolling())
    world, file = Strolling(Config()), one_file(tmp_path)
    start = world.reset([0, 1]).positions
    own = Eastwards(dt=1.0, max_speed=5.0)
    east = start + torch.tensor([10.0, 0.0])  # 5 m/s for two seconds
    for policy in ("eastwards", Eastwards, own, "east-100", f"{file}:halfway", f"{file}:Eastwards", own.act):
        torch.testing.assert_close(rollout(world, policy, [0, 1], 2).state.positions, east)
    assert own.started == [0, 1]
    inner = rollout(world, "inwards", [0, 1], 2).state.positions
    assert torch.equal(rollout(world, inwards, [0, 1], 2).state.positions, inner)
    assert torch.equal(rollout(world, lambda s, o: inwards(s, o), [0, 1], 2).state.positions, inner)
    outer = rollout(world, f"{file}:outwards", [0, 1], 2).state.positions
    assert (outer.norm(dim=-1) > start.norm(dim=-1)).all() and (inner.norm(dim=-1) < start.norm(dim=-1)).all()
    with pytest.raises(MastError, match="a controller is of type int"):
        make_actor(f"{file}:LENGTH", world)


def test_a_controller_from_a_file_is_evaluated_beside_the_tasks_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = one_file(tmp_path / "mine", ONE_FILE + "\ndef greedy(state, observation):\n    return -state.positions\n")
    given = ("--agents", 3, "--episodes", 2, "--steps", 2, "--device", "cpu", "--out", tmp_path / "r")
    assert mast("evaluate", f"{file}:TASK", "--policy", f"{file}:greedy", "inwards", *given) == 0
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    assert list(dict.fromkeys(row["policy"] for row in summary["rows"])) == ["greedy", "inwards"]
    capsys.readouterr()
    assert mast("evaluate", "navigation", "--policy", f"{file}:gredy", "--agents", 4, "--out", tmp_path / "s") == 2
    assert "did you mean greedy" in one_line(capsys)
    again = ("--policy", f"{file}:inwards", "inwards", "--out", tmp_path / "t")
    assert mast("evaluate", f"{file}:TASK", *again) == 2
    assert "two have one name" in one_line(capsys)
    assert not (tmp_path / "s").exists() and not (tmp_path / "t").exists()


# A task in a file.


def test_a_task_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = one_file(tmp_path)
    task = find(f"{file}:TASK")
    assert (task.name, task.steps, task.Config().agents) == ("filed", 11, 4)
    assert find(str(file)) is task and find("filed") is task  # the variable may be left out; then it is known
    monkeypatch.chdir(tmp_path)
    assert find("task.py:TASK") is task
    assert base.source("filed") == {"source": f"{file}:TASK"} and base.source("navigation") == {}


def broken(text: str, message: str, said: str = "TASK", line: int | None = None) -> Any:
    return pytest.param(text, said, f" line {line}: {message}" if line else message, id=message[:30])


@pytest.mark.parametrize(
    ("text", "variable", "message"),
    [
        broken(ONE_FILE, "unknown name in {path} 'Confg': did you mean Config", "Confg"),
        broken(ONE_FILE, "{path}:Config is type, not a Task: name the variable that holds the task", "Config"),
        broken(ONE_FILE, "{path}:LENGTH is int, not a Task", "LENGTH"),
        broken("a = 1\nb = 2\nc = = 3\n", "SyntaxError: invalid syntax", line=3),
        broken("a = 1\n\ndef f():\n    return 1 / 0\n\nf()\n", "ZeroDivisionError: division by zero", line=4),
        broken("import numpy\n\nimport nothing_of_that_name\n", "ModuleNotFoundError: No module named", line=3),
        broken("import json\n\njson.loads('{')\n", "JSONDecodeError: Expecting property name", line=3),
        broken("raise ValueError('no')\n", "ValueError: no", line=1),
    ],
)
def test_a_file_that_gives_no_task(
    text: str, variable: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = one_file(tmp_path, text)
    expected = message.format(path=file)
    with pytest.raises(MastError) as raised:
        find(f"{file}:{variable}")
    assert (expected if str(file) in expected else f"{file}{expected}") in str(raised.value)
    assert mast("check", f"{file}:{variable}") == 2
    assert one_line(capsys) == f"mast: {raised.value}\n"
    assert names() == ["navigation", "coverage"]


def test_a_file_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, why in (("none.py", "No such file or directory"), ("none.py:TASK", "No such file or directory")):
        assert mast("train", tmp_path / name) == 2
        assert one_line(capsys) == f"mast: cannot read {tmp_path / 'none.py'}: {why}\n"


def test_a_mistyped_task_is_suggested(tmp_path: Path) -> None:
    file = one_file(tmp_path)
    with pytest.raises(MastError, match="did you mean TASK"):
        find(f"{file}:TSAK")
    with pytest.raises(MastError) as raised:
        find(f"{file}:qqqqqqqqqqqq")
    assert "TASK" in str(raised.value) and "mast_swarm" not in str(raised.value).split("known:")[1]


def test_a_mistake_in_a_task_is_told_from_its_file(tmp_path: Path) -> None:
    file = one_file(tmp_path, ONE_FILE.replace('"filed"', '"Filed"'))
    with pytest.raises(MastError, match="a task is called 'Filed'"):
        find(f"{file}:TASK")


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    file = one_file(tmp_path)
    before = find(f"{file}:TASK")
    one_file(tmp_path, ONE_FILE.replace("LENGTH = 11", "LENGTH = 1234"))
    after = find(f"{file}:TASK")
    assert (before.steps, after.steps) == (11, 1234) and find("filed") is after
    assert task_of(after.Config()) is after
    one_file(tmp_path, ONE_FILE.replace("LENGTH = 11", "LENGTH = "))
    with pytest.raises(MastError, match="line 6: SyntaxError"):
        find(f"{file}:TASK")
    assert find("filed") is after  # what was known stays
    one_file(tmp_path, ONE_FILE.replace("LENGTH = 11", "LENGTH = 777"))
    assert find(f"{file}:TASK").steps == 777


def test_a_file_that_has_changed_within_a_second_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    file = one_file(tmp_path)
    os.utime(file, ns=(10**18, 10**18))
    assert find(f"{file}:TASK").steps == 11
    one_file(tmp_path, ONE_FILE.replace("LENGTH = 11", "LENGTH = 22"))  # as long as before
    os.utime(file, ns=(10**18 + 10**8, 10**18 + 10**8))
    assert find(f"{file}:TASK").steps == 22


def test_two_files_may_have_one_name_but_not_two_tasks(tmp_path: Path) -> None:
    first, second = one_file(tmp_path / "a"), one_file(tmp_path / "b", ONE_FILE.replace('"filed"', '"others"'))
    third = one_file(tmp_path / "c")
    tasks = find(str(first)), find(str(second))
    assert [task.name for task in tasks] == ["filed", "others"] and tasks[0].Config is not tasks[1].Config
    with pytest.raises(MastError, match="there is a task 'filed' already"):
        find(str(third))
    assert find("filed") is tasks[0]


def test_the_name_of_an_installed_task_is_refused_at_once(tmp_path: Path) -> None:
    file = one_file(tmp_path, ONE_FILE.replace('"filed"', '"navigation"'))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([*filter(None, sys.path), str(TESTS)])}
    command = [sys.executable, "-m", "mast_swarm", "train", str(file), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)  # where nothing is known yet
    assert done.stderr == "mast: there is a task 'navigation' already: give yours another name\n"
    assert not (tmp_path / "run").exists()


def test_a_task_that_was_refused_leaves_no_trace(tmp_path: Path) -> None:
    file = one_file(tmp_path, ONE_FILE.replace('"filed"', '"navigation"'))
    with pytest.raises(MastError, match="there is a task 'navigation' already"):
        find(str(file))
    assert base.source("navigation") == {}  # else results of navigation could not be shown again


@pytest.mark.parametrize("own", ['controllers={"east-K": strolling.AtSpeed}, ', ""], ids=["a family", "none"])
def test_a_task_without_policies_to_compare_is_evaluated_with_those_given(own: str, tmp_path: Path) -> None:
    text = ONE_FILE.replace('controllers={"inwards": inwards, "eastwards": Eastwards}, expert="inwards", ', own)
    file = one_file(tmp_path, text)
    given = ("--agents", 3, "--episodes", 1, "--steps", 2, "--out", tmp_path / "r", "--device", "cpu")
    assert mast("list", file) == 0
    assert mast("evaluate", file, "--policy", f"{file}:outwards", *given) == 0
    assert mast("evaluate", file, "--help") == 0


# Mistakes that end in a line for the one who made them, not in a traceback.


def small_evaluation(reference: object, folder: Path, *policies: object) -> int:
    chosen = ("--policy", *policies) if policies else ()
    given = ("--agents", 3, "--episodes", 1, "--steps", 2, "--device", "cpu", "--out", folder / "r")
    return mast("evaluate", reference, *chosen, *given)


@pytest.mark.parametrize(
    ("controller", "words"),
    [
        ("class It:\n    def start(self, seeds=()): ...\n    def act(self, s, o): return -s.positions", "max_speed"),
        (
            "class It:\n    def __init__(self, **given): ...\n    def act(self, s, o): return -s.positions",
            "start",
        ),
        ("def It(state, observation): return state.positions.numpy()", "tensor"),
        ("def It(state, observation): return None", "tensor"),
    ],
    ids=["no dt", "no start", "numpy", "nothing"],
)
def test_a_controller_that_is_not_quite_one(
    controller: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = one_file(tmp_path, f"{ONE_FILE}\n{controller}\n")
    assert small_evaluation(file, tmp_path, f"{file}:It") == 2
    assert words in one_line(capsys)


def test_a_family_is_made_by_a_class() -> None:
    task = strolling(controllers={"go-K": inwards})
    with pytest.raises(MastError, match="class"):
        task.make_controller("go-3", dt=1.0, max_speed=5.0)


def test_a_controller_is_found_by_the_name_that_lists_show() -> None:
    assert strolling(controllers={"Kalman": inwards}).has_controller("Kalman")


@pytest.mark.parametrize("verb", ["evaluate", "train"])
def test_a_metric_that_the_world_does_not_measure(
    verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = one_file(tmp_path, ONE_FILE.replace('Metric("spread"', 'Metric("spraed"'))
    if verb == "evaluate":
        assert small_evaluation(file, tmp_path, "inwards") == 2
    else:
        tiny = "--epochs 1 --environments 2 --steps 2 --batch 2 --replay 4 --validation 1 --validation-steps 1"
        assert mast("train", file, *tiny.split(), "--device", "cpu", "--out", tmp_path / "t") == 2
    assert "spraed" in one_line(capsys)


@pytest.mark.parametrize("verb", ["evaluate", "train"])
@pytest.mark.parametrize("name", ["delay", "t", "seconds"])
def test_a_metric_that_is_called_as_a_column_of_tables_is_refused_before_anything_runs(
    verb: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = f"""class Measured(Strolling):
    def metrics(self, state): return {{"{name}": state.positions[:, 0, 0]}}

def outwards"""
    text = ONE_FILE.replace("def outwards", measured, 1).replace("Config, Strolling", "Config, Measured")
    file = one_file(tmp_path, text.replace('Metric("spread"', f'Metric("{name}"'))
    assert mast(verb, file, "--device", "cpu", "--out", tmp_path / "r") == 2
    assert f"called '{name}', as a column of tables is: give it another name" in one_line(capsys)
    assert not (tmp_path / "r").exists()


def test_tables_have_no_other_columns(tmp_path: Path) -> None:
    file = one_file(tmp_path)
    assert small_evaluation(file, tmp_path, "inwards") == 0
    table = pq.read_table(tmp_path / "r" / "episodes.parquet")
    assert set(table.column_names) == (COLUMNS - {"epoch", "samples_per_second", "seconds"}) | {"spread"}
    tiny = "--epochs 1 --environments 2 --steps 2 --batch 2 --replay 4 --validation 1 --validation-steps 1"
    assert mast("train", file, *tiny.split(), "--device", "cpu", "--out", tmp_path / "t") == 0
    row = json.loads((tmp_path / "t" / "metrics.jsonl").read_text().splitlines()[0])
    assert set(row) < COLUMNS | {"spread"}


@pytest.mark.parametrize(
    ("name", "verb", "args"),
    [
        ("delay", "evaluate", ["evaluate", "FILE"]),
        ("delay", "evaluate", ["train", "FILE"]),  # before it learns what could never be evaluated
        ("delay", "demo", ["demo", "--task", "FILE"]),
        ("epochs", "train", ["train", "FILE"]),
        ("heads", "train", ["train", "FILE"]),
        ("recipe", "train", ["train", "FILE"]),
        ("robots", "swarm", ["swarm", "--task", "FILE", "--policy", "some"]),
        ("recipe", "train", ["check", "FILE"]),
        ("robots", "swarm", ["check", "FILE"]),
    ],
)
def test_a_setting_that_is_called_as_an_option_is_told(
    name: str, verb: str, args: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = f'    """Number of robots."""\n    {name}: int = 3\n    """Of ours."""'
    file = one_file(tmp_path, ONE_FILE.replace('    """Number of robots."""', own))
    assert mast(*(str(file) if word == "FILE" else word for word in args)) == 2
    assert f"has a setting '{name}', which is an option of `mast {verb}` too" in one_line(capsys)


def test_results_state_what_the_settings_say(tmp_path: Path) -> None:
    stated = "    @property\n    def stated(self): return ('reach',)\n\ndef outwards"
    file = one_file(tmp_path, ONE_FILE.replace("def outwards", stated, 1))
    assert small_evaluation(file, tmp_path, "inwards") == 0
    assert "reach" in json.loads((tmp_path / "r" / "summary.json").read_text())["rows"][0]


def test_settings_that_are_no_dataclass_of_their_own(tmp_path: Path) -> None:
    file = one_file(tmp_path, ONE_FILE.replace("@dataclass(frozen=True)\n", ""))
    with pytest.raises(MastError, match="dataclass"):
        find(str(file))


def test_check_sees_an_expert_that_does_not_exist(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = one_file(tmp_path, ONE_FILE.replace('expert="inwards"', 'expert="inwrds"'))
    assert mast("check", file, "--device", "cpu") == 2
    assert "inwrds" in capsys.readouterr().err


# Tasks of other packages.


RECORD = '''"""Another package's task."""
from dataclasses import dataclass
from pathlib import Path
from mast_swarm.tasks.base import Metric, Task
from mast_swarm.tasks.base import WorldConfig

@dataclass(frozen=True)
class Config(WorldConfig):
    """Robots stroll elsewhere."""
    agents: int = 4
    """Number of robots."""
    reach: float = 100.0
    """A robot hears those nearer than this, m."""

TASK = Task("elsewhere", Config, "elsewhere.world:Elsewhere", Metric("spread", unit="m", lower_is_better=True),
            controllers={"inwards": "strolling:inwards", "east-K": "strolling:AtSpeed"}, expert="inwards",
            zoo=Path(__file__).parent / "zoo")
'''


def install(folder: Path, name: str, points: dict[str, str], files: dict[str, str]) -> None:
    """Put a package with entry points where Python finds it."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    lines = "\n".join(f"{point} = {target}" for point, target in points.items())
    (about / "entry_points.txt").write_text(f"[{base.GROUP}]\n{lines}\n")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two other packages: one with a task and a trained policy, one whose tasks cannot be used."""
    folder = tmp_path_factory.mktemp("site")
    world = "from strolling import Strolling\n\nclass Elsewhere(Strolling):\n    pass\n"
    install(
        folder,
        "elsewhere",
        {"elsewhere": "elsewhere:TASK"},
        {"elsewhere/__init__.py": RECORD, "elsewhere/world.py": world},
    )
    config = PolicyConfig(task="elsewhere", layers=1, heads=2, head_dim=8, observation_dim=4, attention_radius=100.0)
    Policy(config).save(folder / "elsewhere" / "zoo" / "small")
    (folder / "elsewhere" / "zoo" / "small" / "card.md").write_text("+++\n+++\n# Small\n\nHas learned nothing.\n")
    install(
        folder,
        "faulty",
        {"lost": "faulty:NOTHING", "sunk": "sunk:TASK", "odd": "faulty:ODD", "mine": "faulty:MINE"},
        {
            "faulty.py": "import mast_swarm\nODD = 5\n"
            "MINE = mast_swarm.Task('coverage', mast_swarm.WorldConfig, 'a:B', mast_swarm.Metric('m'))\n",
            "sunk.py": "raise RuntimeError('it sank')\n",
        },
    )
    return folder


def elsewhere(site: Path, code: str, cwd: Path | None = None) -> str:
    """What a fresh interpreter prints where the packages are installed."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(site), str(TESTS)))}
    script = "from mast_swarm.cli import main\nfrom mast_swarm.tasks.registry import find, names\n" + textwrap.dedent(
        code
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=env, cwd=cwd or site, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_task_of_another_package_is_a_full_citizen(site: Path, tmp_path: Path) -> None:
    printed = elsewhere(
        site,
        f"""
        main(["list"])
        main(["check", "elsewhere", "--device", "cpu"])
        main("evaluate elsewhere --policy small inwards east-50 --delay 1 --agents 3 --episodes 2 --steps 3 --record 1 "
             "--device cpu --out {tmp_path}/r".split())
        main("train elsewhere --epochs 1 --environments 2 --steps 2 --batch 2 --replay 4 --validation 1 "
             "--validation-steps 1 --device cpu --out {tmp_path}/t".split())
        """,
    )
    section = printed.split("task elsewhere\n")[1].split("task ")[0]
    assert "inwards      To the middle of the world." in section and "east-K       East, at some per cent" in section
    assert "small        Has learned nothing." in section and "(K: a number)" in section
    assert "elsewhere: all checks passed" in printed
    summary = json.loads((tmp_path / "r" / "summary.json").read_text())
    rows = [row for row in summary["rows"] if row["metric"] == "spread"]
    assert {row["policy"] for row in rows} == {"small", "inwards", "east-50"} and rows[0]["task"] == "elsewhere"
    ends = {row["policy"]: row["mean"] for row in rows if row["t"] == 3.0}
    assert ends["inwards"] < ends["east-50"]  # lower is better
    assert (tmp_path / "r" / "replay.html").exists()
    assert json.loads((tmp_path / "t" / "best" / "config.json").read_text())["task"] == "elsewhere"
    assert "source" not in json.loads((tmp_path / "r" / "config.json").read_text())  # its name is enough
    # What cannot be used is named, and stops nothing else.
    told = [line for line in printed.splitlines() if "of another package cannot be used" in line]
    assert [line.split()[1] for line in told] == ["lost", "sunk", "odd", "mine"]
    assert told[1] == "task sunk of another package cannot be used: RuntimeError: it sank"
    assert "has no attribute 'NOTHING'" in told[0] and "there is a task 'coverage' already" in told[3]
    assert all(f"task {name}\n" in printed for name in ("navigation", "coverage", "elsewhere"))


def test_a_task_that_cannot_be_used_says_why(site: Path) -> None:
    printed = elsewhere(
        site,
        """
        import sys
        sys.stderr = sys.stdout
        try:
            main(["evaluate", "sunk"])
        except SystemExit as end:
            print(end.code)
        print(*names())
        """,
    )
    assert printed == (
        "mast: task 'sunk' of another package cannot be used: RuntimeError: it sank\n2\nnavigation coverage elsewhere\n"
    )


def test_a_broken_package_does_not_take_a_name_away(tmp_path: Path) -> None:
    install(tmp_path, "thief", {"coverage": "thief:TASK"}, {"thief.py": "raise RuntimeError('it sank')\n"})
    assert elsewhere(tmp_path, "print(find('coverage').Config.__name__)") == "CoverageConfig\n"
    printed = elsewhere(tmp_path, "main(['list'])")
    assert "task navigation\n" in printed and "it sank" in printed


def test_policies_of_another_package_are_listed(site: Path) -> None:
    printed = elsewhere(site, "import mast_swarm\nprint('elsewhere/small' in mast_swarm.policies())")
    assert printed == "True\n"


def test_parts_that_are_named_are_imported_when_they_are_used(site: Path) -> None:
    heavy = "import sys; print(*[m for m in ('torch', 'numpy', 'matplotlib', 'strolling') if m in sys.modules])"
    assert elsewhere(site, f"task = find('elsewhere'); task.has_controller('east-3'); {heavy}") == "\n"
    assert elsewhere(site, f"main(['--help']); {heavy}").endswith("\n\n")
    helped = f"""
        try: main(["evaluate", "elsewhere", "--help"])
        except SystemExit as end: assert not end.code
        {heavy}
        """
    printed = elsewhere(site, helped)
    assert "--reach" in printed and printed.endswith("\n\n")
    used = elsewhere(site, f"find('elsewhere').make_controller('inwards', dt=1.0, max_speed=5.0); {heavy}")
    assert "torch" in used and "strolling" in used  # so that the question can be answered


# A task's own trained policies.


def test_policies_that_come_with_a_task(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = PolicyConfig(task="filed", layers=1, heads=2, head_dim=8, observation_dim=4, attention_radius=100.0)
    policy = Policy(config, seed=5)
    policy.save(tmp_path / "trained" / "first")
    (tmp_path / "trained" / "first" / "card.md").write_text("+++\n+++\n# First\n\nThe first of all. It is small.\n")
    text = ONE_FILE.replace("steps=LENGTH", "steps=LENGTH, zoo=__import__('pathlib').Path(__file__).parent / 'trained'")
    file = one_file(tmp_path, text)
    assert "filed/first" not in mast_swarm.policies()
    assert mast("list", f"{file}:TASK") == 0
    assert "    first        The first of all.\n" in capsys.readouterr().out
    assert mast_swarm.policies()["filed/first"] == tmp_path / "trained" / "first"
    loaded = mast_swarm.load_policy("first", task="filed")
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), policy.parameters(), strict=True))
    world = find("filed").make()
    assert torch.equal(rollout(world, "first", [3], 2).state.positions, rollout(world, policy, [3], 2).state.positions)
    with pytest.raises(MastError, match="unknown policy 'frst': did you mean first"):
        rollout(world, "frst", [3], 2)
    with pytest.raises(MastError, match="policy 'filed/first' was trained for filed, not for navigation"):
        rollout(find("navigation").make(), "filed/first", [3], 2)


def test_worlds_of_tasks_are_made_with_their_own_settings() -> None:
    task = strolling()
    assert isinstance(task.make(), Strolling) and task.make().config == Config()
    assert task.make(Config(agents=7)).config.agents == 7
    assert isinstance(WorldConfig(), WorldConfig) and find("navigation").make().config.task == "navigation"
