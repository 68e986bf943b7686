"""What `mast reproduce` does: run the cells that are missing, then tables, figures and rows of each experiment."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch

import mast_swarm
from mast_swarm.errors import MastError, Terminated, told_by, unknown
from mast_swarm.evaluate.actors import pick_device
from mast_swarm.files import check_writable, whole_file, write_json
from mast_swarm.paper import coverage, navigation, properties, rollouts, study  # noqa: F401  (they declare their experiments)
from mast_swarm.paper.adopt import adopt
from mast_swarm.paper.cells import Cell, Result, Store
from mast_swarm.paper.claims import CLAIMS
from mast_swarm.paper.config import ReproduceConfig
from mast_swarm.paper.effort import work_of
from mast_swarm.paper.experiment import EXPERIMENTS, Experiment, Found, Report, Size
from mast_swarm.paper.measured import flat
from mast_swarm.paper.report import write_report
from mast_swarm.paper.work import as_bytes, families, forget, is_family, run, run_together
from mast_swarm.pool import Job, pool

_TOGETHER = 25  # policies of the paper's sizes that one GPU trains at once


def reproduce(config: ReproduceConfig) -> list[Report]:
    """Run, draw and report what was asked for; prints how it goes."""
    for name in config.names:
        if name not in EXPERIMENTS:
            raise unknown("experiment", name, EXPERIMENTS)
    store, size = Store(folder(config)), Size(config.quick)
    if not config.list:
        check_writable(folder(config))  # before anything is computed
    elif folder(config).is_file():
        raise MastError(f"--out {folder(config)} is a file: give a folder")
    sizes = (size, Size(not config.quick)) if config.adopt else ()
    asked = [cell for each in sizes for one in EXPERIMENTS.values() for cell in one.cells(each).values()]
    for given in config.adopt:
        print("\n  ".join(adopt(given, store, asked).told(given)), flush=True)
    if config.list:
        _show(store, size, config)
        return []
    chosen = list(EXPERIMENTS) if config.all else list(config.names)
    if not chosen and (config.paired or not config.report):
        if config.adopt and not config.paired:
            return []
        raise MastError(f"name an experiment, or give --all or --report; there are {', '.join(EXPERIMENTS)}")
    cells = {name: dict(EXPERIMENTS[name].cells(size)) for name in chosen}
    every = [cell for found in cells.values() for cell in found.values()]
    _check_words(config.only, every)
    if not config.kept:
        if config.ray is None:
            pick_device(config.device)  # one that is not there is refused before anything runs
        _run_missing(every, store, config)
    elif not config.all:
        _check_any(every, store, config)
    for name in chosen:
        made = _one(EXPERIMENTS[name], cells[name], store, size, folder(config))
        count = f"{len(made.results)} of {len(made.cells)} cells, " if made.cells else ""
        print(f"{name}: {count}{folder(config) / 'figures' / name}.png", flush=True)
        if size.quick and made.rows:
            print("  of --quick, whose numbers say nothing:")
        for row in made.rows:
            print(f"  {row.claim}, {CLAIMS[row.claim]}: {row.verdict}", flush=True)
    reports = [_gathered(experiment, store, size) for experiment in EXPERIMENTS.values()] if config.report else []
    if config.report:
        print(f"report: {write_report(reports, folder(config), size)}")
    return reports


def folder(config: ReproduceConfig) -> Path:
    """Where results are."""
    if config.out is not None:
        return config.out
    if config.quick:
        return Path("runs/reproduce-quick")
    # Of a clone: where the package is installed from it, or where the command is run in it.
    kept = Path("docs/results")
    for clone in (Path(mast_swarm.__file__).parents[2] / kept, Path.cwd() / kept):
        if (clone / "cells").is_dir():
            return clone
    return Path("runs/reproduce")


def _show(store: Store, size: Size, config: ReproduceConfig) -> None:
    """The experiments and how much of each is there; of those that are named, every cell, or those of --only."""
    named = {name: list(EXPERIMENTS[name].cells(size).values()) for name in config.names}
    _check_words(config.only, [cell for found in named.values() for cell in found])
    for name, found in named.items():
        if not found:
            print(f"{name}  needs no cells")
        several = len({cell.settings.get("seed") for cell in found}) > 1
        for cell in (one for one in found if _meant(one, config.only)):
            seed = f"  start states of seed {cell.settings['seed']}" if several and "seed" in cell.settings else ""
            print(f"{name}  {_state(cell, store):<8}  {cell.name}{seed}")
    if config.names:
        return
    width = max(map(len, EXPERIMENTS))
    for name, experiment in EXPERIMENTS.items():
        cells = list(experiment.cells(size).values())
        states = [_state(cell, store) for cell in cells]
        count = f"{len(cells) - states.count('missing') - states.count('outdated'):>3} of {len(cells):>3} cells"
        means = f" ({states.count('means')} as means only: --paired)" if "means" in states else ""
        print(f"{name:<{width}}  {count if cells else 'needs no cells'}  {experiment.title}{means}")


def _state(cell: Cell, store: Store) -> str:
    result = store.load(cell)
    if result is None:
        return "outdated" if store.outdated(cell) else "missing"
    return "means" if result.means_only else "there"


def _meant(cell: Cell, words: tuple[str, ...]) -> bool:
    """Whether a cell is one of those of --only; without words all are."""
    return not words or any(word in cell.name for word in words)


def _check_words(words: tuple[str, ...], cells: list[Cell]) -> None:
    """Raise an error that names the first word of --only that no cell has."""
    for word in words if cells else ():
        if not any(word in cell.name for cell in cells):
            raise unknown("word of --only", word, {cell.label or cell.kind for cell in cells})


def _check_any(cells: list[Cell], store: Store, config: ReproduceConfig) -> None:
    """Refuse to draw what has nothing to draw."""
    if cells and all(store.load(cell) is None for cell in cells):
        hint = "" if config.quick else ", give --quick if they are of that size,"
        raise MastError(
            f"{store.cells} has none of these cells: leave --kept away to run them{hint} or copy them there"
        )


def _run_missing(cells: Iterable[Cell], store: Store, config: ReproduceConfig) -> None:
    """Run what is not there: first the training that the others need, then the others."""
    wanted = [cell for cell in cells if _meant(cell, config.only)]
    missing = {cell.key: cell for cell in wanted if _lacking(store.load(cell), config.paired)}
    needed = [cell.needs for cell in missing.values() if cell.needs is not None]
    first = {c.key: c for c in (*needed, *missing.values()) if c.kind == "train" and _untrained(c, store)}
    then = {key: cell for key, cell in missing.items() if key not in first and cell.kind != "train"}
    again = _again(first, {cell.needs.key for cell in wanted if cell.needs is not None}, store, Size(config.quick))
    then |= {cell.key: cell for cell in again}
    if not first and not then:
        return
    cuda = config.device == "cuda" or (config.device == "auto" and torch.cuda.is_available())
    jobs = config.jobs or (1 if cuda else os.cpu_count() or 1)
    workers = pool(config.ray, jobs)
    began, done, total = time.monotonic(), 0, len(first) + len(then)
    anew = len({cell.key for cell in again})
    more = f", {anew} of them again, because their policy is trained again" if anew else ""
    work = work_of(first.values(), then.values())
    slow = "" if cuda or config.ray is not None else ", on a CPU days" if first else ", on a CPU many times as long"
    takes = "" if config.quick else f"; about {work.took} on an H200{slow}"
    print(f"to train: {len(first)}; to run: {len(then)}{more}; {jobs} at a time{takes}", flush=True)
    scratch = folder(config) / "scratch"
    together = config.together or (_TOGETHER if cuda and config.ray is None else 1)
    trained = families(first.values(), together, scratch)

    def job(cells: list[Cell]) -> Job:
        place = (config.device, str(scratch))
        if cells[0].kind == "train" and is_family(cells, scratch):
            return Job(cells[0].name, run_together, ([_bare(c) for c in cells], *place), config.gpus)
        return Job(cells[0].name, run, (_bare(cells[0]), _given(cells[0], store), *place), config.gpus)

    kept: set[str] = set()  # the keys of what is there by now
    begun: dict[str, list[Cell]] = {}  # the cells of each job

    def ready(groups: Iterable[list[Cell] | None]) -> Iterator[Job | None]:
        for cells in groups:
            if config.seconds is not None and time.monotonic() - began >= config.seconds:
                return
            if cells is not None:
                begun[cells[0].name] = cells
            yield None if cells is None else job(cells)

    # A cluster takes all jobs at once: there the policies come first.
    waves = [trained, [[cell] for cell in then.values()]] if config.ray else [_in_turn(trained, then, kept)]
    try:
        for wave in waves:
            for ran, found in workers.run(ready(wave)):
                cells = begun[ran.name]
                for cell, result in zip(cells, found if isinstance(found, list) else [found], strict=True):
                    store.save(cell, result)
                    kept.add(cell.key)
                    done += 1
                    print(f"{done} of {total}: {cell.name}: {result.about['seconds']:.0f} s", flush=True)
                if cells[0].kind == "train":
                    forget(cells, scratch)
        if done < total:
            print(f"{config.seconds:g} s are over: {total - done} cells are left, the same command goes on")
    except MastError as error:
        raise MastError(f"{error}; {done} of {total} cells are kept, and the same command goes on") from None
    except KeyboardInterrupt as stopped:
        told = f"interrupted; {done} of {total} cells are kept; the same command goes on"
        raise (Terminated if told_by(stopped) == signal.SIGTERM else KeyboardInterrupt)(told) from None
    finally:
        workers.close()


def _in_turn(trained: list[list[Cell]], then: Mapping[str, Cell], kept: Collection[str]) -> Iterator[list[Cell] | None]:
    """What is trained, and then the others, each when the policy that it needs is there; None: they all wait for one.
    kept: the keys of what is there, which grows meanwhile."""
    yield from trained
    awaited, left = {cell.key for cells in trained for cell in cells}, list(then.values())
    while left:
        free = (cell for cell in left if cell.needs is None or cell.needs.key not in awaited or cell.needs.key in kept)
        chosen = next(free, None)
        if chosen is not None:
            left.remove(chosen)
        yield None if chosen is None else [chosen]


def _again(first: Collection[str], needed: Collection[str], store: Store, size: Size) -> list[Cell]:
    """A policy that is trained again is another one: the cells of all experiments that its earlier weights gave are run
    again with it. first: the keys of those to train; needed: of all that are needed here, of which some may have been
    trained again by a command that was stopped, and are at hand."""
    found = []
    for experiment in EXPERIMENTS.values() if first or needed else ():
        for cell in experiment.cells(size).values():
            if cell.needs is not None:
                was = cell.needs.key in needed and store.outdated(cell) and store.files(cell.needs) is not None
                will = cell.needs.key in first and store.load(cell) is not None
                found += [cell] * (was or will)
    return found


def _lacking(result: Result | None, paired: bool) -> bool:
    """Whether a cell is to be run; paired: also where only means are known."""
    return result is None or (paired and result.means_only)


def _untrained(cell: Cell, store: Store) -> bool:
    return store.load(cell) is None or store.files(cell) is None


def _bare(cell: Cell) -> Cell:
    """A cell as it is sent to where it runs."""
    return Cell(cell.kind, dict(cell.settings), cell.label)


def _given(cell: Cell, store: Store) -> dict[str, bytes]:
    """The files that a cell is given: of the policy that was trained for it."""
    if cell.needs is None:
        return {}
    return store.files(cell.needs) or {}


def kept_of(experiment: Experiment, store: Store, size: Size, cells: Mapping[str, Cell] | None = None) -> Found:
    """The results of an experiment's cells that are there."""
    cells = dict(experiment.cells(size)) if cells is None else cells
    loaded = {name: store.load(cell) for name, cell in cells.items()}
    return Found(cells, {name: result for name, result in loaded.items() if result is not None}, size)


