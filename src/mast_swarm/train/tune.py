"""The search for hyper-parameters that `mast tune` runs, with Optuna: TPE and Hyperband over a study that is kept."""

from __future__ import annotations

import json
import shlex
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from mast_swarm.errors import MastError, Terminated
from mast_swarm.evaluate.actors import pick_device
from mast_swarm.files import check_writable, whole_file
from mast_swarm.pool import Job, pool
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Task
from mast_swarm.train.config import TrainConfig, changed, from_plain, from_toml, plain, recipe, recipes
from mast_swarm.train.study import (
    SET_HERE,
    SPACE,
    Others,
    counted,
    finished_and_running,
    open_study,
    optuna_here,
    others_of,
    try_again,
    url_of,
)
from mast_swarm.train.trainer import RunOptions, Trainer
from mast_swarm.train.tune_config import TuneConfig
from mast_swarm.train.watch import Shown, watched

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.trial import FrozenTrial

Drawn = Callable[["Study", Task, Path], None]  # draws a study into a folder
_WAIT = 2.0  # s between two looks whether a study that others work on has room


@dataclass(frozen=True)
class Search:
    """What is searched, and where the results go."""

    given: str  # the task as the user names it
    recipe: str
    named: TrainConfig  # that recipe
    base: TrainConfig  # what all trials start from
    out: Path

    @property
    def task(self) -> Task:
        return tasks.task_of(self.base.world)

    @property
    def command(self) -> str:
        """Trains with the best settings."""
        given = ["mast", "train", self.given, "--recipe", self.recipe, "--config", str(self.out / "best.toml")]
        return shlex.join(given)


def search_of(task_name: str, config: TuneConfig, changes: Mapping[str, Any] | None = None) -> Search:
    """The search that settings ask for. changes: as of `tune`."""
    task = tasks.find(task_name)
    known = recipes(task)
    name = config.recipe or ("search" if "search" in known else next(iter(known)))
    named = base = recipe(name, task)
    if config.config is not None:
        base = from_toml(config.config, base)
    base = changed(base, changes or {})
    base = replace(base, validate_every=1, epochs=base.collect + config.most, seed=config.seed)
    return Search(task_name, name, named, base, config.out or Path(f"runs/tune-{task.name}"))


def tune(
    task_name: str,
    config: TuneConfig,
    changes: Mapping[str, Any] | None = None,
    drawn: Drawn | None = None,
    shown: Shown = lambda far: None,
) -> Study:
    """Run trials until the study has as many as asked for; gives the study. What is finished is kept.

    changes: settings of the recipe that differ, as a TOML file would give them; drawn: draws the study at the end;
    shown: shows meanwhile how far it is.
    """
    search = search_of(task_name, config, changes)
    optuna_here()
    if config.ray is None:
        pick_device(config.device)  # says so if there is none
    url = url_of(config.storage or str(search.out / "study.db"))
    if config.ray is not None and url.startswith("sqlite"):
        raise MastError("--ray needs a --storage that every machine reaches: postgresql://USER:PASSWORD@HOST/DATABASE")
    check_writable(search.out)
    study = open_study(url, config.study or search.task.name, config, search.base)
    _fail_dead(study, url)
    workers = pool(config.ray, config.workers)
    given = (url, study.study_name, config, plain(search.base))
    many = f"; {config.workers} at a time" if config.workers > 1 else ""
    print(f"search: {search.out}; study '{study.study_name}': {counted(study, config.trials)}{many}", flush=True)
    try:
        with watched(study, config, lambda: write(study, search), shown):
            for _ in workers.run([Job(f"trials-{n}", work, (*given, n), config.gpus) for n in range(config.workers)]):
                pass
    except KeyboardInterrupt as stopped:
        _fail_dead(study, url)  # a second Ctrl-C ends workers where they are
        kept = "; what was finished is kept" if finished_and_running(study)[0] else ""
        stands = f"interrupted; {counted(study, config.trials)}{kept}; the same command goes on"
        raise type(stopped)(stands) from None
    finally:
        workers.close()
        if drawn is not None and finished_and_running(study)[0]:
            drawn(study, search.task, search.out)
    return study


def _fail_dead(study: Study, url: str) -> None:
    """Let trials fail whose processes have died, so that they count as what is to be tried again."""
    others = others_of(url, study.study_name)
    with others.turn():
        others.fail_dead(study)


