"""The GPU kernels of lists and wide views compile for an H100 or H200 and fit into its shared memory, without one: the
interpreter is less strict than the compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from devices import MISSING, TRITON

MOST = 227 * 1024  # bytes of shared memory that a program may have there
LISTS = {"_meet", "_distinct", "_merge", "_keep", "_mark", "_hold"}
KERNELS = LISTS | {"_sample", "_hop", "_further", "_rows", "_attend"}


@pytest.mark.slow
@pytest.mark.skipif(not TRITON, reason=MISSING)
@pytest.mark.skipif(torch.cuda.is_available(), reason="the kernels themselves run on the GPU here")
def test_kernels_compile_for_a_large_gpu(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "compiling.py")],
        env=env | {"TRITON_CACHE_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = [line.split() for line in done.stdout.splitlines()]
    assert {name for name, _ in found} == KERNELS
    assert max(int(size) for _, size in found) <= MOST
