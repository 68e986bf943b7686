"""Controllers of the coverage task: every robot goes to the centroid of its Voronoi cell (Lloyd's rule), under the
density and among the neighbours that it is told of.

Clairvoyant knows all of the density; centralized CVT (C-CVT) what any robot has sensed; decentralized CVT (D-CVT) what
the robot itself has sensed, in a cell bounded by the robots it hears and by its local map.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from mast_swarm.errors import MastError, unknown
from mast_swarm.space import Graph
from mast_swarm.space.voronoi import cell_middles, cell_moments, local_moments
from mast_swarm.tasks.coverage.world import CoverageObservation, CoverageState

EMPTY_RULES = ("vertices", "area")
# The freeze rule: positions looked back on, how often one may repeat, metres that count as none, and how many
# instants are stored without a gap (any even number from 26 to 40 gives the reference's recorded trajectories).
_STORED, _REPEATED, _CLOSE, _ALL_STORED = 6, 3, 1e-4, 32


class _Cvt:
    """What the three share: straight to the cell's centroid, as far as speed and time allow.

    empty: where a robot goes whose cell has no known mass: the mean of its cell's vertices, or the centroid of the
    cell's area. freeze: a robot that keeps returning to one spot stays there, see `_frozen`; the one
    thing kept from step to step.
    """

    def __init__(self, *, dt: float, max_speed: float, empty: str = "vertices", freeze: bool = False) -> None:
        for name, value in (("dt", dt), ("max_speed", max_speed)):
            if not 0.0 < value < float("inf"):
                raise MastError(f"{name} is {value}: expected a positive number")
        if empty not in EMPTY_RULES:
            raise unknown("rule for empty cells", empty, EMPTY_RULES)
        self.dt, self.max_speed, self.empty, self.freeze = dt, max_speed, empty, freeze
        self._stored: list[Tensor] = []
        self._instant = 0

    def start(self, seeds: Sequence[int] = ()) -> None:
        self._stored, self._instant = [], 0

    def act(self, state: CoverageState, observation: CoverageObservation) -> Tensor:
        positions = state.positions
        way = (self.goals(state, observation) - positions.double()) / (self.dt * self.max_speed)
        command = way / torch.linalg.vector_norm(way, dim=-1, keepdim=True).clamp(min=1.0)
        if self.freeze:
            command = torch.where(self._frozen(positions)[..., None], 0.0, command)
        return command.to(positions.dtype)

    def goals(self, state: CoverageState, observation: CoverageObservation) -> Tensor:
        """Where each robot wants to be, [B, N, 2] float64 metres."""
        moments = self._moments(state, observation)
        mass = moments[..., :1]
        low, high, graph = self._bounds(state, observation)
        middles = cell_middles(state.positions, mass[..., 0] <= 0, low, high, graph, by_area=self.empty == "area")
        return torch.where(mass > 0, moments[..., 1:3] / mass.clamp(min=1e-300), middles)

    def _moments(self, state: CoverageState, observation: CoverageObservation) -> Tensor:
        """Known mass of each robot's cell and its first moments, [B, N, 3 or more]."""
        raise NotImplementedError

    def _bounds(self, state: CoverageState, observation: CoverageObservation) -> tuple[Tensor, Tensor, Graph | None]:
        """The box that cuts each robot's cell, [B, N, 2] metres twice, and whose bisectors do (None: everyone's)."""
        return torch.zeros_like(state.positions), torch.full_like(state.positions, observation.side), None

    def _frozen(self, positions: Tensor) -> Tensor:
        """[B, N] bool: the robots whose last stored position is among their last 6 stored ones 3 times.

        Stored are the positions of the first instants and from then on every second one; the oldest never counts.
        That is how the reference does it.
        """
        if self._instant < _ALL_STORED or self._instant % 2:
            self._stored = [*self._stored, positions][-_STORED - 1 :]
        self._instant += 1
        counted = torch.stack(self._stored)[1:]  # [stored, B, N, 2]
        near = torch.linalg.vector_norm(counted - self._stored[-1], dim=-1) < _CLOSE
        return near.sum(0) >= _REPEATED


class Clairvoyant(_Cvt):
    """The expert: knows every position and the true density."""

    reads: ClassVar[tuple[str, ...]] = ("positions", "moments")

    def _moments(self, state: CoverageState, observation: CoverageObservation) -> Tensor:
        return state.moments


class CentralizedCvt(_Cvt):
    """C-CVT: knows every position, and of the density what any robot has sensed."""

    def _moments(self, state: CoverageState, observation: CoverageObservation) -> Tensor:
        return cell_moments(state.positions, state.density, state.sums, observation.resolution, state.seen_by_any)


class DecentralizedCvt(_Cvt):
    """D-CVT: each robot knows those it hears, and of the density what it has sensed itself."""

    def _moments(self, state: CoverageState, observation: CoverageObservation) -> Tensor:
        size, corner = self._local(state, observation)
        return local_moments(
            state.positions,
            state.density,
            state.sums,
            observation.resolution,
            state.seen,
            observation.graph,
            corner,
            size,
        )

    def _bounds(self, state: CoverageState, observation: CoverageObservation) -> tuple[Tensor, Tensor, Graph | None]:
        low, high, _ = super()._bounds(state, observation)
        size, corner = self._local(state, observation)
        first, last = corner * observation.resolution, (corner + size) * observation.resolution
        return torch.maximum(low, first), torch.minimum(high, last), observation.graph

    def _local(self, state: CoverageState, observation: CoverageObservation) -> tuple[int, Tensor]:
        """Cells along a side of a local map, and the first cell (x, y) of each robot's, [B, N, 2] int64."""
        size = round(observation.local_map / observation.resolution)
        return size, (state.positions / observation.resolution + 0.5).floor().long() - size // 2
