"""The processes of one training run, as torchrun starts them: which one this is, and how they agree."""

from __future__ import annotations

import torch
import torch.distributed as dist


class Processes:
    """All processes of a run, or the only one. Number 0 writes what is shared."""

    def __init__(self) -> None:
        joined = dist.is_initialized()
        self.rank, self.count = (dist.get_rank(), dist.get_world_size()) if joined else (0, 1)
        self.first = self.rank == 0
        self._flags = dist.new_group(backend="gloo") if self.count > 1 else None  # for questions on the host

    def meet(self) -> None:
        """Wait for the other processes."""
        if self.count > 1:
            dist.barrier()

    def agreed(self, asked: int) -> int:
        """The most that any process asks for: all do it, in the same step."""
        if self._flags is None:
            return int(asked)
        flag = torch.tensor(int(asked))
        dist.all_reduce(flag, dist.ReduceOp.MAX, group=self._flags)
        return int(flag)