class Stop:
    """What Ctrl-C and SIGTERM ask for. They end training at once, and all around it in good order: a transaction that
    is cut off in the middle would leave the database locked, for this process and for all others."""

    def __init__(self) -> None:
        self.asked, self._at_once = 0, False

    def __call__(self, number: int, frame: object) -> None:
        first = not self.asked
        if self.asked != signal.SIGTERM:  # which a Ctrl-C after it does not make milder
            self.asked = number
        if first and self._at_once:
            self.error()

    def error(self) -> None:
        raise Terminated if self.asked == signal.SIGTERM else KeyboardInterrupt

    @contextmanager
    def heard(self, *, at_once: bool) -> Iterator[None]:
        """Within it they raise their error at once; or else at its end, if what is around it hears them at once."""
        before = self._at_once
        try:
            self._at_once = at_once
            if at_once and self.asked:
                self.error()
            yield
        finally:
            self._at_once = before
        if before and self.asked:
            self.error()


@contextmanager
def stoppable() -> Iterator[Stop]:
    """Within it Ctrl-C and SIGTERM are heard by what it gives; outside the main thread by nobody."""
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if stop.asked == signal.SIGTERM:  # whoever has begun this decides what it means: it ends a process of a pool
            signal.raise_signal(stop.asked)


def work(url: str, name: str, config: TuneConfig, base: dict[str, Any], worker: int) -> None:
    """Run trials of a study, in any process, until it has enough. Trials that others run count; if one of them dies,
    its settings are tried here."""
    with stoppable() as stop:
        optuna = optuna_here()
        start = from_plain(base)
        study = open_study(url, name, config, start)
        # Nobody proposes what another has: a worker, a machine that shares the database, and a study that goes on.
        place = [config.seed, len(study.get_trials(deepcopy=False)), worker]
        place += socket.gethostname().encode() if url.startswith("postgresql") else b""
        study.sampler = optuna.samplers.TPESampler(seed=int(np.random.default_rng(place).integers(2**31)))
        others = others_of(url, name)
        while not stop.asked:
            if _next_trial(study, others, stop, start, config):
                continue
            if finished_and_running(study)[0] >= config.trials:
                return
            time.sleep(_WAIT)
        stop.error()


def _next_trial(study: Study, others: Others, stop: Stop, base: TrainConfig, config: TuneConfig) -> bool:
    """Run one trial, if the study has room for it; whether it has."""
    with ExitStack() as turn, ExitStack() as life:
        turn.enter_context(others.turn())
        others.fail_dead(study)
        try_again(study)
        if sum(finished_and_running(study)) >= config.trials:
            return False

        def begun(trial: Trial) -> float:
            life.enter_context(others.alive(trial._trial_id))
            turn.close()
            return _attempt(trial, stop, base, config)

        study.optimize(begun, n_trials=1, catch=(torch.OutOfMemoryError,))
        return True


def _attempt(trial: Trial, stop: Stop, base: TrainConfig, config: TuneConfig) -> float:
    """A trial that says why it ended, where it is neither complete nor ended by Hyperband."""
    try:
        return objective(trial, base, config, stop)
    except optuna_here().TrialPruned:
        raise
    except KeyboardInterrupt:
        trial.set_user_attr("interrupted", True)
        raise
    except torch.OutOfMemoryError:
        trial.set_user_attr("ended", "out of memory")
        raise
    except Exception as error:
        trial.set_user_attr("ended", f"{type(error).__name__}: {error}")
        raise


def proposed(trial: Trial, config: TuneConfig) -> dict[str, Any]:
    """The settings that a trial tries."""
    return {
        "layers": trial.suggest_int("layers", *config.layers),
        "heads": trial.suggest_int("heads", *config.heads),
        "head_dim": trial.suggest_int("head_dim", *config.head_dim, step=4),
        "lr": trial.suggest_float("lr", *config.lr, log=True),
        "weight_decay": trial.suggest_float("weight_decay", *config.weight_decay, log=True),
        "dropout": trial.suggest_float("dropout", *config.dropout),
    }


