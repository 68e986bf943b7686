"""The folder of a training run and its files, but for the checkpoints: settings, numbers of each epoch, policies."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.files import write_json
from mast_swarm.model.learned import Learned
from mast_swarm.train import checkpoint
from mast_swarm.train.config import TrainConfig, plain

Report = Callable[[dict[str, Any]], None]  # is told of every epoch
METRICS = "metrics.jsonl"


def prepare(out: Path, config: TrainConfig, finished: int, checkpoint_bytes: int) -> None:
    """Make the folder of a run, or refuse one that cannot hold it. finished: the epochs that are done;
    checkpoint_bytes: what one checkpoint of all processes takes."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "config.json", plain(config))
        _drop_later_rows(out / METRICS, finished)
        free = checkpoint.free_bytes(out)
    except OSError as error:
        raise MastError(f"cannot write to {out}: {error.strerror or error}") from None
    needed = 2 * checkpoint_bytes  # the new checkpoint is written before the old one goes
    if free < needed + 10**8:
        raise MastError(
            f"{out} has {free / 1e9:.1f} GB free but two checkpoints need {needed / 1e9:.1f} GB: "
            "free some space, lower --replay, or leave it out with --no-keep-replay"
        )


def _drop_later_rows(path: Path, finished: int) -> None:
    """metrics.jsonl keeps only the epochs that the run still stands on (a killed run may have written more)."""
    if path.exists():
        rows = [line for line in path.read_text().splitlines() if line.endswith("}")]
        kept = [line for line in rows if json.loads(line)["epoch"] <= finished]
        temporary = path.with_suffix(".writing")
        temporary.write_text("".join(line + "\n" for line in kept))
        os.replace(temporary, path)


def keep_row(out: Path, row: dict[str, Any], log: Report) -> None:
    """Add an epoch's numbers to metrics.jsonl and the log."""
    try:
        with open(out / METRICS, "a") as file:
            file.write(json.dumps(row) + "\n")
        log(row)
    except OSError as error:
        raise _cannot_write(out, error) from None


def keep_policy(out: Path, name: str, policy: Learned) -> None:
    """Write a policy to a folder of the run."""
    try:
        policy.save(out / name, overwrite=True)
    except SafetensorError as error:  # a full disk
        raise _cannot_write(out, error) from None


def keep_batches(out: Path, rank: int, batches: dict[str, Tensor]) -> str:
    """Write the batches of a loss that is not finite for a look; says where they are."""
    path = out / f"bad-batch-{rank}.safetensors"
    try:
        save_file({name: value.cpu().contiguous() for name, value in batches.items()}, path)
        return f"the batches of its last two steps are in {path}"
    except (OSError, SafetensorError) as error:
        return f"its batches could not be written to {path} ({error})"


def _cannot_write(out: Path, error: Exception) -> MastError:
    path = out / checkpoint.FILE
    kept = f"the last good checkpoint is kept in {path}" if path.exists() else "there is no checkpoint"
    return MastError(f"cannot write to {out}: {error}; {kept}")
