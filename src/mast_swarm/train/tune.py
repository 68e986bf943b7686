"""The search for hyper-parameters that `mast tune` runs, with Optuna: TPE and Hyperband over a study that is kept."""

from __future__ import annotations

import re
import socket
import tempfile
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import pick_device
from mast_swarm.files import whole_file
from mast_swarm.pool import Job, check_reachable, pool
from mast_swarm.tasks import registry as tasks
from mast_swarm.train.config import TrainConfig, changed, from_plain, from_toml, plain, recipe, recipes
from mast_swarm.train.trainer import RunOptions, Trainer
from mast_swarm.train.tune_config import TuneConfig

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.storages import RDBStorage

_SPACE = ("layers", "heads", "head_dim", "lr", "weight_decay", "dropout")
_BEAT = 30  # s between two signs of life of a trial: one without is run again


def tune(task_name: str, config: TuneConfig, changes: Mapping[str, Any] | None = None) -> Study:
    """Run trials until the study has as many as asked for; gives the study. What is finished is kept.

    changes: settings of the recipe that differ, as a TOML file would give them.
    """
    task = tasks.find(task_name)
    known = recipes(task)
    base = recipe(config.recipe or ("search" if "search" in known else next(iter(known))), task)
    if config.config is not None:
        base = from_toml(config.config, base)
    base = changed(base, changes or {})
    base = replace(base, validate_every=1, epochs=base.collect + config.most, seed=config.seed)
    out = config.out or Path(f"runs/tune-{task.name}")
    _optuna()
    out.mkdir(parents=True, exist_ok=True)
    url = _url(config.storage or str(out / "study.db"))
    if config.ray is not None and url.startswith("sqlite"):
        raise MastError("--ray needs a --storage that every machine reaches: postgresql://USER:PASSWORD@HOST/DATABASE")
    study = _open(url, config.study or task.name, config, base)
    workers = pool(config.ray, config.workers)
    try:
        given = (url, study.study_name, config, plain(base))
        for _ in workers.run([Job(f"trials-{n}", work, (*given, n), config.gpus) for n in range(config.workers)]):
            pass
    finally:
        workers.close()
        if any(trial.state.is_finished() for trial in study.get_trials(deepcopy=False)):
            _write(study, base, out)
    return study


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise MastError("a search needs Optuna, which is not installed: pip install 'mast-swarm[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def masked(url: str) -> str:
    """A URL as people may see it: without its password."""
    return re.sub(r"(://[^:/@]*):[^@]*@", r"\1:***@", url)


def _url(storage: str) -> str:
    """The database that a storage names: a file is one of SQLite, and PostgreSQL must answer."""
    if "://" not in storage:
        return f"sqlite:///{Path(storage).resolve()}"
    kind, _, rest = storage.partition("://")
    if kind.split("+")[0] not in ("postgresql", "postgres", "sqlite"):
        raise MastError(f"--storage is {masked(storage)}: give a file, or postgresql://USER:PASSWORD@HOST/DATABASE")
    if kind == "sqlite":
        return storage
    try:
        split = urlsplit(storage)
        host, port = split.hostname, split.port or 5432
    except ValueError:
        host, port = None, 0
    if not host:
        raise MastError(f"--storage is {masked(storage)}: it names no host")
    try:
        check_reachable(f"{host}:{port}")
    except MastError:
        raise MastError(f"no database answers at {masked(storage)} (port {port}): is it up?") from None
    return f"postgresql+psycopg://{rest}"


def _storage(url: str) -> RDBStorage:
    optuna = _optuna()
    given: dict[str, Any] = {}
    if url.startswith("postgresql"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is experimental, and says so
            retry = optuna.storages.RetryHeartbeatStaleTrialCallback(max_retry=3)
        given = {"heartbeat_interval": _BEAT, "heartbeat_stale_trial_callback": retry}
        given["engine_kwargs"] = {"connect_args": {"connect_timeout": 5}, "pool_pre_ping": True}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return optuna.storages.RDBStorage(url, **given)
    except ImportError as error:
        raise MastError(f"PostgreSQL needs psycopg: pip install 'mast-swarm[tune]' ({error})") from None
    except Exception as error:  # whatever the database's driver says
        text = masked(str(error)).strip().splitlines()[0]
        raise MastError(f"cannot use the database {masked(url)}: {text}") from None


def _open(url: str, name: str, config: TuneConfig, base: TrainConfig, sampler_seed: int = 0) -> Study:
    """The study, new or as it was left; one of other settings is an error."""
    optuna = _optuna()
    better = "minimize" if tasks.task_of(base.world).metric.lower_is_better else "maximize"
    asked = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    settings = {key: asked[key] for key in (*_SPACE, "least", "most", "factor", "seed")} | {"recipe": plain(base)}
    study = optuna.create_study(
        storage=_storage(url),
        study_name=name,
        direction=better,
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=sampler_seed),
        pruner=optuna.pruners.HyperbandPruner(config.least, config.most, config.factor),
    )
    before = study.user_attrs.get("settings")
    if before is None:
        study.set_user_attr("settings", settings)
    elif before != settings:
        differs = [key for key in settings if before.get(key) != settings[key]]
        raise MastError(
            f"study '{name}' in {masked(url)} has other settings ({', '.join(differs)}): give another --study"
        )
    return study


def work(url: str, name: str, config: TuneConfig, base: dict[str, Any], worker: int) -> int:
    """Run trials of a study, in any process, until it has enough; how many ran here."""
    optuna = _optuna()
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    start = from_plain(base)
    before = _open(url, name, config, start).get_trials(deepcopy=False)
    done = len([trial for trial in before if trial.state in states])
    if done >= config.trials:
        return 0
    # Nobody proposes what another has: a worker, a machine that shares the database, and a study that goes on.
    place = [
        config.seed,
        len(before),
        worker,
        *(socket.gethostname().encode() if url.startswith("postgresql") else b""),
    ]
    study = _open(url, name, config, start, int(np.random.default_rng(place).integers(2**31)))
    study.optimize(
        lambda trial: objective(trial, start, config),
        callbacks=[optuna.study.MaxTrialsCallback(config.trials, states=states), _tell],
        catch=(torch.OutOfMemoryError,),
    )
    return len(study.get_trials(deepcopy=False)) - len(before)


def _tell(study: Study, trial: Any) -> None:
    value = "-" if trial.value is None else f"{trial.value:.3f}"
    spent = 0.0 if trial.duration is None else trial.duration.total_seconds()
    print(
        f"trial {trial.number}: {value} after {trial.last_step} epochs, {trial.state.name.lower()}, {spent:.0f} s",
        flush=True,
    )


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


def configured(base: TrainConfig, settings: dict[str, Any]) -> TrainConfig:
    """A recipe with the settings of a trial in place of its own."""
    policy = {name: settings[name] for name in ("layers", "heads", "head_dim", "dropout")}
    return changed(base, {"lr": settings["lr"], "weight_decay": settings["weight_decay"], "policy": policy})


def objective(trial: Trial, base: TrainConfig, config: TuneConfig) -> float:
    """The best validation of a trial's training; ends it early where Hyperband says so."""
    optuna = _optuna()
    settings = configured(base, proposed(trial, config))
    headline = tasks.task_of(base.world).metric.name
    values: list[float] = []

    def report(row: dict[str, Any]) -> None:
        if headline in row:
            values.append(float(row[headline]))
            trial.report(values[-1], epoch := row["epoch"] - base.collect)
            # One that has come to its end is complete, whatever Hyperband says: else the best one may be passed over.
            if epoch < config.most and trial.should_prune():
                raise optuna.TrialPruned

    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(Path(folder) / "run", pick_device(config.device), 1e9, keep_replay=False)
        try:
            # Each trial has a network of its own, and to compile one takes longer than most trials learn.
            with torch.compiler.set_stance("force_eager"):
                Trainer(settings, options).run(report)
        except MastError as error:
            if "not finite" not in str(error):
                raise
            trial.set_user_attr("ended", "the loss was not finite")
            raise optuna.TrialPruned from None
    return min(values) if tasks.task_of(base.world).metric.lower_is_better else max(values)


def told(study: Study) -> str:
    """How a study stands, in a line."""
    found = study.get_trials(deepcopy=False)
    complete = [trial for trial in found if trial.value is not None and trial.state.name == "COMPLETE"]
    if not complete:
        return f"{len(found)} trials, none of which came to its end"
    best = ", ".join(f"{name} {value:.4g}" for name, value in study.best_params.items())
    return f"{len(found)} trials; best {study.best_value:.4f} with {best}"


def trials(study: Study) -> pa.Table:
    """A row per finished trial."""
    rows = []
    for trial in study.get_trials(deepcopy=False):
        if trial.state.is_finished():
            spent = None if trial.duration is None else trial.duration.total_seconds()
            about = {"number": trial.number, "state": trial.state.name, "value": trial.value, "epochs": trial.last_step}
            rows.append({**about, "seconds": spent, **{name: trial.params.get(name) for name in _SPACE}})
    return pa.table({name: pa.array([row[name] for row in rows]) for name in (rows[0] if rows else ())})


def _write(study: Study, base: TrainConfig, out: Path) -> None:
    """trials.parquet, the best settings as TOML, and the plots of history and importance."""
    with whole_file(out / "trials.parquet") as part:
        pq.write_table(trials(study), part)
    optuna = _optuna()
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if not complete:
        return
    best = study.best_params
    policy = "".join(f"{name} = {best[name]!r}\n" for name in ("layers", "heads", "head_dim", "dropout"))
    text = f"# trial {study.best_trial.number}: {study.best_value:.4f}; for mast train --config\n"
    text += f"lr = {best['lr']!r}\nweight_decay = {best['weight_decay']!r}\n\n[policy]\n{policy}"
    with whole_file(out / "best.toml") as part:
        part.write_text(text, encoding="utf-8")
    _plots(study, base, out)


def _plots(study: Study, base: TrainConfig, out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    optuna = _optuna()
    name = tasks.task_of(base.world).metric.words
    with warnings.catch_warnings(), matplotlib.rc_context():  # Optuna sets a style for the whole process
        warnings.simplefilter("ignore")  # its plots are experimental, and say so
        draw = optuna.visualization.matplotlib
        history = draw.plot_optimization_history(study, target_name=name)
        history.figure.savefig(out / "history.png", dpi=130, bbox_inches="tight")
        try:
            importance = draw.plot_param_importances(study, target_name=name)
        except (RuntimeError, ValueError):  # too few trials, or all alike
            return
        importance.figure.savefig(out / "importance.png", dpi=130, bbox_inches="tight")
    from matplotlib import pyplot

    pyplot.close("all")
