"""Processes of this machine that work for a command, and end with it.

Each has a pipe of its own, and nothing is shared. The processes of `concurrent.futures` share a queue with a lock: one
that a signal ends while it holds the lock leaves the others, and the command that ends them, waiting for good.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.reduction import ForkingPickler
from multiprocessing.util import Finalize
from typing import Any

from mast_swarm.errors import MastError, told_by

_stopped = False  # whether this process has heard Ctrl-C


class Died(Exception):
    """A process ended before its work did."""


class Worker:
    """A process that does one piece of work after the other."""

    def __init__(self, threads: int) -> None:
        """threads: of the libraries that compute."""
        context = get_context("spawn")
        self._answered = False
        self.connection, there = context.Pipe()
        Finalize(self, self.connection.close, exitpriority=0)  # before the interpreter's end waits for all processes
        self.process = context.Process(target=_serve, args=(there, threads))
        if os.name == "posix":  # what the first process would start too, and lets Ctrl-C through at its end
            resource_tracker.ensure_running()
        try:
            with _interrupts("SIG_BLOCK"), there:
                self.process.start()
        except BaseException:  # also a Ctrl-C that has waited
            self.connection.close()
            raise

    def begin(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Give it work."""
        packed = ForkingPickler.dumps((function, arguments))
        with suppress(OSError):  # it has died, as `found` will say
            self.connection.send_bytes(packed)

    def found(self) -> Any:
        """What the work gave; raises its error."""
        try:
            packed = self.connection.recv_bytes()
        except (EOFError, OSError):
            raise Died from None
        self._answered = True
        done, found = ForkingPickler.loads(packed)
        if not done:
            raise found
        return found

    @property
    def never_began(self) -> bool:
        """Of one that has ended: whether it gave nothing and told an error, as one does that runs an unguarded script
        again."""
        return not self._answered and self.process.exitcode == 1

    @property
    def ended(self) -> str:
        """Of one that has died: how, in words after what it was doing."""
        code = self.process.exitcode or 0
        if code == -signal.SIGKILL:
            return ": is memory short? give --jobs 1"
        return f" ({signal.Signals(-code).name})" if code < 0 else f" (exit code {code})"

    def interrupt(self) -> None:
        """Ctrl-C for this process alone."""
        with suppress(ProcessLookupError):
            if self.process.pid is not None:
                os.kill(self.process.pid, signal.SIGINT)


def end(workers: Iterable[Worker]) -> None:
    """Wait until all have ended: those that are idle do at once, others when they find that nobody takes what they
    have. What interrupts this, as a second Ctrl-C, ends them where they are."""
    given = list(workers)
    try:
        for worker in given:
            worker.connection.close()
        for worker in given:
            worker.process.join()
    except BaseException:
        for worker in given:
            worker.process.kill()
        for worker in given:
            worker.process.join()
        raise


def _serve(connection: Connection, threads: int) -> None:
    """The life of a process."""
    _limit(threads)
    signal.signal(signal.SIGINT, _stop)
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()
    with suppress(EOFError, OSError):  # nobody is there any more
        _answer(connection)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # an interpreter that has torch in it takes seconds to end


def _limit(threads: int) -> None:
    """Libraries read the number of their threads when a first piece of work loads them. Those that a script has loaded,
    which each process runs again first, are told."""
    before = os.environ.get("NUMBA_NUM_THREADS")
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(threads)
    if "numba" in sys.modules:
        numba = sys.modules["numba"]
        try:
            numba.config.reload_config()
            with suppress(ValueError):  # it has fewer
                numba.set_num_threads(threads)
        except RuntimeError:  # its threads run already: their number stays, and it has to read that one again
            os.environ.pop("NUMBA_NUM_THREADS")
            os.environ |= {} if before is None else {"NUMBA_NUM_THREADS": before}


def _answer(connection: Connection) -> None:
    """Do what comes, one piece of work after the other, and say what it gave, until this process is told to end."""
    while True:
        given = connection.recv_bytes()
        answer: tuple[bool, Any]
        try:
            _check_waiting()  # before what the work needs is loaded
            function, arguments = ForkingPickler.loads(given)
            answer = True, work(function, *arguments)
        except KeyboardInterrupt as stopped:
            if told_by(stopped) == signal.SIGTERM:  # this process alone is to end: its work is done elsewhere
                return
            answer = False, KeyboardInterrupt()  # one that any process can read
        except BaseException as error:
            answer = False, _portable(error)
        try:
            packed = ForkingPickler.dumps(answer)
        except Exception as error:  # whatever a class says when it is to be sent
            packed = ForkingPickler.dumps((False, _portable(error)))
        connection.send_bytes(packed)


def _portable(error: BaseException) -> BaseException:
    """The error, or one in its place where another process could not read it; one that is not ours says where it comes
    from."""
    try:
        kept = type(ForkingPickler.loads(ForkingPickler.dumps(error))) is type(error)
    except Exception:  # whatever its class does when it is made again
        kept = False
    if not kept:
        try:
            told = str(error)
        except Exception:
            told = "an error that cannot be told"
        kind: Callable[[str], BaseException] = MastError if isinstance(error, MastError) else RuntimeError
        told = told if isinstance(error, MastError) else f"{type(error).__name__}: {told}"
        error = kind(told).with_traceback(error.__traceback__)
    if not isinstance(error, MastError):
        error.add_note(f"in a process that worked for this one:\n{''.join(traceback.format_exception(error))}")
    return error


def _check_waiting() -> None:
    """Raise what a Ctrl-C asks for that has come while there was no work."""
    if hasattr(signal, "sigpending") and signal.SIGINT in signal.sigpending():
        raise KeyboardInterrupt


def work(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a process does with a piece of work. Within it hears Ctrl-C. None is begun after one was heard."""
    global _stopped
    if _stopped:
        raise KeyboardInterrupt
    signal.signal(signal.SIGINT, _interrupt)
    try:
        with _interrupts("SIG_UNBLOCK"):
            return function(*arguments)
    except KeyboardInterrupt:  # also of work that listens itself
        _stopped = True
        raise
    finally:
        signal.signal(signal.SIGINT, _stop)


def _end_with(parent: Any) -> None:
    """End this process when the one dies that gives it work: nobody would take what it finds."""
    parent.join()
    os._exit(1)


def _stop(number: int, frame: object) -> None:
    """Ctrl-C that a library's thread has let through to a process that waits for work: it begins nothing more."""
    global _stopped
    _stopped = True


def _interrupt(number: int, frame: object) -> None:
    """Ctrl-C in one that works: it ends in good order, undisturbed by another."""
    signal.signal(number, _stop)
    _stop(number, frame)
    raise KeyboardInterrupt


@contextmanager
def _interrupts(how: str) -> Iterator[None]:
    """SIG_BLOCK: Ctrl-C waits until the end of this; a process that is started within never hears of it, unless it asks
    to. SIG_UNBLOCK: it is heard, also one that has waited."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(getattr(signal, how), {signal.SIGINT})  # raises what has come, with the mask changed
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
