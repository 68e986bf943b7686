"""One robot of the team: what it holds, hears, passes on and decides, and what runs it on a network. Needs no torch.

`agent` is the robot itself, in plain numpy. Around it: the bytes on the wire (`wire`), who is believed (`trust`), a
robot on a network without input or output of its own (`node`), and what carries its datagrams (`transport`, `udp`,
`zenoh`, `virtual`). Below it: what its hardware offers (`body`), features from what it measures (`features`), and an
exported policy (`exported`). `pilot` runs all of it in real time.
"""

from mast_swarm.robot.agent import News, Robot
from mast_swarm.robot.body import Body, Sensed
from mast_swarm.robot.exported import Exported
from mast_swarm.robot.features import CoverageFeatures, Features, NavigationFeatures
from mast_swarm.robot.node import Counters, Limits, Node
from mast_swarm.robot.pilot import Pace, Pilot, Step
from mast_swarm.robot.stamps import Stamps
from mast_swarm.robot.transport import Transport
from mast_swarm.robot.trust import Team, Trust
from mast_swarm.robot.udp import UDP
from mast_swarm.robot.virtual import Faults, VirtualNetwork
from mast_swarm.robot.wire import Entry, Format, model_hash
from mast_swarm.robot.zenoh import Zenoh

__all__ = [
    "UDP",
    "Body",
    "Counters",
    "CoverageFeatures",
    "Entry",
    "Exported",
    "Faults",
    "Features",
    "Format",
    "Limits",
    "NavigationFeatures",
    "News",
    "Node",
    "Pace",
    "Pilot",
    "Robot",
    "Sensed",
    "Stamps",
    "Step",
    "Team",
    "Transport",
    "Trust",
    "VirtualNetwork",
    "Zenoh",
    "model_hash",
]
