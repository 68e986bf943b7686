"""A rollout: one policy, many start states, every metric at every instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import Actor
from mast_swarm.evaluate.recording import Recording
from mast_swarm.world.base import World


@dataclass(frozen=True)
class Rollout:
    """E episodes of T steps (T + 1 instants, the start included)."""

    metrics: dict[str, np.ndarray]  # each [E, T+1] float32
    recordings: list[Recording]  # of the first `record` episodes


def rollout(
    world: World,
    actor: Actor,
    seeds: Sequence[int],
    steps: int,
    *,
    scenarios: Sequence[str] | None = None,
    policy: str = "policy",
    delay: float | None = None,
    record: int = 0,
    progress: Callable[[int], None] = lambda count: None,
) -> Rollout:
    """Drive one batch of environments for `steps` control periods. `progress` is told of each step done."""
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
        raise MastError(f"policy '{policy}' gave commands that are not finite numbers: check its weights")
    names = [world.config.scenario] * len(seeds) if scenarios is None else scenarios
    recordings = [
        _recording(world, state, frames, metrics, episode, names[episode], seeds[episode], policy, delay, actor)
        for episode in range(record)
    ]
    return Rollout(metrics, recordings)


def _finite(state: Any) -> bool:
    return bool(torch.isfinite(state.positions).all())


def _frame(state: Any, observation: Any, record: int) -> tuple[np.ndarray, ...]:
    """What a replay shows of the first `record` environments at one instant."""
    parts = (state.positions, observation.neighbours, observation.goals_seen)
    return tuple(part[:record].cpu().numpy() for part in parts)


def _recording(
    world: World,
    state: Any,
    frames: list[tuple[np.ndarray, ...]],
    metrics: dict[str, np.ndarray],
    episode: int,
    scenario: str,
    seed: int,
    policy: str,
    delay: float | None,
    actor: Actor,
) -> Recording:
    positions, neighbours, goals_seen = (np.stack([f[part][episode] for f in frames]) for part in range(3))
    return Recording(
        policy=policy,
        scenario=scenario,
        seed=seed,
        delay=delay,
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
