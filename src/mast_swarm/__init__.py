"""MAST: a team of robots that act together with nobody in charge.

    world = Navigation(NavigationConfig(agents=100))
    ran = rollout(world, "dhba-4", seeds=range(8), steps=200)
    print(ran.metrics["success_rate"][:, -1])

The names below are fetched when first used, so that importing the package is quick and loads no torch.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mast_swarm.errors import MastError

if TYPE_CHECKING:
    from mast_swarm.comms.config import Channel
    from mast_swarm.comms.decentral import DecentralPolicy
    from mast_swarm.evaluate.actors import load
    from mast_swarm.evaluate.recording import Recording
    from mast_swarm.evaluate.rollout import rollout
    from mast_swarm.model.config import PolicyConfig
    from mast_swarm.model.policy import Policy
    from mast_swarm.view.replay import write_replay
    from mast_swarm.world.config import CoverageConfig, NavigationConfig
    from mast_swarm.world.coverage import Coverage
    from mast_swarm.world.navigation import Navigation

# Threads that wait for each other by spinning are up to 80 times slower where other programs want the cores too.
# OpenMP reads this when it is loaded, which torch and numba do later.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

__version__ = "0.1.0"

__all__ = [
    "Channel",
    "Coverage",
    "CoverageConfig",
    "DecentralPolicy",
    "MastError",
    "Navigation",
    "NavigationConfig",
    "Policy",
    "PolicyConfig",
    "Recording",
    "load",
    "rollout",
    "write_replay",
]

_HOMES = {
    "Channel": "comms.config",
    "Coverage": "world.coverage",
    "CoverageConfig": "world.config",
    "DecentralPolicy": "comms.decentral",
    "Navigation": "world.navigation",
    "NavigationConfig": "world.config",
    "Policy": "model.policy",
    "PolicyConfig": "model.config",
    "Recording": "evaluate.recording",
    "load": "evaluate.actors",
    "rollout": "evaluate.rollout",
    "write_replay": "view.replay",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # the next use finds it without asking here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
