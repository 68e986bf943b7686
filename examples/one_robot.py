"""One robot with a policy and nothing of our worlds: numpy and onnxruntime, no torch.

mast export navigation/mast-m robot
python examples/one_robot.py robot
"""

import sys

import numpy as np

from mast_swarm.robot import Exported, NavigationFeatures, Robot, Sensed


class MyRobot:
    """Your hardware behind two methods. This one only thinks that it moves."""

    goals = np.array([[500_040.0, 4_000_030.0], [499_900.0, 4_000_010.0]])  # where your cameras see them
    others = np.array([[500_150.0, 4_000_080.0], [499_910.0, 4_000_200.0], [500_300.0, 3_999_950.0]])

    def __init__(self, features: NavigationFeatures) -> None:
        self.features, self.velocity = features, np.zeros(2)
        self.position = np.array([500_000.0, 4_000_000.0])  # metres, in a frame that the team shares: here UTM

    def sense(self) -> Sensed:
        goals, robots = self.goals - self.position, self.others - self.position  # relative to this robot, metres
        return self.features.sensed(self.position, self.velocity, goals, robots)

    def command(self, velocity: np.ndarray) -> None:
        self.velocity, self.position = velocity, self.position + velocity * 1.0  # where you would drive the motors


policy = Exported(sys.argv[1])
body = MyRobot(NavigationFeatures(policy.manifest))
robot = Robot(0, policy.perceive, policy.predict, hop=10**9)
for second in range(60):
    sensed = body.sense()
    robot.sense(second * 10**9, sensed.features, sensed.position)
    command = policy.command(robot.decide(), landmark=sensed.landmark, robot=0, time=second)
    body.command(command * policy.manifest["control"]["max_speed_m_s"])
print(f"{np.linalg.norm(MyRobot.goals - body.position, axis=1).min():.1f} m from the nearest goal")
