"""What robots sense at one control instant: the one contract between worlds, policies and communication."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import Protocol

import torch
from torch import Tensor

from mast_swarm.space import Graph

Mark = Callable[[str], None]
"""Is told the name of each part of a step when it ends."""


def unmarked(part: str) -> None:
    """Nobody measures the parts of a step."""


class Observed(Protocol):
    """What a world gives of B environments with N robots each, and all that a policy may read."""

    @property
    def features(self) -> Tensor: ...  # [B, N, ...] what perception reads
    @property
    def positions(self) -> Tensor: ...  # [B, N, 2] metres; a robot knows where it is
    @property
    def graph(self) -> Graph: ...  # who hears whom now
    @property
    def landmark(self) -> Tensor: ...  # [B, N, 2] metres, relative: the nearest thing of interest that each senses
    @property
    def goals(self) -> Tensor | None: ...  # [B, G, 2] metres: what clairvoyant policies see; None: there is nothing


@dataclass(frozen=True, kw_only=True)
class Observation:
    """An `Observed` made of plain tensors. A world that has more to tell its controllers extends it."""

    features: Tensor
    positions: Tensor
    graph: Graph
    landmark: Tensor = None  # type: ignore[assignment]
    """Left out: there is nothing to stay near, which is 0."""
    goals: Tensor | None = None

    def __post_init__(self) -> None:
        if self.landmark is None:
            object.__setattr__(self, "landmark", torch.zeros_like(self.positions))


@dataclass(frozen=True)
class Heard:
    """What robots hold of each other's news at one control instant, for controllers whose robots talk."""

    age: Tensor  # [B, N, N] int64, control periods: of i's news of j; -1: i holds none
    news: Tensor  # [B, N, N, W]: what j then said; 0 where i holds none
    hop: Fraction  # control periods that a message takes per hop
    searched: Callable[[Tensor, Tensor], Tensor]
    """For a controller with a `survey`, whose robots hand each other a map: commands [B, N, 2], of commands and a plan
    [B, N, 3], in which robots that the plan leaves idle search by what has reached them of the map."""

    def oldest(self, hops: int) -> int:
        """How old news from that many hops away is on a graph that stands still, in control periods."""
        return ceil(hops * self.hop)
