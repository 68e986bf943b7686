"""What the safety layer costs, beside a step of the world: python -m benchmarks.apart."""

from __future__ import annotations

import math
import os
from typing import Any

os.environ.setdefault("NUMBA_NUM_THREADS", "1")

import torch
from torch import Tensor

from benchmarks.measure import benchmark, medians
from mast_swarm import Navigation, NavigationConfig
from mast_swarm.tasks.navigation.world import NavigationState


def crowd(robots: int, spacing: float) -> Tensor:
    """Robots [1, N, 2] on a square lattice."""
    k = torch.arange(math.isqrt(robots)) * spacing
    return torch.stack(torch.meshgrid(k, k, indexing="ij"), dim=-1).view(1, -1, 2)


def measured(name: str, world: Navigation, state: NavigationState) -> dict[str, Any]:
    """Milliseconds of the layer, where everyone wants to go anywhere at full speed, and of the rest of a step."""
    command = torch.randn(state.positions.shape, generator=torch.Generator().manual_seed(0)) * 3
    kept = world.kept_apart(state, command)
    wanted = command / torch.linalg.vector_norm(command, dim=-1, keepdim=True).clamp_min(1)
    changed = ((kept - wanted).abs().amax(-1) > 1e-5).float().mean()
    found = medians(
        {"layer": lambda: world.kept_apart(state, command), "world": lambda: world.observe(world.step(state, command))}
    )
    times = {f"{part}_ms": 1e3 * seconds for part, seconds in found.items()}
    size = {"environments": len(state.positions), "robots": state.positions.shape[1]}
    return {"team": name, **size, "changed": float(changed), **times}


def main() -> dict[str, Any]:
    torch.set_num_threads(1)
    rows = []
    for agents, batch in ((100, 1), (100, 100), (10_000, 1)):
        world = Navigation(NavigationConfig(agents=agents, scenario="clusters-1"))
        rows.append(measured("100 robots per km2", world, world.reset(range(batch))))
    for spacing in (5.5, 10.0):
        world, places = Navigation(NavigationConfig()), crowd(100, spacing)
        rows.append(measured(f"every {spacing:g} m a robot", world, world.state(places, places)))
    return {"rows": rows}


if __name__ == "__main__":
    benchmark("apart", __doc__, main)
