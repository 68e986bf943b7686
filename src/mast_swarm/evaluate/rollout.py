"""A rollout: one policy, many start states, every metric at every instant."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from operator import index
from typing import Any

import numpy as np
import torch

from mast_swarm.comms.config import Channel
from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import Drives, make_actor
from mast_swarm.evaluate.graphs import capture
from mast_swarm.evaluate.knowledge import Knowledge
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.recording import Recording
from mast_swarm.observation import Observed
from mast_swarm.tasks.world import State, World
from mast_swarm.threads import enough_for

_REPAYS = 16  # control periods from which on a graph is worth its capture, which runs a few of them


@dataclass(frozen=True)
class Rollout:
    """E episodes of T steps (T + 1 instants, the start included)."""

    metrics: dict[str, np.ndarray]  # each [E, T+1] float32
    recordings: list[Recording]  # of the first `record` episodes
    state: State  # the last one, of all episodes


def rollout(
    world: World[Any, Any],
    policy: Drives,
    seeds: Sequence[int],
    steps: int,
    *,
    channel: Channel | None = None,
    scenarios: Sequence[str] | None = None,
    name: str | None = None,
    record: int = 0,
    precision: str = "fp32",
    safe: bool = False,
    plain: bool = False,
    progress: Callable[[int], None] = lambda count: None,
) -> Rollout:
    """Drive one batch of environments, one per seed, for `steps` control periods.

    policy: a name, a folder, file.py:NAME, or the thing itself: a learned policy, a controller, or a function
    (state, observation) -> command. Learned ones run centrally, or over a `channel` every robot alone.
    scenarios: one per seed where they differ. record: of the first how many to keep a recording, which shows `name`.
    precision: of a learned policy's products, fp32 or bf16. safe: robots run the safety layer. plain: never as captured
    graphs, which a GPU runs whole control periods as where it can. progress: is told of each instant done.
    """
    if not isinstance(world, World):
        raise MastError(
            f"the world is of type {type(world).__name__}: rollout takes a world, then the policy, as rollout(world, "
            "policy, seeds, steps)"
        )
    if isinstance(steps, bool) or not isinstance(steps, int) or not isinstance(seeds, Sequence | np.ndarray):
        raise MastError(
            f"seeds of type {type(seeds).__name__} and steps of type {type(steps).__name__}: give seeds as a sequence, "
            "one for each start state, such as range(8), and then steps as a whole number"
        )
    if not len(seeds) or steps < 1 or not 0 <= record <= len(seeds):
        raise MastError(f"{len(seeds)} seeds, {steps} steps, {record} recordings: give 1, 1, 0 or more")
    name = name or (policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__))
    try:
        seeds = [index(seed) for seed in seeds]
    except TypeError:
        raise MastError(f"seeds are {list(seeds)}: give whole numbers") from None
    loop = Loop(world, make_actor(policy, world, channel), precision=precision, safe=safe)
    with torch.inference_mode(), _on(world.device, len(seeds) * world.config.agents):
        knowledge = Knowledge(loop, record, steps)
        loop.start(seeds, scenarios)
        frames: list[dict[str, np.ndarray]] = []
        repays = steps >= _REPAYS + getattr(loop.actor, "SETTLES", 0)
        whole = capture(loop, steps + 1) if repays and not plain and not record else None
        if whole is not None:
            for _ in range(steps):
                whole.step()
                progress(1)
            whole.measure()
            progress(1)
            measured = whole.metrics
        else:
            rows: list[dict[str, torch.Tensor]] = []
            for step in range(steps + 1):
                rows.append(loop.look())
                # What is known when the last frame is shown, too; a controller is asked no more often than robots move.
                if step < steps or (record and knowledge.kind != "controller"):
                    knowledge.watch(step)
                    command = loop.decide()
                if record:
                    frames.append(_frame(world, loop.state, loop.observation, record) | _alive(loop, record))
                    knowledge.keep(step)
                if step < steps:
                    loop.move(command)
                progress(1)
            measured = {name: torch.stack([row[name] for row in rows], dim=1) for name in rows[0]}
        metrics = {name: values.float().cpu().numpy() for name, values in measured.items()}
    if not bool(torch.isfinite(loop.state.positions).all()):
        raise MastError(f"policy '{name}' gave commands that are not finite numbers: check its weights")
    _check_metrics(world, metrics, seeds, str(name))
    starts = [world.config.scenario] * len(seeds) if scenarios is None else scenarios
    about = [{"policy": name, "scenario": starts[e], "seed": seeds[e]} for e in range(record)]
    channel = loop.actor.channel
    actor = {
        "delay": None if channel is None else channel.delay,
        "loss": 0.0 if channel is None else channel.loss,
        "failure": getattr(loop.actor, "failure", 0.0),
        "attention_radius": loop.actor.attention_radius,
    }
    rows = [row | actor | {"knowledge": knowledge.kind, "known": knowledge.of(e)} for e, row in enumerate(about)]
    kept = recordings(world, loop.state, frames, metrics, rows) if record else []
    return Rollout(metrics, kept, loop.state)


def _check_metrics(world: World[Any, Any], metrics: dict[str, np.ndarray], seeds: Sequence[int], name: str) -> None:
    """Raise an error that names the first metric [E, T+1] with a number that is not finite, and where."""
    for metric, values in metrics.items():
        if not np.isfinite(values).all():
            episode, step = np.argwhere(~np.isfinite(values))[0]
            raise MastError(
                f"metric {metric} of {world.task} is {values[episode, step]} at t = {step * world.config.dt:g} s of "
                f"seed {seeds[episode]}, driven by '{name}': let the world's metrics be finite numbers"
            )


def _on(device: torch.device, robots: int) -> AbstractContextManager[None]:
    """Where a rollout of so many robots runs: on a CPU with threads enough for them; kernels and graphs are launched on
    the GPU that is the current one, which need not be the world's."""
    if device.type == "cpu":
        return enough_for(robots)
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def _frame(world: World[Any, Any], state: State, observation: Observed, record: int) -> dict[str, np.ndarray]:
    """What a replay shows of the first `record` environments at one instant."""
    kept = {"positions": state.positions.float(), **world.frame(state, observation)}
    return {name: values[:record].cpu().numpy() for name, values in kept.items()}


