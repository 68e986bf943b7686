"""Run the benchmarks of `make bench`, each in a process of its own, and write their JSON to benchmarks/results/ (or to
--out)."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.measure import RESULTS

NAMES = ("world", "assignment", "decentral", "wire")

parser = argparse.ArgumentParser(
    prog="python -m benchmarks", description=__doc__, epilog=f"These are {', '.join(NAMES)}."
)
parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the files (default: %(default)s)")
given = parser.parse_args()
for name in NAMES:
    print(f"benchmarks.{name} ...", flush=True)
    subprocess.run([sys.executable, "-m", f"benchmarks.{name}", "--out", str(given.out)], check=True)
