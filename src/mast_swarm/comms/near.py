"""The relay with a relay radius on the CPU: what each robot holds is a list, not a row of a table of all pairs.

A robot holds news of those within the radius alone. So memory and time grow in proportion to the team, where those of
the table of `comms.relay` grow with its square. The rule is the same, and tests hold the two equal.

Robots are numbered b N + i over all environments, and so are the places of the store: slot k of origin j of environment
b is (b K + k) N + j.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mast_swarm.comms.held import SLOT_BITS, SLOT_MASK, TeamState, free_slots, slot_of, stored
from mast_swarm.threads import compiled


@dataclass(frozen=True, kw_only=True)
class NearState(TeamState):
    """What robots hold as lists, one after the other."""

    step: int
    start: Tensor  # [B N + 1] int64: robot r holds what lies from start[r] to start[r + 1] of the next two
    origin: Tensor  # [T] int64, 0..N-1, ascending in each list
    entry: Tensor  # [T] int64, stamp and slot
    places: Tensor  # [B, N, 2] float64 metres, where each robot was when it last sampled

    @property
    def newest(self) -> Tensor:
        batch, robots = self.alive.shape
        table = torch.full((batch * robots, robots), -1)
        table[self._holder(), self.origin] = self.entry
        return table.view(batch, robots, robots)

    def _holder(self) -> Tensor:
        return torch.repeat_interleave(self.start.diff(), output_size=len(self.origin))

    def used(self) -> Tensor:
        """Which slots of each origin robots hold, or had before the living sample anew: [B, K, N] uint8."""
        batch, slots, robots, _ = self.positions.shape
        holder = self._holder()
        kept = (holder % robots != self.origin) | ~self.alive.flatten()[holder]  # the living's own is replaced
        slot = slot_of(self.entry)
        place = ((holder // robots * slots + slot) * robots + self.origin)[kept]
        used = torch.zeros(batch * slots * robots, dtype=torch.uint8)
        return used.index_fill_(0, place, 1).view(batch, slots, robots)


def start(shared: dict[str, Any]) -> NearState:
    """Instant 0: nobody has sampled yet. shared: the fields that all states have (`held.first`)."""
    batch, robots = shared["alive"].shape
    nothing = torch.zeros(0, dtype=torch.int64)
    return NearState(
        **shared,
        start=torch.zeros(batch * robots + 1, dtype=torch.int64),
        origin=nothing,
        entry=nothing,
        places=torch.zeros(batch, robots, 2, dtype=torch.float64),
    )


def sample(state: NearState, message: Tensor, positions: Tensor, radius: float) -> NearState:
    """Every living robot holds its new sample, a message [B, N, d_msg], and forgets what is too far from positions
    [B, N, 2] metres."""
    state, slot = free_slots(state, state.used())
    state = stored(state, slot, message, positions)
    own = (slot + (state.step << SLOT_BITS)).where(state.alive, -1).flatten()
    places = positions.double().where(state.alive[..., None], state.places)
    state = replace(state, places=places)
    given = (own.numpy(), *_of(state, radius))
    start, origin, entry = _listed(_sample_kernel, given, state)
    return replace(state, start=start, origin=origin, entry=entry)


def hop(state: NearState, source: Tensor, target: Tensor, kept: Tensor, radius: float) -> NearState:
    """All that robots hold goes over the links [E], sorted by target, that lose nothing (kept [E] bool)."""
    size = state.start.diff()[source]  # [E]
    environment = target // state.alive.shape[1]
    links = torch.searchsorted(target, torch.arange(state.alive.numel() + 1))
    given = (links.numpy(), source.numpy(), kept.numpy(), *_of(state, radius))
    start, origin, entry = _listed(_hop_kernel, given, state)
    return replace(
        state,
        start=start,
        origin=origin,
        entry=entry,
        transmissions=state.transmissions.index_add(0, environment, size.clamp_max(1)),
        entries=state.entries.index_add(0, environment, size),
    )


def hold(state: NearState, positions: Tensor, reach: float | None) -> tuple[Tensor, ...]:
    """What each robot's view holds of places nearer than `reach` metres: places in the store [B N, C] moved to the
    left, its own place [B N], how many it holds [B N], and which places any view holds [B K N + 1] uint8. The last
    place, B K N, stands for none.

    positions: [B K N, 2] metres, those of the store.
    """
    views, size = state.alive.numel(), len(positions)
    squared = np.inf if reach is None else reach * reach
    places = positions.numpy()
    lists, shape = _of(state, 0.0)[:3], (state.positions.shape[1], state.alive.shape[1], SLOT_MASK)
    given: list[Any] = [state.alive.flatten().numpy(), places, places.dtype.type(squared), *lists, *shape]
    count, own = np.zeros(views, np.int64), np.full(views, size)
    with compiled():
        _hold_kernel(*[*given, count, own, np.empty((views, 0), np.int64), False])
        packed = np.full((views, count.max(initial=0)), size)
        _hold_kernel(*[*given, count, own, packed, True])
    used = torch.zeros(size + 1, dtype=torch.uint8).index_fill_(0, torch.from_numpy(packed).flatten(), 1)
    return torch.from_numpy(packed), torch.from_numpy(own), torch.from_numpy(count), used


def _of(state: NearState, radius: float) -> tuple[Any, ...]:
    """What all kernels read of a state."""
    _, slots, robots, _ = state.positions.shape
    lists = (state.start.numpy(), state.origin.numpy(), state.entry.numpy())
    places = (state.places.flatten(0, 1).numpy(), state.positions.flatten(0, 2).numpy())
    return (*lists, *places, radius * radius, slots, robots, SLOT_MASK)


def _listed(kernel: Callable[..., None], given: tuple[Any, ...], state: NearState) -> tuple[Tensor, Tensor, Tensor]:
    """The new lists: the kernel counts them, and then fills them."""
    start = np.zeros(len(state.start), np.int64)
    nothing = np.empty(0, np.int64)
    with compiled():
        kernel(*given, start, nothing, nothing, False)
        np.cumsum(start, out=start)
        origin, entry = np.empty(start[-1], np.int64), np.empty(start[-1], np.int64)
        kernel(*given, start, origin, entry, True)
    return torch.from_numpy(start), torch.from_numpy(origin), torch.from_numpy(entry)


@njit(cache=True, nogil=True)
def _far(holder, entry, origin, places, store, squared, slots, robots, mask):
    """Whether a robot neither keeps nor passes on an entry: the test of `Relay._too_far`."""
    place = (holder // robots * slots + (entry & mask)) * robots + origin
    x, y = store[place, 0] - places[holder, 0], store[place, 1] - places[holder, 1]
    return x * x + y * y > squared


@njit(cache=True, nogil=True, parallel=True)
def _sample_kernel(
    own, start, origin, entry, places, store, squared, slots, robots, mask, new_start, new_origin, new_entry, fill
):
    """new_start[r + 1]: without `fill` how many robot r holds; with it where its list ends, and they are written."""
    for r in prange(len(own)):
        me, n = r % robots, 0
        first = new_start[r]
        waits = own[r] >= 0  # its own new sample has its place among the others
        for e in range(start[r], start[r + 1] + 1):
            last = e == start[r + 1]
            if waits and (last or origin[e] >= me):
                if fill:
                    new_origin[first + n], new_entry[first + n] = me, own[r]
                n, waits = n + 1, False
            if last or (origin[e] == me and own[r] >= 0):
                continue
            if not _far(r, entry[e], origin[e], places, store, squared, slots, robots, mask):
                if fill:
                    new_origin[first + n], new_entry[first + n] = origin[e], entry[e]
                n += 1
        if not fill:
            new_start[r + 1] = n


@njit(cache=True, nogil=True, parallel=True)
def _hop_kernel(
    links, source, kept, start, origin, entry, places, store, squared, slots, robots, mask,
    new_start, new_origin, new_entry, fill,
):  # fmt: skip
    """As in `_sample_kernel`. A robot's own list and those that it hears are gone through side by side, by origin."""
    for r in prange(len(places)):
        at = np.empty(links[r + 1] - links[r] + 1, np.int64)
        end = np.empty_like(at)
        at[0], end[0], lists = start[r], start[r + 1], 1
        for link in range(links[r], links[r + 1]):
            if kept[link]:
                at[lists], end[lists] = start[source[link]], start[source[link] + 1]
                lists += 1
        first, n = new_start[r], 0
        while True:
            lowest = robots
            for k in range(lists):
                if at[k] < end[k]:
                    lowest = min(lowest, origin[at[k]])
            if lowest == robots:
                break
            newest = -1
            for k in range(lists):
                if at[k] < end[k] and origin[at[k]] == lowest:
                    e = entry[at[k]]
                    at[k] += 1
                    if e > newest and (k == 0 or not _far(r, e, lowest, places, store, squared, slots, robots, mask)):
                        newest = e
            if newest >= 0:
                if fill:
                    new_origin[first + n], new_entry[first + n] = lowest, newest
                n += 1
        if not fill:
            new_start[r + 1] = n


@njit(cache=True, nogil=True, parallel=True)
def _hold_kernel(alive, positions, squared, start, origin, entry, slots, robots, mask, count, own, packed, fill):
    for r in prange(len(alive)):
        if not alive[r]:
            continue
        first = r // robots * slots
        for e in range(start[r], start[r + 1]):
            if origin[e] == r % robots:
                own[r] = (first + (entry[e] & mask)) * robots + origin[e]
        n = 0
        for e in range(start[r], start[r + 1]):
            place = (first + (entry[e] & mask)) * robots + origin[e]
            x, y = positions[place, 0] - positions[own[r], 0], positions[place, 1] - positions[own[r], 1]
            if x * x + y * y < squared or place == own[r]:  # itself even where a position is no number
                if fill:
                    packed[r, n] = place
                n += 1
        count[r] = n
