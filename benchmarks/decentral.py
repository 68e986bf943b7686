"""A decentralized control step against one central forward pass of the same robots, on the CPU.

100 robots, uniform in a square of 1000 m, walk at 5 m/s, each linked to its 3 nearest; a message takes one control
period a hop, and 20 steps have filled everyone's table. The decentralized step is all of it: perception, relay,
and every robot's own command from its own view. Taken literally it costs 100 forward passes and more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.measure import benchmark, medians
from mast_swarm.comms import Channel, DecentralPolicy
from mast_swarm.model import Policy
from mast_swarm.space import Graph, components, nearest, neighbour_graph

AGENTS, WIDTH, STRIDE, STEPS = 100, 1000.0, 5.0, 20
DELAYS = (1.0, 0.5, 0.1, 0.0)  # control periods a hop
TEAMS = 3
LIMIT = 40.0


@dataclass(frozen=True)
class Walk:
    """Robots on a random walk: what they sense at one instant, and the next instant."""

    features: Tensor
    positions: Tensor
    graph: Graph
    rng: torch.Generator

    @property
    def landmark(self) -> Tensor:
        return torch.zeros_like(self.positions)

    @classmethod
    def at(cls, positions: Tensor, rng: torch.Generator) -> Walk:
        _, index = nearest(positions, positions, 3, exclude_self=True)
        features = torch.randn(1, AGENTS, 14, generator=rng)
        return cls(features, positions, neighbour_graph(index), rng)

    def next(self) -> Walk:
        step = torch.nn.functional.normalize(torch.randn(1, AGENTS, 2, generator=self.rng), dim=-1)
        return Walk.at(self.positions + STRIDE * step, self.rng)


def compare(delay: float, team: int) -> dict[str, float]:
    """Milliseconds of both ways for one team, and their ratio."""
    rng = torch.Generator().manual_seed(team)
    policy = Policy().eval()
    run = DecentralPolicy(policy, Channel(delay=delay), 1.0)
    run.start([team])
    walk = Walk.at((torch.rand(1, AGENTS, 2, generator=rng) - 0.5) * WIDTH, rng)
    for _ in range(STEPS):
        run.act(walk)
        walk = walk.next()
    component = components(walk.graph)
    # The relay goes on from step to step; standing still during the measurement keeps both at the same work.
    with torch.no_grad():
        found = medians(
            {"central": lambda: policy(walk.features, walk.positions, component), "decentral": lambda: run.act(walk)},
            repeats=15,
        )
    return {
        "delay": delay,
        "team": team,
        "central_ms": 1e3 * found["central"],
        "decentral_ms": 1e3 * found["decentral"],
        "ratio": found["decentral"] / found["central"],
    }


def measure(threads: int) -> list[dict[str, float]]:
    """All comparisons with that many threads: the paper's longest delay for several teams, shorter ones for one."""
    torch.set_num_threads(threads)
    cases = [(DELAYS[0], team) for team in range(TEAMS)] + [(delay, 0) for delay in DELAYS[1:]]
    return [{"threads": threads, **compare(*case)} for case in cases]


def in_a_process_with(threads: int) -> list[dict[str, float]]:
    """The same in a process that may use that many: compiled loops settle their number when they are loaded."""
    names = ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
    code = f"import json; from benchmarks.decentral import measure; print(json.dumps(measure({threads})))"
    settings = os.environ | dict.fromkeys(names, str(threads))
    done = subprocess.run([sys.executable, "-c", code], env=settings, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def measured() -> dict[str, Any]:
    rows = [row for threads in (1, 2) for row in in_a_process_with(threads)]
    return {"agents": AGENTS, "limit": LIMIT, "worst_ratio": max(row["ratio"] for row in rows), "rows": rows}


def main() -> None:
    worst = benchmark("decentral", __doc__, measured)["worst_ratio"]
    if worst > LIMIT:
        raise SystemExit(f"a decentralized step took {worst:.1f} times a central pass: more than {LIMIT:.0f}")


if __name__ == "__main__":
    main()
