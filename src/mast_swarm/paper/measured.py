"""What cells have measured, as experiments read it: means, intervals, curves, paired differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zlib import crc32

import numpy as np

from mast_swarm.paper.cells import Result

_RESAMPLES = 40_000  # another seed then changes an interval by about half a percent
_OF_CURVES = 4_000  # the first of these, for curves and tables: a hundred thousand intervals that nobody is judged by


@dataclass(frozen=True)
class Estimate:
    """A mean, or what is computed from means, and the ends of its 95 % interval, which need not be equally far."""

    mean: float
    ends: tuple[float, float] | None
    signed: bool = False  # a difference: shown with its sign
    paired: bool = True  # a difference: over the same start states, one by one; if not, it says so

    def __str__(self) -> str:
        mean = f"{self.mean:+.3f}" if self.signed else f"{self.mean:.3f}"
        return mean + ("" if self.ends is None else f" ± {self.half:.3f}") + " (unpaired)" * (not self.paired)

    def to_its_ends(self) -> str:
        """With the ends of the interval, where they are not equally far."""
        return f"{self.mean:.3f}" + ("" if self.ends is None else " ({:.3f} to {:.3f})".format(*self.ends))

    @property
    def half(self) -> float | None:
        """Half the width of the interval, as it is shown; judged by are its ends."""
        return None if self.ends is None else (self.ends[1] - self.ends[0]) / 2

    @property
    def above_zero(self) -> bool:
        """Whether the whole interval lies above 0; without one nobody knows."""
        return self.above(0.0)

    @property
    def below_zero(self) -> bool:
        return self.below(0.0)

    def above(self, level: float) -> bool:
        """Whether the whole interval lies above a level."""
        return self.ends is not None and self.ends[0] > level

    def below(self, level: float) -> bool:
        return self.ends is not None and self.ends[1] < level

    def percent(self) -> str:
        """A share, in percent."""
        return f"{100 * self.mean:+.0f}" + ("" if self.half is None else f" ± {100 * self.half:.0f}") + " %"


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
                mean, half = row["mean"], row["ci95"]  # Student's t, which is symmetric
                estimate = Estimate(mean, None if half is None else (mean - half, mean + half))
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
        return estimated(self.drawn(metric, t))

    def mean(self, metric: str, t: float | None = None) -> float:
        """The mean alone."""
        values = self.values(metric, t)
        return self.at(metric, t).mean if values is None else float(values.mean())

    def curve(self, metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """t [T] s, mean [T] and the ends of the interval [2, T]; not a number where nobody knows them."""
        if self.metrics and self.episodes > 1:
            values, samples = self.metrics[metric], _samples(self.episodes)[:, :_OF_CURVES]
            return self.t, values.mean(0), np.quantile(values.T @ samples, _ENDS, axis=1)
        found = [self.at(metric, t) for t in self.t]
        ends = np.array([each.ends or (np.nan, np.nan) for each in found])
        return self.t, np.array([each.mean for each in found]), ends.T

    def drawn(self, metric: str, t: float | None = None, starts: int = 0) -> np.ndarray:
        """The mean over the episodes, and those of samples of them, drawn with replacement: [1 + samples]. What is
        computed from such arrays of several cells is again one, and `estimated` gives its interval. Equal numbers
        `starts` draw the same episodes, for cells whose start states are the same; others are independent. Where only
        means are known, normally distributed as their interval says."""
        values = self.values(metric, t)
        if values is not None:
            return _with_samples(values, starts)
        known = self.at(metric, t)
        spread = np.nan if known.half is None else known.half / 1.96
        rng = np.random.default_rng((starts + 1, crc32(repr(self.means).encode())))  # of another cell others
        return known.mean + spread * np.append(0.0, rng.standard_normal(_RESAMPLES))

    def values(self, metric: str, t: float | None = None) -> np.ndarray | None:
        """Of every episode at an instant, [E]; None where only means are known."""
        if not self.metrics:
            return None
        t = self.end if t is None else float(self.t[np.abs(self.t - t).argmin()])
        return self.metrics[metric][:, self.t == t][:, 0]


def difference(one: Measured, other: Measured, metric: str, t: float | None = None) -> Estimate:
    """How much more one measures than the other: on the same start states paired. Not paired where only means are
    known, and where the start states are others, as those of two scenarios are."""
    paired = bool(one.metrics and other.metrics) and one.starts == other.starts
    apart = one.drawn(metric, t) - other.drawn(metric, t, starts=0 if paired else 1)
    return estimated(apart, signed=True, paired=paired)


def estimated(drawn: np.ndarray, *, signed: bool = False, paired: bool = True) -> Estimate:
    """Of [1 + samples] the first, with the 95 % interval of the others: the bootstrap by percentiles."""
    low, high = np.quantile(drawn[1:], _ENDS).tolist()
    return Estimate(float(drawn[0]), None if np.isnan(low) else (low, high), signed, paired)


def bootstrap(values: np.ndarray) -> Estimate:
    """The mean of differences [E] with its interval."""
    return estimated(_with_samples(values), signed=True)


_ENDS = (0.025, 0.975)


def _with_samples(values: np.ndarray, starts: int = 0) -> np.ndarray:
    """Of values [E] the mean, and the means of samples, [1 + samples]; of one value not a number. The samples come in
    another order for each number `starts`, so that those of other start states have nothing to do with each other."""
    if len(values) < 2:
        return np.append(values.mean(), np.full(_RESAMPLES, np.nan))
    means = values @ _samples(len(values))
    return np.append(values.mean(), np.random.default_rng(starts).permutation(means) if starts else means)


@lru_cache(maxsize=4)
def _samples(count: int) -> np.ndarray:
    """Samples of so many values, drawn with replacement: the share that each value has in each, [count, samples]. Kept,
    because curves ask for hundreds of intervals of as many values."""
    shares = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), _RESAMPLES) / count
    return np.ascontiguousarray(shares.T)


def flat(measured: Measured, label: str, **columns: Any) -> list[dict[str, Any]]:
    """Rows of an experiment's table: a mean with its interval for each metric and instant."""
    rows = []
    for metric in measured.metrics or measured.means:
        t, mean, ends = measured.curve(metric)
        for at, middle, half in zip(t.tolist(), mean.tolist(), (np.diff(ends, axis=0)[0] / 2).tolist(), strict=True):
            row = {"policy": label, **columns, "metric": metric, "t": at, "mean": middle}
            rows.append({**row, "ci95": None if np.isnan(half) else half, "episodes": measured.episodes})
    return rows
