"""The relay (Algorithm 1) for whole teams: what every robot knows of every other, and how old it is.

`mast_swarm.robot.Robot` is the rule for one robot, and the place to read it; this computes the same for all robots of
all environments at once, and tests hold the two equal. `comms.timing` says when news hops, `comms.held` how it is kept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from mast_swarm import chance, steady
from mast_swarm.comms import held, near, padded
from mast_swarm.comms.config import Channel
from mast_swarm.comms.failures import survivors
from mast_swarm.comms.held import SLOT_BITS, RelayState, stamp_of
from mast_swarm.comms.near import NearState
from mast_swarm.comms.padded import PaddedState
from mast_swarm.comms.timing import Timing
from mast_swarm.comms.views import kernels
from mast_swarm.kernels import on_gpu
from mast_swarm.space import Graph, hops, reachable
from mast_swarm.space.graph import MatrixGraph

_LOSS = 1  # keeps losses apart from failures (comms.failures), which are drawn from the same keys
LISTED = 512  # robots from which there are lists of those within the relay radius in place of a table

Held = RelayState | NearState | PaddedState
"""What robots hold, as a table of all pairs or as lists of a CPU or a GPU: a relay chooses when it starts."""


class Relay:
    """The rules of the channel for a control period of `dt` seconds: states in, states out."""

    def __init__(self, channel: Channel, dt: float) -> None:
        self.channel, self.timing = channel, Timing(channel, dt)
        self.radius = channel.radius  # metres
        self._even = self.timing.even and self.radius is None  # kernels take a table then
        self._plain = self._even and self.timing.together
        self.counted = 0  # of how many environments, the first, `start` begins to count the links that news crosses

    def unsteady(self) -> str | None:
        """Why the relay has to ask a GPU for numbers on its way; None: it need not."""
        if self.timing.instant:
            return "robots alone without delay hear at once from as far as only the data say"
        if not self._even:
            return "robots alone need a delay that divides the control period and no relay radius"
        if self.counted:
            return "the links that news crosses are counted"
        if kernels is None or self.timing.period > kernels.MOST_ROUNDS:
            return f"robots that exchange messages {self.timing.period} times per control period do so too often"
        return None

    def lists(self, robots: int, device: str) -> bool:
        """Whether what so many robots hold on a device (cpu or cuda) is lists of those within the relay radius."""
        if self.radius is None or self.counted or robots < LISTED:
            return False
        return self.timing.together if device == "cpu" else not self.timing.instant and padded.kernels is not None

    def start(self, seeds: Sequence[int] | Tensor, robots: int, width: int, like: Tensor | None = None) -> Held:
        """Instant 0 of one environment per seed, nobody has sampled yet; device and the messages' dtype are those of
        `like`."""
        like = torch.empty(0) if like is None else like
        kind = "cuda" if on_gpu(like) else like.device.type
        shared = held.first(chance.keys_of(self.channel.seed, seeds, like.device), robots, width, like)
        if self.lists(robots, kind):
            return near.start(shared) if kind == "cpu" else padded.start(shared, self.timing.layers)
        table = torch.full((len(seeds), self.timing.layers, robots, robots), -1, device=like.device)
        slots = shared["messages"].shape[1]
        crossed = like.new_zeros(self.counted, robots, slots, robots, dtype=torch.int16)
        return RelayState(**shared, table=table, crossed=crossed if self.counted else None)

    def sample(self, state: Held, message: Tensor, positions: Tensor, graph: Graph) -> Held:
        """Every living robot's message [B, N, d_msg] and position [B, N, 2] metres, stamped with this instant.

        With tau = 0 they also arrive, at once and everywhere that `graph` lets them; what was known before is
        gone.
        """
        if isinstance(state, NearState):
            assert self.radius is not None
            return near.sample(state, message, positions, self.radius)
        if isinstance(state, PaddedState):
            assert self.radius is not None
            oldest = self.timing.oldest(state.step)
            return padded.sample(state, message, positions, self.radius, oldest, waits=self.timing.hop > 1)
        return self._sample_table(state, message, positions, graph)

    def _sample_table(self, state: RelayState, message: Tensor, positions: Tensor, graph: Graph) -> RelayState:
        certain = state.spare > 0 or steady.running()  # that there are free slots, or that somebody looks later
        if self._even and certain and state.crossed is None and _taken(state.table):
            table, messages, where = kernels.sample(state, message, positions, SLOT_BITS)
            spare = max(0, state.spare - 1)
            state = dataclasses.replace(state, table=table, messages=messages, positions=where, spare=spare)
            return self._forget(state)
        table = torch.full_like(state.table, -1) if self.timing.instant else state.table.clone()
        own = table[:, 0].diagonal(dim1=1, dim2=2)  # a view
        before = own.where(state.alive, -1)
        own.masked_fill_(state.alive, -1)
        if self.timing.hop > 1:  # the last sample waits for its next hop
            waiting = torch.full_like(table[:, 0], -1)
            waiting.diagonal(dim1=1, dim2=2).copy_(before)
            table = held.tucked(table, waiting)
            own = table[:, 0].diagonal(dim1=1, dim2=2)
        state, slot = held.free_slots(state, held.used_slots(table, state.messages.shape[1]))
        state = held.stored(state, slot, message, positions)
        own.copy_(torch.where(state.alive, slot + (state.step << SLOT_BITS), own))
        crossed = None if state.crossed is None else held.none_crossed(state.crossed, slot, state.messages.shape[1])
        state = dataclasses.replace(state, table=table, crossed=crossed)
        return self._arrive_at_once(state, graph) if self.timing.instant else self._forget(state)

    def exchange(self, state: Held, graph: Graph) -> Held:
        """The state at the next instant: what is due has hopped over `graph`, and robots may have failed."""
        if isinstance(state, NearState):
            state = self._hop_lists(state, graph)
        elif isinstance(state, PaddedState):
            try:
                state = self._hop_padded(state, graph)
            except padded.TooLong:  # nearly everybody is within the relay radius: on with a table, from this instant
                state = self._hop_in_turn(padded.as_table(state), graph)
        elif not self.timing.instant:
            by_kernel = self._even and _taken(state.table) and self.timing.period <= kernels.MOST_ROUNDS
            if by_kernel and state.crossed is None:
                state = self._hop_by_kernel(state, graph)
            else:
                state = self._hop_together(state, graph) if self._plain else self._hop_in_turn(state, graph)
        alive = survivors(state.alive, state.chance, state.step, self.channel.failure)
        step: Any = state.step + 1
        return dataclasses.replace(state, step=step, alive=alive)

    def _hop_by_kernel(self, state: RelayState, graph: Graph) -> RelayState:
        """The rounds of a period, where all stamps hop at the same times."""
        heard, loss = graph.matrix if isinstance(graph, MatrixGraph) else graph.adjacency(), self.channel.loss
        rounds = range(1, self.timing.period + 1)
        keys = [chance.combine(state.chance, _LOSS, state.step, q) if loss else state.chance for q in rounds]
        if self.timing.max_age is None:
            table, transmissions, entries = kernels.hop(state, heard, keys, loss)
            return dataclasses.replace(state, table=table, transmissions=transmissions, entries=entries)
        for q, key in zip(rounds, keys, strict=True):  # what is too old by then stays where it is
            held = state.table
            young = held.masked_fill(stamp_of(held) < self.timing.oldest(state.step, q), -1)
            arrived, transmissions, entries = kernels.hop(dataclasses.replace(state, table=young), heard, [key], loss)
            table = held.maximum(arrived)
            state = dataclasses.replace(state, table=table, transmissions=transmissions, entries=entries)
        return state

    def _hop_together(self, state: RelayState, graph: Graph) -> RelayState:
        """The same in plain torch, where nothing is ever forgotten."""
        rounds = self.timing.period
        batch, _, robots, _ = state.table.shape
        environment, source, target = _links(graph, state.alive)
        table = state.table.reshape(batch * robots, robots)
        transmissions, entries, crossed = state.transmissions, state.entries, state.crossed
        for q in range(1, rounds + 1):
            offered = table[source]  # [E, N]
            news = q == rounds or not bool((offered <= table[target]).all())
            sent = (table >= 0) * (1 if news else rounds - q + 1)
            entries = entries.index_add(0, environment, sent.sum(1)[source])
            transmissions = transmissions.index_add(0, environment, sent.amax(1)[source])
            if not news:  # for anybody, nor will there be in the rounds left: they are counted and not run
                break
            if self.channel.loss > 0:
                offered.masked_fill_(self._lost(state, source, target, q)[:, None], -1)
            if crossed is not None:
                crossed = held.one_more(crossed, table, offered, source, target)
            table = table.scatter_reduce(0, target[:, None].expand_as(offered), offered, "amax")
        table = table.view(batch, 1, robots, robots)
        return dataclasses.replace(state, table=table, transmissions=transmissions, entries=entries, crossed=crossed)

    def _hop_lists(self, state: NearState, graph: Graph) -> NearState:
        """The rounds of a period, where what robots hold is lists."""
        assert self.radius is not None
        _, source, target = _links(graph, state.alive)
        kept = torch.ones_like(source, dtype=torch.bool)
        for q in range(1, self.timing.period + 1):
            if self.channel.loss > 0:
                kept = ~self._lost(state, source, target, q)
            state = near.hop(state, source, target, kept, self.radius)
        return state

    def _hop_padded(self, state: PaddedState, graph: Graph) -> PaddedState:
        """The same where these lists are a GPU's; what is not due at all moments is as in `_hop_in_turn`."""
        assert self.radius is not None
        _, source, target = _links(graph, state.alive, listed=True)
        timing = self.timing
        always: list[tuple[int, Tensor | None]] = [(q, None) for q in range(1, timing.period + 1)]
        for tick, due in always if timing.together else timing.moments(state.table, state.step):
            kept = None if self.channel.loss == 0 else ~self._lost(state, source, target, timing.round_at(tick))
            table = state.table
            offered = table[0] if due is None else table.where(due[stamp_of(table)], -1).amax(0)
            state, arrived = padded.hop(state, offered, source, target, kept, self.radius)
            newest, waiting = state.table[0], state.table[1:]
            table = newest.maximum(arrived)[None]
            if due is not None:
                table = torch.cat((table, waiting.masked_fill(due[stamp_of(waiting)], -1)))
            if due is not None and timing.hop > 1:
                early = (arrived > newest) & ~due[stamp_of(newest)]
                table = held.tucked(table[None], newest.where(early, -1)[None])[0]
            state = dataclasses.replace(state, table=table)
        return state

    def _hop_in_turn(self, state: RelayState, graph: Graph) -> RelayState:
        """A period, one moment after the other at which some stamps hop."""
        batch, _, robots, _ = state.table.shape
        environment, source, target = _links(graph, state.alive)
        table, transmissions, entries, crossed = state.table, state.transmissions, state.entries, state.crossed
        for tick, due in self.timing.moments(table, int(state.step)):
            due_now = due[stamp_of(table)]  # [B, W, N, N]
            offered = table.where(due_now, -1).amax(1).flatten(0, 1)[source]  # [E, N]
            carried = (offered >= 0).sum(1)
            entries = entries.index_add(0, environment, carried)
            transmissions = transmissions.index_add(0, environment, carried.clamp_max(1))
            if self.channel.loss > 0:
                lost = self._lost(state, source, target, self.timing.round_at(tick))
                offered.masked_fill_(lost[:, None], -1)
            if self.radius is not None:
                place = state.places_of(offered, environment[:, None])
                offered.masked_fill_(self._too_far(place, state.places.flatten(0, 1)[target][:, None]), -1)
            if crossed is not None:
                crossed = held.one_more(crossed, table[:, 0].flatten(0, 1), offered, source, target)
            nothing = torch.full_like(table[:, 0].flatten(0, 1), -1)
            arrived = nothing.scatter_reduce(0, target[:, None].expand_as(offered), offered, "amax")
            newest, arrived = table[:, 0], arrived.view(batch, robots, robots)
            news = arrived > newest
            # Of what has hopped only the newest stays; a newest that gives way before its hop waits for it.
            table = torch.cat((newest.maximum(arrived)[:, None], table[:, 1:].masked_fill(due_now[:, 1:], -1)), dim=1)
            if self.timing.hop > 1:
                table = held.tucked(table, newest.where(news & ~due_now[:, 0], -1))
        return dataclasses.replace(state, table=table, transmissions=transmissions, entries=entries, crossed=crossed)

    def _forget(self, state: RelayState) -> RelayState:
        """Without what is too old at this instant, or from too far for where robots are now."""
        table = state.table
        if self.timing.max_age is not None:
            table = table.masked_fill(stamp_of(table) < self.timing.oldest(state.step), -1)
        if self.radius is not None:
            environment = torch.arange(len(table), device=table.device)[:, None, None, None]
            far = self._too_far(state.places_of(table, environment), state.places[:, None, :, None])
            # Newest first again: an older one may come from nearer.
            table = table.masked_fill(far, -1).sort(1, descending=True).values
        return dataclasses.replace(state, table=table)

    def _too_far(self, place: Tensor, holder: Tensor) -> Tensor:
        """Whether a holder [..., 2] metres neither keeps nor passes on what comes from a place [..., 2]: [...] bool."""
        assert self.radius is not None
        return (place - holder).square().sum(-1) > self.radius * self.radius

    def _arrive_at_once(self, state: RelayState, graph: Graph) -> RelayState:
        """tau = 0: everyone holds the present samples of exactly those whose news can flow to it now."""
        batch, _, robots, _ = state.table.shape
        environment, source, target = _links(graph, state.alive)
        if self.channel.loss > 0:
            kept = ~self._lost(state, source, target, 0)
            graph = Graph(source[kept], target[kept], batch, robots)
        else:
            graph = Graph(source, target, batch, robots)
        links, crossed = None, state.crossed
        if self.radius is not None:
            links = self._within(graph, state.places)
        elif crossed is not None:
            links = hops(graph)
        heard = reachable(graph) if links is None else links >= 0
        own = state.table[:, 0].diagonal(dim1=1, dim2=2)  # [B, N]
        return dataclasses.replace(
            state,
            table=torch.where(heard, own[:, None, :], -1)[:, None],
            transmissions=state.transmissions.index_add(0, environment, torch.ones_like(environment)),
            entries=state.entries.index_add(0, environment, heard.sum(2).flatten()[source]),
            crossed=None if crossed is None or links is None else links[: len(crossed), :, None].expand_as(crossed),
        )

    def _within(self, graph: Graph, places: Tensor) -> Tensor:
        """[B, N, N] int16: over how many links news of j reaches i, by robots that all are within the relay radius of
        its origin; -1: it does not."""
        near = ~self._too_far(places[:, None, :], places[:, :, None])
        hears = graph.adjacency().to(torch.float32)
        links = torch.eye(graph.nodes, dtype=torch.int16, device=places.device).expand_as(near) - 1
        for far in range(1, graph.nodes):
            further = near & (links < 0) & (hears @ (links >= 0).to(hears.dtype) > 0)
            if not bool(further.any()):
                break
            links = links.masked_fill(further, far)
        return links

    def heard(self, state: Held, graph: Graph, q: int) -> Tensor:
        """Whom robots hear in round q of the period that begins, [B, N, N] bool: i hears j, and both live."""
        matrix = graph.matrix if isinstance(graph, MatrixGraph) else graph.adjacency()
        matrix = matrix & state.alive[:, :, None] & state.alive[:, None]
        if self.channel.loss > 0:
            robot = torch.arange(matrix.shape[1], device=matrix.device)
            key = chance.combine(state.chance[:, None, None], _LOSS, state.step, q, robot, robot[:, None])
            matrix = matrix & (chance.uniform(key) >= self.channel.loss)
        return matrix

    def _lost(self, state: Held, source: Tensor, target: Tensor, q: int) -> Tensor:
        """Which links [E] lose their transmission in round q of this period."""
        robots = state.alive.shape[1]
        event = (_LOSS, state.step, q, source % robots, target % robots)
        return chance.uniform(chance.combine(state.chance[target // robots], *event)) < self.channel.loss


def _taken(table: Tensor) -> bool:
    """Whether the GPU kernels take a table [B, W, N, N]."""
    return kernels is not None and on_gpu(table)


def _links(graph: Graph, alive: Tensor, listed: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Environment, source and target, [E] int64, of the links between living robots, once each, no loops; source and
    target as b N + i. listed: without a matrix of all pairs on a GPU too."""
    if listed or not on_gpu(graph):
        among = graph.among(alive)
        different = among.source != among.target
        key = (among.target * graph.nodes + among.source % graph.nodes)[different].unique()
        target = key // graph.nodes
        b = target // graph.nodes
        return b, b * graph.nodes + key % graph.nodes, target
    heard = graph.adjacency() & (alive[:, :, None] & alive[:, None, :])
    heard.diagonal(dim1=1, dim2=2).fill_(False)
    b, i, j = heard.nonzero().unbind(1)
    first = b * graph.nodes
    return b, first + j, first + i
