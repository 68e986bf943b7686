"""LPAC over the channel: every graph shift is an exchange with the neighbours, and every exchange takes time.

In each layer robot i holds z_0 .. z_K: its own input, and what it last made of its neighbours' z_0 .. z_(K-1). In an
exchange all robots send these, for all layers at once; a receiver adds them up with the weights of A and carries them
through its layers, so that what it sends next is built on them. News of a robot h links away has so taken part in h
exchanges, and a decision draws on up to L K of them.

Exchanges keep time with control: with tau <= dt there are floor(dt / tau) in a control period, one after the other;
with tau > dt one begins at every instant, ends ceil(tau / dt) periods later, and several are under way. So news of a
robot h links away is ceil(h / floor(dt / tau)) or h ceil(tau / dt) periods old; where one of tau and dt divides the
other that is Algorithm 1's ceil(h tau / dt). One exchange carries the K inputs of each layer over each link: with
LPAC-K3's sizes 3,174 floats, where MAST passes on 34 for each robot heard of.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from mast_swarm.comms.config import Channel
from mast_swarm.comms.timing import Timing
from mast_swarm.errors import MastError
from mast_swarm.model.lpac import LPAC, GraphLayer, graph_shift
from mast_swarm.observation import Mark, Observed, unmarked


class DecentralLPAC:
    """LPAC run by every robot alone, over a channel, at control instants `dt` seconds apart.

    `start`, then `act` once per control instant. Without delay it is the central policy. side: width of the world in
    metres, None for that of the policy's config.
    """

    def __init__(self, policy: LPAC, channel: Channel, dt: float, side: float | None = None) -> None:
        if channel.loss or channel.failure or channel.relay_radius is not None or channel.max_age is not None:
            raise MastError(
                "lpac runs over channels with delay alone: set loss and failure to 0, and no relay_radius or max_age"
            )
        self.policy, self.side = policy, side
        self.layers = cast(list[GraphLayer], list(policy.layers))
        timing = Timing(channel, dt)
        self.instant = timing.instant
        self.rounds = 1 if self.instant else max(1, timing.period // timing.hop)  # exchanges in a control period
        self.wait = max(1, -(-timing.hop // timing.period))  # control periods until an exchange has ended
        self.batch = 0
        # What the robots held at the last `wait` instants, and the graph shift then. Held: of each layer
        # [B, N, K + 1, inputs].
        self.sent: deque[tuple[list[Tensor], Tensor]] = deque(maxlen=self.wait)

    def start(self, seeds: Sequence[int]) -> None:
        """Forget everything: instant 0 of one environment per seed."""
        self.batch = len(seeds)
        self.sent.clear()

    @torch.no_grad()
    def act(self, observation: Observed, mark: Mark = unmarked) -> Tensor:
        """Commands [B, N, 2] in units of u_max at the next control instant."""
        if len(observation.positions) != self.batch:
            raise MastError(
                f"{len(observation.positions)} environments are observed but {self.batch} were started: call start"
            )
        if self.instant:
            return self.policy(**self.policy.inputs(observation), side=self.side)
        x = self.policy.node_features(self.policy.perceive(observation.features), observation.positions, self.side)
        if self.sent and self.sent[0][1].shape[1] != x.shape[1]:
            raise MastError(f"{x.shape[1]} robots, but the run began with {self.sent[0][1].shape[1]}: call start")
        held, x = self._carry(x, self._heard(x))
        self.sent.append((held, graph_shift(observation.graph.adjacency()).to(self.policy.dtype)))
        return self.policy.act(x)

    def _heard(self, x: Tensor) -> list[Tensor]:
        """What each robot has of its neighbours by now: of each layer [B, N, K, inputs]."""
        hops = self.policy.config.hops
        if len(self.sent) < self.wait:  # no exchange has ended yet
            widths = (x.shape[-1], *[self.policy.config.width] * (self.policy.config.layers - 1))
            return [x.new_zeros(*x.shape[:2], hops, width) for width in widths]
        held, shift = self.sent[0]
        own = held[0][:, :, 0]
        for _ in range(self.rounds):
            heard = [
                layer.hear(z[:, :, :-1].flatten(2), shift).unflatten(2, (hops, -1))
                for layer, z in zip(self.layers, held, strict=True)
            ]
            held, _ = self._carry(own, heard)
        return heard

    def _carry(self, x: Tensor, heard: list[Tensor]) -> tuple[list[Tensor], Tensor]:
        """What each robot holds in each layer, from its input x [B, N, d_msg + 2] and what it has heard; and what the
        last layer makes of it, [B, N, width]."""
        held = []
        for layer, others in zip(self.layers, heard, strict=True):
            held.append(torch.cat((x[:, :, None], others), dim=2))
            x = layer.combine(held[-1])
        return held, x
