"""Run every benchmark, each in a process of its own, and write its JSON to benchmarks/results/ (or to --out)."""

from __future__ import annotations

import subprocess
import sys

NAMES = ("world", "assignment", "decentral", "wire")

for name in NAMES:
    print(f"benchmarks.{name} ...", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]], check=True)
