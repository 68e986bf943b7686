"""MAST: a team of robots that act together with nobody in charge.

    world = Navigation(NavigationConfig(agents=100))
    ran = rollout(world, "dhba-4", seeds=range(8), steps=200)
    print(ran.metrics["success_rate"][:, -1])

The names below are fetched when first used, so that importing the package is quick and loads no torch.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mast_swarm.errors import MastError, lacking

if TYPE_CHECKING:
    from mast_swarm import evaluate, train
    from mast_swarm.comms.config import Channel
    from mast_swarm.comms.decentral import DecentralPolicy
    from mast_swarm.comms.relay import Relay
    from mast_swarm.evaluate.config import EvaluateConfig
    from mast_swarm.evaluate.policies import load_policy
    from mast_swarm.evaluate.recording import Recording
    from mast_swarm.evaluate.rollout import rollout
    from mast_swarm.model.config import PolicyConfig
    from mast_swarm.model.lpac import LPAC
    from mast_swarm.model.policy import Policy
    from mast_swarm.observation import Heard, Observation
    from mast_swarm.space.graph import Graph, neighbour_graph, radius_graph
    from mast_swarm.space.neighbours import nearest, offsets
    from mast_swarm.survey import Survey
    from mast_swarm.tasks.base import Demo, Feature, Metric, Starts, Task, WorldConfig
    from mast_swarm.tasks.coverage.config import CoverageConfig
    from mast_swarm.tasks.coverage.world import Coverage
    from mast_swarm.tasks.navigation.config import NavigationConfig
    from mast_swarm.tasks.navigation.world import Navigation
    from mast_swarm.tasks.registry import policies, register
    from mast_swarm.tasks.world import State, World
    from mast_swarm.train.config import TrainConfig
    from mast_swarm.view.explain import explain
    from mast_swarm.view.replay import write_replay

# Threads that wait for each other by spinning are up to 40 times slower where other programs want the cores too.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & set(os.environ):
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"  # OpenMP reads this when it is loaded, which torch and numba do later
    if "torch" in sys.modules:  # or have done before
        import_module("mast_swarm.threads").sleep_while_waiting()

__version__ = "0.1.0"

__all__ = [
    "LPAC",
    "Channel",
    "Coverage",
    "CoverageConfig",
    "DecentralPolicy",
    "Demo",
    "EvaluateConfig",
    "Feature",
    "Graph",
    "Heard",
    "MastError",
    "Metric",
    "Navigation",
    "NavigationConfig",
    "Observation",
    "Policy",
    "PolicyConfig",
    "Recording",
    "Relay",
    "Starts",
    "State",
    "Survey",
    "Task",
    "TrainConfig",
    "World",
    "WorldConfig",
    "evaluate",
    "explain",
    "load_policy",
    "nearest",
    "neighbour_graph",
    "offsets",
    "policies",
    "radius_graph",
    "register",
    "rollout",
    "train",
    "write_replay",
]

_HOMES = {
    "Channel": "comms.config",
    "Coverage": "tasks.coverage.world",
    "CoverageConfig": "tasks.coverage.config",
    "DecentralPolicy": "comms.decentral",
    "Demo": "tasks.base",
    "EvaluateConfig": "evaluate.config",
    "Feature": "tasks.base",
    "Graph": "space.graph",
    "Heard": "observation",
    "LPAC": "model.lpac",
    "Metric": "tasks.base",
    "Navigation": "tasks.navigation.world",
    "NavigationConfig": "tasks.navigation.config",
    "Observation": "observation",
    "Policy": "model.policy",
    "PolicyConfig": "model.config",
    "Recording": "evaluate.recording",
    "Relay": "comms.relay",
    "Starts": "tasks.base",
    "State": "tasks.world",
    "Survey": "survey",
    "Task": "tasks.base",
    "TrainConfig": "train.config",
    "World": "tasks.world",
    "WorldConfig": "tasks.base",
    "explain": "view.explain",
    "load_policy": "evaluate.policies",
    "nearest": "space.neighbours",
    "neighbour_graph": "space.graph",
    "offsets": "space.neighbours",
    "policies": "tasks.registry",
    "radius_graph": "space.graph",
    "register": "tasks.registry",
    "rollout": "evaluate.rollout",
    "write_replay": "view.replay",
}


def __getattr__(name: str) -> Any:
    called = name in ("evaluate", "train")  # packages that can be called
    if not called and name not in _HOMES:
        from difflib import get_close_matches

        near = get_close_matches(name, __all__, 1)
        hint = f". Did you mean: {near[0]!r}?" if near else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
    try:
        module = import_module(f"{__name__}.{name if called else _HOMES[name]}")
    except ModuleNotFoundError as error:
        line = lacking(f"{__name__}.{name}", error)
        if line is None:
            raise
        raise ModuleNotFoundError(line, name=error.name) from None
    if called:
        return module
    value = getattr(module, name)
    globals()[name] = value  # the next use finds it without asking here
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
