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
import json
import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.evaluate.policies import find_learned
from mast_swarm.files import write_json
from mast_swarm.model.learned import Learned
from mast_swarm.model.policy import load_learned, make
from mast_swarm.tasks.registry import task_of
from mast_swarm.train import checkpoint, memory
from mast_swarm.train.collector import Collector, sample_layout
from mast_swarm.train.config import TrainConfig, from_plain, from_run, plain
from mast_swarm.train.learner import Learner, under
from mast_swarm.train.replay import Replay
from mast_swarm.train.team import Validator, example, world_of

Report = Callable[[dict[str, Any]], None]  # is told of every epoch
METRICS = "metrics.jsonl"
CHEAP = 0.02  # share of the time that checkpoints may take which come more often than asked


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How to run, as opposed to what to learn: nothing here changes a weight."""

    out: Path
    device: torch.device
    checkpoint_seconds: float = 60.0  # longest time between two checkpoints, but for the step that it falls into
    keep_replay: bool = True  # whether checkpoints hold the replay; without it a resumed run fills it anew


class Stopped(KeyboardInterrupt):
    """A run that was told to stop: it ended its step, wrote a checkpoint, and can go on from there."""

    def __init__(self, told: str, folder: Path, signal: int) -> None:
        super().__init__(told)
        self.folder, self.signal = folder, signal


@dataclasses.dataclass
class Within:
    """How far an epoch has come."""

    step: int = 0  # steps that are done
    updates: int = 0  # of the whole run, when the epoch began
    pushes: int = 0  # to the replay
    seconds: float = 0.0  # that it had taken when this was written
    row: dict[str, Any] | None = None  # its numbers, once its steps are done; its validation may not be


class Trainer:
    """One process of a training run. Process 0 writes; each has its share of environments, replay and batch."""

    copies = 1  # policies that learn at once; see train/family.py

    def __init__(self, config: TrainConfig, options: RunOptions, resumed: bool = False) -> None:
        """resumed: the weights will come from a checkpoint, not from the policy that the run began with."""
        self.config, self.options = config, options
        task = task_of(config.world)
        self.metric = task.metric
        task.check_measured(world_of(config).metrics(example(config)[0]))
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.processes = dist.get_world_size() if dist.is_initialized() else 1
        if config.environments % self.processes or config.batch % self.processes:
            raise MastError(f"--environments and --batch must divide by the {self.processes} processes")
        device, share = options.device, config.environments // self.processes
        self.replay = Replay(sample_layout(config), config.replay // self.processes, device, self.copies)
        self.learner = self._learner(resumed)
        self.collector = Collector(
            config, self.learner.acting, self.replay, device, self.rank * share, share, self.copies
        )
        self.validator: Validator | None = None
        self.epoch, self.within = 0, Within()  # epochs whose steps are done, and how far the next one is
        self.stopping = 0  # the signal that asked for an end, if one did
        self.began = time.monotonic()  # when the epoch did
        self.written, self.cost = math.inf, 0.0  # when the last checkpoint was, and the seconds that one takes
        self.unkept = ""  # what the expert has in mind that no file can hold
        self.flags = dist.new_group(backend="gloo") if self.processes > 1 else None  # for questions on the host
        self.best: float | None = None  # best validated headline metric
        self.empty = True  # whether the replay is
        self.last_loss = torch.zeros((), pin_memory=device.type == "cuda")  # on the host, a step late on a GPU
        self.pushes = 0  # to the replay, since this process began
        self.chosen: deque[tuple[int, list[Tensor]]] = deque(maxlen=2)  # pushes before a step, what chose its batches
        self.learned: deque[torch.cuda.Event] = deque(maxlen=2)  # the ends of the last two steps' updates on a GPU

    def _learner(self, resumed: bool) -> Learner:
        first = starting_policy(self.config) if self.config.start and not resumed else None
        return Learner(self.config, self.replay, self.options.device, self.processes, first)

    @staticmethod
    def resume(options: RunOptions, wanted: TrainConfig | None = None) -> Trainer:
        """The run in a folder, where its last checkpoint left it. wanted: its settings, of which `epochs` may differ.

        A run that was killed before its first checkpoint, with nothing done, starts with its settings.
        """
        out = options.out
        about = checkpoint.about(out) if (out / checkpoint.FILE).exists() else None
        if about is None and (out / METRICS).exists() and (out / METRICS).stat().st_size:
            raise MastError(
                f"{out} has {METRICS} but no {checkpoint.FILE}, so there is nothing to go on from: put the checkpoint "
                "back, or start again with another --out"
            )
        config = from_run(out) if about is None else from_plain(about["config"])
        if wanted is not None:
            config = dataclasses.replace(config, epochs=wanted.epochs)
            if wanted != config:
                found = checkpoint.differences(plain(config), plain(wanted))
                raise MastError(f"cannot resume {out} with other settings: {'; '.join(found)}")
        trainer = Trainer(config, options, resumed=about is not None)
        if about is not None:
            trainer.restore(about)
        return trainer

    def restore(self, about: dict[str, Any]) -> None:
        """Take up what `save` wrote."""
        out = self.options.out
        try:
            if self.processes != about["processes"]:
                raise MastError(
                    f"{out} was trained by {about['processes']} processes and there are {self.processes}: worlds and "
                    f"replay are shared out among them; resume with `torchrun --nproc-per-node {about['processes']}`"
                )
            self.epoch, self.best = about["epoch"], about["best"]
            self.within = Within(**about.get("within", {}))
            begun = self.epoch + (self.within.step > 0)
            if begun > self.config.epochs:
                raise MastError(f"--epochs is {self.config.epochs}, but {out} is in epoch {begun}: give that or more")
            name = checkpoint.FILE if self.rank == 0 else self._name()
            tensors, own = checkpoint.read(out, name), about if self.rank == 0 else checkpoint.about(out, name)
            self.learner.restore(under(tensors, "learner."), about["updates"])
            if self.within.step:
                self.learner.loss_sum.copy_(tensors["epoch.loss_sum"])
            replay = under(tensors, "replay.")
            if replay:
                self.replay.restore(replay)
                self.empty = int(self.replay.pushed) == 0  # as in the checkpoint at the start
            elif self.config.collect and self._midway():  # the replay is gathered anew, with it this epoch
                self.within = Within()
            self.collector.restore(under(tensors, "worlds."), self.epoch, self._midway())
            if self._midway():
                self.collector.teacher.restore(own["expert"], under(tensors, "expert."))
        except torch.OutOfMemoryError:
            raise
        except (KeyError, RuntimeError) as error:  # something is missing, or a tensor of another shape
            raise MastError(f"the checkpoint in {out} does not fit its own settings: {error}") from None

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
        if self._agreed(not (self.options.out / checkpoint.FILE).exists()):
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
            self._keep_row(row, log)
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
                    if self._agreed(bool(self.stopping)):
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
        draws = self._draws(epoch) if learns else None
        if draws is not None and done:
            draws = itertools.islice(draws, self.learner.done - self.within.updates, None)
        alone = self.config.updates_an_epoch(self.processes) // self.config.updates
        for number in range(done, self.config.steps if gathers else alone):
            try:
                self._step(draws, gathers, keep=number % self.config.keep_every == 0)
            except MastError:  # worlds and policies refuse what is not finite, often before the loss shows it
                if self.learner.finite() and all(bool(value.isfinite().all()) for value in self._batches().values()):
                    raise
                raise self._stop() from None
            yield number + 1

    def _step(self, draws: Iterator[Tensor] | None, gathers: bool, keep: bool) -> None:
        """One control period of all environments, and the updates that go with it."""
        collector, learner = self.collector, self.learner
        if gathers:
            learner.hand_over()
            collector.look(keep)
        if draws is not None and not self.empty:
            uniforms = [next(draws) for _ in range(self.config.updates)]
            self.chosen.append((self.pushes, uniforms))
            for uniform in uniforms:
                learner.update(uniform)
            self.last_loss.copy_(learner.loss, non_blocking=True)
        if gathers:
            collector.wait()
        else:
            self._pace()
        if not np.isfinite(float(self.last_loss)):
            raise MastError("the loss is not finite")
        if gathers:
            collector.label()  # on a GPU the update runs meanwhile
            collector.move(keep)
            self.pushes += keep
            self.empty = False

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
        if self.rank != 0:
            return None
        if self.validator is None:
            self.validator = Validator(
                self.config, self.learner.shipped, self.options.device, lambda: bool(self.stopping), self.copies
            )
        values = self.validator.headlines()
        return None if values is None else self._judged(values)

    def _judged(self, values: list[float]) -> float:
        """What validation found, once it has decided what is the best so far."""
        sign = -1 if self.metric.lower_is_better else 1
        if self.best is None or sign * values[0] > sign * self.best:
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
        asked = self._agreed(2 if self.stopping else int(due))
        if asked:
            if not self.learner.finite():
                raise self._stop()
            self.save()
        if asked == 2:
            self._keep_policy("last")
        return asked == 2

    def _midway(self) -> bool:
        """Whether the worlds are under way, and the expert may have something in mind."""
        return self.within.step > 0 and self.config.gathers(self.epoch)

    def save(self) -> None:
        """Write the checkpoint. Process 0 writes last: its file makes those of the others count, or they never do.

        Midway through rollouts by an expert that keeps what no file can hold, the last checkpoint stays as it is.
        """
        began = time.monotonic()
        within = dataclasses.asdict(self.within)
        if within["step"] or within["row"]:
            within["seconds"] = began - self.began
        about = {
            "config": plain(self.config),
            "processes": self.processes,
            "epoch": self.epoch,
            "best": self.best,
            "updates": self.learner.done,
            "within": within,
            **self._more(),
        }
        tensors = {f"learner.{k}": v for k, v in self.learner.tensors().items()}
        tensors |= {f"worlds.{k}": v for k, v in self.collector.tensors(self._midway()).items()}
        if self.within.step:
            tensors["epoch.loss_sum"] = self.learner.loss_sum
        if self._midway():
            try:
                about["expert"], kept = self.collector.teacher.kept()
                tensors |= {f"expert.{k}": v for k, v in kept.items()}
            except memory.Unkept as what:
                self.unkept = str(what)
        if self._agreed(self._midway() and "expert" not in about):
            return
        if self.options.keep_replay:
            tensors |= {f"replay.{k}": v for k, v in self.replay.tensors().items()}
        if self.rank != 0:
            checkpoint.write(self.options.out, tensors, about, self._name())
        self._meet()
        if self.rank == 0:
            checkpoint.write(self.options.out, tensors, about)
        self._meet()
        if self.rank != 0:
            for path in self.options.out.glob(f"checkpoint-{self.rank}-*.safetensors"):
                if path.name != self._name():
                    path.unlink()
        self.written = time.monotonic()
        self.cost = self.written - began

    def _more(self) -> dict[str, Any]:
        """What else a checkpoint says."""
        return {}

    def _name(self) -> str:
        """The checkpoint of a process other than the first, which has worlds and a replay of its own."""
        step = f"-{self.within.step}" if self.within.step else ""
        return f"checkpoint-{self.rank}-{self.epoch}{step}.safetensors"

    def _stopped(self) -> Stopped:
        """What a run that was asked to stop ends with: where it stands, and how it goes on."""
        out, step = self.options.out, self.within.step
        where = f"in epoch {self.epoch + 1} after step {step}" if step else f"after epoch {self.epoch}"
        if self.within.row is not None:
            where = f"in the validation of epoch {self.epoch}"
        kept = f"checkpoint: {out / checkpoint.FILE}"
        if self._midway() and self.unkept:
            kept = f"the last checkpoint is kept, as the expert has {self.unkept} in mind that no file can hold: {kept}"
        return Stopped(f"stopped {where}; {kept}; go on with {self._again()}", out, self.stopping)

    def _again(self) -> str:
        return f"`mast train --resume {self.options.out}`"

    def checkpoint_bytes(self) -> tuple[int, int]:
        """About how large one process's checkpoint gets: with the replay, and without."""
        weights = sum(parameter.nbytes for parameter in self.learner.policy.parameters())
        copies = 3 if self.learner.average is None else 4  # the policy, two moments of AdamW, the averaged policy
        rest = copies * weights + sum(value.nbytes for value in self.collector.tensors().values())
        return rest + self.replay.nbytes, rest

    def _prepare_folder(self) -> None:
        """Find out before training, not after, whether the results can be written."""
        if self.rank != 0:
            return
        out = self.options.out
        try:
            out.mkdir(parents=True, exist_ok=True)
            write_json(out / "config.json", plain(self.config))
            self._drop_later_rows()
            free = checkpoint.free_bytes(out)
        except OSError as error:
            raise MastError(f"cannot write to {out}: {error.strerror or error}") from None
        needed = 2 * self.processes * self.checkpoint_bytes()[0 if self.options.keep_replay else 1]
        if free < needed + 10**8:  # the new checkpoint is written before the old one goes
            raise MastError(
                f"{out} has {free / 1e9:.1f} GB free but two checkpoints need {needed / 1e9:.1f} GB: "
                "free some space, lower --replay, or leave it out with --no-keep-replay"
            )

    def _drop_later_rows(self) -> None:
        """metrics.jsonl keeps only the epochs that the run still stands on (a killed run may have written more)."""
        path = self.options.out / METRICS
        if path.exists():
            rows = [line for line in path.read_text().splitlines() if line.endswith("}")]
            kept = [line for line in rows if json.loads(line)["epoch"] <= self.finished]
            temporary = path.with_suffix(".writing")
            temporary.write_text("".join(line + "\n" for line in kept))
            os.replace(temporary, path)

    def _keep_row(self, row: dict[str, Any], log: Report) -> None:
        """Add an epoch's numbers to metrics.jsonl and the log, before a checkpoint counts the epoch as done."""
        if self.rank != 0:
            return
        try:
            with open(self.options.out / METRICS, "a") as file:
                file.write(json.dumps(row) + "\n")
            log(row)
        except OSError as error:
            raise self._cannot_write(error) from None

    def _keep_policy(self, name: str) -> None:
        """Write the policy to be shipped to a folder of the run."""
        if self.rank != 0:
            return
        try:
            self.learner.shipped.save(self.options.out / name, overwrite=True)
        except SafetensorError as error:  # a full disk
            raise self._cannot_write(error) from None

    def _cannot_write(self, error: Exception) -> MastError:
        path = self.options.out / checkpoint.FILE
        kept = f"the last good checkpoint is kept in {path}" if path.exists() else "there is no checkpoint"
        return MastError(f"cannot write to {self.options.out}: {error}; {kept}")

    def _draws(self, epoch: int) -> Iterator[Tensor]:
        """Numbers in [0, 1) that choose an epoch's batches, the same however the run came here.

        They are drawn at random from a replay that grows; where all samples are there, each pass takes each once.
        """
        seed = int(np.random.default_rng([self.config.seed, epoch, self.rank, 1]).integers(2**62))
        shape = (self.config.updates_an_epoch(self.processes), self.config.batch // self.processes)
        generator = torch.Generator().manual_seed(seed)
        if not self.config.collect:
            return iter(torch.rand(shape, generator=generator, dtype=torch.float64).to(self.options.device))
        samples, used = self.config.gathered(self.processes), shape[0] // self.config.updates * shape[1]
        passes = [torch.randperm(samples, generator=generator)[:used] for _ in range(self.config.updates)]
        # Where in a sample's share of [0, 1): it chooses the mirror image. Off the borders by more than rounding.
        inside = torch.rand(shape[0] * shape[1], generator=generator, dtype=torch.float64) * (1 - 2e-6) + 1e-6
        return iter(((torch.cat(passes) + inside) / samples).view(shape).to(self.options.device))

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
        path = self.options.out / f"bad-batch-{self.rank}.safetensors"
        try:
            save_file({name: value.cpu().contiguous() for name, value in self._batches().items()}, path)
            told = f"the batches of its last two steps are in {path}"
        except (OSError, SafetensorError) as error:
            told = f"its batches could not be written to {path} ({error})"
        return MastError(
            f"the loss is not finite in epoch {self.epoch + 1}: {told}, the last good checkpoint is kept; "
            "lower --lr or set --clip 1, and start again"
        )

    def _meet(self) -> None:
        """Wait for the other processes."""
        if self.processes > 1:
            dist.barrier()

    def _agreed(self, asked: int) -> int:
        """The most that any process asks for: all do it, in the same step."""
        if self.flags is None:
            return int(asked)
        flag = torch.tensor(int(asked))
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=self.flags)
        return int(flag)


def starting_policy(config: TrainConfig) -> Learned:
    """The policy whose weights a run begins with; one that does not fit the settings is an error."""
    found = load_learned(find_learned(config.start, task_of(config.world).name))
    given, wanted = (
        {name: tuple(value.shape) for name, value in policy.state_dict().items()}
        for policy in (found, make(config.policy))
    )
    task = task_of(config.world).name
    if found.config.task != task:
        raise MastError(f"--from {config.start} was trained for {found.config.task}, not for {task}: give another")
    if found.config.kind != config.policy.kind or given != wanted:
        different = checkpoint.differences(config.policy.to_dict(), found.config.to_dict(), "policy.")
        raise MastError(
            f"--from {config.start} does not fit the policy of the settings: {'; '.join(different)}; give the recipe "
            "that it was trained with, or its sizes"
        )
    return found
