"""A control step of 20 robots on a machine whose cores other programs want too, by the order of imports.

As many processes as there are cores run empty loops meanwhile. "before" is what `import torch` before `import
mast_swarm` did until the waiting threads were made to sleep and few robots were given one thread; the other two are the
two orders of imports now. They take turns, each in a process of its own.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from itertools import pairwise
from typing import Any

from benchmarks.measure import benchmark

AGENTS, STEPS, TURNS = 20, 12, 2
ORDERS = {"before": "torch, mast_swarm", "torch first": "torch, mast_swarm", "mast_swarm first": "mast_swarm, torch"}
SPIN = {
    "GOMP_SPINCOUNT": "300000"
}  # what GNU's OpenMP takes if nothing is set; a setting that the package leaves alone
SETTINGS = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "KMP_BLOCKTIME")


def steps(alone: bool) -> list[float]:
    """Seconds of each step of a rollout, those aside in which loops are compiled."""
    import mast_swarm

    world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=AGENTS))
    channel = mast_swarm.Channel(delay=1.0) if alone else None
    times: list[float] = []
    mast_swarm.rollout(world, "mast-m", [0], 5 + STEPS, channel=channel, progress=lambda _: times.append(time.time()))
    return [after - before for before, after in pairwise(times[5:])]


def in_a_process(case: str, alone: bool) -> list[float]:
    code = f"import {ORDERS[case]}; from benchmarks import crowded; crowded.report({case!r}, {alone})"
    env = {name: value for name, value in os.environ.items() if name not in SETTINGS}
    env |= SPIN if case == "before" else {}
    return json.loads(subprocess.run([sys.executable, "-c", code], env=env, check=True, stdout=subprocess.PIPE).stdout)


def report(case: str, alone: bool) -> None:
    """What the process of one case prints."""
    if case == "before":
        from mast_swarm import threads

        threads.ALONE = 0
    print(json.dumps(steps(alone)))


def main() -> dict[str, Any]:
    cores = os.cpu_count() or 1
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        rows = []
        for alone in (False, True):
            found: dict[str, list[float]] = {case: [] for case in ORDERS}
            for _ in range(TURNS):
                for case in ORDERS:
                    found[case] += in_a_process(case, alone)
            row = {case: 1e3 * statistics.median(times) for case, times in found.items()}
            ratio = {case: row["before"] / row[case] for case in ORDERS if case != "before"}
            rows.append(
                {"execution": "decentralized" if alone else "centralized", "step_ms": row, "times_faster": ratio}
            )
    finally:
        for process in busy:
            process.kill()
    return {"agents": AGENTS, "cores": cores, "busy_processes": cores, "rows": rows}


if __name__ == "__main__":
    benchmark("crowded", __doc__, main)
