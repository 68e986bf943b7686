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
from mast_swarm.comms.relay import Relay, RelayState, slot_of
from mast_swarm.comms.views import Nodes, chunks, look, near_entries, nodes
from mast_swarm.errors import MastError
from mast_swarm.model import learned
from mast_swarm.model.lists import add_normed, attend_lists
from mast_swarm.model.mast import Block
from mast_swarm.model.policy import Policy
from mast_swarm.model.windowed import project
from mast_swarm.space import Graph

# Rows of the first layer and pairs of entries that are worked on at a time.
_CPU_ROWS, _CPU_PAIRS = 20_000, 1 << 22
_GPU_ROWS, _GPU_PAIRS = 2_000_000, 1 << 28


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

    def start(self, seeds: Sequence[int]) -> None:
        """Forget everything: instant 0 of one environment a seed."""
        self.seeds, self.state, self._graph = seeds, None, None

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
        seeds = torch.tensor(self.seeds, dtype=torch.int64, device=message.device)
        time = torch.full_like(seeds, self.state.step) * self.dt
        command = self.policy.command(prediction, observation.landmark, seeds, time)
        return command * self.state.alive[..., None]


@torch.no_grad()
def decide(policy: Policy, state: RelayState) -> Tensor:
    """Every living robot's prediction from what it holds, [B, N, 2 or 3] as in `Policy.decide`; 0 for the others."""
    config, device = policy.config, state.table.device
    radius, layers = config.attention_radius, config.layers
    stored, entry = _entries(state)
    positions = state.positions.flatten(0, 2)[stored]  # [U, 2]
    message = state.messages.flatten(0, 2)[stored]  # [U, d_msg]
    environment, robot = state.alive.nonzero(as_tuple=True)  # the V views
    own, entry = entry[environment, robot, robot], entry[environment, robot]  # [V], [V, N]
    prediction = torch.zeros(*state.alive.shape, policy.outputs, dtype=policy.dtype, device=device)
    if len(own) == 0:
        return prediction
    # A chain of L windows ends nearer than L radii; the margin is for rounding.
    entry = near_entries(entry, own, positions, None if radius is None else 1.001 * layers * radius)

    rotation = policy.encoding.rotation(positions - _origin(state, stored, positions))
    x = policy.encoding.embed(policy.lift(message), positions)  # [U, d]
    every = torch.arange(len(x), device=device)
    first, *others = cast(list[Block], list(policy.mast.blocks))
    q, kv = project(first, first.norm1(x), len(x), rotation, every)
    rows, pairs = (_CPU_ROWS, _CPU_PAIRS) if device.type == "cpu" else (_GPU_ROWS, _GPU_PAIRS)
    norms = [*(block.norm1 for block in others), policy.mast.norm]  # each follows on a block
    for part in chunks(environment, entry.shape[1], rows, pairs):
        views = look(entry[part], own[part], positions, radius, layers)
        work = nodes(views, 1)
        (y, h), of = _combine(first, x, q, kv, work, norms[0]), work.itself
        for layer, block in enumerate(others, start=2):
            work = nodes(views, layer, work)
            y, h = _combine(block, y, *project(block, h, work.asked, rotation, of), work, norms[layer - 1])
            of = of[work.itself]
        prediction[environment[part], robot[part]] = policy.act(h)[work.number.amax(1)]
    return prediction


def _origin(state: RelayState, stored: Tensor, positions: Tensor) -> Tensor:
    """A point near the team of each entry's environment, [U, 2] metres, for phases to be relative to.

    It is the same for all entries of an environment, so that it cancels: the place of the first of them, in
    whole metres as in `near_origin`.
    """
    batch, slots, robots, _ = state.messages.shape
    environment = stored // (slots * robots)  # ascending
    first = torch.searchsorted(environment, torch.arange(batch, device=stored.device))
    return positions[first.clamp_max(len(stored) - 1)].round()[environment]


def _entries(state: RelayState) -> tuple[Tensor, Tensor]:
    """The U distinct messages that someone holds: their places in the store [U], and who holds which of them.

    The latter is [B, N, N] int64: [b, i, j] the number, in 0..U-1, of what i holds of j; -1: nothing.
    """
    batch, slots, robots, _ = state.messages.shape
    newest = state.newest
    b = torch.arange(batch, device=newest.device)[:, None, None]
    j = torch.arange(robots, device=newest.device)
    size = batch * slots * robots
    place = torch.where(newest < 0, size, (b * slots + slot_of(newest)) * robots + j)
    used = torch.zeros(size + 1, dtype=torch.bool, device=newest.device).index_fill_(0, place.flatten(), True)
    number = used.cumsum(0) - 1
    number[-1] = -1
    return used[:-1].nonzero()[:, 0], number[place]


def _combine(block: Block, x: Tensor, q: Tensor, kv: Tensor, work: Nodes, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """The block's output [n', d] for the nodes of `work`, from the x [n, d] below and its queries, keys and
    values; and the same after the norm that follows."""
    y = attend_lists(q, work.itself, kv, work.lists, block.attention.heads)
    x, h = add_normed(x, work.itself, block.attention.out(y), block.norm2)
    return add_normed(x, None, block.mlp(h), norm)
