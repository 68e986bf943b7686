"""The relay with a relay radius on a GPU: what each robot holds is a list of a capacity that all share.

The rule is that of `comms.relay`, and tests hold the two equal. A robot lists the origins that it holds news of, in a
row of C columns; memory and time grow in proportion to the team. The table of `comms.held` has here a column for each
origin listed in place of one for each robot, and layers as there: the first holds the newest stamp, the others older
ones that wait for their hop.

C is a little more than the longest list. When a hop would make a list longer, the device says so before anything is
lost, and the hop is made again with more columns; where there would be more than a program holds, the relay goes on
with its table.

Robots are numbered b N + i over all environments, R of them, and places of the store as in `comms.near`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from mast_swarm.comms.held import SLOT_BITS, SLOT_MASK, RelayState, TeamState, free_slots, tucked
from mast_swarm.kernels import USABLE

kernels: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.comms import near_kernels as kernels

STEP = 64  # columns are a multiple of this
MOST = 4096  # columns that one program holds
_ROOM = 64  # origins that a robot may hear of for the first time in one hop, at first


class TooLong(Exception):
    """A list would have more than MOST columns."""


@dataclass(frozen=True, kw_only=True)
class PaddedState(TeamState):
    """What robots hold as lists of one capacity.

    The next sample writes into the stores of messages and positions in place: a state is used up by it.
    """

    step: int
    origin: Tensor  # [R, C] int32, 0..N-1, ascending, each robot's own always among them; N past the end
    table: Tensor  # [W, R, C] int64: stamp and slot of what is held of the origin listed there; -1: nothing
    count: Tensor  # [R] int32, how long the lists are
    room: int  # what the next hop has room for: origins that a robot hears of for the first time
    places: Tensor  # [B, N, 2] float64 metres, where each robot was when it last sampled

    @property
    def pairs(self) -> Tensor:
        """The table of all pairs, [B, W, N, N] int64; -1: nothing. For small teams."""
        (batch, robots), layers = self.alive.shape, len(self.table)
        table = self.table.new_full((layers, batch * robots, robots + 1), -1)
        table.scatter_(2, self.origin.long().expand_as(self.table), self.table)
        return table[:, :, :-1].unflatten(1, (batch, robots)).transpose(0, 1)

    @property
    def newest(self) -> Tensor:
        return self.pairs[:, 0]

    @property
    def shape(self) -> tuple[int, int, int]:
        """What kernels need to find places in the store: slots, robots of an environment, mask of a slot."""
        return self.positions.shape[1], self.positions.shape[2], SLOT_MASK

    def itself(self) -> Tensor:
        """[R, C] bool: the column of each living robot's own origin."""
        robot = torch.arange(self.alive.shape[1], dtype=torch.int32, device=self.origin.device)
        robot = robot.where(self.alive, -1).flatten()
        return self.origin == robot[:, None]

    def used(self) -> Tensor:
        """Which slots of each origin lists refer to: [B, K, N] uint8."""
        used = torch.zeros(self.positions.shape[:3], dtype=torch.uint8, device=self.origin.device)
        kernels.mark(self.origin, self.table, used, self.shape)
        return used


def start(shared: dict[str, Any], layers: int) -> PaddedState:
    """Instant 0: nobody has sampled yet. shared: the fields that all states have (`held.first`)."""
    (batch, robots), device = shared["alive"].shape, shared["alive"].device
    origin = torch.full((batch, robots, STEP), robots, dtype=torch.int32, device=device)
    origin[:, :, 0] = torch.arange(robots, dtype=torch.int32, device=device)
    return PaddedState(
        **shared,
        origin=origin.flatten(0, 1),
        table=torch.full((layers, batch * robots, STEP), -1, dtype=torch.int64, device=device),
        count=torch.ones(batch * robots, dtype=torch.int32, device=device),
        room=_ROOM,
        places=torch.zeros(batch, robots, 2, dtype=torch.float64, device=device),
    )


def as_table(state: PaddedState) -> RelayState:
    """The same as a table of all pairs."""
    shared: dict[str, Any] = {field.name: getattr(state, field.name) for field in fields(TeamState)}
    return RelayState(**shared, table=state.pairs)


