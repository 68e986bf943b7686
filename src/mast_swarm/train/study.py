"""The study of a search: where it is kept, who begins the next trial, and which trials are tried again."""

from __future__ import annotations

import fcntl
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from mast_swarm.errors import MastError
from mast_swarm.pool import check_reachable
from mast_swarm.tasks import registry as tasks
from mast_swarm.train.config import TrainConfig, plain
from mast_swarm.train.database import for_psycopg, masked, parts_of, without_passwords
from mast_swarm.train.tune_config import TuneConfig

if TYPE_CHECKING:
    from optuna import Study
    from optuna.storages import RDBStorage
    from optuna.trial import FrozenTrial

SPACE = ("layers", "heads", "head_dim", "lr", "weight_decay", "dropout")
SET_HERE = ("epochs", "validate_every", "seed")  # settings of the recipe that a search sets itself
FINISHED = ("COMPLETE", "PRUNED")
_BEAT = 30  # s between two signs of life of a trial in a database
_LOST = 3  # times that settings are tried whose process then dies without a word


def optuna_here() -> Any:
    """Optuna, which says nothing itself."""
    try:
        import optuna
    except ImportError:
        raise MastError("a search needs Optuna, which is not installed: pip install 'mast-swarm[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)  # of a trial that ends it would warn with a traceback
    return optuna


def url_of(storage: str) -> str:
    """The database that a storage names: a file is one of SQLite, and PostgreSQL must answer."""
    if not re.match(r"postgres\w*:|[\w+]+:/", storage):
        return f"sqlite:///{Path(storage).resolve()}"
    kind, _, rest = storage.partition("://")
    if kind.split("+")[0] not in ("postgresql", "postgres", "sqlite") or not rest.strip("/"):
        raise MastError(f"--storage is {masked(storage)}: give a file, or postgresql://USER:PASSWORD@HOST/DATABASE")
    if kind == "sqlite":
        return storage
    split = parts_of(storage)
    if split is None or not split.hostname:
        escaped = "in a password write @ / ? # as %40 %2F %3F %23"
        raise MastError(f"--storage is {masked(storage)}: it names no host, or something stands after it ({escaped})")
    port = split.port or 5432
    try:
        check_reachable(f"{split.hostname}:{port}")
    except MastError:
        raise MastError(f"no database answers at {masked(storage)} (port {port}): is it up?") from None
    return for_psycopg(split)


def _storage(url: str) -> RDBStorage:
    optuna = optuna_here()
    given: dict[str, Any] = {"engine_kwargs": {"connect_args": {"timeout": 30}}}  # s that SQLite waits for its turn
    if url.startswith("postgresql"):
        given = {"heartbeat_interval": _BEAT}
        given["engine_kwargs"] = {"connect_args": {"connect_timeout": 5}, "pool_pre_ping": True}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # heartbeats are experimental, and say so
            return optuna.storages.RDBStorage(url, **given)
    except ImportError as error:
        raise MastError(f"PostgreSQL needs psycopg: pip install 'mast-swarm[tune]' ({error})") from None
    except Exception as error:  # whatever the database's driver says
        text = without_passwords(str(error), url).strip().splitlines()[0]
        raise MastError(f"cannot use the database {masked(url)}: {text}") from None


def open_study(url: str, name: str, config: TuneConfig, base: TrainConfig) -> Study:
    """The study, new or as it was left; one of other settings is an error."""
    optuna = optuna_here()
    better = "minimize" if tasks.task_of(base.world).metric.lower_is_better else "maximize"
    asked = {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(config).items()}
    settings = {key: asked[key] for key in (*SPACE, "least", "most", "factor", "seed")} | {"recipe": plain(base)}
    study = optuna.create_study(
        storage=_storage(url),
        study_name=name,
        direction=better,
        load_if_exists=True,
        sampler=optuna.samplers.TPESampler(seed=config.seed),
        pruner=optuna.pruners.HyperbandPruner(config.least, config.most, config.factor),
    )
    before = study.user_attrs.get("settings")
    if before is None:
        study.set_user_attr("settings", settings)
    elif differs := _differences(before, settings):
        raise MastError(
            f"study '{name}' in {masked(url)} has other settings ({'; '.join(differs)}): give these, or another --study"
        )
    return study


def _differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs between the settings of two searches: `most: 4, not 2`."""
    old, new = _flat(before), _flat(now)
    for name in SET_HERE:  # these follow from settings of the search, which are named
        old.pop(f"{name} of the recipe", None), new.pop(f"{name} of the recipe", None)
    keys = [*new, *(key for key in old if key not in new)]
    return [
        f"{key}: {_shown(old, key)}, not {_shown(new, key)}" for key in keys if _shown(old, key) != _shown(new, key)
    ]


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a search without tables; those of its recipe say that they are."""

    def inside(table: Mapping[str, Any], before: str) -> Iterator[tuple[str, Any]]:
        for key, value in table.items():
            if isinstance(value, Mapping):
                yield from inside(value, f"{before}{key}.")
            else:
                yield f"{before}{key}", value

    own = {key: value for key, value in settings.items() if key != "recipe"}
    return own | {f"{key} of the recipe": value for key, value in inside(settings["recipe"], "")}


def _shown(settings: Mapping[str, Any], key: str) -> str:
    value = settings.get(key)
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


class Others(Protocol):
    """What a worker shares with all others of its study, on this machine and on others."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Within it nobody else begins a trial."""

    @contextmanager
    def alive(self, trial_id: int) -> Iterator[None]:
        """Within it others see that the trial is alive."""

    def fail_dead(self, study: Study) -> None:
        """Let trials fail that run no more: their process ended without a word."""


class InFile:
    """Of a study in a file: locks on single bytes of a file beside it, the first for the turn and one per trial. The
    system frees those of a process when it ends, however it ends."""

    def __init__(self, url: str) -> None:
        from sqlalchemy.engine import make_url

        path = f"{make_url(url).database}.lock"
        try:
            # Kept open: with the first that is closed of several openings a process loses all its locks.
            self._file = open(path, "ab")  # noqa: SIM115
        except OSError as error:
            raise MastError(f"cannot write to {path}: {error.strerror}") from None

    @contextmanager
    def _locked(self, byte: int, wait: bool = True) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, byte)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN, 1, byte)

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self._locked(0):
            yield

    @contextmanager
    def alive(self, trial_id: int) -> Iterator[None]:
        with self._locked(trial_id):  # they count from 1
            yield

    def fail_dead(self, study: Study) -> None:
        optuna = optuna_here()
        for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            try:
                with self._locked(trial._trial_id, wait=False):
                    study.tell(trial.number, state=optuna.trial.TrialState.FAIL, skip_if_finished=True)
            except BlockingIOError:  # its process lives
                continue


