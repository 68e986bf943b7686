"""Settings of the navigation world. No torch here: the command line reads these for its help."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from mast_swarm.errors import MastError
from mast_swarm.tasks.base import Feature, WorldConfig


@dataclass(frozen=True)
class NavigationConfig(WorldConfig):
    """Decentralized assignment and navigation: N robots find N goals (the paper's DAN)."""

    goals: ClassVar[bool] = True
    starts_may_fail: ClassVar[bool] = True
    scales: ClassVar[tuple[str, ...]] = ("dt", "max_speed", "length_scale")

    agents: int = 100
    """Number of robots, and of goals."""
    scenario: str = "clusters"
    """How robots and goals start: a name from `mast list`, or file:PATH: a CSV file environment,kind,x,y, kind robot or
    goal, metres from the middle of the square. Unless told otherwise there are as many agents as in the file."""
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
        super().__post_init__()
        if self.observed < 1:
            raise MastError(f"observed is {self.observed}: a robot must sense at least 1 neighbour")
        self.check_positive("success_radius", "robot_radius", "length_scale")
        if not (math.isfinite(self.separation) and self.separation >= 0):
            raise MastError(f"separation is {self.separation}: give a number of metres, 0 or more")

    def completed(self, given: Iterable[str]) -> NavigationConfig:
        """As many robots as a file of start states has."""
        if not self.scenario.startswith("file:") or "agents" in given:
            return self
        from mast_swarm.tasks.navigation.files import robots_in

        return replace(self, agents=robots_in(self.scenario.removeprefix("file:")))

    @property
    def start_states(self) -> int | None:
        if not self.scenario.startswith("file:"):
            return None
        from mast_swarm.tasks.navigation.files import environments_in

        return environments_in(self.scenario.removeprefix("file:"))

    @property
    def side(self) -> float:
        """Side of the square, m."""
        return 1000.0 * math.sqrt(self.agents / 100) if self.width is None else self.width

    def scenarios(self, count: int) -> list[str]:
        """One scenario per episode of a test: `clusters` goes round its pairs (robots, goals) of cluster sizes."""
        if self.scenario != "clusters":
            return [self.scenario] * count
        sizes = [size for size in (1, 5, 10) if size <= self.agents]
        pairs = [f"clusters-{robots}-{goals}" for robots in sizes for goals in sizes]
        return [pairs[episode % len(pairs)] for episode in range(count)]

    @property
    def observation_dim(self) -> int:
        """Own last command, and the nearest goals and robots: 14 with three of each."""
        return 2 + 4 * self.observed

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """Of one robot's observation."""
        return (self.observation_dim,)

    def sensed(self) -> tuple[Feature, ...]:
        """The last command, the nearest goals and the nearest robots."""
        there = "by distance, minus the place of this robot, along the world's x and y axes; zeros if there are fewer"
        places = [
            Feature(f"{kind}_{number}", (2,), "m", self.length_scale, f"place of {kind} number {number} {there}")
            for kind in ("goal", "robot")
            for number in range(1, self.observed + 1)
        ]
        said = "the velocity that this robot was last told, x and y, after it was limited; zeros at the start"
        return (Feature("last_command", (2,), "m/s", self.max_speed, said), *places)
