"""Views: what each robot holds, and which of it its own command depends on.

A view is the set of entries (origin, stamp) that one robot holds. Its command comes from the last layer's row
of the robot itself, which reads the rows of its window one layer below, and so on: L layers down it depends
on entries at most L windows away, and the lower the layer the more rows are needed. `level` counts the
windows: in layer l the rows of level <= L - l are needed.

Rows are numbered by (level, view, entry). The rows of a layer are then the first ones, whatever the layer.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from mast_swarm import chance
from mast_swarm.model.lists import Lists

kernels: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if torch.cuda.is_available() and importlib.util.find_spec("triton") is not None:
    from mast_swarm.comms import kernels


# Rows are compared where fewer than this share of them stand on different nodes: a GPU computes a row as quickly as it
# compares it.
_WORTH = {"cpu": 0.8, "cuda": 0.1}


@dataclass(frozen=True)
class Views:
    """Some views, and the rows that matter in them. Entries have one numbering over all views."""

    entry: Tensor  # [V, C] int64: the C entries (at most) that may matter to each view; -1: fewer
    row_view: Tensor  # [R] int64
    row_column: Tensor  # [R] int64: the row's place among the view's entries
    rows: list[int]  # [L + 1]: in layer l = 1..L the first rows[l] rows are needed; rows[0] is not used
    window: Tensor  # [E] whole numbers: the columns in each row's window, one row after the other
    start: Tensor  # [R] int64: where a row's begin in `window`
    count: Tensor  # [R] int64: how many there are
    ends: list[int]  # [L + 1]: where those of the first rows[l] rows end in `window`


@dataclass(frozen=True)
class Nodes:
    """One layer's work: node r reads the node `itself[r]` and the nodes of list r, all of the layer below."""

    itself: Tensor  # [n] int64
    asked: int  # the nodes in `itself` are below this number
    lists: Lists  # n lists
    number: Tensor  # [V, C] int64: the node of each view's entry; -1: none
    merged: bool  # whether one node may stand for several rows


def near_entries(entry: Tensor, own: Tensor, positions: Tensor, reach: float | None) -> Tensor:
    """The entries of each view that lie nearer than `reach` metres to its robot, moved to the left: [V, C].

    entry [V, N] int64, -1 for none; own [V] the entry of the robot itself; positions [U, 2] of entries.
    """
    near = entry >= 0
    if reach is not None:
        apart = positions[entry.clamp_min(0)] - positions[own][:, None]
        near &= apart.square().sum(-1) < reach * reach
    place = near.cumsum(1) - 1
    width = int(place.max()) + 1
    out = entry.new_full((len(entry), width + 1), -1)  # the last column takes those that are too far
    return out.scatter_(1, place.where(near, width), entry)[:, :width]


def look(entry: Tensor, own: Tensor, positions: Tensor, radius: float | None, layers: int) -> Views:
    """The views `entry` [V, C] of robots whose own entries are `own` [V]; window `radius` metres or None."""
    sight = _sight(entry, positions)(entry, own, positions, radius, layers)
    view, column = (sight.level < layers).nonzero(as_tuple=True)
    of_row = sight.level[view, column]
    order = of_row.argsort(stable=True)
    view, column = view[order], column[order]
    below = torch.bincount(of_row, minlength=layers).cumsum(0).tolist()  # rows of level <= k
    window, count = sight.windows(view, column)
    rows, ends = [0, *reversed(below)], count.cumsum(0)
    return Views(
        entry=entry,
        row_view=view,
        row_column=column,
        rows=rows,
        window=window,
        start=ends - count,
        count=count,
        ends=[0, *ends[torch.tensor(rows[1:], device=ends.device) - 1].tolist()],
    )


class Sight:
    """Who sees whom in each view, from a matrix of all pairs. `level` [V, C]: the windows between each entry and the
    robot's own; `layers`: too many for any row."""

    def __init__(self, entry: Tensor, own: Tensor, positions: Tensor, radius: float | None, layers: int) -> None:
        held = entry >= 0
        self.seen = held[:, :, None] & held[:, None, :]  # [V, C, C]: column j sees column m
        if radius is not None:
            x, y = positions[entry.clamp_min(0)].unbind(-1)  # [V, C] each
            apart = (x[:, :, None] - x[:, None, :]).square_()
            apart += (y[:, :, None] - y[:, None, :]).square_()
            self.seen &= apart < radius * radius
            self.seen.diagonal(dim1=1, dim2=2).copy_(held)  # everyone sees itself, even where a position is no number
        self.level = torch.full(entry.shape, layers, device=entry.device)
        reached = entry == own[:, None]
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
    fast = kernels is not None and entry.is_cuda and positions.dtype == torch.float32
    return kernels.Sight if fast and entry.shape[1] <= kernels.MOST_COLUMNS else Sight


def nodes(views: Views, layer: int, below: Nodes | None = None) -> Nodes:
    """The work of one layer, given that of the layer below (None: the nodes below are the entries themselves).

    Two rows that read the same nodes give the same result, in whichever views they are: they become one node.
    This happens where robots hold the same stamps of a neighbourhood; without delay it leaves the work of one
    central pass. Nodes keep the order of the rows, so the nodes of low level, which the next layer asks, come
    first here too.
    """
    number = views.entry if below is None else below.number
    rows, end = views.rows[layer], views.ends[layer]
    view, column = views.row_view[:rows], views.row_column[:rows]
    start, count = views.start[:rows], views.count[:rows]
    itself = number[view, column]
    row = torch.arange(rows, device=number.device)
    # Rows that are alike stand on the same node below: where few do, looking for them costs more than it saves.
    shared = below is None or below.merged
    merged = shared and _distinct(itself) < _WORTH[number.device.type] * rows
    first, node = row, row
    if merged:
        reads = number[view.repeat_interleave(count, output_size=end), views.window[:end]]  # [E]
        first, node = _alike(itself, reads, start, count)
        lists = Lists(reads, start[first], count[first])
    else:
        lists = Lists(views.window[:end], start, count, number, view)
    above = torch.full_like(number, -1)
    above[view, column] = node
    itself = itself[first]
    asked = int(itself.max()) + 1 if shared else rows
    return Nodes(itself, asked, lists, above, merged)


def _distinct(number: Tensor) -> int:
    """How many different whole numbers, 0 or more, there are in [n]."""
    there = torch.zeros(int(number.max()) + 1, dtype=torch.bool, device=number.device)
    return int(there.index_fill_(0, number, True).sum())


def _alike(itself: Tensor, reads: Tensor, start: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Which rows are alike: the first row of each kind, ascending [n], and the kind of each row [R]."""
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


def chunks(environment: Tensor, width: int, rows: int, pairs: int) -> Iterator[slice]:
    """Runs of views of at most `rows` rows and `pairs` pairs of entries, whole environments where they fit.

    environment [V] int64, ascending; `width` entries a view.
    """
    size = max(1, min(rows // width, pairs // width**2))
    ends = torch.nonzero(environment.diff(append=environment.new_tensor([-1])))[:, 0].add(1).tolist()
    first = last = 0
    for end in ends:
        if end - first > size and last > first:
            yield slice(first, last)
            first = last
        while end - first > size:
            yield slice(first, first + size)
            first += size
        last = end
    if last > first:
        yield slice(first, last)
