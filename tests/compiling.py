"""Compiles GPU kernels for an H100 or H200 without one: prints a line for each, its name and bytes of shared memory.

A program of its own (`test_compiling` runs it): it takes the place of Triton's driver, and launches only compile.
"""

from __future__ import annotations

from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import JITFunction, driver

torch.cuda.is_available = lambda: True  # so that kernels are imported as on a GPU

from mast_swarm import explore_kernels  # noqa: E402
from mast_swarm.chance import MIXING  # noqa: E402
from mast_swarm.comms import Channel, Relay, near_kernels, wide_kernels  # noqa: E402
from mast_swarm.comms import kernels as table_kernels  # noqa: E402
from mast_swarm.model import fused, list_kernels, product_kernels, tile_kernels, trained_kernels  # noqa: E402
from mast_swarm.space import _gpu, _gpu_links  # noqa: E402
from mast_swarm.train import optimiser_kernels  # noqa: E402

HALF = torch.bfloat16
PLACES, DOUBLE = {"dtype": torch.int64}, {"dtype": torch.float64}


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


def norms(rows: int, width: int = 256) -> None:
    """The stream before the first sum, and after it; of all rows, and of some."""
    y, weight = torch.empty(rows, width, dtype=HALF), torch.empty(width)
    with torch.autocast("cpu", dtype=HALF):
        for x in (torch.empty(rows, width), y):
            for asks in (None, torch.zeros(rows, **PLACES)):
                list_kernels.add_normed(x, asks, y, weight, weight, 1e-5)


def trains(batch: int, tokens: int, heads: int = 4, width: int = 256) -> None:
    """Attention and norms of an update, both ways."""
    qkv, y = torch.empty(batch, tokens, 3 * width, dtype=HALF), torch.empty(batch, tokens, width, dtype=HALF)
    cos, label = torch.empty(batch, tokens, width // heads // 2), torch.zeros(batch, tokens, dtype=torch.int16)
    bits = fused.sight(torch.empty(batch, tokens, 2), label, 250.0)
    _, logsum = fused.attend(qkv, cos, cos, bits, heads)
    fused.attend_backward(y, qkv, cos, cos, bits, y, logsum, torch.empty(batch, 3 * width))
    rows, hidden, weight = y.flatten(0, 1), torch.empty(batch * tokens, 2 * width, dtype=HALF), torch.empty(width)
    parts = trained_kernels.parts_of(len(rows), 6 * width, rows.device)
    for total in (rows, rows.float()):  # the stream, and before the first block
        given = (weight, 1e-5, torch.empty_like(total), parts)
        trained_kernels.normed_backward(total, rows, rows, *given, 0, 2 * width)
    trained_kernels.bent_backward(hidden, hidden, 0.01, parts, 3 * width)
    trained_kernels.summed(parts[None], 2 * width, HALF)


def senses(rows: int) -> None:
    list_kernels.phases(torch.empty(1, rows, 2, dtype=torch.float64), torch.empty(16))
    numbers = (torch.empty(1, rows, 3), torch.empty(1, rows, 2), torch.zeros(1, **PLACES), torch.empty(1))
    explore_kernels.explored(*numbers, 250.0, torch.empty(1, rows, 2), 2.0, MIXING)
    edges = torch.zeros(rows * 10, **PLACES)
    _gpu_links.labels(edges, edges, 1, rows)
    _gpu_links.labels_of_nearest(torch.zeros(32, 100, 3, **PLACES))
    for share in (None, torch.empty(1, **DOUBLE)):
        box = torch.empty(1, 2), torch.empty(1, 2)
        _gpu.keys(torch.empty(1, rows, 2), *box, torch.empty(1, **DOUBLE), share, 15, torch.int32)
    _gpu.offsets(torch.empty(1, rows, 2), torch.empty(1, rows, 2), torch.zeros(1, rows, 5, **PLACES))


def learns(numbers: int, half: int) -> None:
    gradient = torch.empty(half, dtype=HALF), torch.empty(numbers - half)
    weights = [torch.empty(numbers) for _ in range(3)]
    scalars = torch.tensor(1e-3), torch.zeros(())
    optimiser_kernels.adamw(
        gradient, *weights, torch.empty(half, dtype=HALF), weights[0], *scalars, 0.1, 1.0, 0.9, (0.9, 0.999), 1e-8
    )


def lists(robots: int, columns: int, layers: int, kept: torch.Tensor | None) -> None:
    origin, table = torch.zeros(robots, columns, dtype=torch.int32), torch.zeros(layers, robots, columns, **PLACES)
    count, shape = origin[:, 0].contiguous(), (32, robots, (1 << 20) - 1)
    where = torch.zeros(robots, 2, **DOUBLE), torch.zeros(32 * robots, 2, **DOUBLE), torch.zeros(1, **DOUBLE)
    links = (torch.zeros(robots + 1, **PLACES), torch.zeros(9, **PLACES), kept)
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
    own, positions = torch.zeros(9, **PLACES), torch.zeros(9, 2)
    entry, reached = wide_kernels.levels(torch.zeros(9, columns, **PLACES), own, positions, 250.0, layers)
    qkv, phases = torch.zeros(9, 768, dtype=dtype), torch.zeros(9, 128 // heads)
    rotation = phases, phases
    for layer in range(1, layers + 1):
        given = (entry, reached, torch.zeros(layers + 1, 9, **PLACES))
        wide_kernels.rows(*given, layer, 9)
        for rows in (9, 900):
            where = (*given, positions, layer, rows, 250.0, heads)
            wide_kernels.attend(qkv[:, :256], qkv[:, 256:], rotation, *where)


if __name__ == "__main__":
    driver.set_active(Driver())
    JITFunction.__getitem__ = compiled
    product_kernels._room = lambda device: 227 * 1024
    for rows in (1_000, 1_000_000):
        feeds(rows)
    for heads in (2, 4, 8):
        attends(1_000_000, heads)
    norms(1_000_000)
    for tokens in (16, 100, 200):
        trains(128, tokens)
    senses(1_000_000)
    learns(2_400_000, 2_100_032)
    lists(1000, 448, 1, None)
    lists(1000, 704, 2, torch.ones(9, dtype=torch.bool))
    views(360, 4, HALF)
    for heads in (1, 2):
        views(360, heads, HALF, layers=2)
    views(700, 8, torch.float32)
    table(100, 100, 0.0)
    table(1, 1000, 0.1)
    views(100, 4, HALF)
