"""Recordings as files of other viewers: MCAP for Foxglove, RRD for Rerun. The ending of the file says which."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.evaluate.recording import Recording
from mast_swarm.files import new_file, whole_file

WRITERS = {".mcap": "mast_swarm.interop.mcap", ".rrd": "mast_swarm.interop.rerun"}
"""The module behind each ending; its `write(recordings, path)` writes a file."""


def export(recordings: Sequence[Recording], path: str | Path) -> Path:
    """Write recordings to a new file, those of several policies under their names; the path again."""
    path = new_file(path, "export", WRITERS)
    if not recordings:
        raise MastError("nothing to export: give at least one recording")
    writer = importlib.import_module(WRITERS[path.suffix])
    with whole_file(path) as part:
        writer.write(places(recordings), part)
    return path


def places(recordings: Sequence[Recording]) -> dict[str, Recording]:
    """Where each recording lies in a file: by its policy's name, with a number where one comes twice."""
    found: dict[str, Recording] = {}
    for recording in recordings:
        name = plain = re.sub(r"[^A-Za-z0-9._-]+", "_", recording.policy) or "policy"
        number = 1
        while name in found:
            number += 1
            name = f"{plain}-{number}"
        found[name] = recording
    return found


def links(recording: Recording) -> list[np.ndarray] | None:
    """Who hears whom at every instant, pairs [E, 2] of robots once each; None where the recording does not keep it."""
    robots = recording.positions.shape[1]
    kept: Mapping[str, np.ndarray] = recording.frames
    if "links" in kept:  # a bit per pair
        bits = np.unpackbits(kept["links"], axis=-1, count=robots, bitorder="little").astype(bool)
        return [np.argwhere(np.triu(one | one.T, 1)) for one in bits]
    if "neighbours" in kept:  # the robots that each links to, -1 where there are fewer
        found = []
        for row in kept["neighbours"]:
            i, k = np.nonzero(row >= 0)
            pairs = np.sort(np.stack([i, row[i, k]], axis=1), axis=1)
            found.append(np.unique(pairs[pairs[:, 0] < pairs[:, 1]], axis=0))
        return found
    return None


def points(recording: Recording) -> dict[str, np.ndarray]:
    """What of a recording's scene are places, each [K, 2] metres, by name."""
    return {
        name: value
        for name, value in recording.scene.items()
        if value.ndim == 2 and value.shape[1] == 2 and value.dtype.kind == "f"
    }
