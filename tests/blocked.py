"""Fresh interpreters that lack torch and all else that a robot does without."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
ABSENT = ("torch", "numba", "scipy", "matplotlib", "pyarrow", "safetensors", "tyro", "rich", "PIL", "onnx", "triton")
_BLOCK = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {ABSENT!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run(code: str, *args: object) -> str:
    """What code prints where those cannot be imported; a failure is one."""
    return _done([sys.executable, "-c", _BLOCK + code, *map(str, args)])


def environment(folder: Path) -> Path:
    """A virtual environment with the packages of the extra `robot` and what they need, and nothing else: its python.

    They are linked from where they are installed here, so that no network is needed.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=60)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in needed_by_the_extra():
        for file in metadata.distribution(name).files or ():
            if ".." not in file.parts and not (site / file.parts[0]).exists():
                (site / file.parts[0]).symlink_to(metadata.distribution(name).locate_file(file.parts[0]))
    return folder / "bin" / "python"


def run_with(python: Path, code: str, *args: object) -> str:
    """What code prints in such an environment."""
    return _done([str(python), "-c", code, *map(str, args)])


def needed_by_the_extra() -> set[str]:
    """The packages of the extra `robot` in pyproject.toml, and those that they need."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    waiting, found = list(extras["robot"]), set()
    while waiting:
        requirement = waiting.pop()
        name = re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()
        if ";" in requirement and _other_platform(requirement):
            continue
        if name not in found:
            found.add(name)
            waiting += metadata.requires(name) or []
    return found


def _other_platform(requirement: str) -> bool:
    from packaging.requirements import Requirement

    marker = Requirement(requirement).marker
    return marker is not None and not marker.evaluate({"extra": ""})


def _done(command: list[str]) -> str:
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout
