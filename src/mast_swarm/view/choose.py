"""The view of a task: the one that it brings, or the default."""

from __future__ import annotations

from collections.abc import Sequence

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Task
from mast_swarm.view.default import DefaultView
from mast_swarm.view.scene import TaskView, check


def task_view(name: str) -> TaskView:
    """The view of a task."""
    return view_for(tasks.find(name))


def view_for(task: Task) -> TaskView:
    """The view of a task, by its record."""
    view: TaskView = (task.part("view") or DefaultView)(task)
    return view


def view_of(recordings: Sequence[Recording]) -> TaskView:
    """The one view of recordings that are to be shown together; raises a MastError if they cannot be drawn."""
    names = sorted({recording.task for recording in recordings})
    if len(names) > 1:
        raise MastError(f"recordings of {' and '.join(names)} cannot be shown together: give those of one task")
    view = task_view(names[0])
    for recording in recordings:
        check_shown(view, recording)
    return view


def check_shown(view: TaskView, recording: Recording) -> None:
    """Raise a MastError unless a recording has all that a view shows."""
    check(recording)
    try:
        view.check(recording)
        for metric in view.metrics:
            recording.metrics[metric.name]
    except KeyError as missing:
        raise MastError(f"the recording of {recording.policy} has no {missing.args[0]}; record again") from None
