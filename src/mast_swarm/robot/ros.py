"""A body for robots that speak ROS 2: odometry in, twist out, over Zenoh as `rmw_zenoh_cpp` names things. No torch.

Nothing of ROS 2 needs to be installed where this runs. A topic is the key DOMAIN/TOPIC/TYPE/HASH. A message is its CDR
bytes with an attachment (sequence number, time, who sent it), without which subscribers of ROS 2 drop it. A token of
Zenoh for the node and for each of its two ends makes them show up in `ros2 node list` and `ros2 topic info`. This
follows the design page and the sources of ros2/rmw_zenoh as of ROS 2 Jazzy and Kilted. It was tried against an
independent implementation of the messages on a loopback session; it was not tried with ROS 2 itself, nor on a robot.
"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.robot.body import Sensed
from mast_swarm.robot.extras import needed
from mast_swarm.robot.session import open_session

ROUTER = "tcp/localhost:7447"  # where `ros2 run rmw_zenoh_cpp rmw_zenohd` listens
DRIVES = ("holonomic", "differential")
_LATEST = "::,1:,:,:,,"  # quality of service: reliable, volatile, the last message alone
_ATTACHMENT = struct.Struct("<qqB16s")  # sequence number, nanoseconds since 1970, length of what follows, sender


@dataclass(frozen=True)
class Odometry:
    """What a robot's odometry says."""

    position: np.ndarray
    """[2] metres, in the frame of the odometry."""
    yaw: float
    """Where it looks, radians from the x axis to the left."""
    velocity: np.ndarray
    """[2] m/s, in the frame of the odometry."""
    turn: float
    """rad/s to the left."""
    stamp: int
    """Nanoseconds since 1970, by the clock of who measured."""


class RosBody:
    """A `Body` whose robot has an odometry topic and listens to a velocity topic. A subclass says what it senses.

    namespace: in front of both topics, as "/robot_3". odometry, twist: names of the topics. domain: ROS_DOMAIN_ID.
    connect, listen: endpoints of Zenoh. drive: `holonomic` robots move in any direction; `differential` ones turn to
    where they go, at `turn` rad/s at most, by `gain` rad/s per radian. node: as which node of ROS 2 it shows up.
    """

    def __init__(
        self,
        namespace: str = "",
        *,
        odometry: str = "odom",
        twist: str = "cmd_vel",
        domain: int = 0,
        connect: Sequence[str] = (ROUTER,),
        listen: Sequence[str] = (),
        drive: str = "holonomic",
        turn: float = 1.0,
        gain: float = 2.0,
        node: str = "mast",
    ) -> None:
        if drive not in DRIVES:
            raise MastError(f"drive is '{drive}': expected {' or '.join(DRIVES)}")
        self._messages = needed("mast_swarm.robot.ros_messages", "pycdr2", "ROS 2 needs", extra="ros")
        self._hash = needed("xxhash", "xxhash", "ROS 2 needs", extra="ros").xxh3_128
        self.drive, self.turn, self.gain = drive, float(turn), float(gain)
        self.odometry: Odometry | None = None  # the newest
        self.last_command = np.zeros(2)  # [2] m/s
        self.unread = 0  # messages that are no odometry, or hold no finite numbers
        self._new = False
        self._sequence = 0
        self._session, self._connect = open_session(f"node {node}", listen, connect), tuple(connect)
        namespace = namespace.strip("/")
        heard, said = (f"{namespace}/{topic.strip('/')}".strip("/") for topic in (odometry, twist))
        self._heard, self._key = (
            _key(domain, heard, self._messages.ODOMETRY),
            _key(domain, said, self._messages.TWIST),
        )
        tokens = [_token(domain, self._zid, "NN", 0, namespace, node)]
        tokens += [
            _token(domain, self._zid, kind, number, namespace, node, topic, of)
            for number, (kind, topic, of) in enumerate(
                (("MS", heard, self._messages.ODOMETRY), ("MP", said, self._messages.TWIST)), start=1
            )
        ]
        digest = self._hash(tokens[-1].encode()).intdigest()
        self._gid = struct.pack("<QQ", digest & (1 << 64) - 1, digest >> 64)
        self._tokens = [self._session.liveliness().declare_token(token) for token in tokens]
        self._subscriber = self._session.declare_subscriber(self._heard, self._take)

    def sensed(self, odometry: Odometry) -> Sensed:
        """What the policy perceives, from the odometry and from whatever else the robot has. For subclasses."""
        raise NotImplementedError("say what the robot senses: see docs/robots.md")

    def sense(self) -> Sensed | None:
        """As in `Body`: None as long as no new odometry has come."""
        odometry, new = self.odometry, self._new
        if odometry is None or not new:
            return None
        self._new = False
        return self.sensed(odometry)

    def command(self, velocity: np.ndarray) -> None:
        """As in `Body`: a twist in the robot's own frame."""
        x, y = (float(value) for value in velocity)
        yaw = 0.0 if self.odometry is None else self.odometry.yaw
        self.last_command = np.array([x, y])
        message = self._messages.Twist()
        if self.drive == "holonomic":
            message.linear.x = math.cos(yaw) * x + math.sin(yaw) * y
            message.linear.y = math.cos(yaw) * y - math.sin(yaw) * x
        elif x or y:
            aside = math.remainder(math.atan2(y, x) - yaw, math.tau)
            message.linear.x = math.hypot(x, y) * max(0.0, math.cos(aside))
            message.angular.z = min(max(self.gain * aside, -self.turn), self.turn)
        self._sequence += 1
        attachment = _ATTACHMENT.pack(self._sequence, time.time_ns(), len(self._gid), self._gid)
        self._session.put(self._key, message.serialize(), attachment=attachment)

    def waits_for(self) -> str:
        """As in `Body`: where odometry is expected, and whether there is anybody to bring it."""
        info = self._session.info
        said = f"no new odometry has come at Zenoh's key {self._heard}"
        if self.unread:
            said += f"; {self.unread} messages there are no odometry with finite numbers"
        if not info.routers_zid() and not info.peers_zid():
            where = f"nobody answers at {' or '.join(self._connect)}" if self._connect else "nobody has connected"
            return f"{said}; {where}: is the router running (ros2 run rmw_zenoh_cpp rmw_zenohd)?"
        return f"{said}, though Zenoh is connected: is the topic published, of this type and in this domain?"

    def close(self) -> None:
        """Leave the network."""
        if not self._session.is_closed():
            self._session.close()

    @property
    def _zid(self) -> str:
        return str(self._session.info.zid())

    def _take(self, sample: Any) -> None:
        """Called by a thread of Zenoh's."""
        try:
            self.odometry = read_odometry(sample.payload.to_bytes(), self._messages)
            self._new = True
        except Exception:  # whatever bytes have come
            self.unread += 1


