"""The messages of ROS 2 that a robot's body needs, as CDR bytes (`pycdr2`), and their names on Zenoh.

The fields are those of the packages std_msgs, geometry_msgs and nav_msgs. The type hashes are facts about these
definitions (REP 2016: RIHS01, a SHA-256 over their description); tests compute them anew with `rosbags`.
"""

# No `from __future__ import annotations` here: pycdr2 reads the types of the fields when a class is made.

from dataclasses import dataclass, field

from pycdr2 import IdlStruct
from pycdr2.types import array, float64, int32, uint32

ODOMETRY = "nav_msgs::msg::dds_::Odometry_", "RIHS01_3cc97dc7fb7502f8714462c526d369e35b603cfc34d946e3f2eda2766dfec6e0"
TWIST = "geometry_msgs::msg::dds_::Twist_", "RIHS01_9c45bf16fe0983d80e3cfe750d6835843d265a9a6c46bd2e609fcddde6fb8d2a"


@dataclass
class Time(IdlStruct, typename="builtin_interfaces/Time"):
    sec: int32 = 0
    nanosec: uint32 = 0


@dataclass
class Header(IdlStruct, typename="std_msgs/Header"):
    stamp: Time = field(default_factory=Time)
    frame_id: str = ""


@dataclass
class Vector3(IdlStruct, typename="geometry_msgs/Vector3"):
    x: float64 = 0.0
    y: float64 = 0.0
    z: float64 = 0.0


@dataclass
class Quaternion(IdlStruct, typename="geometry_msgs/Quaternion"):
    x: float64 = 0.0
    y: float64 = 0.0
    z: float64 = 0.0
    w: float64 = 1.0


@dataclass
class Pose(IdlStruct, typename="geometry_msgs/Pose"):
    position: Vector3 = field(default_factory=Vector3)
    orientation: Quaternion = field(default_factory=Quaternion)


@dataclass
class Twist(IdlStruct, typename="geometry_msgs/Twist"):
    linear: Vector3 = field(default_factory=Vector3)
    angular: Vector3 = field(default_factory=Vector3)


@dataclass
class PoseWithCovariance(IdlStruct, typename="geometry_msgs/PoseWithCovariance"):
    pose: Pose = field(default_factory=Pose)
    covariance: array[float64, 36] = field(default_factory=lambda: [0.0] * 36)  # type: ignore


@dataclass
class TwistWithCovariance(IdlStruct, typename="geometry_msgs/TwistWithCovariance"):
    twist: Twist = field(default_factory=Twist)
    covariance: array[float64, 36] = field(default_factory=lambda: [0.0] * 36)  # type: ignore


@dataclass
class Odometry(IdlStruct, typename="nav_msgs/Odometry"):
    header: Header = field(default_factory=Header)
    child_frame_id: str = ""
    pose: PoseWithCovariance = field(default_factory=PoseWithCovariance)
    twist: TwistWithCovariance = field(default_factory=TwistWithCovariance)
