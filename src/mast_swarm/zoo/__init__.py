"""The trained policies that come with the package and with tasks of other packages, a folder each."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from mast_swarm.errors import MastError

CONFIG_FILE = "config.json"  # what makes a folder one of a policy
WEIGHTS_FILE = "model.safetensors"
_FOLDERS: dict[str, Path] = {path.name: path for path in Path(__file__).parent.iterdir() if path.is_dir()}


def add(task: str, folder: Path) -> None:
    """Make the policies in the subfolders of `folder` known as TASK/NAME."""
    _FOLDERS[task] = Path(folder)


def policies() -> dict[str, Path]:
    """Folder of every policy by its name, such as navigation/mast-m; sorted."""
    found = {
        f"{task}/{file.parent.name}": file.parent
        for task, folder in _FOLDERS.items()
        for file in folder.glob(f"*/{CONFIG_FILE}")
    }
    return dict(sorted(found.items()))


def check_no_run(folder: Path) -> None:
    """Raise an error if a folder is that of a training run, which holds policies and is none."""
    if (folder / "best" / CONFIG_FILE).exists():
        raise MastError(f"'{folder}' is a training run: give {folder / 'best'} or {folder / 'last'}")


def known_by(folder: Path) -> str:
    """What the policy in a folder is known by: its settings and weights in 16 digits."""
    return content(*(folder / name for name in (CONFIG_FILE, WEIGHTS_FILE)))


def content(*files: Path) -> str:
    """What these files hold together, in 16 digits."""
    return _content(*((str(file), file.stat().st_mtime_ns) for file in files))


@lru_cache
def _content(*files: tuple[str, int]) -> str:
    """The files' content in 16 digits; read again only when they change."""
    return hashlib.sha256(b"".join(Path(path).read_bytes() for path, _ in files)).hexdigest()[:16]
