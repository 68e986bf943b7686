"""Recordings as MCAP files, which Foxglove opens and MCAP's libraries read in many languages. All messages are JSON.

Topics of a policy NAME, times from 0:
    /NAME/robots         mast.Robots: positions [[x, y], ...] in metres, one per robot
    /NAME/links          mast.Links: pairs of robots that hear each other, where the recording keeps them
    /NAME/metrics        mast.Metrics: each metric by its name
    /NAME/frames/WHAT    mast.Values: what else the task keeps of every instant, as it is
    /NAME/scene/WHAT     mast.Values: what the task keeps once, at time 0
    /NAME/view           foxglove.SceneUpdate: robots, links and places, for Foxglove's 3D panel
A metadata record NAME tells task, policy, start, delay and the world's settings.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from mast_swarm import __version__
from mast_swarm.evaluate.recording import Recording
from mast_swarm.files import plain
from mast_swarm.interop.recordings import links, points
from mast_swarm.robot.extras import needed
from mast_swarm.robot.schemas import (
    FLAG,
    NUMBER,
    POINT,
    QUATERNION,
    TEXT,
    TIME,
    WHOLE,
    Schema,
    array,
    record,
    register,
    time_of,
)

_COLOURS = {"robots": (0.12, 0.47, 0.71), "links": (0.66, 0.71, 0.76), "places": (0.0, 0.62, 0.45)}
_PAIR = array(NUMBER)
_COLOUR = record(r=NUMBER, g=NUMBER, b=NUMBER, a=NUMBER)
_POSE = record(position=POINT, orientation=QUATERNION)
_SPHERE = record(pose=_POSE, size=POINT, color=_COLOUR)
_LINES = record(
    type=WHOLE, pose=_POSE, thickness=NUMBER, scale_invariant=FLAG,
    points=array(POINT), color=_COLOUR, colors=array(_COLOUR), indices=array(WHOLE),
)  # fmt: skip
_ENTITY = record(
    timestamp=TIME, frame_id=TEXT, id=TEXT, lifetime=TIME,
    frame_locked=FLAG, spheres=array(_SPHERE), lines=array(_LINES),
)  # fmt: skip
SCHEMAS: dict[str, Schema] = {
    "mast.Robots": record(t=NUMBER, positions=array(_PAIR)),
    "mast.Links": record(t=NUMBER, pairs=array(_PAIR)),
    "mast.Metrics": {**record(t=NUMBER), "additionalProperties": NUMBER},
    "mast.Values": record(t=NUMBER, values={"type": "array"}),
    "foxglove.SceneUpdate": record(deletions=array(record()), entities=array(_ENTITY)),
}


def write(recordings: Mapping[str, Recording], path: Path) -> None:
    """Write recordings, by the name under which their topics lie, to one file."""
    mcap = needed("mcap.writer", "mcap", "MCAP needs", "mcap")
    with path.open("wb") as file:
        writer = mcap.Writer(file)
        writer.start(profile="", library=f"mast-swarm {__version__}")
        schemas = {name: register(writer, name, schema) for name, schema in SCHEMAS.items()}
        for name, recording in recordings.items():
            _write_one(writer, schemas, name, recording)
        writer.finish()


def _write_one(writer: Any, schemas: Mapping[str, int], name: str, recording: Recording) -> None:
    channels: dict[str, int] = {}

    def say(topic: str, schema: str, index: int, message: dict[str, Any]) -> None:
        if topic not in channels:
            channels[topic] = writer.register_channel(f"/{name}/{topic}", "json", schemas[schema])
        when = round(index * recording.dt * 1e9)
        writer.add_message(channels[topic], when, json.dumps(message, separators=(",", ":")).encode(), when, index)

    about = {
        field: getattr(recording, field) for field in ("task", "policy", "scenario", "seed", "delay", "dt", "width")
    }
    about |= {"attention_radius": recording.attention_radius, "settings": recording.settings}
    writer.add_metadata(name, {field: json.dumps(value, default=plain) for field, value in about.items()})
    pairs = links(recording)
    for what, values in recording.scene.items():
        say(f"scene/{what}", "mast.Values", 0, {"t": 0.0, "values": _listed(values)})
    for index, positions in enumerate(recording.positions):
        t = index * recording.dt
        say("robots", "mast.Robots", index, {"t": t, "positions": _listed(positions)})
        if pairs is not None:
            say("links", "mast.Links", index, {"t": t, "pairs": _listed(pairs[index])})
        measured = {metric: _listed(values[index]) for metric, values in recording.metrics.items()}
        say("metrics", "mast.Metrics", index, {"t": t, **measured})
        for what, values in recording.frames.items():
            say(f"frames/{what}", "mast.Values", index, {"t": t, "values": _listed(values[index])})
        shown = _seen(recording, index, None if pairs is None else pairs[index])
        say("view", "foxglove.SceneUpdate", index, {"deletions": [], "entities": shown})


def _listed(values: np.ndarray) -> Any:
    """As JSON holds it; what is no number becomes null, since JSON has none."""
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        return np.where(np.isfinite(values), values.astype(object), np.array(None)).tolist()
    return values.tolist()


def _seen(recording: Recording, index: int, pairs: np.ndarray | None) -> list[dict[str, Any]]:
    """The entities of one instant; places are told at the first, for good."""
    positions, size = recording.positions[index], recording.width / 100
    found = [_entity(recording, index, "robots", spheres=[_sphere(place, size, "robots") for place in positions])]
    if pairs is not None:
        ends = [_point(place) for place in positions[pairs].reshape(-1, 2)]
        line = {
            "type": 2,  # a list of single lines
            "pose": _pose((0.0, 0.0)),
            "thickness": size / 8,
            "scale_invariant": False,
            "points": ends,
            "color": _colour("links"),
            "colors": [],
            "indices": [],
        }
        found.append(_entity(recording, index, "links", lines=[line]))
    if index == 0:
        for name, values in points(recording).items():
            found.append(
                _entity(recording, 0, name, spheres=[_sphere(place, size * 0.8, "places") for place in values])
            )
    return found


def _entity(recording: Recording, index: int, name: str, **shapes: Any) -> dict[str, Any]:
    return {
        "timestamp": time_of(round(index * recording.dt * 1e9)),
        "frame_id": "world",
        "id": name,
        "lifetime": time_of(0),  # for good
        "frame_locked": False,
        "spheres": [],
        "lines": [],
        **shapes,
    }


def _point(place: Any) -> dict[str, float]:
    return {"x": float(place[0]), "y": float(place[1]), "z": 0.0}


def _pose(place: Any) -> dict[str, Any]:
    return {"position": _point(place), "orientation": {"x": 0.0, "y": 0.0, "z": 0.0, "w": 1.0}}


def _sphere(place: Any, size: float, kind: str) -> dict[str, Any]:
    return {"pose": _pose(place), "size": {"x": size, "y": size, "z": size}, "color": _colour(kind)}


def _colour(kind: str) -> dict[str, float]:
    return dict(zip("rgba", (*_COLOURS[kind], 1.0), strict=True))
