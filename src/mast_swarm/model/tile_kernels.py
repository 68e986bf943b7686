"""Attention of a large team by tiles on a GPU (Triton): tokens that lie near each other look around together.

Tokens are sorted by their cells, which are as wide as the window. So all that a token may attend to lies in three runs,
one for each row of cells next to it, and a tile of tokens that follow each other has much the same runs. A program
reads the keys and values of a tile's runs once, for all its queries, and multiplies on tensor cores; who is near whom
is decided pair by pair, from the places. Neighbour lists are not needed. Each query is read by one program, which turns
it by its phases (RoPE); keys are read by many, and have been turned before.
"""

# ruff: noqa: RUF005 (Triton adds tuples, and knows no star)
# mypy: disable-error-code="assignment, var-annotated"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mast_swarm.model.encoding import Rotation
from mast_swarm.model.list_kernels import looked, turned_aside
from mast_swarm.space._gpu import apart

# Tokens of a tile, keys at a time, warps of a program; heads of a program, at most. (1,000,000 tokens of 4 heads of 64
# on an H200 take 1.15 ms; with 32 keys at a time 1.20, in tiles of 32 tokens 1.79, in tiles of 64 1.98 or more.)
_QUERIES, _KEYS, _WARPS = 16, 16, 1
_EACH = 2
_LEAST = 1e-37  # of a squared radius, m^2: everyone is nearer than this to itself
_LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def _hull(begin, end, r, there, rows):
    """From where to where one of the three runs of any row lies, those that are empty left out."""
    first = tl.load(begin + 3 * r, mask=there, other=0).to(tl.int32)
    last = tl.load(end + 3 * r, mask=there, other=0).to(tl.int32)
    return tl.min(tl.where(last > first, first, rows), 0), tl.max(tl.where(last > first, last, 0), 0)


