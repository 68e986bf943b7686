"""The decision of robots that know hundreds of others, on a GPU.

What is computed is what `comms.views` says: in layer l a robot's view needs the rows of level <= L - l, where the level
of an entry counts the attention windows between it and the robot. Here the rows of a view lie together, in the order of
their level, so that the rows of a layer are the first of the view's rows in the layer below. Levels are found from the
robot outwards, comparing entries with those of the last level alone, and attention tells by distance who sees whom: no
matrix of pairs and no list of windows is ever in memory.

Of a view with K entries, some n_1 > n_2 > ... > n_L = 1 rows are computed. At 100 robots per square kilometre MAST-M
(L = 4, windows of 250 m) has K = 311 and n = 136, 65, 20, 1 (`python -m benchmarks.alone`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from mast_swarm import steady
from mast_swarm.kernels import USABLE, on_gpu
from mast_swarm.model.encoding import Rotation
from mast_swarm.model.lists import keys_turned
from mast_swarm.model.mast import Block
from mast_swarm.model.policy import Policy

kernels: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.comms import wide_kernels as kernels

NARROW = 128  # entries up to which a view is left to `comms.views`
ROWS = 2_000_000  # of the first layer that are worked on at a time
_FEW = 512  # robots of an environment up to which all they know fits in the cache, whatever the order of their views


def takes(entry: Tensor, positions: Tensor, policy: Policy) -> bool:
    """Whether views [V, C] of entries at positions [U, 2] metres are decided here: steady work is where it can be, for
    nothing here depends on what others a robot has heard of but how many rows there are."""
    config = policy.config
    large = entry.shape[1] > NARROW and config.attention_radius is not None
    if not on_gpu(entry) or positions.dtype != torch.float32 or not (large or steady.running()):
        return False
    return fits(config.width, config.heads) and entry.shape[1] <= kernels.MOST_COLUMNS


def fits(width: int, heads: int) -> bool:
    """Whether there are kernels here for a policy of this width."""
    return kernels is not None and kernels.fits(width, heads)


@dataclass(frozen=True)
class Part:
    """Some views that are worked on together: `entry` [V, C] in the order of their level, how many are of level 0..L or
    lower, `reached` [L + 1, V] int32, where each view's rows of these levels begin, `begin` [L + 1, V] int64, and how
    many rows there are over all of them, `rows` [L]; in steady work at most so many."""

    views: slice
    entry: Tensor
    reached: Tensor
    begin: Tensor
    rows: list[int]


def decide(
    policy: Policy,
    x: Tensor,
    h: Tensor,
    rotation: Rotation | None,
    entry: Tensor,
    own: Tensor,
    positions: Tensor,
    robots: int,
) -> Tensor:
    """Predictions of the robots whose views are entry [V, C] and own entries own [V], [V, outputs]; 0 where there is
    none.

    x [U, d], its norm h [U, d], rotation [U, d_a/2] and positions [U, 2] are those of the entries. robots: of an
    environment.
    """
    config, blocks = policy.config, cast(list[Block], list(policy.mast.blocks))
    layers, radius = config.layers, math.inf if config.attention_radius is None else config.attention_radius
    prediction = torch.zeros(len(entry), policy.outputs, dtype=policy.dtype, device=entry.device)
    positions, order = positions.contiguous(), None
    if robots > _FEW:
        order = _by_place(positions[own], radius, robots)
        entry, own = entry[order], own[order]
    first = keys_turned(blocks[0].attention, h, rotation, torch.arange(len(h), device=h.device))
    for part in _parts(*kernels.levels(entry, own, positions, radius, layers)):
        y, (q, kv) = x, first
        for layer, block in enumerate(blocks, start=1):
            given, count = (part.entry, part.reached, part.begin), part.rows[layers - layer]
            itself, of = kernels.rows(*given, layer, count)
            answer = kernels.attend(q, kv, rotation, *given, positions, layer, count, radius, config.heads)
            y, added = block.after_attention(y, answer, itself)
            if layer < layers:
                y, h = blocks[layer].before_attention(y, added)
                # Queries of rows that the next layer does not ask too: a twentieth of the work, in one product.
                q, kv = keys_turned(blocks[layer].attention, h, rotation, of)
        found = policy.act(policy.mast.final(y, added))  # of the robots themselves
        alone = found[part.begin[0].clamp_max(len(found) - 1)].where(part.reached[0, :, None] > 0, 0)
        prediction[part.views if order is None else order[part.views]] = alone
    return prediction


def _by_place(positions: Tensor, side: float, robots: int) -> Tensor:
    """The order of points [V, 2] metres, one environment of so many robots after the other, along a curve that fills
    the plane cell by cell (Z-order), [V] int64: views that are worked on at about the same time then read the same
    rows, from the cache."""
    cell = ((positions - positions.amin(0)) / side).nan_to_num(0.0).clamp(0, 2**16 - 1).long()
    for shift in (8, 4, 2, 1):  # the 16 bits of either number move apart
        cell = (cell | cell << shift) & sum(((1 << shift) - 1) << n for n in range(0, 32, 2 * shift))
    environment = torch.arange(len(cell), device=cell.device) // robots
    return (cell[:, 0] | cell[:, 1] << 1 | environment << 32).argsort()


def _parts(entry: Tensor, reached: Tensor) -> Iterator[Part]:
    """The views [V, C], as `levels` gives them, in parts of about so many rows that memory holds. The device is asked
    how many rows there are, and before that into how many parts they go, where there may be many."""
    (views, columns), each = entry.shape, len(entry)
    ends = reached.cumsum(1)  # [L + 1, V] int64
    if views * columns > ROWS:
        each = steady.answer(lambda: max(1, -(-views * ROWS // max(ROWS, int(ends[-2, -1])))))
    last = torch.arange(each, views + each, each, device=entry.device).clamp_max(views) - 1
    total = ends[:-1, last].diff(dim=1, prepend=ends.new_zeros(len(ends) - 1, 1))  # [L, P]
    limits = [each if level == 0 else each * columns for level in range(len(total)) for _ in range(len(last))]
    rooms, most = steady.rooms_for(total.flatten(), limits, [steady.MORE] * len(limits))
    begin = ends - reached
    for n in range(len(last)):
        part, rows = slice(n * each, min((n + 1) * each, views)), rooms[n :: len(last)]
        those, first = reached[:, part], begin[:, part] - begin[:, n * each, None]
        if most is not None:  # what finds no room is left out, and nothing is read or written beyond it
            first = torch.cat((first[:-1].minimum(most[n :: len(last), None]), first[-1:]))
            fits = (most[n :: len(last), None] - first[:-1]).to(those.dtype)
            those = torch.cat((those[:-1].minimum(fits), those[-1:]))
            those = those.flip(0).cummin(0).values.flip(0)  # a row that is left out is none of the layers above either
        if rows[0]:  # somebody is alive here
            yield Part(part, entry[part], those, first, rows)
