"""Decentralized steps of this checkout against those of another one, for example of the commit before:

    git worktree add --detach /tmp/before COMMIT
    python -m benchmarks.against /tmp/before

Three take turns, each in a process of its own, so that a noisy spell hits all: the other checkout and this one in
fp32, which both compute in unless told otherwise, and this one with products in bf16. Seconds are those of the clock;
processor seconds are what the process's threads used, which other programs on the machine disturb less.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.measure import line, machine

TURNS, STEPS = 5, 5
HERE = Path(__file__).parents[1]
TEAMS = ("1 x 100", "9 x 100")
README = "50 robots, each alone, 60 s (README)"
STEP = """
import json, sys, time
from mast_swarm.evaluate import bench
from mast_swarm.evaluate.bench_config import DecentralBenchConfig
import torch
given, environments, agents, steps = map(json.loads, sys.argv[1:])
setting = bench.Setting(DecentralBenchConfig(**given), torch.device("cpu"))
found = []
with torch.inference_mode():
    loop = setting.alone(environments, agents)
    bench._settle(loop, setting.policy, range(environments))
    for step in range(2 + steps):
        began = time.perf_counter(), time.process_time()
        loop.step()
        found.append((time.perf_counter() - began[0], time.process_time() - began[1]))
print(json.dumps(found[2:]))
"""
EXAMPLE = """
import json, sys, time
import mast_swarm
from rich.progress import Progress
given = json.loads(sys.argv[1]) | {"channel": mast_swarm.Channel(delay=1.0)}
world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=50, scenario="circle"))
mast_swarm.rollout(world, "mast-m", [0], 3, **given)
began = time.perf_counter(), time.process_time()
with Progress(disable=True) as bar:
    task = bar.add_task("50 robots, each alone", total=61)
    tick = lambda instants: bar.advance(task, instants)
    mast_swarm.rollout(world, "mast-m", [0], 60, progress=tick, **given)
print(json.dumps([(time.perf_counter() - began[0], time.process_time() - began[1])]))
"""


def run(checkout: Path, case: str, given: dict[str, str]) -> list[list[float]]:
    """Seconds of the clock and of the processor, of every step or of the whole example. given: settings."""
    words = [EXAMPLE, json.dumps(given)]
    if case != README:
        words = [STEP, json.dumps(given), *case.split(" x "), str(STEPS)]
    env = os.environ | {"PYTHONPATH": str(checkout / "src")}
    done = subprocess.run([sys.executable, "-c", *words], env=env, cwd=checkout, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)


def compare(other: Path, case: str, turns: int) -> dict[str, Any]:
    ways: dict[str, tuple[Path, dict[str, str]]] = {
        "before": (other, {}),
        "now": (HERE, {}),
        "now_bf16": (HERE, {"precision": "bf16"}),
    }
    found: dict[str, list[list[float]]] = {way: [] for way in ways}
    for turn in range(turns):
        for way in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            found[way] += run(ways[way][0], case, ways[way][1])
    row: dict[str, Any] = {"case": case}
    for number, kind in enumerate(("seconds", "processor_seconds")):
        times = {way: statistics.median(each[number] for each in found[way]) for way in ways}
        ratios = {f"{way}_ratio": times["before"] / times[way] for way in ways if way != "before"}
        row[kind] = times | ratios
    return row


def commit(checkout: Path) -> str:
    words = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    return subprocess.run(words, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.against", description=__doc__)
    parser.add_argument("other", type=Path)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--case", nargs="+", choices=(*TEAMS, README), default=(*TEAMS, README))
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    given = parser.parse_args()
    about = {"benchmark": "against", "machine": machine(), "before": commit(given.other), "now": commit(HERE)}
    given.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for case in given.case:  # what is done is on disk if the rest is stopped
        rows.append(compare(given.other.resolve(), case, given.turns))
        text = json.dumps(about | {"turns": given.turns, "steps": STEPS, "rows": rows}, indent=1)
        (given.out / "against.json").write_text(text + "\n")
        print(line(rows[-1]), flush=True)


if __name__ == "__main__":
    main()
