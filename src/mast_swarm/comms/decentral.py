"""Decentralized execution, simulated: every robot runs the policy on what has reached it.

Taken literally this is one full pass per robot. The same commands come from far less work:

1. what a message becomes in the first layer (lift, encoding, norm, query, key, value) depends on its origin
   and stamp alone, and is computed once for all the robots that hold it;
2. in each layer only the rows are computed on which a robot's own command depends (`views.look`), queries and
   MLPs for fewer rows than keys and values;
3. rows that read the same thing in several robots' views are computed once (`views.nodes`).

Rows of all robots and environments lie in one matrix, so that the linear layers remain large products.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from mast_swarm import chance, steady
from mast_swarm.comms import near, padded, wide
from mast_swarm.comms.config import Channel
from mast_swarm.comms.handed import Handed
from mast_swarm.comms.held import SLOT_BITS, RelayState, slot_of
from mast_swarm.comms.near import NearState
from mast_swarm.comms.padded import PaddedState
from mast_swarm.comms.relay import Held, Relay
from mast_swarm.comms.views import Nodes, Views, attend, chunks, kernels, look, nodes, weigh, windows_of_robots
from mast_swarm.errors import MastError, MastWarning
from mast_swarm.kernels import on_gpu
from mast_swarm.model.lists import projected
from mast_swarm.model.mast import Block
from mast_swarm.model.policy import Policy
from mast_swarm.observation import Mark, Observed, unmarked
from mast_swarm.space import Graph
from mast_swarm.space.graph import MatrixGraph
from mast_swarm.survey import Survey

# Rows of the first layer and pairs of entries that are worked on at a time.
ROWS = {"cpu": 20_000, "cuda": wide.ROWS}
PAIRS = {"cpu": 1 << 22, "cuda": 1 << 28}
_WIDER = 64  # columns that views have to spare in steady work
_REMEMBERED = ("table", "messages", "positions", "alive", "transmissions", "entries")  # of a relay's state


@dataclass(frozen=True)
class Attended:
    """What robots attend to in their own views, one row per robot and origin in its window."""

    robot: Tensor  # [E] int64, b N + i
    origin: Tensor  # [E] int64, j
    weights: Tensor  # [E, L, H]; those of a robot, a layer and a head sum to 1


@dataclass(frozen=True)
class Work:
    """What the decisions of a team compute, over all robots and environments; the lists are by layer [L].

    In layer l, `queries[l]` rows of the layer below are made queries of, and all of its rows keys and values: in the
    first layer both of the `messages` that anybody holds. Then `rows[l]` rows look at `pairs[l]` keys in all.
    """

    messages: int
    queries: list[int]
    rows: list[int]
    pairs: list[int]


class DecentralPolicy:
    """A policy run by every robot alone, over a channel, at control instants `dt` seconds apart.

    `start`, then `act` once per control instant. `state` is what the robots hold at the last of them.
    """

    def __init__(self, policy: Policy, channel: Channel, dt: float, survey: Survey | None = None) -> None:
        """survey: the maps that robots share where the policy has them (`Policy.survey`)."""
        if policy.config.variant == "C":
            raise MastError("a policy of variant C sees every goal: it runs centrally only, use variant M or L")
        if survey is None and policy.survey(1.0) is not None:
            warnings.warn(
                "the policy's robots share a map of where they have looked, and here they have none: give "
                "survey=policy.survey(side), side the width of the world in metres",
                MastWarning,
                stacklevel=2,
            )
        self.policy = policy
        self.relay, self.dt = Relay(channel, dt), dt
        self.seeds: Sequence[int] = ()
        self.state: Held | None = None
        self._graph: Graph | None = None
        self._seeds: Tensor | None = None  # [B] int64 where the policy runs
        self._trail = policy.trail(dt)
        self._maps = None if survey is None else Handed(survey, self.relay)
        self.watched = 0  # of how many environments, the first, `attended` is kept
        self.attended: list[Attended] = []  # when they last decided

    def start(self, seeds: Sequence[int]) -> None:
        """Forget everything: instant 0 of one environment per seed."""
        self.seeds, self.state, self._graph, self._seeds = seeds, None, None, None
        self._trail = self.policy.trail(self.dt)
        if self._maps is not None:
            self._maps.start()

    def act(self, observation: Observed, mark: Mark = unmarked) -> Tensor:
        """Commands [B, N, 2] in units of u_max at the next control instant; 0 for robots that have failed.

        mark: is told when each part of it ends.
        """
        self.listen(observation, mark)
        command = self.decide(observation)
        mark("decide")
        return command

    @torch.no_grad()
    def listen(self, observation: Observed, mark: Mark = unmarked) -> None:
        """Robots sense, and hear what has reached them. The messages due by now have moved over the graph of the last
        observation."""
        message = self.policy.perceive(observation.features)
        mark("perceive")
        self.policy.check(message, observation.positions)
        batch, robots, width = message.shape
        if self.state is None or self._graph is None:
            if batch != len(self.seeds):
                raise MastError(f"{batch} environments are observed but {len(self.seeds)} were started: call start")
            self._warn(observation.graph)
            state = self.relay.start(self.seeds, robots, width, like=message)
        elif self.state.alive.shape != (batch, robots):
            raise MastError(f"{[batch, robots]} environments and robots, but the run began with others: call start")
        else:
            if self._maps is not None:
                self._maps.hear(self.state, self._graph)
            state = self.relay.exchange(self.state, self._graph)
        self._graph = observation.graph
        self.state = self.relay.sample(state, message, observation.positions, observation.graph)
        if self._maps is not None:
            self._maps.look(self.state, observation)
        mark("relay")

    @torch.no_grad()
    def decide(self, observation: Observed) -> Tensor:
        """Commands [B, N, 2] from what robots hold."""
        assert self.state is not None  # they have listened
        self.attended = []
        attended = self.attended if self.watched else None
        prediction = decide(self.policy, self.state, attended, self.watched)
        if self._seeds is None:  # sent to the device once: each time it would wait for all that it has to do
            self._seeds = chance.as_tensor(self.seeds, prediction.device)
        time = (torch.zeros_like(self._seeds) + self.state.step) * self.dt
        away = None if self._trail is None else self._trail.away(observation.positions)
        command = self.policy.command(prediction, observation.landmark, self._seeds, time, away)
        if self._maps is not None:
            command = self._maps.searched(command, prediction, self.state.alive, observation.positions)
        return command * self.state.alive[..., None]

    def unsteady(self, robots: int) -> str | None:
        """Why a run of so many robots has to ask a GPU for numbers at every step; None: it need not."""
        config = self.policy.config
        if self.policy.dtype != torch.float32 or not wide.fits(config.width, config.heads):
            return "no kernel takes views of a policy of this width and precision"
        if config.field is None and robots > wide.kernels.MOST_COLUMNS:
            return f"no kernel takes views of {robots:,} robots, and this policy has no attention window"
        return self.relay.unsteady()

    def memory(self) -> dict[str, Tensor]:
        """All that a decision leaves behind for the next, where a run may be steady; `remember` takes it."""
        state, graph = self.state, self._graph
        assert isinstance(state, RelayState) and graph is not None  # they have decided
        kept = {name: getattr(state, name) for name in _REMEMBERED}
        step = state.step
        kept["step"] = step if isinstance(step, Tensor) else torch.full_like(state.transmissions[:1], step)
        kept["heard"] = graph.matrix if isinstance(graph, MatrixGraph) else graph.adjacency()
        for part in (self._trail, self._maps):
            kept |= {} if part is None else part.memory()
        return kept

    def remember(self, memory: dict[str, Tensor]) -> None:
        """Go on from here: with what `memory` gave, wherever it lies now."""
        assert isinstance(self.state, RelayState)
        kept = {name: memory[name] for name in (*_REMEMBERED, "step")}
        self.state = replace(self.state, **kept, spare=0)  # how many slots are free is not known
        self._graph = MatrixGraph(memory["heard"])
        for part in (self._trail, self._maps):
            if part is not None:
                part.remember(memory)

    def _warn(self, graph: Graph) -> None:
        """Say what a run that begins on this graph does, where that is not what one would think."""
        config = self.policy.config
        masked = config.component_mask and config.layers > 1
        if masked and self.relay.timing.instant and graph.directed:
            warnings.warn(
                "links are directed and there is no delay: commands differ from central execution, because each robot "
                "lets all whose news reaches it attend to each other, and the central mask only those that hear each "
                "other; for equal commands use links both ways or a policy of one layer",
                MastWarning,
                stacklevel=5,  # who called `act`; torch wraps `listen`
            )


@torch.no_grad()
def decide(
    policy: Policy,
    state: Held,
    attended: list[Attended] | None = None,
    environments: int = 0,
) -> Tensor:
    """Every living robot's prediction from what it holds, [B, N, 2 or 3] as in `Policy.decide`; 0 for the others.

    attended: a list to fill with what robots of the first `environments` attend to.
    """
    (batch, robots), device = state.alive.shape, state.alive.device
    stored, entry, own, local = _held(policy, state)
    prediction = torch.zeros(batch * robots, policy.outputs, dtype=policy.dtype, device=device)
    if len(stored) == 0:
        return prediction.unflatten(0, (batch, robots))
    positions = state.positions.flatten(0, 2)[stored]  # [U, 2]
    x = policy.lift(state.messages.flatten(0, 2)[stored]).to(policy.dtype)  # [U, d]; under autocast too
    x = policy.encoding.embed(x, positions)
    rotation = policy.encoding.rotation(positions)  # phases are taken in fp64: no origin need be near
    blocks = cast(list[Block], list(policy.mast.blocks))
    x, h = blocks[0].before_attention(x, None)
    if attended is None and wide.takes(entry, local, policy):
        return wide.decide(policy, x, h, rotation, entry, own, local, robots).unflatten(0, (batch, robots))
    every = torch.arange(len(x), device=device)
    first = projected(blocks[0].attention, h, len(x), rotation, every)
    for part, views, works in _works(policy, entry, own, local, robots):
        watched = attended is not None and part.start < environments * robots
        weights: list[Tensor] = []
        y, (q, kv), of = x, first, every  # of the nodes below; `of` is the message that each of them stands for
        for block, after, work, above in zip(blocks, blocks[1:], works, works[1:], strict=False):
            if watched:
                weights.append(weigh(q, kv, views, work, block.attention.heads))
            answer, of = attend(q, kv, views, work, block.attention.heads), of[work.itself]
            y, h = after.before_attention(*block.after_attention(y, answer, work.itself))
            q, kv = projected(after.attention, h, above.asked, rotation, of)
        work, block = works[-1], blocks[-1]
        if watched:
            weights.append(weigh(q, kv, views, work, block.attention.heads))
        y, added = block.after_attention(y, attend(q, kv, views, work, block.attention.heads), work.itself)
        alone = views.place[: views.rows[-1]]  # the rows of the robots themselves
        found = policy.act(policy.mast.final(y, added))  # of the nodes of the last layer
        prediction[part.start + alone // entry.shape[1]] = found[work.number.flatten()[alone]]
        if attended is not None and watched:
            view, held = windows_of_robots(views)
            attended.append(Attended(part.start + view, stored[held] % robots, torch.stack(weights, dim=1)))
    return prediction.unflatten(0, (batch, robots))


def count(policy: Policy, state: Held) -> Work:
    """What `decide` computes, here and now."""
    stored, entry, own, local = _held(policy, state)
    layers = policy.config.layers
    queries, rows, pairs = [len(stored)] + [0] * (layers - 1), [0] * layers, [0] * layers
    if len(stored):
        alike = not wide.takes(entry, local, policy)  # which computes every row
        for _, views, works in _works(policy, entry, own, local, state.alive.shape[1], alike=alike):
            ends = views.windows[3]
            for n, work in enumerate(works):
                queries[n] += work.asked if n else 0
                rows[n] += len(work.itself)
                pairs[n] += ends[work.layer] if work.merged is None else int(work.merged.count.sum())
    return Work(len(stored), queries, rows, pairs)


def _held(policy: Policy, state: Held) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """What `_entries` gives of the messages on which commands may depend, and their positions [U, 2] as `_local` has
    them."""
    local, field = _local(state, policy.dtype), policy.config.field
    stored, entry, own = _entries(state, local, None if field is None else 1.001 * field)  # a margin for rounding
    return stored, entry, own, local[stored]


def _works(
    policy: Policy, entry: Tensor, own: Tensor, local: Tensor, robots: int, *, alike: bool = True
) -> Iterator[tuple[slice, Views, list[Nodes]]]:
    """The views, given as `_held` does, in parts that are worked on together: which they are, and the work of each
    layer. Parts in which nobody is alive are left out."""
    config, kind = policy.config, entry.device.type
    for part in chunks(len(entry) // robots, robots, entry.shape[1], ROWS[kind], PAIRS[kind]):
        views = look(entry[part], own[part], local, config.attention_radius, config.layers)
        if views.rows[1] == 0:
            continue
        works: list[Nodes] = []
        for _ in range(config.layers):
            entries = len(local) * len(views.entry) // len(own)
            works.append(nodes(views, works[-1] if works else None, entries, alike=alike))
        yield part, views, works


def _local(state: Held, dtype: torch.dtype) -> Tensor:
    """The positions of the store relative to the middle of each environment's living robots, [B K N, 2] metres.

    So distances may be taken in fp32 wherever in the world the team is: at UTM coordinates fp32 tells half a metre.
    """
    alive = state.alive[..., None]
    middle = state.places.where(alive, 0).sum(1) / alive.sum(1).clamp_min(1)  # [B, 2]
    return (state.positions - middle[:, None, None]).to(dtype).flatten(0, 2)


def _entries(state: Held, positions: Tensor, reach: float | None) -> tuple[Tensor, Tensor, Tensor]:
    """The U distinct messages that living robots hold of places nearer than `reach` metres: their places in the store
    [U]; every robot's view of them, moved to the left [B N, C], as numbers in 0..U-1; and its own one [B N]. -1: none.

    positions: [B K N, 2] metres, those of the store.
    """
    batch, slots, robots, _ = state.messages.shape
    size, quick = batch * slots * robots, positions.dtype == torch.float32 and on_gpu(positions)
    if isinstance(state, NearState):
        packed, own, count, used = near.hold(state, positions, reach)
    elif isinstance(state, PaddedState):
        packed, own, count, used = padded.hold(state, positions, reach)
    elif kernels is not None and quick:
        packed, own, count, used = kernels.hold(state.newest, state.alive, positions, slots, SLOT_BITS, reach)
    else:
        newest = state.newest
        held = (newest >= 0) & state.alive[:, :, None]
        b = torch.arange(batch, device=newest.device)[:, None, None]
        place = (b * slots + slot_of(newest)) * robots + torch.arange(robots, device=newest.device)
        place = place.where(held, size)  # stands for none
        own = place.diagonal(dim1=1, dim2=2)
        if reach is not None:
            known = place.clamp_max(size - 1)
            apart = positions[known] - positions[known.diagonal(dim1=1, dim2=2)][:, :, None]
            held = held & (apart.square().sum(-1) < reach * reach)
            held.diagonal(dim1=1, dim2=2).copy_(state.alive)  # even where a position is no number
        count = held.sum(-1)
        packed = place.new_full((batch, robots, robots + 1), size)  # the last column takes those that are too far
        packed.scatter_(2, (held.cumsum(-1) - 1).where(held, robots), place)
        packed, own = packed.flatten(0, 1)[:, :-1], own.flatten()
        used = torch.zeros(size + 1, dtype=torch.uint8, device=newest.device).index_fill_(0, packed.flatten(), 1)
    number = used.cumsum(0, dtype=torch.int64) - 1
    kept = number[-2:-1] + 1  # [1], without the place that stands for none
    needed, limits = torch.cat((kept, count.max()[None].long())), [size, packed.shape[1]]
    (distinct, widest), most = steady.rooms_for(needed, limits, [steady.MORE, _WIDER])
    into = number[:-1].where(used[:-1] > 0, distinct).clamp_max(distinct)  # the last takes what is not used
    stored = torch.zeros_like(number[: distinct + 1]).scatter_(0, into, torch.arange(size, device=into.device))[:-1]
    if most is not None:
        number.clamp_max_(distinct - 1)
    number[-1:].fill_(-1)
    return stored, number[packed[:, :widest]], number[own]
