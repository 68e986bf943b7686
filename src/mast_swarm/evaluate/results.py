"""Results on disk: parts as they finish, then one Parquet table and a summary with intervals and paired differences."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy import stats

from mast_swarm.errors import MastError
from mast_swarm.files import plain, read_json, whole_file, write_json

_REPORTED = 50.0  # s between the instants that the summary reports
_FEWEST = 5  # episodes whose spread is worth an interval
_PART = re.compile(r"([0-9]+)-([0-9]+)-([0-9]+)\.parquet")  # number of the policy, first and last episode


class Results:
    """An output folder, which is there and has no other writer: `config.json`, `parts/` while running,
    `episodes.parquet` and `summary.json` at the end.

    A part holds some episodes of one policy; parts, not batches, are what a stopped run resumes from.
    """

    def __init__(self, folder: Path, config: dict[str, Any], resume: bool = False) -> None:
        self.folder = folder
        self.parts = folder / "parts"
        try:
            self.resumed = any(map(_counts, folder.iterdir()))
            if self.resumed and not resume:
                raise MastError(
                    f"{folder} is already used: give another --out, or --resume to go on with a stopped run"
                )
            if self.resumed:
                self._check_same(config)
            if not self.resumed:  # first of all: a run that is killed from here on can be resumed
                write_json(folder / "config.json", config)
            if not self.complete(folder):
                self.parts.mkdir(exist_ok=True)
        except OSError as error:
            raise MastError(f"cannot write to {folder}: {error.strerror or error}") from None

    def _check_same(self, config: dict[str, Any]) -> None:
        """Resuming is for the same run: lists what differs."""
        before = read_json(self.folder / "config.json")
        if before is None:
            raise MastError(f"{self.folder} holds no stopped run (no readable config.json): give another --out")
        now = json.loads(json.dumps(config, default=plain))
        changed = [
            f"{key} {before.get(key, 'not stated')} -> {now[key]}"
            for key in now
            # A task's file may have moved; what is said of policies' files is of no use to people.
            if key not in ("source", "weights") and (key not in before or before[key] != now[key])
        ]
        known, then = now.get("weights", {}), before.get("weights", {})
        changed += [f"the files of {name} are not those of then" for name in known if known[name] != then.get(name)]
        if changed:
            raise MastError(f"cannot resume {self.folder}: settings differ ({'; '.join(changed)})")

    @staticmethod
    def complete(folder: Path) -> bool:
        """Whether a run in this folder has come to its end."""
        return (read_json(folder / "summary.json") or {}).get("complete") is True

    def summary(self) -> dict[str, Any]:
        """Of what was finished when it was last written."""
        return read_json(self.folder / "summary.json") or {}

    def _finished(self) -> list[tuple[int, range, Path]]:
        """The parts on disk: number of the policy, episodes, file; in the order of policies and episodes."""
        found = [(_PART.fullmatch(path.name), path) for path in self.parts.iterdir()]
        return sorted(
            ((int(match[1]), range(int(match[2]), int(match[3]) + 1), path) for match, path in found if match),
            key=lambda part: (part[0], part[1].start),
        )

    def episodes(self, policy: int) -> set[int]:
        """Episodes of a policy (by its number) that are finished."""
        return {episode for number, episodes, _ in self._finished() if number == policy for episode in episodes}

    def add(self, policy: int, first: int, table: pa.Table) -> None:
        """Keep finished episodes of a policy, from `first` on; they appear whole or not at all."""
        last = first + len(pc.unique(table["episode"])) - 1
        _write_table(self.parts / f"{policy:03d}-{first:06d}-{last:06d}.parquet", table)

    def finish(self, complete: bool, about: dict[str, Any]) -> dict[str, Any]:
        """Join the parts and write the summary; parts stay only where the run can still go on.

        Where nothing was finished nothing is left behind.
        """
        parts = [path for *_, path in self._finished()]
        if not parts:
            self._discard()
            return {"complete": False, **about, "rows": [], "paired": []}
        table = pa.concat_tables(pq.read_table(part) for part in parts)
        _write_table(self.folder / "episodes.parquet", table)
        summary = {"complete": complete, **about, **summarise(table)}
        write_json(self.folder / "summary.json", summary)
        if complete:
            shutil.rmtree(self.parts)
        return summary

    def _discard(self) -> None:
        """Remove what this run has made so far; what was in the folder before stays."""
        if self.resumed:
            return
        shutil.rmtree(self.parts)
        for path in (self.folder / "config.json", *self.folder.glob("recording-*.npz")):
            path.unlink()


def _counts(path: Path) -> bool:
    """Whether something in an output folder is of a run; what `whole_file` began and never ended is not."""
    return not path.name.startswith(".")


def _write_table(path: Path, table: pa.Table) -> None:
    with whole_file(path) as part:
        pq.write_table(table, part)


def episode_table(
    keys: dict[str, Any], episodes: Sequence[dict[str, Any]], dt: float, metrics: dict[str, np.ndarray]
) -> pa.Table:
    """One row per episode and instant: `keys`, the same in all rows, what `episodes` says of each, t in seconds, and
    the metrics, each [E, T+1]. A table's columns stay in this order."""
    count, instants = next(iter(metrics.values())).shape
    columns: dict[str, Any] = {}
    for name, value in keys.items():
        kind = pa.float64() if isinstance(value, float) or value is None else None
        columns[name] = pa.array([value] * (count * instants), type=kind)
    for name in episodes[0]:
        columns[name] = pa.array(list(itertools.chain.from_iterable([e[name]] * instants for e in episodes)))
    # Rounded, so that the instants of dt = 0.2 s are 0.6 and not 0.6000000000000001, and can be asked for.
    columns["t"] = pa.array(np.tile((np.arange(instants) * dt).round(9), count))
    for name, values in metrics.items():
        columns[name] = pa.array(values.reshape(-1).astype(np.float32))
    return pa.table(columns)


