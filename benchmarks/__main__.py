"""Run every benchmark, each in a process of its own on one thread, and write its JSON to benchmarks/results/."""

from __future__ import annotations

import os
import subprocess
import sys

NAMES = ("world", "assignment", "decentral")

for name in NAMES:
    one = {
        "NUMBA_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]], check=True, env=os.environ | one)
