"""Who sees whom in every robot's view, on a GPU (Triton).

Plain torch makes a pair-by-pair matrix of every view to find windows; here distances live in registers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from mast_swarm.model.list_kernels import apart


@triton.jit
def _levels(
    entry, own, positions, level, count, columns, squared,
    LAYERS: tl.constexpr, WINDOWED: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """One view: how many windows each entry is away from the robot itself, and how many entries its window holds."""
    view = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    e = tl.load(entry + view * columns + column, mask=column < columns, other=-1)
    held = e >= 0
    sees = held[:, None] & held[None, :]
    if WINDOWED:
        x = tl.load(positions + 2 * e, mask=held, other=0.0)
        y = tl.load(positions + 2 * e + 1, mask=held, other=0.0)
        near = apart(x[:, None], y[:, None], x[None, :], y[None, :]) < squared
        sees = sees & (near | (column[:, None] == column[None, :]))
    reached = held & (e == tl.load(own + view))
    away = tl.full([COLUMNS], LAYERS, tl.int32)
    for windows in range(LAYERS):
        away = tl.where(reached & (away == LAYERS), windows, away)
        reached = tl.max((sees & reached[None, :]).to(tl.int32), 1) > 0
    at = view * columns + column
    tl.store(level + at, away, mask=column < columns)
    tl.store(count + at, tl.sum(sees.to(tl.int32), 1), mask=column < columns)


@triton.jit
def _windows(
    entry, positions, view, column, start, window, columns, squared, WINDOWED: tl.constexpr, COLUMNS: tl.constexpr
):
    """One row: the columns in its window, ascending."""
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
    place = tl.cumsum(sees.to(tl.int32), 0) - 1
    tl.store(window + tl.load(start + r) + place, other, mask=sees)


MOST_COLUMNS = 128  # of a view that one program holds


class Sight:
    """As `views.Sight`, for views of at most MOST_COLUMNS entries at positions in fp32; the matrix is never kept."""

    def __init__(self, entry: Tensor, own: Tensor, positions: Tensor, radius: float | None, layers: int) -> None:
        self.entry, self.positions = entry.contiguous(), positions.contiguous()
        self.squared, self.windowed = (0.0, False) if radius is None else (radius * radius, True)
        self.columns = max(16, triton.next_power_of_2(entry.shape[1]))
        self.level, self.count = (torch.empty(entry.shape, dtype=torch.int32, device=entry.device) for _ in range(2))
        _levels[(len(entry),)](
            self.entry, own, self.positions, self.level, self.count, entry.shape[1], self.squared,
            LAYERS=layers, WINDOWED=self.windowed, COLUMNS=self.columns, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip

    def windows(self, view: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """As there: [E] int32 and [R] int64."""
        count = self.count[view, column].long()
        ends = count.cumsum(0)
        window = torch.empty(int(ends[-1]), dtype=torch.int32, device=count.device)
        _windows[(len(view),)](
            self.entry, self.positions, view, column, ends - count, window, self.entry.shape[1], self.squared,
            WINDOWED=self.windowed, COLUMNS=self.columns, num_warps=1, enable_fp_fusion=False,
        )  # fmt: skip
        return window, count
