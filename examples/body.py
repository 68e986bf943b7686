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
    """It sees goals and other robots. `mast robot` gives it its number, and what --body-option says."""

    # Where your cameras see goals: metres in the team's frame, here UTM. Robots stand at the last three already.
    goals = np.array(
        [
            [500_040.0, 4_000_030.0],
            [499_900.0, 4_000_010.0],
            [500_150.0, 4_000_080.0],
            [499_910.0, 4_000_200.0],
            [500_300.0, 3_999_950.0],
        ]
    )
    parked = goals[2:]

    def __init__(self, robot: int, policy: str, yard: str = "yard") -> None:
        self.features = NavigationFeatures(read_manifest(policy))
        self.position = np.array([500_000.0 + 20.0 * robot, 4_000_000.0])
        self.velocity, self.at = np.zeros(2), time.monotonic()
        self.place = Path(yard) / f"robot-{robot}.txt"  # a folder stands for the yard that all bodies are in
        self.place.parent.mkdir(exist_ok=True)

    def sense(self) -> Sensed:
        self.move()
        goals, robots = self.goals - self.position, np.concatenate([self.parked, *self.seen()]) - self.position
        return self.features.sensed(self.position, self.velocity, goals, robots)

    def command(self, velocity: np.ndarray) -> None:
        self.move()
        self.velocity = velocity  # where you would drive the motors

    def move(self) -> None:
        """Where you would read your odometry."""
        now = time.monotonic()
        self.position, self.at = self.position + self.velocity * (now - self.at), now

    def seen(self) -> list[np.ndarray]:
        """Where your cameras would see other robots: each leaves its place in the yard."""
        written = self.place.with_suffix(".new")
        np.savetxt(written, self.position[None])
        written.replace(self.place)
        return [np.loadtxt(file, ndmin=2) for file in self.place.parent.glob("robot-*.txt") if file != self.place]

    def close(self) -> None:
        """May be left out."""
        self.place.unlink(missing_ok=True)
        away = np.linalg.norm(self.goals - self.position, axis=1)
        print(f"{away.min():.1f} m from goal {away.argmin()}", flush=True)
