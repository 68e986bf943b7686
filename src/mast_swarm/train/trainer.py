"""The training run: epochs of rollouts and updates, validation, checkpoints."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.evaluate.results import write_json
from mast_swarm.model.config import PolicyConfig
from mast_swarm.train import checkpoint
from mast_swarm.train.collector import Collector, sample_layout
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.learner import Learner
from mast_swarm.train.replay import Replay
from mast_swarm.train.team import Validator
from mast_swarm.world.config import NavigationConfig

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
        self.best = -1.0  # highest validated success rate
        self.empty = True  # whether the replay is
        self.last_loss = torch.zeros((), pin_memory=device.type == "cuda")  # on the host, a step late on a GPU

    @staticmethod
    def resume(options: RunOptions, wanted: TrainConfig | None = None) -> Trainer:
        """The run in a folder, where its last checkpoint left it; with `wanted`, only if the settings are those."""
        tensors, about = checkpoint.read(options.out, _file())
        config = config_from(about["config"])
        if wanted is not None and wanted != config:
            changed = checkpoint.differences(about["config"], plain(wanted))
            raise MastError(f"cannot resume {options.out} with other settings: {'; '.join(changed)}")
        trainer = Trainer(config, options)
        trainer.epoch, trainer.best = about["epoch"], about["best"]
        trainer.learner.restore(_under(tensors, "learner."), about["updates"])
        trainer.collector.restore(_under(tensors, "worlds."))
        if _under(tensors, "replay."):
            trainer.replay.restore(_under(tensors, "replay."))
            trainer.empty = False
        return trainer

    def run(self, report: Report = lambda row: None) -> None:
        """Train to the last epoch. Every epoch's numbers go to `report` and to metrics.jsonl."""
        self._prepare_folder()
        written = time.monotonic()
        while self.epoch < self.config.epochs:
            began = time.monotonic()
            row: dict[str, Any] = {"epoch": self.epoch + 1, "loss": self.one_epoch()}
            seconds = time.monotonic() - began
            row["samples_per_second"] = self.config.steps * self.config.updates * self.config.batch / seconds
            last = self.epoch == self.config.epochs
            if self.epoch % self.config.validate_every == 0 or last:
                row["success_rate"] = self.validate()
            row["seconds"] = time.monotonic() - began
            if self.rank == 0:
                with open(self.options.out / "metrics.jsonl", "a") as file:
                    file.write(json.dumps(row) + "\n")
            if last or self._agreed(time.monotonic() - written > self.options.checkpoint_seconds):
                self.save()
                written = time.monotonic()
            report(row)
        if self.rank == 0:
            self.learner.shipped.save(self.options.out / "last", overwrite=True)

    def one_epoch(self) -> float:
        """Rollouts of `steps` control periods, with updates in between; the mean loss."""
        collector, learner = self.collector, self.learner
        collector.begin(self.epoch)
        draws = self._draws()
        learner.loss_sum.zero_()
        first = learner.done
        for _ in range(self.config.steps):
            collector.look()
            if not self.empty:
                for _ in range(self.config.updates):
                    learner.update(next(draws))
                self.last_loss.copy_(learner.loss, non_blocking=True)
            collector.label()  # on a GPU the update runs meanwhile
            if not np.isfinite(float(self.last_loss)):
                self._stop_on_nan()
            collector.move()
            self.empty = False
        self.epoch += 1
        return float(learner.loss_sum) / max(1, learner.done - first)

    def validate(self) -> float:
        """Success rate of the policy to be shipped on the validation start states; keeps the best."""
        if self.rank != 0:
            return 0.0
        if self.validator is None:
            self.validator = Validator(self.config, self.learner.shipped, self.options.device)
        rate = self.validator.success_rate()
        if rate > self.best:
            self.best = rate
            self.learner.shipped.save(self.options.out / "best", overwrite=True)
        return rate

    def save(self) -> None:
        """Write this process's checkpoint."""
        tensors = {f"learner.{k}": v for k, v in self.learner.tensors().items()}
        tensors |= {f"worlds.{k}": v for k, v in self.collector.tensors().items()}
        if self.options.keep_replay:
            tensors |= {f"replay.{k}": v for k, v in self.replay.tensors().items()}
        about = {
            "config": plain(self.config),
            "epoch": self.epoch,
            "best": self.best,
            "updates": self.learner.done,
        }
        checkpoint.write(self.options.out, tensors, about, _file())

    def _prepare_folder(self) -> None:
        """Find out before training, not after, whether the results can be written."""
        if self.rank != 0:
            return
        try:
            self.options.out.mkdir(parents=True, exist_ok=True)
            write_json(self.options.out / "config.json", plain(self.config))
            self._drop_later_rows()
            free, needed = (
                checkpoint.free_bytes(self.options.out),
                self.replay.nbytes if self.options.keep_replay else 0,
            )
        except OSError as error:
            raise MastError(f"cannot write to {self.options.out}: {error.strerror or error}") from None
        if free < 2 * needed + 10**8:  # the new checkpoint is written before the old one goes
            raise MastError(
                f"{self.options.out} has {free / 1e9:.1f} GB free but two checkpoints need {2 * needed / 1e9:.1f} GB: "
                "free some space, lower --replay, or leave it out with --no-keep-replay"
            )

    def _drop_later_rows(self) -> None:
        """metrics.jsonl keeps only the epochs that the run still stands on (a killed run may have written more)."""
        path = self.options.out / "metrics.jsonl"
        if path.exists():
            rows = [line for line in path.read_text().splitlines() if line.endswith("}")]
            kept = [line for line in rows if json.loads(line)["epoch"] <= self.epoch]
            path.write_text("".join(line + "\n" for line in kept))

    def _draws(self) -> Iterator[Tensor]:
        """Numbers in [0, 1) that choose this epoch's batches, the same however the run came here."""
        seed = int(np.random.default_rng([self.config.seed, self.epoch, self.rank, 1]).integers(2**62))
        shape = (self.config.steps * self.config.updates, self.config.batch // self.processes)
        drawn = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
        return iter(drawn.to(self.options.device))

    def _stop_on_nan(self) -> None:
        path = checkpoint.save_batch(self.options.out, self.replay.draw(self.learner.uniform))
        raise MastError(
            f"the loss is not finite in epoch {self.epoch + 1}: its batch is in {path}, the last good "
            "checkpoint is kept; lower --lr or set --clip 1, and go on from there"
        )

    def _agreed(self, due: bool) -> bool:
        """Whether process 0 finds a checkpoint due: all write in the same epoch."""
        if self.processes == 1:
            return due
        flag = torch.tensor(int(due), device=self.options.device)
        dist.broadcast(flag, 0)
        return bool(flag)


def plain(config: TrainConfig) -> dict[str, Any]:
    """The settings as JSON holds them."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def config_from(fields: dict[str, Any]) -> TrainConfig:
    """The reverse of `plain`."""
    world, policy = NavigationConfig(**fields["world"]), PolicyConfig.from_dict(fields["policy"])
    return TrainConfig(**{**fields, "world": world, "policy": policy})


def _file() -> str:
    """A checkpoint's name: each process of a run has its own worlds and replay."""
    rank = dist.get_rank() if dist.is_initialized() else 0
    return checkpoint.FILE if rank == 0 else f"checkpoint-{rank}.safetensors"


def _under(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in tensors.items() if name.startswith(prefix)}
