"""The training run: epochs of rollouts and updates, validation, checkpoints.

A run is a function of its settings: all that is random comes from the seed, the epoch and the environment's number. So
a run that was stopped anywhere, midway through an epoch too, and resumed on a CPU ends with the very bits of one never
stopped (with the replay in its checkpoints, and as many threads and processes). On a GPU it resumes from the same
state, with the same start states, drivers and batches, but rounding may differ: kernels are chosen and compiled anew
in each process.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.tasks.registry import task_of
from mast_swarm.train import checkpoint, folder, snapshot
from mast_swarm.train.collector import Collector, sample_layout
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.draws import draws
from mast_swarm.train.folder import Report
from mast_swarm.train.learner import Learner, starting_policy
from mast_swarm.train.processes import Processes
from mast_swarm.train.replay import Replay
from mast_swarm.train.snapshot import Within
from mast_swarm.train.team import Validator, example, start_scenarios, start_seeds, world_of

CHEAP = 0.02  # share of the time that checkpoints may take which come more often than asked


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How to run, as opposed to what to learn: nothing here changes a weight."""

    out: Path
    device: torch.device
    checkpoint_seconds: float = 60.0  # longest time between two checkpoints, but for the step that it falls into
    keep_replay: bool = True  # whether checkpoints hold the replay; without it a resumed run fills it anew
    largest_replay: float = math.inf  # bytes above which they do not


class Stopped(KeyboardInterrupt):
    """A run that was told to stop: it ended its step, wrote a checkpoint, and can go on from there."""

    def __init__(self, told: str, folder: Path, signal: int) -> None:
        super().__init__(told)
        self.folder, self.signal = folder, signal


