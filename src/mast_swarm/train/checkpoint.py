"""Checkpoints: one safetensors file and what it means, written beside the old one and then put in its place."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mast_swarm.errors import MastError

FILE = "checkpoint.safetensors"


def write(folder: Path, tensors: dict[str, Tensor], about: dict[str, Any], name: str = FILE) -> int:
    """Write a checkpoint whole or not at all; the last good one stays until the new one is safe. Returns bytes."""
    path = folder / name
    temporary = path.with_suffix(".writing")
    plain = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    try:
        save_file(plain, temporary, metadata={"about": json.dumps(about)})
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except (OSError, SafetensorError) as error:
        temporary.unlink(missing_ok=True)
        kept = f"the last good checkpoint is kept in {path}" if path.exists() else "there is no earlier checkpoint"
        raise MastError(f"cannot write a checkpoint to {folder}: {error}; {kept}") from None
    return path.stat().st_size


def read(folder: Path, name: str = FILE) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors (on the CPU) and what was said about them."""
    path = folder / name
    try:
        with safe_open(path, framework="pt") as file:
            about = json.loads(file.metadata()["about"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dict
    except FileNotFoundError:
        raise MastError(
            f"no checkpoint in {folder}: nothing to resume; start with `mast train TASK --out DIR`"
        ) from None
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise MastError(f"{path} is not a checkpoint of mast or is damaged: {error}") from None
    return tensors, about


def differences(before: dict[str, Any], now: dict[str, Any], prefix: str = "") -> list[str]:
    """What changed between two nested settings, as `name before -> now`."""
    found: list[str] = []
    for key in sorted({*before, *now}):
        old, new = before.get(key), now.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(old, new, f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key} {old} -> {new}")
    return found


def save_batch(folder: Path, batch: dict[str, Tensor]) -> Path:
    """Keep the batch that broke training, for a look."""
    path = folder / "bad-batch.safetensors"
    save_file({name: value.detach().cpu().contiguous() for name, value in batch.items()}, path)
    return path


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written to the folder's disk."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
