"""Mean normalised cost of the three CVT controllers against the table of the reference implementation.

The table (N = F = 32, 1024 m, 600 steps) does not say on which start states it was measured. So it is compared with

- reference: the 20 environments of which the reference's start states are known, run here; some minutes on two cores;
- seed 0 (50 environments), seed 1 (100), and both: the summaries in docs/results/coverage, which
  `mast evaluate coverage --policy clairvoyant c-cvt d-cvt --steps 600 --episodes E --seed S --dt DT` wrote.

The rule: the command fails if a mean over `reference` or over `both` is farther than 0.02 from the table, for any
controller, dt and kind of cost. Over 50 environments alone the standard error of c-cvt and d-cvt is itself about 0.02,
so those of a single seed are reported and decide nothing.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import stats

from benchmarks.measure import benchmark
from mast_swarm.evaluate.results import interval
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.density import gaussian_sum, normalised
from mast_swarm.tasks.coverage.world import Coverage, CoverageState

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "tests" / "fixtures" / "coverage_reference.npz"
SUMMARIES = ROOT / "docs" / "results" / "coverage"
STEPS, TOLERANCE = 600, 0.02
SEEDS = {0: 50, 1: 100}  # seed: environments
DECIDING = ("reference", "both")
METRICS = ("cost_time_average", "cost")
# By controller and dt: the time average and the cost at the end.
TABLE = {
    ("clairvoyant", 0.2): (0.319, 0.242),
    ("c-cvt", 0.2): (0.673, 0.638),
    ("d-cvt", 0.2): (0.710, 0.685),
    ("clairvoyant", 1.0): (0.249, 0.232),
    ("c-cvt", 1.0): (0.646, 0.637),
    ("d-cvt", 1.0): (0.691, 0.684),
}


class ReferenceStarts(Coverage):
    """The coverage world, starting where the reference did: seed e gives its environment e."""

    def reset(self, seeds: Sequence[int], scenarios: Sequence[str] | None = None) -> CoverageState:
        with np.load(REFERENCE) as known:
            means, sigma, scale, positions = (known[name] for name in ("mean", "sigma", "scale", "pos0"))
        maps = [normalised(gaussian_sum(means[e], sigma[e], scale[e], self.config), "the density") for e in seeds]
        return self.state(torch.from_numpy(positions[list(seeds)]), torch.from_numpy(np.stack(maps)))


def on_reference_starts(policy: str, dt: float) -> Iterator[tuple[float, float]]:
    """Mean and standard error of each metric over the reference's 20 environments."""
    ran = rollout(ReferenceStarts(CoverageConfig(dt=dt)), policy, range(20), STEPS)
    for metric in METRICS:
        mean, half = interval(ran.metrics[metric][:, -1])
        assert half is not None
        yield mean, standard_error(half, 20)


def in_summary(policy: str, dt: float, seed: int) -> Iterator[tuple[float, float]]:
    """The same from the summary of an evaluation."""
    path = SUMMARIES / f"baselines-dt-{dt:g}-seed-{seed}.json"
    if not path.exists():
        command = f"mast evaluate coverage --policy clairvoyant c-cvt d-cvt --steps {STEPS} --episodes {SEEDS[seed]}"
        raise SystemExit(f"{path} is missing: copy there the summary.json of `{command} --seed {seed} --dt {dt:g}`")
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    for metric in METRICS:
        chosen = {"policy": policy, "metric": metric, "dt": dt, "t": STEPS * dt, "seed": seed, "episodes": SEEDS[seed]}
        (row,) = (row for row in rows if all(row[name] == value for name, value in chosen.items()))
        yield row["mean"], standard_error(row["ci95"], SEEDS[seed])


def standard_error(half: float, count: int) -> float:
    """Of a mean over `count` environments, from half its 95 % interval."""
    return half / float(stats.t.ppf(0.975, count - 1))


def pooled(parts: list[tuple[float, float, int]]) -> tuple[float, float]:
    """Mean and standard error over all environments, from the mean, standard error and count of each part."""
    total = sum(count for *_, count in parts)
    mean = sum(one * count for one, _, count in parts) / total
    squares = sum((count - 1) * count * error**2 + count * (one - mean) ** 2 for one, error, count in parts)
    return mean, (squares / (total - 1) / total) ** 0.5


def compared() -> Iterator[dict[str, Any]]:
    """A row a controller, dt, metric and set of start states."""
    for (policy, dt), aims in TABLE.items():
        known = list(on_reference_starts(policy, dt))
        seeds = {seed: list(in_summary(policy, dt, seed)) for seed in SEEDS}
        for number, (metric, aim) in enumerate(zip(METRICS, aims, strict=True)):
            parts = [(*seeds[seed][number], count) for seed, count in SEEDS.items()]
            sets = {"reference": (*known[number], 20)}
            sets |= {f"seed {seed}": part for seed, part in zip(SEEDS, parts, strict=True)}
            sets |= {"both": (*pooled(parts), sum(SEEDS.values()))}
            for starts, (mean, error, count) in sets.items():
                row = {"policy": policy, "dt": dt, "metric": metric, "starts": starts, "environments": count}
                numbers = {"table": aim, "mean": mean, "standard_error": error}
                yield {**row, **numbers, "within": abs(mean - aim) <= TOLERANCE}


def measured() -> dict[str, Any]:
    return {"steps": STEPS, "tolerance": TOLERANCE, "deciding": DECIDING, "rows": list(compared())}


def main() -> None:
    rows = benchmark("coverage_means", __doc__, measured)["rows"]
    failed = [row for row in rows if row["starts"] in DECIDING and not row["within"]]
    for row in failed:
        where = f"{row['policy']}, dt {row['dt']:g}, {row['metric']}, {row['starts']}"
        found = f"{row['mean']:.3f} ± {row['standard_error']:.3f} (standard error), table {row['table']:.3f}"
        print(f"{where}: {found}", file=sys.stderr)
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
