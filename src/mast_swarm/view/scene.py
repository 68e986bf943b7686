"""What a navigation recording shows at each frame: which goals are reached, which are seen."""

from __future__ import annotations

import numpy as np
from scipy.spatial import cKDTree

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording


def check(recording: Recording) -> None:
    """Raise a MastError unless the arrays of `recording` fit each other and can be drawn."""
    name = f"the recording of {recording.policy}"
    positions, goals = recording.positions, recording.goals
    if positions.ndim != 3 or positions.shape[2] != 2 or 0 in positions.shape:
        raise MastError(f"{name} has positions of shape {positions.shape}; expected [frames, robots, 2]")
    if goals.ndim != 2 or goals.shape[1] != 2 or len(goals) == 0:
        raise MastError(f"{name} has goals of shape {goals.shape}; expected [goals, 2]")
    frames, robots = positions.shape[:2]
    if recording.success_rate.shape != (frames,):
        raise MastError(f"{name} has {len(recording.success_rate)} success rates for {frames} frames")
    for field, among in (("neighbours", robots), ("goals_seen", len(goals))):
        index = getattr(recording, field)
        if index.ndim != 3 or index.shape[:2] != (frames, robots):
            raise MastError(f"{name} has {field} of shape {index.shape}; expected [{frames}, {robots}, K]")
        if index.size and not (index.min() >= -1 and index.max() < among):
            raise MastError(f"{name} has {field} outside -1..{among - 1}")
    for field in ("positions", "goals", "success_rate"):
        if not np.isfinite(getattr(recording, field)).all():
            raise MastError(f"{name} has {field} that are not finite numbers; record it again")
    for field in ("dt", "width", "success_radius"):
        if not 0 < getattr(recording, field) < np.inf:
            raise MastError(f"{name} has {field} = {getattr(recording, field)}; expected a positive number")


def duration(recording: Recording) -> float:
    """Seconds from the first frame to the last."""
    return (len(recording.positions) - 1) * recording.dt


def frame_at(recording: Recording, t: float) -> int:
    """The frame nearest to time `t` (s); a time outside the recording is an error."""
    last = len(recording.positions) - 1
    index = round(t / recording.dt) if np.isfinite(t) else -1
    if not 0 <= index <= last:
        raise MastError(f"no frame at t = {t} s: the recording of {recording.policy} has 0..{duration(recording):g} s")
    return index


def reached(recording: Recording, frame: int) -> np.ndarray:
    """Goals with some robot nearer than the success radius: [M] bool."""
    distance, _ = cKDTree(recording.positions[frame]).query(recording.goals)
    return np.asarray(distance < recording.success_radius)


def seen(recording: Recording, frame: int) -> np.ndarray:
    """Goals that some robot observes: [M] bool."""
    index = recording.goals_seen[frame]
    mask = np.zeros(len(recording.goals), dtype=bool)
    mask[index[index >= 0]] = True
    return mask
