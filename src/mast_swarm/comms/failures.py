"""Which robots fail: functions of the environment, the step and the robot, and of nothing else.

So the same robots fail at the same steps whatever drives the team, also where it sends no messages.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mast_swarm import chance

_FAILURE = 2  # keeps failures apart from losses (comms.relay), which are drawn from the same keys


def survivors(alive: Tensor, keys: Tensor, step: int | Tensor, probability: float) -> Tensor:
    """Who of the living robots [B, N] bool is still alive after the control period from instant `step` on.

    keys: [B] int64, of each environment (`chance.keys_of`). A robot that has failed has failed for good.
    """
    if probability == 0:
        return alive
    robot = torch.arange(alive.shape[1], device=alive.device)
    drawn = chance.combine(keys[:, None], _FAILURE, step, robot)
    return alive & (chance.uniform(drawn) >= probability)
