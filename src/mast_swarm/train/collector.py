"""Rollouts for learning: worlds driven by the expert or the policy, every kept state labelled by the expert.

A step has three parts, so that the CPU's expert works while the GPU learns: `look` (sense and decide, on the
device), `label` (the expert, on the CPU threads), `move` (keep the samples, advance the worlds, on the device). On a
GPU `look` runs beside an update, in what its kernels leave idle.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mast_swarm.evaluate.graphs import captured
from mast_swarm.model.learned import Learned
from mast_swarm.observation import Observed
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.replay import Replay
from mast_swarm.train.teacher import Teacher
from mast_swarm.train.team import Team, copied, example, start_scenarios, start_seeds, world_of


def sample_layout(config: TrainConfig) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
    """What one sample of the replay holds: what the policy was given, packed, the expert's command and its weight."""
    _, _, given = example(config)
    number = torch.int16 if config.world.agents < 2**15 else torch.int32  # of a robot
    packed = given | {"features": world_of(config).pack(given["features"])}
    found = {
        name: (tuple(value.shape[1:]), number if value.dtype == torch.int64 else value.dtype)
        for name, value in packed.items()
    }
    if config.weighted:
        found["weight"] = ((config.world.agents,), torch.float32)
    return found | {"target": ((config.world.agents, config.policy.outputs), torch.float32)}


