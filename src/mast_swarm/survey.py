"""A map that robots share of where they have looked, for those that have nothing to do.

A robot senses its K nearest things of interest. So it knows all there are up to the farthest of these: that disk is
searched. Each robot keeps a map of square cells, with two marks for each: whether it is worth searching (a thing of
interest is not far, as somebody has sensed), and whether it has been searched. Robots hand their maps to those that
hear them, who add the marks to their own. Marks are never taken back, so it does not matter in which order, how often
or how late maps arrive. A robot whose policy leaves its speed open goes to the nearest cell that is worth searching and
has not been searched; a cell that is nearer to another robot which searches is left to that one.

Symbols: B environments, N robots, K things that a robot senses, C = A x A cells.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.observation import Observed
from mast_swarm.space import components, reachable

LEASH = 250.0  # m from a thing of interest up to which cells are worth searching
BORDER = 150.0  # m that the map reaches beyond the world's square
IDLE = 0.15  # in units of u_max: a robot whose policy leaves more of its speed open than this searches
_RIVALS = 4  # the nearest others that search, whose cells are left to them
_YIELD = 10.0  # how much a cell costs more, per metre by which a rival is nearer
_BYTES = 24  # of memory per robot and cell, the work on maps included
_STAY = 0.9  # what the cell of the last instant costs, in units of what it would: robots do not waver between two


def idle(prediction: Tensor) -> Tensor:
    """Who is left with speed to spare, [B, N] bool, by a prediction [B, N, 3] (mean command, expected speed)."""
    return prediction[..., 2].clamp(0, 1) - torch.linalg.vector_norm(prediction[..., :2], dim=-1) > IDLE


def sights_of(observation: object) -> Tensor:
    """What robots sense of what there is to search for, [B, N, K, 2] m, as `Survey.look` takes it."""
    sights: Tensor | None = getattr(observation, "sights", None)
    if sights is None:
        raise MastError(
            "the policy has a map of where robots have looked (exploration_survey), but this task does not say what "
            "they sense: give its observation `sights` [B, N, K, 2], or set exploration_survey to None"
        )
    places: Tensor = observation.positions  # type: ignore[attr-defined]
    if sights.ndim != 4 or sights.shape[:2] != places.shape[:2] or sights.shape[2] < 1 or sights.shape[3] != 2:
        raise MastError(
            f"`sights` of the observation have shape {list(sights.shape)}: expected "
            f"[{places.shape[0]}, {places.shape[1]}, things, 2], metres, relative to each robot"
        )
    return sights


def guided(command: Tensor, prediction: Tensor, way: Tensor) -> Tensor:
    """Commands [B, N, 2] where robots that search go their way [B, N, 2] at the speed that is predicted; 0: no way."""
    searching = (way != 0).any(-1, keepdim=True)
    return torch.where(searching, prediction[..., 2:].clamp(0, 1) * way.to(command.dtype), command)


@dataclass(eq=False, kw_only=True)
class Survey:
    """The maps of all robots, and who searches. A record of tensors, so that it can be part of a CUDA graph.

    At a control instant call `hear` for each hop since the last one, then `look`, then `ways`; without delay `hear`
    comes after `look`, and all of a component hear each other.
    """

    side: float  # m, of the world's square, whose middle is the origin
    cell: float  # m, of a cell
    maps: Tensor = field(default_factory=lambda: torch.zeros(0))  # [B, N, 2, C] bool: worth searching; searched
    place: Tensor = field(default_factory=lambda: torch.zeros(0))  # [B, N, 2] m: where robots were when last told ...
    searching: Tensor = field(default_factory=lambda: torch.zeros(0))  # [B, N] bool: ... and whether they searched
    chosen: Tensor = field(default_factory=lambda: torch.zeros(0))  # [B, N] int64: the cell that each goes to; C: none

    def __post_init__(self) -> None:
        if not (0 < self.side < math.inf and 0 < self.cell <= self.side + 2 * BORDER):
            raise MastError(
                f"a map with side = {self.side:g} m and cell = {self.cell:g} m: give the side of the world's square, "
                "and smaller cells"
            )

    @cached_property
    def along(self) -> int:
        """Cells along a side of the map."""
        return max(1, round((self.side + 2 * BORDER) / self.cell))

    def bytes(self, environments: int, robots: int) -> float:
        """Memory of the maps of so many robots and of what works on them, estimated."""
        return float(_BYTES * environments * robots * self.along**2)

    def _offsets(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """From points [..., 2] m to the middles of the map's columns and rows of cells, [..., A] m each."""
        at = (torch.arange(self.along, device=points.device, dtype=points.dtype) + 0.5 - self.along / 2) * self.cell
        return at - points[..., :1], at - points[..., 1:]

    def _squared(self, points: Tensor) -> Tensor:
        """Squared distances from points [..., 2] m to all cells, [..., C] m^2."""
        x, y = self._offsets(points)
        return (x.square()[..., None, :] + y.square()[..., :, None]).flatten(-2)

    def begin(self, positions: Tensor) -> None:
        """Nothing is known to robots at positions [B, N, 2]."""
        batch, robots, _ = positions.shape
        cells = self.along**2
        self.maps = torch.zeros((batch, robots, 2, cells), dtype=torch.bool, device=positions.device)
        self.place = positions.clone()
        self.searching = torch.zeros((batch, robots), dtype=torch.bool, device=positions.device)
        self.chosen = torch.full((batch, robots), cells, dtype=torch.int64, device=positions.device)

    def memory(self) -> dict[str, Tensor]:
        """What changes from instant to instant; `remember` takes it."""
        return {name: getattr(self, name) for name in ("maps", "place", "searching", "chosen")}

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Go on with what `memory` gave, wherever it lies now."""
        for name in ("maps", "place", "searching", "chosen"):
            setattr(self, name, memory[name])

    def hear(self, heard: Tensor, sent: Tensor | None = None) -> None:
        """One hop: robots add the maps of those they hear, heard [B, N, N] bool (i hears j), to their own.

        sent: the maps that travel; None: those that robots hold now."""
        maps = self.maps if sent is None else sent
        exact = torch.float16 if maps.device.type == "cuda" else torch.float32  # whether a sum is 0 is certain in both
        with torch.autocast(maps.device.type, enabled=False):
            count = heard.to(exact) @ maps.flatten(2).to(exact)
        self.maps = self.maps | (count > 0).view_as(self.maps)

    def look(self, positions: Tensor, sights: Tensor) -> None:
        """Robots at positions [B, N, 2] m mark what they sense: sights [B, N, K, 2] m, relative, the farthest last;
        infinite where there is nothing more to sense."""
        worth = self.maps[:, :, 0]
        for sight in sights.unbind(2):
            worth = worth | (self._squared(positions + sight) <= LEASH**2)
        searched = self.maps[:, :, 1] | (self._squared(positions) <= sights[:, :, -1].square().sum(-1, keepdim=True))
        x, y = (offset.abs() <= self.cell / 2 for offset in self._offsets(positions))  # the cell that a robot is in
        searched = searched | (x[..., None, :] & y[..., :, None]).flatten(-2)
        self.maps = torch.stack((worth, searched), dim=2)

    def commanded(self, command: Tensor, prediction: Tensor, observation: Observed) -> Tensor:
        """Commands [B, N, 2] where robots that are left idle search: a whole instant without delay, all components
        each with one map."""
        positions, graph = observation.positions, observation.graph
        if not self.maps.numel():
            self.begin(positions)
        self.look(positions, sights_of(observation))
        if graph.directed:
            self.hear(reachable(graph))
        else:
            label = components(graph)
            self.hear(label[:, :, None] == label[:, None])
        return guided(command, prediction, self.ways(positions, idle(prediction), graph.adjacency()))

    def ways(self, positions: Tensor, idle: Tensor, heard: Tensor, told: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """Where robots that are idle, [B, N] bool, go: unit vectors [B, N, 2], 0 for all others and where nothing is
        left to search. heard [B, N, N] bool: whom they hear. told: where those were, [B, N, 2] m, and whether they
        searched, [B, N] bool, as they said; None: at the last instant."""
        batch, robots, _ = positions.shape
        where, searched = (self.place, self.searching) if told is None else told
        known = heard & searched[:, None]
        known = known & ~torch.eye(robots, dtype=torch.bool, device=known.device)
        apart = torch.linalg.vector_norm(positions[:, :, None] - where[:, None], dim=-1)  # [B, N, N] m
        far, rival = apart.masked_fill(~known, torch.inf).topk(min(_RIVALS, robots), dim=-1, largest=False)
        environment = torch.arange(batch, device=positions.device)[:, None, None]
        rivals = where[environment, rival].masked_fill(far[..., None] == torch.inf, torch.inf)  # [B, N, R, 2] m
        # On a CPU of those alone that are idle, who are few; a GPU would have to wait for how many they are.
        rows = idle.nonzero(as_tuple=True) if idle.device.type == "cpu" else (slice(None), slice(None))
        least, best = self._cheapest(positions[rows], rivals[rows], self.maps[rows], self.chosen[rows])
        cost = positions.new_full((batch, robots), torch.inf)
        cell = torch.zeros_like(self.chosen)
        cost[rows], cell[rows] = least, best
        going = idle & (cost < torch.inf)
        middle = torch.stack((cell % self.along, cell // self.along), dim=-1) + 0.5 - self.along / 2
        way = (middle * self.cell - positions) * going[..., None]
        self.place, self.searching = positions.clone(), going
        self.chosen = cell.where(going, self.along**2)
        return way / torch.linalg.vector_norm(way, dim=-1, keepdim=True).clamp_min(1e-6)

    def _cheapest(self, here: Tensor, rivals: Tensor, maps: Tensor, chosen: Tensor) -> tuple[Tensor, Tensor]:
        """The cell that each of some robots at [..., 2] m would search, and what it costs, m; infinite: none is left.

        rivals [..., R, 2] m, infinite where there are fewer; maps [..., 2, C] and chosen [...] of these robots."""
        cost = distance = self._squared(here).sqrt()  # [..., C]
        for rival in rivals.unbind(-2):
            nearer = distance - self._squared(rival).sqrt()  # -inf where there is none
            cost = torch.maximum(cost, distance + _YIELD * nearer)
        cells = torch.arange(self.along**2, device=here.device)
        cost = torch.where(cells == chosen[..., None], _STAY * cost, cost)
        cost = cost.masked_fill(~maps[..., 0, :] | maps[..., 1, :], torch.inf)
        least, best = cost.min(-1)
        return least, best
