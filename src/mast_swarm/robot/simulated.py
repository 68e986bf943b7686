"""A robot of `mast swarm`: a process whose body is in a simulated world, behind a socket. Needs no torch.

The world holds the other end of the socket. It tells the robot who it is (the first frame), when the mission begins,
and on request what it senses now, who hears it and whom it hears. The robot tells the world its commands and what it
logs. When the world ends, however it ends, the socket closes and the robot stops.
"""

from __future__ import annotations

import json
import random
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.robot.body import Sensed
from mast_swarm.robot.command import Settings, open_robot, plain_warnings
from mast_swarm.robot.pilot import Pace, Step
from mast_swarm.robot.transport import Transport

_LENGTHS = struct.Struct("<II")  # of the JSON, and of the numbers behind it


def frame(said: dict[str, Any], numbers: bytes = b"") -> bytes:
    """A message of the socket: JSON, and numbers that it speaks of."""
    text = json.dumps(said, separators=(",", ":")).encode()
    return _LENGTHS.pack(len(text), len(numbers)) + text + numbers


class Frames:
    """Puts together what comes in pieces."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, piece: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """The messages that are whole now."""
        self._bytes += piece
        while len(self._bytes) >= _LENGTHS.size:
            text, numbers = _LENGTHS.unpack_from(self._bytes)
            ends = _LENGTHS.size + text + numbers
            if len(self._bytes) < ends:
                return
            middle = _LENGTHS.size + text
            yield json.loads(self._bytes[_LENGTHS.size : middle]), bytes(self._bytes[middle:ends])
            del self._bytes[:ends]


class WorldSocket:
    """The robot's end: one request at a time."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection, self._frames = connection, Frames()
        self._waiting: list[tuple[dict[str, Any], bytes]] = []
        self._sending = threading.Lock()

    def send(self, said: dict[str, Any]) -> None:
        """Tell the world something."""
        try:
            with self._sending:
                self._connection.sendall(frame(said))
        except OSError:
            raise MastError("the world has ended") from None

    def receive(self) -> tuple[dict[str, Any], bytes]:
        """What the world says next."""
        while not self._waiting:
            try:
                piece = self._connection.recv(1 << 16)
            except OSError:
                piece = b""
            if not piece:
                raise MastError("the world has ended")
            self._waiting.extend(self._frames.feed(piece))
        return self._waiting.pop(0)


class SimulatedBody:
    """A body in a simulated world."""

    def __init__(self, world: WorldSocket) -> None:
        self._world = world
        self.hears: frozenset[int] = frozenset()  # the robots that this one hears now

    def sense(self) -> Sensed:
        """As in `Body`."""
        self._world.send({"sense": 1})
        said, numbers = self._world.receive()
        self.hears = frozenset(said["hears"])
        features = np.frombuffer(numbers, np.float32).reshape(said["shape"])
        heard_by, robots, sights = tuple(said["heard_by"]), said.get("robots"), said.get("sights")
        return Sensed(said["position"], features, said["landmark"], heard_by, robots, sights)

    def command(self, velocity: np.ndarray) -> None:
        """As in `Body`."""
        self._world.send({"command": [float(part) for part in velocity]})


class Air:
    """A transport as the world lets it be: what comes from robots out of hearing is not taken, and some is lost."""

    def __init__(self, network: Transport, body: SimulatedBody, loss: float, seed: str) -> None:
        self._network, self._body, self._loss = network, body, loss
        self._luck = random.Random(seed)

    def send(self, datagram: bytes, to: int) -> None:
        """As in `Transport`."""
        self._network.send(datagram, to)

    def poll(self, timeout: float = 0.0) -> list[tuple[int, bytes]]:
        """As in `Transport`."""
        arrived = [one for one in self._network.poll(timeout) if one[0] in self._body.hears]
        return [one for one in arrived if self._luck.random() >= self._loss] if self._loss else arrived

    def close(self) -> None:
        """As in `Transport`."""
        self._network.close()


def told(step: Step) -> dict[str, Any]:
    """A step as JSON holds it."""
    counters = {**vars(step.counters), "refused": dict(step.counters.refused)}
    return {**vars(step), "counters": counters}


def main(handle: int) -> None:
    """Run one robot to the end of its mission."""
    with socket.socket(fileno=handle) as connection:
        world = WorldSocket(connection)
        given, _ = world.receive()
        loss = given.pop("loss")
        given["peers"] = {int(robot): where for robot, where in given["peers"].items()}
        settings = Settings(**{**given, "pace": Pace(**given["pace"])})
        body = SimulatedBody(world)
        pilot = open_robot(
            settings,
            body,
            on_step=lambda step: world.send({"step": told(step)}),
            through=lambda network: Air(network, body, loss, f"{settings.pace.seed} {settings.robot}"),
            say=lambda line: _say(world, line),
        )
        world.send({"ready": 1})
        begins, _ = world.receive()
        pilot.begins(begins["start"])
        pilot.run()


def _say(world: WorldSocket, line: str) -> None:
    print(line, file=sys.stderr, flush=True)
    world.send({"says": line})


def program(handle: str) -> None:
    """As a process: its reasons go to the world, and to its standard error where there is no world any more."""
    plain_warnings()
    try:
        main(int(handle))
    except MastError as error:
        print(f"mast: {error}", file=sys.stderr)
        raise SystemExit(2) from None


if __name__ == "__main__":
    program(sys.argv[1])
