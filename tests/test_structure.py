"""The house stays easy to see: which part may know which, what is quick to import, and what is listed."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import mast_swarm
from mast_swarm import zoo
from mast_swarm.cli import main
from mast_swarm.cli.verbs import VERBS
from mast_swarm.tasks.coverage.density import density
from mast_swarm.tasks.navigation.scenarios import scenario
from mast_swarm.tasks.registry import find, names
from mast_swarm.train.config import recipes

ROOT = Path(mast_swarm.__file__).parent
TASKS = names()
# A part may import those of lower rank and itself, and of its own rank what is named beside it.
RANKS = {
    "errors": 0,
    "robot": 1,
    "zoo": 1,
    "chance": 0,
    "kernels": 0,
    "steady": 0,
    "explore_kernels": 0,
    "threads": 0,
    "heap": 0,
    "files": 1,
    "workers": 1,
    "pool": 2,
    "space": 1,
    "explore": 1,
    "observation": 2,
    "survey": 2,
}
RANKS |= {"tasks": 3, "comms": 3, "model": 3}
RANKS |= {
    "train": 4,
    "evaluate": 4,
    "paper": 5,
    "view": 5,
    "interop": 5,
    "doctor": 5,
    "play": 5,
    "swarm": 5,
    "testing": 5,
    "cli": 6,
    "__main__": 7,
}
BESIDE = {
    "kernels": {"errors", "steady"},  # a kernel that fails ends steady work
    "survey": {"observation"},  # what robots sense
    "comms": {"model"},  # simulated decentral execution runs a policy
    "train": {"evaluate"},  # the loop, and validation
    "paper": {"view"},  # figures
    "play": {"interop"},  # policies as files for a browser
    "testing": {"view"},  # whether recordings can be shown
    "swarm": {"view", "interop"},  # its replay, and the policies that its robots run
}
# What a task brings for the engines, which its record names and nothing of its own imports.
BROUGHT = {"recipes", "view"}
ENGINES = ("model", "comms", "train", "evaluate", "view", "cli", "space", "testing", "observation", "interop", "swarm")
HEAVY = ("torch", "numba", "scipy", "matplotlib", "pyarrow", "onnx", "onnxruntime")


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
        brought = part == "tasks" and file.stem in BROUGHT
        for name in imports(file):
            imported = name.split(".")[1]
            if imported.startswith("__"):  # the version
                continue
            assert brought or not forbidden(part, imported), f"{file.relative_to(ROOT)} imports {name}"
            assert name.split(".")[-1] not in BROUGHT or part != "tasks", f"{file} imports {name}: name it lazily"
            seen.add((part, imported))
    # The test reads something: these arrows are the design's.
    assert {("tasks", "space"), ("comms", "model"), ("evaluate", "tasks"), ("view", "evaluate")} <= seen
    assert not seen & {("model", "tasks"), ("model", "comms"), ("robot", "space")}


@pytest.mark.parametrize(
    ("part", "imported"), [("model", "tasks"), ("tasks", "model"), ("space", "tasks"), ("evaluate", "view")]
)
def test_the_rule_forbids(part: str, imported: str) -> None:
    assert forbidden(part, imported)


def named_tasks(file: Path) -> Iterator[str]:
    """Where a file names a task of this package: in an import, a string or a name. Docstrings may give examples."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docs = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    docs |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        texts: list[str] = []
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            texts = [node.value]
        elif isinstance(node, ast.Name | ast.Attribute | ast.ClassDef | ast.FunctionDef | ast.alias):
            texts = [getattr(node, "id", None) or getattr(node, "attr", None) or getattr(node, "name", "")]
        elif isinstance(node, ast.ImportFrom):
            texts = [node.module or ""]
        for text in texts:
            for task in (*TASKS, "lsap", "dhba", "clairvoyant", "explorer"):
                if task in text.lower():
                    yield f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)} names {task}: {text}"


def test_engines_name_no_task() -> None:
    files = [file for part in ENGINES for file in (ROOT / part).rglob("*.py")] + [
        ROOT / f"{part}.py" for part in ENGINES if (ROOT / f"{part}.py").exists()
    ]
    assert len(files) > 50
    assert [line for file in files for line in named_tasks(file)] == []
    assert list(named_tasks(ROOT / "tasks" / "navigation" / "recipes.py"))  # so that the question can be answered


def test_a_task_does_not_know_another() -> None:
    for task in TASKS:
        for file in (ROOT / "tasks" / task).rglob("*.py"):
            for name in imports(file):
                others = [f"mast_swarm.tasks.{other}" for other in TASKS if other != task]
                assert not name.startswith(tuple(others)), f"{file} imports {name}"


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
    verbs = sorted({f"mast_swarm.cli.{where.split(':')[0]}" for where, _ in VERBS.values()})
    assert len(verbs) >= 5
    assert heavy_after(f"import mast_swarm, {', '.join(modules + verbs)}") == "loaded"
    assert (
        heavy_after("import mast_swarm; mast_swarm.NavigationConfig; mast_swarm.CoverageConfig; mast_swarm.Channel")
        == "loaded"
    )
    assert "torch" in heavy_after("import mast_swarm; mast_swarm.Policy")  # so that the question can be answered


HELPS = [
    [],
    ["evaluate"],
    ["demo"],
    ["replay"],
    ["export"],
    ["doctor"],
    ["play"],
    ["swarm"],
    ["robot"],
    *([verb, task] for verb in ("evaluate", "train") for task in TASKS),
]


@pytest.mark.parametrize("args", [*HELPS, ["demo", "--task", TASKS[1]]], ids=" ".join)
def test_help_loads_nothing_heavy(args: list[str]) -> None:
    run = f"main({[*args, '--help']!r})"
    code = f"from mast_swarm.cli import main\ntry: {run}\nexcept SystemExit as end: assert not end.code"
    assert heavy_after(code) == "loaded"


def test_public_names() -> None:
    assert len(set(mast_swarm.__all__)) == len(mast_swarm.__all__)
    for name in mast_swarm.__all__:
        assert getattr(mast_swarm, name).__name__.split(".")[-1] == name and callable(getattr(mast_swarm, name))
        assert name in dir(mast_swarm)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        mast_swarm.nothing  # noqa: B018


def test_everything_registered_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    assert TASKS == ["navigation", "coverage"]
    listed = capsys.readouterr().out
    words = listed.split()
    for task in TASKS:
        assert f"task {task}" in listed
        assert find(task).controllers and set(find(task).controllers) <= set(words)
        assert set(recipes(find(task))) <= set(words)
    for start in (*scenario, *density):
        assert start.usage in words and start.summary in listed
    for name in zoo.policies():
        assert name.split("/", 1)[1] in words


def test_the_list_tells_shipped_policies_apart(capsys: pytest.CaptureFixture[str]) -> None:
    main(["list"])
    rows = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    for name in zoo.policies():
        text = (ROOT / "zoo" / name / "card.md").read_text(encoding="utf-8").split("+++\n")[2]
        said = " ".join(text.split("\n\n")[1].split())  # below the title
        told = [row[1] for row in rows if row[0] == name.split("/")[1] and len(row) == 2]
        assert any(len(line) > 40 and said.startswith(line.removesuffix(" ...")) for line in told), name
    assert max(len(row[1]) for row in rows if len(row) == 2) <= 130


def test_the_list_loads_nothing_that_runs_evaluations() -> None:
    loaded = heavy_after("from mast_swarm.cli import main\nmain(['list'])")
    assert "pyarrow" not in loaded and "matplotlib" not in loaded
