"""docs/adapters.md and docs/explain.md: their code runs as it stands; PPO's result is what the example writes."""

from __future__ import annotations

import ast
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shared import mast
from strolling import own_tasks

ROOT = Path(__file__).parents[2]


def blocks(page: str, kind: str) -> list[str]:
    """The blocks of code of a page, "" for those of no language."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return [code for found, code in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M) if found == kind]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a reader works."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    with own_tasks():
        yield tmp_path


def run(page: str) -> None:
    """All Python of a page, one block after the other."""
    known: dict[str, Any] = {}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), known)


def test_adapters_run(folder: Path) -> None:
    for package in ("torchrl", "pettingzoo", "gymnasium", "huggingface_hub", "mcap", "rerun"):
        pytest.importorskip(package)
    run("adapters.md")
    for made in ("mast-m/README.md", "mast-m/card.md", "rendezvous.mcap", "rendezvous.rrd"):
        assert (folder / made).stat().st_size > 1000


def test_explain_runs_and_says_what_the_page_says(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("explain.md")
    said = capsys.readouterr().out.splitlines()
    assert said[0] == blocks("explain.md", "")[0].strip()
    assert said[1].endswith(" 1.0") and said[2].count("goal ") == 3
    assert (folder / "explain.png").stat().st_size > 50_000


def test_commands_run(folder: Path) -> None:
    pytest.importorskip("mcap")
    pytest.importorskip("rerun")
    (commands,) = (block for block in blocks("adapters.md", "") if "mast replay" in block)
    for line in commands.splitlines():
        program, *given = shlex.split(line)
        if given[0] == "evaluate":  # the same run, but short
            given[given.index("--steps") + 1], given[given.index("--agents") + 1] = "2", "5"
        assert program == "mast" and mast(*given) == 0, line
    assert (folder / "runs/team.mcap").exists() and (folder / "runs/team.rrd").exists()


def test_the_result_of_ppo_is_that_of_the_example() -> None:
    result = json.loads((ROOT / "docs/results/ppo/ppo.json").read_text())
    text = (ROOT / "examples/ppo.py").read_text()
    for name, value in result["settings"].items():
        if name != "out":
            default = re.search(rf"^    {name}: \w+ = (.*)$", text, re.M)
            assert default is not None and ast.literal_eval(default[1]) == value, name
    assert len(result["runs"]) == result["settings"]["seeds"] >= 3
    for run_of_seed in result["runs"]:  # lower is better: every seed improves by far
        first, *_, last = run_of_seed["tested"]
        assert last < 0.25 * first
