"""Recordings as RRD files for the Rerun viewer: `rerun FILE.rrd`, or its web page.

Entities of a policy NAME, on the timeline `time` from 0 s: NAME/robots (points, metres), NAME/links (lines), a curve
NAME/metrics/WHAT for each metric; and what stays, NAME/scene/WHAT: places as points, all else as tensors. Places have
z = 0, because y points down in Rerun's 2D views.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from mast_swarm.evaluate.recording import Recording
from mast_swarm.files import plain
from mast_swarm.interop.recordings import links, points
from mast_swarm.robot.extras import needed

_ROBOT, _LINK, _PLACE = (31, 119, 180), (169, 180, 194), (0, 158, 115)


def write(recordings: Mapping[str, Recording], path: Path) -> None:
    """Write recordings, by the name under which their entities lie, to one file."""
    rr = needed("rerun", "rerun-sdk", "Rerun needs", "rerun")
    stream = rr.RecordingStream("mast-swarm")
    stream.save(path)
    for name, recording in recordings.items():
        _log(rr, stream, name, recording)
    stream.flush()
    stream.disconnect()


def _log(rr: Any, stream: Any, name: str, recording: Recording) -> None:
    instants, robots, _ = recording.positions.shape
    time = [rr.TimeColumn("time", duration=np.arange(instants) * recording.dt)]
    size = recording.width / 200
    track = _flat(recording.positions)  # [T+1, N, 3]
    stream.log(name, rr.ViewCoordinates.RIGHT_HAND_Z_UP, static=True)
    stream.log(f"{name}/robots", rr.Points3D.from_fields(colors=[_ROBOT], radii=[size]), static=True)
    stream.send_columns(
        f"{name}/robots",
        time,
        rr.Points3D.columns(positions=track.reshape(-1, 3)).partition(lengths=[robots] * instants),
    )
    pairs = links(recording)
    if pairs is not None:
        strips = [track[index][both] for index, each in enumerate(pairs) for both in each]
        stream.log(f"{name}/links", rr.LineStrips3D.from_fields(colors=[_LINK], radii=[size / 8]), static=True)
        stream.send_columns(
            f"{name}/links",
            time,
            rr.LineStrips3D.columns(strips=strips).partition(lengths=[len(each) for each in pairs]),
        )
    for metric, values in recording.metrics.items():
        stream.send_columns(f"{name}/metrics/{metric}", time, rr.Scalars.columns(scalars=values.astype(np.float64)))
    placed = points(recording)
    for what, values in recording.scene.items():
        shown = rr.Points3D(_flat(values), colors=[_PLACE], radii=[size * 0.8]) if what in placed else rr.Tensor(values)
        stream.log(f"{name}/scene/{what}", shown, static=True)
    about = {field.name: getattr(recording, field.name) for field in fields(recording)}
    told = {key: value for key, value in about.items() if not isinstance(value, np.ndarray | dict) or key == "settings"}
    stream.log(f"{name}/about", rr.TextDocument(json.dumps(told, indent=1, default=plain)), static=True)


def _flat(places: np.ndarray) -> np.ndarray:
    """Places [..., 2] as [..., 3] with z = 0."""
    return np.pad(places, [(0, 0)] * (places.ndim - 1) + [(0, 1)])