def _alive(loop: Loop, record: int) -> dict[str, np.ndarray]:
    """Who has not failed by now, [R, N] bool, where robots may fail."""
    if not getattr(loop.actor, "failure", 0.0):
        return {}
    alive = getattr(loop.actor, "alive", None)
    shape = loop.state.positions.shape[:2]
    return {"alive": np.ones((record, shape[1]), bool) if alive is None else alive[:record].cpu().numpy()}


def recordings(
    world: World[Any, Any],
    state: State,
    frames: list[dict[str, np.ndarray]],
    metrics: dict[str, np.ndarray],
    about: list[dict[str, Any]],
) -> list[Recording]:
    """One per row of `about`, which says who drove, from the frames of all instants [R, ...], the metrics [E, T+1] and
    the last state."""
    kept = {name: np.stack([frame[name] for frame in frames], axis=1) for name in frames[0]}  # each [R, T+1, ...]
    track = kept.pop("positions")
    scene = {name: values.cpu().numpy() for name, values in world.scene(state, torch.from_numpy(track)).items()}
    return [
        Recording(
            task=world.task,
            **row,
            dt=world.config.dt,
            width=world.config.side,
            settings=asdict(world.config),
            positions=track[e],
            metrics={name: values[e] for name, values in metrics.items()},
            frames={name: values[e] for name, values in kept.items()},
            scene={name: values[e] for name, values in scene.items()},
        )
        for e, row in enumerate(about)
    ]