class Collector:
    """Environments first .. first + count of all, and the expert beside them on the CPU."""

    def __init__(
        self,
        config: TrainConfig,
        policy: Learned,
        replay: Replay,
        device: torch.device,
        first: int,
        count: int,
        copies: int = 1,
    ) -> None:
        """copies: each environment is there so many times, once for each member of a family."""
        self.config, self.replay, self.device = config, replay, device
        self.first, self.count, self.copies = first, count, copies
        self.team = Team(config, policy, device, copies * count)
        self.drawer = ThreadPoolExecutor(1)  # start states are drawn an epoch ahead
        self.drawn: tuple[int, Future[Any]] | None = None
        self.teacher = Teacher(config, self.team.world, *example(config))
        self.policy_drives = config.expert_share < 1
        explores = config.policy.exploration_time is not None  # even the expert's robots then sense as they go
        self.always_looks = self.policy_drives or explores or self.teacher.observes
        self.by_expert = torch.zeros((copies * count, 1, 1), dtype=torch.bool, device=device)
        self.asked: Tensor | None = None  # of copies: the environments that the expert is asked about ...
        self.answer = torch.arange(copies * count)  # ... and for every environment which of these it is
        self.target = torch.zeros((copies * count, config.world.agents, policy.outputs), device=device)
        on_gpu = device.type == "cuda"
        self.told: dict[str, Tensor] = {}  # what the expert knows, on the CPU
        self.host_target = torch.zeros(tuple(self.target.shape), pin_memory=on_gpu)
        self.sent = torch.cuda.Event() if on_gpu else None
        # Where robots sense and decide while the GPU learns. Their few blocks go before those of the update: the expert
        # waits for them, and should be done before the update is.
        self.beside = torch.cuda.Stream(device, priority=-1) if on_gpu else None
        self.in_turn = False  # whether they do so before it learns: for benchmarks
        self._looks: dict[bool, Callable[[], None]] = {}
        self._moves: dict[bool, Callable[[], None]] = {}

    def begin(self, epoch: int) -> None:
        """Start an epoch: who drives, and start states for all environments that are not carried over."""
        carried, by_expert, seeds = self._plan(epoch)
        drawn = self._starts(epoch)
        if drawn is not None:
            places = torch.from_numpy(~carried).repeat(self.copies).nonzero()[:, 0]
            self.team.put(copied(self.team.world.begin(*drawn), self.copies), places)
        self._assign(carried, by_expert, seeds)

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

    def _starts(self, epoch: int) -> Any:
        """What was drawn for the start states of an epoch, if any; the next epoch's are drawn in the background."""

        def draw(wanted: int) -> Any:
            needed = np.flatnonzero(~self._plan(wanted)[0])
            seeds = start_seeds(self.config, wanted, (self.first + int(e) for e in needed))
            if not seeds or not self.config.gathers(wanted):
                return None
            return self.team.world.draw_all(seeds, start_scenarios(self.config, seeds))

        ahead, self.drawn = self.drawn, None
        last = (self.config.collect or self.config.epochs) - 1
        if epoch < last:
            self.drawn = epoch + 1, self.drawer.submit(draw, epoch + 1)
        return ahead[1].result() if ahead is not None and ahead[0] == epoch else draw(epoch)

    def close(self) -> None:
        """Draw no more start states."""
        self.drawer.shutdown(cancel_futures=True)

    def look(self, keep: bool = True) -> None:
        """Sense, decide, and send the expert what it asks for. keep: whether this step's samples are kept; where they
        are not, the expert alone needs nobody to sense."""
        senses = keep or self.always_looks
        if senses not in self._looks:
            work = self._sense if senses else self._tell
            self._looks[senses] = captured(work, self.device, stream=self.beside)
        if self.sent is None or self.beside is None:
            self._looks[senses]()
            return
        with nullcontext() if self.in_turn else _after(torch.cuda.current_stream(), self.beside):
            self._looks[senses]()
            self.sent.record()

    def wait(self) -> None:
        """Until what `look` sent is here, and with it all that was queued on a GPU before."""
        if self.sent is not None:
            self.sent.synchronize()

    def label(self) -> None:
        """The expert's command for every robot, on the CPU."""
        self.wait()
        told = self.told if self.asked is None else {name: value[self.asked] for name, value in self.told.items()}
        target = self.teacher.label(told, self.team.state)
        self.host_target.copy_(target if self.asked is None else target[self.answer])

    def move(self, keep: bool = True) -> None:
        """Keep the samples, if they are to be, and advance the worlds."""
        if self.sent is not None:
            torch.cuda.current_stream().wait_event(self.sent)
        self.target.copy_(self.host_target, non_blocking=True)
        if keep not in self._moves:
            self._moves[keep] = self._captured_move(self._keep_and_advance if keep else self._advance)
        self._moves[keep]()

    def _captured_move(self, work: Callable[[], None]) -> Callable[[], None]:
        """On a GPU the warm-up moves the worlds, which are put back; what it pushes is written over."""
        if self.device.type != "cuda":
            return work
        state = type(self.team.state)(**{name: value.clone() for name, value in vars(self.team.state).items()})
        pushed = self.replay.pushed.clone()
        run = captured(work, self.device)
        self.team.put(state)
        self.replay.pushed.copy_(pushed)
        return run

    def _sense(self) -> None:
        observation = self.team.sense()
        if self.policy_drives:
            self.team.decide()
        self._tell(observation)

    def _tell(self, observation: Observed | None = None) -> None:
        """Send the expert what it asks for."""
        for name, value in self.teacher.asks(self.team.state, observation, self.team.given).items():
            if name not in self.told:
                self.told[name] = torch.empty(value.shape, dtype=value.dtype, pin_memory=self.sent is not None)
            self.told[name].copy_(value, non_blocking=True)

    def _keep_and_advance(self) -> None:
        made = {"features": self.team.world.pack(self.team.given["features"]), "target": self.target}
        if self.config.weighted:
            made["weight"] = self.team.world.weights(self.team.state)
        self.replay.push(self.team.given | made)
        self._advance()

    def _advance(self) -> None:
        self.team.move(torch.where(self.by_expert, self.team.commanded(self.target), self.team.command))

    def tensors(self, midway: bool = False) -> dict[str, Tensor]:
        """The worlds as they stand, by name: midway through an epoch, or if any is carried over to the next one. At the
        end of an epoch that is all, as the expert starts afresh with each; midway it may have something in mind."""
        return dict(vars(self.team.state)) if midway or self.config.carry else {}

    def restore(self, tensors: dict[str, Tensor], epoch: int, midway: bool = False) -> None:
        """Take up the worlds of `tensors()`; midway, who drives and the expert's start too."""
        for name, value in self.tensors(midway).items():
            value.copy_(tensors[name])
        if midway:
            self._assign(*self._plan(epoch))

    def _assign(self, carried: np.ndarray, by_expert: np.ndarray, seeds: np.ndarray) -> None:
        """Who drives the environments of an epoch, and what chance they meet."""
        self.team.seeds.copy_(torch.from_numpy(seeds).repeat(self.copies))
        self.by_expert.copy_(torch.from_numpy(by_expert).repeat(self.copies).view(-1, 1, 1))
        if self.copies > 1:  # what the expert drives from the start is the same in all copies: it is asked once
            number, shared = torch.arange(self.copies * self.count), torch.from_numpy(by_expert & ~carried)
            same = torch.where(shared.repeat(self.copies), number % self.count, number)
            self.asked, self.answer = same.unique(return_inverse=True)
            seeds = seeds[(self.asked % self.count).numpy()]
        self.teacher.start(seeds.tolist())


def _after(before: torch.cuda.Stream, stream: torch.cuda.Stream) -> AbstractContextManager[None]:
    """What is launched in here goes to `stream`, and runs once what `before` has been given so far is done."""
    stream.wait_stream(before)
    return torch.cuda.stream(stream)
