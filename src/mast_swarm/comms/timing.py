"""When news hops, in control periods.

Time runs in control periods of dt seconds. At instant n = 0, 1, 2, ... every robot samples its own message and position
with stamp n. Hop number k of stamp s ends at the time s dt + k tau. It goes over the links of instant n if that time
lies after n dt and not after (n+1) dt. On a still graph news of a robot h hops away is ceil(h tau / dt) periods old.

A tick is the largest time that divides dt and tau: a period is `period` ticks and a hop is `hop` ticks, and what
happens in a period happens at some of its ticks.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import torch
from torch import Tensor

from mast_swarm.comms.config import Channel, periods
from mast_swarm.comms.held import stamp_of
from mast_swarm.errors import MastError

_MOST_LAYERS = 1000
_LONGEST = 2**40


class Timing:
    """The times of a channel for a control period of `dt` seconds."""

    def __init__(self, channel: Channel, dt: float) -> None:
        if not 0 < dt < float("inf"):
            raise MastError(f"dt is {dt} s: expected a positive number")
        tau = periods(channel.delay, dt)
        if tau > _MOST_LAYERS:
            raise MastError(f"delay is {channel.delay} s per hop: more than {_MOST_LAYERS} control periods of {dt} s")
        self.instant = tau == 0
        self.hop, self.period = tau.numerator, tau.denominator  # ticks
        # In control periods, as far as whole numbers of a tensor go.
        self.max_age = None if channel.max_age is None else min(periods(channel.max_age, dt), Fraction(_LONGEST))
        # Layers that a still graph needs; a graph that changes may need more, and the table then grows.
        self.layers = 1 if self.hop <= 1 else max(2, math.ceil(tau))
        # All stamps hop at the same times, and one of each origin is enough; `together`: at all of these times.
        self.even = self.hop == 1
        self.together = self.even and self.max_age is None

    def oldest(self, step: Any, tick: int = 0) -> Any:
        """The oldest stamp that robots have not forgotten at an instant, or so many ticks after it: a number or a
        tensor, as the instant is."""
        return 0 if self.max_age is None else step - (self.max_age - Fraction(tick, self.period)) // 1

    def round_at(self, tick: int) -> int:
        """The number of the round of messages that ends at a tick of a period or first after it, from 1 on."""
        return -(-tick // self.hop)

    def handings(self, step: int | Tensor) -> Iterator[int]:
        """When robots hand on what has no stamp (`survey`): at the multiples of tau after instant `step` and not after
        the next one, in ticks after it."""
        if self.hop == 1:
            yield from range(1, self.period + 1)
        else:
            begun = int(step) * self.period
            yield from range(self.hop - begun % self.hop, self.period + 1, self.hop)

    def moments(self, table: Tensor, step: int) -> Iterator[tuple[int, Tensor]]:
        """When stamps of the table hop in the period from instant `step` on, in ticks after it; and which then do,
        [step + 2] bool, the last for no stamp: False."""
        held = torch.zeros(step + 2, dtype=torch.bool, device=table.device)
        held[stamp_of(table).flatten()] = True
        moments: dict[int, list[int]] = defaultdict(list)
        for stamp in held[:-1].nonzero()[:, 0].tolist():
            # In Python's whole numbers, which have no limit: there may be as many ticks in a period as dt has digits.
            age = (step - stamp) * self.period
            for ends in range(age // self.hop * self.hop + self.hop, age + self.period + 1, self.hop):
                if self.max_age is None or ends <= self.max_age * self.period:
                    moments[ends - age].append(stamp)
        for tick in sorted(moments):
            due = torch.zeros_like(held)
            due[torch.tensor(moments[tick], device=table.device)] = True
            yield tick, due