def in_tables(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a trial, where a recipe has them."""
    policy = {name: settings[name] for name in ("layers", "heads", "head_dim", "dropout")}
    return {"lr": settings["lr"], "weight_decay": settings["weight_decay"], "policy": policy}


def configured(base: TrainConfig, settings: Mapping[str, Any]) -> TrainConfig:
    """A recipe with the settings of a trial in place of its own."""
    return changed(base, in_tables(settings))


def objective(trial: Trial, base: TrainConfig, config: TuneConfig, stop: Stop) -> float:
    """The best validation of a trial's training; ends it early where Hyperband says so, and where stop is asked to."""
    optuna = optuna_here()
    settings = configured(base, proposed(trial, config))
    headline = tasks.task_of(base.world).metric.name
    values: list[float] = []

    def report(row: dict[str, Any]) -> None:
        if headline in row:
            values.append(float(row[headline]))
            with stop.heard(at_once=False):
                trial.report(values[-1], epoch := row["epoch"] - base.collect)
                # One that has come to its end is complete, whatever Hyperband says: else the best may be passed over.
                if epoch < config.most and trial.should_prune():
                    raise optuna.TrialPruned

    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(Path(folder) / "run", pick_device(config.device), 1e9, keep_replay=False)
        try:
            # Each trial has a network of its own, and to compile one takes longer than most trials learn.
            with torch.compiler.set_stance("force_eager"), stop.heard(at_once=True):
                Trainer(settings, options).run(report)
        except MastError as error:
            if "not finite" not in str(error):
                raise
            trial.set_user_attr("ended", "the loss was not finite")
            raise optuna.TrialPruned from None
    return min(values) if tasks.task_of(base.world).metric.lower_is_better else max(values)


def told(study: Study, asked: int) -> str:
    """How a study stands that is to have so many trials, in a line."""
    if not _complete(study):
        return f"{counted(study, asked)}; none came to its last epoch"
    best = ", ".join(f"{name} {value:.4g}" for name, value in study.best_params.items())
    return f"{counted(study, asked)}; best {study.best_value:.4f} with {best}"


def _complete(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(optuna_here().trial.TrialState.COMPLETE,))


def trials(study: Study) -> pa.Table:
    """A row per finished trial."""
    rows = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.is_finished():
            spent = None if trial.duration is None else trial.duration.total_seconds()
            about = {"number": trial.number, "state": trial.state.name, "value": trial.value, "epochs": trial.last_step}
            rows.append({**about, "seconds": spent, **{name: trial.params.get(name) for name in SPACE}})
    return pa.table({name: pa.array([row[name] for row in rows]) for name in (rows[0] if rows else ())})


def write(study: Study, search: Search) -> None:
    """trials.parquet, and the best settings as TOML, as far as the study has come."""
    table = trials(study)
    if table.num_rows:
        with whole_file(search.out / "trials.parquet") as part:
            pq.write_table(table, part)
    if _complete(study):
        best = study.best_trial
        text = f"# {search.command}\n# trial {best.number} of study '{study.study_name}': {best.value:.4f}\n"
        with whole_file(search.out / "best.toml") as part:
            part.write_text(text + as_toml(best_settings(search, best.params)), encoding="utf-8")


def best_settings(search: Search, params: Mapping[str, Any]) -> dict[str, Any]:
    """What of the named recipe is to be changed for a trial's training: its settings, and all in which the search
    differs but for those that it sets itself."""
    best, named = plain(configured(search.base, params)), search.named
    found: dict[str, Any] = {}
    if best["policy"].get("kind") != plain(named)["policy"].get("kind"):
        found["policy"] = {"kind": best["policy"]["kind"]}
        named = changed(named, found)
    differs = _differing(plain(named), {name: value for name, value in best.items() if name not in SET_HERE})
    return _merged(_merged(found, differs), in_tables(params))


def _differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in new.items():
        if isinstance(value, Mapping) and isinstance(old.get(name), Mapping):
            if inside := _differing(old[name], value):
                found[name] = inside
        elif name not in old or old[name] != value:
            found[name] = value
    return found


def _merged(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    both = {n: _merged(one[n], other[n]) for n in one if isinstance(one[n], Mapping) and n in other}
    return {**one, **other, **both}


def as_toml(settings: Mapping[str, Any], table: str = "") -> str:
    """Settings as `from_toml` reads them: an optional one that is not set is "none"."""
    plain_ones = {name: value for name, value in settings.items() if not isinstance(value, Mapping)}
    text = "".join(f"{n} = {json.dumps('none' if value is None else value)}\n" for n, value in plain_ones.items())
    for name, value in settings.items():
        if isinstance(value, Mapping):
            text += f"\n[{table}{name}]\n{as_toml(value, f'{table}{name}.')}"
    return text
