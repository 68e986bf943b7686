"""What every robot's view takes on a GPU (Triton): the relay's table, the view's entries, who sees whom among them, and
attention.

Plain torch makes a pair-by-pair matrix of every view to find windows, and lists of them to attend; here distances live
in registers, where attention in half precision finds out itself who sees whom. The relay takes plain torch dozens of
small kernels, and a list of links whose length the device must tell.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from mast_swarm import steady
from mast_swarm.chance import MIXING
from mast_swarm.explore_kernels import combine
from mast_swarm.model import list_kernels
from mast_swarm.model.list_kernels import looked
from mast_swarm.space._gpu import apart


@triton.jit
def _either(these, those):
    return these | those


@triton.jit(do_not_specialize=["slots"])
def _sample(
    table, alive, message, position, sampled, messages, positions, full, robots, slots, width, step, slot_bits,
    COLUMNS: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """One robot: what it says goes to its first slot that nobody refers to, and its row to the new table."""
    origin = tl.program_id(0).to(tl.int64)
    environment, robot = origin // robots, origin % robots
    own = tl.where(tl.load(alive + origin) > 0, robot, -1)  # the column of its row that is new; -1: none
    table, sampled = table + environment * robots * robots, sampled + environment * robots * robots
    some, bit = tl.arange(0, COLUMNS), tl.arange(0, 64)
    slot, free = 0, 64  # of the 64 slots from here on the first that is free; 64: none
    while free == 64:
        taken = tl.zeros([COLUMNS], tl.int64)  # a bit for each of them
        for start in range(0, robots, COLUMNS):
            row = start + some.to(tl.int64)
            entry = tl.load(table + row * robots + robot, mask=(row < robots) & (row != own), other=-1)
            held = tl.where(entry >= 0, (entry & ((1 << slot_bits) - 1)) - slot, -1)
            taken |= tl.where((held >= 0) & (held < 64), tl.full([COLUMNS], 1, tl.int64) << (held & 63), 0)
        free = tl.min(tl.where((tl.reduce(taken, 0, _either) >> bit) & 1 == 0, bit, 64), 0)
        slot += free
    tl.store(full, 1, mask=slot >= slots)
    slot = tl.minimum(slot, slots - 1)
    place = (environment * slots + slot) * robots + robot
    part, axis = tl.arange(0, WIDTH), tl.arange(0, 2)
    said = tl.load(message + origin * width + part, mask=part < width)
    tl.store(messages + place * width + part, said, mask=part < width)
    tl.store(positions + 2 * place + axis, tl.load(position + 2 * origin + axis))
    new = slot + (tl.load(step) << slot_bits)
    for start in range(0, robots, COLUMNS):
        column = start + some
        known = tl.load(table + robot * robots + column, mask=column < robots)
        tl.store(sampled + robot * robots + column, tl.where(column == own, new, known), mask=column < robots)


@triton.jit
def _hop(
    table, heard, alive, hopped, transmissions, entries, keys, rare, robots,
    LOSES: tl.constexpr, GOLDEN: tl.constexpr, FIRST: tl.constexpr, SECOND: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One robot and some origins: the newest of what it holds of them and of what those it hears hold; and what that
    took, added up. With LOSES a link loses what chance says, whose number is below `rare`, in units of 2^-53.

    Whoever holds anything holds its own sample, which is as new as any: uses of links are counted by that. Programs of
    the same origins follow each other, for they read the same rows."""
    target = tl.program_id(0).to(tl.int64)
    environment, robot = target // robots, target % robots
    first = environment * robots
    some = tl.arange(0, COLUMNS)
    column = tl.program_id(1) * COLUMNS + some
    inside = column < robots
    newest = tl.load(table + target * robots + column, mask=inside, other=-1)
    lives = tl.load(alive + target) > 0
    used, carried = 0, 0
    for start in range(0, robots, COLUMNS):
        other = start + some
        linked = tl.load(heard + target * robots + other, mask=(other < robots) & (other != robot), other=0) > 0
        linked = linked & (tl.load(alive + first + other, mask=other < robots, other=0) > 0) & lives
        source = tl.min(tl.where(linked, other, robots), 0)
        while source < robots:
            row = table + (first + source) * robots
            offered = tl.load(row + column, mask=inside, other=-1)
            carried += tl.sum((offered >= 0).to(tl.int32), 0)
            used += (tl.load(row + source, mask=tl.program_id(1) == 0, other=-1) >= 0).to(tl.int32)
            if LOSES:
                key = combine(tl.load(keys + environment), source.to(tl.int64), GOLDEN, FIRST, SECOND)
                key = combine(key, robot, GOLDEN, FIRST, SECOND)
                offered = tl.where((key.to(tl.uint64) >> 11).to(tl.int64) < rare, -1, offered)
            newest = tl.maximum(newest, offered)
            source = tl.min(tl.where(linked & (other > source), other, robots), 0)
    tl.store(hopped + target * robots + column, newest, mask=inside)
    tl.atomic_add(transmissions + environment, used, sem="relaxed")
    tl.atomic_add(entries + environment, carried, sem="relaxed")


