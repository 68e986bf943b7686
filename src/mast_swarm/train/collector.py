"""Rollouts for learning: worlds driven by the expert or the policy, every state labelled by the expert.

A step has three parts, so that the CPU's expert works while the GPU learns: `look` (sense and decide, on the
device), `label` (the assignment, on the CPU threads), `move` (keep the samples, advance the worlds, on the device).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from mast_swarm.model.policy import Policy
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.graphs import captured
from mast_swarm.train.replay import Replay
from mast_swarm.train.teachers import TEACHERS
from mast_swarm.train.team import Team, inputs, start_seeds
from mast_swarm.world.navigation import Navigation, NavigationState


def sample_layout(config: TrainConfig) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """What one sample of the replay holds: what the policy was given, and the expert's command."""
    outputs = 2 if config.policy.exploration_time is None else 3
    return inputs(config) | {"target": ((config.world.agents, outputs), torch.float32)}


class Collector:
    """Environments first .. first + count of all, and the expert beside them on the CPU."""

    def __init__(
        self,
        config: TrainConfig,
        policy: Policy,
        replay: Replay,
        device: torch.device,
        first: int,
        count: int,
    ) -> None:
        self.config, self.replay, self.device = config, replay, device
        self.first, self.count = first, count
        self.team = Team(config, policy, device, count)
        self.source = Navigation(config.world)  # start states are drawn on the CPU, an epoch ahead
        self.drawer = ThreadPoolExecutor(1)
        self.drawn: tuple[int, Future[NavigationState | None]] | None = None
        self.teacher = TEACHERS[config.expert](config)
        self.by_expert = torch.zeros((count, 1, 1), dtype=torch.bool, device=device)
        self.target = torch.zeros((count, config.world.agents, policy.outputs), device=device)
        on_gpu = device.type == "cuda"
        shape = tuple(self.team.state.positions.shape)
        self.host_positions = torch.zeros(shape, pin_memory=on_gpu)
        self.host_target = torch.zeros(tuple(self.target.shape), pin_memory=on_gpu)
        self.host_component, self.host_seen = (
            torch.zeros(tuple(there.shape), dtype=torch.int64, pin_memory=on_gpu)
            for there in (self.team.component, self.team.goals_seen)
        )
        self.host = self.source.state(self.host_positions, torch.zeros(shape))
        self.sent = torch.cuda.Event() if on_gpu else None
        self._look: Callable[[], None] | None = None
        self._move: Callable[[], None] | None = None

    def begin(self, epoch: int) -> None:
        """Start an epoch: who drives, and start states for all environments that are not carried over."""
        carried, by_expert, seeds = self._plan(epoch)
        fresh = self._starts(epoch)
        if fresh is not None:
            self.team.load(fresh, torch.from_numpy(~carried).nonzero()[:, 0])
        self.team.seeds.copy_(torch.from_numpy(seeds))
        self.by_expert.copy_(torch.from_numpy(by_expert).view(-1, 1, 1))
        self.host = self.source.state(self.host_positions, self.team.state.goals.cpu())
        self.teacher.start()

    def _plan(self, epoch: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """What is random about an epoch, a function of the settings alone: carried [B], by_expert [B], seeds [B].

        An environment that the expert has driven is solved, so it is not carried over.
        """
        rng = np.random.default_rng([self.config.seed, epoch, self.first])
        by_expert = rng.random(self.count) < self.config.expert_share
        carried = rng.random(self.count) < self.config.carry
        seeds = rng.integers(0, 2**62, self.count)
        if epoch == 0:
            return np.zeros(self.count, bool), by_expert, seeds
        before = np.random.default_rng([self.config.seed, epoch - 1, self.first])
        return carried & ~(before.random(self.count) < self.config.expert_share), by_expert, seeds

    def _starts(self, epoch: int) -> NavigationState | None:
        """The start states that an epoch needs; the next epoch's are drawn in the background meanwhile."""

        def draw(wanted: int) -> NavigationState | None:
            needed = np.flatnonzero(~self._plan(wanted)[0])
            seeds = start_seeds(self.config, wanted, (self.first + int(e) for e in needed))
            return self.source.reset(seeds) if seeds else None

        ahead, self.drawn = self.drawn, (epoch + 1, self.drawer.submit(draw, epoch + 1))
        return ahead[1].result() if ahead is not None and ahead[0] == epoch else draw(epoch)

    def look(self) -> None:
        """Sense, decide, and send the positions to the expert."""
        if self._look is None:
            self._look = captured(self._sense, self.device)
        self._look()
        if self.sent is not None:
            self.sent.record()

    def wait(self) -> None:
        """Until the positions that `look` sent are here, and with them all that was queued on a GPU before."""
        if self.sent is not None:
            self.sent.synchronize()

    def label(self) -> None:
        """The expert's command for every robot, on the CPU."""
        self.wait()
        self.host_target.copy_(self.teacher.label(self.host, self.host_component, self.host_seen))

    def move(self) -> None:
        """Keep the samples and advance the worlds."""
        self.target.copy_(self.host_target, non_blocking=True)
        if self._move is None:
            before = {name: value.clone() for name, value in (*self.tensors().items(), ("", self.replay.pushed))}
            self._move = captured(self._advance, self.device)
            if self._move != self._advance:  # the warm-up moved the worlds; what it pushed is written over
                self.restore(before)
                self.replay.pushed.copy_(before[""])
        self._move()

    def _sense(self) -> None:
        self.team.sense()
        self.host_positions.copy_(self.team.state.positions, non_blocking=True)
        self.host_component.copy_(self.team.component, non_blocking=True)
        self.host_seen.copy_(self.team.goals_seen, non_blocking=True)

    def _advance(self) -> None:
        self.replay.push(self.team.seen | {"target": self.target})
        self.team.advance(torch.where(self.by_expert, self.team.commanded(self.target), self.team.command))

    def tensors(self) -> dict[str, Tensor]:
        """The worlds as they stand, by name. Between epochs that is all: the expert starts afresh with each."""
        return dict(vars(self.team.state))

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Take up the worlds of `tensors()`."""
        for name, value in self.tensors().items():
            value.copy_(tensors[name])
