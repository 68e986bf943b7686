"""The body that speaks ROS 2 over Zenoh, against messages that `rosbags` writes and reads, on loopback."""

from __future__ import annotations

import math
import re
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import blocked
import teams
from mast_swarm.errors import MastError
from mast_swarm.robot import Body, Sensed
from mast_swarm.robot.ros import Odometry, RosBody, read_odometry
from mast_swarm.robot.session import open_session

zenoh = pytest.importorskip("zenoh")
rosbags = pytest.importorskip("rosbags.typesys")
messages = pytest.importorskip("mast_swarm.robot.ros_messages")
xxhash = pytest.importorskip("xxhash")
STORE = rosbags.get_typestore(rosbags.Stores.ROS2_JAZZY)
ODOMETRY, TWIST = "nav_msgs/msg/Odometry", "geometry_msgs/msg/Twist"


class MyRobot(RosBody):
    def sensed(self, odometry: Odometry) -> Sensed:
        return Sensed(odometry.position, np.array([*odometry.velocity, odometry.yaw]))


def odometry(x: float, y: float, yaw: float, ahead: float = 0.0, aside: float = 0.0, turn: float = 0.0) -> bytes:
    """As a robot that runs ROS 2 writes it."""
    kinds = STORE.types
    point = kinds["geometry_msgs/msg/Point"](x, y, 0.3)
    looks = kinds["geometry_msgs/msg/Quaternion"](0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2))
    vector, pose = kinds["geometry_msgs/msg/Vector3"], kinds["geometry_msgs/msg/Pose"](point, looks)
    twist = kinds[TWIST](vector(ahead, aside, 0.0), vector(0.0, 0.0, turn))
    header = kinds["std_msgs/msg/Header"](kinds["builtin_interfaces/msg/Time"](12, 34), "odom")
    whole = kinds[ODOMETRY](
        header,
        "base_link",
        kinds["geometry_msgs/msg/PoseWithCovariance"](pose, np.arange(36.0)),
        kinds["geometry_msgs/msg/TwistWithCovariance"](twist, np.arange(36.0)),
    )
    return bytes(STORE.serialize_cdr(whole, ODOMETRY))


def until(found: Callable[[], Any]) -> Any:
    ends = time.monotonic() + 20
    while time.monotonic() < ends:
        value = found()
        if value:
            return value
        time.sleep(0.01)
    raise AssertionError("nothing came in 20 s")


@pytest.fixture
def pair() -> Iterator[Callable[..., tuple[MyRobot, Any]]]:
    """Makes a body, and a session of Zenoh that stands for the robot's ROS 2."""
    opened: list[Any] = []

    def make(**settings: Any) -> tuple[MyRobot, Any]:
        (port,) = teams.free_ports(1)
        body = MyRobot("/robot_3", listen=[f"tcp/127.0.0.1:{port}"], connect=[], **settings)
        opened.append(body)
        other = open_session("the test", [], [f"tcp/127.0.0.1:{port}"])
        opened.append(other)
        until(lambda: list(other.info.peers_zid()))
        return body, other

    yield make
    for one in opened:
        one.close()


def test_names_are_those_of_rosbags() -> None:
    for (name, digest), kind in ((messages.ODOMETRY, ODOMETRY), (messages.TWIST, TWIST)):
        assert digest == STORE.hash_rihs01(kind)
        package, _, short = kind.split("/")
        assert name == f"{package}::msg::dds_::{short}_"


@settings(deadline=None)
@given(*[st.floats(-1e6, 1e6)] * 2, st.floats(-3.1, 3.1), *[st.floats(-50, 50)] * 3)
def test_odometry_is_read(x: float, y: float, yaw: float, ahead: float, aside: float, turn: float) -> None:
    found = read_odometry(odometry(x, y, yaw, ahead, aside, turn), messages)
    assert found.position.tolist() == [x, y] and found.turn == turn and found.stamp == 12 * 10**9 + 34
    assert found.yaw == pytest.approx(yaw, abs=1e-9)
    turned = complex(ahead, aside) * complex(math.cos(yaw), math.sin(yaw))
    assert complex(*found.velocity) == pytest.approx(turned, abs=1e-6)


