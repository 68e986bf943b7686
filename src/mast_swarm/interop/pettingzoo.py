"""Tasks as PettingZoo environments, in which every robot acts at the same time.

    env = TeamParallelEnv("navigation", agents=10)
    observations, infos = env.reset(seed=0)

A robot is given what it senses itself, as one array. What its policy may know besides is in its `infos`: "position"
[2] and "landmark" [2] metres, and "hears", the names of the robots that it hears.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from mast_swarm.errors import MastError, unknown
from mast_swarm.interop.episodes import Episodes
from mast_swarm.tasks.base import Task
from mast_swarm.tasks.world import World

try:
    from gymnasium.spaces import Box
    from pettingzoo import ParallelEnv
except ImportError as error:
    raise MastError(f"this needs the package {error.name}: pip install 'mast-swarm[pettingzoo]'") from None


class TeamParallelEnv(ParallelEnv[str, np.ndarray, np.ndarray]):
    """One environment of a task. Robots are called robot_0, robot_1 and so on; all act until time is over.

    The arguments are those of `Episodes`. A robot's action is its command [2] in units of max_speed.
    """

    def __init__(
        self,
        task: str | Task | World[Any, Any],
        *,
        steps: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        **settings: Any,
    ) -> None:
        self.episodes = Episodes(task, 1, steps=steps, seed=seed, device=device, **settings)
        self.metadata = {"name": f"mast_{self.episodes.task.name}_v0", "render_modes": []}
        self.render_mode = None
        self.possible_agents = [f"robot_{number}" for number in range(self.episodes.agents)]
        self.agents: list[str] = []
        shape = tuple(self.episodes.observation.features.shape[2:])
        self.observation_spaces = {name: Box(-np.inf, np.inf, shape, np.float32) for name in self.possible_agents}
        self.action_spaces = {name: Box(-1.0, 1.0, (2,), np.float32) for name in self.possible_agents}

    def observation_space(self, agent: str) -> Box:
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> Box:
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """The start state of that very seed, as everywhere in this package; without one it is drawn."""
        if seed is not None:
            self.episodes.seed(seed)  # what is drawn later follows from it too
        self.episodes.reset(None if seed is None else [seed])
        self.agents = list(self.possible_agents)
        return self._seen(), self._infos()

    def step(self, actions: dict[str, np.ndarray]) -> tuple[dict[str, Any], ...]:
        """One control period; a command for every robot."""
        for name in actions:
            if name not in self.agents:
                raise unknown("robot that can act", name, self.agents)
        if len(actions) < len(self.agents) or not self.agents:
            missing = [name for name in self.possible_agents if name not in actions]
            what = f"no command for {missing[0]}" if self.agents else "the episode is over, or has not begun"
            raise MastError(f"{what}: {'give every robot one' if self.agents else 'call reset'}")
        team = list(self.agents)
        command = np.stack([np.asarray(actions[name], dtype=np.float32) for name in team])
        reward = self.episodes.step(torch.from_numpy(command)[None].to(self.episodes.world.device))[0].tolist()
        over = bool(self.episodes.ended[0])
        if over:
            self.agents = []
        return (
            self._seen(),
            dict(zip(team, reward, strict=True)),
            dict.fromkeys(team, False),
            dict.fromkeys(team, over),
            self._infos(),
        )

    def _seen(self) -> dict[str, np.ndarray]:
        features = self.episodes.observation.features[0].float().cpu().numpy().copy()
        return dict(zip(self.possible_agents, features, strict=True))

    def _infos(self) -> dict[str, dict[str, Any]]:
        observation, names = self.episodes.observation, self.possible_agents
        places, landmarks = (part[0].cpu().numpy().copy() for part in (observation.positions, observation.landmark))
        hears = observation.graph.adjacency()[0].fill_diagonal_(False).cpu().numpy()
        metrics = {name: float(value[0]) for name, value in self.episodes.metrics.items()}
        return {
            name: {
                "position": places[i],
                "landmark": landmarks[i],
                "hears": [names[j] for j in hears[i].nonzero()[0]],
                **metrics,
            }
            for i, name in enumerate(names)
        }
