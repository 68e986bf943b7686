"""Compiles GPU kernels for an H100 or H200 without one: prints a line for each, its name and bytes of shared memory.

A program of its own (`test_compiling` runs it): it takes the place of Triton's driver, and launches only compile.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

torch.cuda.is_available = lambda: True  # so that kernels are imported as on a GPU

from mast_swarm import explore_kernels  # noqa: E402
from mast_swarm.chance import MIXING  # noqa: E402
from mast_swarm.model import list_kernels, product_kernels, tile_kernels  # noqa: E402
from mast_swarm.space import _gpu  # noqa: E402
from mast_swarm.train import optimiser_kernels  # noqa: E402

HALF = torch.bfloat16
PLACES = {"dtype": torch.int64}


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


def feeds(rows: int) -> None:
    """The layers of mast-m: of a block, of perception and of the head."""
    for inputs, outputs in ((256, 256), (14, 256), (256, 3)):
        weights = (torch.empty(512, inputs), torch.empty(512), torch.empty(outputs, 512), torch.empty(outputs))
        product_kernels.feed(torch.empty(rows, inputs), *(weight.to(HALF) for weight in weights), 0.01)


def attends(rows: int, heads: int, width: int = 256) -> None:
    qkv, runs = torch.empty(rows, 3 * width, dtype=HALF), torch.zeros(rows, 3, **PLACES)
    rotation = torch.empty(rows, width // heads // 2), torch.empty(rows, width // heads // 2)
    given = (qkv[:, :width], qkv[:, width:], rotation, torch.empty(rows, 2), torch.zeros(rows, **PLACES), runs, runs)
    tile_kernels.attend_tiles(*given, rows, 62500.0, heads)


def senses(rows: int) -> None:
    list_kernels.phases(torch.empty(1, rows, 2, dtype=torch.float64), torch.empty(16))
    numbers = (torch.empty(1, rows, 3), torch.empty(1, rows, 2), torch.zeros(1, **PLACES), torch.empty(1))
    explore_kernels.explored(*numbers, 250.0, torch.empty(1, rows, 2), 2.0, MIXING)
    edges = torch.zeros(rows * 10, **PLACES)
    _gpu.labels(edges, edges, 1, rows)
    _gpu.offsets(torch.empty(1, rows, 2), torch.empty(1, rows, 2), torch.zeros(1, rows, 5, **PLACES))


def learns(numbers: int, half: int) -> None:
    gradient = torch.empty(half, dtype=HALF), torch.empty(numbers - half)
    weights = [torch.empty(numbers) for _ in range(3)]
    scalars = torch.tensor(1e-3), torch.zeros(())
    optimiser_kernels.adamw(
        gradient, *weights, torch.empty(half, dtype=HALF), weights[0], *scalars, 0.1, 1.0, 0.9, (0.9, 0.999), 1e-8
    )


if __name__ == "__main__":
    driver.set_active(Driver())
    JITFunction.__getitem__ = compiled
    product_kernels._room = lambda device: 227 * 1024
    print("triton", triton.__version__)
    for rows in (1_000, 1_000_000):
        feeds(rows)
    for heads in (2, 4, 8):
        attends(1_000_000, heads)
    senses(1_000_000)
    learns(2_400_000, 2_100_032)