@triton.jit(do_not_specialize=["tokens"])
def _attend_tiles(
    q, kv, cos, sin, place, label, begin, end, answer, rows, tokens, q_stride, kv_stride, scale, squared,
    LABELLED: tl.constexpr, TEAMS: tl.constexpr, HEADS: tl.constexpr, EACH: tl.constexpr, D: tl.constexpr,
    QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    """EACH heads of one tile, which share the work of finding who is near whom.

    Beyond the last key that one is read again, and nobody is near it.
    """
    WIDTH: tl.constexpr = HEADS * D
    tile, part = tl.program_id(0) // (HEADS // EACH), tl.program_id(0) % (HEADS // EACH)
    r = tile * QUERIES + tl.arange(0, QUERIES)
    there = r < rows
    x, y = tl.load(place + 2 * r, mask=there, other=0.0), tl.load(place + 2 * r + 1, mask=there, other=0.0)
    own = tl.load(label + r, mask=there, other=0) if LABELLED else r
    team = r // tokens if TEAMS else r
    wide = tl.arange(0, D)
    first = (tile * QUERIES).to(tl.int64)
    q += first * q_stride + part * (EACH * D)
    answer += first * WIDTH + part * (EACH * D)
    kv += part * (EACH * D)
    row = tl.arange(0, QUERIES)[:, None]
    asked = row * q_stride + wide[None, :]
    if cos is not None:
        phase = first * (D // 2) + row * (D // 2) + tl.arange(0, D // 2)[None, :]
        c = tl.load(cos + phase, mask=there[:, None], other=0.0)
        s = tl.load(sin + phase, mask=there[:, None], other=0.0)
    given = ()
    for head in tl.static_range(EACH):
        given = given + (tl.load(q + head * D + asked, mask=there[:, None], other=0.0),)
    tl.debug_barrier()  # or the compiler reads queries after the runs, and waits twice
    # A tile may begin in one row of cells, or environment, and end in another. Then what its tokens see of the row
    # before theirs, of their own and of the next may overlap, and nobody counts twice: of the first what lies before
    # the second is looked at, and of the third what lies behind it. A token's first run ends before its second does,
    # and its third begins after its second does, so that nobody is left out.
    before, end_before = _hull(begin, end, r, there, rows)
    middle, end_middle = _hull(begin + 1, end + 1, r, there, rows)
    behind, end_behind = _hull(begin + 2, end + 2, r, there, rows)
    behind = tl.maximum(behind, end_middle)
    # What is left of the three is looked at as one list of keys: before `one` of the first, before `two` of the second.
    one = tl.maximum(tl.minimum(end_before, middle) - before, 0)
    two = one + end_middle - middle
    every = two + tl.maximum(end_behind - behind, 0)
    queries, highest, total, found = (), (), (), ()
    for head in tl.static_range(EACH):
        query = given[head]
        if cos is not None:
            query = turned_aside(query, c, s, rows)
        queries = queries + (query,)
        highest = highest + (tl.full([QUERIES], -1e30, tl.float32),)
        total = total + (tl.zeros([QUERIES], tl.float32),)
        found = found + (tl.zeros([QUERIES, D], tl.float32),)
    for start in range(0, every, KEYS):
        key = start + tl.arange(0, KEYS)
        limit = tl.where(key < every, squared, 0.0)
        key = tl.minimum(key, every - 1)
        at = key + tl.where(key < one, before, tl.where(key < two, middle - one, behind - two))
        x2 = tl.load(place + 2 * at)
        y2 = tl.load(place + 2 * at + 1)
        near = apart(x2[None, :], y2[None, :], x[:, None], y[:, None]) < limit[None, :]
        if TEAMS:
            near = near & (team[:, None] == (at // tokens)[None, :])
        if LABELLED:
            near = near & (own[:, None] == tl.load(label + at)[None, :])
        bias = tl.where(near, 0.0, float("-inf"))
        source = kv + at.to(tl.int64)[:, None] * kv_stride + wide[None, :]
        above, sums, sights = (), (), ()
        for head in tl.static_range(EACH):
            keys = tl.load(source + head * D)
            values = tl.load(source + WIDTH + head * D)
            top, weight, seen = looked(
                queries[head], keys, values, scale * _LOG2E, bias, highest[head], total[head], found[head]
            )
            above, sums, sights = above + (top,), sums + (weight,), sights + (seen,)
        highest, total, found = above, sums, sights
    into = row * WIDTH + wide[None, :]
    for head in tl.static_range(EACH):
        sight = found[head] * (1.0 / tl.where(there, total[head], 1.0))[:, None]
        tl.store(answer + head * D + into, sight.to(answer.dtype.element_ty), mask=there[:, None])


def takes(heads: int, head_dim: int) -> bool:
    """Whether `attend_tiles` takes heads of this width."""
    powers = heads & (heads - 1) == 0 and head_dim & (head_dim - 1) == 0
    return powers and 16 <= head_dim <= 128


def attend_tiles(
    q: Tensor, kv: Tensor, rotation: Rotation | None, place: Tensor, label: Tensor | None, begin: Tensor, end: Tensor,
    tokens: int, squared: float, heads: int,
) -> Tensor:  # fmt: skip
    """What each of n rows gathers from those nearer than the radius, of one label and of one environment, and itself.

    q [n, d], kv [n, 2 d] keys then values, each head by head, in half precision; rotation: the phases [n, d_a/2] that
    queries are turned by here, and keys have been (None: by nothing); place [n, 2] metres and label [n] (None: no
    labels) in the same order: by environment, of `tokens` rows each, then by cells; begin, end [n, 3] the three runs of
    rows that hold all near a row, ascending; squared: of the radius -> [n, d].
    """
    n, d = q.shape
    answer = torch.empty((n, d), dtype=q.dtype, device=q.device)
    each = min(heads, _EACH if d // heads <= 64 else 1)  # wider ones find no room in registers
    cos, sin = (None, None) if rotation is None else (table.contiguous() for table in rotation)
    _attend_tiles[(triton.cdiv(n, _QUERIES) * (heads // each),)](
        q, kv, cos, sin, place, place if label is None else label, begin, end, answer, n, tokens,
        q.stride(0), kv.stride(0), (d // heads) ** -0.5, max(squared, _LEAST),
        LABELLED=label is not None, TEAMS=tokens < n, HEADS=heads, EACH=each, D=d // heads, QUERIES=_QUERIES,
        KEYS=_KEYS, num_warps=_WARPS, num_stages=2, enable_fp_fusion=False,
    )  # fmt: skip
    return answer
