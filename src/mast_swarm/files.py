"""Files that are either there in full or not at all."""

from __future__ import annotations

import fcntl
import itertools
import json
import math
import os
import socket
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Any, TextIO

from mast_swarm.errors import MastError


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside `path` (same ending), which takes its place when the block ends well."""
    path = Path(path)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", suffix=path.suffix, dir=path.parent)
    except OSError as error:
        raise MastError(f"cannot write {path}: {error.strerror}; choose a folder that exists and is yours") from None
    os.close(handle)
    part = Path(name)
    try:
        yield part
        readable_as_new(part)
        part.replace(path)
    except OSError as error:
        raise MastError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        part.unlink(missing_ok=True)


def readable_as_new(path: Path) -> None:
    """Give a file the rights of any new one: mkstemp and safetensors keep theirs to the owner."""
    umask = os.umask(0)
    os.umask(umask)
    path.chmod(0o666 & ~umask)


def check_writable(folder: Path) -> None:
    """Make a folder, and raise an error in one line if nothing can be written to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise MastError(f"cannot write to {folder}: {error.strerror or error}; give another --out") from None


def new_file(path: str | Path, verb: str, endings: Collection[str]) -> Path:
    """The path itself if a file is to be made there: it has one of the endings, and nothing is there yet. verb: what is
    done, as `export` to a file."""
    found = Path(path)
    if found.suffix not in endings:
        raise MastError(f"cannot {verb} to {found.name}: give it one of the endings {', '.join(endings)}")
    if found.exists():
        raise MastError(f"{found} is already there: give another file")
    return found


def readable(path: str | Path, most: int = 1 << 30) -> Path:
    """The path itself if it is a plain file (not a device or a pipe, which may never end) of no more than `most` bytes;
    one that is not there is left to whoever opens it."""
    found = Path(path)
    if found.exists() and not found.is_file():
        raise MastError(f"{path} is no plain file: give one")
    if found.exists() and found.stat().st_size > most:
        raise MastError(
            f"{path} has {found.stat().st_size / 1e9:.1f} GB: files of at most {most / 1e9:.1f} GB are read"
        )
    return found


def plain(value: Any) -> Any:
    """What JSON holds of a setting that it does not know: of an Enum its value, of a path its text."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a setting is of type {type(value).__name__}, which no file can hold: use numbers, texts or paths")


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all."""
    if (found := _endless(value)) is not None:
        raise MastError(f"{found}, which {path.name} cannot hold: give a finite number")
    with whole_file(path) as part:
        part.write_text(json.dumps(value, indent=1, allow_nan=False, default=plain) + "\n", encoding="utf-8")


def _endless(value: Any, name: str = "a value") -> str | None:
    """The first number in nested mappings and sequences that is not finite, in words; None: all are."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"{name} is {value}"
    inside: Iterable[tuple[str, Any]] = ()
    if isinstance(value, Mapping):
        inside = value.items()
    elif isinstance(value, list | tuple):
        inside = ((name, one) for one in value)
    return next((found for key, one in inside if (found := _endless(one, key)) is not None), None)


def new_folder(path: Path) -> Path:
    """Make a folder that was not there: the path itself, or with -2, -3, ... behind it. Nobody else gets the same."""
    for number in itertools.count(1):
        made = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            made.mkdir(parents=True)
            return made
        except FileExistsError:
            continue
        except OSError as error:
            raise MastError(f"cannot write to {made}: {error.strerror}") from None
    raise AssertionError("counting ends")


LOCK = ".lock"
_ATTEMPTS = 100  # to lock a folder that others take away meanwhile


@contextmanager
def only_writer(folder: Path, *, stays: bool = False) -> Iterator[None]:
    """Keeps other processes that ask for the same folder out of it while the block runs; makes the folder, and takes it
    away again if nothing was written to it. stays: it is somebody's and stays, empty too.

    The system holds the lock for this process and frees it when the process ends, however it ends.
    """
    try:
        file = _locked(folder)
    except OSError as error:
        raise MastError(f"cannot write to {folder}: {error.strerror or error}") from None
    with file:
        with suppress(OSError):  # a full disk: the lock counts, its owner's name is a help
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                if _same(folder / LOCK, file):  # else somebody has removed the folder, and another writes there now
                    (folder / LOCK).unlink()
                    if not stays:
                        folder.rmdir()  # unless there is something in it


def _locked(folder: Path) -> TextIO:
    """A folder's lock file, open and locked; the folder is made. Who held it before may take away both in the midst of
    this: then it is tried again. A lock on a file that is gone would keep nobody out."""
    for attempt in range(_ATTEMPTS):
        last = attempt == _ATTEMPTS - 1
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = open(folder / LOCK, "a+", encoding="utf-8")  # noqa: SIM115  closed by who asked for it
        except (FileNotFoundError, FileExistsError):
            if last:
                raise
            continue
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            owner = file.read().strip() or "another process"
            file.close()
            raise MastError(f"{owner} writes to {folder}: wait for it, stop it, or give another --out") from None
        except OSError:  # a disk that knows no locks
            return file
        if _same(folder / LOCK, file) or last:  # or a disk where no file is known again
            return file
        file.close()
    raise AssertionError("the last attempt gives a file or an error")


def _same(path: Path, file: TextIO) -> bool:
    """Whether this is the file at that path."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except OSError:
        return False


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in a JSON file; None where there is none."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None