class InDatabase:
    """Of a study in PostgreSQL: a lock of the database for the turn, and Optuna's heartbeats."""

    def __init__(self, url: str, name: str) -> None:
        import sqlalchemy

        self._engine = sqlalchemy.create_engine(url, pool_pre_ping=True)
        self._lock = sqlalchemy.text("SELECT pg_advisory_xact_lock(hashtext(:name))").bindparams(name=f"mast {name}")

    @contextmanager
    def turn(self) -> Iterator[None]:
        with self._engine.begin() as connection:  # whose end, also by a machine that dies, frees the lock
            connection.execute(self._lock)
            yield

    @contextmanager
    def alive(self, trial_id: int) -> Iterator[None]:
        yield

    def fail_dead(self, study: Study) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it is experimental, and says so
            optuna_here().storages.fail_stale_trials(study)


def others_of(url: str, name: str) -> Others:
    """What the workers of a study share."""
    return InDatabase(url, name) if url.startswith("postgresql") else InFile(url)


def _interrupted(study: Study) -> tuple[list[FrozenTrial], list[FrozenTrial]]:
    """Trials that were stopped, or whose process died, and that nobody has begun again: those to be, and those given
    up. All others that fail say why they ended."""
    found = study.get_trials(deepcopy=False)
    begun = {trial.user_attrs.get("again") for trial in found}
    left = [trial for trial in found if trial.state.name == "FAIL" and "ended" not in trial.user_attrs]
    left = [trial for trial in left if trial.number not in begun and set(trial.params) == set(SPACE)]
    return [t for t in left if _lost(t) < _LOST], [t for t in left if _lost(t) >= _LOST]


def _lost(trial: FrozenTrial) -> int:
    """How often a process that tried an interrupted trial's settings died without a word: they may be what kills it."""
    return trial.user_attrs.get("lost", 0) + ("interrupted" not in trial.user_attrs)


def try_again(study: Study) -> None:
    """Let the settings of trials that were interrupted be the next ones to be tried, from the first epoch; each once.
    Their training is not gone on with: who tries again may be another machine, and Hyperband has another number of
    epochs for another trial."""
    for trial in _interrupted(study)[0]:
        study.enqueue_trial(trial.params, {"again": trial.number, "lost": _lost(trial)})


def finished_and_running(study: Study) -> tuple[int, int]:
    """How many trials have come to an end of their own, and how many are under way."""
    states = [trial.state.name for trial in study.get_trials(deepcopy=False)]
    return sum(state in FINISHED for state in states), states.count("RUNNING")


def counted(study: Study, asked: int) -> str:
    """How far a study is that is to have so many trials: `7 of 9 trials finished (1 ended early), 2 under way`. Those
    that others tried again do not count."""
    found = study.get_trials(deepcopy=False)
    states = Counter(trial.state.name for trial in found)
    again, given_up = _interrupted(study)
    failed = sum(trial.state.name == "FAIL" and "ended" in trial.user_attrs for trial in found) + len(given_up)
    early = f" ({states['PRUNED']} ended early)" if states["PRUNED"] else ""
    parts = [f"{sum(states[state] for state in FINISHED)} of {asked} trial{'' if asked == 1 else 's'} finished{early}"]
    for number, how in (
        (failed, "failed"),
        (states["RUNNING"], "under way"),
        (len(again) + states["WAITING"], "to be tried again from the first epoch"),
    ):
        parts += [f"{number} {how}"] if number else []
    return ", ".join(parts)
