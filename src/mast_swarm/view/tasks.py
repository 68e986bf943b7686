"""The view of every task, by its name."""

from __future__ import annotations

from collections.abc import Sequence

from mast_swarm.errors import MastError, unknown
from mast_swarm.evaluate.recording import Recording
from mast_swarm.view.coverage import CoverageView
from mast_swarm.view.navigation import NavigationView
from mast_swarm.view.scene import TaskView, check

VIEWS: dict[str, TaskView] = {view.task: view for view in (NavigationView(), CoverageView())}


def task_view(task: str) -> TaskView:
    """The view of a task; one that has none is an error."""
    if task not in VIEWS:
        raise unknown("task", task, VIEWS)
    return VIEWS[task]


def view_of(recordings: Sequence[Recording]) -> TaskView:
    """The one view of recordings that are to be shown together; raises a MastError if they cannot be drawn."""
    tasks = sorted({recording.task for recording in recordings})
    if len(tasks) > 1:
        raise MastError(f"recordings of {' and '.join(tasks)} cannot be shown together: give those of one task")
    view = task_view(tasks[0])
    for recording in recordings:
        check(recording)
        try:
            view.check(recording)
            for metric in view.metrics:
                recording.metrics[metric]
        except KeyError as missing:
            raise MastError(f"the recording of {recording.policy} has no {missing.args[0]}; record again") from None
    return view
