"""One robot of the team, in plain numpy: what it holds, hears, passes on and decides. Needs no torch."""

from mast_swarm.robot.agent import News, Robot

__all__ = ["News", "Robot"]
