"""The paper's tests of coverage, one small JSON file a cell: python -m benchmarks.coverage_sweep [--help].

sides: 1024 to 2048 m at constant density, N = F = 32 to 128. grid: N and F in {8, 16, ..., 64}^2 at 1024 m. cities: 32
robots among the traffic signals of two made-up cities. Every cell is the same environments for every policy.

A cell's file keeps two numbers an environment and policy, the time average and the cost at the end; means, 95 %
intervals and paired differences are computed from them. So a policy can be added to a cell later, and on another
machine. What a file has is not run again, unless the weights of a shipped policy have changed since. A run that was
stopped goes on where it was; shards (--shard 1/4, 2/4, ...) share the cells of one folder among processes or machines.

On two CPU cores a controller takes about two minutes a cell at N = 32 and 1024 m, so the three of them some six hours
for the grid: on a CPU run --only sides or cities, the whole on a GPU (--device cuda). `seconds` in a file says what
each policy took there.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq

from benchmarks import kept
from benchmarks.coverage_cells import DRIVERS, ROOT, SWEEP, USUAL, worlds
from mast_swarm import zoo
from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.results import curves, interval
from mast_swarm.files import whole_file
from mast_swarm.tasks.coverage.config import CoverageConfig

METRICS = ("cost_time_average", "cost")
DIGITS = 6  # of a kept number


@dataclass(frozen=True)
class SweepConfig(kept.RunConfig):
    """Run the paper's tests of coverage; what is finished in the folder is kept."""

    only: tuple[Literal["sides", "grid", "cities"], ...] = ("sides", "cities", "grid")
    """Which tests, in this order."""
    policy: tuple[str, ...] = USUAL
    """Who drives; learned ones that are not shipped are left out. Others are in coverage_cells.DRIVERS."""
    episodes: int = 100
    """Environments a cell."""
    steps: int = 600
    """Control periods an episode."""
    seed: int = 0
    """Chooses the environments, as in `mast evaluate`."""
    shard: str = "1/1"
    """I/N: of the cells every Nth, from the Ith on."""
    out: Path = SWEEP
    """Folder for the files."""
    scratch: Path = Path("runs/coverage-sweep")
    """Folder for what is not finished."""
    batch: int | None = None
    """Environments at once; unset: chosen from the team's size and the device."""

    def __post_init__(self) -> None:
        kept.check_known(self.policy, DRIVERS)

    def mine(self, cells: list[str]) -> list[str]:
        """The cells of this shard."""
        try:
            first, count = (int(number) for number in self.shard.split("/"))
        except ValueError:
            first, count = 0, 0
        if not 1 <= first <= count:
            raise MastError(f"--shard is {self.shard}: give I/N with I from 1 to N")
        return cells[first - 1 :: count]


def shipped(names: tuple[str, ...]) -> list[str]:
    """Those of the drivers that can be run; says which cannot."""
    missing = [
        name for name in names if DRIVERS[name].learned and f"coverage/{DRIVERS[name].policy}" not in zoo.policies()
    ]
    for name in missing:
        print(f"{name}: not shipped, left out", file=sys.stderr)
    return [name for name in names if name not in missing]


def run_driver(name: str, cell: str, world: CoverageConfig, config: SweepConfig) -> dict[str, Any]:
    """One policy on all environments of a cell: how it was run, and each metric's last value in every environment."""
    driver = DRIVERS[name]
    settings = EvaluateConfig(
        world=world,
        policy=(driver.policy,),
        episodes=config.episodes,
        steps=config.steps,
        delay=world.dt if driver.alone else None,
        seed=config.seed,
        batch=config.batch,
        device=config.device,
        precision=config.precision,
    )

    def ends(folder: Path, summary: dict[str, Any]) -> dict[str, Any]:
        table = pq.read_table(folder / "episodes.parquet")
        last = {metric: curves(table, driver.policy, metric)[1][:, -1].astype(float) for metric in METRICS}
        return {metric: [round(value, DIGITS) for value in values] for metric, values in last.items()}

    return kept.run(settings, f"{cell}-{name}", config.scratch, ends)


def summarised(policies: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Means over the environments of a cell with their 95 % intervals, and the paired differences of all pairs."""
    values = {(name, metric): np.array(found[metric]) for name, found in policies.items() for metric in METRICS}
    rows, paired = [], []
    for metric in METRICS:
        for name in policies:
            mean, half = interval(values[name, metric])
            rows.append({"policy": name, "metric": metric, **_rounded(mean, half)})
        for one, other in itertools.combinations(policies, 2):
            mean, half = interval(values[one, metric] - values[other, metric])
            paired.append({"policy": one, "minus": other, "metric": metric, **_rounded(mean, half)})
    return {"rows": rows, "paired": paired}


def _rounded(mean: float, half: float | None) -> dict[str, float | None]:
    return {"mean": round(mean, DIGITS), "ci95": None if half is None else round(half, DIGITS)}


def write_cell(path: Path, cell: dict[str, Any]) -> None:
    """Write a cell's file, a line a row and policy: an indented file would have a line a number."""

    def text(value: Any) -> str:
        if isinstance(value, list):
            return "[\n  " + ",\n  ".join(json.dumps(item) for item in value) + "\n ]"
        if isinstance(value, dict):
            return (
                "{\n  " + ",\n  ".join(f"{json.dumps(key)}: {json.dumps(item)}" for key, item in value.items()) + "\n }"
            )
        return json.dumps(value)

    lines = (f" {json.dumps(key)}: {text(value)}" for key, value in cell.items())
    with whole_file(path) as part:
        part.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def run_cell(cell: str, world: CoverageConfig, names: list[str], config: SweepConfig) -> Iterator[str]:
    """Bring a cell up to date, policy by policy; yields a line on each that was run."""
    path = config.out / f"{cell}.json"
    about = {
        "cell": cell,
        "agents": world.agents,
        "density": world.density.replace(f"{ROOT}/", ""),
        **({"features": world.features} if world.density == "gaussians" else {"window": list(world.window or ())}),
        "side": world.side,
        "dt": world.dt,
        "episodes": config.episodes,
        "steps": config.steps,
        "seed": config.seed,
    }
    have = kept.read(path, about)["policies"]
    for name in names:
        if name in have and have[name]["weights"] == kept.weights("coverage", DRIVERS[name].policy):
            continue
        have[name] = run_driver(name, cell, world, config)
        ordered = {known: have[known] for known in DRIVERS if known in have}
        write_cell(path, {**about, **summarised(ordered), "policies": ordered})
        mean, half = interval(np.array(have[name]["cost_time_average"]))
        yield f"{name}: {mean:.3f}" + (f" ± {half:.3f}" if half is not None else "")


def main(config: SweepConfig) -> None:
    names, tests = shipped(config.policy), worlds()
    chosen = {cell: world for test in config.only for cell, world in tests[test].items()}
    mine = config.mine(list(chosen))
    config.out.mkdir(parents=True, exist_ok=True)
    for number, cell in enumerate(mine, start=1):
        lines = list(run_cell(cell, chosen[cell], names, config))
        print(f"{number} of {len(mine)}: {cell}: {', '.join(lines) or 'already there'}", flush=True)


if __name__ == "__main__":
    kept.command(main, SweepConfig, "coverage_sweep")
