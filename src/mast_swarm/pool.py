"""Many pieces of work at once: in local processes, or on a Ray cluster. Results come as they finish."""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol

from mast_swarm.errors import MastError
from mast_swarm.workers import Died, Worker, end

_TRIES = 3  # of work whose process died
_REACH = 5.0  # s to wait for an address
# What a gRPC client says first, an empty frame of settings with it, and the type of such a frame, which has 9 bytes.
_GRPC = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
_FRAME, _SETTINGS = 9, 4
_GROUPS = (2, 50)  # the Ray since which nodes of an autoscaler are of a group


@dataclass(frozen=True)
class Job:
    """A piece of work: a function of a module, and what it is given. It may run in any process, and more than once."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    gpus: float = 0.0


class Pool(Protocol):
    """Where jobs run."""

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[Job, Any]]:
        """Each job and what it gave, as they finish. An error in one ends the rest. Local processes ask for a job when
        one is free, so that whoever gives them may stop giving, or say None: there is none before another has ended. A
        cluster takes all at once."""

    def close(self) -> None:
        """Give back what was taken."""


class Local:
    """This machine: so many processes at a time; one is this very process."""

    def __init__(self, processes: int = 1) -> None:
        if processes < 1:
            raise MastError(f"{processes} processes: give 1 or more")
        self.processes = processes

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[Job, Any]]:
        if self.processes == 1 or (isinstance(jobs, Sequence) and len(jobs) < 2):
            for job in jobs:
                if job is not None:
                    yield job, job.function(*job.arguments)
            return
        team, idle, again, coming = list[Worker](), list[Worker](), list[tuple[Job, int]](), iter(jobs)
        busy: dict[Any, tuple[Worker, Job, int]] = {}  # by their connections; how often the job was begun
        try:
            while True:
                while len(busy) < self.processes:
                    job, tries = again.pop() if again else (next(coming, None), 0)
                    if job is None:
                        break
                    if not idle:
                        idle.append(Worker(max(1, (os.cpu_count() or 1) // self.processes)))
                        team += idle
                    worker = idle.pop()
                    busy[worker.connection] = worker, job, tries + 1  # first: who is stopped now interrupts it
                    worker.begin(job.function, *job.arguments)
                if not busy:
                    return
                for connection in wait(list(busy)):
                    worker, job, tries = busy.pop(connection)
                    try:
                        found = worker.found()
                    except Died:  # it was killed: what it had is done again
                        end([worker])
                        team.remove(worker)
                        if worker.never_began:
                            raise MastError(
                                f"a process ended before it gave anything (exit code 1, over {job.name}; its own error "
                                "is above): in a script, put what starts it under `if __name__ == '__main__':`"
                            ) from None
                        if tries == _TRIES:
                            raise MastError(f"a process died {_TRIES} times over {job.name}{worker.ended}") from None
                        again.append((job, tries))
                        continue
                    idle.append(worker)
                    yield job, found
        except BaseException:  # nobody takes what is still under way; a terminal's Ctrl-C has reached all already
            for worker, _, _ in busy.values():
                worker.interrupt()
            raise
        finally:
            end(team)

    def close(self) -> None:
        """Processes end with each run."""


class Ray:
    """A Ray cluster. Jobs of a machine that dies are run again on others."""

    def __init__(self, address: str) -> None:
        try:
            import ray
        except ImportError:
            raise MastError("--ray needs Ray, which is not installed: pip install 'mast-swarm[cluster]'") from None
        # Where a scheme is given Ray speaks another protocol first.
        check_reachable(address, grpc="://" not in address)
        self.ray = ray
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR, ignore_reinit_error=True)
        except Exception as error:  # whatever Ray says of an address
            raise MastError(f"cannot join the Ray cluster at {address}: {str(error).splitlines()[0]}") from None

    def run(self, jobs: Iterable[Job | None]) -> Iterator[tuple[Job, Any]]:
        ray, given = self.ray, [job for job in jobs if job is not None]
        self._check_room(max((job.gpus for job in given), default=0.0))
        task = ray.remote(max_retries=_TRIES, retry_exceptions=False)(_call)
        waiting = {
            task.options(num_cpus=1, num_gpus=job.gpus, name=job.name).remote(job.function, job.arguments): job
            for job in given
        }
        # What still runs when this is left ends with `close`: to cancel it here, by force, crashes Ray at times.
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

    def _check_room(self, gpus: float) -> None:
        """Refuse what no machine of the cluster has, for which Ray would wait without a word; where machines may still
        join, say that we wait."""
        if gpus < 0 or (gpus > 1 and gpus != int(gpus)):
            raise MastError(f"--gpus is {gpus:g}: give a share of one, as 0.25, or a whole number")
        nodes = [node for node in self.ray.nodes() if node["Alive"]]
        have = [(node["Resources"].get("CPU", 0.0), node["Resources"].get("GPU", 0.0)) for node in nodes]
        if any(cpu >= 1 and gpu >= gpus for cpu, gpu in have):
            return
        each = ", ".join(f"{count} x {cpu:g} CPU and {gpu:g} GPU" for (cpu, gpu), count in Counter(have).items())
        told = f"a job takes 1 CPU and {gpus:g} GPU of one machine (--gpus), and the Ray cluster has {each or 'none'}"
        if not self._may_grow(nodes):
            raise MastError(f"{told}: give fewer --gpus, or `ray start` on a machine that has them")
        print(f"{told}: waiting for one that has them", file=sys.stderr, flush=True)

    def _may_grow(self, nodes: list[dict[str, Any]]) -> bool:
        """Whether there may be an autoscaler. Nodes that `ray up` or KubeRay has started are of a group; an older Ray
        does not say."""
        major, minor = map(int, self.ray.__version__.split(".")[:2])
        return (major, minor) < _GROUPS or any("ray.io/node-group" in node.get("Labels", {}) for node in nodes)

    def close(self) -> None:
        self.ray.shutdown()


def _call(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    return function(*arguments)


def check_reachable(address: str, port: int | None = None, *, grpc: bool = False) -> None:
    """Raise an error within seconds if nobody listens at HOST:PORT (a scheme before it is left away), or, with
    grpc, if who does is no Ray cluster."""
    if address in ("auto", "local"):
        return
    host, _, given = address.rpartition("://")[2].rpartition(":")
    if not host or not given.isdecimal():
        raise MastError(f"the address is '{address}': give HOST:PORT, as `ray start --head` shows it")
    try:
        with socket.create_connection((host, int(given) if port is None else port), timeout=_REACH) as connection:
            if grpc:
                _greet(connection, address)
    except OSError as error:
        raise MastError(f"nobody answers at {address}: {error.strerror or error}; is the cluster up?") from None


def _greet(connection: socket.socket, address: str) -> None:
    """Raise an error if who listens there does not speak gRPC, as Ray does: it then says its settings at once."""
    connection.sendall(_GRPC)
    answer = b""
    while len(answer) < _FRAME:
        some = connection.recv(_FRAME - len(answer))
        if not some:
            break
        answer += some
    if len(answer) < _FRAME or answer[3] != _SETTINGS:
        raise MastError(f"what listens at {address} is no Ray cluster: give the address that `ray start --head` shows")


def pool(ray: str | None, processes: int = 1) -> Pool:
    """The Ray cluster at an address, or else local processes."""
    return Local(processes) if ray is None else Ray(ray)