@triton.jit
def _hold(
    newest, alive, positions, packed, own, count, used, robots, slots, squared, slot_bits,
    WINDOWED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One view: the places in the store of what its robot holds near itself, moved to the left."""
    view = tl.program_id(0).to(tl.int64)
    environment, robot = view // robots, view % robots
    newest, packed, some = newest + view * robots, packed + view * robots, tl.arange(0, COLUMNS)
    lives = tl.load(alive + view) > 0
    said = tl.where(lives, tl.load(newest + robot), -1)
    itself = (environment * slots + (said & ((1 << slot_bits) - 1))) * robots + robot
    itself = tl.where(said >= 0, itself, -1)  # -1: the robot has failed
    own_x = tl.load(positions + 2 * itself, mask=itself >= 0, other=0.0)
    own_y = tl.load(positions + 2 * itself + 1, mask=itself >= 0, other=0.0)
    found = 0
    for start in range(0, robots, COLUMNS):
        column = start + some
        n = tl.load(newest + column, mask=column < robots, other=-1)
        near = (n >= 0) & lives
        place = (environment * slots + (n & ((1 << slot_bits) - 1))) * robots + column
        if WINDOWED:
            x = tl.load(positions + 2 * place, mask=near, other=0.0)
            y = tl.load(positions + 2 * place + 1, mask=near, other=0.0)
            near = near & ((apart(x, y, own_x, own_y) < squared) | (column == robot))
        tl.store(packed + found + tl.cumsum(near.to(tl.int32), 0) - 1, place, mask=near)
        tl.store(used + place, tl.full([COLUMNS], 1, tl.uint8), mask=near)
        found += tl.sum(near.to(tl.int32), 0)
    for start in range(found, robots, COLUMNS):
        tl.store(packed + start + some, tl.full([COLUMNS], -1, tl.int64), mask=start + some < robots)
    tl.store(own + view, itself)
    tl.store(count + view, found)


@triton.jit
def _levels(
    entry, own, positions, sorted_entry, level, columns, squared,
    LAYERS: tl.constexpr, WINDOWED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One view: how many windows each entry is away from the robot itself, and the entries in that order.

    Whom a column sees are bits, 32 to a word: going one window further is then little work."""
    WORDS: tl.constexpr = COLUMNS // 32
    view = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    at = view * columns + column
    e = tl.load(entry + at, mask=column < columns, other=-1)
    held = e >= 0
    sees = held[:, None] & held[None, :]
    if WINDOWED:
        x = tl.load(positions + 2 * e, mask=held, other=0.0)
        y = tl.load(positions + 2 * e + 1, mask=held, other=0.0)
        near = apart(x[:, None], y[:, None], x[None, :], y[None, :]) < squared
        sees = sees & (near | (column[:, None] == column[None, :]))
    bit = tl.arange(0, 32)
    seen = tl.sum(tl.reshape(sees, [COLUMNS, WORDS, 32]).to(tl.int32) << bit[None, None, :], 2)  # [COLUMNS, WORDS]
    reached = held & (e == tl.load(own + view))
    away = tl.where(held, LAYERS, LAYERS + 1)
    for windows in tl.static_range(LAYERS):
        away = tl.where(reached & (away == LAYERS), windows, away)
        if windows + 1 < LAYERS:
            words = tl.sum(tl.reshape(reached, [WORDS, 32]).to(tl.int32) << bit[None, :], 1)
            reached = tl.max(((seen & words[None, :]) != 0).to(tl.int32), 1) > 0
    place = tl.zeros([COLUMNS], tl.int32)
    before = 0
    for windows in tl.static_range(LAYERS + 2):
        here = (away == windows).to(tl.int32)
        place = tl.where(here > 0, before + tl.cumsum(here, 0) - 1, place)
        before += tl.sum(here, 0)
    inside = place < columns
    tl.store(sorted_entry + view * columns + place, e, mask=inside)
    tl.store(level + view * columns + place, away, mask=inside)


@triton.jit
def _windows(
    entry, positions, view, column, start, count, window, columns, squared,
    FILL: tl.constexpr, WINDOWED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One row: the columns in its window: how many, or (FILL) which, ascending."""
    r = tl.program_id(0).to(tl.int64)
    entry += tl.load(view + r) * columns
    own = tl.load(column + r)
    other = tl.arange(0, COLUMNS)
    e = tl.load(entry + other, mask=other < columns, other=-1)
    sees = e >= 0
    if WINDOWED:
        itself = tl.load(entry + own)
        x, y = tl.load(positions + 2 * e, mask=sees, other=0.0), tl.load(positions + 2 * e + 1, mask=sees, other=0.0)
        near = apart(x, y, tl.load(positions + 2 * itself), tl.load(positions + 2 * itself + 1)) < squared
        sees = sees & (near | (other == own))
    if FILL:
        tl.store(window + tl.load(start + r) + tl.cumsum(sees.to(tl.int32), 0) - 1, other, mask=sees)
    else:
        tl.store(count + r, tl.sum(sees.to(tl.int32), 0).to(tl.int64))


@triton.jit(do_not_specialize=["rows", "known"])
def _attend(
    q, kv, entry, positions, below, number, answer, q_stride, kv_stride, columns, rows, known, squared, scale,
    FIRST: tl.constexpr, WINDOWED: tl.constexpr, HEADS: tl.constexpr, D: tl.constexpr,
    COLUMNS: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """One head of one view. Its columns are sorted by level: the rows of this layer, and those they see, come first.

    Beyond the last row that one asks again, and beyond the last key that one is read again, and nobody is near it.
    """
    view, head = tl.program_id(0).to(tl.int64), tl.program_id(1)
    entry, below, number = entry + view * columns, below + view * columns, number + view * columns
    column = tl.arange(0, COLUMNS)
    row = tl.load(number + column, mask=column < columns, other=-1)
    asking = tl.sum(((row >= 0) & (row < rows)).to(tl.int32), 0)
    if FIRST:
        held = tl.sum((tl.load(entry + column, mask=column < columns, other=-1) >= 0).to(tl.int32), 0)
    else:
        held = tl.sum(((row >= 0) & (row < known)).to(tl.int32), 0)
    across = head * D + tl.arange(0, D)[None, :]
    for first in range(0, asking, QUERIES):
        r = first + tl.arange(0, QUERIES)
        i = tl.minimum(r, asking - 1)
        query = tl.load(q + tl.load(below + i)[:, None] * q_stride + across)
        e = tl.load(entry + i)
        x, y = tl.load(positions + 2 * e), tl.load(positions + 2 * e + 1)
        top = tl.full([QUERIES], -1e30, tl.float32)  # finite: the first keys may all be out of sight
        total = tl.zeros([QUERIES], tl.float32)
        found = tl.zeros([QUERIES, D], tl.float32)
        for begin in range(0, held, KEYS):
            key = begin + tl.arange(0, KEYS)
            j = tl.minimum(key, held - 1)
            sees = (key < held)[None, :]
            if WINDOWED:
                limit = tl.where(key < held, squared, 0.0)
                other = tl.load(entry + j)
                from_x, from_y = tl.load(positions + 2 * other), tl.load(positions + 2 * other + 1)
                near = apart(x[:, None], y[:, None], from_x[None, :], from_y[None, :]) < limit[None, :]
                sees = near | (i[:, None] == key[None, :])
            bias = tl.where(sees, 0.0, float("-inf"))
            at = kv + tl.load(below + j)[:, None] * kv_stride + across
            keys, values = tl.load(at), tl.load(at + HEADS * D)
            top, total, found = looked(query, keys, values, scale, bias, top, total, found)
        into = answer + tl.load(number + i)[:, None] * (HEADS * D) + across
        sight = found * (1.0 / total)[:, None]
        tl.store(into, sight.to(answer.dtype.element_ty), mask=(r < asking)[:, None])


MOST_COLUMNS = 128  # of a view that one program holds
MOST_ROUNDS = 8  # of hops a period: plain torch stops when there is no news, and here every round is run
_QUERIES, _KEYS, _WARPS = 64, 32, 4  # at a time in attention, and warps of a program
_BLOCK = 2048  # entries of the relay's table at a time
_EXACT = {"enable_fp_fusion": False}  # distances as plain torch rounds them


def sample(state: Any, message: Tensor, positions: Tensor, slot_bits: int) -> tuple[Tensor, Tensor, Tensor]:
    """The table of one layer and the stores of `Relay.sample`, where free slots are left for sure: new tensors. Steady
    work says where there are none, and writes to the stores that it has."""
    batch, _, robots, _ = state.table.shape
    table, messages, where, full = state.table.contiguous(), state.messages, state.positions, steady.outgrown()
    sampled = torch.empty_like(table)
    if full is None:
        full = torch.empty(1, dtype=torch.bool, device=table.device)
        messages = messages.clone(memory_format=torch.contiguous_format)
        where = where.clone(memory_format=torch.contiguous_format)
    columns = _columns(robots)
    step = state.step if isinstance(state.step, Tensor) else torch.full_like(table[0, 0, 0, :1], state.step)
    _sample[(batch * robots,)](
        table, state.alive.contiguous().view(torch.uint8), message.to(messages.dtype).contiguous(),
        positions.to(where.dtype).contiguous(), sampled, messages, where, full.view(torch.uint8),
        robots, messages.shape[1], messages.shape[3], step, slot_bits,
        COLUMNS=columns, WIDTH=triton.next_power_of_2(messages.shape[3]), num_warps=_warps(columns),
    )  # fmt: skip
    return sampled, messages, where


def hop(state: Any, heard: Tensor, keys: list[Tensor], loss: float) -> tuple[Tensor, Tensor, Tensor]:
    """The table of one layer after the rounds of a period, and the two counts: new tensors.

    heard: [B, N, N] bool, element b, i, j says that i hears j. keys: of each round, the chances [B] int64 of its
    losses, which need the link's source and target still."""
    batch, _, robots, _ = state.table.shape
    heard, alive = heard.contiguous().view(torch.uint8), state.alive.contiguous().view(torch.uint8)
    table, transmissions, entries = state.table.contiguous(), state.transmissions.clone(), state.entries.clone()
    columns, (golden, first, second) = _columns(robots), MIXING
    for key in keys:
        hopped = torch.empty_like(table)
        _hop[(batch * robots, triton.cdiv(robots, columns))](
            table, heard, alive, hopped, transmissions, entries, key, math.ceil(loss * 2**53), robots,
            LOSES=loss > 0, GOLDEN=golden, FIRST=first, SECOND=second, COLUMNS=columns, num_warps=_warps(columns),
        )  # fmt: skip
        table = hopped
    return table, transmissions, entries


def _columns(robots: int) -> int:
    """Entries of a row of the table that a program holds at a time."""
    return min(_BLOCK, triton.next_power_of_2(robots))


def _warps(entries: int) -> int:
    """Warps of a program that holds so many table entries in registers."""
    return max(1, entries // 256)


def hold(
    newest: Tensor, alive: Tensor, positions: Tensor, slots: int, slot_bits: int, reach: float | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The near entries of every view as places in the store, moved to the left [B N, N]; the robot's own [B N]; how
    many there are [B N]; and which places are used [B K N + 1]. The last place stands for none, which is -1."""
    batch, robots, _ = newest.shape
    packed = torch.empty((batch * robots, robots), dtype=torch.int64, device=newest.device)
    own, count = torch.empty_like(packed[:, 0]), torch.empty_like(packed[:, 0], dtype=torch.int32)
    used = torch.zeros(batch * slots * robots + 1, dtype=torch.uint8, device=newest.device)
    columns = _columns(robots)
    _hold[(len(packed),)](
        newest.contiguous(), alive.contiguous().view(torch.uint8), positions.contiguous(), packed, own, count, used,
        robots, slots, 0.0 if reach is None else reach * reach, slot_bits,
        WINDOWED=reach is not None, COLUMNS=columns, num_warps=_warps(columns), **_EXACT,
    )  # fmt: skip
    return packed, own, count, used


class Sight:
    """As `views.Sight`, for views of at most MOST_COLUMNS entries at positions in fp32; the matrix is never kept.

    Entries are sorted by level, and within a level as they came."""

    def __init__(self, entry: Tensor, own: Tensor, positions: Tensor, radius: float | None, layers: int) -> None:
        self.positions = positions.contiguous()
        self.squared, self.windowed = (0.0, False) if radius is None else (radius * radius, True)
        self.columns = max(32, triton.next_power_of_2(entry.shape[1]))
        self.entry = torch.empty(entry.shape, dtype=torch.int64, device=entry.device)
        self.level = torch.empty(entry.shape, dtype=torch.int32, device=entry.device)
        _levels[(len(entry),)](
            entry.contiguous(), own.contiguous(), self.positions, self.entry, self.level, entry.shape[1], self.squared,
            LAYERS=layers, WINDOWED=self.windowed, COLUMNS=self.columns, num_warps=4, **_EXACT,
        )  # fmt: skip

    def windows(self, view: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """As there: [E] int32 and [R] int64."""
        view, column = view.contiguous(), column.contiguous()
        count = torch.empty_like(view)
        given = (self.entry, self.positions, view, column)
        shape = {"WINDOWED": self.windowed, "COLUMNS": self.columns, "num_warps": 1, **_EXACT}
        _windows[(len(view),)](
            *given, count, count, count, self.entry.shape[1], self.squared, FILL=False, **shape
        )  # fmt: skip
        ends = count.cumsum(0)
        window = torch.empty(int(ends[-1]), dtype=torch.int32, device=count.device)
        _windows[(len(view),)](
            *given, ends - count, count, window, self.entry.shape[1], self.squared, FILL=True, **shape
        )  # fmt: skip
        return window, count


def takes(views: Any, q: Tensor, heads: int) -> bool:
    """Whether `attend` takes these: views found here, half precision, heads of a width that is a power of two."""
    half = q.dtype in (torch.bfloat16, torch.float16)
    return isinstance(views.sight, Sight) and half and list_kernels.takes(q, heads) and q.shape[1] >= 16 * heads


def attend(q: Tensor, kv: Tensor, views: Any, work: Any, heads: int) -> Tensor:
    """As `views.attend`, of rows that are nodes each: q [m, d], kv [k, 2 d] -> [n, d]."""
    sight, d = views.sight, q.shape[1]
    rows, keys = views.rows[work.layer], views.rows[work.layer - 1]
    answer = torch.empty((rows, d), dtype=q.dtype, device=q.device)
    _attend[(len(views.number), heads)](
        q, kv, sight.entry, sight.positions, work.below, views.number, answer, q.stride(0), kv.stride(0),
        views.number.shape[1], rows, keys, sight.squared, (d // heads) ** -0.5 / math.log(2),
        FIRST=work.layer == 1, WINDOWED=sight.windowed, HEADS=heads, D=d // heads, COLUMNS=sight.columns,
        QUERIES=_QUERIES, KEYS=_KEYS, num_warps=_WARPS, **_EXACT,
    )  # fmt: skip
    return answer
