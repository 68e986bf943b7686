"""The training run: epochs of rollouts and updates, validation, checkpoints.

A run is a function of its settings: all that is random comes from the seed, the epoch and the environment's number. So
a run that was killed and resumed on a CPU ends with the very bits of one never stopped (with the replay in its
checkpoints, and as many threads and processes). On a GPU it resumes from the same state, with the same start states,
drivers and batches, but rounding may differ: kernels are chosen and compiled anew in each process.
"""

from __future__ import annotations

import dataclasses
import json
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
from mast_swarm.files import write_json
from mast_swarm.tasks.registry import task_of
from mast_swarm.train import checkpoint
from mast_swarm.train.collector import Collector, sample_layout
from mast_swarm.train.config import TrainConfig, from_plain, from_run, plain
from mast_swarm.train.learner import Learner, under
from mast_swarm.train.replay import Replay
from mast_swarm.train.team import Validator, example, world_of

Report = Callable[[dict[str, Any]], None]  # is told of every epoch


@dataclasses.dataclass(frozen=True)
class RunOptions:
    """How to run, as opposed to what to learn: nothing here changes a weight."""

    out: Path
    device: torch.device
    checkpoint_seconds: float = 60.0  # least time between two checkpoints; the last epoch always writes one
    keep_replay: bool = True  # whether checkpoints hold the replay; without it a resumed run fills it anew


