"""Cells: single pieces of an experiment, known by their settings, whose results are files that can be checked.

A cell is a kind of work (see `work.py`) and its settings, plain as JSON. Its key is a hash of both, so a changed
setting is another cell. A result is one Parquet file: the table, and in the file's own notes the settings, where and
how long it ran, and a checksum of all this. What cannot be read, or does not agree with its checksum or with the
settings that are asked for, counts as not there.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mast_swarm import zoo
from mast_swarm.errors import MastError
from mast_swarm.files import whole_file
from mast_swarm.zoo import CONFIG_FILE, WEIGHTS_FILE

_NOTES = b"mast"  # where a Parquet file holds what is said of the table
FORM = 1  # of the files: a change here makes every cell anew


@dataclass(frozen=True)
class Cell:
    """One piece of work. The label is for people: it is no part of the key."""

    kind: str
    settings: Mapping[str, Any]
    label: str = field(default="", compare=False)
    needs: Cell | None = field(default=None, compare=False)  # whose files it is given: a policy that is trained

    def __post_init__(self) -> None:
        if taken := {"form", "kind"} & set(self.settings):
            raise MastError(f"a setting is called {taken.pop()}, which the key of a cell has already: rename it")

    @cached_property
    def key(self) -> str:
        """16 digits that no other settings share."""
        return hashlib.sha256(_text({"form": FORM, "kind": self.kind, **self.settings}).encode()).hexdigest()[:16]

    @property
    def learned(self) -> bool:
        """Whether an evaluation is of a learned policy, which alone computes in half precision."""
        return bool({"weights", "trained"} & set(self.settings))

    @property
    def name(self) -> str:
        """For people and files: the label and the key."""
        return f"{re.sub('[^A-Za-z0-9._-]+', '_', self.label or self.kind)}-{self.key}"


@dataclass(frozen=True)
class Result:
    """What a cell gave: a table, notes on how it ran, and for a trained policy its files."""

    table: pa.Table
    about: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def means_only(self) -> bool:
        """Whether it was taken over from a summary: nothing is known of single episodes."""
        return "mean" in self.table.column_names


def _text(value: Any) -> str:
    """JSON that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _checksum(cell: Cell, table: pa.Table, about: Mapping[str, Any]) -> str:
    said = {"kind": cell.kind, "settings": cell.settings, "about": about}
    rows = json.dumps(table.to_pydict(), sort_keys=True, separators=(",", ":"))  # of a table, which may hold NaN
    return hashlib.sha256((_text(said) + rows).encode()).hexdigest()


WEIGHTS = "weights"  # of a result: the policy that was trained for it (`known_by`); of a training: what it gave


