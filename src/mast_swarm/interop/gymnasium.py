"""Tasks as Gymnasium environments: the whole team is one agent, which commands all robots.

    envs = TeamVectorEnv("navigation", num_envs=32, agents=10)
    observations, infos = envs.reset(seed=0)

An observation is what the robots of an environment sense and who hears whom, by name: "features" [N, ...], "positions"
[N, 2] metres and "hears" [N, N]. An action is every robot's command [N, 2] in units of max_speed. The reward is the
team's: the mean of what robots are paid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from mast_swarm.errors import MastError
from mast_swarm.interop.episodes import Episodes
from mast_swarm.tasks.base import Task
from mast_swarm.tasks.world import World

try:
    import gymnasium as gym
    from gymnasium.spaces import Box, Dict, MultiBinary
    from gymnasium.vector import AutoresetMode, VectorEnv
    from gymnasium.vector.utils import batch_space
except ImportError as error:
    raise MastError(f"this needs the package {error.name}: pip install 'mast-swarm[gymnasium]'") from None

Arrays = dict[str, np.ndarray]


def _spaces(episodes: Episodes) -> tuple[Any, Any]:
    """Of what one team senses, and of its commands."""
    seen = _seen(episodes)
    numbers = {name: Box(-np.inf, np.inf, seen[name].shape[1:], seen[name].dtype) for name in ("features", "positions")}
    return (
        Dict({**numbers, "hears": MultiBinary((episodes.agents, episodes.agents))}),
        Box(-1.0, 1.0, (episodes.agents, 2), np.float32),
    )


def _seen(episodes: Episodes) -> Arrays:
    """What the teams sense now, each [B, N, ...], in memory of its own."""
    observation = episodes.observation
    return {
        "features": observation.features.cpu().numpy().copy(),
        "positions": observation.positions.cpu().numpy().copy(),
        "hears": observation.graph.adjacency().cpu().numpy().astype(np.int8),
    }


def _metrics(episodes: Episodes) -> Arrays:
    return {name: value.float().cpu().numpy().copy() for name, value in episodes.metrics.items()}


def _step(episodes: Episodes, actions: np.ndarray) -> np.ndarray:
    command = torch.from_numpy(np.array(actions, dtype=np.float32)).to(episodes.world.device)
    return episodes.step(command).mean(1).cpu().numpy()


class TeamVectorEnv(VectorEnv[Arrays, np.ndarray, np.ndarray]):
    """B environments of a task in one batch, on a CPU or a GPU. Metrics of the task are in the infos, each [B].

    The arguments are those of `Episodes`. An environment whose time is over begins again in the next step, which takes
    no notice of its action and pays nothing (Gymnasium's `AutoresetMode.NEXT_STEP`).
    """

    def __init__(
        self,
        task: str | Task | World[Any, Any],
        num_envs: int = 1,
        *,
        steps: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        **settings: Any,
    ) -> None:
        self.episodes = Episodes(task, num_envs, steps=steps, seed=seed, device=device, **settings)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}
        self.single_observation_space, self.single_action_space = _spaces(self.episodes)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._over = np.zeros(num_envs, dtype=bool)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Arrays, dict[str, Any]]:
        """Start states of these seeds: one per environment, or of the first, others count on. None: drawn."""
        if isinstance(seed, int | np.integer):
            seed = range(int(seed), int(seed) + self.num_envs)
        if seed is not None and None in seed:
            raise MastError("some environments are given no seed: give all of them one, or a single number")
        super().reset(seed=None if seed is None else int(seed[0]))  # type: ignore[arg-type]
        if seed is not None:
            self.episodes.seed(*seed)  # type: ignore[arg-type]  # what is drawn later follows from them too
        self.episodes.reset(seed)  # type: ignore[arg-type]
        self._over = np.zeros(self.num_envs, dtype=bool)
        return _seen(self.episodes), _metrics(self.episodes)

    def step(self, actions: np.ndarray) -> tuple[Arrays, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """One control period."""
        again = self._over
        reward = _step(self.episodes, actions)
        if again.any():
            self.episodes.reset(among=torch.from_numpy(again))
            reward = np.where(again, np.float32(0), reward)
        self._over = self.episodes.ended.cpu().numpy()
        return _seen(self.episodes), reward, np.zeros_like(self._over), self._over.copy(), _metrics(self.episodes)


class TeamEnv(gym.Env[Arrays, np.ndarray]):
    """One environment of a task. The arguments are those of `Episodes`."""

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
        self.metadata = {"render_modes": []}
        self.observation_space, self.action_space = _spaces(self.episodes)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Arrays, dict[str, Any]]:
        """The start state of that very seed, as everywhere in this package; without one it is drawn."""
        super().reset(seed=seed)
        if seed is not None:
            self.episodes.seed(seed)  # what is drawn later follows from it too
        self.episodes.reset(None if seed is None else [seed])
        return self._first(_seen(self.episodes)), self._info()

    def step(self, action: np.ndarray) -> tuple[Arrays, float, bool, bool, dict[str, Any]]:
        """One control period."""
        reward = float(_step(self.episodes, np.asarray(action)[None])[0])
        return self._first(_seen(self.episodes)), reward, False, bool(self.episodes.ended[0]), self._info()

    def _first(self, arrays: Arrays) -> Arrays:
        return {name: value[0] for name, value in arrays.items()}

    def _info(self) -> dict[str, Any]:
        return {name: float(value[0]) for name, value in _metrics(self.episodes).items()}