class Trainer:
    """One process of a training run. Process 0 writes; each has its share of environments, replay and batch."""

    def __init__(self, config: TrainConfig, options: RunOptions) -> None:
        self.config, self.options = config, options
        task = task_of(config.world)
        self.metric = task.metric
        task.check_measured(world_of(config).metrics(example(config)[0]))
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.processes = dist.get_world_size() if dist.is_initialized() else 1
        if config.environments % self.processes or config.batch % self.processes:
            raise MastError(f"--environments and --batch must divide by the {self.processes} processes")
        device, share = options.device, config.environments // self.processes
        self.replay = Replay(sample_layout(config), config.replay // self.processes, device)
        self.learner = Learner(config, self.replay, device, self.processes)
        self.collector = Collector(config, self.learner.policy, self.replay, device, self.rank * share, share)
        self.validator: Validator | None = None
        self.epoch = 0  # epochs finished
        self.best: float | None = None  # best validated headline metric
        self.empty = True  # whether the replay is
        self.last_loss = torch.zeros((), pin_memory=device.type == "cuda")  # on the host, a step late on a GPU
        self.pushes = 0  # to the replay, since this process began
        self.chosen: deque[tuple[int, list[Tensor]]] = deque(maxlen=2)  # pushes before a step, what chose its batches
        self.learned: deque[torch.cuda.Event] = deque(maxlen=2)  # the ends of the last two steps' updates on a GPU

    @staticmethod
    def resume(options: RunOptions, wanted: TrainConfig | None = None) -> Trainer:
        """The run in a folder, where its last checkpoint left it; with `wanted`, only if the settings are those.

        A run that was stopped before its first checkpoint starts anew with the same settings.
        """
        out = options.out
        about = checkpoint.about(out) if (out / checkpoint.FILE).exists() else None
        config = from_run(out) if about is None else from_plain(about["config"])
        if wanted is not None and wanted != config:
            found = checkpoint.differences(plain(config), plain(wanted))
            raise MastError(f"cannot resume {out} with other settings: {'; '.join(found)}")
        trainer = Trainer(config, options)
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
            tensors = checkpoint.read(out, checkpoint.FILE if self.rank == 0 else _name(self.rank, self.epoch))
            self.learner.restore(under(tensors, "learner."), about["updates"])
            self.collector.restore(under(tensors, "worlds."))
            replay = under(tensors, "replay.")
            if replay:
                self.replay.restore(replay)
                self.empty = False
        except torch.OutOfMemoryError:
            raise
        except (KeyError, RuntimeError) as error:  # something is missing, or a tensor of another shape
            raise MastError(f"the checkpoint in {out} does not fit its own settings: {error}") from None

    def run(self, report: Report = lambda row: None) -> None:
        """Train to the last epoch. Every epoch's numbers go to `report` and to metrics.jsonl."""
        try:
            self._run(report)
        finally:
            self.collector.close()

    def _run(self, report: Report) -> None:
        self._prepare_folder()
        written = time.monotonic()
        while self.epoch < self.config.epochs:
            began, updates, pushes = time.monotonic(), self.learner.done, self.pushes
            row: dict[str, Any] = {"epoch": self.epoch + 1}
            learns = self.config.learns(self.epoch)
            loss = self.one_epoch()
            if learns:
                row["loss"] = loss
                count = (self.learner.done - updates) * self.config.batch
            else:
                count = (self.pushes - pushes) * self.config.environments
            row["samples_per_second"] = count / (time.monotonic() - began)
            last = self.epoch == self.config.epochs
            if learns and (self.epoch % self.config.validate_every == 0 or last):
                row[self.metric.name] = self.validate()
            row["seconds"] = time.monotonic() - began
            self._keep_row(row)
            if last or self._agreed(time.monotonic() - written > self.options.checkpoint_seconds):
                self.save()
                written = time.monotonic()
            report(row)
        self._keep_policy("last")

    def one_epoch(self) -> float:
        """Rollouts of `steps` control periods, with updates in between, or one of the two; the mean loss."""
        learner, first = self.learner, self.learner.done
        if self.config.collect and self.empty:  # resumed without its replay
            for epoch in range(min(self.epoch, self.config.collect)):
                self._steps(epoch, learns=False)
        learner.loss_sum.zero_()
        self.chosen.clear()
        self._steps(self.epoch, learns=self.config.learns(self.epoch))
        if not learner.finite():  # what follows may write a checkpoint over the last good one
            raise self._stop()
        self.epoch += 1
        return float(learner.loss_sum) / max(1, learner.done - first)

    def _steps(self, epoch: int, learns: bool) -> None:
        """All steps of an epoch. Without rollouts a step is an update for each pass over the samples."""
        gathers = self.config.gathers(epoch)
        if gathers:
            self.collector.begin(epoch)
        draws = self._draws(epoch) if learns else None
        alone = self.config.updates_an_epoch(self.processes) // self.config.updates
        for number in range(self.config.steps if gathers else alone):
            try:
                self._step(draws, gathers, keep=number % self.config.keep_every == 0)
            except MastError:  # worlds and policies refuse what is not finite, often before the loss shows it
                if self.learner.finite() and all(bool(value.isfinite().all()) for value in self._batches().values()):
                    raise
                raise self._stop() from None

    def _step(self, draws: Iterator[Tensor] | None, gathers: bool, keep: bool) -> None:
        """One control period of all environments, and the updates that go with it."""
        collector, learner = self.collector, self.learner
        if gathers:
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

    def validate(self) -> float:
        """The headline metric of the policy to be shipped, on the validation start states; keeps the best."""
        if self.rank != 0:
            return 0.0
        if self.validator is None:
            self.validator = Validator(self.config, self.learner.shipped, self.options.device)
        value, sign = self.validator.headline(), -1 if self.metric.lower_is_better else 1
        if self.best is None or sign * value > sign * self.best:
            self.best = value
            self._keep_policy("best")
        return value

    def save(self) -> None:
        """Write the checkpoint. Process 0 writes last: its file makes those of the others count, or they never do."""
        tensors = {f"learner.{k}": v for k, v in self.learner.tensors().items()}
        tensors |= {f"worlds.{k}": v for k, v in self.collector.tensors().items()}
        if self.options.keep_replay:
            tensors |= {f"replay.{k}": v for k, v in self.replay.tensors().items()}
        about = {
            "config": plain(self.config),
            "processes": self.processes,
            "epoch": self.epoch,
            "best": self.best,
            "updates": self.learner.done,
        }
        if self.rank != 0:
            checkpoint.write(self.options.out, tensors, about, _name(self.rank, self.epoch))
        self._meet()
        if self.rank == 0:
            checkpoint.write(self.options.out, tensors, about)
        self._meet()
        if self.rank != 0:
            for path in self.options.out.glob(_name(self.rank, "*")):
                if path.name != _name(self.rank, self.epoch):
                    path.unlink()

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
        path = self.options.out / "metrics.jsonl"
        if path.exists():
            rows = [line for line in path.read_text().splitlines() if line.endswith("}")]
            kept = [line for line in rows if json.loads(line)["epoch"] <= self.epoch]
            temporary = path.with_suffix(".writing")
            temporary.write_text("".join(line + "\n" for line in kept))
            os.replace(temporary, path)

    def _keep_row(self, row: dict[str, Any]) -> None:
        """Add an epoch's numbers to metrics.jsonl."""
        if self.rank != 0:
            return
        try:
            with open(self.options.out / "metrics.jsonl", "a") as file:
                file.write(json.dumps(row) + "\n")
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

    def _agreed(self, due: bool) -> bool:
        """Whether process 0 finds a checkpoint due: all write in the same epoch."""
        if self.processes == 1:
            return due
        flag = torch.tensor(int(due), device=self.options.device)
        dist.broadcast(flag, 0)
        return bool(flag)


def _name(rank: int, epoch: int | str) -> str:
    """The checkpoint of a process other than the first, which has worlds and a replay of its own."""
    return f"checkpoint-{rank}-{epoch}.safetensors"
