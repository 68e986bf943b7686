"""A body for `mast robot`: your hardware behind two methods. This one only thinks that it moves.

mast export navigation/mast-m policy
mast team new team --robots 2
mast robot policy --robot 0 --body examples/body.py:MyRobot --body-option policy=policy --team team \\
  --listen 127.0.0.1:7000 --peer 1=127.0.0.1:7001
"""

import time
from pathlib import Path

import numpy as np

from mast_swarm.robot import NavigationFeatures, Sensed
from mast_swarm.robot.exported import read_manifest


class MyRobot:
    """It sees two goals and no other robots. `mast robot` gives it its number, and what --body-option says."""

    goals = np.array([[500_040.0, 4_000_030.0], [499_900.0, 4_000_010.0]])  # where your cameras see them

    def __init__(self, robot: int, policy: str) -> None:
        self.features = NavigationFeatures(read_manifest(Path(policy)))
        self.position = np.array([500_000.0 + 20.0 * robot, 4_000_000.0])  # metres, in the team's frame: here UTM
        self.velocity, self.at = np.zeros(2), time.monotonic()

    def sense(self) -> Sensed:
        now = time.monotonic()  # where you would read your odometry
        self.position, self.at = self.position + self.velocity * (now - self.at), now
        return self.features.sensed(self.position, self.velocity, self.goals - self.position, np.zeros((0, 2)))

    def command(self, velocity: np.ndarray) -> None:
        self.sense()
        self.velocity = velocity  # where you would drive the motors

    def close(self) -> None:
        """May be left out."""
        print(f"{np.linalg.norm(self.goals - self.position, axis=1).min():.1f} m from the nearest goal", flush=True)
