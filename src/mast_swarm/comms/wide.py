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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from mast_swarm.kernels import USABLE, on_gpu
from mast_swarm.model.encoding import Rotation
from mast_swarm.model.lists import projected
from mast_swarm.model.mast import Block
from mast_swarm.model.policy import Policy

kernels: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.comms import wide_kernels as kernels

NARROW = 128  # entries up to which a view is left to `comms.views`
ROWS = 2_000_000  # of the first layer that are worked on at a time


def takes(entry: Tensor, positions: Tensor, policy: Policy) -> bool:
    """Whether views [V, C] of entries at positions [U, 2] metres are decided here."""
    config = policy.config
    wide = kernels is not None and on_gpu(entry) and entry.shape[1] > NARROW and config.attention_radius is not None
    return wide and kernels.takes(entry, positions, config.width, config.heads)


@dataclass(frozen=True)
class Part:
    """Some views that are worked on together: `entry` [V, C] in the order of their level, how many are of level 0..L or
    lower, `reached` [V, L + 1] int32, and how many rows that is over all of them, `rows` [L + 1]."""

    views: slice
    entry: Tensor
    reached: Tensor
    rows: list[int]

    def begin(self, level: int) -> Tensor:
        """Where each view's rows begin among those of this level and lower ones, [V] int64."""
        count = self.reached[:, level]
        return count.cumsum(0) - count

    def listed(self, level: int) -> tuple[Tensor, Tensor]:
        """The rows of this level and lower ones: each one's view, and its place among the view's, [rows] int64."""
        count = self.reached[:, level]
        view = torch.repeat_interleave(count, output_size=self.rows[level])
        every = torch.arange(self.rows[level], device=count.device)
        return view, every - self.begin(level)[view]


def decide(
    policy: Policy,
    x: Tensor,
    first: tuple[Tensor, Tensor],
    rotation: Rotation | None,
    entry: Tensor,
    own: Tensor,
    positions: Tensor,
) -> Tensor:
    """Predictions of the robots whose views are entry [V, C] and own entries own [V], [V, outputs]; 0 where there is
    none.

    x [U, d], first (queries [U, d], keys and values [U, 2 d]), rotation [U, d_a/2] and positions [U, 2] are those of
    the entries.
    """
    config, blocks = policy.config, cast(list[Block], list(policy.mast.blocks))
    radius, layers = config.attention_radius, config.layers
    assert radius is not None
    prediction = torch.zeros(len(entry), policy.outputs, dtype=policy.dtype, device=entry.device)
    order, positions = _by_place(positions[own], radius), positions.contiguous()
    for part in _parts(*kernels.levels(entry[order], own[order], positions, radius, layers)):
        views, below = (part.entry, part.reached, positions), part.begin(layers)
        y, (q, kv), of = x, first, torch.empty(0)
        for layer, block in enumerate(blocks, start=1):
            level, count = layers - layer, part.rows[layers - layer]
            view, place = part.listed(level)
            itself = part.entry[view, place] if layer == 1 else below[view] + place
            of = itself if layer == 1 else of[itself]  # the entry that each row stands for
            above = part.begin(level)
            answer = kernels.attend(q, kv, views, (above, below), layer, count, radius, config.heads)
            y, added = block.after_attention(y, answer, itself)
            below = above
            if layer < layers:
                y, h = blocks[layer].before_attention(y, added)
                # Queries of rows that the next layer does not ask too: a twentieth of the work, in one product.
                q, kv = projected(blocks[layer].attention, h, count, rotation, of)
        prediction[order[part.views.start + view]] = policy.act(policy.mast.final(y, added))
    return prediction


def _by_place(positions: Tensor, side: float) -> Tensor:
    """The order of points [V, 2] metres along a curve that fills the plane cell by cell (Z-order), [V] int64: views
    that are worked on at about the same time then read the same rows, from the cache."""
    cell = ((positions - positions.amin(0)) / side).nan_to_num(0.0).clamp(0, 2**16 - 1).long()
    for shift in (8, 4, 2, 1):  # the 16 bits of either number move apart
        cell = (cell | cell << shift) & sum(((1 << shift) - 1) << n for n in range(0, 32, 2 * shift))
    return (cell[:, 0] | cell[:, 1] << 1).argsort()


def _parts(entry: Tensor, reached: Tensor) -> Iterator[Part]:
    """The views [V, C], as `levels` gives them, in parts of about so many rows that memory holds. The device is asked
    once how many there are."""
    rows = reached.sum(0, dtype=torch.int64)
    each = max(1, -(-len(entry) * ROWS // max(ROWS, int(rows[-2]))))
    last = torch.arange(each, len(entry) + each, each, device=entry.device).clamp_max(len(entry)) - 1
    ends = reached.cumsum(0, dtype=torch.int64)[last]
    for n, count in enumerate(ends.diff(dim=0, prepend=torch.zeros_like(ends[:1])).tolist()):
        views = slice(n * each, min((n + 1) * each, len(entry)))
        if count[0]:  # somebody is alive here
            yield Part(views, entry[views], reached[views], count)
