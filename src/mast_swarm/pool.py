"""Many pieces of work at once: in local processes, or on a Ray cluster. Results come as they finish."""

from __future__ import annotations

import itertools
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import active_children, get_context, parent_process
from typing import Any, Protocol

from mast_swarm.errors import MastError

_TRIES = 3  # of work whose process died
_REACH = 5.0  # s to wait for an address


@dataclass(frozen=True)
class Job:
    """A piece of work: a function of a module, and what it is given. It may run in any process, and more than once."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    gpus: float = 0.0


class Pool(Protocol):
    """Where jobs run."""

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        """Each job and what it gave, as they finish. An error in one ends the rest. Local processes ask for a job when
        one is free, so that whoever gives them may stop giving; a cluster takes all at once."""

    def close(self) -> None:
        """Give back what was taken."""


class Local:
    """This machine: so many processes at a time; one is this very process."""

    def __init__(self, processes: int = 1) -> None:
        if processes < 1:
            raise MastError(f"{processes} processes: give 1 or more")
        self.processes = processes

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        if self.processes == 1 or (isinstance(jobs, Sequence) and len(jobs) < 2):
            for job in jobs:
                yield job, job.function(*job.arguments)
            return
        coming, left = enumerate(jobs), dict[int, Job]()  # those that were begun and have not come back
        for attempt in range(_TRIES):
            try:
                for number, found in self._once(coming, left):
                    yield left.pop(number), found
                return
            except BrokenProcessPool:  # a process was killed: what it had is done again
                if attempt + 1 == _TRIES:
                    names = ", ".join(job.name for job in list(left.values())[:3])
                    raise MastError(
                        f"processes died {_TRIES} times over {names}: is memory short? give --jobs 1"
                    ) from None

    def _once(self, coming: Iterator[tuple[int, Job]], left: dict[int, Job]) -> Iterator[tuple[int, Any]]:
        threads = max(1, (os.cpu_count() or 1) // self.processes)
        executor = ProcessPoolExecutor(
            self.processes, get_context("spawn"), initializer=_begin_process, initargs=(threads,)
        )
        waiting: dict[Future[Any], int] = {}

        def begin(number: int, job: Job) -> None:
            left[number] = job
            waiting[executor.submit(_stoppable, job.function, job.arguments)] = number

        try:
            for number, job in list(left.items()):  # again
                begin(number, job)
            while True:
                for number, job in itertools.islice(coming, max(0, self.processes - len(waiting))):
                    begin(number, job)
                if not waiting:
                    return
                for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                    yield waiting.pop(future), future.result()
        except BaseException:  # nobody takes what is still under way; a terminal's Ctrl-C has reached all already
            for child in active_children():
                if child.pid is not None:
                    with suppress(ProcessLookupError):
                        os.kill(child.pid, signal.SIGINT)
            raise
        finally:
            executor.shutdown(wait=True, cancel_futures=True)

    def close(self) -> None:
        """Processes end with each run."""


def _begin_process(threads: int) -> None:
    """Share the cores among processes: those that start here read this before they load any library."""
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    signal.signal(signal.SIGINT, _leave)
    threading.Thread(target=_end_with, args=(parent_process(),), daemon=True).start()


def _end_with(parent: Any) -> None:
    """End this process when the one dies that gives it work: nobody would take what it finds."""
    parent.join()
    os._exit(1)


def _leave(number: int, frame: object) -> None:
    """Ctrl-C in a process that waits for work: it ends without a word."""
    os._exit(128 + number)


def _interrupt(number: int, frame: object) -> None:
    """Ctrl-C in one that works: it ends in good order, undisturbed by another."""
    signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _stoppable(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    signal.signal(signal.SIGINT, _interrupt)
    try:
        return function(*arguments)
    finally:
        signal.signal(signal.SIGINT, _leave)


class Ray:
    """A Ray cluster. Jobs of a machine that dies are run again on others."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise MastError("--ray needs Ray, which is not installed: pip install 'mast-swarm[cluster]'") from None
        check_reachable(address)
        self.ray = ray
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
        except Exception as error:  # whatever Ray says of an address
            raise MastError(f"cannot join the Ray cluster at {address}: {str(error).splitlines()[0]}") from None

    def run(self, jobs: Iterable[Job]) -> Iterator[tuple[Job, Any]]:
        ray = self.ray
        task = ray.remote(max_retries=_TRIES, retry_exceptions=False)(_call)
        waiting = {
            task.options(num_cpus=1, num_gpus=job.gpus, name=job.name).remote(job.function, job.arguments): job
            for job in jobs
        }
        try:
            while waiting:
                for reference in ray.wait(list(waiting), num_returns=1)[0]:
                    job = waiting.pop(reference)
                    try:
                        yield job, ray.get(reference)
                    except ray.exceptions.RayTaskError as error:
                        raise error.cause if isinstance(error.cause, MastError) else error from None
                    except ray.exceptions.RayError as error:
                        raise MastError(
                            f"{job.name} was lost {_TRIES} times on the cluster: {type(error).__name__}"
                        ) from None
        finally:
            for reference in waiting:
                ray.cancel(reference, force=True)

    def close(self) -> None:
        self.ray.shutdown()


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


def check_reachable(address: str, port: int | None = None) -> None:
    """Raise an error within seconds if nobody listens at HOST:PORT (a scheme before it is left away)."""
    if address in ("auto", "local"):
        return
    host, _, given = address.rpartition("://")[2].rpartition(":")
    if not host or not given.isdecimal():
        raise MastError(f"the address is '{address}': give HOST:PORT, as `ray start --head` shows it")
    try:
        socket.create_connection((host, int(given) if port is None else port), timeout=_REACH).close()
    except OSError as error:
        raise MastError(f"nobody answers at {address}: {error.strerror or error}; is the cluster up?") from None


def pool(ray: str | None, processes: int = 1) -> Pool:
    """The Ray cluster at an address, or else local processes."""
    return Local(processes) if ray is None else Ray(ray)
