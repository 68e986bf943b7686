"""The relay's lists on a GPU (Triton): what `comms.padded` asks, one program per robot.

A list is a row of C columns, ascending by origin; columns past its end have an origin that is none's (the number of
robots). Positions are float64, and launches forbid fused multiply and add: distances are those of every other path.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mast_swarm.space._gpu import apart

_BLOCK = 16  # fresh origins at a time
_EXACT = {"enable_fp_fusion": False}


@triton.jit
def _too_far(entry, origin, first, x, y, limit, store, robots, mask, there):
    """Whether entries of origins (where `there`) come from farther than the limit from a place. first: the row of the
    store, K N of them an environment, where this environment begins."""
    place = first + (entry & mask) * robots + origin
    from_x = tl.load(store + 2 * place, mask=there, other=0.0)
    from_y = tl.load(store + 2 * place + 1, mask=there, other=0.0)
    return apart(from_x, from_y, x, y) > limit


@triton.jit
def _find(origin, count, wanted, STEPS: tl.constexpr):
    """Where the wanted origins would stand in a list of `count`, and whether they do."""
    low = tl.zeros_like(wanted)
    high = low + count
    for _ in tl.static_range(STEPS):
        middle = (low + high) // 2
        between = low < high
        right = between & (tl.load(origin + middle, mask=between, other=0) < wanted)
        low = tl.where(right, middle + 1, low)
        high = tl.where(between & (right == 0), middle, high)
    inside = low < count
    return low, inside & (tl.load(origin + low, mask=inside, other=-1) == wanted)


@triton.jit
def _meet(
    links, source, kept, origin, offered, count, places, store, limit, arrived, fresh_origin, fresh_entry, fresh,
    columns, room, slots, robots, mask, LOSSY: tl.constexpr, STEPS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One robot: the newest that those it hears offer it of each origin that it lists; and, as they come, what they
    offer of others: how many, and the first `room` of them."""
    r = tl.program_id(0).to(tl.int64)
    first = r // robots * slots * robots
    x, y, squared = tl.load(places + 2 * r), tl.load(places + 2 * r + 1), tl.load(limit)
    column = tl.arange(0, COLUMNS)
    own = tl.load(count + r)
    listed = column < own
    wanted = tl.load(origin + r * columns + column, mask=listed, other=-1)
    newest = tl.full([COLUMNS], -1, tl.int64)
    found = 0
    for link in range(tl.load(links + r), tl.load(links + r + 1)):
        s = tl.load(source + link)
        theirs = tl.load(count + s)
        if LOSSY:
            theirs = tl.where(tl.load(kept + link) > 0, theirs, 0)
        at, both = _find(origin + s * columns, theirs, wanted, STEPS)
        both = both & listed
        entry = tl.load(offered + s * columns + at, mask=both, other=-1)
        both = entry >= 0
        both = both & (_too_far(entry, wanted, first, x, y, squared, store, robots, mask, both) == 0)
        newest = tl.maximum(newest, tl.where(both, entry, -1))
        there = column < theirs
        entry = tl.load(offered + s * columns + column, mask=there, other=-1)
        there = entry >= 0
        other = tl.load(origin + s * columns + column, mask=there, other=-1)
        there = there & (_too_far(entry, other, first, x, y, squared, store, robots, mask, there) == 0)
        if tl.sum(there.to(tl.int32), 0) > tl.sum(both.to(tl.int32), 0):  # not all of it is of origins listed here
            _, known = _find(origin + r * columns, own, other, STEPS)
            new = there & (known == 0)
            at = found + tl.cumsum(new.to(tl.int32), 0) - 1
            tl.store(fresh_origin + r * room + at, other, mask=new & (at < room))
            tl.store(fresh_entry + r * room + at, entry, mask=new & (at < room))
            found += tl.sum(new.to(tl.int32), 0)
    tl.store(arrived + r * columns + column, newest, mask=column < columns)
    tl.store(fresh + r, found)


