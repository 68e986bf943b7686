"""The maps of a survey over a channel: robots hand them on every tau seconds, one hop at a time.

Marks have no stamps: a robot hands on all that it holds. What it hands on at a multiple of tau is what it held at the
one before, so that a mark never travels faster than a message. Where tau does not divide the control period it may be
up to one hop later.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mast_swarm.comms.relay import Held, Relay
from mast_swarm.observation import Observed
from mast_swarm.space import Graph, reachable
from mast_swarm.space.graph import MatrixGraph
from mast_swarm.survey import Survey, guided, idle, sights_of


class Handed:
    """The maps of robots that run alone. `hear` for the period that ends, `look` and `searched` at each instant."""

    def __init__(self, survey: Survey, relay: Relay) -> None:
        self.survey, self.relay = survey, relay
        self.start()

    def start(self) -> None:
        """Forget everything."""
        self.sent: Tensor | None = None  # the maps that are on their way; None before the first instant
        self.heard = torch.zeros(0, dtype=torch.bool)  # [B, N, N]: whom robots heard last ...
        self.told: tuple[Tensor, Tensor] | None = None  # ... where those then were, and whether they searched
        self.ended = False  # whether maps arrived at the very end of the last period

    def memory(self) -> dict[str, Tensor]:
        """What changes from instant to instant, where all maps that robots hold are on their way."""
        return self.survey.memory() | {"told_by": self.heard}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Go on with what `memory` gave, wherever it lies now."""
        self.survey.remember(memory)
        self.sent, self.heard = self.survey.maps, memory["told_by"]

    def hear(self, state: Held, graph: Graph) -> None:
        """The hops of a period that begins with this state, over this graph."""
        timing, self.ended = self.relay.timing, False
        if timing.instant:
            return
        for tick in timing.handings(state.step):
            self.heard = self.relay.heard(state, graph, timing.round_at(tick))
            self.survey.hear(self.heard, self.sent)
            self.told = self.survey.place, self.survey.searching
            self.ended = tick == timing.period
            if not self.ended:
                self.sent = self.survey.maps

    def look(self, state: Held, observation: Observed) -> None:
        """Robots mark what they sense now; without delay all that their news reaches hear of it."""
        places, instant = observation.positions, self.relay.timing.instant
        if self.sent is None:
            self.survey.begin(places)
            self.heard = torch.zeros((*places.shape[:2], places.shape[1]), dtype=torch.bool, device=places.device)
        self.survey.look(places, sights_of(observation))
        if instant:
            self.heard = self.relay.heard(state, observation.graph, 0)
            self.survey.hear(reachable(MatrixGraph(self.heard)))
        if self.ended or self.sent is None:
            self.sent = self.survey.maps

    def searched(self, command: Tensor, prediction: Tensor, alive: Tensor, positions: Tensor) -> Tensor:
        """Commands [B, N, 2] where living robots that are left idle search."""
        way = self.survey.ways(positions, idle(prediction) & alive, self.heard, self.told)
        return guided(command, prediction, way)
