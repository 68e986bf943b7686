"""One environment's rollout, kept for replay: arrays in, one compressed file out."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.files import whole_file


def recording_name(number: int, policy: str, episode: int) -> str:
    """The file of an episode in a results folder; sorted, files are in the order of the policies (by number)."""
    return f"recording-{number:03d}-{re.sub('[^A-Za-z0-9._-]+', '_', policy)}-{episode:03d}.npz"


@dataclass(frozen=True)
class Recording:
    """T steps of one navigation environment under one policy (T + 1 frames, the start included)."""

    policy: str
    scenario: str
    seed: int
    delay: float | None  # seconds a hop; None: no messages, or one forward pass for all robots
    dt: float  # s
    width: float  # m
    success_radius: float  # m
    attention_radius: float | None  # m; None: the policy has no window
    goals: np.ndarray  # [M, 2] float32, m
    positions: np.ndarray  # [T+1, N, 2] float32, m
    neighbours: np.ndarray  # [T+1, N, K] int32, nearest robots (links), -1 where missing
    goals_seen: np.ndarray  # [T+1, N, K] int32, nearest goals, -1 where missing
    success_rate: np.ndarray  # [T+1] float32

    def save(self, path: Path) -> None:
        """Write one .npz: the arrays, and the rest as a JSON string (no pickles)."""
        plain = {k: v for k, v in asdict(self).items() if not isinstance(v, np.ndarray)}
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in plain}
        with whole_file(path) as part:
            np.savez_compressed(part, about=np.array(json.dumps(plain)), **arrays)

    @staticmethod
    def load(path: Path) -> Recording:
        """Read what `save` wrote; a file that is something else is an error that names it."""
        try:
            with np.load(path, allow_pickle=False) as file:
                plain = json.loads(str(file["about"]))
                arrays = {name: file[name] for name in file.files if name != "about"}
            return Recording(**plain, **arrays)
        except FileNotFoundError:
            raise MastError(f"no recording at {path}: run `mast evaluate ... --record 1` first") from None
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise MastError(f"{path} is not a recording made by mast: {error}") from None
