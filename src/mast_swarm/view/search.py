"""Plots of a search for hyper-parameters: its history, and how much each setting matters."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mast_swarm.tasks.base import Task
from mast_swarm.train.study import optuna_here
from mast_swarm.train.tune import trials
from mast_swarm.view.plots import save_figure
from mast_swarm.view.style import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from optuna import Study

ENOUGH = 10  # complete trials, from which on it can be said what matters


def search_plots(study: Study, task: Task, out: Path) -> None:
    """history.png and, of a study with enough complete trials, importance.png in a folder."""
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.add_subplot()
        most = study.user_attrs["settings"]["most"]
        history(axes, trials(study).to_pylist(), most, lower_is_better=task.metric.lower_is_better)
        axes.set_ylabel(f"{task.metric.words} in validation")
        save_figure(figure, out / "history.png")
        if found := importances(study):
            figure = Figure(figsize=(6.4, 3.0), layout="constrained")
            axes = figure.add_subplot()
            bars = axes.barh([name.replace("_", " ") for name in found], list(found.values()))
            axes.bar_label(bars, fmt="%.2f", padding=3)
            axes.invert_yaxis()  # what matters most comes first
            axes.margins(x=0.1)
            axes.grid(False)
            axes.set_xlabel(f"importance for the {task.metric.words} (shares of 1)")
            save_figure(figure, out / "importance.png")


def history(axes: Axes, rows: Sequence[Mapping[str, Any]], last: int, *, lower_is_better: bool) -> None:
    """The value of each trial and the best so far of those that came to their last epoch. rows: as `trials` gives."""
    from matplotlib.ticker import MaxNLocator

    rows = [row for row in rows if row["value"] is not None]
    numbers = np.array([row["number"] for row in rows])
    values = np.array([row["value"] for row in rows], dtype=float)
    whole = np.array([row["epochs"] == last for row in rows], dtype=bool)
    for name, marker, shown in (("to its last epoch", "o", whole), ("ended early", "x", ~whole)):
        if shown.any():
            axes.plot(numbers[shown], values[shown], marker, label=name)
    if whole.any():
        best = (np.fmin if lower_is_better else np.fmax).accumulate(np.where(whole, values, np.nan))
        axes.plot(numbers, best, label="best so far", drawstyle="steps-post")
    if len(rows):
        axes.legend()
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("trial")


def importances(study: Study) -> dict[str, float]:
    """How much each setting matters, the greatest first; nothing of a study with too few complete trials."""
    optuna = optuna_here()
    complete = study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,))
    if len(complete) < ENOUGH or len({trial.value for trial in complete}) == 1:
        return {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # values so alike that all settings matter as much
            return dict(optuna.importance.get_param_importances(study))
    except (RuntimeError, ValueError):  # settings that are all alike
        return {}
