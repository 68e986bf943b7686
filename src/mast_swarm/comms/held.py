"""What robots hold of each other: entries, the store of messages that they refer to, and the table of all pairs.

The content of a message is a function of its origin and stamp. So the network's state is a table of who holds
which stamp of whom, and one store of messages by origin. The store is a set of slots rather than a ring: how
old news can get has no bound (a robot that failed is remembered for good), but few stamps of an origin are
held by anyone at a time, and a slot that nobody refers to is free for the next sample. An entry of the table is one
number, stamp above slot: the newest is the greatest, and a stamp can never be parted from its content.

Where all stamps hop at the same times a robot holds one stamp of each origin. Elsewhere newer stamps come before an
older one has made the hop it waits for. The table has then several layers: the first holds the newest, the others the
older ones that wait, in no order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

SLOT_BITS = 20  # of an entry: the stamp stands above the slot
SLOT_MASK = (1 << SLOT_BITS) - 1
_FIRST_SLOTS = 8


def stamp_of(entry: Tensor) -> Tensor:
    """The stamp of entries, -1 where there is none."""
    return entry >> SLOT_BITS


def slot_of(entry: Tensor) -> Tensor:
    """The slot of entries that are not -1."""
    return entry & SLOT_MASK


@dataclass(frozen=True, kw_only=True)
class TeamState:
    """What the robots of B environments hold at one control instant, but for the entries: those are a table of all
    pairs (`RelayState`), or lists of a CPU (`comms.near`) or a GPU (`comms.padded`)."""

    step: int | Tensor  # the instant n; in steady work [1] int64
    chance: Tensor  # [B] int64, the keys of each environment's losses and failures
    messages: Tensor  # [B, K, N, d_msg]: slot k of origin j
    positions: Tensor  # [B, K, N, 2] float64 metres, where origin j was then: anywhere in the world to a micrometre
    alive: Tensor  # [B, N] bool
    transmissions: Tensor  # [B] int64, uses of a link so far, lost ones included
    entries: Tensor  # [B] int64, messages carried by them
    spare: int  # samples that will find a free slot for sure

    @property
    def newest(self) -> Tensor:
        """The newest entry that i holds of j, [B, N, N] int64; -1: nothing. Of lists for small teams alone."""
        raise NotImplementedError

    @property
    def stamps(self) -> Tensor:
        """The newest stamp of j that has reached i, [B, N, N] int32; -1: never heard. As `newest`."""
        return stamp_of(self.newest).to(torch.int32)


State = TypeVar("State", bound=TeamState)


def first(keys: Tensor, robots: int, width: int, like: Tensor) -> dict[str, Any]:
    """The fields of `TeamState` at instant 0: nobody has sampled yet. keys: of each environment's chance [B]. The
    device and the messages' dtype are those of `like`."""
    batch, count = len(keys), torch.zeros(len(keys), dtype=torch.int64, device=like.device)
    return {
        "step": 0,
        "chance": keys,
        "messages": like.new_zeros(batch, _FIRST_SLOTS, robots, width),
        "positions": like.new_zeros(batch, _FIRST_SLOTS, robots, 2, dtype=torch.float64),
        "alive": torch.ones(batch, robots, dtype=torch.bool, device=like.device),
        "transmissions": count,
        "entries": count,
        "spare": _FIRST_SLOTS,
    }


def free_slots(state: State, used: Tensor) -> tuple[State, Tensor]:
    """The state with stores twice as large where they were full, and a slot [B, N] int64 of each origin that nobody
    uses. used: [B, K, N] uint8.

    Whether samples more will find one is looked up only when it is not known, which waits for the device.
    """
    messages, positions, slots = state.messages, state.positions, used.shape[1]
    spare = state.spare or slots - int(used.sum(1).max())
    if spare == 0:
        messages, positions, used = (torch.cat((t, torch.zeros_like(t)), dim=1) for t in (messages, positions, used))
        spare = slots
    return replace(state, messages=messages, positions=positions, spare=spare - 1), used.argmin(1)


