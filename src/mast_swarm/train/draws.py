"""Which samples an epoch learns from: numbers in [0, 1) that `Replay.draw` turns into batches."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from mast_swarm.train.config import TrainConfig


def draws(config: TrainConfig, epoch: int, rank: int, processes: int, device: torch.device) -> Iterator[Tensor]:
    """What chooses the batches [batch / processes] of an epoch in process `rank`, the same however the run came here.

    They are drawn at random from a replay that grows; where all samples are there, each pass takes each once.
    """
    seed = int(np.random.default_rng([config.seed, epoch, rank, 1]).integers(2**62))
    shape = (config.updates_an_epoch(processes), config.batch // processes)
    generator = torch.Generator().manual_seed(seed)
    if not config.collect:
        return iter(torch.rand(shape, generator=generator, dtype=torch.float64).to(device))
    samples, used = config.gathered(processes), shape[0] // config.updates * shape[1]
    passes = [torch.randperm(samples, generator=generator)[:used] for _ in range(config.updates)]
    # Where in a sample's share of [0, 1): it chooses the mirror image. Off the borders by more than rounding.
    inside = torch.rand(shape[0] * shape[1], generator=generator, dtype=torch.float64) * (1 - 2e-6) + 1e-6
    return iter(((torch.cat(passes) + inside) / samples).view(shape).to(device))
