"""Checkpoints: one safetensors file and what it means, written beside the old one and then put in its place."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.files import readable_as_new

FILE = "checkpoint.safetensors"


def write(folder: Path, tensors: dict[str, Tensor], about: dict[str, Any], name: str = FILE) -> int:
    """Write a checkpoint whole or not at all; the last good one stays until the new one is safe. Returns bytes.

    The temporary file always has the same name, so that what a killed run left is written over and never piles up.
    """
    path = folder / name
    temporary = path.with_suffix(".writing")
    plain = {key: value.detach().cpu().contiguous() for key, value in tensors.items()}
    try:
        save_file(plain, temporary, metadata={"about": json.dumps(about)})
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        readable_as_new(temporary)
        os.replace(temporary, path)
        return path.stat().st_size
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        kept = f"the last good checkpoint is kept in {path}" if path.exists() else "there is no earlier checkpoint"
        raise MastError(f"cannot write a checkpoint to {folder}: {error}; {kept}") from None


def read(folder: Path, name: str = FILE) -> dict[str, Tensor]:
    """The tensors of a checkpoint, on the CPU."""
    with _opened(folder / name) as file:
        return {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118  not a dict


def about(folder: Path, name: str = FILE) -> dict[str, Any]:
    """What was said about a checkpoint when it was written."""
    with _opened(folder / name) as file:
        return json.loads(file.metadata()["about"])


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise MastError(f"{path} is not a checkpoint of mast or is damaged: {error}") from None


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


def free_bytes(folder: Path) -> int:
    """Bytes that can still be written to the folder's disk."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize
