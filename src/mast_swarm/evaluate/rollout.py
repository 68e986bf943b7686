"""A rollout: one policy, many start states, every metric at every instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    progress: Callable[[int], None] = lambda count: None,
) -> Rollout:
    """Drive one batch of environments, a seed each, for `steps` control periods.

    policy: a name, a folder, or the thing itself; learned ones run centrally, or over a `channel` every robot alone.
    scenarios: one a seed where they differ. record: of the first how many to keep a recording, which shows `name`.
    progress: is told of each instant done.
    """
    if not len(seeds) or steps < 1 or not 0 <= record <= len(seeds):
        raise MastError(f"{len(seeds)} seeds, {steps} steps, {record} recordings: give 1, 1, 0 or more")
    name = name or (policy if isinstance(policy, str) else type(policy).__name__)
    actor, seeds = make_actor(policy, world, channel), list(seeds)
    with torch.inference_mode():
        state = world.reset(seeds, scenarios)
        actor.start(seeds)
        measured: list[dict[str, torch.Tensor]] = []
        frames: list[tuple[np.ndarray, ...]] = []
        for step in range(steps + 1):
            observation = world.observe(state)
            measured.append(dict(world.metrics(state)))
            if record:
                frames.append(_frame(state, observation, record))
            if step < steps:
                state = world.step(state, actor.act(state, observation))
            progress(1)
        metrics = {
            name: torch.stack([row[name] for row in measured], dim=1).float().cpu().numpy() for name in measured[0]
        }
    if not all(np.isfinite(values).all() for values in metrics.values()) or not _finite(state):
        raise MastError(f"policy '{name}' gave commands that are not finite numbers: check its weights")
    starts = [world.config.scenario] * len(seeds) if scenarios is None else scenarios
    about = [{"policy": name, "scenario": starts[e], "seed": seeds[e]} for e in range(record)]
    recordings = [_recording(world, actor, state, frames, metrics, e, about[e]) for e in range(record)]
    return Rollout(metrics, recordings)


def _finite(state: Any) -> bool:
    return bool(torch.isfinite(state.positions).all())


def _frame(state: Any, observation: Any, record: int) -> tuple[np.ndarray, ...]:
    """What a replay shows of the first `record` environments at one instant."""
    parts = (state.positions, observation.neighbours, observation.goals_seen)
    return tuple(part[:record].cpu().numpy() for part in parts)


def _recording(
    world: World,
    actor: Actor,
    state: Any,
    frames: list[tuple[np.ndarray, ...]],
    metrics: dict[str, np.ndarray],
    episode: int,
    about: dict[str, Any],
) -> Recording:
    positions, neighbours, goals_seen = (np.stack([f[part][episode] for f in frames]) for part in range(3))
    return Recording(
        **about,
        delay=None if actor.channel is None else actor.channel.delay,
        dt=world.config.dt,
        width=world.config.side,
        success_radius=world.config.success_radius,
        attention_radius=actor.attention_radius,
        goals=state.goals[episode].cpu().numpy(),
        positions=positions,
        neighbours=neighbours.astype(np.int32),
        goals_seen=goals_seen.astype(np.int32),
        success_rate=metrics["success_rate"][episode],
    )
