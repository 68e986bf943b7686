"""Who sees whom in each robot's view, on the CPU: what `views.Sight` finds, without a matrix in plain torch."""

from __future__ import annotations

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mast_swarm.threads import compiled


class Sight:
    """As `views.Sight`."""

    def __init__(self, entry: Tensor, own: Tensor, positions: Tensor, radius: float | None, layers: int) -> None:
        self.entry = entry
        self.level = torch.empty_like(entry)
        self._seen = np.empty((*entry.shape, entry.shape[1]), np.bool_)  # [V, C, C], of rows alone
        self._count = torch.empty_like(entry)
        places = positions.numpy()
        squared = places.dtype.type(np.inf if radius is None else radius * radius)
        into = self.level.numpy(), self._seen, self._count.numpy()
        with compiled():
            _look(entry.numpy(), own.numpy(), places, radius is not None, squared, layers, *into)

    def windows(self, view: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
        """As `views.Sight.windows`."""
        count = self._count[view, column]
        ends = count.cumsum(0)
        window = torch.empty(int(ends[-1]) if len(ends) else 0, dtype=torch.int64)
        with compiled():
            _list(self._seen, view.numpy(), column.numpy(), (ends - count).numpy(), window.numpy())
        return window, count


@njit(cache=True, nogil=True, parallel=True)
def _look(entry, own, positions, windowed, squared, layers, level, seen, count):
    """Level by level outwards from each robot's own entry. A row of `seen`, and its `count`, is filled when its entry
    is reached: those of entries that are never reached hold anything."""
    views, columns = entry.shape
    for v in prange(views):
        x = np.empty(columns, positions.dtype)
        y = np.empty(columns, positions.dtype)
        queue = np.empty(columns, np.int64)
        begin, end = 0, 0
        for c in range(columns):
            at = entry[v, c]
            x[c] = positions[at, 0] if at >= 0 else np.nan
            y[c] = positions[at, 1] if at >= 0 else np.nan
            level[v, c] = layers
            if at >= 0 and at == own[v]:
                level[v, c] = 0
                queue[end] = c
                end += 1
        for windows in range(layers):
            reached = end
            for q in range(begin, reached):
                c = queue[q]
                row = seen[v, c]
                for m in range(columns):
                    if windowed:
                        dx, dy = x[c] - x[m], y[c] - y[m]
                        row[m] = dx * dx + dy * dy < squared
                    else:
                        row[m] = entry[v, m] >= 0
                row[c] = True  # everyone sees itself, even where a position is no number
                found = 0
                for m in range(columns):
                    found += row[m]
                count[v, c] = found
                if windows + 1 < layers:
                    for m in range(columns):
                        if row[m] and level[v, m] == layers:
                            level[v, m] = windows + 1
                            queue[end] = m
                            end += 1
            begin = reached


@njit(cache=True, nogil=True, parallel=True)
def _list(seen, view, column, start, window):
    for r in prange(len(view)):
        row = seen[view[r], column[r]]
        at = start[r]
        for m in range(len(row)):
            if row[m]:
                window[at] = m
                at += 1
