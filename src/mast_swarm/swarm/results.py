"""What is kept of a swarm: a row per control instant, a row per robot and instant, a summary, and a replay."""

from __future__ import annotations

import os
import platform
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mast_swarm import __version__
from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording, recording_name
from mast_swarm.evaluate.rollout import recordings
from mast_swarm.files import whole_file, write_json
from mast_swarm.swarm.arena import Arena
from mast_swarm.swarm.config import SwarmConfig
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Task
from mast_swarm.view.replay import write_replay

USUAL = ("duplicate", "own origin", "old stamp")  # what is known already: any relay over several ways brings it
_NO_AGE = -1.0  # of a robot that knows no living one but itself


class Log:
    """Grows by one row per control instant; `finish` writes the files. News that is known already is not counted among
    the refused messages: that is how news over several ways ends."""

    def __init__(self, folder: Path, config: SwarmConfig, task: Task, manifest: dict[str, Any], arena: Arena) -> None:
        self.folder, self.config, self.task, self.manifest, self.arena = folder, config, task, manifest, arena
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise MastError(f"cannot write to {folder}: {error.strerror}") from None
        plain = {name: value for name, value in vars(config).items() if name not in ("world", "task", "out")}
        write_json(
            folder / "config.json",
            {"task": task.name, **tasks.source(task.name), **vars(config.settled), **plain, "dt": config.dt},
        )
        self.complete = False
        self.robots = config.robots + config.joining
        self.last: list[dict[str, Any] | None] = [None] * self.robots  # the newest step of each robot
        self.ends: dict[int, dict[str, Any]] = {}  # robot -> when and why its process ended
        self.said: list[dict[str, Any]] = []
        self.metrics: list[dict[str, float]] = []
        self.frames: list[dict[str, np.ndarray]] = []
        self.rows: list[dict[str, Any]] = []
        self.robot_rows: list[dict[str, Any]] = []
        self.late = 0  # commands of living robots that had not come when the world moved
        self.took: list[float] = []  # seconds until the body had the command, of every step
        self.busy: list[float] = []  # seconds that the world took for an instant
        self.load = [os.getloadavg()[0]] if hasattr(os, "getloadavg") else []
        self._fresh: set[int] = set()  # robots whose command of this control period has come
        self._stepped: set[int] = set()  # robots whose step of this control period has come

    # What happens, as the mission tells it.

    def instant(self, took: float) -> None:
        """A control instant begins: the world has moved."""
        self.metrics.append(self.arena.metrics())
        self.frames.append(self.arena.frame())
        self.busy.append(took)
        self._fresh.clear()
        self._stepped.clear()

    def commanded(self, robot: int) -> None:
        """A robot's command has come."""
        self._fresh.add(robot)

    def step(self, robot: int, step: dict[str, Any]) -> None:
        """A robot's record of one of its steps."""
        self.last[robot] = step
        self.took.append(step["took"])
        self._stepped.add(robot)

    def says(self, robot: int, line: str) -> None:
        """A line for people."""
        self.said.append({"t": self.time, "robot": robot, "line": line})

    def gone(self, robot: int, why: str) -> None:
        """A robot's process has ended."""
        self.ends[robot] = {"t": self.time, "why": why}

    def moves(self) -> None:
        """A control period ends, and the world moves."""
        self.late += int(self.arena.alive.sum()) - len(self._fresh & set(np.flatnonzero(self.arena.alive)))
        self.keep()

    def keep(self) -> None:
        """A control period ends: keep what it brought."""
        alive, ages, used = self.arena.alive, self._ages(), np.zeros((self.robots, self.robots), bool)
        positions, t = self.arena.positions, self.time
        for robot, step in enumerate(self.last):
            if step is None:
                continue
            counters, known = step["counters"], step["ages"]
            if robot in self._stepped:
                used[robot, [int(peer) for peer in step["heard"]]] = True
            self.robot_rows.append(
                {
                    "t": t,
                    "robot": robot,
                    "alive": bool(alive[robot]),
                    "x": float(positions[robot, 0]),
                    "y": float(positions[robot, 1]),
                    "vx": float(self.arena.command[robot, 0]),
                    "vy": float(self.arena.command[robot, 1]),
                    "known": len(known),
                    "age_mean": _or_none(ages[robot].mean() if len(ages[robot]) else None),
                    "age_max": _or_none(ages[robot].max() if len(ages[robot]) else None),
                    "bytes_out": counters["bytes_out"],
                    "bytes_in": counters["bytes_in"],
                    "refused": refused(counters),
                    "took": step["took"] if robot in self._stepped else None,
                    "met": step["met"],
                    "missed": step["missed"],
                    "searching": step["searching"],
                }
            )
        self.rows.append({"t": t, **self.metrics[-1], **self._totals(ages)})
        age = np.array([one.mean() if len(one) else _NO_AGE for one in ages], np.float32)
        self.frames[-1] |= {
            "status": self.arena.status.astype(np.uint8)[None],
            "age": age[None],
            "used": np.packbits(used, axis=1, bitorder="little")[None],
        }

    # What it comes to.

    @property
    def time(self) -> float:
        """Seconds of the mission."""
        return max(0, len(self.metrics) - 1) * self.config.dt

    def _ages(self) -> list[np.ndarray]:
        """Of each living robot, how old its news of the other living ones is, seconds."""
        alive = set(np.flatnonzero(self.arena.alive))
        return [
            np.array([age for other, age in step["ages"].items() if int(other) in alive])
            if step is not None and robot in alive
            else np.zeros(0)
            for robot, step in enumerate(self.last)
        ]

    def _totals(self, ages: list[np.ndarray]) -> dict[str, Any]:
        """Of all robots until now."""
        steps = [step for step in self.last if step is not None]
        every = np.concatenate(ages) if ages else np.zeros(0)
        return {
            "alive": int(self.arena.alive.sum()),
            "bytes_out": sum(step["counters"]["bytes_out"] for step in steps),
            "age_mean": _or_none(every.mean() if len(every) else None),
            "age_max": _or_none(every.max() if len(every) else None),
            "refused": sum(refused(step["counters"]) for step in steps),
            "deadlines_met": sum(step["met"] for step in steps),
            "deadlines_missed": sum(step["missed"] for step in steps),
        }

    def bytes_per_second(self) -> float | None:
        """Bytes that a robot sends per second of the mission, on average over robots while they live."""
        lived = sum(row["alive"] for row in self.robot_rows) * self.config.dt
        return self.rows[-1]["bytes_out"] / lived if lived else None

    def last_words(self) -> str:
        """Why the last robot ended."""
        return list(self.ends.values())[-1]["why"] if self.ends else "none was started"

    def summary(self) -> dict[str, Any]:
        """The whole run in numbers."""
        config = self.config
        took = np.array(self.took) * 1e3
        ages = [row["age_mean"] for row in self.rows if row["age_mean"] is not None]
        oldest = [row["age_max"] for row in self.rows if row["age_max"] is not None]
        reasons: Counter[str] = Counter()
        for step in self.last:
            reasons.update({} if step is None else step["counters"]["refused"])
        last = self.rows[-1] if self.rows else {}
        return {
            "task": self.task.name,
            "policy": self.manifest["policy"],
            "transport": config.transport,
            "signed": not config.unsigned,
            "complete": self.complete,
            "seconds": last.get("t", 0.0),
            "control_hz": config.hertz,
            "speed": config.speed,
            "delay_s_per_hop": config.hop,
            "loss": config.loss,
            "safe": config.safe,
            "robots": {
                "started": config.robots,
                "joined": sum(step is not None for step in self.last[config.robots :]),
                "alive": last.get("alive", 0),
                "killed": sorted(robot for robot, end in self.ends.items() if end["why"] == "killed"),
                "stopped": {str(robot): end for robot, end in self.ends.items() if end["why"] != "killed"},
            },
            "metrics": {name: last[name] for name in (self.metrics[-1] if self.rows else ())},
            "deadlines": {
                "met": last.get("deadlines_met", 0),
                "missed": last.get("deadlines_missed", 0),
                "late_at_the_world": self.late,
                **_spread("command_ms", took),
            },
            "bytes_per_robot_and_second": self.bytes_per_second() if self.rows else None,
            "news_age_s": {
                "mean": float(np.mean(ages)) if ages else None,
                "max": float(np.max(oldest)) if oldest else None,
            },
            "messages_refused": {why: count for why, count in sorted(reasons.items()) if why not in USUAL},
            "messages_known_already": {why: reasons[why] for why in sorted(USUAL)},
            "said": self.said[:200],
            "world_ms": _spread("instant", np.array(self.busy) * 1e3),
            "machine": {
                "cores": os.cpu_count(),
                "load_before": self.load[0] if self.load else None,
                "python": platform.python_version(),
                "version": __version__,
            },
        }

    def finish(self) -> dict[str, Any]:
        """Write the files; the summary."""
        if len(self.metrics) > len(self.rows):
            self.keep()
        found = self.summary()
        write_json(self.folder / "summary.json", found)
        if self.rows:
            _write_table(self.folder / "steps.parquet", self.rows)
            _write_table(self.folder / "robots.parquet", self.robot_rows)
            recording = self.recording()
            recording.save(self.folder / recording_name(0, recording.policy, 0))
            write_replay(self.folder / "replay.html", [recording], title=f"MAST swarm: {self.robots} processes")
        return found

    def recording(self) -> Recording:
        """For the replay. used: row i at instant n says from whom robot i got news until the next instant."""
        seed, scenario = self.config.start()
        used = [frame["used"] for frame in self.frames]
        for frame, following in zip(self.frames, [*used[1:], np.zeros_like(used[-1])], strict=True):
            frame["used"] = following
        name = f"{Path(self.manifest['policy']).name} over {self.config.transport}"
        about = {
            "policy": name,
            "scenario": scenario,
            "seed": seed,
            "delay": self.config.hop,
            "attention_radius": self.manifest["attention_radius_m"],
        }
        metrics = {name: np.array([[row[name] for row in self.metrics]], np.float32) for name in self.metrics[0]}
        return recordings(self.arena.world, self.arena.state, self.frames, metrics, [about])[0]


def check_unused(folder: Path) -> None:
    """Raise an error for a folder that holds something."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise MastError(f"{folder} is already used: give another --out")


def refused(counters: dict[str, Any]) -> int:
    """Messages that were refused, other than as known already."""
    return sum(count for reason, count in counters["refused"].items() if reason not in USUAL)


def _or_none(value: Any) -> float | None:
    return None if value is None else float(value)


def _spread(name: str, values: np.ndarray) -> dict[str, float | None]:
    found = {"median": 50, "p99": 99, "max": 100}
    return {
        f"{name}_{word}": float(np.percentile(values, share)) if len(values) else None for word, share in found.items()
    }


def _write_table(path: Path, rows: list[dict[str, Any]]) -> None:
    with whole_file(path) as part:
        pq.write_table(pa.Table.from_pylist(rows), part)
