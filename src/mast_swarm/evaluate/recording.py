"""One environment's rollout, kept for replay: arrays in, one compressed file out."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.files import plain as plain_setting
from mast_swarm.files import whole_file

_GROUPS = ("metrics", "frames", "scene", "known")  # arrays by name; a name in the file is GROUP/NAME


def recording_name(number: int, policy: str, episode: int) -> str:
    """The file of an episode in a results folder; sorted, files are in the order of the policies (by number)."""
    return f"recording-{number:03d}-{re.sub('[^A-Za-z0-9._-]+', '_', policy)}-{episode:03d}.npz"


@dataclass(frozen=True)
class Recording:
    """T steps of one environment under one policy (T + 1 frames, the start included).

    Besides the positions it holds what the task's world keeps (its `frame` and `scene`), by name.
    """

    task: str
    policy: str
    scenario: str
    seed: int
    delay: float | None  # seconds per hop; None: no messages, or one forward pass for all robots
    dt: float  # s
    width: float  # m, side of the square world
    attention_radius: float | None  # m; None: the policy has no window
    settings: dict[str, Any]  # of the world, by name
    positions: np.ndarray  # [T+1, N, 2] float32, m
    metrics: dict[str, np.ndarray]  # each [T+1] float32
    frames: dict[str, np.ndarray]  # what else changes, each [T+1, ...]
    scene: dict[str, np.ndarray]  # what stays
    loss: float = 0.0  # probability that a link loses a transmission
    failure: float = 0.0  # probability that a robot fails for good in a control period
    knowledge: str = ""  # how robots know of each other, as `knowledge.KINDS` has it; "": not said
    known: dict[str, np.ndarray] = field(default_factory=dict)  # what they know at some frames, see `knowledge`

    def alive(self, frame: int) -> np.ndarray:
        """The robots that have not failed by a frame: [N] bool."""
        kept = self.frames.get("alive")
        return np.ones(self.positions.shape[1], dtype=bool) if kept is None else kept[frame].astype(bool)

    def save(self, path: Path) -> None:
        """Write one .npz: the arrays, and the rest as a JSON string (no pickles)."""
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("positions", *_GROUPS)}
        arrays = {f"{group}/{name}": value for group in _GROUPS for name, value in getattr(self, group).items()}
        about = np.array(json.dumps(plain, default=plain_setting))
        with whole_file(path) as part, part.open("wb") as file:  # of a path numpy would change the ending
            np.savez_compressed(file, about=about, positions=self.positions, **arrays)

    @staticmethod
    def load(path: Path) -> Recording:
        """Read what `save` wrote; a file that is something else is an error that names it."""
        groups: dict[str, dict[str, np.ndarray]] = {group: {} for group in _GROUPS}
        try:
            with np.load(path, allow_pickle=False) as file:
                plain: dict[str, Any] = json.loads(str(file["about"]))
                for full in file.files:
                    group, found, name = full.partition("/")
                    if found:
                        groups[group][name] = file[full]
                return Recording(**plain | groups, positions=file["positions"])
        except FileNotFoundError:
            raise MastError(f"no recording at {path}: run `mast evaluate ... --record 1` first") from None
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise MastError(f"{path} is not a recording made by mast: {error}") from None