@triton.jit
def _distinct(fresh_origin, fresh_entry, fresh, count, single, need, room, robots, BLOCK: tl.constexpr):
    """One robot: of the fresh entries of one origin the newest keeps its origin, the others get none's; and how long
    the list becomes."""
    r = tl.program_id(0).to(tl.int64)
    fresh_origin, fresh_entry, single = fresh_origin + r * room, fresh_entry + r * room, single + r * room
    n = tl.minimum(tl.load(fresh + r), room)
    kept = tl.load(count + r)
    for begin in range(0, n, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        origin = tl.load(fresh_origin + i, mask=i < n, other=-1)
        entry = tl.load(fresh_entry + i, mask=i < n, other=-1)
        beaten = tl.zeros([BLOCK], tl.int32)
        for start in range(0, n, BLOCK):
            j = start + tl.arange(0, BLOCK)
            other = tl.load(fresh_origin + j, mask=j < n, other=-2)
            theirs = tl.load(fresh_entry + j, mask=j < n, other=-1)
            newer = theirs[None, :] > entry[:, None]
            newer = newer | ((theirs[None, :] == entry[:, None]) & (j[None, :] < i[:, None]))
            beaten += tl.sum(((other[None, :] == origin[:, None]) & newer).to(tl.int32), 1)
        best = (i < n) & (beaten == 0)
        tl.store(single + i, tl.where(best, origin, robots), mask=i < n)
        kept += tl.sum(best.to(tl.int32), 0)
    tl.store(need + r, kept)


@triton.jit
def _merge(
    origin, table, arrived, count, single, fresh_entry, fresh, need, new_origin, new_table, new_arrived,
    columns, room, robots, LAYERS: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One robot: its list with the fresh origins among the others, which have arrived and are in no layer yet."""
    r = tl.program_id(0).to(tl.int64)
    plane = tl.num_programs(0).to(tl.int64) * columns  # a layer of the table
    column = tl.arange(0, COLUMNS)
    listed = column < tl.load(count + r)
    own = tl.load(origin + r * columns + column, mask=listed, other=robots)
    single, fresh_entry = single + r * room, fresh_entry + r * room
    n = tl.load(fresh + r)
    shift = tl.zeros([COLUMNS], tl.int32)
    for begin in range(0, n, BLOCK):
        i = begin + tl.arange(0, BLOCK)
        new = tl.load(single + i, mask=i < n, other=robots)
        shift += tl.sum((new[None, :] < own[:, None]).to(tl.int32), 1)
        rank = tl.sum((own[:, None] < new[None, :]).to(tl.int32), 0)
        for start in range(0, n, BLOCK):
            j = start + tl.arange(0, BLOCK)
            other = tl.load(single + j, mask=j < n, other=robots)
            rank += tl.sum((other[None, :] < new[:, None]).to(tl.int32), 1)
        at, kept = r * columns + rank, new < robots
        tl.store(new_origin + at, new, mask=kept)
        tl.store(new_arrived + at, tl.load(fresh_entry + i, mask=kept, other=-1), mask=kept)
        for w in tl.static_range(LAYERS):
            tl.store(new_table + w * plane + at, tl.full([BLOCK], -1, tl.int64), mask=kept)
    at = r * columns + column
    tl.store(new_origin + at + shift, own, mask=listed)
    tl.store(new_arrived + at + shift, tl.load(arrived + at, mask=listed, other=-1), mask=listed)
    past = (column >= tl.load(need + r)) & (column < columns)
    tl.store(new_origin + at, tl.full([COLUMNS], 0, tl.int32) + robots, mask=past)
    nothing = tl.full([COLUMNS], -1, tl.int64)
    tl.store(new_arrived + at, nothing, mask=past)
    for w in tl.static_range(LAYERS):
        held = tl.load(table + w * plane + at, mask=listed, other=-1)
        tl.store(new_table + w * plane + at + shift, held, mask=listed)
        tl.store(new_table + w * plane + at, nothing, mask=past)


@triton.jit(do_not_specialize=["oldest"])
def _keep(
    origin, table, places, store, limit, new_origin, new_table, count, columns, slots, robots, oldest,
    mask, slot_bits, LAYERS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One robot: without entries older than the stamp `oldest` or from too far, and without origins that it then holds
    nothing of, but for itself."""
    r = tl.program_id(0).to(tl.int64)
    plane = tl.num_programs(0).to(tl.int64) * columns  # a layer of the table
    first = r // robots * slots * robots
    x, y, squared = tl.load(places + 2 * r), tl.load(places + 2 * r + 1), tl.load(limit)
    column = tl.arange(0, COLUMNS)
    at = r * columns + column
    o = tl.load(origin + at, mask=column < columns, other=robots)
    stays = o == r % robots
    for w in tl.static_range(LAYERS):
        entry = tl.load(table + w * plane + at, mask=column < columns, other=-1)
        good = (entry >= 0) & ((entry >> slot_bits) >= oldest)
        good = good & (_too_far(entry, o, first, x, y, squared, store, robots, mask, good) == 0)
        stays = stays | good
    kept = tl.sum(stays.to(tl.int32), 0)
    into = r * columns + tl.cumsum(stays.to(tl.int32), 0) - 1
    past = (column >= kept) & (column < columns)
    for w in tl.static_range(LAYERS):
        entry = tl.load(table + w * plane + at, mask=column < columns, other=-1)
        good = (entry >= 0) & ((entry >> slot_bits) >= oldest)
        good = good & (_too_far(entry, o, first, x, y, squared, store, robots, mask, good) == 0)
        tl.store(new_table + w * plane + into, tl.where(good, entry, -1), mask=stays)
        tl.store(new_table + w * plane + at, tl.full([COLUMNS], -1, tl.int64), mask=past)
    tl.store(new_origin + into, o, mask=stays)
    tl.store(new_origin + at, tl.full([COLUMNS], 0, tl.int32) + robots, mask=past)
    tl.store(count + r, kept)


@triton.jit
def _mark(
    origin, table, used, columns, slots, robots, mask, LAYERS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """One robot: the places of the store that its list refers to."""
    r = tl.program_id(0).to(tl.int64)
    plane = tl.num_programs(0).to(tl.int64) * columns  # a layer of the table
    column = tl.arange(0, COLUMNS)
    at = r * columns + column
    o = tl.load(origin + at, mask=column < columns, other=0)
    for w in tl.static_range(LAYERS):
        entry = tl.load(table + w * plane + at, mask=column < columns, other=-1)
        place = r // robots * slots * robots + (entry & mask) * robots + o
        tl.store(used + place, tl.full([COLUMNS], 1, tl.uint8), mask=entry >= 0)


@triton.jit
def _hold(
    origin, newest, alive, positions, packed, own, count, used, columns, slots, robots, squared, mask,
    WINDOWED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One view: the places in the store of what its robot holds near itself, moved to the left, as in
    `kernels._hold`."""
    r = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    at = r * columns + column
    o = tl.load(origin + at, mask=column < columns, other=0)
    entry = tl.load(newest + at, mask=column < columns, other=-1)
    near = tl.where(tl.load(alive + r) > 0, entry, -1) >= 0
    place = r // robots * slots * robots + (entry & mask) * robots + o
    itself = tl.max(tl.where(near & (o == r % robots), place, -1), 0)  # -1: the robot has failed
    if WINDOWED:
        x = tl.load(positions + 2 * place, mask=near, other=0.0)
        y = tl.load(positions + 2 * place + 1, mask=near, other=0.0)
        own_x = tl.load(positions + 2 * itself, mask=itself >= 0, other=0.0)
        own_y = tl.load(positions + 2 * itself + 1, mask=itself >= 0, other=0.0)
        near = near & ((apart(x, y, own_x, own_y) < squared) | (place == itself))
    found = tl.sum(near.to(tl.int32), 0)
    tl.store(packed + r * columns + tl.cumsum(near.to(tl.int32), 0) - 1, place, mask=near)
    past = (column >= found) & (column < columns)
    tl.store(packed + at, tl.full([COLUMNS], -1, tl.int64), mask=past)
    tl.store(used + place, tl.full([COLUMNS], 1, tl.uint8), mask=near)
    tl.store(own + r, itself)
    tl.store(count + r, found)


def meet(
    links: tuple[Tensor, Tensor, Tensor | None],
    lists: tuple[Tensor, Tensor, Tensor],
    where: tuple[Tensor, Tensor, Tensor],
    room: int,
    shape: tuple[int, int, int],
) -> tuple[Tensor, ...]:
    """What robots are offered of the origins that they list, [R, C] int64; and of others: their origins and entries
    [R, room], how many there were [R], the same origins without those that are there twice [R, room], and how long
    each list becomes [R].

    links: where each robot's begin [R + 1], their sources [E], and which of them lose nothing ([E] bool, None: all).
    lists: origins [R, C], what is offered of them, and how many there are [R]. where: places [R, 2], the store's
    positions [B K N, 2], the relay radius squared [1]. shape: slots, robots of an environment, mask of a slot.
    """
    (begin, source, kept), (origin, offered, count) = links, lists
    (rows, columns), device = origin.shape, origin.device
    arrived = torch.empty_like(offered)
    fresh_origin = torch.empty((rows, room), dtype=torch.int32, device=device)
    fresh_entry = torch.empty((rows, room), dtype=torch.int64, device=device)
    fresh, need, single = torch.empty_like(count), torch.empty_like(count), torch.empty_like(fresh_origin)
    width = _width(columns)
    _meet[(rows,)](
        begin, source, source if kept is None else kept.view(torch.uint8), origin, offered, count, *where,
        arrived, fresh_origin, fresh_entry, fresh, columns, room, *shape,
        LOSSY=kept is not None, STEPS=width.bit_length(), COLUMNS=width, num_warps=_warps(width), **_EXACT,
    )  # fmt: skip
    _distinct[(rows,)](fresh_origin, fresh_entry, fresh, count, single, need, room, shape[1], BLOCK=_BLOCK, num_warps=1)
    return arrived, fresh_entry, fresh, single, need


def merge(
    origin: Tensor, table: Tensor, count: Tensor, met: tuple[Tensor, ...], robots: int
) -> tuple[Tensor, Tensor, Tensor]:
    """The lists with the fresh origins that `meet` found: origins [R, C], table [W, R, C], and what has arrived."""
    arrived, fresh_entry, fresh, single, need = met
    into = torch.empty_like(origin), torch.empty_like(table), torch.empty_like(arrived)
    (layers, rows, columns), width = table.shape, _width(origin.shape[1])
    _merge[(rows,)](
        origin, table, arrived, count, single, fresh_entry, fresh, need, *into, columns, single.shape[1], robots,
        LAYERS=layers, COLUMNS=width, BLOCK=_BLOCK, num_warps=_warps(width),
    )  # fmt: skip
    return into


def keep(
    origin: Tensor,
    table: Tensor,
    where: tuple[Tensor, Tensor, Tensor],
    oldest: int,
    shape: tuple[int, int, int],
    slot_bits: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """The lists without what is older than the stamp `oldest` or too far: origins, table and counts."""
    into, count = (torch.empty_like(origin), torch.empty_like(table)), torch.empty_like(origin[:, 0])
    (layers, rows, columns), width = table.shape, _width(origin.shape[1])
    slots, robots, mask = shape
    _keep[(rows,)](
        origin, table, *where, *into, count, columns, slots, robots, oldest, mask, slot_bits,
        LAYERS=layers, COLUMNS=width, num_warps=_warps(width), **_EXACT,
    )  # fmt: skip
    return *into, count


def mark(origin: Tensor, table: Tensor, used: Tensor, shape: tuple[int, int, int]) -> None:
    """Set 1 in `used` [B K N] where a place of the store is referred to."""
    (layers, rows, columns), width = table.shape, _width(origin.shape[1])
    slots, robots, mask = shape
    _mark[(rows,)](
        origin, table, used, columns, slots, robots, mask,
        LAYERS=layers, COLUMNS=width, num_warps=_warps(width),
    )  # fmt: skip


def hold(
    lists: tuple[Tensor, Tensor], alive: Tensor, positions: Tensor, reach: float | None, shape: tuple[int, int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `kernels.hold`, of lists: origins [R, C] and the newest entries of them."""
    origin, newest = lists
    (rows, columns), (slots, robots, mask) = origin.shape, shape
    packed = torch.empty_like(newest)
    own, count = torch.empty_like(packed[:, 0]), torch.empty_like(origin[:, 0])
    used = torch.zeros(len(positions) + 1, dtype=torch.uint8, device=origin.device)
    width = _width(columns)
    _hold[(rows,)](
        origin, newest, alive.contiguous().view(torch.uint8), positions.contiguous(), packed, own, count, used,
        columns, slots, robots, 0.0 if reach is None else reach * reach, mask,
        WINDOWED=reach is not None, COLUMNS=width, num_warps=_warps(width), **_EXACT,
    )  # fmt: skip
    return packed, own, count, used


def _width(columns: int) -> int:
    """Columns of a program: each width is compiled once, and lists that have just begun are short for a few hops."""
    return max(256, triton.next_power_of_2(columns))


def _warps(width: int) -> int:
    return min(8, max(1, width // 128))
