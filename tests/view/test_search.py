"""Plots of a search: every trial is shown, the best line has steps, and importance waits for enough trials."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from mast_swarm.tasks.registry import find
from mast_swarm.train.study import SPACE
from mast_swarm.view.search import ENOUGH, history, search_plots

optuna = pytest.importorskip("optuna", reason="optuna is not installed: pip install 'mast-swarm[tune]'")

ROWS = [
    {"number": number, "value": value, "epochs": epochs}
    for number, (value, epochs) in enumerate([(0.3, 8), (None, 1), (0.2, 8), (0.9, 2), (0.5, 8)])
]


@pytest.mark.parametrize(("lower", "best"), [(False, [0.3, 0.3, 0.3, 0.5]), (True, [0.3, 0.2, 0.2, 0.2])])
def test_history_shows_trials_that_were_ended_early_but_takes_no_best_from_them(lower: bool, best: list[float]) -> None:
    axes = Figure().add_subplot()
    history(axes, ROWS, 8, lower_is_better=lower)
    whole, early, line = axes.get_lines()
    assert [line.get_label() for line in axes.get_lines()] == ["to its last epoch", "ended early", "best so far"]
    assert list(np.asarray(whole.get_xdata())) == [0, 2, 4] and list(np.asarray(early.get_xdata())) == [3]
    assert list(np.asarray(line.get_ydata())) == best and line.get_drawstyle() == "steps-post"


def test_importance_is_drawn_from_enough_trials_on(tmp_path: Path) -> None:
    spread = optuna.distributions.FloatDistribution(0.0, 1.0)
    study = optuna.create_study(direction="maximize")
    study.set_user_attr("settings", {"most": 1})
    for number in range(ENOUGH):
        params = {name: ((number * (place + 3)) % 11) / 11 for place, name in enumerate(SPACE)}
        trial = optuna.create_trial(
            params=params, distributions=dict.fromkeys(SPACE, spread), value=params["lr"], intermediate_values={1: 0.0}
        )
        assert not (tmp_path / "importance.png").exists()
        study.add_trial(trial)
        search_plots(study, find("navigation"), tmp_path)
    assert all((tmp_path / name).stat().st_size > 1000 for name in ("history.png", "importance.png"))
