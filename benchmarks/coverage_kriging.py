"""How far a rule without learning gets in coverage that knows what all robots have seen:
python -m benchmarks.coverage_kriging [--help].

The density where nobody has looked is estimated from where somebody has (a Gaussian process with a known mean, length
and noise: simple kriging), once in two control periods, and every robot goes to the centroid of its Voronoi cell under
what is known and estimated. No robot could run it: it takes all maps and all positions at once. So it says how much of
what MAST-M lacks to the clairvoyant is in the maps of others, and how much nobody knows.

Same start states for all (those of `mast evaluate --seed`), one environment after the other; a file that is there goes
on. On one CPU core an environment takes about half a minute.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor
from torch.nn.functional import avg_pool2d, interpolate

from benchmarks import kept
from benchmarks.measure import line, machine
from mast_swarm.evaluate.results import interval
from mast_swarm.files import whole_file
from mast_swarm.model.policy import load_learned
from mast_swarm.space.maps import unpack
from mast_swarm.space.voronoi import cell_moments, row_sums
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.world import Coverage, CoverageState

MEAN, LENGTH, NOISE = 0.145, 60.0, 1e-2  # of the density, found on other start states than those that are reported
COARSE = 16  # cells of the world along a side of one of the estimate
EVERY = 2  # control periods between two estimates


@dataclass(frozen=True)
class Config:
    """Kriging, MAST-M in one central pass and the clairvoyant on the same start states."""

    episodes: int = 40
    """Start states."""
    steps: int = 120
    """Control periods of 1 s."""
    seed: int = 7202
    """Chooses the start states."""
    out: Path = Path("benchmarks/results/coverage-kriging.json")
    """File for the results."""


class Kriged:
    """Lloyd's rule under what anybody has seen, and an estimate elsewhere. One environment."""

    def __init__(self, cells: int) -> None:
        self.coarse = cells // COARSE
        at = (torch.arange(self.coarse, dtype=torch.float64) + 0.5) * COARSE
        places = torch.cartesian_prod(at, at)
        self.alike = torch.exp(-torch.cdist(places, places).square() / (2 * LENGTH**2))
        self.estimate = torch.empty(0)

    def goals(self, state: CoverageState) -> Tensor:
        known = unpack(state.seen_by_any, state.density.shape[-1])
        if int(state.step[0]) % EVERY == 0:
            self.estimate = self._estimated(state.density, known)
        density = torch.where(known, state.density, self.estimate)
        moments = cell_moments(state.positions, density, row_sums(density), 1.0)
        return towards(moments, state.positions)

    def _estimated(self, density: Tensor, known: Tensor) -> Tensor:
        share = avg_pool2d(known.float(), COARSE).flatten()
        value = avg_pool2d(density * known, COARSE).flatten() / share.clamp(min=1e-6)
        given, wanted = torch.nonzero(share > 0.45)[:, 0], torch.nonzero(share < 1)[:, 0]
        matrix = self.alike[given][:, given] + NOISE * torch.eye(len(given), dtype=torch.float64)
        weights = torch.cholesky_solve((value[given].double() - MEAN)[:, None], torch.linalg.cholesky(matrix))[:, 0]
        estimate = torch.full((self.coarse**2,), MEAN, dtype=torch.float64)
        estimate[wanted] = (MEAN + self.alike[wanted][:, given] @ weights).clamp(min=0)
        coarse = estimate.float().view(1, 1, self.coarse, self.coarse)
        return interpolate(coarse, scale_factor=COARSE, mode="nearest")[0]


def towards(moments: Tensor, positions: Tensor) -> Tensor:
    """Centroids of cells [1, N, 2] metres; a robot whose cell is empty stays."""
    mass = moments[..., :1]
    return torch.where(mass > 1e-9, moments[..., 1:3] / mass.clamp(min=1e-300), positions.double())


def costs(world: Coverage, policy: Any, kriged: Kriged, seed: int, steps: int) -> dict[str, list[float]]:
    """By who drives: the time average of the cost and the cost at the end of one environment."""

    def learned(state: CoverageState) -> Tensor:
        return state.positions + policy(**policy.inputs(world.observe(state))) * world.config.max_speed

    drivers = {"mast-m": learned, "kriging": kriged.goals, "clairvoyant": lambda s: towards(s.moments, s.positions)}
    found = {}
    with torch.inference_mode():
        for name, goals in drivers.items():
            state = world.reset([seed])
            for _ in range(steps):
                way = (goals(state) - state.positions) / world.config.max_speed
                command = way / torch.linalg.vector_norm(way, dim=-1, keepdim=True).clamp(min=1.0)
                state = world.step(state, command.to(state.positions.dtype))
            found[name] = [float(world.metrics(state)[metric][0]) for metric in ("cost_time_average", "cost")]
    return found


def main(config: Config) -> None:
    """Run what is missing and write means, intervals and paired differences to MAST-M."""
    torch.set_num_threads(1)
    world = Coverage(CoverageConfig(dt=1.0, seen_map=True))
    about = {"seed": config.seed, "steps": config.steps, "dt": 1.0, "mean": MEAN, "length": LENGTH, "noise": NOISE}
    found = {"benchmark": "coverage_kriging", "machine": machine(), "runs": [], **kept.read(config.out, about)}
    found.pop("policies", None)
    policy, kriged = load_learned("coverage/mast-m").eval(), Kriged(world.config.cells)
    for episode in range(len(found["runs"]), config.episodes):
        found["runs"].append(costs(world, policy, kriged, config.seed * 10**6 + episode, config.steps))
        rows = {}
        for name in found["runs"][0]:
            average, end = np.array([run[name] for run in found["runs"]]).T
            minus = average - np.array([run["mast-m"][0] for run in found["runs"]])
            rows[name] = {"average": interval(average), "end": interval(end), "minus_mast_m": interval(minus)}
        found["rows"] = rows
        with whole_file(config.out) as part:
            part.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(f"{episode + 1}:", line({name: row["average"][0] for name, row in rows.items()}), flush=True)


if __name__ == "__main__":
    main(tyro.cli(Config, prog="python -m benchmarks.coverage_kriging", description=__doc__))
