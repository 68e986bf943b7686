"""The tests of the GPU kernels without a GPU: in Triton's interpreter, which is switched on when a process starts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from devices import MISSING, TRITON

TESTS = Path(__file__).parent
MARK = re.compile(r"pytest\.mark\.kernels|\bGPU\b")  # as `devices` says it
FILES = sorted(file for file in TESTS.glob("*/**/test_*.py") if MARK.search(file.read_text(encoding="utf-8")))


@pytest.mark.slow
@pytest.mark.skipif(not TRITON, reason=MISSING)
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels' tests run on the GPU here")
def test_kernels_in_the_interpreter() -> None:
    """Everything marked `kernels`, in one process: most of the time would go into starting several."""
    assert {file.parent.name for file in FILES} >= {"space", "model", "comms", "coverage"}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-m",
        "kernels",
        "-p",
        "no:cacheprovider",
        "--tb=short",
        *map(str, FILES),
    ]
    done = subprocess.run(
        command, env=os.environ | {"TRITON_INTERPRET": "1"}, cwd=TESTS.parent, capture_output=True, text=True
    )
    summary = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else ""
    assert done.returncode == 0 and "skipped" not in summary, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def test_triton_is_not_loaded_without_a_gpu() -> None:
    """The plain paths pay nothing for kernels that cannot run."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    code = "import sys, mast_swarm.comms.decentral, mast_swarm.tasks.coverage.world; print('triton' in sys.modules)"
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
