"""What a search says while it runs: which trials begin, how far they are, and how they end, whoever runs them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from mast_swarm.train.study import FINISHED, SPACE
from mast_swarm.train.tune_config import TuneConfig

if TYPE_CHECKING:
    from optuna import Study
    from optuna.trial import FrozenTrial

Shown = Callable[[Mapping[str, tuple[int, int]]], None]  # of each thing under way: how far it is, and of how much
_LOOK = 2.0  # s between two looks at the study


@contextmanager
def watched(study: Study, config: TuneConfig, keep: Callable[[], None], shown: Shown) -> Iterator[None]:
    """Within it the study is looked at now and then. keep: writes the results so far; shown: shows how far all is."""
    before = study.get_trials(deepcopy=False)
    ended = {trial.number for trial in before if trial.state.is_finished()}
    begun = {trial.number for trial in before if trial.state.name != "WAITING"}
    over = threading.Event()

    def look() -> None:
        found = study.get_trials(deepcopy=False)
        running = [trial for trial in found if trial.state.name == "RUNNING"]
        new = [trial for trial in found if trial.state.is_finished() and trial.number not in ended]
        for trial in (*running, *new):  # one may begin and end between two looks
            if trial.number not in begun and set(trial.params) == set(SPACE):
                begun.add(trial.number)
                print(_beginning(trial), flush=True)
        for trial in new:
            ended.add(trial.number)
            print(_ending(trial), flush=True)
        epochs = {f"epochs of trial {trial.number}": (trial.last_step or 0, config.most) for trial in running}
        finished = sum(trial.state.name in FINISHED for trial in found)
        shown({"finished trials": (finished, config.trials), **epochs})
        if new:
            keep()

    def watch() -> None:
        while not over.wait(_LOOK):
            with suppress(Exception):  # a busy database, a full disk: the last look says what is wrong
                look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
        look()
        keep()


def _beginning(trial: FrozenTrial) -> str:
    settings = ", ".join(f"{name} {trial.params[name]:.4g}" for name in SPACE)
    again = trial.user_attrs.get("again")
    return f"trial {trial.number} begins{'' if again is None else f', as trial {again} did'}: {settings}"


def _ending(trial: FrozenTrial) -> str:
    value = "-" if trial.value is None else f"{trial.value:.3f}"
    spent = 0.0 if trial.duration is None else trial.duration.total_seconds()
    how = {"COMPLETE": "complete", "PRUNED": "ended early"}.get(trial.state.name)
    how = how or trial.user_attrs.get("ended", "interrupted")
    epochs = f"{trial.last_step or 0} epoch{'' if trial.last_step == 1 else 's'}"
    return f"trial {trial.number}: {value} after {epochs}, {how}, {spent:.0f} s"
