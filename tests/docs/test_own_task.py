"""docs/own-task.md and docs/architecture.md: what they show is what happens."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

import mast_swarm
from mast_swarm.cli import main
from mast_swarm.errors import MastError
from mast_swarm.tasks.registry import find
from mast_swarm.testing import check_task

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs/own-task.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.S))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the page's files, where a reader works."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_has_its_files() -> None:
    assert set(FILES) == {"broken.py", "my_file.py", "leader.py", "gossip.py", "seekers.py", "starts.py"}


@pytest.mark.parametrize("record", [mast_swarm.Task, mast_swarm.Metric])
def test_the_page_has_every_field(record: type) -> None:
    title = f"### The fields of a {record.__name__}"
    told = re.findall(r"^\| `(\w+)` \|", PAGE[PAGE.index(title) :].split("\n##", 1)[0], re.M)
    assert told == [field.name for field in dataclasses.fields(record)]


def test_the_broken_world_is_told_what_the_page_says(folder: Path) -> None:
    shown = re.search(r"mast: (Broken needs mending:\n.*?)```", PAGE, re.S)
    assert shown is not None
    with pytest.raises(MastError) as told:
        check_task(find("broken.py:TASK"), "cpu")
    said = list(dict.fromkeys(str(told.value).splitlines()))  # repeated lines are left out on the page
    assert said == shown[1].splitlines()


def test_global_random_state_is_found(folder: Path) -> None:
    text = FILES["broken.py"].replace("np.random.default_rng(seed).uniform", "np.random.uniform")
    (folder / "chance.py").write_text(text.replace('"broken"', '"chance"'), encoding="utf-8")
    with pytest.raises(MastError) as told:
        check_task(find("chance.py:TASK"), "cpu")
    shown = [line for line in PAGE.splitlines() if line.startswith("- starts depend")]
    assert len(shown) == 2 and all(line in str(told.value) for line in shown)


@pytest.mark.parametrize(
    "command",
    [
        ["navigation", "--policy", "my_file.py:greedy", "dhba-0", "--agents", "20"],
        ["examples/rendezvous.py:TASK", "--policy", "leader.py:Leader", "to_the_middle"],
        ["examples/rendezvous.py:TASK", "--policy", "gossip.py:Gossip", "to_those_heard", "--delay", "1"],
        ["navigation", "--policy", "seekers.py:Seekers", "searcher-250-relay-map", "--delay", "1", "--agents", "20"],
        ["starts.py:TASK", "--scenario", "line-50"],
    ],
)
def test_evaluations_run_as_shown(folder: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    main(["evaluate", *command, "--episodes", "2", "--steps", "3", "--out", "runs/one"])
    assert (command[2].partition(":")[2] or "to_the_middle") in capsys.readouterr().out


def test_python_runs_as_shown(folder: Path) -> None:
    code = next(block for block in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "register(find(" in block)
    exec(code, {})


def test_excerpts_are_those_of_the_example() -> None:
    example = (ROOT / "examples/rendezvous.py").read_text(encoding="utf-8")
    excerpts = re.findall(r"```python\n(.*?)```", PAGE.split("## Check, evaluate")[0], re.S)
    assert len(excerpts) == 5
    for excerpt in excerpts:
        for line in excerpt.splitlines():
            assert line in example or line.strip() == "...", line


def test_files_to_open_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\d+\. `([\w/]+\.py)`", page, re.M)
    counts = [int(number) for number in re.findall(r": (\d+) files\.\*\*", page)]
    assert len(counts) == 2 and len(listed) == sum(counts)
    assert [name for name in listed if not (Path(mast_swarm.__file__).parent / name).exists()] == []
