"""Logs of one robot in MCAP (`mcap`), which Foxglove opens: where it was, where it went, what it knew. No torch.

Every step is four messages, as JSON with a schema: `/robot_3/pose` (foxglove.PoseInFrame), `/robot_3/command`,
`/robot_3/news` (how old what it knows of each other robot is) and `/robot_3/counters`. In Foxglove a 3D panel shows the
pose and a plot panel everything else.
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from typing import Any

from mast_swarm.errors import MastError
from mast_swarm.robot.extras import needed
from mast_swarm.robot.pilot import Step
from mast_swarm.robot.schemas import (
    NUMBER,
    POINT,
    QUATERNION,
    TEXT,
    TIME,
    WHOLE,
    array,
    record,
    register,
    time_of,
    titled,
)

_POSE = titled(
    "foxglove.PoseInFrame",
    {
        "description": "A timestamped pose for an object or reference frame in 3D space",
        **record(
            timestamp=titled("time", TIME),
            frame_id=TEXT,
            pose=titled(
                "foxglove.Pose",
                record(
                    position=titled("foxglove.Vector3", POINT), orientation=titled("foxglove.Quaternion", QUATERNION)
                ),
            ),
        ),
    },
)
_COMMAND = titled(
    "mast.Command",
    record(x=NUMBER, y=NUMBER, speed=NUMBER, took_s=NUMBER, deadlines_met=WHOLE, deadlines_missed=WHOLE),
)
_NEWS = titled(
    "mast.News",
    record(
        known=WHOLE,
        youngest_s=NUMBER,
        median_s=NUMBER,
        oldest_s=NUMBER,
        robots=array(record(robot=WHOLE, age_s=NUMBER)),
    ),
)
_COUNTERS = titled(
    "mast.Counters",
    record(
        **dict.fromkeys(("datagrams_in", "datagrams_out", "bytes_in", "bytes_out"), WHOLE),
        **dict.fromkeys(("entries_in", "entries_out", "entries_kept", "verified"), WHOLE),
        **dict.fromkeys(("maps_in", "maps_out", "maps_kept"), WHOLE),
        refused={"type": "object", "additionalProperties": WHOLE},
    ),
)
SCHEMAS = {"pose": _POSE, "command": _COMMAND, "news": _NEWS, "counters": _COUNTERS}


class Log:
    """A file of one robot's steps: `log(step)` writes one, so that a log can be given as `on_step`.

    file: is made anew. robot: its number. frame: the name of the frame that positions are in.
    """

    def __init__(self, file: Path | str, robot: int, frame: str = "world") -> None:
        writer = needed("mcap.writer", "mcap", "logs need", extra="mcap")
        self.frame, self.steps = frame, 0
        self._file, self._failed = file, False
        try:
            self._stream = open(file, "wb")  # noqa: SIM115
        except OSError as error:
            raise MastError(f"cannot write the log {file}: {error.strerror}") from None
        self._writer = writer.Writer(self._stream)
        self._writer.start(profile="", library="mast-swarm")
        self._channels = {}
        for name, schema in SCHEMAS.items():
            number = register(self._writer, schema["title"], schema)
            self._channels[name] = self._writer.register_channel(f"/robot_{robot}/{name}", "json", number)

    def __call__(self, step: Step) -> None:
        """Write a step. A disk that is full ends the log, not the robot."""
        if self._failed:
            return
        try:
            self._write(step)
        except OSError as error:
            self._failed = True
            print(f"mast: the log {self._file} ends here: {error.strerror}", file=sys.stderr, flush=True)

    def _write(self, step: Step) -> None:
        ages = sorted(step.ages.values())
        x, y = step.position
        u, v = step.command
        told: dict[str, dict[str, Any]] = {
            "pose": {
                "timestamp": time_of(step.stamp),
                "frame_id": self.frame,
                "pose": {"position": {"x": x, "y": y, "z": 0.0}, "orientation": _facing(u, v)},
            },
            "command": {
                "x": u,
                "y": v,
                "speed": math.hypot(u, v),
                "took_s": step.took,
                "deadlines_met": step.met,
                "deadlines_missed": step.missed,
            },
            "news": {
                "known": len(ages),
                **({"youngest_s": ages[0], "median_s": ages[len(ages) // 2], "oldest_s": ages[-1]} if ages else {}),
                "robots": [{"robot": robot, "age_s": age} for robot, age in sorted(step.ages.items())],
            },
            "counters": {**vars(step.counters), "refused": dict(step.counters.refused)},
        }
        for name, content in told.items():
            data = json.dumps(content).encode()
            self._writer.add_message(self._channels[name], step.stamp, data, step.stamp, self.steps)
        self.steps += 1

    def close(self) -> None:
        """Finish the file; one that is not finished can still be read up to its last whole part."""
        if not self._stream.closed:
            try:
                self._writer.finish()
                self._stream.close()
            except OSError as error:
                if not self._failed:
                    print(f"mast: the log {self._file} is not whole: {error.strerror}", file=sys.stderr, flush=True)

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _facing(u: float, v: float) -> dict[str, float]:
    """The orientation of something that looks along a velocity."""
    half = math.atan2(v, u) / 2
    return {"x": 0.0, "y": 0.0, "z": math.sin(half), "w": math.cos(half)}
