"""A task of a user, as small as one can be: robots that stroll. And a place for tasks that a test makes up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import mast_swarm
from mast_swarm import Metric, Task, zoo
from mast_swarm.tasks import registry as base


@contextmanager
def own_tasks() -> Iterator[None]:
    """Tasks that are made known inside are forgotten at the end."""
    base.names()  # those of the package are known from the start
    kept = {id(known): (known, dict(known)) for known in (base._TASKS, base._sources, base._broken, zoo._FOLDERS)}
    try:
        yield
    finally:
        for known, before in kept.values():
            known.clear()
            known.update(before)


@dataclass(frozen=True)
class Config(mast_swarm.WorldConfig):
    """Robots stroll."""

    agents: int = 5
    """Number of robots."""
    reach: float = 150.0
    """A robot hears those nearer than this, m."""


@dataclass(frozen=True, kw_only=True)
class State(mast_swarm.State):
    velocity: Tensor  # [B, N, 2] in units of max_speed


class Strolling(mast_swarm.World[Config, State]):
    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        half = self.config.side / 2
        return (np.random.default_rng(seed).uniform(-half, half, (self.config.agents, 2)).astype(np.float32),)

    def begin(self, *drawn: Tensor) -> State:
        positions = drawn[0].to(self.device)
        step = torch.zeros(len(positions), dtype=torch.int64, device=self.device)
        return State(positions=positions, step=step, velocity=torch.zeros_like(positions))

    def observe(self, state: State) -> mast_swarm.Observation:
        return mast_swarm.Observation(
            features=torch.cat([state.velocity, state.positions / self.config.side], dim=-1),
            positions=state.positions,
            graph=mast_swarm.radius_graph(state.positions, self.config.reach),
        )

    def step(self, state: State, command: Tensor) -> State:
        velocity, moved = self.moved(state, command)
        return replace(state, positions=state.positions + moved, step=state.step + 1, velocity=velocity)

    def metrics(self, state: State) -> dict[str, Tensor]:
        return {"spread": (state.positions - state.positions.mean(1, keepdim=True)).norm(dim=-1).mean(1)}


def inwards(state: State, observation: mast_swarm.Observation) -> Tensor:
    """To the middle of the world."""
    return -state.positions / 10.0


class Eastwards:
    """East, at full speed."""

    def __init__(self, *, dt: float, max_speed: float) -> None:
        self.dt, self.max_speed = dt, max_speed
        self.started: list[int] = []

    def start(self, seeds: object = ()) -> None:
        self.started = list(seeds)  # type: ignore[call-overload]

    def act(self, state: State, observation: object) -> Tensor:
        return torch.zeros_like(state.positions).index_fill(-1, torch.tensor([0]), 1.0)


class AtSpeed(Eastwards):
    """East, at some per cent of the speed."""

    def __init__(self, per_cent: int, **settings: float) -> None:
        super().__init__(**settings)
        self.per_cent = per_cent

    def act(self, state: State, observation: object) -> Tensor:
        return super().act(state, observation) * (self.per_cent / 100)


def strolling(**parts: object) -> Task:
    """The task, with other parts where they are given."""
    own: dict[str, object] = {
        "name": "strolling",
        "Config": Config,
        "World": Strolling,
        "metric": Metric("spread", unit="m", lower_is_better=True, limits=(0.0, float("inf")), digits=1),
        "controllers": {"inwards": inwards, "eastwards": Eastwards, "east-K": AtSpeed},
        "expert": "inwards",
    }
    return Task(**{**own, **parts})  # type: ignore[arg-type]


ONE_FILE = '''from dataclasses import dataclass
import mast_swarm
import strolling
from strolling import Eastwards, Strolling, inwards

LENGTH = 11

@dataclass(frozen=True)
class Config(strolling.Config):
    """Robots stroll, from a file."""

    agents: int = 4
    """Number of robots."""

def outwards(state, observation):
    """Away from the middle."""
    return state.positions

halfway = Eastwards(dt=1.0, max_speed=5.0)

TASK = mast_swarm.Task("filed", Config, Strolling, metric=mast_swarm.Metric("spread", unit="m"),
                       controllers={"inwards": inwards, "eastwards": Eastwards}, expert="inwards", steps=LENGTH)
'''
"""The same in a file of its own, whose task is called `filed`. Needs this folder on the path."""


def one_file(folder: Path, text: str = ONE_FILE, name: str = "task.py") -> Path:
    """Write a file with a task; its path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name
