"""The relay (Algorithm 1) for whole teams: what every robot knows of every other, and how old it is.

`mast_swarm.robot.Robot` is the rule for one robot, and the place to read it; this computes the same for all robots of
all environments at once, and tests hold the two equal.

Time runs in control periods of dt seconds. At instant n = 0, 1, 2, ... every robot samples its own message and position
with stamp n. Hop number k of stamp s ends at the time s dt + k tau. It goes over the links of instant n if that time
lies after n dt and not after (n+1) dt. On a still graph news of a robot h hops away is ceil(h tau / dt) periods old.

The content of a message is a function of its origin and stamp. So the network's state is a table of who holds
which stamp of whom, and one store of messages by origin. The store is a set of slots rather than a ring: how
old news can get has no bound (a robot that failed is remembered for good), but few stamps of an origin are
held by anyone at a time, and a slot that nobody refers to is free for the next sample. A table entry is one
number, stamp above slot: the newest is the greatest, and a stamp can never be parted from its content.

Where tau divides dt all stamps hop at the same times, and a robot holds one stamp of each origin. Elsewhere newer
stamps come before an older one has made the hop it waits for. The table has then several layers: the first holds the
newest, the others the older ones that wait, in no order. A tick is the largest time that divides dt and tau: a period
is `period` ticks and a hop is `hop` ticks, and what happens in a period happens at some of its ticks.
"""

from __future__ import annotations

import dataclasses
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from mast_swarm import chance, steady
from mast_swarm.comms import near, padded
from mast_swarm.comms.config import Channel, periods
from mast_swarm.comms.failures import survivors
from mast_swarm.comms.near import SLOT_BITS, NearState
from mast_swarm.comms.padded import PaddedState
from mast_swarm.comms.views import kernels
from mast_swarm.errors import MastError
from mast_swarm.kernels import on_gpu
from mast_swarm.space import Graph, hops, reachable
from mast_swarm.space.graph import MatrixGraph

_LOSS = 1  # keeps losses apart from failures (comms.failures), which are drawn from the same keys
_FIRST_SLOTS = 8
_MOST_LAYERS = 1000
LISTED = 512  # robots from which there are lists of those within the relay radius in place of a table


@dataclasses.dataclass(frozen=True)
class RelayState:
    """What the robots of B environments hold at one control instant."""

    step: int | Tensor  # the instant n; in steady work [1] int64
    chance: Tensor  # [B] int64, the keys of each environment's losses and failures
    table: Tensor  # [B, W, N, N] int64: [b, w, i, j] stamp and slot of what i holds of j; -1: nothing
    messages: Tensor  # [B, K, N, d_msg]: slot k of origin j
    positions: Tensor  # [B, K, N, 2] float64 metres, where origin j was then: anywhere in the world to a micrometre
    alive: Tensor  # [B, N] bool
    transmissions: Tensor  # [B] int64, uses of a link so far, lost ones included
    entries: Tensor  # [B] int64, messages carried by them
    spare: int  # samples that will find a free slot for sure
    # Of the first R environments, [R, N, K, N] int16: [b, i, k, j] links that slot k of origin j has crossed to i.
    crossed: Tensor | None = None  # None: not counted

    @property
    def newest(self) -> Tensor:
        """The newest entry that i holds of j, [B, N, N] int64; -1: nothing."""
        return self.table[:, 0]

    @property
    def places(self) -> Tensor:
        """Where each robot was when it last sampled, [B, N, 2] float64 metres; of one that holds no sample anything."""
        slot = slot_of(self.newest.diagonal(dim1=1, dim2=2)).clamp_max(self.positions.shape[1] - 1)
        return self.positions.gather(1, slot[:, None, :, None].expand(-1, 1, -1, 2))[:, 0]

    @property
    def stamps(self) -> Tensor:
        """The newest stamp of j that has reached i, [B, N, N] int32; -1: never heard."""
        return stamp_of(self.newest).to(torch.int32)

    @property
    def hops(self) -> Tensor:
        """Links that the newest news of j has crossed on its way to i, where they are counted: [R, N, N] int16; -1:
        never heard."""
        assert self.crossed is not None
        newest = self.newest[: len(self.crossed)]
        slot = slot_of(newest).clamp_max(self.crossed.shape[2] - 1)
        return self.crossed.gather(2, slot[:, :, None])[:, :, 0].masked_fill(newest < 0, -1)


