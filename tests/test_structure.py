"""The house stays easy to see: which part may know which, what is quick to import, and what is listed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mast_swarm
from mast_swarm import controllers, model
from mast_swarm.cli import TASKS, main
from mast_swarm.train.recipes import RECIPES
from mast_swarm.world.base import tasks
from mast_swarm.world.density import densities
from mast_swarm.world.scenarios import scenarios

ROOT = Path(mast_swarm.__file__).parent
# A part may import those of lower rank and itself, and of its own rank what is named beside it.
RANKS = {"errors": 0, "chance": 0, "files": 1, "space": 1, "explore": 1}
RANKS |= {"world": 2, "controllers": 2, "comms": 2, "model": 2}
RANKS |= {"train": 3, "evaluate": 3, "paper": 4, "view": 4, "interop": 4, "cli": 5}
BESIDE = {
    "comms": {"model"},  # simulated decentral execution runs a policy
    "train": {"evaluate"},  # validation
    "paper": {"view"},  # figures
}
HEAVY = ("torch", "numba", "scipy", "matplotlib", "pyarrow")


def imports(file: Path) -> Iterator[str]:
    """Full names of the package's modules that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("mast_swarm."))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: imports are absolute here"
            if node.module == "mast_swarm":
                yield from (f"mast_swarm.{alias.name}" for alias in node.names)
            elif node.module and node.module.startswith("mast_swarm."):
                yield node.module


def forbidden(part: str, imported: str) -> bool:
    """Whether a part of the package may not know another."""
    if imported == part or imported in BESIDE.get(part, ()):
        return False
    return RANKS[imported] >= RANKS[part]


def test_dependencies_point_one_way() -> None:
    seen: set[tuple[str, str]] = set()
    for file in sorted(ROOT.rglob("*.py")):
        part = file.relative_to(ROOT).parts[0].removesuffix(".py")
        if part == "__init__":  # fetches the public names, from anywhere
            continue
        for name in imports(file):
            imported = name.split(".")[1]
            if imported.startswith("__"):  # the version
                continue
            assert not forbidden(part, imported), f"{file.relative_to(ROOT)} imports {name}"
            seen.add((part, imported))
    # The test reads something: these arrows are the design's.
    assert {("world", "space"), ("comms", "model"), ("evaluate", "world"), ("view", "evaluate")} <= seen
    assert not seen & {("model", "world"), ("world", "model"), ("model", "comms"), ("controllers", "world")}


@pytest.mark.parametrize(
    ("part", "imported"), [("model", "world"), ("world", "model"), ("space", "world"), ("evaluate", "view")]
)
def test_the_rule_forbids(part: str, imported: str) -> None:
    assert forbidden(part, imported)


def heavy_after(code: str) -> str:
    """Which heavy libraries a fresh interpreter has loaded after running the code."""
    script = f"import sys\n{code}\nprint('loaded', *(name for name in {HEAVY!r} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    return done.stdout.splitlines()[-1]


def test_what_must_be_quick_loads_nothing_heavy() -> None:
    modules = sorted(
        ".".join(("mast_swarm", *file.relative_to(ROOT).with_suffix("").parts)) for file in ROOT.rglob("config.py")
    )
    assert len(modules) >= 5
    assert heavy_after(f"import mast_swarm, mast_swarm.cli, {', '.join(modules)}") == "loaded"
    assert (
        heavy_after("import mast_swarm; mast_swarm.NavigationConfig; mast_swarm.CoverageConfig; mast_swarm.Channel")
        == "loaded"
    )
    assert "torch" in heavy_after("import mast_swarm; mast_swarm.Policy")  # so that the question can be answered


HELPS = [[], ["evaluate"], ["demo"], ["replay"], *([verb, task] for verb in ("evaluate", "train") for task in TASKS)]


@pytest.mark.parametrize("args", [*HELPS, ["demo", "--task", TASKS[1]]], ids=" ".join)
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    run = f"main({[*args, '--help']!r})"
    code = f"from mast_swarm.cli import main\ntry: {run}\nexcept SystemExit as end: assert not end.code"
    assert heavy_after(code) == "loaded"


def test_public_names() -> None:
    assert mast_swarm.__all__ == sorted(mast_swarm.__all__)
    for name in mast_swarm.__all__:
        assert getattr(mast_swarm, name).__name__ == name
        assert name in dir(mast_swarm)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mast_swarm.nothing  # noqa: B018


def test_everything_registered_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    assert set(TASKS) == set(tasks()) == {"navigation", "coverage"}
    listed = capsys.readouterr().out
    words = listed.split()
    for task in TASKS:
        assert f"task {task}" in listed
        assert controllers.names(task) and set(controllers.names(task)) <= set(words)
        assert set(RECIPES[task]) <= set(words)
    for start in (*scenarios(), *densities()):
        assert start.usage in words and start.summary in listed
    for name in model.zoo_names():
        assert name.split("/", 1)[1] in words


def test_the_list_tells_shipped_policies_apart(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    for name in model.zoo_names():
        text = (ROOT / "zoo" / name / "card.md").read_text(encoding="utf-8").split("+++\n")[2]
        said = " ".join(text.split("\n\n")[1].split())  # below the title
        told = [row[1] for row in rows if row[0] == name.split("/")[1] and len(row) == 2]
        assert any(len(line) > 40 and said.startswith(line.removesuffix(" ...")) for line in told), name
    assert max(len(row[1]) for row in rows if len(row) == 2) <= 130


def test_the_list_loads_nothing_that_runs_evaluations() -> None:
    loaded = heavy_after("from mast_swarm.cli import main\nmain(['list'])")
    assert "pyarrow" not in loaded and "matplotlib" not in loaded
