"""Exploration: what a robot does with the speed that its policy leaves open.

A policy learned from an expert that sees everything answers with the mean of what the expert might do. A robot that
cannot tell two goals apart gets a short command and hovers, though the expert would have gone somewhere at full
speed. So an exploring policy also predicts that speed, and the robot fills the gap with a heading of its own, one
that turns slowly at random and differs from robot to robot. Where the policy is sure the gap is nil, and nothing
changes; on its goal the expert stands still, and so does the robot. An explorer that has left everything of interest
behind turns back to the nearest of it. A robot that remembers where it has been turns away from there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from mast_swarm.chance import MIXING, combine, uniform
from mast_swarm.kernels import USABLE, on_gpu, tried

gpu: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm import explore_kernels as gpu


def heading(seeds: Tensor, time: Tensor, robots: int) -> Tensor:
    """A unit vector for each robot that drifts with time: [B, robots, 2].

    seeds [B] int64; time [B] in units of the exploration time: over one unit a heading turns to the next of an
    endless row of random ones. A function of seed, robot and time alone, so any robot can compute its own.
    """
    knot = time.floor().long()  # [B]
    robot = torch.arange(robots, device=seeds.device)
    ahead = torch.arange(2, device=seeds.device)[:, None]  # this knot and the next
    angle = uniform(combine(seeds[:, None, None], knot[:, None, None] + ahead, robot)).float() * (2 * math.pi)
    here, there = torch.stack((angle.cos(), angle.sin()), dim=-1).unbind(1)  # [B, robots, 2] each
    share = (time - knot)[:, None, None].float()
    blend = here + (there - here) * (share * share * (3 - 2 * share))  # smoothstep: no sudden turn at a knot
    return blend / torch.linalg.vector_norm(blend, dim=-1, keepdim=True).clamp_min(1e-3)


EVERY = 10.0  # seconds between two places that a robot remembers
_FAR = 1e15  # metres: where a place is that is not yet remembered; it pushes nobody


@dataclass(eq=False)
class Trail:
    """Where each robot has been: its last `places` places, one every `EVERY` seconds. A record, so that a checkpoint of
    a training can hold it. Tensors alone say how long it has been kept, so that it can be part of a CUDA graph."""

    places: int
    spread: float  # metres over which a place loses its effect
    dt: float  # seconds of a control period
    instant: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))  # [1], control periods so far
    past: Tensor = field(default_factory=lambda: torch.zeros(0))  # [B, N, P, 2] metres, the last place last

    @property
    def every(self) -> int:
        """Control periods between two places."""
        return max(1, round(EVERY / self.dt))

    def begin(self, positions: Tensor) -> None:
        """Nothing is remembered of robots at positions [B, N, 2]."""
        batch, robots, _ = positions.shape
        self.instant = torch.zeros(1, dtype=torch.int64, device=positions.device)
        self.past = positions.new_full((batch, robots, self.places, 2), _FAR)

    def memory(self) -> dict[str, Tensor]:
        """What changes from instant to instant; `remember` takes it."""
        return {"instant": self.instant, "past": self.past}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Go on with what `memory` gave, wherever it lies now."""
        self.instant, self.past = memory["instant"], memory["past"]

    def away(self, positions: Tensor) -> Tensor:
        """What pushes robots at positions [B, N, 2] metres away from where they have been, [B, N, 2]; call it once at
        each control instant."""
        if not self.past.numel():
            self.begin(positions)
        longer = torch.cat((self.past[:, :, 1:], positions[:, :, None]), dim=2)
        self.past = torch.where(self.instant % self.every == 0, longer, self.past)
        self.instant = self.instant + 1
        way = positions[:, :, None] - self.past
        distance = torch.linalg.vector_norm(way, dim=-1, keepdim=True)
        return (way / distance.clamp_min(1.0) * torch.exp(-distance / self.spread)).sum(2)


def turned(headings: Tensor, away: Tensor, most: float) -> Tensor:
    """Headings [..., 2] turned by a push [..., 2]: little by a weak one, by a strong one nearly to where it points.

    most: of any push, against a heading of length 1."""
    strength = torch.linalg.vector_norm(away, dim=-1, keepdim=True)
    blend = headings + most * away.to(headings.dtype) / (1 + strength)
    return blend / torch.linalg.vector_norm(blend, dim=-1, keepdim=True).clamp_min(1e-3)


def pulled(landmark: Tensor, reach: float) -> Tensor:
    """How much the landmark [..., 2] (relative, metres) holds a robot back, [..., 1]: 0 up to half the reach (metres),
    1 beyond it."""
    return (2 * torch.linalg.vector_norm(landmark, dim=-1, keepdim=True) / reach - 1).clamp(0, 1)


def leashed(headings: Tensor, landmark: Tensor, reach: float) -> Tensor:
    """Headings [..., 2] that turn towards the landmark [..., 2] (relative, metres), the more the farther it is: not at
    all up to half the reach (metres), wholly beyond it."""
    distance = torch.linalg.vector_norm(landmark, dim=-1, keepdim=True)
    pull, way = pulled(landmark, reach), landmark / distance.clamp_min(1e-6)
    blend = torch.lerp(headings, way.to(headings.dtype), pull.to(headings.dtype))
    return blend / torch.linalg.vector_norm(blend, dim=-1, keepdim=True).clamp_min(1e-3)


def fill(prediction: Tensor, headings: Tensor) -> Tensor:
    """Command [..., 2] from a prediction [..., 3] (mean command, expected speed) and headings [..., 2]."""
    mean, speed = prediction[..., :2], prediction[..., 2:].clamp(0, 1)
    gap = (speed - torch.linalg.vector_norm(mean, dim=-1, keepdim=True)).clamp_min(0)
    return mean + speed * gap * headings  # times the speed once more: one that may well be on its goal stays there


def explored(
    prediction: Tensor,
    landmark: Tensor,
    seeds: Tensor,
    time: Tensor,
    reach: float,
    away: Tensor | None = None,
    push: float = 2.0,
) -> Tensor:
    """Commands [B, N, 2] from predictions [B, N, 3] and all of the above: headings of seeds [B] at a time [B] in units
    of the exploration time, what pushes robots away [B, N, 2] (None: nothing) by `push` at most, a leash of `reach`
    metres to the landmark [B, N, 2]."""
    numbers = (prediction, landmark, time) if away is None else (prediction, landmark, time, away)
    quick = gpu is not None and on_gpu(prediction) and all(t.dtype == torch.float32 for t in numbers)

    def plain() -> Tensor:
        headings = heading(seeds, time, prediction.shape[1])
        if away is not None:
            headings = turned(headings, away, push)
        return fill(prediction, leashed(headings, landmark, reach))

    if not quick or not prediction.numel() or prediction.requires_grad or torch.compiler.is_compiling():
        return plain()
    given = (prediction, landmark, seeds, time, reach, away, push, MIXING)
    return tried("exploration", lambda: gpu.explored(*given), plain)