def read_odometry(data: bytes, messages: Any) -> Odometry:
    """The odometry of a message's bytes; an exception where it is none. messages: the module `ros_messages`."""
    found = messages.Odometry.deserialize(data)
    place, looks, twist = found.pose.pose.position, found.pose.pose.orientation, found.twist.twist
    x, y, z, w = looks.x, looks.y, looks.z, looks.w
    yaw = math.atan2(2 * (w * z + x * y), 1 - 2 * (y * y + z * z))
    ahead, aside = twist.linear.x, twist.linear.y  # in the frame of the robot
    numbers = (place.x, place.y, yaw, ahead, aside, twist.angular.z)
    if not all(map(math.isfinite, numbers)):
        raise MastError("odometry holds NaN or infinity")
    velocity = (math.cos(yaw) * ahead - math.sin(yaw) * aside, math.sin(yaw) * ahead + math.cos(yaw) * aside)
    stamp = found.header.stamp.sec * 10**9 + found.header.stamp.nanosec
    return Odometry(np.array([place.x, place.y]), yaw, np.array(velocity), twist.angular.z, stamp)


def _key(domain: int, topic: str, kind: tuple[str, str]) -> str:
    """The key of a topic: its type and the hash of that are part of it."""
    return f"{domain}/{topic}/{kind[0]}/{kind[1]}"


def _token(
    domain: int,
    session: str,
    kind: str,
    number: int,
    namespace: str,
    node: str,
    topic: str | None = None,
    of: tuple[str, str] | None = None,
) -> str:
    """What tells others of a node (NN), a publisher (MP) or a subscription (MS). % stands for a slash."""
    parts = ["@ros2_lv", str(domain), session, "0", str(number), kind, "%", f"%{namespace.replace('/', '%')}", node]
    if topic is not None and of is not None:
        parts += [f"%{topic.replace('/', '%')}", *of, _LATEST]
    return "/".join(parts)
