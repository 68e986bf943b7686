"""The one error that users see: what was given, what was expected, what to do, in one line."""

from __future__ import annotations

import difflib
import signal
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

# Modules of the packages that this one depends on; robots do without most of them (docs/robots.md).
_NEEDED = ("torch", "numpy", "scipy", "numba", "safetensors", "tyro", "rich", "pyarrow", "matplotlib", "PIL")
_MANY = 40  # names: of more an error tells the nearest alone


class Terminated(KeyboardInterrupt):
    """SIGTERM: handled as Ctrl-C is."""

    signal = signal.SIGTERM


def told_by(stopped: KeyboardInterrupt) -> int:
    """The number of the signal that stopped something."""
    return int(getattr(stopped, "signal", signal.SIGINT))


@contextmanager
def terminable() -> Iterator[None]:
    """SIGTERM ends what runs as Ctrl-C does: what was finished is kept, and no process is left."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def asked(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, asked)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class MastError(ValueError):
    """Bad input. The command line prints the message alone and exits with status 2."""


class MastWarning(UserWarning):
    """Something runs, but not as its user may expect."""


def unknown(kind: str, given: str, valid: Iterable[str]) -> MastError:
    """The error for a name that is not registered: names the nearest valid ones, and all others too unless they are
    very many."""
    names = sorted(valid)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.4)
    parts = [f"did you mean {' or '.join(near)}?"] * bool(near)
    parts += [f"known: {', '.join(names)}"] * bool(names and (len(names) <= _MANY or not near))
    return MastError(f"unknown {kind} '{given}': {' '.join(parts) or 'none is known'}")


def lacking(what: str, error: ModuleNotFoundError) -> str | None:
    """The line for something that needs a package that this one depends on and that is not installed; None: the error
    is about something else."""
    module = (error.name or "").partition(".")[0]
    if module not in _NEEDED:
        return None
    return (
        f"{what} needs the package {module}, which is not installed: pip install mast-swarm brings it (mast robot, "
        "mast team and mast doctor do without)"
    )


def plain(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The same parser, whose errors are ours: one line, and where to look."""

    def error(message: str) -> None:
        raise MastError(f"{message}; `{parser.prog} --help` shows all")

    setattr(parser, "error", error)  # noqa: B010  mypy takes no method that is put in place of another
    return parser
