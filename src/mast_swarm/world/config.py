"""Settings of the worlds. No torch here: the command line reads these for its help."""

from __future__ import annotations

import math
from dataclasses import dataclass

from mast_swarm.errors import MastError


@dataclass(frozen=True)
class NavigationConfig:
    """Decentralised assignment and navigation: N robots find N goals (the paper's DAN)."""

    agents: int = 100
    """Number of robots, and of goals."""
    scenario: str = "clusters"
    """How robots and goals start: a name from `mast list`, or file:PATH."""
    width: float | None = None
    """Side of the square in metres; unset: 1000 m * sqrt(agents / 100), so that density is kept."""
    dt: float = 1.0
    """Seconds between two control instants."""
    max_speed: float = 5.0
    """Longest velocity command, m/s."""
    success_radius: float = 5.0
    """A goal is reached while some robot is nearer than this, m."""
    robot_radius: float = 2.5
    """Two robots collide when their centres are nearer than twice this, m."""
    separation: float = 5.0
    """No two robots and no two goals start nearer than this, m."""
    observed: int = 3
    """How many nearest robots and goals a robot senses; it links to those robots."""
    directed: bool = False
    """Information flows only from a robot's nearest to it (the paper's letter); else links carry both ways."""
    length_scale: float = 100.0
    """Metres that become 1 in an observation."""

    def __post_init__(self) -> None:
        if self.agents < 1:
            raise MastError(f"agents is {self.agents}: a team needs at least 1 robot")
        if self.observed < 1:
            raise MastError(f"observed is {self.observed}: a robot must sense at least 1 neighbour")
        positive = {
            "width": self.side,
            "dt": self.dt,
            "max_speed": self.max_speed,
            "success_radius": self.success_radius,
            "robot_radius": self.robot_radius,
            "length_scale": self.length_scale,
        }
        for name, value in positive.items():
            if not (math.isfinite(value) and value > 0):
                raise MastError(f"{name} is {value}: give a positive number")
        if not (math.isfinite(self.separation) and self.separation >= 0):
            raise MastError(f"separation is {self.separation}: give a number of metres, 0 or more")

    @property
    def side(self) -> float:
        """Side of the square, m."""
        return 1000.0 * math.sqrt(self.agents / 100) if self.width is None else self.width

    @property
    def observation_dim(self) -> int:
        """Own last command, and the nearest goals and robots: 14 with three of each."""
        return 2 + 4 * self.observed
