"""What cells have measured, as experiments read it: means, intervals, curves, paired differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from mast_swarm.evaluate.results import interval
from mast_swarm.paper.cells import Result

_RESAMPLES = 40_000  # another seed then changes an interval by about half a percent


@dataclass(frozen=True)
class Estimate:
    """A mean and half its 95 % interval."""

    mean: float
    half: float | None
    signed: bool = False  # a difference: shown with its sign
    paired: bool = True  # a difference: over the same start states, one by one; if not, it says so

    def __str__(self) -> str:
        mean = f"{self.mean:+.3f}" if self.signed else f"{self.mean:.3f}"
        return mean + ("" if self.half is None else f" ± {self.half:.3f}") + " (unpaired)" * (not self.paired)

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval lies above 0; without one nobody knows."""
        return self.half is not None and self.mean - self.half > 0

    @property
    def below_zero(self) -> bool:
        return self.half is not None and self.mean + self.half < 0


# Settings that leave the start states as they are.
_HOW = {"policy", "weights", "trained", "delay", "max_age", "steps", "dt"}


class Measured:
    """The result of an evaluation. Of ones that were taken over from a summary only means are known, and intervals.

    settings: of its cell; those that decide the start states say whether two may be paired.
    """

    def __init__(self, result: Result, settings: Mapping[str, Any]) -> None:
        self.about = result.about
        self.starts = {name: value for name, value in settings.items() if name not in _HOW}
        table = result.table
        self.metrics: dict[str, np.ndarray] = {}  # [E, T]
        self.means: dict[str, dict[float, Estimate]] = {}
        if result.means_only:
            for row in table.to_pylist():
                estimate = Estimate(row["mean"], row["ci95"])
                self.means.setdefault(row["metric"], {})[round(row["t"], 6)] = estimate
            self.episodes = int(table["episodes"][0].as_py())
            self.t = np.array(sorted(next(iter(self.means.values()))))
            return
        table = table.sort_by([("episode", "ascending"), ("t", "ascending")])
        self.t = np.unique(table["t"].to_numpy())
        self.episodes = len(np.unique(table["episode"].to_numpy()))
        for name in table.column_names[table.column_names.index("t") + 1 :]:
            self.metrics[name] = table[name].to_numpy().astype(float).reshape(self.episodes, len(self.t))

    @property
    def end(self) -> float:
        """The last instant, s."""
        return float(self.t[-1])

    def at(self, metric: str, t: float | None = None) -> Estimate:
        """The mean over episodes at an instant (the nearest that was kept), or at the end."""
        t = self.end if t is None else float(self.t[np.abs(self.t - t).argmin()])
        if not self.metrics:
            return self.means[metric][round(t, 6)]
        return Estimate(*interval(self.metrics[metric][:, self.t == t][:, 0]))

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """t [T] s, mean [T] and half the interval [T]."""
        found = [self.at(metric, t) for t in self.t]
        return self.t, np.array([e.mean for e in found]), np.array([e.half or 0.0 for e in found])

    def values(self, metric: str, t: float | None = None) -> np.ndarray | None:
        """Of every episode at an instant, [E]; None where only means are known."""
        if not self.metrics:
            return None
        t = self.end if t is None else float(self.t[np.abs(self.t - t).argmin()])
        return self.metrics[metric][:, self.t == t][:, 0]


def difference(one: Measured, other: Measured, metric: str, t: float | None = None) -> Estimate:
    """How much more one measures than the other: on the same start states paired, by the bootstrap. Not paired where
    only means are known, and where the start states are others, as those of two scenarios are."""
    first, second = one.values(metric, t), other.values(metric, t)
    if first is None or second is None or one.starts != other.starts:
        a, b = one.at(metric, t), other.at(metric, t)
        half = None if a.half is None or b.half is None else float(np.hypot(a.half, b.half))
        return Estimate(a.mean - b.mean, half, signed=True, paired=False)
    return bootstrap(first - second)


def bootstrap(values: np.ndarray) -> Estimate:
    """The mean of values [E], and half of the 95 % interval of the means of samples drawn from them."""
    if len(values) < 2:
        return Estimate(float(np.mean(values)), None, signed=True)
    low, high = np.quantile(_samples(len(values)) @ values, [0.025, 0.975])
    return Estimate(float(np.mean(values)), float((high - low) / 2), signed=True)


@lru_cache(maxsize=4)
def _samples(count: int) -> np.ndarray:
    """Samples of so many values, drawn with replacement: the share that each value has in each, [samples, count]. Kept,
    because curves ask for hundreds of intervals of as many values."""
    return np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _RESAMPLES) / count


def flat(measured: Measured, label: str, **columns: Any) -> list[dict[str, Any]]:
    """Rows of an experiment's table: a mean with its interval for each metric and instant."""
    rows = []
    for metric in measured.metrics or measured.means:
        for t in measured.t:
            found = measured.at(metric, t)
            row = {"policy": label, **columns, "metric": metric, "t": float(t), "mean": found.mean, "ci95": found.half}
            rows.append({**row, "episodes": measured.episodes})
    return rows
