"""Decentralised execution, simulated: every robot runs the policy on what has reached it.

Taken literally this is one full pass a robot. The same commands come from far less work:

1. what a message becomes in the first layer (lift, encoding, norm, query, key, value) depends on its origin
   and stamp alone, and is computed once for all the robots that hold it;
2. in each layer only the rows are computed on which a robot's own command depends (`views.look`), queries and
   MLPs for fewer rows than keys and values;
3. rows that read the same thing in several robots' views are computed once (`views.nodes`).

Rows of all robots and environments lie in one matrix, so that the linear layers remain large products.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from mast_swarm.comms.config import Channel
from mast_swarm.comms.relay import SLOT_BITS, Relay, RelayState, slot_of
from mast_swarm.comms.views import Nodes, Views, attend, chunks, kernels, look, nodes
from mast_swarm.errors import MastError
from mast_swarm.model import learned
from mast_swarm.model.lists import add_normed
from mast_swarm.model.mast import Block
from mast_swarm.model.policy import Policy
from mast_swarm.model.windowed import project
from mast_swarm.space import Graph

# Rows of the first layer and pairs of entries that are worked on at a time.
ROWS = {"cpu": 20_000, "cuda": 2_000_000}
PAIRS = {"cpu": 1 << 22, "cuda": 1 << 28}


class Observed(learned.Observed, Protocol):
    """What the robots of B environments sense at one control instant; a world's observation has these."""

    @property
    def landmark(self) -> Tensor: ...  # [B, N, 2] metres, relative: the nearest thing of interest


class DecentralPolicy:
    """A policy run by every robot alone, over a channel, at control instants `dt` seconds apart.

    `start`, then `act` once a control instant. `state` is what the robots hold at the last of them.
    """

    def __init__(self, policy: Policy, channel: Channel, dt: float) -> None:
        if policy.config.variant == "C":
            raise MastError("a policy of variant C sees every goal: it runs centrally only, use variant M or L")
        self.policy = policy
        self.relay, self.dt = Relay(channel, dt), dt
        self.seeds: Sequence[int] = ()
        self.state: RelayState | None = None
        self._graph: Graph | None = None
        self._seeds: Tensor | None = None  # [B] int64 where the policy runs

    def start(self, seeds: Sequence[int]) -> None:
        """Forget everything: instant 0 of one environment a seed."""
        self.seeds, self.state, self._graph, self._seeds = seeds, None, None, None

    @torch.no_grad()
    def act(self, observation: Observed) -> Tensor:
        """Commands [B, N, 2] in units of u_max at the next control instant; 0 for robots that have failed.

        The messages due by now have moved over the graph of the last observation.
        """
        message = self.policy.perceive(observation.features)
        self.policy.check(message, observation.positions)
        batch, robots, width = message.shape
        if self.state is None or self._graph is None:
            if batch != len(self.seeds):
                raise MastError(f"{batch} environments are observed but {len(self.seeds)} were started: call start")
            state = self.relay.start(self.seeds, robots, width, like=message)
        elif self.state.alive.shape != (batch, robots):
            raise MastError(f"{[batch, robots]} environments and robots, but the run began with others: call start")
        else:
            state = self.relay.exchange(self.state, self._graph)
        self._graph = observation.graph
        self.state = self.relay.sample(state, message, observation.positions, observation.graph)
        prediction = decide(self.policy, self.state)
        if self._seeds is None:  # sent to the device once: each time it would wait for all that it has to do
            self._seeds = torch.tensor(self.seeds, dtype=torch.int64, device=message.device)
        time = torch.full_like(self._seeds, self.state.step) * self.dt
        command = self.policy.command(prediction, observation.landmark, self._seeds, time)
        return command * self.state.alive[..., None]