def sample(
    state: PaddedState, message: Tensor, positions: Tensor, radius: float, oldest: int, waits: bool
) -> PaddedState:
    """As `near.sample`, and every robot forgets what is older than the stamp `oldest`. waits: whether the last sample
    stays until its next hop."""
    own, newest = state.itself(), state.table[0]
    table = torch.cat((newest.masked_fill(own, -1)[None], state.table[1:]))
    if waits:
        table = tucked(table[None], newest.where(own, -1)[None])[0]
    state = replace(state, table=table)
    state, slot = free_slots(state, state.used())
    state = replace(state, places=positions.double().where(state.alive[..., None], state.places))
    store(state, slot, message, positions)
    entry = slot.flatten() + (state.step << SLOT_BITS)
    table[0] = torch.where(own, entry[:, None], table[0])
    return forget(state, radius, oldest)


def store(state: PaddedState, slot: Tensor, message: Tensor, positions: Tensor) -> None:
    """Put what robots say [B, N, d_msg] at positions [B, N, 2] metres into their slots [B, N]: in place, for nobody
    refers to them, and of a large team the stores are gigabytes."""
    slots, robots, _ = state.shape
    batch = torch.arange(len(slot), device=slot.device)[:, None]
    place = ((batch * slots + slot) * robots + torch.arange(robots, device=slot.device)).flatten()
    for into, new in ((state.messages, message), (state.positions, positions)):
        into.view(-1, into.shape[-1]).index_copy_(0, place, new.flatten(0, 1).to(into.dtype))


def forget(state: PaddedState, radius: float, oldest: int) -> PaddedState:
    """Without what comes from too far for where robots are now, or is older than the stamp `oldest`."""
    given = (state.origin, state.table, _where(state, radius), oldest, state.shape, SLOT_BITS)
    origin, table, count = kernels.keep(*given)
    if len(table) > 1:  # newest first again: an older one may come from nearer
        table = table.sort(0, descending=True).values
    return replace(state, origin=origin, table=table, count=count)


def hop(
    state: PaddedState, offered: Tensor, source: Tensor, target: Tensor, kept: Tensor | None, radius: float
) -> tuple[PaddedState, Tensor]:
    """What robots offer, [R, C] of the origins that they list (-1: nothing), goes over the links [E],
    sorted by target, that lose nothing (kept [E] bool, None: all).

    Gives the state with what it took and with lists that have the new origins too, and what has arrived of each origin
    [R, C'] (-1: nothing), which is not in the table yet. May raise TooLong.
    """
    carried = (offered >= 0).sum(1)
    environment = target // state.alive.shape[1]
    state = replace(
        state,
        transmissions=state.transmissions.index_add(0, environment, carried[source].clamp_max(1)),
        entries=state.entries.index_add(0, environment, carried[source]),
    )
    rows = torch.arange(len(state.origin) + 1, device=source.device)
    links = (torch.searchsorted(target, rows), source, kept)
    while True:
        lists = (state.origin, offered, state.count)
        met = kernels.meet(links, lists, _where(state, radius), state.room, state.shape)
        longest, fresh = torch.stack((met[-1].max(), met[2].max())).tolist()
        if fresh <= state.room and longest <= state.origin.shape[1]:
            break
        if longest > MOST:
            raise TooLong
        state = replace(state, room=max(state.room, _rounded(fresh)))
        more = _rounded(longest) - state.origin.shape[1]
        if more > 0:
            state, offered = _wider(state, more), _padded(offered, more, -1)
    if fresh == 0:
        return state, met[0]
    origin, table, arrived = kernels.merge(state.origin, state.table, state.count, met, state.shape[1])
    return replace(state, origin=origin, table=table, count=met[-1]), arrived


def hold(state: PaddedState, positions: Tensor, reach: float | None) -> tuple[Tensor, ...]:
    """As `near.hold`: what each robot's view holds of places nearer than `reach` metres. -1 stands for none."""
    return kernels.hold((state.origin, state.table[0]), state.alive.flatten(), positions, reach, state.shape)


def _where(state: PaddedState, radius: float) -> tuple[Tensor, Tensor, Tensor]:
    """What kernels need to tell what is too far. In a tensor, for a number that a kernel is given becomes fp32."""
    squared = torch.full((1,), radius * radius, dtype=torch.float64, device=state.places.device)
    return state.places, state.positions, squared


def _rounded(columns: int) -> int:
    """A capacity for so many, with some to spare."""
    return max(columns, min(MOST, -(-(columns + columns // 16) // STEP) * STEP))


def _wider(state: PaddedState, more: int) -> PaddedState:
    table, robots = _padded(state.table, more, -1), state.shape[1]
    return replace(state, origin=_padded(state.origin, more, robots), table=table)


def _padded(rows: Tensor, more: int, value: int) -> Tensor:
    return torch.nn.functional.pad(rows, (0, more), value=value)
