"""What robots know when they decide, kept with a recording: how old the news is that each holds of each other one, how
many links it has crossed, and where the robot's attention goes.

A recording has it in arrays by name, of every `every`-th frame (F of them, the start included):

- `age` [F, N, N]: control periods since robot j said what robot i holds of it, plus 1; 0: i has never heard of j, or i
  has failed. Where j was then is where it stands in that frame.
- `hops` [F, N, N]: the links that this news has crossed to i; 0 where there is none.
- `attends` [F, N, K]: the K tokens that a robot attends to most, plus 1; 0: fewer. From N on tokens are goals.
- `weights` [F, N, L, H, K] uint8: the attention paid to them in layer l and head h, in units of 1 / 255. H is 1 where
  only the mean over the heads was kept; `heads` says how many the policy has.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor

from mast_swarm.comms.decentral import Attended, DecentralPolicy
from mast_swarm.comms.held import RelayState
from mast_swarm.evaluate.actors import Actor, Central, Decentral
from mast_swarm.evaluate.controlled import Controlled, Talking
from mast_swarm.model.policy import Policy

if TYPE_CHECKING:
    from mast_swarm.evaluate.loop import Loop

KINDS: Final = {
    "news": "every robot acts alone on the news that has reached it",
    "sums": "every robot acts alone; what it hears are sums over its neighbours, in which no robot's news can be told",
    "pass": "one forward pass for all robots, on what they sense at this instant: nothing is sent, so nothing is old",
    "controller": "a controller that sends no messages: nothing it knows has an age",
}
MOST_ROBOTS: Final = 1000  # in larger teams nothing is kept: a table of all pairs is too large for a page
MOST_PAIRS: Final = 8_000_000  # of robots, over all frames that are kept: 800 frames of 100 robots
TOKENS: Final = 12  # K
# With more weights, or more bytes when packed, the mean over heads is kept. (200 frames of 100 robots, 16 heads: 4
# million weights, which take from 1 to 3 MB, the more the denser the team is.)
MOST_WEIGHTS: Final = 6_000_000
MOST_PACKED: Final = 2_000_000


class Knowledge:
    """What robots of the first `record` environments know, frame by frame, while a loop runs."""

    def __init__(self, loop: Loop, record: int, steps: int) -> None:
        """Before the loop starts: the links that news crosses are counted from the start, or not at all."""
        self.loop, self.record, robots = loop, record, loop.world.config.agents
        self.kind = _kind(loop.actor)
        frames = steps + 1
        self.every = -(-frames * robots**2 // MOST_PAIRS)
        self.keeps = record > 0 and robots <= MOST_ROBOTS
        policy = getattr(loop.actor, "policy", None)
        self.policy = policy if self.keeps and isinstance(policy, Policy) else None
        if self.policy is not None:
            config, kept = self.policy.config, -(-frames // self.every)
            self.by_head = kept * robots * config.layers * config.heads * TOKENS <= MOST_WEIGHTS
        run: Any = getattr(loop.actor, "run", loop.actor)  # what holds the relay
        if self.kind == "news":
            run.relay.counted = record if self.keeps else 0
        self.run = run if isinstance(run, DecentralPolicy) else None
        self.parts: dict[str, list[np.ndarray]] = {}  # each [F] of [R, ...]

    def watch(self, frame: int) -> None:
        """Before robots decide."""
        if self.run is not None:
            self.run.watched = self.record if self._wanted(frame) else 0

    def keep(self, frame: int) -> None:
        """After robots have decided."""
        if not self._wanted(frame):
            return
        if self.kind == "news":
            actor: Any = self.loop.actor
            held = actor.held if self.run is None else self.run.state
            assert isinstance(held, RelayState)  # where links are counted, what robots hold is a table
            self._keep(_news(held, self.record))
        if self.policy is not None:
            rows = self._attended(self.policy)
            self._keep(_most(rows, self.record, self.loop.state.positions.shape[1], self.by_head))

    def of(self, environment: int) -> dict[str, np.ndarray]:
        """The arrays of one environment, in the smallest types that hold them."""
        found = {name: np.stack([part[environment] for part in parts]) for name, parts in self.parts.items()}
        found = {name: values.astype(np.min_scalar_type(values.max(initial=0))) for name, values in found.items()}
        if "weights" in found and len(zlib.compress(found["weights"].tobytes(), 1)) > MOST_PACKED:
            found["weights"] = found["weights"].mean(3, keepdims=True).round().astype(np.uint8)
        if found:
            found["every"] = np.array(self.every)
        if self.policy is not None and found:
            found["heads"] = np.array(self.policy.config.heads)
        return found

    def _wanted(self, frame: int) -> bool:
        return self.keeps and frame % self.every == 0

    def _keep(self, values: dict[str, Tensor]) -> None:
        for name, value in values.items():
            self.parts.setdefault(name, []).append(value.cpu().numpy())

    def _attended(self, policy: Policy) -> list[Attended]:
        if self.run is not None:
            return self.run.attended or [_nothing(policy)]
        actor: Any = self.loop.actor
        given = {name: value[: self.record] for name, value in actor.given(self.loop.observation).items()}
        message = policy.perceive(given.pop("features"))
        robots = message.shape[1]
        weights = torch.stack(policy.weigh(message, **given), dim=-1)[:, :, :robots]  # [R, H, N, T, L]
        environment, robot, token = (weights > 0).any(-1).any(1).nonzero().unbind(1)
        return [Attended(environment * robots + robot, token, weights[environment, :, robot, token].transpose(1, 2))]


def _nothing(policy: Policy) -> Attended:
    """Where no robot is left that could attend."""
    config = policy.config
    none = torch.zeros(0, dtype=torch.long)
    return Attended(none, none, torch.zeros(0, config.layers, config.heads))


def _kind(actor: Actor) -> str:
    if isinstance(actor, Talking) or (isinstance(actor, Decentral) and isinstance(actor.run, DecentralPolicy)):
        return "news"
    found = {Decentral: "sums", Central: "pass", Controlled: "controller"}
    return next((kind for made, kind in found.items() if isinstance(actor, made)), "")


def _news(state: RelayState | None, record: int) -> dict[str, Tensor]:
    """Ages and hops [R, N, N] int32, as a recording has them."""
    assert state is not None  # robots have decided
    stamps, alive = state.stamps[:record], state.alive[:record, :, None]
    heard = (stamps >= 0) & alive
    age = torch.where(heard, state.step - stamps + 1, 0)
    return {"age": age, "hops": torch.where(heard, state.hops.to(torch.int32), 0)}


def _most(rows: list[Attended], record: int, robots: int, by_head: bool) -> dict[str, Tensor]:
    """The tokens that each robot attends to most, [R, N, K], in ascending order, and the weights [R, N, L, H, K]."""
    robot, token, weights = (
        torch.cat([getattr(part, name) for part in rows]) for name in ("robot", "origin", "weights")
    )
    inside = robot < record * robots
    robot, token, weights = robot[inside], token[inside], weights[inside].float()  # [E], [E], [E, L, H]
    # By robot and then by attention; then the first TOKENS of each robot, by their numbers.
    order = weights.mean((1, 2)).argsort(descending=True, stable=True)
    order = order[robot[order].argsort(stable=True)]
    count = robot.bincount(minlength=record * robots)
    rank = torch.arange(len(order), device=order.device) - (count.cumsum(0) - count)[robot[order]]
    order = order[rank < TOKENS]
    order = order[(robot * (int(token.max()) + 1) + token)[order].argsort()] if len(order) else order
    count = robot[order].bincount(minlength=record * robots)
    place = torch.arange(len(order), device=order.device) - (count.cumsum(0) - count)[robot[order]]
    layers, heads = weights.shape[1:]
    attends = token.new_zeros(record * robots, TOKENS)
    attends[robot[order], place] = token[order] + 1
    if not by_head:
        weights, heads = weights.mean(2, keepdim=True), 1
    kept = weights.new_zeros(record * robots, TOKENS, layers, heads)
    kept[robot[order], place] = weights[order]
    shares = (kept * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
    return {
        "attends": attends.unflatten(0, (record, robots)),
        "weights": shares.unflatten(0, (record, robots)),
    }