class Store:
    """A folder of results: cells/ for tables, policies/ for the files of trained policies (not kept in git)."""

    def __init__(self, folder: Path) -> None:
        self.cells, self.policies = folder / "cells", folder / "policies"
        self._read: dict[str, Result | None] = {}
        # Labels may have been written otherwise: the key decides.
        self._paths = {path.stem.rpartition("-")[2]: path for path in sorted(self.cells.glob("*.parquet"))}

    def path(self, cell: Cell) -> Path:
        """Where a cell's result is, or will be."""
        return self._paths.setdefault(cell.key, self.cells / f"{cell.name}.parquet")

    def load(self, cell: Cell) -> Result | None:
        """The result of a cell if it is there and whole, and not of a policy that was trained again since."""
        return None if self.outdated(cell) else self._kept(cell)

    def outdated(self, cell: Cell) -> bool:
        """Whether there is a result, of other weights than those of the policy that was trained last."""
        kept, trained = self._kept(cell), None if cell.needs is None else self._kept(cell.needs)
        return kept is not None and trained is not None and kept.about.get(WEIGHTS) != trained.about.get(WEIGHTS)

    def _kept(self, cell: Cell) -> Result | None:
        if cell.key not in self._read:
            self._read[cell.key] = self._load(cell)
        return self._read[cell.key]

    def _load(self, cell: Cell) -> Result | None:
        path = self.path(cell)
        if not path.exists():
            return None
        try:
            table = pq.read_table(path)
            notes = json.loads((table.schema.metadata or {})[_NOTES])
            table = table.replace_schema_metadata(None)
            whole = notes["sha256"] == _checksum(cell, table, notes["about"])
            same = notes["settings"] == json.loads(_text(cell.settings))
        except (OSError, KeyError, ValueError, TypeError, pa.ArrowException):
            whole = same = False
        if not (whole and same):
            print(f"mast: {path} is damaged or of other settings: it counts as missing", file=sys.stderr)
            return None
        return Result(table, notes["about"])

    def save(self, cell: Cell, result: Result) -> Path:
        """Keep a result: it is there in full or not at all."""
        for folder in (self.cells, self.policies / cell.key) if result.files else (self.cells,):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise MastError(f"cannot write to {folder}: {error.strerror}; give another --out") from None
        for name, content in sorted(result.files.items()):  # before the table, which says whose they are
            with whole_file(self.policies / cell.key / name) as part:
                part.write_bytes(content)
        about = dict(result.about) | ({WEIGHTS: known_by(result.files)} if result.files else {})
        notes = {
            "kind": cell.kind,
            "settings": cell.settings,
            "about": about,
            "sha256": _checksum(cell, result.table, about),
        }
        table = result.table.replace_schema_metadata({_NOTES: _text(notes)})
        path, before = self.cells / f"{cell.name}.parquet", self.path(cell)
        with whole_file(path) as part:
            pq.write_table(table, part, compression="zstd")
        if before != path:  # one that was called otherwise
            before.unlink(missing_ok=True)
        self._paths[cell.key] = path
        self._read[cell.key] = Result(result.table, json.loads(_text(about)))
        return path

    def files(self, cell: Cell) -> dict[str, bytes] | None:
        """The files of a trained policy; None where they are not at hand, or not those that its result is of."""
        found = {path.name: path.read_bytes() for path in (self.policies / cell.key).glob("*") if path.is_file()}
        kept = self._kept(cell)
        if kept is None or not {CONFIG_FILE, WEIGHTS_FILE} <= set(found):
            return None
        return found if kept.about.get(WEIGHTS) == known_by(found) else None


def known_by(files: Mapping[str, bytes]) -> str:
    """What a policy that was trained is known by: its settings and weights in 16 digits."""
    return hashlib.sha256(files[CONFIG_FILE] + files[WEIGHTS_FILE]).hexdigest()[:16]


def weights(task: str, policy: str) -> str | None:
    """What a shipped policy is known by: its settings and weights in 16 digits. None for what is not learned."""
    folder = zoo.policies().get(f"{task}/{policy}")
    return None if folder is None else zoo.known_by(folder)


def evaluation(task: str, policy: str | Cell, *, label: str = "", **settings: Any) -> Cell:
    """A cell that rolls one policy out: a name of `mast list`, or a cell that trains one. The settings are those of
    `mast evaluate`; those that are None are left out."""
    given = {name: value for name, value in settings.items() if value is not None}
    if isinstance(policy, Cell):
        who: dict[str, Any] = {"policy": "trained", "trained": {"kind": policy.kind, **policy.settings}}
        return Cell("evaluate", {"task": task, **who, **given}, label or _label(policy.label, given), policy)
    known = weights(task, policy)
    who = {"policy": policy, **({} if known is None else {"weights": known})}
    return Cell("evaluate", {"task": task, **who, **given}, label or _label(policy, given))


def _label(policy: str, given: Mapping[str, Any]) -> str:
    """What an evaluation is called: the policy, and the settings in which experiments differ."""
    marks = {"agents": "n", "features": "f", "side": "s", "delay": "d", "max_age": "a"}
    parts = [policy, *([given["scenario"]] if "scenario" in given else [])]
    return "-".join([*parts, *(f"{mark}{given[name]:g}" for name, mark in marks.items() if name in given)])


def training(task: str, recipe: str, label: str, **settings: Any) -> Cell:
    """A cell that trains a policy: a recipe of a task with some settings in place of its own."""
    return Cell("train", {"task": task, "recipe": recipe, "settings": settings}, label)
