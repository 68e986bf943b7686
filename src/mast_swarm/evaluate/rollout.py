"""A rollout: one policy, many start states, every metric at every instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from mast_swarm.comms.config import Channel
from mast_swarm.controllers import Controller
from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import Actor, make_actor
from mast_swarm.evaluate.recording import Recording
from mast_swarm.model.policy import Policy
from mast_swarm.world.base import World


@dataclass(frozen=True)
class Rollout:
    """E episodes of T steps (T + 1 instants, the start included)."""

    metrics: dict[str, np.ndarray]  # each [E, T+1] float32
    recordings: list[Recording]  # of the first `record` episodes


def rollout(
    world: World,
    policy: str | Policy | Controller | Actor,
    seeds: Sequence[int],
    steps: int,
    *,
    channel: Channel | None = None,
    scenarios: Sequence[str] | None = None,
    name: str | None = None,
    record: int = 0,
    precision: str = "fp32",
    progress: Callable[[int], None] = lambda count: None,
) -> Rollout:
    """Drive one batch of environments, a seed each, for `steps` control periods.

    policy: a name, a folder, or the thing itself; learned ones run centrally, or over a `channel` every robot alone.
    scenarios: one a seed where they differ. record: of the first how many to keep a recording, which shows `name`.
    precision: of a learned policy's products, fp32 or bf16. progress: is told of each instant done.
    """
    if not len(seeds) or steps < 1 or not 0 <= record <= len(seeds):
        raise MastError(f"{len(seeds)} seeds, {steps} steps, {record} recordings: give 1, 1, 0 or more")
    name = name or (policy if isinstance(policy, str) else type(policy).__name__)
    actor, seeds = make_actor(policy, world, channel), list(seeds)
    with torch.inference_mode():
        state = world.reset(seeds, scenarios)
        actor.start(seeds)
        measured: list[dict[str, torch.Tensor]] = []
        frames: list[dict[str, np.ndarray]] = []
        for step in range(steps + 1):
            observation = world.observe(state)
            measured.append(dict(world.metrics(state)))
            if record:
                frames.append(_frame(world, state, observation, record))
            if step < steps:
                with torch.autocast(world.device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
                    command = actor.act(state, observation)
                state = world.step(state, command)
            progress(1)
        metrics = {
            name: torch.stack([row[name] for row in measured], dim=1).float().cpu().numpy() for name in measured[0]
        }
    if not all(np.isfinite(values).all() for values in metrics.values()) or not _finite(state):
        raise MastError(f"policy '{name}' gave commands that are not finite numbers: check its weights")
    starts = [world.config.scenario] * len(seeds) if scenarios is None else scenarios
    about = [{"policy": name, "scenario": starts[e], "seed": seeds[e]} for e in range(record)]
    return Rollout(metrics, _recordings(world, actor, state, frames, metrics, about) if record else [])


def _finite(state: Any) -> bool:
    return bool(torch.isfinite(state.positions).all())


def _frame(world: World, state: Any, observation: Any, record: int) -> dict[str, np.ndarray]:
    """What a replay shows of the first `record` environments at one instant."""
    kept = {"positions": state.positions.float(), **world.frame(state, observation)}
    return {name: values[:record].cpu().numpy() for name, values in kept.items()}


def _recordings(
    world: World,
    actor: Actor,
    state: Any,
    frames: list[dict[str, np.ndarray]],
    metrics: dict[str, np.ndarray],
    about: list[dict[str, Any]],
) -> list[Recording]:
    """One a row of `about`, from the frames of all instants and the last state."""
    kept = {name: np.stack([frame[name] for frame in frames], axis=1) for name in frames[0]}  # each [R, T+1, ...]
    track = kept.pop("positions")
    scene = {name: values.cpu().numpy() for name, values in world.scene(state, torch.from_numpy(track)).items()}
    return [
        Recording(
            task=world.task,
            **row,
            delay=None if actor.channel is None else actor.channel.delay,
            dt=world.config.dt,
            width=world.config.side,
            attention_radius=actor.attention_radius,
            settings=asdict(world.config),
            positions=track[e],
            metrics={name: values[e] for name, values in metrics.items()},
            frames={name: values[e] for name, values in kept.items()},
            scene={name: values[e] for name, values in scene.items()},
        )
        for e, row in enumerate(about)
    ]