class Trainer:
    """One process of a training run. Process 0 writes; each has its share of environments, replay and batch."""

    copies = 1  # policies that learn at once; see train/family.py

    def __init__(self, config: TrainConfig, options: RunOptions, resumed: bool = False) -> None:
        """resumed: the weights will come from a checkpoint, not from the policy that the run began with."""
        self.config, self.options = config, options
        task = task_of(config.world)
        self.metric = task.metric
        world = world_of(config)
        task.check_measured(world.metrics(example(config)[0]))
        seeds = start_seeds(config, 0, range(max(1, len(config.scenarios))))
        world.draw_all(seeds, start_scenarios(config, seeds))  # what cannot be drawn is told before there is a folder
        self.processes = Processes()
        count = self.processes.count
        if config.environments % count or config.batch % count:
            raise MastError(f"--environments and --batch must divide by the {count} processes")
        device, share = options.device, config.environments // count
        self.replay = Replay(sample_layout(config), config.replay // count, device, self.copies)
        self.learner = self._learner(resumed)
        first = self.processes.rank * share
        self.collector = Collector(config, self.learner.acting, self.replay, device, first, share, self.copies)
        self.validator: Validator | None = None
        self.epoch, self.within = 0, Within()  # epochs whose steps are done, and how far the next one is
        self.stopping = 0  # the signal that asked for an end, if one did
        self.began = time.monotonic()  # when the epoch did
        self.written, self.cost = math.inf, 0.0  # when the last checkpoint was, and the seconds that one takes
        self.unkept = ""  # what the expert has in mind that no file can hold
        self.best: float | None = None  # best validated headline metric
        self.empty = True  # whether the replay is
        self.last_loss = torch.zeros((), pin_memory=device.type == "cuda")  # on the host, a step late on a GPU
        self.pushes = 0  # to the replay, since this process began
        self.chosen: deque[tuple[int, list[Tensor]]] = deque(maxlen=2)  # pushes before a step, what chose its batches
        self.learned: deque[torch.cuda.Event] = deque(maxlen=2)  # the ends of the last two steps' updates on a GPU

    def _learner(self, resumed: bool) -> Learner:
        first = starting_policy(self.config) if self.config.start and not resumed else None
        return Learner(self.config, self.replay, self.options.device, self.processes.count, first)

    @staticmethod
    def resume(options: RunOptions, wanted: TrainConfig | None = None) -> Trainer:
        """The run in a folder, where its last checkpoint left it. wanted: its settings, of which `epochs` may differ.

        A run that was killed before its first checkpoint, with nothing done, starts with its settings.
        """
        config, about = snapshot.found(options.out, wanted)
        trainer = Trainer(config, options, resumed=about is not None)
        if about is not None:
            snapshot.restore(trainer, about)
        return trainer

    @property
    def finished(self) -> int:
        """Epochs of which all is done and told."""
        return self.epoch - (self.within.row is not None)

    def run(self, report: Report = lambda row: None, log: Report = lambda row: None) -> None:
        """Train to the last epoch. The numbers of an epoch go to metrics.jsonl and `log`, then a checkpoint may be
        written, and then `report` is told. Raises `Stopped` at the end of the step in which `stopping` is set."""
        try:
            self._run(report, log)
        finally:
            self.collector.close()

    def _run(self, report: Report, log: Report) -> None:
        self._prepare_folder()
        self.began = self.written = time.monotonic()
        self.began -= self.within.seconds
        if self.processes.agreed(not (self.options.out / checkpoint.FILE).exists()):
            self.save()
        while self.finished < self.config.epochs:
            row = self.within.row = self.within.row or self.one_epoch()
            last = self.epoch == self.config.epochs
            if self.config.learns(self.epoch - 1) and (self.epoch % self.config.validate_every == 0 or last):
                validated = self.validate()
                if self._pause():
                    raise self._stopped()
                row[self.metric.name] = validated
            row["seconds"] = time.monotonic() - self.began
            if self.processes.first:
                folder.keep_row(self.options.out, row, log)  # before a checkpoint counts the epoch as done
            self.within, self.began = Within(), time.monotonic()
            halted = self._pause(at_end=True) and not last
            report(row)
            if halted:
                raise self._stopped()
        self._keep_policy("last")

    def one_epoch(self) -> dict[str, Any]:
        """Rollouts of `steps` control periods, with updates in between, or one of the two, from where the epoch stands.
        Gives its numbers: the mean loss, and how quick it was."""
        learner, learns = self.learner, self.config.learns(self.epoch)
        if self.config.collect and self.empty:  # resumed without its replay
            for epoch in range(min(self.epoch, self.config.collect)):
                for _ in self._steps(epoch, learns=False):
                    if self.processes.agreed(bool(self.stopping)):
                        raise self._stopped()
        self.chosen.clear()
        if not self.within.step:
            learner.loss_sum.zero_()
            self.within = Within(updates=learner.done)
        pushes = self.pushes - self.within.pushes
        for done in self._steps(self.epoch, learns, self.within.step):
            self.within.step, self.within.pushes = done, self.pushes - pushes
            if self._pause():
                raise self._stopped()
        if not learner.finite():  # what follows may write a checkpoint over the last good one
            raise self._stop()
        updates = learner.done - self.within.updates
        samples = updates * self.config.batch if learns else self.within.pushes * self.config.environments
        self.epoch, self.within = self.epoch + 1, Within()
        row: dict[str, Any] = {"epoch": self.epoch}
        if learns:
            row["loss"] = float(learner.loss_sum) / max(1, updates)
        return row | {"samples_per_second": samples / (time.monotonic() - self.began)}

    def _steps(self, epoch: int, learns: bool, done: int = 0) -> Iterator[int]:
        """The steps of an epoch after the first `done`; gives after each how many are done. Without rollouts a step is
        an update for each pass over the samples."""
        gathers = self.config.gathers(epoch)
        if gathers and not done:
            self.collector.begin(epoch)
        rank, count = self.processes.rank, self.processes.count
        chosen = draws(self.config, epoch, rank, count, self.options.device) if learns else None
        if chosen is not None and done:
            chosen = itertools.islice(chosen, self.learner.done - self.within.updates, None)
        alone = self.config.updates_an_epoch(count) // self.config.updates
        for number in range(done, self.config.steps if gathers else alone):
            try:
                self._step(chosen, gathers, keep=number % self.config.keep_every == 0)
            except MastError:  # worlds and policies refuse what is not finite, often before the loss shows it
                if self.learner.finite() and all(bool(value.isfinite().all()) for value in self._batches().values()):
                    raise
                raise self._stop() from None
            yield number + 1

    def _step(self, chosen: Iterator[Tensor] | None, gathers: bool, keep: bool) -> None:
        """One control period of all environments, and the updates that go with it, whose batches are chosen by the next
        of `chosen`."""
        collector, learner = self.collector, self.learner
        if gathers:
            learner.hand_over()
            collector.look(keep)
        if chosen is not None and not self.empty:
            uniforms = [next(chosen) for _ in range(self.config.updates)]
            self.chosen.append((self.pushes, uniforms))
            for uniform in uniforms:
                learner.update(uniform)
            self.last_loss.copy_(learner.loss, non_blocking=True)
        if gathers:
            collector.wait()
        else:
            self._pace()
        if not math.isfinite(float(self.last_loss)):
            raise MastError("the loss is not finite")
        if gathers:
            collector.label()  # on a GPU the update runs meanwhile
            collector.move(keep)
            self.pushes += keep
            self.empty = self.empty and not keep

    def _pace(self) -> None:
        """Wait on a GPU until all updates but those of the last step are done: a bad loss is then seen in time."""
        if self.options.device.type == "cuda":
            end = torch.cuda.Event()
            end.record()
            self.learned.append(end)
            self.learned[0].synchronize()

    def validate(self) -> float | None:
        """The headline metric of the policy to be shipped, on the validation start states; keeps the best. None: a stop
        was asked for meanwhile, or another process does it."""
        if not self.processes.first:
            return None
        if self.validator is None:
            self.validator = Validator(
                self.config, self.learner.shipped, self.options.device, lambda: bool(self.stopping), self.copies
            )
        values = self.validator.headlines()
        return None if values is None else self._judged(values)

    def _judged(self, values: list[float]) -> float:
        """What validation found, once it has decided what is the best so far."""
        if self.metric.better(values[0], self.best):
            self.best = values[0]
            self._keep_policy("best")
        return values[0]

    def _pause(self, at_end: bool = False) -> bool:
        """Write a checkpoint if it is time for one; whether to stop. at_end: of an epoch, where one is also written
        if it takes next to no time."""
        age = time.monotonic() - self.written
        due = age > self.options.checkpoint_seconds
        if at_end:
            due |= self.cost < CHEAP * age or self.epoch == self.config.epochs
        asked = self.processes.agreed(2 if self.stopping else int(due))
        if asked:
            if not self.learner.finite():
                raise self._stop()
            self.save()
        if asked == 2:
            self._keep_policy("last")
        return asked == 2

    @property
    def midway(self) -> bool:
        """Whether the worlds are under way, and the expert may have something in mind."""
        return self.within.step > 0 and self.config.gathers(self.epoch)

    def save(self) -> None:
        """Write the checkpoint, or leave the last one as it is if what the expert has in mind cannot be kept."""
        began = time.monotonic()
        if snapshot.write(self, self._more()):
            self.written = time.monotonic()
            self.cost = self.written - began

    @property
    def keeps_replay(self) -> bool:
        """Whether checkpoints hold the replay."""
        return self.options.keep_replay and self.replay.nbytes <= self.options.largest_replay

    def checkpoint_bytes(self) -> tuple[int, int]:
        """About how large one process's checkpoint gets: with the replay, and without."""
        return snapshot.size(self)

    def _more(self) -> dict[str, Any]:
        """What else a checkpoint says."""
        return {}

    def _stopped(self) -> Stopped:
        """What a run that was asked to stop ends with: where it stands, and how it goes on."""
        out, step = self.options.out, self.within.step
        where = f"in epoch {self.epoch + 1} after step {step}" if step else f"after epoch {self.epoch}"
        if self.within.row is not None:
            where = f"in the validation of epoch {self.epoch}"
        kept = f"checkpoint: {out / checkpoint.FILE}"
        if self.midway and self.unkept:
            kept = f"the last checkpoint is kept, as the expert has {self.unkept} in mind that no file can hold: {kept}"
        return Stopped(f"stopped {where}; {kept}; go on with {self._again()}", out, self.stopping)

    def _again(self) -> str:
        return f"`mast train --resume {self.options.out}`"

    def _prepare_folder(self) -> None:
        """Find out before training, not after, whether the results can be written."""
        if self.processes.first:
            whole, less = self.checkpoint_bytes()
            needed = self.processes.count * (whole if self.keeps_replay else less)
            folder.prepare(self.options.out, self.config, self.finished, needed)

    def _keep_policy(self, name: str) -> None:
        """Write the policy to be shipped to a folder of the run."""
        if self.processes.first:
            folder.keep_policy(self.options.out, name, self.learner.shipped)

    def _batches(self) -> dict[str, Tensor]:
        """The batches of the last two steps, fields [batches * batch, ...]: a GPU tells of a loss one step late."""
        found = [
            self.replay.draw(uniform, before=(self.pushes - then) * self.collector.count)
            for then, uniforms in self.chosen
            for uniform in uniforms
        ]
        return {name: torch.cat([batch[name] for batch in found]) for name in (found[0] if found else ())}

    def _stop(self) -> MastError:
        """The error for a loss that is not finite; keeps the batches for a look."""
        told = folder.keep_batches(self.options.out, self.processes.rank, self._batches())
        return MastError(
            f"the loss is not finite in epoch {self.epoch + 1}: {told}, the last good checkpoint is kept; "
            "lower --lr or set --clip 1, and start again"
        )