def stored(state: State, slot: Tensor, message: Tensor, positions: Tensor) -> State:
    """The state with what robots say [B, N, d_msg] at positions [B, N, 2] metres in their slots [B, N]."""

    def put(store: Tensor, new: Tensor) -> Tensor:
        at = slot[:, None, :, None].expand_as(new[:, None])
        return store.scatter(1, at, new[:, None].to(store.dtype))

    return replace(state, messages=put(state.messages, message), positions=put(state.positions, positions))


@dataclass(frozen=True, kw_only=True)
class RelayState(TeamState):
    """What robots hold as a table of all pairs."""

    table: Tensor  # [B, W, N, N] int64: [b, w, i, j] stamp and slot of what i holds of j; -1: nothing
    # Of the first R environments, [R, N, K, N] int16: [b, i, k, j] links that slot k of origin j has crossed to i.
    crossed: Tensor | None = None  # None: not counted

    @property
    def newest(self) -> Tensor:
        return self.table[:, 0]

    @property
    def places(self) -> Tensor:
        """Where each robot was when it last sampled, [B, N, 2] float64 metres; of one that holds no sample anything."""
        slot = slot_of(self.newest.diagonal(dim1=1, dim2=2)).clamp_max(self.positions.shape[1] - 1)
        return self.positions.gather(1, slot[:, None, :, None].expand(-1, 1, -1, 2))[:, 0]

    @property
    def hops(self) -> Tensor:
        """Links that the newest news of j has crossed on its way to i, where they are counted: [R, N, N] int16; -1:
        never heard."""
        assert self.crossed is not None
        newest = self.newest[: len(self.crossed)]
        slot = slot_of(newest).clamp_max(self.crossed.shape[2] - 1)
        return self.crossed.gather(2, slot[:, :, None])[:, :, 0].masked_fill(newest < 0, -1)

    def places_of(self, entry: Tensor, environment: Tensor) -> Tensor:
        """Where origins were when they said the entries [..., N], of environments that broadcast with them: [..., N,
        2]."""
        _, slots, robots, _ = self.positions.shape
        origin = torch.arange(robots, device=entry.device)
        place = (environment * slots + slot_of(entry).clamp_max(slots - 1)) * robots + origin
        return self.positions.flatten(0, 2)[place]


def tucked(table: Tensor, waiting: Tensor) -> Tensor:
    """The table [B, W, N, N] with the entries [B, N, N] (-1: none) in free places after the first layer, and with one
    layer more where that needs one."""
    newest, *layers = table.unbind(1)
    for w, layer in enumerate(layers):
        free = layer < 0
        layers[w], waiting = torch.where(free, waiting, layer), waiting.masked_fill(free, -1)
    if bool((waiting >= 0).any()):
        layers.append(waiting)
    return torch.stack((newest, *layers), dim=1)


def used_slots(table: Tensor, slots: int) -> Tensor:
    """Which of the slots of each origin a table [B, W, N, N] refers to, [B, K, N] uint8."""
    used = torch.zeros(len(table), slots + 1, table.shape[-1], dtype=torch.uint8, device=table.device)
    return used.scatter_(1, slot_of(table).clamp_max(slots).flatten(1, 2), 1)[:, :-1]  # the last: of no slot


def none_crossed(crossed: Tensor, slot: Tensor, slots: int) -> Tensor:
    """The counts [R, N, K, N] of as many slots as there are now, where the robots' own samples, just put into the slots
    [B, N], have crossed no link."""
    crossed = torch.nn.functional.pad(crossed, (0, 0, 0, slots - crossed.shape[2]))
    robot = torch.arange(crossed.shape[1], device=crossed.device)
    crossed[torch.arange(len(crossed), device=crossed.device)[:, None], robot, slot[: len(crossed)], robot] = 0
    return crossed


def one_more(crossed: Tensor, held: Tensor, offered: Tensor, source: Tensor, target: Tensor) -> Tensor:
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
