"""What cells do: a function per kind, from plain settings to a result. Each runs in any process, on any machine."""

from __future__ import annotations

import hashlib
import io
import json
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from mast_swarm import __version__
from mast_swarm.comms.config import Channel
from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import make_actor, pick_device
from mast_swarm.evaluate.config import precision_on, settled
from mast_swarm.evaluate.policies import fitting
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.evaluate.run import Interrupted, evaluate
from mast_swarm.files import only_writer, read_json, write_json
from mast_swarm.files import plain as plain_json
from mast_swarm.paper.cells import WEIGHTS, Cell, Result, known_by
from mast_swarm.paper.cities import FOLDER
from mast_swarm.space import components
from mast_swarm.tasks import registry as tasks
from mast_swarm.train import checkpoint
from mast_swarm.train.config import TrainConfig, changed, from_plain, plain, recipe
from mast_swarm.train.family import rows_of, trainable_together
from mast_swarm.train.run import train, train_family
from mast_swarm.train.team import in_half_precision
from mast_swarm.train.tune_config import TuneConfig
from mast_swarm.view.terminal import lines
from mast_swarm.zoo import CONFIG_FILE, WEIGHTS_FILE

_KEPT = 10**9  # bytes of a replay that a checkpoint holds at most: many trainings may share a disk
_ENDED = "ended"  # a file in the folder of a run that has ended: its result has not been kept yet
INSTANTS = 81  # at most, that a table keeps of an episode: each 10 s of 800 s


