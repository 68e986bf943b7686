"""Results on disk: parts as they finish, then one Parquet table and a summary with intervals and paired differences."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import stats

from mast_swarm.errors import MastError

_REPORTED = 50.0  # s between the instants that the summary reports


class Results:
    """An output folder: `config.json`, `parts/` while running, `episodes.parquet` and `summary.json` at the end."""

    def __init__(self, folder: Path, config: dict[str, Any], resume: bool = False) -> None:
        self.folder = folder
        self.parts = folder / "parts"
        used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
        if used and not resume:
            raise MastError(f"{folder} is already used: give another --out, or --resume to go on with a stopped run")
        if used:
            self._check_same(config)
        try:
            self.parts.mkdir(parents=True, exist_ok=True)
            write_json(folder / "config.json", config)
        except OSError as error:
            raise MastError(f"cannot write to {folder}: {error.strerror or error}") from None

    def _check_same(self, config: dict[str, Any]) -> None:
        """Resuming is for the same run: lists what differs."""
        try:
            before = json.loads((self.folder / "config.json").read_text())
        except (OSError, ValueError):
            raise MastError(
                f"{self.folder} holds no stopped run (no readable config.json): give another --out"
            ) from None
        now = json.loads(json.dumps(config))
        changed = [f"{key} {before.get(key)} -> {now.get(key)}" for key in now if before.get(key) != now.get(key)]
        if changed:
            raise MastError(f"cannot resume {self.folder}: settings differ ({'; '.join(changed)})")

    def done(self, part: str) -> bool:
        """Whether this part was finished by an earlier run."""
        return (self.parts / f"{part}.parquet").exists()

    def add(self, part: str, table: pa.Table) -> None:
        """Keep a finished part; it appears whole or not at all."""
        path = self.parts / f"{part}.parquet"
        temporary = path.with_suffix(".writing")
        pq.write_table(table, temporary)
        os.replace(temporary, path)

    def finish(self, complete: bool, about: dict[str, Any]) -> dict[str, Any] | None:
        """Join the parts and write the summary; parts stay only where the run can still go on."""
        parts = sorted(self.parts.glob("*.parquet"))
        if not parts:
            return None
        table = pa.concat_tables(pq.read_table(part) for part in parts)
        temporary = self.folder / "episodes.writing"
        pq.write_table(table, temporary)
        os.replace(temporary, self.folder / "episodes.parquet")
        summary = {"complete": complete, **about, **summarise(table)}
        write_json(self.folder / "summary.json", summary)
        if complete:
            shutil.rmtree(self.parts)
        return summary


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    temporary = path.with_name(path.name + ".writing")
    temporary.write_text(json.dumps(value, indent=1, allow_nan=False) + "\n")
    os.replace(temporary, path)


def episode_table(
    keys: dict[str, Any], episodes: Sequence[dict[str, Any]], dt: float, metrics: dict[str, np.ndarray]
) -> pa.Table:
    """One row per episode and instant. `keys` are the same in all rows, `episodes` has a dict an episode."""
    count, instants = next(iter(metrics.values())).shape
    columns: dict[str, Any] = {}
    for name, value in keys.items():
        kind = pa.float64() if isinstance(value, float) or value is None else None
        columns[name] = pa.array([value] * (count * instants), type=kind)
    for name in episodes[0]:
        columns[name] = pa.array(list(itertools.chain.from_iterable([e[name]] * instants for e in episodes)))
    columns["t"] = pa.array(np.tile(np.arange(instants) * dt, count))
    for name, values in metrics.items():
        columns[name] = pa.array(values.reshape(-1).astype(np.float32))
    return pa.table(columns)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Mean over episodes and half the width of its 95 % confidence interval (Student's t). [E] -> two numbers"""
    mean = float(np.mean(values))
    if len(values) < 2:
        return mean, 0.0
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return mean, float(half)


KEYS = ("policy", "task", "scenario", "agents", "delay", "loss", "seed")
_INDEX = (*KEYS, "start", "episode", "episode_seed", "t")


def metric_names(table: pa.Table) -> list[str]:
    """The columns that hold measurements."""
    return [name for name in table.column_names if name not in _INDEX]


def curves(table: pa.Table, policy: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """t [T] in seconds and the metric [E, T] of one policy, episodes in order."""
    rows = table.filter(pc.equal(table["policy"], policy)).sort_by([("episode", "ascending"), ("t", "ascending")])
    t = np.unique(rows["t"].to_numpy())
    return t, rows[metric].to_numpy().reshape(-1, len(t))


def summarise(table: pa.Table) -> dict[str, Any]:
    """Rows of mean and ci95 for each policy, metric and reported instant, and the paired differences of all pairs."""
    policies = list(dict.fromkeys(table["policy"].to_pylist()))
    rows: list[dict[str, Any]] = []
    paired: list[dict[str, Any]] = []
    for metric in metric_names(table):
        measured = {policy: curves(table, policy, metric) for policy in policies}
        for policy, (t, values) in measured.items():
            first = table.filter(pc.equal(table["policy"], policy)).slice(0, 1).to_pylist()[0]
            for index in _reported(t):
                mean, half = interval(values[:, index])
                about = {key: first[key] for key in KEYS}
                found = {
                    "episodes": len(values),
                    "metric": metric,
                    "t": float(t[index]),
                    "mean": mean,
                    "ci95": half,
                }
                rows.append(about | found)
        for one, other in itertools.combinations(policies, 2):
            paired += _differences(one, other, metric, measured[one], measured[other])
    return {"rows": rows, "paired": paired}


def _differences(
    one: str,
    other: str,
    metric: str,
    first: tuple[np.ndarray, np.ndarray],
    second: tuple[np.ndarray, np.ndarray],
) -> Iterable[dict[str, Any]]:
    """`one` minus `other` on the same start states (those that both have finished)."""
    episodes = min(len(first[1]), len(second[1]))
    for index in _reported(first[0]):
        mean, half = interval(first[1][:episodes, index] - second[1][:episodes, index])
        yield {
            "policy": one,
            "minus": other,
            "metric": metric,
            "t": float(first[0][index]),
            "episodes": episodes,
            "mean": mean,
            "ci95": half,
        }


def _reported(t: np.ndarray) -> list[int]:
    """Indices of the instants that a summary names: each 50 s, and the last."""
    chosen = [i for i, second in enumerate(t) if abs(second / _REPORTED - round(second / _REPORTED)) < 1e-9]
    return sorted({*chosen, len(t) - 1})
