"""Views: what each robot holds, and which of it its own command depends on.

A view is the set of entries (origin, stamp) that one robot holds. Its command comes from the last layer's row
of the robot itself, which reads the rows of its window one layer below, and so on: L layers down it depends
on entries at most L windows away, and the lower the layer the more rows are needed. `level` counts the
windows: in layer l the rows of level <= L - l are needed.

Rows are numbered by (level, view, entry). The rows of a layer are then the first ones, whatever the layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from mast_swarm import chance
from mast_swarm.comms import _cpu
from mast_swarm.kernels import USABLE, on_gpu
from mast_swarm.model.lists import Lists, attend_lists

kernels: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.comms import kernels


# Rows are compared where fewer than this share of them stand on different nodes: a GPU computes a row as quickly as it
# compares it.
_WORTH = {"cpu": 0.8, "cuda": 0.1}


@dataclass(frozen=True)
class Views:
    """Some views, and the rows that matter in them. Entries have one numbering over all views."""

    sight: Any  # a Sight: who sees whom
    number: Tensor  # [V, C] int64: the row of each entry; -1: none
    rows: list[int]  # [L + 1]: in layer l = 1..L the first rows[l] rows are needed; rows[0] is not used

    @property
    def entry(self) -> Tensor:
        """The C entries (at most) that may matter to each view, [V, C] int64; -1: fewer."""
        return self.sight.entry

    @cached_property
    def place(self) -> Tensor:
        """Where each row lies in [V, C], [R] int64 in flat numbering."""
        every = torch.arange(self.number.numel(), device=self.number.device)
        place = every.new_empty(self.rows[1] + 1)  # the last takes what is no row
        place[self.number.flatten()] = every
        return place[:-1]

    @cached_property
    def windows(self) -> tuple[Tensor, Tensor, Tensor, list[int]]:
        """The columns in each row's window, one row after the other [E]; where a row's begin and how many there are,
        [R] int64; and [L + 1] where those of a layer's rows end."""
        columns = self.number.shape[1]
        window, count = self.sight.windows(self.place // columns, self.place % columns)
        ends = count.cumsum(0)
        last = torch.tensor(self.rows[1:], device=ends.device) - 1
        return window, ends - count, count, [0, *ends[last].tolist()]


@dataclass(frozen=True)
class Nodes:
    """One layer's work: node r reads the node `itself[r]` of the layer below, and those that it sees."""

    layer: int
    itself: Tensor  # [n] int64
    asked: int  # how many nodes of the layer below are in `itself`: its first; in the first layer about so many
    below: Tensor  # [V, C] int64: the node below that each view's entry is; any where nobody sees it
    number: Tensor  # [V, C] the same in this layer
    merged: Lists | None  # n lists of nodes below, where one node may stand for several rows; None: a node a row


def look(entry: Tensor, own: Tensor, positions: Tensor, radius: float | None, layers: int) -> Views:
    """The views `entry` [V, C] of robots whose own entries are `own` [V]; window `radius` metres or None.

    Entries are places in positions [U, 2] metres; -1: none.
    """
    sight = _sight(entry, positions)(entry, own, positions, radius, layers)
    row = torch.arange(layers, device=entry.device)[:, None, None] == sight.level  # [L, V, C]
    below = row.flatten().cumsum(0, dtype=torch.int32).view_as(row)
    number = (below * row).sum(0) - 1
    return Views(sight, number, [0, *reversed(below[:, -1, -1].tolist())])


class Sight:
    """Who sees whom in each view, from a matrix of all pairs. `level` [V, C]: the windows between each entry and the
    robot's own; `layers` or more: too many for any row."""

    def __init__(self, entry: Tensor, own: Tensor, positions: Tensor, radius: float | None, layers: int) -> None:
        self.entry = entry
        held = entry >= 0
        self.seen = held[:, :, None] & held[:, None, :]  # [V, C, C]: column j sees column m
        if radius is not None:
            x, y = positions[entry.clamp_min(0)].unbind(-1)  # [V, C] each
            apart = (x[:, :, None] - x[:, None, :]).square_()
            apart += (y[:, :, None] - y[:, None, :]).square_()
            self.seen &= apart < radius * radius
            self.seen.diagonal(dim1=1, dim2=2).copy_(held)  # everyone sees itself, even where a position is no number
        self.level = torch.full(entry.shape, layers, device=entry.device)
        reached = held & (entry == own[:, None])
        for windows in range(layers):
            self.level.masked_fill_(reached & (self.level == layers), windows)
            if windows + 1 < layers:
                reached = (self.seen & reached[:, None, :]).any(-1)

    def windows(self, view: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """The columns that rows (view, column) [R] see, one row after the other [E], and how many each does [R]."""
        seen = self.seen[view, column]  # [R, C]
        return seen.nonzero()[:, 1], seen.sum(-1)


def _sight(entry: Tensor, positions: Tensor) -> Any:
    """The class that finds the windows of these views: kernels where there are some that take them."""
    if entry.device.type == "cpu" and not on_gpu(entry):
        return _cpu.Sight
    fast = kernels is not None and on_gpu(entry) and positions.dtype == torch.float32
    return kernels.Sight if fast and entry.shape[1] <= kernels.MOST_COLUMNS else Sight


def nodes(views: Views, below: Nodes | None, entries: int = 0, *, alike: bool = True) -> Nodes:
    """The work of the layer after that of `below` (None: of the first, where the nodes below are the entries
    themselves, about `entries` different ones).

    Two rows that read the same nodes give the same result, in whichever views they are: they become one node.
    This happens where robots hold the same stamps of a neighbourhood; without delay it leaves the work of one
    central pass. Nodes keep the order of the rows, so the nodes of low level, which the next layer asks, come
    first here too. alike: whether rows that are alike are looked for.
    """
    layer = 1 if below is None else below.layer + 1
    rows = views.rows[layer]
    if below is not None and below.merged is None:  # row r has been node r, and stays so
        itself = torch.arange(rows, device=views.number.device)
        return Nodes(layer, itself, rows, views.number, views.number, None)
    number = views.entry if below is None else below.number
    itself = number.flatten()[views.place[:rows]]
    asked = entries if below is None else int(itself.max()) + 1
    # Rows that are alike stand on the same node below: where few do, looking for them costs more than it saves.
    if not alike or asked >= _WORTH[number.device.type] * rows:
        return Nodes(layer, itself, asked, number, views.number, None)
    lists = _lists(views, layer, number).plain()
    first, node = _alike(itself, lists)
    merged = Lists(lists.rows, lists.start[first], lists.count[first])
    return Nodes(layer, itself[first], asked, number, node[views.number.clamp_max(rows - 1)], merged)


def _lists(views: Views, layer: int, below: Tensor) -> Lists:
    """Which nodes of the layer below each row of a layer sees."""
    window, start, count, ends = views.windows
    rows = views.rows[layer]
    view = views.place[:rows] // views.number.shape[1]
    return Lists(window[: ends[layer]], start[:rows], count[:rows], below, view)


def attend(q: Tensor, kv: Tensor, views: Views, work: Nodes, heads: int) -> Tensor:
    """Every node's query over the keys and values of the nodes that it sees: q [m, d], kv [k, 2 d] -> [n, d]."""
    if work.merged is None and kernels is not None and kernels.takes(views, q, heads):
        return kernels.attend(q, kv, views, work, heads)
    lists = _lists(views, work.layer, work.below) if work.merged is None else work.merged
    return attend_lists(q, work.itself, kv, lists, heads)


def weigh(q: Tensor, kv: Tensor, views: Views, work: Nodes, heads: int) -> Tensor:
    """What the robots themselves attend to in a layer, given as in `attend`: weights [E, H] of the entries that
    `windows_of_robots` lists."""
    lists = _lists(views, len(views.rows) - 1, work.below)
    row = torch.arange(len(lists.count), device=q.device).repeat_interleave(lists.count)
    asks = work.itself[work.number.flatten()[views.place[: len(lists.count)]]]
    keys = kv[lists.plain().rows, : q.shape[1]].unflatten(-1, (heads, -1)).float()  # [E, H, d_a]
    score = (q[asks[row]].unflatten(-1, (heads, -1)).float() * keys).sum(-1) / math.sqrt(keys.shape[-1])
    most = score.new_full((len(lists.count), heads), -math.inf)
    most = most.scatter_reduce(0, row[:, None].expand_as(score), score, "amax")
    share = (score - most[row]).exp()
    return share / torch.zeros_like(most).index_add(0, row, share)[row]


def windows_of_robots(views: Views) -> tuple[Tensor, Tensor]:
    """The entries in the windows of the robots themselves: each one's view and its entry, [E] int64."""
    window, _, count, ends = views.windows
    rows, layers = views.rows, len(views.rows) - 1
    view = (views.place[: rows[layers]] // views.number.shape[1]).repeat_interleave(count[: rows[layers]])
    return view, views.entry[view, window[: ends[layers]].long()]


def _alike(itself: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
    """Which rows are alike: the first row of each kind, ascending [n], and the kind of each row [R]."""
    reads, start, count = lists.rows, lists.start, lists.count
    mixed = chance.mix(reads + 1)
    total = mixed.cumsum(0)  # wraps around, which differences do not mind
    name = chance.combine(total[start + count - 1] - total[start] + mixed[start], itself)
    _, kind = name.unique(return_inverse=True)
    row = torch.arange(len(itself), device=itself.device)
    first = row.new_full((int(kind.max()) + 1,), len(itself)).scatter_reduce_(0, kind, row, "amin")
    twin = first[kind]  # the first row that has this row's name
    shift = (start[twin] - start).repeat_interleave(count, output_size=len(reads))
    same = (count[twin] == count).all() and (itself[twin] == itself).all()
    if not same or not (reads[torch.arange(len(reads), device=reads.device) + shift] == reads).all():
        return row, row  # two different rows share a name: rare beyond meeting, and then nothing is merged
    place = torch.zeros_like(row)
    first = first.sort().values
    place[first] = torch.arange(len(first), device=row.device)
    return first, place[twin]


def chunks(environments: int, robots: int, width: int, rows: int, pairs: int) -> Iterator[slice]:
    """Runs of views, `robots` an environment, of at most `rows` rows and `pairs` pairs of entries, `width` entries per
    view: whole environments where they fit."""
    size = max(1, min(rows // width, pairs // width**2))
    together = max(1, size // robots) * robots
    for first in range(0, environments * robots, together):
        last = min(first + together, environments * robots)
        for begin in range(first, last, size):
            yield slice(begin, min(begin + size, last))
