"""A team larger than one device holds: the world cut into strips, one a process, and one policy step over all of them.

Every process owns the robots of one strip of the x axis and computes their predictions. For that it needs others'
messages from as far as L attention windows reach and no farther: the halo, which its neighbours send it. The
predictions are those of one process with the whole team, but for rounding.

1. `Strips.cut` chooses strips that hold about equally many robots; `share_out` gives each robot to its strip's owner,
   again whenever robots have moved.
2. `Strips.decide` perceives, finds the connected components of the whole team's graph, exchanges halos, and runs the
   policy on own robots and halo. It is right whoever owns which robot: strips only keep the halos small.

Processes are those of a torch.distributed group, gloo on CPU or NCCL on CUDA; without one, there is one process. All
but `command` is called by all processes together, and bad input that one of them is given is an error on all of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.policy import Policy
from mast_swarm.space import Graph, components

_SAMPLES = 4096  # robots of each process that choose the cuts
_MARGIN = 1.001  # on the reach of L windows, for rounding


class Strips:
    """A policy run by the processes of `group` (None: the default group), each for the robots that it owns.

    A robot has an id, its place 0..N-1 in the whole team, and goes by it whoever owns it. Tensors are on the policy's
    device. `sent_bytes` is what this process has sent to others since the last `decide` began, `halo_rows` how many
    robots of theirs that one worked on.
    """

    def __init__(self, policy: Policy, group: dist.ProcessGroup | None = None) -> None:
        if policy.config.attention_radius is None:
            raise MastError("a policy without attention window needs every message everywhere: set attention_radius")
        if policy.config.variant == "C":
            raise MastError("a policy of variant C sees every goal: it runs in one process only, use variant M or L")
        if policy.survey(1.0) is not None:
            raise MastError(
                "a policy whose robots share a map runs in one process only: give one without (exploration_survey None)"
            )
        self.policy, self.group = policy, group
        together = dist.is_available() and dist.is_initialized()
        self.processes = dist.get_world_size(group) if together else 1
        self.rank = dist.get_rank(group) if together else 0
        self.device = next(policy.parameters()).device
        self.cuts: Tensor | None = None  # [processes - 1] float64 metres, ascending
        self.sent_bytes = self.halo_rows = 0
        self._reach = _MARGIN * policy.config.layers * policy.config.attention_radius

    def cut(self, positions: Tensor) -> None:
        """Choose strips that hold about equally many robots, given the positions [n, 2] metres of this process's.

        The cuts are quantiles of samples, which count at most one in 4096 robots wrongly.
        """
        with self._agreed():
            _check_positions(positions)
        x = positions[:, 0].double().sort().values
        step = max(1, math.ceil(len(x) / _SAMPLES))
        sample = x[::step]
        weight = torch.full_like(sample, step)  # robots that each stands for: itself and those up to the next
        weight[-1:] = len(x) - step * (len(sample) - 1)
        # On the CPU and in whole numbers, so that all processes find the same cuts to the last bit.
        sample, weight = self._gather(torch.stack((sample, weight), dim=1)).cpu().unbind(1)
        sample, order = sample.sort(stable=True)
        through = weight[order].cumsum(0)
        share = torch.arange(1, self.processes, dtype=torch.float64) / self.processes
        if len(sample) == 0:
            self.cuts = torch.zeros(len(share), dtype=torch.float64, device=self.device)
            return
        chosen = torch.searchsorted(through, share * through[-1], right=True)
        self.cuts = sample[chosen].to(self.device)

    def share_out(self, ids: Tensor, positions: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        """The robots of this process's strip, from all processes: ids, positions and columns in the order of ids.

        ids [n] int64, positions [n, 2] metres, and whatever else moves with a robot, each [n, ...]; types and shapes
        are the same on all processes but for n.
        """
        with self._agreed():
            if self.cuts is None:
                raise MastError("robots cannot be shared out before there are strips: call cut first")
            _check(ids, positions, *columns)
        owner = torch.bucketize(positions[:, 0].double(), self.cuts, right=True)
        order = owner.argsort(stable=True)
        counts = owner.bincount(minlength=self.processes)
        mine = self._swap(order, counts, ids, positions, *columns)
        arranged = mine[0].argsort()
        return tuple(column[arranged] for column in mine)

    def halo(self, reach: float, positions: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        """Others' robots within `reach` metres of this process's: their positions and columns, as in `share_out`.

        With positions and ids this is also what neighbours, links and sensing across a cut can be found from. Some
        of the robots may be farther: nearness is to the box that holds a process's robots.
        """
        with self._agreed():
            _check_positions(positions)
        return self._halo(reach, positions, *columns)

    @torch.no_grad()
    def decide(self, ids: Tensor, features: Tensor, positions: Tensor, links: Tensor | None = None) -> Tensor:
        """Predictions [n, 2 or 3] for this process's robots, as `Policy.decide` gives them for the whole team.

        ids [n] int64, features [n, ...], positions [n, 2] metres, of this process's robots. links [e, 2] int64, read
        by variant M alone: pairs of ids, of any robots, that can talk both ways; a link counts when any process
        names it, so each gives those of its own robots, such as each with its three nearest.
        """
        self.sent_bytes = 0
        masked = self.policy.config.component_mask
        with self._agreed():
            _check(ids, positions, features)
            if masked:
                links = _checked_links(links)
            message = self.policy.perceive(features[None])
            self.policy.check(message, positions[None])
        own = [positions, message[0], ids]
        if masked and links is not None:
            own.append(self._components(ids, links))
        halo = self._halo(self._reach, *own)
        self.halo_rows = len(halo[0])
        positions, message, everyone, *component = (torch.cat(parts) for parts in zip(own, halo, strict=True))
        with self._agreed():
            if len(everyone.unique()) < len(everyone):
                raise MastError("a robot is owned twice: expected every id once, over all processes")
        if len(ids) == 0:
            return torch.zeros((0, self.policy.outputs), dtype=self.policy.dtype, device=self.device)
        prediction = self.policy.decide(message[None], positions[None], *(label[None] for label in component))
        return prediction[0, : len(ids)]

    def command(
        self,
        ids: Tensor,
        prediction: Tensor,
        landmark: Tensor,
        seeds: Tensor,
        time: Tensor,
        away: Tensor | None = None,
    ) -> Tensor:
        """Commands [n, 2] in units of u_max from this process's predictions [n, 2 or 3], as `Policy.command`.

        landmark [n, 2] metres, relative; seeds [1] int64 and time [1] s, of the one environment; away [n, 2] of a
        policy that remembers. Nothing travels, but a few numbers are held for every robot of the team: an exploring
        robot's heading depends on its id.
        """
        team = int(ids.max()) + 1 if len(ids) else 0

        def placed(given: Tensor) -> Tensor:
            whole = given.new_zeros((1, team, given.shape[1]))
            whole[0, ids] = given
            return whole

        push = None if away is None else placed(away)
        return self.policy.command(placed(prediction), placed(landmark), seeds, time, push)[0, ids]

    def _components(self, ids: Tensor, links: Tensor) -> Tensor:
        """[n] int64: the lowest id in the connected component, of the whole team, that each robot is in.

        Each process labels what its own links connect. Those labels are right but for what others know, which can
        only concern robots that two processes know: of these every process learns all the others' labels, and
        labels the labels.
        """
        known, label = _labels(ids, links)
        foreign = ~torch.isin(known, ids)
        pairs = torch.stack((known, label), dim=1)
        asked = self._gather(pairs[foreign])
        answered = self._gather(pairs[torch.isin(known, asked[:, 0]) & ~foreign])
        nobody = ~torch.isin(asked[:, 0], answered[:, 0])
        if nobody.any():
            name = int(asked[nobody][0, 0])
            raise MastError(f"links name robot {name}, which no process owns: expected ids of the team")
        joined, lowest = _labels(ids[:0], torch.cat((asked, answered)))
        label = label[torch.searchsorted(known, ids)]
        if len(joined) == 0:
            return label
        place = torch.searchsorted(joined, label).clamp_max(len(joined) - 1)
        return torch.where(joined[place] == label, lowest[place], label)

    def _halo(self, reach: float, positions: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        box = positions.new_full((1, 4), math.inf, dtype=torch.float64)  # lowest x and y, highest with the sign turned
        if len(positions) > 0:
            box = torch.cat((positions, -positions), dim=1).double().amin(0, keepdim=True)
        rows = []
        for process, ends in enumerate(self._gather(box)):
            outside = torch.maximum(ends[:2] - positions, positions + ends[2:]).clamp_min(0)  # [n, 2] metres
            near = torch.linalg.vector_norm(outside, dim=1) <= (reach if process != self.rank else -1)
            rows.append(near.nonzero()[:, 0])
        counts = torch.tensor([len(row) for row in rows], device=positions.device)
        return self._swap(torch.cat(rows), counts, positions, *columns)

    def _gather(self, table: Tensor) -> Tensor:
        """The rows [n, ...] of all processes, in the same order on each."""
        row = torch.arange(len(table), device=table.device).repeat(self.processes)
        counts = torch.full((self.processes,), len(table), device=table.device)
        return self._swap(row, counts, table)[0]

    def _swap(self, row: Tensor, counts: Tensor, *columns: Tensor) -> tuple[Tensor, ...]:
        """Send rows of the columns [n, ...] to other processes; what they sent here, in the order of processes.

        row [m] int64: which rows, first those for process 0; counts [P] int64: how many for each.
        """
        rows = _packed(columns, row)
        if self.processes == 1:
            return _unpacked(rows, columns)
        size = rows.shape[1]
        outgoing = torch.stack((counts, torch.full_like(counts, size)), dim=1)
        incoming = torch.empty_like(outgoing)
        dist.all_to_all_single(incoming, outgoing, group=self.group)
        sent, (received, sizes) = counts.tolist(), incoming.t().tolist()
        for process, other in enumerate(sizes):
            if other != size:  # every process meets one that differs, so all of them stop here
                raise MastError(
                    f"a robot takes {size} bytes in process {self.rank} and {other} in process {process}: "
                    "expected the same types and shapes in all"
                )
        arrived = rows.new_empty((sum(received), size))
        dist.all_to_all_single(arrived, rows, received, sent, group=self.group)
        self.sent_bytes += (len(rows) - sent[self.rank]) * size
        return _unpacked(arrived, columns)

    @contextmanager
    def _agreed(self) -> Iterator[None]:
        """For checks: an error on one process is an error on all, so that none waits for one that has stopped."""
        error: MastError | None = None
        try:
            yield
        except MastError as met:
            error = met
        refusing = 0 if error is None else self.rank + 1
        if self.processes > 1:
            worst = torch.tensor([refusing], device=self.device)
            dist.all_reduce(worst, dist.ReduceOp.MAX, group=self.group)
            refusing = int(worst)
        if error is not None:
            raise error
        if refusing:
            raise MastError(f"process {refusing - 1} was given bad input: see its error")


def halo_bytes(config: PolicyConfig, robots: int, side: float) -> int:
    """What a process between two others sends them at a step, in bytes, if the team fills a square of `side` metres.

    That is two halos in fp32, for strips no narrower than a halo; labels of components add little.
    """
    if config.attention_radius is None:
        raise MastError("a policy without attention window has no halo: set attention_radius")
    rows = 2 * robots * min(1.0, _MARGIN * config.layers * config.attention_radius / side)
    whole_numbers = 2 if config.component_mask else 1  # id and label
    return round(rows * ((config.message_width + 2) * 4 + 8 * whole_numbers))


def _labels(ids: Tensor, links: Tensor) -> tuple[Tensor, Tensor]:
    """All ids that are given or linked, ascending, and for each the lowest that links [e, 2] connect it with."""
    known, place = torch.cat((ids, links.flatten())).unique(return_inverse=True)
    source, target = place[len(ids) :].view(-1, 2).unbind(1)
    return known, known[components(Graph(source, target, 1, len(known)))[0]]


def _packed(columns: Sequence[Tensor], row: Tensor) -> Tensor:
    """Rows [m] int64 of columns [n, ...] of any types, side by side as bytes, [m, size] uint8."""
    chosen = (column.index_select(0, row).view(len(row), math.prod(column.shape[1:])) for column in columns)
    return torch.cat([column.view(torch.uint8) for column in chosen], dim=1)


def _unpacked(rows: Tensor, like: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """The reverse of `_packed`, for columns of the types and shapes of others, but for n."""
    sizes = [math.prod(column.shape[1:]) * column.itemsize for column in like]
    parts = zip(rows.split(sizes, dim=1), like, strict=True)
    # Clones, because a view as another type has to begin at a multiple of its size.
    whole = ((part.clone(memory_format=torch.contiguous_format), column) for part, column in parts)
    return tuple(part.view(column.dtype).view(len(rows), *column.shape[1:]) for part, column in whole)


def _check_positions(positions: Tensor) -> None:
    if positions.ndim != 2 or positions.shape[1] != 2 or not positions.is_floating_point():
        raise MastError(f"positions are {positions.dtype} {list(positions.shape)}: expected floats [n, 2] in metres")
    if not torch.isfinite(positions).all():
        raise MastError("positions hold NaN or infinity: expected finite numbers")


def _check(ids: Tensor, positions: Tensor, *columns: Tensor) -> None:
    """Raise an error unless every robot has an id, a finite position, and a row in each column."""
    _check_positions(positions)
    if ids.dtype != torch.int64 or ids.ndim != 1:
        raise MastError(f"ids are {ids.dtype} {list(ids.shape)}: expected int64 [n]")
    lengths = [len(ids), *(len(column) for column in columns)]
    if any(length != len(positions) for length in lengths):
        raise MastError(f"{len(positions)} positions are given with {lengths} ids and others: expected a row a robot")


def _checked_links(links: Tensor | None) -> Tensor:
    if links is None:
        raise MastError("a policy of variant M needs to know who can talk to whom: pass links [e, 2], pairs of ids")
    if links.dtype != torch.int64 or links.ndim != 2 or links.shape[1] != 2:
        raise MastError(f"links are {links.dtype} {list(links.shape)}: expected int64 [e, 2], pairs of ids")
    return links
