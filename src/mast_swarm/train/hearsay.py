"""What one robot alone knows in decentralised execution, for learning: news of all ages, in fixed buffers.

One hop takes one control period (tau = dt) and nothing is lost: the relay's rule for that case. Only ages are passed
on, in a table of who knows what of whom; what was said is looked up in a ring of the past. `comms.Relay` computes the
same for any channel, but for `LONGEST`, and tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

LONGEST = 128  # control periods after which news is forgotten: so long is the ring


class Hearsay:
    """B teams of N robots; what is said has the fields of a replay: name -> shape [N, ...] of one team, dtype."""

    def __init__(
        self, fields: Mapping[str, tuple[tuple[int, ...], torch.dtype]], teams: int, device: torch.device
    ) -> None:
        robots = next(iter(fields.values()))[0][0]
        self.past = {
            name: torch.zeros((LONGEST, teams, *shape), dtype=kind, device=device)
            for name, (shape, kind) in fields.items()
        }
        self.now = torch.zeros((), dtype=torch.int64, device=device)
        # [b, i, j]: how old what i knows of j is; LONGEST: nothing.
        self.ages = torch.full((teams, robots, robots), LONGEST, dtype=torch.int16, device=device)
        self.links = torch.zeros((teams, robots, robots), dtype=torch.bool, device=device)  # of the last instant

    def forget(self, teams: Tensor) -> None:
        """Teams [n] int64 start anew."""
        self.ages.index_fill_(0, teams.to(self.ages.device), LONGEST)

    def next(self, said: Mapping[str, Tensor], links: Tensor) -> None:
        """The next instant: news hops over the links of the last one, and every robot says its own, [B, N, ...] each.

        links [B, N, N] bool: who hears whom now; element b, i, j says that i hears j."""
        self.now += 1
        for name, ring in self.past.items():
            ring.index_copy_(0, (self.now % LONGEST)[None], said[name][None].to(ring.dtype))
        offered = torch.where(self.links[..., None], self.ages[:, None], LONGEST).amin(2)
        ages = (self.ages.minimum(offered) + 1).clamp_max_(LONGEST)
        ages.diagonal(dim1=1, dim2=2).zero_()
        self.ages.copy_(ages)
        self.links.copy_(links)

    def view(self, robot: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        """What robot number robot[b] of team b knows: the newest of each, [B, N, ...], and how old it is, [B, N] int64
        control periods; LONGEST: nothing, and what stands there means nothing."""
        teams, robots = self.ages.shape[:2]
        ages = self.ages.gather(1, robot.view(-1, 1, 1).expand(-1, 1, robots))[:, 0].long()
        when = (self.now - ages) % LONGEST  # [B, N]
        every = torch.arange(teams * robots, device=ages.device).view(teams, robots)
        place = when * (teams * robots) + every
        return {name: ring.flatten(0, 2)[place] for name, ring in self.past.items()}, ages

    def tensors(self) -> dict[str, Tensor]:
        """All of it, by name, for a checkpoint."""
        held = {f"said.{name}": ring for name, ring in self.past.items()}
        return held | {"now": self.now, "ages": self.ages, "links": self.links}
