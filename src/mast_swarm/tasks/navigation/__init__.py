"""Decentralized assignment and navigation: N robots find N goals (the paper's DAN)."""

from __future__ import annotations

from mast_swarm.tasks.base import Demo, Metric, Task
from mast_swarm.tasks.navigation.config import NavigationConfig

_HERE = "mast_swarm.tasks.navigation"

TASK = Task(
    name="navigation",
    Config=NavigationConfig,
    World=f"{_HERE}.world:Navigation",
    metric=Metric("success_rate", limits=(0.0, 1.0)),
    others=(Metric("collisions", unit="pairs", lower_is_better=True, limits=(0.0, float("inf")), digits=1),),
    controllers={
        "lsap": f"{_HERE}.controllers:Lsap",
        "dhba-K": f"{_HERE}.controllers:Dhba",
        "dhba-K-explore": f"{_HERE}.controllers:DhbaExplore",
        "dhba-K-relay": f"{_HERE}.controllers:DhbaRelay",
        "dhba-K-relay-explore": f"{_HERE}.controllers:DhbaRelayExplore",
        "explorer": f"{_HERE}.controllers:Explorer",
        "searcher-K": f"{_HERE}.controllers:Searcher",
        "searcher-K-relay": f"{_HERE}.controllers:SearcherRelay",
        "dhba-K-map": f"{_HERE}.controllers:DhbaMap",
        "dhba-K-relay-map": f"{_HERE}.controllers:DhbaRelayMap",
        "searcher-K-map": f"{_HERE}.controllers:SearcherMap",
        "searcher-K-relay-map": f"{_HERE}.controllers:SearcherRelayMap",
    },
    expert="lsap",
    experts={"clairvoyant": "lsap", "informed": "explorer"},
    policies=f"{_HERE}.recipes:POLICIES",
    recipes=f"{_HERE}.recipes:RECIPES",
    view=f"{_HERE}.view:NavigationView",
    starts=f"{_HERE}.scenarios:scenario",
    compared=("mast-m-sharp", "dhba-8", "lsap"),
    demo=Demo(
        ("mast-m-sharp", "dhba-8"),
        steps=300,
        config=NavigationConfig(scenario="clusters-5-5"),
        outcome="reached {success_rate:.0%} of the goals",
    ),
    benchmark={"scenario": "clusters-1"},
)
