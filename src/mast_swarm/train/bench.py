"""How long a training step takes, and where the time goes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mast_swarm.train.config import TrainConfig
from mast_swarm.train.learner import Learner
from mast_swarm.train.team import Validator
from mast_swarm.train.trainer import RunOptions, Trainer

# Kinds of GPU kernels by what their names contain, the first that fits.
_KINDS = {
    "attention": ("_sight", "_forward_whole", "_backward_whole", "_forward", "_backward_keys", "_backward_queries"),
    "norms": ("norm",),
    "activations": ("relu", "bent"),
    "convolutions": ("conv", "fprop", "dgrad", "wgrad", "gradient", "activate", "statistics"),
    "products": ("gemm", "nvjet", "cutlass", "splitK"),
    "optimiser": ("multi_tensor_apply", "_adamw", "_squares"),
}


def bench_train(config: TrainConfig, device: torch.device, repeats: int = 200, compare: bool = False) -> dict[str, Any]:
    """Milliseconds of the parts of a step, each alone, and of whole steps as training runs them. compare: also of an
    update by torch's AdamW, tensor by tensor."""
    trainer = Trainer(config, RunOptions(Path("."), device))  # writes nothing
    began = time.perf_counter()
    trainer.one_epoch()  # compiles, captures and fills the replay
    warm_up = time.perf_counter() - began
    collector, learner = trainer.collector, trainer.learner
    uniform = torch.rand(config.batch, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(device)
    collector.begin(0)
    collector.in_turn = True  # each part alone
    parts = {
        "update": lambda: learner.update(uniform),
        "sense_and_decide": collector.look,
        "expert": collector.label,
        "push_and_move": collector.move,
    }
    found = {name: _milliseconds(work, device, repeats) for name, work in parts.items()}
    kernels = _by_kind(_kernels(parts["update"])) if device.type == "cuda" else {}
    plain: dict[str, Any] = {}
    if compare:
        other = Learner(config, trainer.replay, device, flat=False)
        found["update_tensor_by_tensor"] = _milliseconds(lambda: other.update(uniform), device, repeats)
        if device.type == "cuda":
            plain = {"tensor_by_tensor_kernels_us": _by_kind(_kernels(lambda: other.update(uniform)))}
        del other
    in_turn = _step_milliseconds(trainer, 1) if device.type == "cuda" else None
    collector.in_turn = False
    whole = _step_milliseconds(trainer, 3)
    told = _told_milliseconds(trainer) if device.type == "cuda" else None
    validator = Validator(config, learner.shipped, device)
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        validator.headlines()
        seconds.append(time.perf_counter() - began)
    first, validation = seconds
    rolled, alone = config.epochs, 0  # epochs with rollouts, updates without
    if config.collect:
        rolled, alone = config.collect, (config.epochs - config.collect) * config.updates_an_epoch()
    learning = config.epochs - config.collect
    return {
        "parts_ms": found,
        "update_kernels_us": kernels,
        **plain,
        "whole_step_ms": whole,
        "told_ms": told,  # of a whole step, until the expert has what it asks for; None: on a CPU it has it at once
        "in_turn_step_ms": in_turn,  # sensing before the update, not beside it; None: on a CPU it always is
        "validation_s": validation,
        "first_epoch_s": warm_up,
        "first_validation_s": first,
        "all_epochs_s": (rolled * config.steps * whole + alone * found["update"]) / 1e3
        + learning * validation / config.validate_every,
        "settings": {
            "environments": config.environments,
            "agents": config.world.agents,
            "batch": config.batch,
            "updates": config.updates,
        },
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
    }


def _step_milliseconds(trainer: Trainer, epochs: int) -> float:
    """Of a step as training runs it, in the median epoch."""
    spent = []
    for _ in range(epochs):
        _wait(trainer.options.device)
        began = time.perf_counter()
        trainer.one_epoch()
        _wait(trainer.options.device)
        spent.append((time.perf_counter() - began) * 1e3 / trainer.config.steps)
    return statistics.median(spent)


def _told_milliseconds(trainer: Trainer) -> float | None:
    """From when robots begin to sense until the expert has what it asked for, in the median step of an epoch; None:
    there are no rollouts any more."""
    collector, began, spent = trainer.collector, 0.0, list[float]()
    look, wait = collector.look, collector.wait

    def looks(keep: bool = True) -> None:
        nonlocal began
        began = time.perf_counter()
        look(keep)

    def waits() -> None:
        nonlocal began
        wait()
        if began:  # the first to wait in this step
            spent.append((time.perf_counter() - began) * 1e3)
            began = 0.0

    collector.look, collector.wait = looks, waits  # type: ignore[method-assign]
    try:
        trainer.one_epoch()
    finally:
        del collector.look, collector.wait
    return statistics.median(spent) if spent else None


def _kernels(work: Callable[[], None], repeats: int = 5) -> dict[str, float]:
    """Microseconds on the GPU of each kernel that one call runs, by name."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
    return {event.key: event.device_time_total / repeats for event in found.key_averages()}


def _by_kind(kernels: dict[str, float]) -> dict[str, float]:
    """The same by kind, the longest first, and what is of none of them last."""
    sums: dict[str, float] = dict.fromkeys((*_KINDS, "casts, sums and copies"), 0.0)
    for name, microseconds in kernels.items():
        kind = next((kind for kind, words in _KINDS.items() if _is_of(name, words)), "casts, sums and copies")
        sums[kind] += microseconds
    *known, rest = sums.items()
    return {kind: time for kind, time in (*sorted(known, key=lambda item: -item[1]), rest) if time}


def _is_of(name: str, words: tuple[str, ...]) -> bool:
    """Whether a kernel is of a kind: our own by their whole names, others by a part of them."""
    return name in words if words[0].startswith("_") else any(word in name for word in words)


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
