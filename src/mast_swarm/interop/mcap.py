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

_NUMBER, _PAIR = {"type": "number"}, {"type": "array", "items": {"type": "number"}}
_COLOURS = {"robots": (0.12, 0.47, 0.71), "links": (0.66, 0.71, 0.76), "places": (0.0, 0.62, 0.45)}


def _object(**fields: Any) -> dict[str, Any]:
    return {"type": "object", "properties": fields}


def _array(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


_TIME = _object(sec={"type": "integer"}, nsec={"type": "integer"})
_POINT = _object(x=_NUMBER, y=_NUMBER, z=_NUMBER)
_COLOUR = _object(r=_NUMBER, g=_NUMBER, b=_NUMBER, a=_NUMBER)
_POSE = _object(position=_POINT, orientation=_object(x=_NUMBER, y=_NUMBER, z=_NUMBER, w=_NUMBER))
_SPHERE = _object(pose=_POSE, size=_POINT, color=_COLOUR)
_LINES = _object(
    type={"type": "integer"}, pose=_POSE, thickness=_NUMBER, scale_invariant={"type": "boolean"},
    points=_array(_POINT), color=_COLOUR, colors=_array(_COLOUR), indices=_array({"type": "integer"}),
)  # fmt: skip
_ENTITY = _object(
    timestamp=_TIME, frame_id={"type": "string"}, id={"type": "string"}, lifetime=_TIME,
    frame_locked={"type": "boolean"}, spheres=_array(_SPHERE), lines=_array(_LINES),
)  # fmt: skip
SCHEMAS: dict[str, dict[str, Any]] = {
    "mast.Robots": _object(t=_NUMBER, positions=_array(_PAIR)),
    "mast.Links": _object(t=_NUMBER, pairs=_array(_PAIR)),
    "mast.Metrics": {**_object(t=_NUMBER), "additionalProperties": _NUMBER},
    "mast.Values": _object(t=_NUMBER, values={"type": "array"}),
    "foxglove.SceneUpdate": _object(deletions=_array(_object()), entities=_array(_ENTITY)),
}


def write(recordings: Mapping[str, Recording], path: Path) -> None:
    """Write recordings, by the name under which their topics lie, to one file."""
    mcap = needed("mcap.writer", "mcap", "MCAP needs", "mcap")
    with path.open("wb") as file:
        writer = mcap.Writer(file)
        writer.start(profile="", library=f"mast-swarm {__version__}")
        schemas = {
            name: writer.register_schema(name, "jsonschema", json.dumps(schema).encode())
            for name, schema in SCHEMAS.items()
        }
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
    when, never = divmod(round(index * recording.dt * 1e9), 10**9), {"sec": 0, "nsec": 0}
    return {
        "timestamp": {"sec": when[0], "nsec": when[1]},
        "frame_id": "world",
        "id": name,
        "lifetime": never,
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