def test_odometry_in_and_twist_out(pair: Callable[..., tuple[MyRobot, Any]]) -> None:
    body, other = pair()
    assert isinstance(body, Body) and body.sense() is None
    came: list[Any] = []
    subscriber = other.declare_subscriber(f"0/robot_3/cmd_vel/{'/'.join(messages.TWIST)}", came.append)
    publisher = other.declare_publisher(f"0/robot_3/odom/{'/'.join(messages.ODOMETRY)}")

    def told() -> Sensed | None:
        publisher.put(odometry(3.0, -4.0, math.pi / 2, ahead=2.0))
        return body.sense()

    sensed = until(told)
    assert sensed.position.tolist() == [3.0, -4.0]
    assert sensed.features == pytest.approx([0.0, 2.0, math.pi / 2])  # ahead is along y
    before = time.time_ns()

    def moved() -> list[Any]:
        body.command(np.array([1.0, 2.0]))
        return came

    sample = until(moved)[0]
    twist = STORE.deserialize_cdr(sample.payload.to_bytes(), TWIST)
    assert (twist.linear.x, twist.linear.y, twist.angular.z) == pytest.approx((2.0, -1.0, 0.0))
    assert body.last_command.tolist() == [1.0, 2.0]
    # As rmw_zenoh_cpp reads it: by Zenoh's own serialisation.
    number, at, gid = zenoh.ext.z_deserialize(tuple[zenoh.ext.Int64, zenoh.ext.Int64, bytes], sample.attachment)
    assert number >= 1 and before <= at <= time.time_ns()
    tokens = sorted(str(reply.ok.key_expr) for reply in other.liveliness().get("@ros2_lv/0/**"))
    zid = str(body._session.info.zid())
    quality = "::,1:,:,:,,"
    expected = [
        f"@ros2_lv/0/{zid}/0/0/NN/%/%robot_3/mast",
        f"@ros2_lv/0/{zid}/0/1/MS/%/%robot_3/mast/%robot_3%odom/{'/'.join(messages.ODOMETRY)}/{quality}",
        f"@ros2_lv/0/{zid}/0/2/MP/%/%robot_3/mast/%robot_3%cmd_vel/{'/'.join(messages.TWIST)}/{quality}",
    ]
    assert tokens == expected
    digest = xxhash.xxh3_128(expected[2].encode()).intdigest()
    assert gid == struct.pack("<QQ", digest % 2**64, digest >> 64)
    subscriber.undeclare()


def test_it_says_what_it_waits_for(pair: Callable[..., tuple[MyRobot, Any]]) -> None:
    body, _ = pair()
    key = f"0/robot_3/odom/{'/'.join(messages.ODOMETRY)}"
    assert body.waits_for().startswith(f"no new odometry has come at Zenoh's key {key}, though Zenoh is connected")
    alone = MyRobot("/robot_4", connect=["tcp/127.0.0.1:9"])
    assert "nobody answers at tcp/127.0.0.1:9: is the router running" in alone.waits_for()
    alone.close()


def test_what_is_no_odometry_is_counted(pair: Callable[..., tuple[MyRobot, Any]]) -> None:
    body, other = pair()
    bad = [b"", b"\x00\x01\x00\x00abc", odometry(math.nan, 0.0, 0.0), odometry(1.0, math.inf, 0.0)]
    publisher = other.declare_publisher(f"0/robot_3/odom/{'/'.join(messages.ODOMETRY)}")

    def told() -> bool:
        for data in bad:
            publisher.put(data)
        return body.unread >= len(bad)

    until(told)
    assert body.sense() is None and f"{body.unread} messages there are no odometry" in body.waits_for()


def test_a_robot_that_cannot_go_sideways_turns(pair: Callable[..., tuple[MyRobot, Any]]) -> None:
    body, other = pair(drive="differential", turn="0.5", gain="2")  # options of the command line are texts
    came: list[Any] = []
    other.declare_subscriber(f"0/robot_3/cmd_vel/{'/'.join(messages.TWIST)}", came.append)
    body.odometry = Odometry(np.zeros(2), math.pi, np.zeros(2), 0.0, 0)

    def twist(x: float, y: float) -> tuple[float, float, float]:
        came.clear()
        body.command(np.array([x, y]))
        found = STORE.deserialize_cdr(until(lambda: came)[-1].payload.to_bytes(), TWIST)
        return found.linear.x, found.linear.y, found.angular.z

    until(lambda: (body.command(np.zeros(2)), came)[1])
    time.sleep(0.1)
    assert twist(-3.0, 0.0) == pytest.approx((3.0, 0.0, 0.0))
    assert twist(3.0, 0.1) == pytest.approx((0.0, 0.0, -0.5))  # behind it: turns first, the shorter way
    assert twist(-3.0, -0.1)[2] == pytest.approx(2 * math.atan2(0.1, 3.0))
    assert twist(0.0, 0.0) == (0.0, 0.0, 0.0)


def test_mistakes() -> None:
    with pytest.raises(MastError, match="drive is 'legs': expected holonomic or differential"):
        MyRobot(drive="legs")
    with pytest.raises(MastError, match="node mast has no endpoints"):
        MyRobot(connect=[])
    code = """
sys.modules["pycdr2"] = None
from mast_swarm.errors import MastError
from mast_swarm.robot.ros import RosBody
try: RosBody()
except MastError as error: print(error)
"""
    assert blocked.run(code).strip() == "ROS 2 needs the package pycdr2: pip install 'mast-swarm[ros]'"


def test_the_body_of_the_docs_can_be_made(exported_folder: Path) -> None:
    text = (blocked.ROOT / "docs" / "robots.md").read_text()
    (code,) = (part for part in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "class MyBody(RosBody)" in part)
    made: dict[str, Any] = {}
    exec(code.replace("/etc/mast/robot", str(exported_folder)), made)
    body = made["MyBody"](robot=3)
    assert body.sense() is None and "robot_3/odom" in body.waits_for()
    body.close()
