"""The closed loop that everything runs: robots sense, decide and move, one control period after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import Actor, is_learned
from mast_swarm.observation import Mark, Observed, unmarked
from mast_swarm.space.cells import still
from mast_swarm.tasks.world import State, World

PRECISIONS = ("fp32", "bf16")


class Loop:
    """B environments and who drives them. `sense`, `decide` and `move` are one control period; a rollout, training and
    the benchmarks do what they have to do in between. `mark` is told of each part when it ends. safe: every robot runs
    the safety layer after its policy."""

    def __init__(
        self,
        world: World[Any, Any],
        actor: Actor,
        *,
        precision: str = "fp32",
        safe: bool = False,
        mark: Mark = unmarked,
    ) -> None:
        if precision not in PRECISIONS:
            raise MastError(f"precision is '{precision}': expected {' or '.join(PRECISIONS)}")
        self.world, self.actor, self.mark = world, actor, mark
        self.half = precision == "bf16" and is_learned(actor)
        self.safe = safe
        self.state: State
        self.observation: Observed

    def start(self, seeds: Sequence[int], scenarios: Sequence[str] | None = None) -> None:
        """The start states of these seeds."""
        self.state = self.world.reset(seeds, scenarios)
        self.actor.start(seeds)

    def autocast(self) -> torch.autocast:
        """The arithmetic of the policy's products."""
        return torch.autocast(self.world.device.type, dtype=torch.bfloat16, enabled=self.half)

    def sense(self) -> Observed:
        """What robots sense now."""
        self.observation = self.world.observe(self.state)
        self.mark("observe")
        return self.observation

    def look(self) -> dict[str, Tensor]:
        """Sense; and the metrics of this instant, each [B]. Positions that both search are sorted once on a GPU."""
        with still(*(part for part in vars(self.state).values() if isinstance(part, Tensor))):
            self.sense()
            return dict(self.world.metrics(self.state))

    def decide(self) -> Tensor:
        """Commands [B, N, 2] in units of u_max, from what was sensed."""
        with self.autocast():
            command = self.actor.act(self.state, self.observation, self.mark)
        if self.safe:
            command = self.world.kept_apart(self.state, command)
            self.mark("keep apart")
        return command

    def move(self, command: Tensor) -> None:
        """One control period."""
        self.state = self.world.step(self.state, command)
        self.mark("motion")

    def step(self) -> None:
        """All three."""
        self.sense()
        self.move(self.decide())
