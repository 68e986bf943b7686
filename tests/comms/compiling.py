"""Compiles the GPU kernels of the relay, of lists and of wide views for an H100 or H200 without one: prints a line for
each, its name and bytes of shared memory.

A program of its own (`test_compiled` runs it): it takes the place of Triton's driver, and launches only compile.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

torch.cuda.is_available = lambda: True  # so that kernels are imported as on a GPU

from mast_swarm.comms import Channel, Relay, near_kernels, wide_kernels  # noqa: E402
from mast_swarm.comms import kernels as table_kernels  # noqa: E402

LONG, DOUBLE = {"dtype": torch.int64}, {"dtype": torch.float64}


class Driver:
    """What Triton asks of a driver to compile."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int = 0) -> int:
        return 0


def compiled(self: JITFunction, grid: Any) -> Any:
    def launch(*given: Any, **more: Any) -> None:
        made = self.run(*given, grid=grid, warmup=True, **more)
        print(self.__name__, made.metadata.shared, flush=True)

    return launch


def lists(robots: int, columns: int, layers: int, kept: torch.Tensor | None) -> None:
    origin, table = torch.zeros(robots, columns, dtype=torch.int32), torch.zeros(layers, robots, columns, **LONG)
    count, shape = origin[:, 0].contiguous(), (32, robots, (1 << 20) - 1)
    where = torch.zeros(robots, 2, **DOUBLE), torch.zeros(32 * robots, 2, **DOUBLE), torch.zeros(1, **DOUBLE)
    links = (torch.zeros(robots + 1, **LONG), torch.zeros(9, **LONG), kept)
    met = near_kernels.meet(links, (origin, table[0], count), where, 64, shape)
    near_kernels.merge(origin, table, count, met, robots)
    near_kernels.keep(origin, table, where, 0, shape, 20)
    near_kernels.mark(origin, table, torch.zeros(32 * robots, dtype=torch.uint8), shape)
    alive = torch.ones(robots, dtype=torch.bool)
    near_kernels.hold((origin, table[0]), alive, torch.zeros(32 * robots, 2), 1001.0, shape)


def table(environments: int, robots: int, loss: float) -> None:
    state = Relay(Channel(1.0), 1.0).start(range(environments), robots, 256)
    table_kernels.sample(state, state.messages[:, 0], state.positions[:, 0], 20)
    heard = torch.zeros(environments, robots, robots, dtype=torch.bool)
    table_kernels.hop(state, heard, [state.chance], loss)


def views(columns: int, heads: int, dtype: torch.dtype, layers: int = 4) -> None:
    own, positions = torch.zeros(9, **LONG), torch.zeros(9, 2)
    entry, reached = wide_kernels.levels(torch.zeros(9, columns, **LONG), own, positions, 250.0, layers)
    qkv = torch.zeros(9, 768, dtype=dtype)
    for layer in range(1, layers + 1):
        given = (entry, reached, torch.zeros(layers + 1, 9, **LONG))
        wide_kernels.rows(*given, layer, 9)
        for rows in (9, 900):
            wide_kernels.attend(qkv[:, :256], qkv[:, 256:], *given, positions, layer, rows, 250.0, heads)


if __name__ == "__main__":
    driver.set_active(Driver())
    JITFunction.__getitem__ = compiled
    lists(1000, 448, 1, None)
    lists(1000, 704, 2, torch.ones(9, dtype=torch.bool))
    table(100, 100, 0.0)
    table(1, 1000, 0.1)
    views(100, 4, torch.bfloat16)
    views(360, 4, torch.bfloat16)
    views(700, 8, torch.float32)