Held = RelayState | NearState | PaddedState
"""What robots hold, as a table of all pairs or as lists of a CPU or a GPU: a relay chooses when it starts."""


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
        tau = periods(channel.delay, dt)
        if tau > _MOST_LAYERS:
            raise MastError(f"delay is {channel.delay} s per hop: more than {_MOST_LAYERS} control periods of {dt} s")
        self.instant = tau == 0
        self.hop, self.period = tau.numerator, tau.denominator  # ticks
        self.max_age = None if channel.max_age is None else periods(channel.max_age, dt)  # control periods
        # Layers that a still graph needs; a graph that changes may need more, and the table then grows.
        self.layers = 1 if self.hop <= 1 else max(2, math.ceil(tau))
        self.radius = channel.radius  # metres
        # All stamps hop at the same times, at all of them, and one of each origin is enough.
        self._together = self.hop == 1 and self.max_age is None
        self._plain = self._together and self.radius is None
        self.counted = 0  # of how many environments, the first, `start` begins to count the links that news crosses

    def unsteady(self, robots: int) -> str | None:
        """Why the relay of so many robots has to ask a GPU for numbers on its way; None: it need not."""
        if self.instant:
            return "robots alone without delay hear at once from as far as only the data say"
        if not self._plain:
            return "robots alone need a delay that divides the control period, no maximum age and no relay radius"
        if self.counted:
            return "the links that news crosses are counted"
        if kernels is None or self.layers * robots > kernels.MOST_ROBOTS or self.period > kernels.MOST_ROUNDS:
            return f"{robots} robots that exchange messages {self.period} times per control period are too many"
        return None

    def lists(self, robots: int, device: str) -> bool:
        """Whether what so many robots hold on a device (cpu or cuda) is lists of those within the relay radius."""
        if self.radius is None or self.counted or robots < LISTED:
            return False
        return self._together if device == "cpu" else not self.instant and padded.kernels is not None

    def start(self, seeds: Sequence[int] | Tensor, robots: int, width: int, like: Tensor | None = None) -> Held:
        """Instant 0 of one environment per seed, nobody has sampled yet; device and the messages' dtype are those of
        `like`."""
        like = torch.empty(0) if like is None else like
        batch, kind = len(seeds), "cuda" if on_gpu(like) else like.device.type
        keys = chance.keys_of(self.channel.seed, seeds, like.device)
        messages = like.new_zeros(batch, _FIRST_SLOTS, robots, width)
        places = like.new_zeros(batch, _FIRST_SLOTS, robots, 2, dtype=torch.float64)
        if self.lists(robots, kind):
            if kind == "cpu":
                return near.start(keys, robots, messages, places)
            return padded.start(keys, robots, self.layers, messages, places)
        count = torch.zeros(batch, dtype=torch.int64, device=like.device)
        crossed = like.new_zeros(self.counted, robots, _FIRST_SLOTS, robots, dtype=torch.int16)
        return RelayState(
            step=0,
            chance=keys,
            table=count.new_full((batch, self.layers, robots, robots), -1),
            messages=messages,
            positions=places,
            alive=torch.ones(batch, robots, dtype=torch.bool, device=like.device),
            transmissions=count,
            entries=count,
            spare=_FIRST_SLOTS,
            crossed=crossed if self.counted else None,
        )

    def sample(self, state: Held, message: Tensor, positions: Tensor, graph: Graph) -> Held:
        """Every living robot's message [B, N, d_msg] and position [B, N, 2] metres, stamped with this instant.

        With tau = 0 they also arrive, at once and everywhere that `graph` lets them; what was known before is
        gone.
        """
        if isinstance(state, NearState):
            assert self.radius is not None
            given = (state.messages, state.positions, state.used(), state.spare)
            messages, where, slot, spare = _free_slots(*given)
            messages, where = _stored(messages, message, slot), _stored(where, positions, slot)
            state = dataclasses.replace(state, messages=messages, positions=where, spare=spare)
            return near.sample(state, slot, positions, self.radius)
        if isinstance(state, PaddedState):
            return self._sample_padded(state, message, positions)
        certain = state.spare > 0 or steady.running()  # that there are free slots, or that somebody looks later
        if self._plain and certain and state.crossed is None and _taken(state.table):
            table, messages, where = kernels.sample(state, message, positions, SLOT_BITS)
            spare = max(0, state.spare - 1)
            return dataclasses.replace(state, table=table, messages=messages, positions=where, spare=spare)
        table = torch.full_like(state.table, -1) if self.instant else state.table.clone()
        own = table[:, 0].diagonal(dim1=1, dim2=2)  # a view
        before = own.where(state.alive, -1)
        own.masked_fill_(state.alive, -1)
        if self.hop > 1:  # the last sample waits for its next hop
            waiting = torch.full_like(table[:, 0], -1)
            waiting.diagonal(dim1=1, dim2=2).copy_(before)
            table = _tucked(table, waiting)
            own = table[:, 0].diagonal(dim1=1, dim2=2)
        given = (state.messages, state.positions, _used(table, state.messages.shape[1]), state.spare)
        messages, where, slot, spare = _free_slots(*given)
        messages, where = _stored(messages, message, slot), _stored(where, positions, slot)
        own.copy_(torch.where(state.alive, slot + (state.step << SLOT_BITS), own))
        crossed = None if state.crossed is None else _none_crossed(state.crossed, slot, messages.shape[1])
        state = dataclasses.replace(
            state, table=table, messages=messages, positions=where, spare=spare, crossed=crossed
        )
        return self._arrive_at_once(state, graph) if self.instant else self._forget(state)

    def _sample_padded(self, state: PaddedState, message: Tensor, positions: Tensor) -> PaddedState:
        assert self.radius is not None
        own, newest = state.itself(), state.table[0]
        table = torch.cat((newest.masked_fill(own, -1)[None], state.table[1:]))
        if self.hop > 1:  # the last sample waits for its next hop
            table = _tucked(table[None], newest.where(own, -1)[None])[0]
        state = dataclasses.replace(state, table=table)
        messages, where, slot, spare = _free_slots(state.messages, state.positions, state.used(), state.spare)
        places = positions.double().where(state.alive[..., None], state.places)
        state = dataclasses.replace(state, messages=messages, positions=where, spare=spare, places=places)
        padded.store(state, slot, message, positions)
        entry = slot.flatten() + (state.step << SLOT_BITS)
        table[0] = torch.where(own, entry[:, None], table[0])
        return padded.forget(state, self.radius, self._oldest(state.step))

    def _oldest(self, step: int) -> int:
        """The oldest stamp that robots have not forgotten at an instant."""
        return 0 if self.max_age is None else step - self.max_age // 1

    def exchange(self, state: Held, graph: Graph) -> Held:
        """The state at the next instant: what is due has hopped over `graph`, and robots may have failed."""
        if isinstance(state, NearState):
            state = self._hop_lists(state, graph)
        elif isinstance(state, PaddedState):
            try:
                state = self._hop_padded(state, graph)
            except padded.TooLong:  # nearly everybody is within the relay radius: on with a table, from this instant
                state = self._hop_in_turn(_as_table(state), graph)
        elif not self.instant:
            state = self._hop_together(state, graph) if self._plain else self._hop_in_turn(state, graph)
        alive = survivors(state.alive, state.chance, state.step, self.channel.failure)
        step: Any = state.step + 1
        return dataclasses.replace(state, step=step, alive=alive)

    def _hop_together(self, state: RelayState, graph: Graph) -> RelayState:
        """The rounds of a period, where all stamps hop at the same times and nothing is ever forgotten."""
        rounds = self.period
        counts = state.crossed is not None
        if _taken(state.table) and rounds <= kernels.MOST_ROUNDS and not counts:
            heard, loss = graph.matrix if isinstance(graph, MatrixGraph) else graph.adjacency(), self.channel.loss
            event = (_LOSS, state.step)
            keys = [chance.combine(state.chance, *event, q + 1) if loss else state.chance for q in range(rounds)]
            table, transmissions, entries = kernels.hop(state, heard, keys, loss)
            return dataclasses.replace(state, table=table, transmissions=transmissions, entries=entries)
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
                crossed = _one_more(crossed, table, offered, source, target)
            table = table.scatter_reduce(0, target[:, None].expand_as(offered), offered, "amax")
        table = table.view(batch, 1, robots, robots)
        return dataclasses.replace(state, table=table, transmissions=transmissions, entries=entries, crossed=crossed)

    def _hop_lists(self, state: NearState, graph: Graph) -> NearState:
        """The rounds of a period, where what robots hold is lists."""
        assert self.radius is not None
        _, source, target = _links(graph, state.alive)
        kept = torch.ones_like(source, dtype=torch.bool)
        for q in range(1, self.period + 1):
            if self.channel.loss > 0:
                kept = ~self._lost(state, source, target, q)
            state = near.hop(state, source, target, kept, self.radius)
        return state

    def _hop_padded(self, state: PaddedState, graph: Graph) -> PaddedState:
        """The same where these lists are a GPU's; what is not due at all moments is as in `_hop_in_turn`."""
        assert self.radius is not None
        _, source, target = _links(graph, state.alive, listed=True)
        always: list[tuple[int, Tensor | None]] = [(q, None) for q in range(1, self.period + 1)]
        for tick, due in always if self._together else self._moments(state.table, state.step):
            kept = None if self.channel.loss == 0 else ~self._lost(state, source, target, -(-tick // self.hop))
            table = state.table
            offered = table[0] if due is None else table.where(due[stamp_of(table)], -1).amax(0)
            state, arrived = padded.hop(state, offered, source, target, kept, self.radius)
            newest, waiting = state.table[0], state.table[1:]
            table = newest.maximum(arrived)[None]
            if due is not None:
                table = torch.cat((table, waiting.masked_fill(due[stamp_of(waiting)], -1)))
            if due is not None and self.hop > 1:
                early = (arrived > newest) & ~due[stamp_of(newest)]
                table = _tucked(table[None], newest.where(early, -1)[None])[0]
            state = dataclasses.replace(state, table=table)
        return state

    def _hop_in_turn(self, state: RelayState, graph: Graph) -> RelayState:
        """A period, one moment after the other at which some stamps hop."""
        batch, _, robots, _ = state.table.shape
        environment, source, target = _links(graph, state.alive)
        table, transmissions, entries, crossed = state.table, state.transmissions, state.entries, state.crossed
        for tick, due in self._moments(table, int(state.step)):
            due_now = due[stamp_of(table)]  # [B, W, N, N]
            offered = table.where(due_now, -1).amax(1).flatten(0, 1)[source]  # [E, N]
            carried = (offered >= 0).sum(1)
            entries = entries.index_add(0, environment, carried)
            transmissions = transmissions.index_add(0, environment, carried.clamp_max(1))
            if self.channel.loss > 0:
                lost = self._lost(state, source, target, -(-tick // self.hop))
                offered.masked_fill_(lost[:, None], -1)
            if self.radius is not None:
                place = _places_of(state, offered, environment[:, None])
                offered.masked_fill_(self._too_far(place, state.places.flatten(0, 1)[target][:, None]), -1)
            if crossed is not None:
                crossed = _one_more(crossed, table[:, 0].flatten(0, 1), offered, source, target)
            nothing = torch.full_like(table[:, 0].flatten(0, 1), -1)
            arrived = nothing.scatter_reduce(0, target[:, None].expand_as(offered), offered, "amax")
            newest, arrived = table[:, 0], arrived.view(batch, robots, robots)
            news = arrived > newest
            # Of what has hopped only the newest stays; a newest that gives way before its hop waits for it.
            table = torch.cat((newest.maximum(arrived)[:, None], table[:, 1:].masked_fill(due_now[:, 1:], -1)), dim=1)
            if self.hop > 1:
                table = _tucked(table, newest.where(news & ~due_now[:, 0], -1))
        return dataclasses.replace(state, table=table, transmissions=transmissions, entries=entries, crossed=crossed)

    def _moments(self, table: Tensor, step: int) -> Iterator[tuple[int, Tensor]]:
        """When stamps of the table hop in the period from instant `step` on, in ticks after it; and which then do,
        [step + 2] bool, the last for no stamp: False."""
        held = torch.zeros(step + 2, dtype=torch.bool, device=table.device)
        held[stamp_of(table).flatten()] = True
        moments: dict[int, list[int]] = defaultdict(list)
        for stamp in held[:-1].nonzero()[:, 0].tolist():
            # In Python's whole numbers, which have no limit: there may be as many ticks in a period as dt has digits.
            age = (step - stamp) * self.period
            for ends in range(age // self.hop * self.hop + self.hop, age + self.period + 1, self.hop):
                if self.max_age is None or ends <= self.max_age * self.period:
                    moments[ends - age].append(stamp)
        for tick in sorted(moments):
            due = torch.zeros_like(held)
            due[torch.tensor(moments[tick], device=table.device)] = True
            yield tick, due

    def _forget(self, state: RelayState) -> RelayState:
        """Without what is too old at this instant, or from too far for where robots are now."""
        table = state.table
        if self.max_age is not None:
            table = table.masked_fill(stamp_of(table) < self._oldest(int(state.step)), -1)
        if self.radius is not None:
            environment = torch.arange(len(table), device=table.device)[:, None, None, None]
            far = self._too_far(_places_of(state, table, environment), state.places[:, None, :, None])
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

    def _lost(self, state: Held, source: Tensor, target: Tensor, q: int) -> Tensor:
        """Which links [E] lose their transmission in round q of this period."""
        robots = state.alive.shape[1]
        event = (_LOSS, state.step, q, source % robots, target % robots)
        return chance.uniform(chance.combine(state.chance[target // robots], *event)) < self.channel.loss


def _as_table(state: PaddedState) -> RelayState:
    shared: dict[str, Any] = {field.name: getattr(state, field.name, None) for field in dataclasses.fields(RelayState)}
    return RelayState(**(shared | {"table": state.pairs}))


def _none_crossed(crossed: Tensor, slot: Tensor, slots: int) -> Tensor:
    """The counts [R, N, K, N] of as many slots as there are now, where the robots' own samples, just put into the slots
    [B, N], have crossed no link."""
    crossed = torch.nn.functional.pad(crossed, (0, 0, 0, slots - crossed.shape[2]))
    robot = torch.arange(crossed.shape[1], device=crossed.device)
    crossed[torch.arange(len(crossed), device=crossed.device)[:, None], robot, slot[: len(crossed)], robot] = 0
    return crossed


def _one_more(crossed: Tensor, held: Tensor, offered: Tensor, source: Tensor, target: Tensor) -> Tensor:
    """The counts [R, N, K, N] when the entries offered [E, N] (-1: none) have crossed the links from source to target
    [E], where `held` [B N, N] was the newest. Where several bring the same news at once, the shortest way counts."""
    environments, robots, slots, _ = crossed.shape
    inside = target < environments * robots
    offered, source, target = offered[inside], source[inside], target[inside]
    crossed, held = crossed.flatten(0, 1), held[: environments * robots]
    to = target[:, None].expand_as(offered)
    newest = held.scatter_reduce(0, to, offered, "amax")
    brings = (offered > held[target]) & (offered == newest[target])
    origin = torch.arange(robots, device=held.device)
    ways = crossed[source[:, None], slot_of(offered).clamp_max(slots - 1), origin] + 1  # [E, N]
    none = torch.full_like(held, torch.iinfo(ways.dtype).max, dtype=ways.dtype)
    fewest = none.scatter_reduce(0, to, ways.where(brings, none[0, 0]), "amin")
    at = slot_of(newest).clamp_max(slots - 1)[:, None]  # [R N, 1, N]
    kept = torch.where(newest > held, fewest, crossed.gather(1, at)[:, 0])
    return crossed.scatter(1, at, kept[:, None]).unflatten(0, (environments, robots))


def _taken(table: Tensor) -> bool:
    """Whether the GPU kernels take a table [B, W, N, N]."""
    return kernels is not None and on_gpu(table) and table.shape[1] * table.shape[2] <= kernels.MOST_ROBOTS


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


def _places_of(state: RelayState, entry: Tensor, environment: Tensor) -> Tensor:
    """Where origins were when they said the entries [..., N], of environments that broadcast with them: [..., N, 2]."""
    _, slots, robots, _ = state.positions.shape
    origin = torch.arange(robots, device=entry.device)
    place = (environment * slots + slot_of(entry).clamp_max(slots - 1)) * robots + origin
    return state.positions.flatten(0, 2)[place]


def _tucked(table: Tensor, waiting: Tensor) -> Tensor:
    """The table [B, W, N, N] with the entries [B, N, N] (-1: none) in free places after the first layer, and with one
    layer more where that needs one."""
    newest, *layers = table.unbind(1)
    for w, layer in enumerate(layers):
        free = layer < 0
        layers[w], waiting = torch.where(free, waiting, layer), waiting.masked_fill(free, -1)
    if bool((waiting >= 0).any()):
        layers.append(waiting)
    return torch.stack((newest, *layers), dim=1)


def _used(table: Tensor, slots: int) -> Tensor:
    """Which of the slots of each origin a table [B, W, N, N] refers to, [B, K, N] uint8."""
    used = torch.zeros(len(table), slots + 1, table.shape[-1], dtype=torch.uint8, device=table.device)
    return used.scatter_(1, slot_of(table).clamp_max(slots).flatten(1, 2), 1)[:, :-1]  # the last: of no slot


def _free_slots(messages: Tensor, positions: Tensor, used: Tensor, spare: int) -> tuple[Tensor, Tensor, Tensor, int]:
    """The stores, twice as large where they were full, a slot of each origin that nobody uses, and how many samples
    more will find one: whether they will is looked up only when it is not known, which waits for the device.

    [B, K, N, d_msg], [B, K, N, 2], used [B, K, N] -> the first two with K' >= K, and slots [B, N] int64.
    """
    slots = messages.shape[1]
    spare = spare or slots - int(used.sum(1).max())
    if spare == 0:
        messages, positions, used = (torch.cat((t, torch.zeros_like(t)), dim=1) for t in (messages, positions, used))
        spare = slots
    return messages, positions, used.argmin(1), spare - 1


def _stored(store: Tensor, new: Tensor, slot: Tensor) -> Tensor:
    """The store [B, K, N, W] with new [B, N, W] in the slots [B, N]."""
    at = slot[:, None, :, None].expand_as(new[:, None])
    return store.scatter(1, at, new[:, None].to(store.dtype))
