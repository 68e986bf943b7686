"""Coverage control: N robots spread over an importance density that they must first discover."""

from __future__ import annotations

from mast_swarm.tasks.base import Demo, Metric, Task
from mast_swarm.tasks.coverage.config import CoverageConfig

_HERE = "mast_swarm.tasks.coverage"
_FROM_0 = (0.0, float("inf"))

TASK = Task(
    name="coverage",
    Config=CoverageConfig,
    World=f"{_HERE}.world:Coverage",
    metric=Metric("cost_time_average", lower_is_better=True, limits=_FROM_0),
    curve=Metric("cost", label="normalised cost", lower_is_better=True, limits=_FROM_0),
    controllers={
        "clairvoyant": f"{_HERE}.controllers:Clairvoyant",
        "c-cvt": f"{_HERE}.controllers:CentralizedCvt",
        "d-cvt": f"{_HERE}.controllers:DecentralizedCvt",
    },
    expert="clairvoyant",
    policies=f"{_HERE}.recipes:POLICIES",
    recipes=f"{_HERE}.recipes:RECIPES",
    view=f"{_HERE}.view:CoverageView",
    starts=f"{_HERE}.density:density",
    compared=("clairvoyant", "d-cvt"),
    episodes=100,
    steps=600,
    demo=Demo(
        ("mast-m", "d-cvt"),
        steps=600,
        outcome="brought the cost to {cost:.3f} of its start ({cost_time_average:.3f} on average)",
    ),
)
