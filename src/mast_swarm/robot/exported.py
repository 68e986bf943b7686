"""A policy that `mast export` wrote, run on a robot by onnxruntime. Needs no torch."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.robot import explore
from mast_swarm.robot.agent import News
from mast_swarm.robot.survey import Survey
from mast_swarm.robot.wire import model_hash

MANIFEST = "manifest.json"
FORMAT = 1  # of the manifest


class Exported:
    """One robot's functions from a folder; `Robot(name, exported.perceive, exported.predict, hop=...)` runs them.

    threads: of onnxruntime; one is the quickest for few known robots.
    """

    def __init__(self, folder: str | Path, *, threads: int = 1) -> None:
        onnxruntime = runtime()
        self.folder = folder = Path(folder)
        self.manifest = read_manifest(folder)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = threads
        options.log_severity_level = 3  # errors
        self._sessions = {}
        for name in self.manifest["functions"]:
            content = _checked(folder / f"{name}.onnx", self.manifest["files"])
            self._sessions[name] = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    @property
    def model(self) -> bytes:
        """The model's hash as datagrams carry it: 8 bytes, of all files that robots compute with."""
        return model_hash(*(self.folder / f"{name}.onnx" for name in self._sessions))

    def perceive(self, features: Any) -> np.ndarray:
        """The message [d_msg] float32 of what the robot senses."""
        features = np.asarray(features, np.float32)
        _check("features", features, tuple(self.manifest["observation"]["shape"]))
        return self._run("perceive", features=features[None])[0][0]

    def decide(self, messages: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The prediction [2 or 3] of a robot from messages [K, d_msg] at positions [K, 2] metres, its own first."""
        messages, positions = np.asarray(messages, np.float32), np.asarray(positions, np.float64)
        _check("messages", messages, (None, self.manifest["d_msg"]))
        if not len(messages):
            raise MastError(f"messages have shape {list(messages.shape)}: expected 1 or more, the robot's own first")
        _check("positions", positions, (len(messages), 2))
        return self._run("decide", messages=messages, positions=positions)[0]

    def predict(self, known: Sequence[News]) -> np.ndarray:
        """The prediction [2 or 3] from the newest news of each origin, the robot's own first."""
        return self.decide(np.stack([one.message for one in known]), np.stack([one.position for one in known]))

    def trail(self) -> explore.Trail | None:
        """A memory for one robot of where it has been; None: the policy needs none."""
        memory = (self.manifest["exploration"] or {}).get("memory")
        return None if memory is None else explore.Trail(memory["places"], memory["spread_m"])

    def survey(self, side: float | None = None, middle: Any = (0.0, 0.0)) -> Survey | None:
        """A map for one robot of where the team has looked; None: the policy needs none.

        side: metres of the square that the team works in; None: as the manifest says. middle: where that is, [2] metres
        in the team's frame."""
        told = (self.manifest["exploration"] or {}).get("survey")
        return None if told is None else Survey(told["cell_m"], told["side_m"] if side is None else side, middle)

    def command(
        self,
        prediction: np.ndarray,
        *,
        landmark: Any = (0.0, 0.0),
        seed: int = 0,
        robot: int = 0,
        time: float = 0.0,
        away: np.ndarray | None = None,
    ) -> np.ndarray:
        """The command [2] in units of the longest one, of a prediction [2 or 3]; scaled back if it is longer than 1.

        The rest is for policies that explore: landmark [2], the nearest thing of interest (relative, metres); the
        seed of the mission, which all robots share, the robot's number, and seconds since the mission began. away [2]:
        what its `trail` says at this place and time, if it has one.
        """
        settings = self.manifest["exploration"]
        if settings is not None:
            heading = explore.heading(seed, robot, time / settings["time_s"])
            if away is not None:
                heading = explore.turned(heading, away, settings["memory"].get("push", 2.0))  # as it once always was
            leashed = explore.leashed(heading, np.asarray(landmark, np.float64), settings["reach_m"])
            prediction = explore.fill(prediction, leashed)
        return prediction / max(1.0, float(np.hypot(*prediction)))

    def carry(
        self, message: np.ndarray, position: Any, side: float, heard: np.ndarray, degrees: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """One exchange of LPAC: the prediction [2], and what the robot sends next [S].

        message [d_msg] and position [2] metres: its own; side: width of the world, metres; heard [J, S]: what the
        robots that it hears sent; degrees [J]: how many robots each of those heard when it sent.
        """
        size = self.manifest["exchange"]["floats"] if "exchange" in self.manifest else 0
        heard = np.asarray(heard, np.float32).reshape(len(degrees), -1) if len(degrees) else np.zeros((0, size))
        given: dict[str, np.ndarray] = {
            "message": np.asarray(message, np.float32),
            "position": np.asarray(position, np.float64),
            "side": np.asarray(side, np.float64),
            "heard": heard.astype(np.float32),
            "degrees": np.asarray(degrees, np.float32),
        }
        shapes = ((self.manifest["d_msg"],), (2,), (), (len(degrees), size), (None,))
        for (name, value), shape in zip(given.items(), shapes, strict=True):
            _check(name, value, shape)
        command, sent = self._run("carry", **given)
        return command, sent

    def _run(self, function: str, **given: np.ndarray) -> list[np.ndarray]:
        if function not in self._sessions:
            raise MastError(
                f"a policy of kind {self.manifest['kind']} has no function {function}: it has "
                f"{' and '.join(self._sessions)}"
            )
        return self._sessions[function].run(None, given)


def runtime() -> Any:
    """onnxruntime; where it is not installed, an error that says what to install."""
    try:
        import onnxruntime
    except ImportError:
        raise MastError("onnxruntime is not installed: pip install onnxruntime") from None
    return onnxruntime


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """What stands in a folder's manifest.json."""
    folder = Path(folder)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except OSError as error:
        raise MastError(f"cannot read '{folder / MANIFEST}': {error.strerror}; write it with `mast export`") from None
    except ValueError as error:
        raise MastError(f"'{folder / MANIFEST}' is not JSON: {error}") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        given = manifest.get("format") if isinstance(manifest, dict) else None
        raise MastError(f"'{folder / MANIFEST}' has format {given!r}: expected {FORMAT}; export the policy anew")
    return manifest


def _checked(file: Path, files: dict[str, Any]) -> bytes:
    """What a file holds, if the manifest has its hash."""
    try:
        content = file.read_bytes()
    except OSError as error:
        raise MastError(f"cannot read '{file}': {error.strerror}") from None
    if hashlib.sha256(content).hexdigest() != files[file.name]["sha256"]:
        raise MastError(f"'{file}' is not the file that {MANIFEST} describes: export the policy anew")
    return content


def _check(name: str, value: np.ndarray, expected: tuple[int | None, ...]) -> None:
    """Raise an error unless the value has the expected shape (None: 0 or more), and is finite."""
    fits = value.ndim == len(expected) and all(
        length is None or length == given for given, length in zip(value.shape, expected, strict=True)
    )
    if not fits:
        shape = ", ".join("any" if length is None else str(length) for length in expected)
        raise MastError(f"{name} have shape {list(value.shape)}: expected [{shape}]")
    if not np.isfinite(value).all():
        raise MastError(f"{name} hold NaN or infinity: expected finite numbers")
