"""The evaluation that `mast evaluate` runs: policies x start states, resumable, with progress."""

from __future__ import annotations

import dataclasses
import platform
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

import mast_swarm.world.navigation  # noqa: F401  registers the task
from mast_swarm import __version__
from mast_swarm.comms.config import Channel
from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import make_actor, pick_device
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.results import Results, episode_table
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.world.base import World, make

Progress = Callable[[str, int, int], None]  # policy, steps done, steps in all


def evaluate(
    task: str, config: EvaluateConfig, progress: Progress = lambda policy, done, total: None
) -> tuple[Path, dict[str, Any]]:
    """Run an evaluation to the end, or until interrupted; what was finished is on disk either way."""
    folder = config.out or Path("runs") / f"evaluate-{task}-{datetime.now():%Y%m%d-%H%M%S}"
    device = pick_device(config.device)
    world = make(task, config.world, device)
    channel = None
    if config.delay is not None:
        channel = Channel(delay=config.delay, loss=config.loss, failure=config.failure, seed=config.seed)
    actors = {name: make_actor(name, world, channel) for name in config.policy}  # bad names fail before any file
    world.reset(config.seeds()[:1], config.scenarios()[:1])  # and so does a scenario that cannot be met
    results = Results(folder, _resolved(task, config), config.resume)
    complete = False
    try:
        for name, actor in actors.items():
            _one_policy(world, name, actor, channel, config, results, progress)
        complete = True
    finally:
        summary = results.finish(complete, _about(task, device))
    if summary is None:
        raise MastError(f"nothing was finished in {folder}")
    return folder, summary


def _one_policy(
    world: World,
    name: str,
    actor: Any,
    channel: Channel | None,
    config: EvaluateConfig,
    results: Results,
    progress: Progress,
) -> None:
    seeds, scenarios = config.seeds(), config.scenarios()
    batch = config.batch or _batch(config.world.agents, world.device)
    learned = hasattr(actor, "policy") or hasattr(actor, "run")
    delay = channel.delay if channel is not None and learned else None
    keys = {
        "policy": name,
        "task": world.task,
        "scenario": config.world.scenario,
        "agents": config.world.agents,
        "delay": delay,
        "loss": channel.loss if delay is not None and channel is not None else 0.0,
        "seed": config.seed,
    }
    total, done = config.episodes * (config.steps + 1), 0
    for first in range(0, config.episodes, batch):
        chosen = range(first, min(first + batch, config.episodes))
        part = f"{name.replace('/', '_')}-{first:06d}"
        if results.done(part):
            done += len(chosen) * (config.steps + 1)
            continue

        def tick(steps: int, size: int = len(chosen)) -> None:
            nonlocal done
            done += steps * size
            progress(name, done, total)

        ran = rollout(
            world,
            actor,
            [seeds[e] for e in chosen],
            config.steps,
            scenarios=[scenarios[e] for e in chosen],
            policy=name,
            delay=delay,
            record=max(0, min(config.record - first, len(chosen))),
            progress=tick,
        )
        for offset, recording in enumerate(ran.recordings):
            recording.save(results.folder / f"recording-{name.replace('/', '_')}-{first + offset:03d}.npz")
        episodes = [{"start": scenarios[e], "episode": e, "episode_seed": seeds[e]} for e in chosen]
        results.add(part, episode_table(keys, episodes, world.config.dt, ran.metrics))
    progress(name, total, total)


def _batch(agents: int, device: torch.device) -> int:
    """Environments at once: enough to fill the device, few enough that memory and the first result stay near."""
    return max(1, (25_600 if device.type == "cuda" else 1_800) // agents)


def _resolved(task: str, config: EvaluateConfig) -> dict[str, Any]:
    """The settings as plain JSON, less those that do not change a result."""
    plain = dataclasses.asdict(config)
    for name in ("out", "resume", "device"):
        plain.pop(name)
    return {"task": task, **plain}


def _about(task: str, device: torch.device) -> dict[str, Any]:
    """What a reader needs to trust the numbers."""
    return {
        "task": task,
        "version": __version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine() + " CPU",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
