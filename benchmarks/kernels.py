"""What a step is made of, kernel by kernel: python -m benchmarks.kernels [--case CASE ...] [--out FOLDER].

A case is together:1x1000000 (environments x robots, one pass for all), alone:100x100 (every robot alone, one control
period per hop), or near:1x10000 (as alone, with the relay radius auto). Steps run as in `mast bench`, as captured
graphs where they can be. torch's profiler times every kernel; on a CPU, every operation. Times are of one step.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.measure import RESULTS, line
from mast_swarm.evaluate import bench
from mast_swarm.evaluate.actors import pick_device
from mast_swarm.evaluate.bench_config import DecentralBenchConfig
from mast_swarm.evaluate.graphs import capture
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.measure import file_name, machine

CASES = ("together:1x1000000", "alone:100x100", "alone:1x10000", "near:1x10000")
STEPS, MOST = 10, 24  # steps that are profiled; kernels that have a row of their own
KINDS = {"together": "one pass for all", "alone": "each alone", "near": "each alone, relay radius auto"}


def read(case: str) -> tuple[str, int, int]:
    found = re.fullmatch(r"(\w+):(\d+)x(\d+)", case)
    if not found or found[1] not in KINDS:
        raise argparse.ArgumentTypeError(f"{case}: give {', '.join(f'{kind}:ENVIRONMENTSxROBOTS' for kind in KINDS)}")
    return found[1], int(found[2]), int(found[3])


def a_loop(setting: bench.Setting, kind: str, environments: int, agents: int) -> Loop:
    if kind == "together":
        world = setting.world(agents)
        loop = Loop(world, bench.Central(setting.policy, world), precision=setting.precision)
        loop.start(range(environments))
        return loop
    loop = setting.alone(environments, agents, "auto" if kind == "near" else None)
    bench._settle(loop, setting.policy, range(environments))
    return loop


def plainly(loop: Loop) -> Callable[[], Any]:
    """A step of kernels one after the other, with the metrics that a captured one has in it too."""

    def step() -> None:
        loop.look()
        loop.move(loop.decide())

    return step


@torch.inference_mode()
def of(setting: bench.Setting, kind: str, environments: int, agents: int, steps: int = STEPS) -> dict[str, Any]:
    """Milliseconds of each kernel in a step, the longest first, and of all of them."""
    loop, on_gpu = a_loop(setting, kind, environments, agents), setting.device.type == "cuda"
    captured = capture(loop, 1, settles=0)
    step = plainly(loop) if captured is None else captured.step
    for _ in range(3):
        step()
    activity = ProfilerActivity.CUDA if on_gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiled:
        for _ in range(steps):
            step()
        if on_gpu:
            torch.cuda.synchronize()
    spent, launched = defaultdict[str, float](float), defaultdict[str, int](int)
    for event in profiled.key_averages():
        name = plain(event.key)
        spent[name] += (event.self_device_time_total if on_gpu else event.self_cpu_time_total) / 1e3 / steps
        launched[name] += event.count
    order = [name for name in sorted(spent, key=lambda name: -spent[name]) if spent[name] > 0]
    rows = [{"kernel": name, "ms": spent[name], "launches": launched[name] / steps} for name in order[:MOST]]
    if rest := order[MOST:]:
        others = {"ms": sum(spent[name] for name in rest), "launches": sum(launched[name] for name in rest) / steps}
        rows.append({"kernel": f"{len(rest)} others", **others})
    whole = {"ms": sum(spent.values()), "launches": sum(launched[name] for name in order) / steps}
    return {"kind": kind, "environments": environments, "agents": agents, "captured": captured is not None} | {
        "whole": whole,
        "kernels": rows,
    }


def plain(name: str) -> str:
    """A kernel's name without what it was made from: types and templates."""
    return name.removeprefix("void ").split("<")[0].split("(")[0]


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.kernels", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="+", type=read, default=[read(case) for case in CASES])
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder for the file, which bears the machine's name")
    given = parser.parse_args(words)
    device = pick_device(given.device)
    setting = bench.Setting(DecentralBenchConfig(), device)
    about = {"benchmark": "kernels", "machine": machine(device), "policy": setting.name, "precision": setting.precision}
    given.out.mkdir(parents=True, exist_ok=True)
    cases: list[dict[str, Any]] = []
    for kind, environments, agents in given.case:  # what is done is on disk if the rest is stopped
        cases.append(of(setting, kind, environments, agents))
        print(f"{environments} x {agents:,} robots, {KINDS[kind]}: {line(cases[-1]['whole'])}")
        print("\n".join(f"  {line(row)}" for row in cases[-1]["kernels"][:12]), flush=True)
        text = json.dumps(about | {"steps": STEPS, "cases": cases}, indent=1)
        (given.out / f"{file_name('kernels', about['machine']['device'])}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()
