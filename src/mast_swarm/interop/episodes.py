"""Episodes as reinforcement learning runs them: B environments, a reward per control period, an end after so many.

The adapters beside this file (torchrl.py, pettingzoo.py, gymnasium.py) give it the names and shapes of other libraries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast_swarm.errors import MastError, unknown
from mast_swarm.observation import Observed
from mast_swarm.tasks import registry
from mast_swarm.tasks.base import Task
from mast_swarm.tasks.world import State, World
from mast_swarm.train.team import TRAINING_SEEDS

_TRIES = 100  # seeds that are tried for an environment whose start may be impossible
_SEEDS = TRAINING_SEEDS, TRAINING_SEEDS + 2**32  # that are drawn: never those of a test


class Episodes:
    """B environments of a task. `reset`, then `step` until `ended`; there is no end but that of time.

    task: its name, path/to/file.py:TASK, a Task, or a world. steps: control periods of an episode; left out: the
    task's own. seed: of the start states that `reset` draws. settings: of the world, by name, such as agents=8.
    """

    state: State
    observation: Observed
    metrics: dict[str, Tensor]
    """Of the state, each [B]."""
    seeds: list[int]
    """Of the start states, one per environment: `rollout(world, policy, seeds)` begins with the same ones."""

    def __init__(
        self,
        task: str | Task | World[Any, Any],
        environments: int = 1,
        *,
        steps: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        **settings: Any,
    ) -> None:
        if isinstance(task, World):
            if settings:
                raise MastError(f"{next(iter(settings))} is given beside a world, which has its settings: leave it out")
            self.world, self.task = task, registry.task_of(task.config)
        else:
            self.task = registry.find(task)
            known = [field.name for field in fields(self.task.Config)]
            for name in settings:
                if name not in known:
                    raise unknown(f"setting of {self.task.name}", name, known)
            self.world = self.task.make(self.task.Config(**settings).completed(settings), device)
        self.steps = self.task.steps if steps is None else steps
        if environments < 1 or self.steps < 1:
            raise MastError(f"{environments} environments of {self.steps} steps: give 1 or more of each")
        self.environments = environments
        self._reward = self.task.part("reward")
        self.seed(seed)
        self.reset()

    @property
    def agents(self) -> int:
        """Robots of an environment, N."""
        return self.world.config.agents

    def seed(self, *seeds: int) -> None:
        """All start states that `reset` draws from now on follow from these."""
        for seed in seeds:
            if seed < 0:
                raise MastError(f"seed is {seed}: give a whole number, 0 or more")
        self._random = np.random.default_rng(seeds if len(seeds) > 1 else seeds[0])

    @torch.no_grad()
    def reset(self, seeds: Sequence[int] | None = None, among: Tensor | None = None) -> Observed:
        """Begin again: all environments, or those `among` [B] bool; seeds: one for each of them, left out: drawn."""
        rows = torch.arange(self.environments) if among is None else among.cpu().nonzero()[:, 0]
        if seeds is not None and len(seeds) != len(rows):
            raise MastError(f"{len(seeds)} seeds for {len(rows)} environments: give one for each")
        if len(rows):
            given = self._drawn(len(rows)) if seeds is None else list(seeds)
            fresh = self.world.reset(given)
            self.state = fresh if among is None else _placed(self.state, rows.to(self.world.device), fresh)
            self.seeds = given if among is None else self.seeds.copy()
            for row, seed in zip(rows.tolist(), given, strict=True):
                self.seeds[row] = seed
            self._look()
        return self.observation

    @torch.no_grad()
    def step(self, command: Tensor) -> Tensor:
        """One control period: command [B, N, 2] in units of max_speed -> what each robot is paid, [B, N] float32."""
        before, measured = self.state, self.metrics
        self.state = self.world.step(before, command)
        self._look()
        if self._reward is None:
            metric = self.task.drawn
            gained = self.metrics[metric.name] - measured[metric.name]
            reward = -gained if metric.lower_is_better else gained
        else:
            reward = self._reward(self.world, before, command, self.state)
        return paid(reward, self.environments, self.agents)

    @property
    def ended(self) -> Tensor:
        """Whose time is over, [B] bool."""
        return self.state.step >= self.steps

    def _look(self) -> None:
        self.observation = self.world.observe(self.state)
        self.metrics = dict(self.world.metrics(self.state))

    def _drawn(self, count: int) -> list[int]:
        """Seeds of start states that are possible."""
        seeds = [int(seed) for seed in self._random.integers(*_SEEDS, size=count)]
        if self.world.config.starts_may_fail:
            seeds = [self._possible(seed) for seed in seeds]
        return seeds

    def _possible(self, seed: int) -> int:
        for tried in range(_TRIES):
            try:
                self.world.draw(seed, self.world.config.scenario)
                return seed
            except MastError:
                if tried == _TRIES - 1:
                    raise
                seed = int(self._random.integers(*_SEEDS))
        raise AssertionError("the last try gives a seed or an error")


def paid(reward: Any, environments: int, agents: int) -> Tensor:
    """What a task's reward gives as [B, N] float32: of the team each robot is paid the whole."""
    shape = list(reward.shape) if isinstance(reward, Tensor) else type(reward).__name__
    if shape == [environments]:
        return reward.float()[:, None].expand(-1, agents)
    if shape != [environments, agents]:
        raise MastError(
            f"the task's reward is {shape}: expected a tensor [{environments}] or [{environments}, {agents}]"
        )
    return reward.float()


def _placed(state: Any, rows: Tensor, fresh: Any) -> Any:
    """The state with environments `rows` [R] replaced by those of a fresh one."""
    return replace(
        state, **{name: value.index_copy(0, rows, getattr(fresh, name)) for name, value in vars(state).items()}
    )