def run(cell: Cell, files: Mapping[str, bytes], device: str, scratch: str) -> Result:
    """Do what a cell says. files: of the policy that it needs; scratch: a folder for what there is so far."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        found = KINDS[cell.kind](cell, Path(folder), device, Path(scratch).resolve() / cell.key)
    about = {**_about(device, time.monotonic() - began), **found.about}
    if files:
        about[WEIGHTS] = known_by(files)
    return Result(found.table, about, found.files)


def _about(device: str, seconds: float) -> dict[str, Any]:
    """What is said of every result."""
    place = pick_device(device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else platform.machine() + " CPU"
    return {"device": name, "seconds": round(seconds, 1), "version": __version__, "torch": torch.__version__}


def run_together(cells: Sequence[Cell], device: str, scratch: str) -> list[Result]:
    """Train the policies of several cells at once (`families`); a result for each, as `run` gives it.

    A family that was begun goes on as it was, with all its members. Its checkpoint stays until `forget`.
    """
    began, wanted = time.monotonic(), [configured(cell) for cell in cells]
    name = hashlib.sha256("".join(cell.key for cell in cells).encode()).hexdigest()[:16]
    there = (one for one in _begun(Path(scratch)) if all(config in one[1] for config in wanted))
    out, members = next(there, (Path(scratch) / f"family-{name}", wanted))
    out.parent.mkdir(parents=True, exist_ok=True)
    resumed, headline = train_family(members, out, device), tasks.task_of(members[0].world).metric.name
    spent = time.monotonic() - began
    found = []
    for config in wanted:
        number = members.index(config)
        rows = rows_of(out, number, headline)
        share = (_of_epochs(rows) if resumed else spent) / len(members)
        about = {**_about(device, share), "together": len(members), "resumed": resumed}
        about |= {"precision": _learned_in(config, device)}
        files = {one: (out / "best" / str(number) / one).read_bytes() for one in (CONFIG_FILE, WEIGHTS_FILE)}
        found.append(Result(_as_table(rows), {**about, "config": plain(config)}, files))
    return found


def _of_epochs(rows: Sequence[Mapping[str, Any]]) -> float:
    """The seconds of all epochs of a run, also of those before it was stopped."""
    return float(sum(row["seconds"] for row in rows))


def _learned_in(config: TrainConfig, device: str) -> str:
    return "bf16" if in_half_precision(config, pick_device(device)) else "fp32"


def forget(cells: Sequence[Cell], scratch: Path) -> None:
    """What training has left of policies whose results are kept: the checkpoint of a family, the mark of a run."""
    for cell in cells:
        (scratch / cell.key / _ENDED).unlink(missing_ok=True)
    wanted = [configured(cell) for cell in cells]
    for out, members in _begun(scratch):
        if all(config in members for config in wanted):
            (out / checkpoint.FILE).unlink()


def _begun(scratch: Path) -> list[tuple[Path, list[TrainConfig]]]:
    """The families that have a checkpoint: their folders and members."""
    found = []
    for path in sorted(scratch.glob(f"family-*/{checkpoint.FILE}")):
        try:
            found.append((path.parent, [from_plain(one) for one in checkpoint.about(path.parent)["members"]]))
        except (MastError, KeyError):  # damaged, or of another version: it is not gone on with
            continue
    return found


def configured(cell: Cell) -> TrainConfig:
    """The settings of a cell that trains."""
    return changed(recipe(cell.settings["recipe"], tasks.find(cell.settings["task"])), cell.settings["settings"])


def families(cells: Iterable[Cell], most: int, scratch: Path) -> list[list[Cell]]:
    """Cells that train, in groups of up to `most` that can be trained together. What was begun in the folder `scratch`
    comes first, with those with whom it was begun."""
    left, begun = list(cells), list[list[Cell]]()
    for _, members in _begun(scratch):
        if mine := [cell for cell in left if configured(cell) in members]:
            begun.append(mine)
            left = [cell for cell in left if cell not in mine]
    begun += [[cell] for cell in left if (scratch / cell.key / checkpoint.FILE).exists()]
    groups: list[list[Cell]] = []
    for cell in (one for one in left if [one] not in begun):
        fits = (g for g in groups if trainable_together([configured(g[0]), configured(cell)]))
        group = next((g for g in fits if len(g) < most), None) if most > 1 else None
        if group is None:
            groups.append(group := [])
        group.append(cell)
    return begun + groups


def is_family(cells: Sequence[Cell], scratch: Path) -> bool:
    """Whether a group of `families` is trained by `run_together`: it has several members, or had when it was begun."""
    return len(cells) > 1 or any(configured(cells[0]) in members for _, members in _begun(scratch))


def _as_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: pa.array([row.get(name) for row in rows]) for name in columns})


def _evaluation(given: Mapping[str, Any], folder: Path, device: str) -> tuple[str, Any]:
    """The task and the configuration of an evaluation, by the settings of a cell."""
    settings = dict(given)
    task = settings.pop("task")
    if settings["policy"] == "trained":
        settings["policy"] = str(folder)
    for name in ("weights", "trained", "points"):
        settings.pop(name, None)
    if "city" in settings:
        settings["density"] = f"points:{FOLDER / settings.pop('city')}"
    precision = precision_on(pick_device(device).type)
    return task, settled(tasks.find(task), device=device, precision=precision, **settings)


def _evaluate(cell: Cell, folder: Path, device: str, scratch: Path) -> Result:
    """Every metric of every episode, at instants that are evenly spread. Goes on with an evaluation that was stopped,
    if it was of the same policy and with the same arithmetic."""
    began, run, policy, state = time.monotonic(), scratch / "run", scratch / "policy", scratch / "state.json"
    with only_writer(scratch):
        given = {path.name: path.read_bytes() for path in folder.iterdir()}
        precision = precision_on(pick_device(device).type)
        task, config = _evaluation(cell.settings, policy, device)
        said = json.dumps(asdict(config), default=plain_json)
        mine = {"version": __version__, "precision": precision, WEIGHTS: known_by(given) if given else ""}
        mine |= {"settings": hashlib.sha256(said.encode()).hexdigest()[:16]}  # of another version, or elsewhere
        before = read_json(state) or {}
        if mine != {name: before.get(name) for name in mine}:
            _clear(state, run, policy)
            shutil.copytree(folder, policy)
            before = mine
        resumed, line = run.exists(), lines()

        def spent() -> float:
            return round(before.get("seconds", 0.0) + time.monotonic() - began, 1)

        try:
            write_json(state, before)
            to_end = replace(config, out=run, resume=True)
            evaluate(task, to_end, lambda name, done, total: line(cell.label, done, total))
        except Interrupted as stopped:
            raise stopped.by from None
        finally:
            write_json(state, mine | {"seconds": spent()})
            if not run.exists():  # nothing was finished
                _clear(state, policy)
        table = pq.read_table(run / "episodes.parquet")
        _clear(state, run, policy)
    about: dict[str, Any] = {"resumed": True, "seconds": spent()} if resumed else {}
    about |= {"precision": precision if cell.learned else "fp32"}  # controllers stay in full precision
    return Result(thinned(table, config.world.dt), about)


def _clear(*paths: Path) -> None:
    """Remove them in this order: what says that others can be gone on with comes first."""
    for path in paths:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def thinned(table: pa.Table, dt: float) -> pa.Table:
    """Of an evaluation's table what a cell keeps: episode, t and the metrics, at no more than INSTANTS instants."""
    names = table.column_names
    kept = ["episode", *names[names.index("t") :]]
    steps = round(float(pc.max(table["t"]).as_py()) / dt)
    every = max(1, -(-steps // (INSTANTS - 1)))
    number = np.round(table["t"].to_numpy() / dt).astype(int)
    chosen = table.filter(pa.array((number % every == 0) | (number == steps))).select(kept)
    rounded = [pc.round(chosen[name], 6) if name not in ("episode", "t") else chosen[name] for name in kept]
    return pa.table(dict(zip(kept, rounded, strict=True)))


def _train(cell: Cell, folder: Path, device: str, scratch: Path) -> Result:
    """A policy, and the numbers of each epoch. Goes on with a run that was stopped, where its folder is still there,
    also where it was stopped between its end and the moment when its result was kept."""
    config = configured(cell)
    scratch.parent.mkdir(parents=True, exist_ok=True)
    ended, stopped = (scratch / _ENDED).exists(), (scratch / checkpoint.FILE).exists()
    if not ended:
        if not stopped and scratch.exists():  # a run whose result was kept, or that never began
            shutil.rmtree(scratch)
        # What the expert gathers before the first update can be gathered again, and a large replay fills anew.
        kept = 0 if config.collect else _KEPT
        train(config, scratch, resume=stopped, device=device, checkpoint_seconds=60.0, largest_replay=kept)
        (scratch / _ENDED).touch()
    rows = [json.loads(line) for line in (scratch / "metrics.jsonl").read_text().splitlines()]
    files = {name: (scratch / "best" / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE)}
    for path in sorted(scratch.glob("*.safetensors")):  # checkpoints: the run is at its end
        path.unlink()
    about: dict[str, Any] = {"resumed": ended or stopped, "config": plain(config)}
    about |= {"precision": _learned_in(config, device)}
    if ended or stopped:  # what came before took time too
        about["seconds"] = round(_of_epochs(rows), 1)
    return Result(_as_table(rows), about, files)


def _connectivity(cell: Cell, folder: Path, device: str, scratch: Path) -> Result:
    """Of start states: how the communication graph falls apart, and what nobody sees."""
    task, config = _evaluation({**cell.settings, "policy": "lsap", "steps": 1}, folder, "cpu")
    world = tasks.find(task).make(config.world)
    rows: dict[str, list[float]] = {name: [] for name in ("episode", "parts", "largest", "together", "goals_seen")}
    for episode, (seed, scenario) in enumerate(zip(config.seeds(), config.scenarios(), strict=True)):
        state = world.reset([seed], [scenario])
        seen = world.observe(state)
        sizes = torch.unique(components(seen.graph)[0], return_counts=True)[1].double()
        robots, goals = state.positions.shape[1], state.goals.shape[1]
        found = {
            "episode": episode,
            "parts": len(sizes),
            "largest": float(sizes.max()) / robots,  # share of the robots
            "together": float((sizes**2).sum()) / robots**2,  # probability that two robots can reach each other
            "goals_seen": len(torch.unique(seen.goals_seen[seen.goals_seen >= 0])) / goals,
        }
        for name, value in found.items():
            rows[name].append(value)
    return Result(pa.table(rows), {})


def _spacing(cell: Cell, folder: Path, device: str, scratch: Path) -> Result:
    """Where robots stand at the end of a rollout: how even their distances are, and how much lies under them."""
    task, config = _evaluation(cell.settings, folder, device)
    found = tasks.find(task)
    world = found.make(fitting(config.world, config.policy), pick_device(config.device))
    channel = None if config.delay is None else Channel(delay=config.delay)
    rows: dict[str, list[float]] = {name: [] for name in ("episode", "nearest", "unevenness", "importance", "cost")}
    for episode, seed in enumerate(config.seeds()):
        ran = rollout(world, make_actor(config.policy[0], world, channel), [seed], config.steps)
        places = ran.state.positions[0].cpu().double()
        apart = torch.cdist(places, places).fill_diagonal_(float("inf")).amin(1)
        density: torch.Tensor = ran.state.density[0].cpu()  # type: ignore[attr-defined]
        square = (places / world.config.resolution).long().clamp(0, density.shape[-1] - 1)
        rows["episode"].append(episode)
        rows["nearest"].append(float(apart.mean()))  # m, to the nearest robot
        rows["unevenness"].append(float(apart.std() / apart.mean()))  # 0: all distances are equal
        rows["importance"].append(float(density[square[:, 1], square[:, 0]].double().mean() / density.double().mean()))
        rows["cost"].append(float(ran.metrics["cost_time_average"][0, -1]))
    return Result(pa.table(rows), {"precision": "fp32"})


def _paths(cell: Cell, folder: Path, device: str, scratch: Path) -> Result:
    """Where every robot is, at each `every`-th step of one rollout, and the cost then."""
    settings = dict(cell.settings)
    every = settings.pop("every")
    task, config = _evaluation(settings, folder, device)
    world = tasks.find(task).make(fitting(config.world, config.policy), pick_device(config.device))
    channel = None if config.delay is None else Channel(delay=config.delay)
    ran = rollout(world, make_actor(config.policy[0], world, channel), config.seeds()[:1], config.steps, record=1)
    places = ran.recordings[0].positions[::every]  # [T, N, 2] m
    instants, robots = places.shape[:2]
    columns = {
        "step": np.repeat(np.arange(instants) * every, robots),
        "robot": np.tile(np.arange(robots), instants),
        "x": places[..., 0].astype(np.float64).round(2).ravel(),
        "y": places[..., 1].astype(np.float64).round(2).ravel(),
        "cost": np.repeat(ran.metrics["cost"][0, ::every].astype(np.float64).round(6), robots),
    }
    return Result(pa.table(columns), {"precision": "fp32"})


def _search(cell: Cell, folder: Path, device: str, scratch: Path) -> Result:
    """A search for hyper-parameters: a row per trial."""
    settings = cell.settings
    from mast_swarm.train.tune import trials, tune

    given: Any = {n: tuple(value) if isinstance(value, list) else value for n, value in settings["settings"].items()}
    study = tune(settings["task"], TuneConfig(**{**given, "out": scratch, "device": device}), settings.get("changes"))
    return Result(trials(study), {})


Kind = Callable[[Cell, Path, str, Path], Result]  # what to do, the folder of its policy, the device, its own scratch
KINDS: dict[str, Kind] = {
    "evaluate": _evaluate,
    "train": _train,
    "connectivity": _connectivity,
    "spacing": _spacing,
    "paths": _paths,
    "search": _search,
}


def as_bytes(figure: Any, kind: str) -> bytes:
    """A figure as a file."""
    out = io.BytesIO()
    figure.savefig(out, format=kind, **({"metadata": {"CreationDate": None}} if kind == "pdf" else {}))
    return out.getvalue()
