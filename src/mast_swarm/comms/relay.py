"""The relay (Algorithm 1): what every robot knows of every other, and how old it is.

Time runs in control periods of dt seconds. At instant n = 0, 1, 2, ... every robot samples its own message
and position with stamp n; during [n, n+1) what robots hold moves over the graph of instant n. A message takes
tau seconds a hop, so one aged a periods has made H(a) = floor(a dt / tau) hops, and during the period in
which it is a periods old it makes H(a+1) - H(a) more. On a still graph news of a robot h hops away is ceil(h
tau / dt) periods old.

The content of a message is a function of its origin and stamp. So the network's state is a table of who holds
which stamp of whom, and one store of messages by origin. The store is a set of slots rather than a ring: how
old news can get has no bound (a robot that failed is remembered for good), but few stamps of an origin are
held by anyone at a time, and a slot that nobody refers to is free for the next sample. A table entry is one
number, stamp above slot: the newest is the greatest, and a stamp can never be parted from its content.

Where tau > dt a robot samples and receives newer stamps before it has passed the last one on, and several are
on their way at once. The table has then ceil(tau / dt) layers: layer w holds the newest stamp that makes its
next hop w periods from now. A robot passes on the newest it has: a stamp is dropped where a newer one hops in
the same period or before.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction

import torch
from torch import Tensor

from mast_swarm import chance
from mast_swarm.comms.config import Channel
from mast_swarm.comms.views import kernels
from mast_swarm.errors import MastError
from mast_swarm.space import Graph, reachable
from mast_swarm.space.graph import MatrixGraph

SLOT_BITS = 20
_LOSS, _FAILURE = 1, 2  # keep the two kinds of chance apart
_FIRST_SLOTS = 8
_MOST_LAYERS = 1000


@dataclasses.dataclass(frozen=True)
class RelayState:
    """What the robots of B environments hold at one control instant."""

    step: int  # the instant n
    chance: Tensor  # [B] int64, the keys of each environment's losses and failures
    table: Tensor  # [B, W, N, N] int64: [b, w, i, j] stamp and slot of what i holds of j; -1: nothing
    messages: Tensor  # [B, K, N, d_msg]: slot k of origin j
    positions: Tensor  # [B, K, N, 2] metres, where origin j was then
    alive: Tensor  # [B, N] bool
    transmissions: Tensor  # [B] int64, uses of a link so far, lost ones included
    entries: Tensor  # [B] int64, messages carried by them
    spare: int  # samples that will find a free slot for sure

    @property
    def newest(self) -> Tensor:
        """The newest entry that i holds of j, [B, N, N] int64; -1: nothing."""
        return self.table[:, 0] if self.table.shape[1] == 1 else self.table.amax(1)

    @property
    def stamps(self) -> Tensor:
        """The newest stamp of j that has reached i, [B, N, N] int32; -1: never heard."""
        return stamp_of(self.newest).to(torch.int32)


def stamp_of(entry: Tensor) -> Tensor:
    """The stamp of table entries, -1 where there is none."""
    return entry >> SLOT_BITS


def slot_of(entry: Tensor) -> Tensor:
    """The slot of table entries that are not -1."""
    return entry & ((1 << SLOT_BITS) - 1)


class Relay:
    """The rules of the channel for a control period of `dt` seconds: states in, states out."""

    def __init__(self, channel: Channel, dt: float) -> None:
        if not 0 < dt < float("inf"):
            raise MastError(f"dt is {dt} s: expected a positive number")
        self.channel = channel
        # Decimal readings, not binary ones: a tau of 0.1 s makes exactly 10 hops in 1 s.
        tau, period = Fraction(str(channel.delay)), Fraction(str(dt))
        self.instant = tau == 0
        self.hops_a_period = Fraction(0) if self.instant else period / tau
        self.layers = 1 if self.instant else max(1, -(-tau // period))
        if self.layers > _MOST_LAYERS:
            raise MastError(f"delay is {channel.delay} s a hop: more than {_MOST_LAYERS} control periods of {dt} s")

    def start(self, seeds: Sequence[int] | Tensor, robots: int, width: int, like: Tensor | None = None) -> RelayState:
        """Instant 0 of one environment a seed, nobody has sampled yet; device and dtype are those of `like`."""
        like = torch.empty(0) if like is None else like
        batch = len(seeds)
        count = torch.zeros(batch, dtype=torch.int64, device=like.device)
        return RelayState(
            step=0,
            chance=chance.keys_of(self.channel.seed, seeds, like.device),
            table=count.new_full((batch, self.layers, robots, robots), -1),
            messages=like.new_zeros(batch, _FIRST_SLOTS, robots, width),
            positions=like.new_zeros(batch, _FIRST_SLOTS, robots, 2),
            alive=torch.ones(batch, robots, dtype=torch.bool, device=like.device),
            transmissions=count,
            entries=count,
            spare=_FIRST_SLOTS,
        )

    def sample(self, state: RelayState, message: Tensor, positions: Tensor, graph: Graph) -> RelayState:
        """Every living robot's message [B, N, d_msg] and position [B, N, 2] metres, stamped with this instant.

        With tau = 0 they also arrive, at once and everywhere that `graph` lets them; what was known before is
        gone.
        """
        if _taken(state.table) and not self.instant and state.spare > 0:
            table, messages, where = kernels.sample(state, message, positions, SLOT_BITS)
            return dataclasses.replace(state, table=table, messages=messages, positions=where, spare=state.spare - 1)
        table = torch.full_like(state.table, -1) if self.instant else state.table.clone()
        own = table[:, -1].diagonal(dim1=1, dim2=2)  # a view; a new sample makes its first hop last of all
        own.masked_fill_(state.alive, -1)
        messages, where, slot, spare = _free_slots(state.messages, state.positions, table, state.spare)
        at = slot[:, None, :, None]  # [B, 1, N, 1]
        messages = messages.scatter(1, at.expand_as(message[:, None]), message[:, None].to(messages.dtype))
        where = where.scatter(1, at.expand_as(positions[:, None]), positions[:, None].to(where.dtype))
        own.copy_(torch.where(state.alive, slot + (state.step << SLOT_BITS), own))
        state = dataclasses.replace(state, table=table, messages=messages, positions=where, spare=spare)
        return self._arrive_at_once(state, graph) if self.instant else state

    def exchange(self, state: RelayState, graph: Graph) -> RelayState:
        """The state at the next instant: what is due has hopped over `graph`, and robots may have failed."""
        if not self.instant:
            state = self._hop(state, graph)
            state = dataclasses.replace(state, table=self._aged(state.table, state.step))
        alive = state.alive
        if self.channel.failure > 0:
            robot = torch.arange(alive.shape[1], device=alive.device)
            drawn = chance.combine(state.chance[:, None], _FAILURE, state.step, robot)
            alive = alive & (chance.uniform(drawn) >= self.channel.failure)
        return dataclasses.replace(state, step=state.step + 1, alive=alive)

    def _hops(self, age: Tensor) -> Tensor:
        """H(a): hops made by a message aged `age` periods."""
        return age * self.hops_a_period.numerator // self.hops_a_period.denominator

    def _left(self, table: Tensor, step: int) -> Tensor | int:
        """Hops that stamps of the table make in the period from instant `step` on; of no stamp any."""
        if self.hops_a_period.denominator == 1:
            return self.hops_a_period.numerator
        age = step - stamp_of(table)
        return self._hops(age + 1) - self._hops(age)

    def _hop(self, state: RelayState, graph: Graph) -> RelayState:
        """The rounds of a period: in round q the stamps hop that make at least q hops in it."""
        rounds = -(-self.hops_a_period.numerator // self.hops_a_period.denominator)
        whole = self.hops_a_period == rounds  # all stamps make the same hops
        if _taken(state.table) and whole and self.channel.loss == 0 and rounds <= kernels.MOST_ROUNDS:
            heard = graph.matrix if isinstance(graph, MatrixGraph) else graph.adjacency()
            table, transmissions, entries = kernels.hop(state, heard, rounds)
            return dataclasses.replace(state, table=table, transmissions=transmissions, entries=entries)
        batch, _, robots, _ = state.table.shape
        environment, source, target = _links(graph, state.alive)
        table = state.table[:, 0].reshape(batch * robots, robots)
        transmissions, entries = state.transmissions, state.entries
        for q in range(1, rounds + 1):
            left = self._left(table, state.step) - (q - 1)  # this round's too
            offer = table if isinstance(left, int) else table.masked_fill(left < 1, -1)
            offered = offer[source]  # [E, N]
            news = q == rounds or not bool((offered <= table[target]).all())
            hops = (offer >= 0) * (1 if news else left)
            entries = entries.index_add(0, environment, hops.sum(1)[source])
            transmissions = transmissions.index_add(0, environment, hops.amax(1)[source])
            if not news:  # for anybody, nor will there be in the rounds left: they are counted and not run
                break
            if self.channel.loss > 0:
                offered.masked_fill_(self._lost(state, source, target, q)[:, None], -1)
            table = table.scatter_reduce(0, target[:, None].expand_as(offered), offered, "amax")
        table = torch.cat((table.view(batch, 1, robots, robots), state.table[:, 1:]), dim=1)
        return dataclasses.replace(state, table=table, transmissions=transmissions, entries=entries)

    def _aged(self, table: Tensor, step: int) -> Tensor:
        """The table one period on: stamps in the layer of their next hop, none that a newer one outruns."""
        if self.layers == 1:
            return table
        age = step + 1 - stamp_of(table)
        ahead = torch.zeros_like(age)  # periods until the one in which the next hop falls
        for w in range(self.layers - 1):
            ahead += self._hops(age + w + 1) == self._hops(age)
        aged, best = [], torch.full_like(table[:, 0], -1)
        for w in range(self.layers):
            here = table.masked_fill((ahead != w) | (table < 0), -1).amax(1)
            aged.append(here.masked_fill(here <= best, -1))
            best = torch.maximum(best, here)
        return torch.stack(aged, dim=1)

    def _arrive_at_once(self, state: RelayState, graph: Graph) -> RelayState:
        """tau = 0: everyone holds the present samples of exactly those whose news can flow to it now."""
        batch, _, robots, _ = state.table.shape
        environment, source, target = _links(graph, state.alive)
        if self.channel.loss > 0:
            kept = ~self._lost(state, source, target, 0)
            graph = Graph(source[kept], target[kept], batch, robots)
        else:
            graph = Graph(source, target, batch, robots)
        heard = reachable(graph)  # [B, N, N]
        own = state.table[:, 0].diagonal(dim1=1, dim2=2)  # [B, N]
        return dataclasses.replace(
            state,
            table=torch.where(heard, own[:, None, :], -1)[:, None],
            transmissions=state.transmissions.index_add(0, environment, torch.ones_like(environment)),
            entries=state.entries.index_add(0, environment, heard.sum(2).flatten()[source]),
        )

    def _lost(self, state: RelayState, source: Tensor, target: Tensor, q: int) -> Tensor:
        """Which links [E] lose their transmission in round q of this period."""
        robots = state.alive.shape[1]
        event = (_LOSS, state.step, q, source % robots, target % robots)
        return chance.uniform(chance.combine(state.chance[target // robots], *event)) < self.channel.loss


def _taken(table: Tensor) -> bool:
    """Whether the GPU kernels take a table [B, W, N, N]."""
    return kernels is not None and table.is_cuda and table.shape[1] * table.shape[2] <= kernels.MOST_ROBOTS


def _links(graph: Graph, alive: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Environment, source and target, [E] int64, of the links between living robots, once each, no loops; source and
    target as b N + i."""
    heard = graph.adjacency() & (alive[:, :, None] & alive[:, None, :])
    heard.diagonal(dim1=1, dim2=2).fill_(False)
    b, i, j = heard.nonzero().unbind(1)
    first = b * graph.nodes
    return b, first + j, first + i


def _free_slots(messages: Tensor, positions: Tensor, table: Tensor, spare: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """The stores, twice as large where they were full, a slot of each origin that nobody uses, and how many samples
    more will find one: whether they will is looked up only when it is not known, which waits for the device.

    [B, K, N, d_msg], [B, K, N, 2] -> the same with K' >= K, and slots [B, N] int64.
    """
    slots, robots = messages.shape[1:3]
    used = torch.zeros(len(table), slots + 1, robots, dtype=torch.uint8, device=table.device)  # the last: of no slot
    used = used.scatter_(1, slot_of(table).clamp_max(slots).flatten(1, 2), 1)[:, :-1]
    spare = spare or slots - int(used.sum(1).max())
    if spare == 0:
        messages, positions, used = (torch.cat((t, torch.zeros_like(t)), dim=1) for t in (messages, positions, used))
        spare = slots
    return messages, positions, used.argmin(1), spare - 1
