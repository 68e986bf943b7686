"""The replay: a ring of past samples, each one environment at one instant, kept on the training device."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch
from torch import Tensor

from mast_swarm.errors import MastError

Layout = Mapping[str, tuple[tuple[int, ...], torch.dtype]]  # field -> shape of one sample, dtype


class Replay:
    """Fields [copies * capacity, ...]. How much is filled is a tensor too, so that pushing and drawing can be captured.

    copies: there are so many replays in one, each with its own samples, which are pushed and drawn at the same places.
    """

    def __init__(self, layout: Layout, capacity: int, device: torch.device, copies: int = 1) -> None:
        self.capacity, self.copies = capacity, copies
        size = copies * capacity * sum(torch.Size(shape).numel() * kind.itemsize for shape, kind in layout.values())
        if size > 0.8 * _memory(device):
            raise MastError(
                f"a replay of {copies * capacity} samples needs {size / 1e9:.1f} GB and {device.type} memory has "
                f"{_memory(device) / 1e9:.1f} GB: lower --{'replay' if copies == 1 else 'together'}"
            )
        self.fields = {
            name: torch.zeros((copies * capacity, *shape), dtype=kind, device=device)
            for name, (shape, kind) in layout.items()
        }
        self.pushed = torch.zeros((), dtype=torch.int64, device=device)  # samples ever pushed to each copy
        self.first = capacity * torch.arange(copies, device=device)[:, None]  # place of each copy

    @property
    def nbytes(self) -> int:
        """Bytes held."""
        return sum(field.nbytes for field in self.fields.values())

    def push(self, sample: Mapping[str, Tensor]) -> None:
        """Add B samples to each copy, each field [copies * B, ...], over the oldest ones."""
        count = next(iter(sample.values())).shape[0] // self.copies
        slots = (self.pushed + torch.arange(count, device=self.pushed.device)) % self.capacity
        places = (self.first + slots).flatten()
        for name, field in self.fields.items():
            field.index_copy_(0, places, sample[name].to(field.dtype))
        self.pushed += count

    def draw(self, uniform: Tensor, before: int = 0) -> dict[str, Tensor]:
        """The samples that numbers in [0, 1) choose: uniform [n] float64 -> fields [copies * n, ...].

        (float32 has too few numbers for a replay of a million.)

        `before` asks for the choice as it was that many pushed samples ago.
        """
        filled = (self.pushed - before if before else self.pushed).clamp(max=self.capacity)
        chosen = (self.first + (uniform * filled).long().clamp(max=filled - 1)).flatten()
        return {name: field.index_select(0, chosen) for name, field in self.fields.items()}

    def left(self, uniform: Tensor) -> Tensor:
        """What the choice of samples leaves of the numbers, again in [0, 1): chance for one more, coarser choice."""
        return (uniform * self.pushed.clamp(max=self.capacity)).frac().repeat(self.copies)

    def tensors(self) -> dict[str, Tensor]:
        """What is filled, by name, for a checkpoint."""
        filled = min(int(self.pushed), self.capacity)
        found = {name: self._by_copy(field)[:, :filled].flatten(0, 1) for name, field in self.fields.items()}
        return found | {"pushed": self.pushed}

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take up what `tensors()` gave."""
        for name, field in self.fields.items():
            kept = self._by_copy(tensors[name])
            self._by_copy(field)[:, : kept.shape[1]].copy_(kept)
        self.pushed.copy_(tensors["pushed"])

    def _by_copy(self, field: Tensor) -> Tensor:
        return field.unflatten(0, (self.copies, -1))


def _memory(device: torch.device) -> float:
    """Bytes: what a GPU has free, or what the machine has in all (a CPU's memory is handed out as it is filled)."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