def interval(values: np.ndarray) -> tuple[float, float | None]:
    """Mean over episodes [E] and half the width of its 95 % confidence interval (Student's t).

    Too few episodes say little of the spread: their interval is None.
    """
    values = values.astype(np.float64)
    mean = float(np.mean(values))
    if len(values) < _FEWEST:
        return mean, None
    half = stats.t.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return mean, float(half)


def key_names(table: pa.Table) -> list[str]:
    """The columns of settings, the same in all rows of a policy."""
    return table.column_names[: table.column_names.index("start")]


def metric_names(table: pa.Table) -> list[str]:
    """The columns that hold measurements."""
    return table.column_names[table.column_names.index("t") + 1 :]


def curves(table: pa.Table, policy: str, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """t [T] in seconds and the metric [E, T] of one policy, episodes in order."""
    _, t, values = _measured(table, policy, metric)
    return t, values


def _measured(table: pa.Table, policy: str, metric: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Episodes [E], t [T] in seconds and the metric [E, T] of one policy."""
    rows = table.filter(pc.equal(table["policy"], policy)).sort_by([("episode", "ascending"), ("t", "ascending")])
    episodes, t = np.unique(rows["episode"].to_numpy()), np.unique(rows["t"].to_numpy())
    return episodes, t, rows[metric].to_numpy().reshape(len(episodes), len(t))


def summarise(table: pa.Table) -> dict[str, Any]:
    """Rows of mean and ci95 for each policy, metric and reported instant, and the paired differences of all pairs."""
    policies = list(dict.fromkeys(table["policy"].to_pylist()))
    rows: list[dict[str, Any]] = []
    paired: list[dict[str, Any]] = []
    for metric in metric_names(table):
        measured = {policy: _measured(table, policy, metric) for policy in policies}
        for policy, (_, t, values) in measured.items():
            first = table.filter(pc.equal(table["policy"], policy)).slice(0, 1).to_pylist()[0]
            about = {key: first[key] for key in key_names(table)}
            rows += (about | found for found in _means(metric, t, values))
        for one, other in itertools.combinations(policies, 2):
            (of_one, t, first), (of_other, _, second) = measured[one], measured[other]
            both, at_one, at_other = np.intersect1d(of_one, of_other, return_indices=True)
            if len(both):  # a stopped run may have no start state that both have finished
                difference = first[at_one].astype(np.float64) - second[at_other]
                about = {"policy": one, "minus": other}
                paired += (about | found for found in _means(metric, t, difference))
    return {"rows": rows, "paired": paired}


def _means(metric: str, t: np.ndarray, values: np.ndarray) -> Iterator[dict[str, Any]]:
    """Mean and ci95 over the episodes of values [E, T] at each reported instant."""
    for index in _reported(t):
        mean, half = interval(values[:, index])
        yield {"episodes": len(values), "metric": metric, "t": float(t[index]), "mean": mean, "ci95": half}


def _reported(t: np.ndarray) -> list[int]:
    """Indices of the instants that a summary names: each 50 s, and the last."""
    chosen = [i for i, second in enumerate(t) if abs(second / _REPORTED - round(second / _REPORTED)) < 1e-9]
    return sorted({*chosen, len(t) - 1})
