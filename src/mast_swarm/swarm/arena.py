"""The world that the robots of a swarm sense and move in. It decides who hears whom, and gives each what it may sense.

A robot that has not joined yet, or whose process has ended, stands where it is. Others sense it, nobody hears it.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np
import torch

from mast_swarm.tasks.world import World


class Status(enum.IntEnum):
    """What became of a robot."""

    WAITING = 0  # it has not joined yet
    ALIVE = 1
    DEAD = 2


class Arena:
    """One environment. shape: of the features that the policy takes. reach: metres within which a robot senses where
    all others are, for its safety layer; None: it has none."""

    def __init__(
        self, world: World[Any, Any], shape: tuple[int, ...], seed: int, scenario: str, reach: float | None = None
    ) -> None:
        self.world, self.shape, self.reach = world, shape, reach
        self.state = world.reset([seed], [scenario])
        robots = world.config.agents
        self.status = np.full(robots, Status.WAITING)
        self.command = np.zeros((robots, 2))  # the last of each robot, m/s
        self.parts: np.ndarray | None = None  # [N] which part of a team that is split each robot belongs to
        self.look()

    @property
    def alive(self) -> np.ndarray:
        """[N] bool."""
        return self.status == Status.ALIVE

    @property
    def positions(self) -> np.ndarray:
        """[N, 2] metres."""
        return self.state.positions[0].double().cpu().numpy()

    def look(self) -> None:
        """What robots sense now, and who hears whom."""
        with torch.inference_mode():
            self.observation = self.world.observe(self.state)
            shown = self.world.shown(self.observation, self.shape)
            self._features = shown.features[0].float().cpu().numpy()
            self._landmarks = self.observation.landmark[0].double().cpu().numpy()
            sights = getattr(self.observation, "sights", None)  # where the task has them
            self._sights = None if sights is None else sights[0].double().cpu().numpy()
            hears = self.observation.graph.adjacency()[0].cpu().numpy()
        np.fill_diagonal(hears, False)
        self._graph = hears

    @property
    def hears(self) -> np.ndarray:
        """[N, N] bool: row i says whom robot i hears."""
        hears = self._graph & self.alive[:, None] & self.alive
        return hears if self.parts is None else hears & (self.parts[:, None] == self.parts)

    def split(self) -> None:
        """The western half of the team and the eastern one do not hear each other any more."""
        order = np.argsort(self.positions[:, 0], kind="stable")
        self.parts = np.zeros(len(order), dtype=np.int64)
        self.parts[order[len(order) // 2 :]] = 1

    def heal(self) -> None:
        """All that are in reach hear each other again."""
        self.parts = None

    def sensed(self, robot: int) -> tuple[dict[str, Any], bytes]:
        """What a robot senses, as it goes over the socket."""
        hears = self.hears
        said = {
            "position": self.positions[robot].tolist(),
            "landmark": self._landmarks[robot].tolist(),
            "shape": list(self.shape),
            "heard_by": np.flatnonzero(hears[:, robot]).tolist(),
            "hears": np.flatnonzero(hears[robot]).tolist(),
        }
        if self._sights is not None:
            said["sights"] = self._sights[robot].tolist()
        if self.reach is not None:
            way = self.positions - self.positions[robot]
            near = np.hypot(*way.T) < self.reach
            near[robot] = False
            said["robots"] = way[near].tolist()
        return said, np.ascontiguousarray(self._features[robot], np.float32).tobytes()

    def metrics(self) -> dict[str, float]:
        """The world's, of now."""
        with torch.inference_mode():
            return {name: float(value[0]) for name, value in self.world.metrics(self.state).items()}

    def frame(self) -> dict[str, np.ndarray]:
        """What a replay shows of this instant, each with one environment in front."""
        with torch.inference_mode():
            kept = {"positions": self.state.positions.float(), **self.world.frame(self.state, self.observation)}
        return {name: values.cpu().numpy() for name, values in kept.items()}

    def warm_up(self) -> None:
        """Do once, for nothing, what each instant needs: what is compiled when first used is then compiled."""
        with torch.inference_mode():
            moved = self.world.step(self.state, torch.zeros_like(self.state.positions))
            self.world.metrics(moved)
            self.world.frame(moved, self.world.observe(moved))

    def move(self) -> None:
        """One control period with the robots' last commands; the dead and those that wait stand still."""
        share = np.where(self.alive[:, None], self.command, 0.0) / self.world.config.max_speed
        with torch.inference_mode():
            command = torch.from_numpy(share)[None].to(self.state.positions)
            self.state = self.world.step(self.state, command)
        self.look()