def _gathered(experiment: Experiment, store: Store, size: Size, cells: Mapping[str, Cell] | None = None) -> Report:
    found = kept_of(experiment, store, size, cells)
    needs = {cell.needs.key: cell.needs for cell in found.cells.values() if cell.needs is not None}
    trained = [(cell, result) for cell in needs.values() if (result := store.load(cell)) is not None]
    return Report(experiment, experiment.rows(found), found.cells, found.results, trained)


def _one(experiment: Experiment, cells: Mapping[str, Cell], store: Store, size: Size, out: Path) -> Report:
    """Table, figure and rows of one experiment, of what is there."""
    made = _gathered(experiment, store, size, cells)
    found = Found(cells, made.results, size)
    for name in ("tables", "figures", "rows"):
        (out / name).mkdir(parents=True, exist_ok=True)
    rows = (experiment.table or _evaluations)(found)
    if rows:
        columns = list(dict.fromkeys(name for row in rows for name in row))
        table = pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})
        with whole_file(out / "tables" / f"{experiment.name}.parquet") as part:
            # Means hardly ever come twice: without dictionaries files are smaller.
            pq.write_table(table, part, compression="zstd", compression_level=12, use_dictionary=False)
    write_json(out / "rows" / f"{experiment.name}.json", [vars(row) for row in made.rows])
    if experiment.draw is not None:
        from matplotlib.figure import Figure

        from mast_swarm.view.style import style

        with style():
            figure = Figure(figsize=experiment.shape, layout="constrained")
            experiment.draw(found, figure)
            if size.quick:
                figure.suptitle("--quick: these numbers say nothing", fontsize=8, color="gray")
            for kind in ("png", "pdf"):
                with whole_file(out / "figures" / f"{experiment.name}.{kind}") as part:
                    part.write_bytes(as_bytes(figure, kind))
    return made


def _evaluations(found: Found) -> list[dict[str, object]]:
    """The rows of all evaluations of an experiment, with the settings that tell them apart."""
    rows = []
    for name in found:
        cell = found.cells[name]
        if cell.kind == "evaluate":
            plain = {
                k: v
                for k, v in cell.settings.items()
                if isinstance(v, int | float | str) and k not in ("policy", "weights")
            }
            rows += flat(found.measured(name), name, **plain)
        else:
            table = found[name].table.to_pylist()
            rows += [{"cell": name, **row} for row in table]
    return rows
