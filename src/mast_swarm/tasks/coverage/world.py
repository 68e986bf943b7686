"""Coverage control: N robots spread over an importance density that they discover as they go (SPEC 5).

Symbols: B environments, N robots, S map cells per side, W words of 64 cells, P pixels of an observed map.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.kernels import on_gpu
from mast_swarm.observation import Observed
from mast_swarm.space import Graph, radius_graph
from mast_swarm.space.maps import words
from mast_swarm.space.voronoi import cell_moments, row_sums
from mast_swarm.tasks.coverage import _dense as dense
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.density import normalised, sample
from mast_swarm.tasks.world import State, World, overwrite

_SEEN = 4  # which of the observed maps shows what has been seen
_LEAST = 0.05  # weight of a robot whose cell has no mass, in units of the average
_RECORDED = 128  # pixels along a side of a recorded map, at most


@dataclass(frozen=True, kw_only=True)
class CoverageState(State):
    """All there is to know about B environments at one instant, besides positions (inside 0..side) and step. Maps are
    indexed [y, x]."""

    velocity: Tensor  # [B, N, 2] last command, in units of u_max
    density: Tensor  # [B, S, S] float32, what matters where; maximum 1
    sums: Tensor  # [B, S, ceil(S / 8) + 1, 3] float64, the density's running row sums (space.voronoi)
    moments: Tensor  # [B, N, 4] float64, of the density over each robot's Voronoi cell (space.voronoi)
    seen: Tensor  # [B, N, S, W] int64, a bit per cell: what each robot has sensed
    box: Tensor  # [B, N, 4] int64, the cells x, y from and x, y to that hold all that each robot has sensed
    seen_by_any: Tensor  # [B, S, W] int64, what any robot has sensed
    start_cost: Tensor  # [B] float64, J(0), m^2
    cost: Tensor  # [B] float64, J(t) / J(0)
    cost_sum: Tensor  # [B] float64, of the cost over all instants before this one


@dataclass(frozen=True)
class CoverageObservation:
    """An `Observed`, with the scales that a controller needs to read the state's maps.

    Its pictures are drawn when they are first looked at: controllers do without, and they are most of the work.
    """

    positions: Tensor  # [B, N, 2] m
    graph: Graph
    landmark: Tensor  # [B, N, 2], 0: there is nothing single to stay near
    resolution: float  # m, side of a map cell
    local_map: float  # m, side of the square around each robot that its local map covers
    side: float  # m, of the world
    draw: Callable[[], Tensor]
    goals: Tensor | None = None

    @cached_property
    def features(self) -> Tensor:
        """P x P pixels each, [B, N, 4 or 5, P, P]: a robot's local map, the world's boundary, its neighbours' x and y,
        and where it has looked if that is shown."""
        return self.draw()


class Coverage(World[CoverageConfig, CoverageState]):
    """The world of the coverage task, for any number of environments, on CPU or CUDA."""

    drawers = 4

    def __init__(self, config: CoverageConfig | None = None, device: torch.device | str = "cpu") -> None:
        super().__init__(config or CoverageConfig(), device)
        self._filter = resize_filter(self.config.map_cells, self.config.pixels).to(self.device)  # [K, P]
        # Running sums over cells: the share of each pixel's weight that lies before cell k, [K + 1, P].
        self._share = torch.nn.functional.pad(self._filter.double().cumsum(0), (0, 0, 1, 0)).float()
        self._banded = (*_banded(self._filter), *_banded(self._filter.T))

    def draw(self, seed: int, scenario: str) -> tuple[np.ndarray, ...]:
        """Where robots are, [N, 2] metres, uniform in the world, and the density [S, S] that the scenario names."""
        robots = np.random.default_rng([seed, 0]).uniform(0, self.config.side, (self.config.agents, 2))
        return robots.astype(np.float32), sample(scenario, self.config, seed)

    def state(self, positions: Tensor | np.ndarray, density: Tensor | np.ndarray) -> CoverageState:
        """A start state from positions [B, N, 2] in metres and densities [B, S, S] indexed [y, x], of any maximum.

        Positions in float64 stay so.
        """
        positions = torch.as_tensor(positions)
        values = density.cpu().numpy() if isinstance(density, Tensor) else np.asarray(density)
        cells, side = self.config.cells, self.config.side
        if positions.ndim != 3 or list(positions.shape[1:]) != [self.config.agents, 2]:
            raise MastError(
                f"positions have shape {list(positions.shape)}: expected [environments, {self.config.agents}, 2], for "
                "as many robots as the world's settings have agents"
            )
        expected = [len(positions), cells, cells]
        if list(values.shape) != expected:
            raise MastError(f"density has shape {list(values.shape)}: expected {expected} (environments, cells, cells)")
        outside = ~((positions >= 0) & (positions <= side)).all(-1)  # NaN counts as outside
        if bool(outside.any()):
            environment, robot = torch.nonzero(outside)[0].tolist()
            raise MastError(
                f"robot {robot} of environment {environment} starts at {positions[environment, robot].tolist()}: "
                f"expected metres inside the world, 0..{side:g}"
            )
        for environment, rows in enumerate(positions.cpu().numpy()):
            _, first, count = np.unique(rows, axis=0, return_index=True, return_counts=True)
            if (count > 1).any():
                robot = int(first[count > 1].min())
                raise MastError(
                    f"{int(count.max())} robots of environment {environment} start on one spot, "
                    f"{rows[robot].tolist()}: give each its own"
                )
        maps = [normalised(rows, f"the density of environment {e}") for e, rows in enumerate(values)]
        if positions.dtype != torch.float64:
            positions = positions.float()
        return self.begin(positions, torch.from_numpy(np.stack(maps)))

    def begin(self, *drawn: Tensor) -> CoverageState:
        """The start state of what was drawn."""
        positions, density = (part.to(self.device) for part in drawn)
        batch, n, cells = *positions.shape[:2], self.config.cells
        sums = row_sums(density)
        moments = cell_moments(positions, density, sums, self.config.resolution)
        cost = _cost(moments)
        if not bool((cost > 0).all()):
            environment = int((cost <= 0).long().argmax())
            raise MastError(f"robots of environment {environment} start on all that matters: their cost is 0 already")
        blank = torch.zeros((batch, n, cells, words(cells)), dtype=torch.int64, device=self.device)
        nowhere = torch.tensor([cells, cells, 0, 0], device=self.device).repeat(batch, n, 1)
        sensed = self._sense(positions, nowhere, blank, torch.zeros_like(blank[:, 0]))
        return CoverageState(
            positions=positions,
            velocity=torch.zeros_like(positions),
            density=density,
            sums=sums,
            moments=moments,
            **sensed,
            start_cost=cost,
            cost=torch.ones_like(cost),
            cost_sum=torch.zeros_like(cost),
            step=torch.zeros(batch, dtype=torch.int64, device=self.device),
        )

    def observe(self, state: CoverageState) -> CoverageObservation:
        """What each robot senses."""
        return CoverageObservation(
            positions=state.positions,
            landmark=torch.zeros_like(state.positions),
            graph=radius_graph(state.positions, self.config.communication_range),
            resolution=self.config.resolution,
            local_map=self.config.local_map,
            side=self.config.side,
            draw=partial(self._pictures, state),
        )

    def step(self, state: CoverageState, command: Tensor) -> CoverageState:
        """First-order motion, p <- p + u dt (Eq. 4), kept inside the world; then robots sense where they are."""
        return self._stepped(replace(state, seen=_copied(state), seen_by_any=state.seen_by_any.clone()), command)

    def advance(self, state: CoverageState, command: Tensor) -> None:
        """As `step`, in place. Maps of what has been seen are nearly all of a state; a step marks little of them."""
        overwrite(state, self._stepped(state, command))

    def _stepped(self, state: CoverageState, command: Tensor) -> CoverageState:
        """The next state, with the maps `seen` and `seen_by_any` of this one, which are marked in place."""
        command, moved = self.moved(state, command)
        positions = (state.positions + moved).clamp(0.0, self.config.side)
        moments = cell_moments(positions, state.density, state.sums, self.config.resolution)
        cost = _cost(moments) / state.start_cost
        return replace(
            state,
            positions=positions,
            velocity=command,
            moments=moments,
            **self._sense(positions, state.box, state.seen, state.seen_by_any),
            cost=cost,
            cost_sum=state.cost_sum + state.cost,
            step=state.step + 1,
        )

    def metrics(self, state: CoverageState) -> dict[str, Tensor]:
        """cost: J(t) / J(0); cost_time_average: its mean over the control periods up to t, each with the cost at its
        beginning. So after 600 of them it is the mean over the instants 0..599; at the start it is the cost itself."""
        average = torch.where(state.step > 0, state.cost_sum / state.step.clamp(min=1), state.cost)
        return {"cost": state.cost, "cost_time_average": average}

    def shown(self, observation: Observed, shape: tuple[int, ...]) -> Observed:
        """A policy that takes fewer maps than there are gets the first ones."""
        if not isinstance(observation, CoverageObservation) or shape == self.config.observation_shape:
            return observation
        return replace(observation, draw=lambda: observation.features[:, :, : shape[0]])

    def weights(self, state: CoverageState) -> Tensor:
        """The mass of each robot's cell: the cost of a place rises with the squared distance to the centroid times
        that. A robot without any counts a little."""
        mass = state.moments[..., 0]
        return (mass / mass.mean(-1, keepdim=True).clamp(min=1e-12) + _LEAST).to(state.positions.dtype) / (1 + _LEAST)

    def frame(self, state: CoverageState, observation: Observed) -> dict[str, Tensor]:
        """Nothing but positions: who hears whom and what was seen when follow from them."""
        return {}

    def scene(self, state: CoverageState, track: Tensor) -> dict[str, Tensor]:
        """density: [R, P, P] uint8, 255 where it is highest; seen_at: [R, P, P] int32, see `_seen_at`."""
        pixels = min(self.config.cells, _RECORDED)
        density = torch.nn.functional.adaptive_avg_pool2d(state.density[: len(track)], pixels)
        shares = density / density.amax((1, 2), keepdim=True)
        seen_at = torch.stack([self._seen_at(way, pixels) for way in track])
        return {"density": (255 * shares).round().to(torch.uint8), "seen_at": seen_at}

    def _seen_at(self, way: Tensor, pixels: int) -> Tensor:
        """The instant at which a robot first sensed the middle of each pixel, -1 if none did: [P, P] int32.

        way: [T+1, N, 2] metres on the CPU. That robots never forget makes one number per pixel enough.
        """
        size = self.config.sensor_cells
        middle = ((torch.arange(pixels) + 0.5) * (self.config.cells / pixels)).long()  # the cell there
        corner = self._corner(way, size)
        first, past = (torch.searchsorted(middle, cell).tolist() for cell in (corner, corner + size))
        seen_at = np.full((pixels, pixels), -1, np.int32)
        for instant in reversed(range(len(way))):  # what was seen earlier is written over it
            for (x, y), (end_x, end_y) in zip(first[instant], past[instant], strict=True):
                seen_at[y:end_y, x:end_x] = instant
        return torch.from_numpy(seen_at)

    def pack(self, features: Tensor) -> Tensor:
        """Of features [B, N, 4 or 5, P, P] the local maps, and what has been seen if that is shown, in 256 steps:
        [B, N, 1 or 2, P, P] uint8. Positions tell the rest."""
        return (features[:, :, ::_SEEN] * 255).round().to(torch.uint8)

    def unpack(self, packed: Tensor, positions: Tensor) -> Tensor:
        """The features [B, N, 4 or 5, P, P] of `pack`, of robots at positions [B, N, 2] metres."""
        corner, reach = self._corner(positions, self.config.map_cells), self.config.communication_range
        known, cells = packed / 255, self.config.cells
        if on_gpu(corner):
            return dense.with_surroundings(known, corner, self._share, cells, positions, reach)
        from mast_swarm.tasks.coverage import _cpu as cpu

        out = torch.empty((*corner.shape[:2], *self.config.observation_shape))
        out[:, :, ::_SEEN] = known
        cpu.surroundings(corner.numpy(), self._share.numpy(), cells, positions.numpy(), reach, out.numpy())
        return out

    def mirrored(self, sample: dict[str, Tensor], how: Tensor) -> dict[str, Tensor]:
        """Bits of `how`: mirrored in x, mirrored in y, then x and y exchanged. Samples hold packed features, positions,
        targets and what does not change."""
        flips = torch.stack((how & 1, how >> 1 & 1), dim=-1)[:, None]  # [B, 1, 2]
        swaps = (how >> 2 & 1).bool()[:, None, None]
        features, target, sign = sample["features"], sample["target"], 1 - 2 * flips
        for axis in (0, 1):  # maps are indexed [y, x]
            features = torch.where(flips[..., axis, None, None, None].bool(), features.flip(-1 - axis), features)
        features = torch.where(swaps[..., None, None], features.transpose(-1, -2), features)
        positions = sample["positions"] * sign + self.config.side * flips
        way = target[..., :2] * sign
        positions, way = (torch.where(swaps, vector.flip(-1), vector) for vector in (positions, way))
        target = torch.cat((way, target[..., 2:]), dim=-1)
        return sample | {"features": features, "positions": positions, "target": target}

    def _corner(self, positions: Tensor, size: int) -> Tensor:
        """First cell (x, y) of the square of `size` cells around each robot, [B, N, 2] int64; half a cell rounds up."""
        return (positions / self.config.resolution + 0.5).floor().long() - size // 2

    def _sense(self, positions: Tensor, box: Tensor, seen: Tensor, seen_by_any: Tensor) -> dict[str, Tensor]:
        """What has been seen once every robot has looked around, by field of the state. Maps are marked in place."""
        size, cells = self.config.sensor_cells, self.config.cells
        corner = self._corner(positions, size)
        ends = (
            torch.minimum(box[..., :2], corner.clamp(min=0)),
            torch.maximum(box[..., 2:], (corner + size).clamp(max=cells)),
        )
        if on_gpu(positions):
            dense.mark(corner, size, seen, seen_by_any)
        else:
            from mast_swarm.tasks.coverage import _cpu as cpu

            cpu.mark(corner.numpy(), size, cells, seen.numpy(), seen_by_any.numpy())
        return {"box": torch.cat(ends, -1), "seen": seen, "seen_by_any": seen_by_any}

    def _pictures(self, state: CoverageState) -> Tensor:
        """The maps of every robot, [B, N, 4 or 5, P, P] float32."""
        corner, reach = self._corner(state.positions, self.config.map_cells), self.config.communication_range
        maps = (state.density, state.seen, corner)
        if on_gpu(corner):
            return dense.pictures(*maps, self._filter, self._share, state.positions, reach, self.config.seen_map)
        from mast_swarm.tasks.coverage import _cpu as cpu

        out = torch.empty((*corner.shape[:2], *self.config.observation_shape))
        density, seen, corners, share, positions = (t.numpy() for t in (*maps, self._share, state.positions))
        cpu.pictures(density, seen, corners, self._banded, share, positions, reach, out.numpy())
        return out


def _copied(state: CoverageState) -> Tensor:
    """What each robot has seen, [B, N, S, W], in memory of its own."""
    if on_gpu(state.seen):
        return state.seen.clone(memory_format=torch.contiguous_format)
    from mast_swarm.tasks.coverage import _cpu as cpu

    copy = np.zeros(tuple(state.seen.shape), np.int64)  # numpy's blank memory is untouched, torch's is written
    cpu.copy(state.seen.numpy(), state.box.numpy(), copy)
    return torch.from_numpy(copy)


def _cost(moments: Tensor) -> Tensor:
    """J = sum over cells of density times squared distance to the nearest robot, [B] float64, m^2."""
    return moments[..., 3].sum(-1)


def resize_filter(size: int, pixels: int) -> Tensor:
    """Weights [size, pixels] of an antialiased bilinear resize along one side, by resizing an identity."""
    lines = torch.eye(size)[None, None]
    resized = torch.nn.functional.interpolate(lines, (size, pixels), mode="bilinear", antialias=True)
    return resized[0, 0]


def _banded(weights: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """A matrix [K, P] with few neighbouring entries per row as the first of each row [K] and those [K, T]."""
    matrix = weights.cpu().numpy()
    used = matrix != 0
    reach = int((used.shape[1] - used[:, ::-1].argmax(1) - used.argmax(1)).max())
    first = np.minimum(used.argmax(1), matrix.shape[1] - reach)
    return first, np.take_along_axis(matrix, first[:, None] + np.arange(reach), axis=1)
