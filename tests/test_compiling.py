"""GPU kernels compile for an H100 or H200, and fit into its shared memory: without one, for it is not always there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from devices import MISSING, TRITON

MOST = 227 * 1024  # bytes of shared memory that a program may have there
KERNELS = {
    "_feed",
    "_attend_tiles",
    "_phases",
    "_explored",
    "_hook",
    "_flatten",
    "_join",
    "_offsets",
    "_keys",
    "_adamw",
}
KERNELS |= {"_labels_of_nearest", "_keys"}
KERNELS |= {"_meet", "_distinct", "_merge", "_keep", "_mark", "_hold"}  # of lists
KERNELS |= {"_sample", "_hop", "_further", "_rows", "_attend"}  # of the relay's table and of wide views
KERNELS |= {"_add_normed", "_normed_backward", "_bent_backward", "_summed"}  # of the residual stream
KERNELS |= {"_sight", "_forward_whole", "_backward_whole", "_forward", "_backward_keys", "_backward_queries"}


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
    shared: dict[str, int] = {}
    for line in done.stdout.splitlines():
        name, size = line.split()
        shared[name] = max(shared.get(name, 0), int(size))
    assert shared.keys() >= KERNELS
    assert max(shared.values()) <= MOST and shared["_feed"] > 0
