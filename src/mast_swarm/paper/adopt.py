"""Take over as cells what evaluations have measured elsewhere, with a note on where it comes from."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mast_swarm import __version__
from mast_swarm.errors import MastError
from mast_swarm.files import read_json
from mast_swarm.paper.cells import WEIGHTS, Cell, Result, Store, evaluation, weights
from mast_swarm.paper.experiment import Size
from mast_swarm.paper.navigation.common import by_paper
from mast_swarm.paper.work import thinned
from mast_swarm.tasks import registry as tasks

_WORLD = {"navigation": ("agents", "scenario"), "coverage": ("agents", "features", "side", "dt")}


@dataclass
class Adopted:
    """What became of the results in a folder or file."""

    asked: Collection[Cell]  # the cells that experiments have: others are not taken over
    taken: list[Cell] = field(default_factory=list)
    known: list[Cell] = field(default_factory=list)  # as good as these are results that were there before
    unasked: list[Cell] = field(default_factory=list)
    strange: list[str] = field(default_factory=list)  # policies that nobody else has

    def told(self, given: Path) -> list[str]:
        """Lines that say so."""
        found = [f"{len(self.taken)} cell{'' if len(self.taken) == 1 else 's'} taken over"]
        found += [f"{len(self.known)} as good there before"] if self.known else []
        found += [f"{', '.join(self.strange)} left out: nobody can tell which policy that is"] if self.strange else []
        return [f"{given}: {'; '.join(found)}", *(_unasked(cell, self.asked) for cell in self.unasked)]


def _said(name: str, value: Any) -> str:
    return f"no {name}" if value is None else f"{name} {value}"


def _unasked(cell: Cell, asked: Collection[Cell]) -> str:
    """Why no experiment has a cell: in what the nearest one of the same policy differs."""
    own = cell.settings
    same = [one.settings for one in asked if one.settings.get("policy") == own["policy"] and one.kind == cell.kind]
    if not same:
        return f"{cell.label} left out: no experiment has it"
    differs = [[n for n in {**own, **other} if json.dumps(own.get(n)) != json.dumps(other.get(n))] for other in same]
    names = min(differs, key=len)
    other = same[differs.index(names)]
    wanted = ", ".join(f"{_said(name, other.get(name))} (not {_said(name, own.get(name))})" for name in names)
    return f"{cell.label} left out: no experiment has it; one has it with {wanted}"


def adopt(given: Path, store: Store, asked: Collection[Cell]) -> Adopted:
    """Take over a results folder or a summary.json: what it has of the cells that are asked for."""
    if given.suffix == ".jsonl":
        return _curve(given, store, Adopted(asked))
    file = given / "summary.json" if given.is_dir() else given
    found = read_json(file)
    if found is None or "rows" not in found:
        raise MastError(f"{given} holds no results of an evaluation: give its folder, or its summary.json")
    whole = given / "episodes.parquet"
    episodes = pq.read_table(whole) if given.is_dir() and whole.exists() else None
    return _summary(found, file, episodes, store, Adopted(asked))


def _keep(
    into: Adopted, store: Store, cell: Cell, table: pa.Table, about: dict[str, Any], measured: str | None = None
) -> None:
    """measured: the weights that the results are of, if they say so."""
    if cell.kind != "train" and cell.key not in {one.key for one in into.asked}:
        into.unasked.append(cell)
        return
    before = store.load(cell)
    trained = None if cell.needs is None else store.load(cell.needs)
    here = None if trained is None else trained.about.get(WEIGHTS)
    if here is not None and here != measured:
        whose = "nobody knows of which weights these results are" if measured is None else "these are of other weights"
        print(f"mast: the policy of {cell.label} was trained here, and {whose}: they are left alone", file=sys.stderr)
        return
    result = Result(table, about | ({} if here is None else {WEIGHTS: here}))
    if before is not None and not (before.means_only and not result.means_only):
        into.known.append(cell)  # every episode is better than means alone
        return
    store.save(cell, result)
    into.taken.append(cell)


def _source(file: Path) -> str:
    """Where results come from, without what only this machine knows."""
    parts = file.resolve().parts
    return "/".join(parts[parts.index("docs") :] if "docs" in parts else parts[-2:])


def _summary(found: dict[str, Any], file: Path, episodes: pa.Table | None, store: Store, adopted: Adopted) -> Adopted:
    if found.get("complete") is not True:
        raise MastError(f"{file} is of an evaluation that was not finished: finish it first, with --resume")
    if found["version"] != __version__:
        raise MastError(f"{file} was made by version {found['version']}, this is {__version__}: policies may differ")
    task = found["task"]
    _check_usual(found, file)
    about = {"from": _source(file), **{key: found[key] for key in ("device", "version", "torch")}, "seconds": None}
    for policy in dict.fromkeys(row["policy"] for row in found["rows"]):
        rows = [row for row in found["rows"] if row["policy"] == policy]
        who = _named(task, policy)
        if who is None:
            adopted.strange.append(policy)  # a folder's name: nobody can tell today which weights those were
            continue
        measured = found.get("weights", {}).get(policy)  # older ones do not say it
        if measured is not None and isinstance(who, str) and measured != weights(task, who):
            raise MastError(f"{file} is of other weights of {policy} than those shipped now: evaluate it again")
        first, dt = rows[0], rows[0].get("dt", 1.0)
        settings = {name: first[name] for name in _WORLD[task] if name in first}
        settings |= {"episodes": first["episodes"], "steps": round(max(row["t"] for row in rows) / dt)}
        given = {name: first.get(name) for name in ("delay", "max_age")}
        news: dict[str, Any] = {name: None if value is None else float(value) for name, value in given.items()}
        cell = evaluation(task, who, **settings, seed=first["seed"], **news)
        if episodes is not None:
            table = thinned(episodes.filter(pc.equal(episodes["policy"], policy)), dt)
        else:
            names = ("metric", "t", "mean", "ci95", "episodes")
            table = pa.table({name: pa.array([row[name] for row in rows]) for name in names})
        said = found.get("precision")  # older ones do not say it
        precision = {} if said is None else {"precision": said if cell.learned else "fp32"}
        _keep(adopted, store, cell, table, about | precision, measured)
    return adopted


def _check_usual(found: dict[str, Any], file: Path) -> None:
    """A cell tells apart what `_WORLD` names, the delay, and when news is forgotten: all else has to be as it is when
    nothing is said."""
    task = tasks.find(found["task"])
    kept = {"failure": 0.0, "loss": 0.0, "relay_radius": None, "safe": False}
    usual = {**kept, **asdict(task.Config())}
    given = [{name: row[name] for name in kept if name in row} for row in found["rows"]]
    settings = read_json(file.parent / "config.json") or {}  # of a results folder: all that was asked for
    given.append({name: settings[name] for name in usual if name in settings and name not in _WORLD[task.name]})
    for row in given:
        for name, value in row.items():
            if value != usual[name]:
                raise MastError(f"{file} was run with {name} = {value}, which no cell has: leave it where it is")


def _named(task: str, policy: str) -> str | Cell | None:
    """What a summary's name of a policy stands for: a controller, a shipped policy, or one that was trained by the
    paper's recipe (l-paper)."""
    if tasks.find(task).has_controller(policy) or weights(task, policy) is not None:
        return policy
    letter, _, rest = policy.partition("-")
    return by_paper(Size(), letter.upper()) if task == "navigation" and rest == "paper" and letter in "mlc" else None


def _curve(file: Path, store: Store, adopted: Adopted) -> Adopted:
    """The epochs of a run by the paper's recipe for navigation: mast-l-paper-training.jsonl, a metrics.jsonl."""
    letter = file.stem.removeprefix("mast-").removesuffix("-paper-training").upper()
    if letter not in ("M", "L", "C"):
        raise MastError(f"{file} is not one of mast-m-paper-training.jsonl, mast-l-... and mast-c-...")
    try:
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise MastError(f"cannot read {file}: {error}") from None
    cell = Size().trained("navigation", "paper", f"{letter.lower()}-paper", policy={"variant": letter})
    columns = list(dict.fromkeys(name for row in rows for name in row))
    table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})
    spent = round(sum(row["seconds"] for row in rows), 1)
    _keep(adopted, store, cell, table, {"from": _source(file), "seconds": spent})
    return adopted
