"""How long a training step takes, and where the time goes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mast_swarm.train.config import TrainConfig
from mast_swarm.train.team import Validator
from mast_swarm.train.trainer import RunOptions, Trainer


def bench_train(config: TrainConfig, device: torch.device, repeats: int = 200) -> dict[str, Any]:
    """Milliseconds of the parts of a step, each alone, and of whole steps as training runs them."""
    trainer = Trainer(config, RunOptions(Path("."), device))  # writes nothing
    began = time.perf_counter()
    trainer.one_epoch()  # compiles, captures and fills the replay
    warm_up = time.perf_counter() - began
    collector, learner = trainer.collector, trainer.learner
    uniform = torch.rand(config.batch, generator=torch.Generator().manual_seed(0)).to(device)
    collector.begin(0)
    parts = {
        "update": lambda: learner.update(uniform),
        "sense_and_decide": collector.look,
        "expert_on_cpu": collector.label,
        "push_and_move": collector.move,
    }
    found = {name: _milliseconds(work, device, repeats) for name, work in parts.items()}
    epochs = []
    for _ in range(3):
        _wait(device)
        began = time.perf_counter()
        trainer.one_epoch()
        _wait(device)
        epochs.append((time.perf_counter() - began) * 1e3 / config.steps)
    validator = Validator(config, learner.shipped, device)
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        validator.headline()
        seconds.append(time.perf_counter() - began)
    first, validation = seconds
    whole = statistics.median(epochs)
    rolled, alone = config.epochs, 0  # epochs with rollouts, updates without
    if config.collect:
        rolled, alone = config.collect, (config.epochs - config.collect) * config.updates_an_epoch()
    learning = config.epochs - config.collect
    return {
        "parts_ms": found,
        "whole_step_ms": whole,
        "validation_s": validation,
        "first_epoch_s": warm_up,
        "first_validation_s": first,
        "all_epochs_s": (rolled * config.steps * whole + alone * found["update"]) / 1e3
        + learning * validation / config.validate_every,
        "settings": {"environments": config.environments, "batch": config.batch, "agents": config.world.agents},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
    }


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _milliseconds(work: Callable[[], None], device: torch.device, repeats: int) -> float:
    """Median time of one call; on a GPU by events around it, so that the queue is what is measured."""
    for _ in range(5):
        work()
    _wait(device)
    times: list[float] = []
    for _ in range(repeats):
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            work()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end))
        else:
            began = time.perf_counter()
            work()
            times.append((time.perf_counter() - began) * 1e3)
    return statistics.median(times)
