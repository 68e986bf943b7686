"""The processes of a swarm: started, heard, killed and ended. None outlives this one, however it ends."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mast_swarm.errors import MastError
from mast_swarm.robot.simulated import Frames, frame

_GRACE = 3.0  # seconds that a process has to end by itself
_REPLY = 1.0  # seconds that a process has to take what it asked for

_LOOK = 0.05  # seconds between two looks whether one that is leaving has ended

Heard = Callable[[int, dict[str, Any]], None]


class Member:
    """One robot's process, and the socket to it."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket, log: Path) -> None:
        self.process, self.connection, self.log = process, connection, log
        self.frames = Frames()

    def last_words(self) -> str:
        """The last line that it wrote before it ended."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines() if self.log.exists() else []
        return lines[-1].removeprefix("mast: ") if lines else "it said nothing"


class Fleet:
    """Processes by their robots' numbers. heard: is given what a robot says, {"gone": why} when its process has ended.

    The robots run in sessions of their own, so that Ctrl-C reaches this process alone, which then ends them. If this
    process is killed, its ends of their sockets close, and they stop because of that.
    """

    def __init__(self, logs: Path, heard: Heard) -> None:
        self.members: dict[int, Member] = {}
        self._logs, self._heard = logs, heard
        self._selector = selectors.DefaultSelector()
        self._leaving: dict[
            int, tuple[Member, float]
        ] = {}  # whose socket has closed -> and how long it may take to end

    def start(self, robot: int, settings: dict[str, Any]) -> None:
        """Start a robot's process and tell it who it is."""
        ours, theirs = socket.socketpair()
        log = self._logs / f"robot-{robot}.log"
        with open(log, "wb") as file:
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            process = subprocess.Popen(
                [sys.executable, "-m", "mast_swarm.robot.simulated", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
                env=environment,
            )
        theirs.close()
        ours.settimeout(_REPLY)
        self.members[robot] = Member(process, ours, log)
        self._selector.register(ours, selectors.EVENT_READ, robot)
        self.tell(robot, settings)

    def tell(self, robot: int, said: dict[str, Any], numbers: bytes = b"") -> None:
        """Tell a robot something; one that does not take it is gone."""
        try:
            self.members[robot].connection.sendall(frame(said, numbers))
        except OSError:
            self._gone(robot)

    def listen(self, until: float) -> None:
        """Hear what robots say until a moment of the monotonic clock; each time that something came it returns."""
        self._reap()
        wait = until - time.monotonic()
        if wait <= 0:
            return
        if self._leaving:
            wait = min(wait, _LOOK)
        if not self.members:
            time.sleep(wait)
            return
        for key, _ in self._selector.select(wait):
            self._read(key.data)

    def kill(self, robot: int) -> None:
        """SIGKILL: no goodbye."""
        self.members[robot].process.send_signal(signal.SIGKILL)
        self.members[robot].process.wait()
        self._gone(robot, "killed")

    def end(self) -> None:
        """End all processes that are left: politely, and after a while not."""
        leaving = [member for member, _ in self._leaving.values()]
        processes = [member.process for member in [*self.members.values(), *leaving]]
        for process in processes:
            with contextlib.suppress(OSError):
                process.terminate()
        ends = time.monotonic() + _GRACE
        for process in processes:
            try:
                process.wait(max(0.0, ends - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for member in self.members.values():
            member.connection.close()
        self.members.clear()
        self._leaving.clear()
        self._selector.close()

    def _read(self, robot: int) -> None:
        member = self.members.get(robot)
        if member is None:
            return
        try:
            piece = member.connection.recv(1 << 18)
        except OSError:
            piece = b""
        if not piece:
            self._gone(robot)
            return
        for said, _ in member.frames.feed(piece):
            self._heard(robot, said)

    def _gone(self, robot: int, why: str | None = None) -> None:
        member = self.members.pop(robot, None)
        if member is None:
            return
        self._selector.unregister(member.connection)
        member.connection.close()
        if why is not None:
            self._heard(robot, {"gone": why})
        else:
            self._leaving[robot] = (member, time.monotonic() + _GRACE)

    def _reap(self) -> None:
        """Tell of processes that have ended since their sockets closed; nobody waits for them meanwhile."""
        for robot, (member, ends) in list(self._leaving.items()):
            if member.process.poll() is None and time.monotonic() < ends:
                continue
            del self._leaving[robot]
            member.process.kill()  # does nothing to one that has ended
            member.process.wait()
            self._heard(robot, {"gone": member.last_words()})


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody listens at, neither by UDP nor by TCP."""
    held: list[socket.socket] = []
    ports: list[int] = []
    try:
        while len(ports) < count:
            one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.bind(("127.0.0.1", 0))
            held.append(one)
            other = socket.socket()
            held.append(other)
            with contextlib.suppress(OSError):
                other.bind(one.getsockname())
                ports.append(one.getsockname()[1])
    except OSError as error:
        raise MastError(f"cannot find {count} free ports: {error.strerror}") from None
    finally:
        for each in held:
            each.close()
    return ports