@torch.no_grad()
def decide(policy: Policy, state: RelayState) -> Tensor:
    """Every living robot's prediction from what it holds, [B, N, 2 or 3] as in `Policy.decide`; 0 for the others."""
    (batch, robots), device = state.alive.shape, state.table.device
    radius, layers = policy.config.attention_radius, policy.config.layers
    # A chain of L windows ends nearer than L radii; the margin is for rounding.
    stored, entry, own = _entries(state, None if radius is None else 1.001 * layers * radius)
    prediction = torch.zeros(batch * robots, policy.outputs, dtype=policy.dtype, device=device)
    if len(stored) == 0:
        return prediction.unflatten(0, (batch, robots))
    positions = state.positions.flatten(0, 2)[stored]  # [U, 2]
    x = policy.lift(state.messages.flatten(0, 2)[stored]).to(policy.dtype)  # [U, d]; under autocast too
    x = policy.encoding.embed(x, positions)
    rotation = policy.encoding.rotation(positions)  # phases are taken in fp64: no origin need be near
    first, *others = cast(list[Block], list(policy.mast.blocks))
    x, h = add_normed(x, None, None, first.norm1)
    q, kv = project(first, h, len(x), rotation, torch.arange(len(x), device=device))
    norms = [*(block.norm1 for block in others), policy.mast.norm]  # each follows on a block
    for part in chunks(batch, robots, entry.shape[1], ROWS[device.type], PAIRS[device.type]):
        views = look(entry[part], own[part], positions, radius, layers)
        if views.rows[1] == 0:
            continue  # nobody is alive here
        work = nodes(views, None, len(x) * len(views.entry) // len(own))
        (y, h), of = _combine(first, x, q, kv, views, work, norms[0]), work.itself
        for block, norm in zip(others, norms[1:], strict=True):
            work = nodes(views, work)
            y, h = _combine(block, y, *project(block, h, work.asked, rotation, of), views, work, norm)
            of = of[work.itself]
        alone = views.place[: views.rows[layers]]  # the rows of the robots themselves
        prediction[part.start + alone // entry.shape[1]] = policy.act(h)[work.number.flatten()[alone]]
    return prediction.unflatten(0, (batch, robots))


def _entries(state: RelayState, reach: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """The U distinct messages that living robots hold of places nearer than `reach` metres: their places in the store
    [U]; every robot's view of them, moved to the left [B N, C], as numbers in 0..U-1; and its own one [B N]. -1: none.
    """
    batch, slots, robots, _ = state.messages.shape
    size, newest, positions = batch * slots * robots, state.newest, state.positions.flatten(0, 2)
    if kernels is not None and newest.is_cuda and positions.dtype == torch.float32 and robots <= kernels.MOST_ROBOTS:
        packed, own, count, used = kernels.hold(newest, state.alive, positions, slots, SLOT_BITS, reach)
    else:
        near = (newest >= 0) & state.alive[:, :, None]
        b = torch.arange(batch, device=newest.device)[:, None, None]
        place = (b * slots + slot_of(newest)) * robots + torch.arange(robots, device=newest.device)
        place = place.where(near, size)  # stands for none
        own = place.diagonal(dim1=1, dim2=2)
        if reach is not None:
            known = place.clamp_max(size - 1)
            apart = positions[known] - positions[known.diagonal(dim1=1, dim2=2)][:, :, None]
            near = near & (apart.square().sum(-1) < reach * reach)
            near.diagonal(dim1=1, dim2=2).copy_(state.alive)  # even where a position is no number
        count = near.sum(-1)
        packed = place.new_full((batch, robots, robots + 1), size)  # the last column takes those that are too far
        packed.scatter_(2, (near.cumsum(-1) - 1).where(near, robots), place)
        packed, own = packed.flatten(0, 1)[:, :-1], own.flatten()
        used = torch.zeros(size + 1, dtype=torch.uint8, device=newest.device).index_fill_(0, packed.flatten(), 1)
    number = used.cumsum(0) - 1
    number[-1:] = -1
    widest = count.max()
    stored = used[:-1].nonzero()[:, 0]
    return stored, number[packed[:, : int(widest)]], number[own]


def _combine(
    block: Block, x: Tensor, q: Tensor, kv: Tensor, views: Views, work: Nodes, norm: nn.LayerNorm
) -> tuple[Tensor, Tensor]:
    """The block's output [n', d] for the nodes of `work`, from the x [n, d] below and its queries, keys and
    values; and the same after the norm that follows."""
    y = attend(q, kv, views, work, block.attention.heads)
    x, h = add_normed(x, work.itself, block.attention.out(y), block.norm2)
    return add_normed(x, None, block.mlp(h), norm)
