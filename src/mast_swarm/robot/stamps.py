"""Stamps that never go back, not even when a robot's process or its machine stops without warning."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from pathlib import Path

from mast_swarm.errors import MastError

_LATEST = 1 << 63  # of stamps that are believed to be meant; the wire carries twice as late ones


@dataclass
class Stamps:
    """Stamps of one robot's own news, which grow strictly whatever its clock does and however it stops.

    The file holds a stamp up to which all may have been used. It is moved ahead before it is reached, so what is on
    disk is never behind what was sent. After a crash the first stamps are up to `ahead` ticks ahead of the clock, which
    is why `ahead` must be less than the clock skew that others allow. file: None: nothing is remembered, for
    simulations.
    """

    file: Path | None
    ahead: int = 2 * 10**9
    failed: str | None = None  # why the file could not be written lately
    _last: int = field(default=-1, init=False)
    _reserved: int = field(default=-1, init=False)
    _lock: int | None = field(default=None, init=False)
    _writing: threading.Lock = field(default_factory=threading.Lock, init=False)  # whoever writes the file

    def __post_init__(self) -> None:
        if self.file is None:
            return
        self.file = Path(self.file)
        self._lock = _locked(self.file)
        try:
            self._last = self._reserved = int(self.file.read_text(encoding="ascii"))
            if not -1 <= self._last < _LATEST:
                raise ValueError
        except FileNotFoundError:
            pass
        except (OSError, ValueError):
            self.close()
            raise MastError(
                f"{self.file} should hold the last stamp of this robot and cannot be read: if it is lost, write the "
                "time in nanoseconds since 1970 into it"
            ) from None
        try:
            write_whole(self.file, f"{self._reserved}\n", 0o600)  # can it be? known now rather than in the field
        except MastError:
            self.close()
            raise

    def next(self, now: int) -> int:
        """The stamp of news that is made now: the clock's, unless a later one was used already."""
        stamp = max(now, self._last + 1)
        if self.file is not None:
            if stamp > self._reserved:
                with self._writing:
                    if stamp > self._reserved:
                        self._reserve(stamp)
            elif self._reserved - stamp < self.ahead // 2 and self._writing.acquire(blocking=False):
                # In good time and aside: a disk may take a second, which a robot on its way does not have.
                threading.Thread(target=self._renew, args=(stamp,), name="stamps", daemon=True).start()
        self._last = stamp
        return stamp

    def _renew(self, stamp: int) -> None:
        try:
            self._reserve(stamp)
        finally:
            self._writing.release()

    def _reserve(self, stamp: int) -> None:
        assert self.file is not None
        try:
            write_whole(self.file, f"{stamp + self.ahead}\n", 0o600)
            self._reserved, self.failed = stamp + self.ahead, None
        except MastError as error:  # the clock still goes on, and a robot on its way must not stop
            self.failed = str(error)

    def close(self) -> None:
        """Give back what was reserved and not used; another process may then be this robot. If the disk is full, the
        file holds a stamp that is further ahead than it need be."""
        with self._writing:
            if self._lock is None:
                return
            if self.file is not None and self._reserved > self._last >= 0:
                try:
                    write_whole(self.file, f"{self._last}\n", 0o600)
                except MastError as error:
                    self.failed = str(error)
            os.close(self._lock)
            self._lock = None


def _locked(file: Path) -> int:
    """An open file that no other process can lock at the same time."""
    path = file.with_name(f".{file.name}.lock")
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise MastError(f"cannot write {path}: {error.strerror}") from None
    try:
        import fcntl
    except ImportError:  # not on this system
        return handle
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise MastError(f"another process uses {file}: a robot runs once") from None
    return handle


def write_whole(file: Path, text: str, mode: int) -> None:
    """Write a small file so that after a crash it holds the old text or the new one."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with open(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(part, file)
        if os.name == "posix":
            folder = os.open(file.parent, os.O_RDONLY)
            os.fsync(folder)
            os.close(folder)
    except OSError as error:
        raise MastError(f"cannot write {file}: {error.strerror}") from None
