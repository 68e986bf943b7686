"""What one robot computes, as torch modules with the inputs and outputs of the ONNX files.

Symbols: K known robots, the robot itself among them and first; J robots that it has heard in an exchange; d_msg floats
of a message; L layers. Every module is built from the parts of the policy itself, and reads its weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from mast_swarm.errors import MastError
from mast_swarm.model.encoding import Rotation
from mast_swarm.model.learned import Learned
from mast_swarm.model.lpac import LPAC, GraphLayer
from mast_swarm.model.mast import Block
from mast_swarm.model.policy import Policy


@dataclass(frozen=True)
class Function:
    """One file: a module, what it is given and gives by name, and examples to trace it with."""

    module: nn.Module
    inputs: dict[str, str]  # name -> what it is, with shape, type and unit
    outputs: dict[str, str]
    axes: dict[str, dict[int, str]]  # dimensions of any length: name -> number of the dimension -> its name
    example: tuple[Tensor, ...]


class Perceive(nn.Module):
    """features [R, ...] float32 of R robots, one by one (a robot gives R = 1) -> message [R, d_msg] float32."""

    def __init__(self, policy: Learned) -> None:
        super().__init__()
        self.policy = policy

    def forward(self, features: Tensor) -> Tensor:
        return self.policy.perceive(features[None])[0]


class Decide(nn.Module):
    """messages [K, d_msg] float32 and positions [K, 2] float64 metres, row 0 the robot's own -> its prediction.

    This is `comms.decentral.decide` for one robot. There is no component mask: what a robot holds has come to it over
    the network. The last layer computes the robot's own row alone.
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy, d = policy, policy.config.width
        *self.blocks, self.last = cast(list[Block], list(policy.mast.blocks))
        qkv = self.last.attention.qkv
        self.query, self.others = nn.Linear(d, d), nn.Linear(d, 2 * d)  # of the last layer: its own row asks alone
        self.query.load_state_dict({"weight": qkv.weight[:d], "bias": qkv.bias[:d]})
        self.others.load_state_dict({"weight": qkv.weight[d:], "bias": qkv.bias[d:]})
        self.requires_grad_(False)

    def forward(self, messages: Tensor, positions: Tensor) -> Tensor:
        policy, added = self.policy, None
        relative = positions - positions[:1]  # in float64: anywhere in the world
        x = policy.encoding.embed(policy.lift(messages), positions)  # [K, d]
        turn = _tables(policy.encoding.rotation(relative))
        seen = self._window(relative.to(x.dtype))
        for block in self.blocks:
            x, h = block.before_attention(x, added)
            q, k, v = (self._heads(part) for part in block.attention.qkv(h).split(policy.config.width, dim=-1))
            x, added = block.after_attention(x, self._attend(_turned(q, turn), _turned(k, turn), v, seen))
        x, h = self.last.before_attention(x, added)
        read = self.query(h[:1]), *self.others(h).split(policy.config.width, dim=-1)
        q, k, v = (self._heads(part) for part in read)
        # The robot's own query is at the origin, where nothing turns.
        answer = self._attend(q, _turned(k, turn), v, None if seen is None else seen[:1])
        return policy.act(policy.mast.final(*self.last.after_attention(x[:1], answer)))[0]

    def _heads(self, rows: Tensor) -> Tensor:
        """[K, d] -> [K, H, d_a]."""
        return rows.reshape(-1, self.policy.config.heads, self.policy.config.head_dim)

    def _window(self, relative: Tensor) -> Tensor | None:
        """Who attends to whom, [K, K] bool: those nearer than the radius, and everyone to itself. None: all to all."""
        radius = self.policy.config.attention_radius
        if radius is None:
            return None
        x, y = relative.split(1, dim=-1)  # [K, 1] each
        dx, dy = x - x.T, y - y.T
        number = torch.arange(relative.shape[0])[:, None]
        return (dx * dx + dy * dy < radius * radius) | (number == number.T)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, seen: Tensor | None) -> Tensor:
        """Attention of q [M, H, d_a] over k and v [K, H, d_a] where seen [M, K] -> [M, d]."""
        q, k, v = q.transpose(0, 1), k.permute(1, 2, 0), v.transpose(0, 1)
        score = q @ k * self.policy.config.head_dim**-0.5  # [H, M, K]
        if seen is not None:
            score = score.where(seen, -torch.inf)
        return (score.softmax(-1) @ v).transpose(0, 1).reshape(-1, self.policy.config.width)


def _tables(rotation: Rotation | None) -> Rotation | None:
    """The tables [K, d_a/2] of `encoding.rotate` for both parts of each complex element: [K, 1, d_a]."""
    if rotation is None:
        return None
    cos, sin = rotation
    both = torch.stack((cos, cos), dim=-1), torch.stack((-sin, sin), dim=-1)  # [K, d_a/2, 2]
    return tuple(table.reshape(-1, 1, 2 * int(cos.shape[-1])) for table in both)  # type: ignore[return-value]


def _turned(x: Tensor, turn: Rotation | None) -> Tensor:
    """`encoding.rotate` of x [K, H, d_a], in few operations: each part times the cosine, the other times the sine."""
    if turn is None:
        return x
    other = torch.arange(int(x.shape[-1])) ^ 1  # real and imaginary part exchanged
    return x * turn[0] + x[..., other] * turn[1]


class Carry(nn.Module):
    """One exchange of LPAC, as `comms.lpac` runs it, for one robot: its command, and what it sends next.

    message [d_msg] float32, position [2] float64 metres, side [] float64 metres; heard [J, S] float32, what J
    neighbours sent, and degrees [J] float32, how many robots each of them heard when it sent -> command [2], sent [S].
    S numbers: in each layer z_0 .. z_(K-1) one after the other, K hops, each as wide as the layer's input. z_0 is the
    robot's own input, z_k what it last made of its neighbours' z_(k-1). J = 0 is a robot that hears nobody.
    """

    def __init__(self, policy: LPAC) -> None:
        super().__init__()
        self.policy = policy

    @property
    def widths(self) -> list[int]:
        """Numbers of one z, layer by layer."""
        config = self.policy.config
        return [config.message_width + 2, *[config.width] * (config.layers - 1)]

    @property
    def size(self) -> int:
        """S."""
        return self.policy.config.hops * sum(self.widths)

    def forward(
        self, message: Tensor, position: Tensor, side: Tensor, heard: Tensor, degrees: Tensor
    ) -> tuple[Tensor, Tensor]:
        hops = self.policy.config.hops
        # The weights of A: 1 / sqrt(degree of the receiver x degree of the sender); the robot's own degree is J.
        own = torch.ones_like(degrees).sum().clamp_min(1)
        weight = (own * degrees.clamp_min(1)).rsqrt()
        shifted = (weight[:, None] * heard).sum(0).split([hops * width for width in self.widths])
        x, sent = torch.cat((message, (position / side).to(message.dtype))), []  # [d_msg + 2]
        for layer, others in zip(cast(list[GraphLayer], list(self.policy.layers)), shifted, strict=True):
            held = torch.cat((x, others))  # z_0 .. z_K
            sent.append(held[: -x.shape[0]])
            x = torch.relu(layer.linear(held[None]))[0]
        return self.policy.act(x[None])[0], torch.cat(sent)


def functions(policy: Learned) -> dict[str, Function]:
    """The functions of one robot by name; each becomes a file of that name."""
    config, width = policy.config, policy.config.message_width
    shape = tuple(config.observation_shape)
    listed = ", ".join(map(str, shape))
    found = {
        "perceive": Function(
            Perceive(policy),
            {"features": f"float32 [R, {listed}]: what R robots sense, one by one; a robot gives R = 1"},
            {"message": f"float32 [R, {width}]: what a robot sends of this instant"},
            {"features": {0: "robots"}, "message": {0: "robots"}},
            (torch.zeros(2, *shape),),
        )
    }
    if isinstance(policy, Policy):
        if policy.config.variant == "C":
            raise MastError("a policy of variant C sees every goal and runs centrally only: export variant M or L")
        found["decide"] = Function(
            Decide(policy),
            {
                "messages": f"float32 [K, {width}]: the newest message of each robot that is known, its own first",
                "positions": "float64 [K, 2]: where each was when it sent that, metres, in the same order",
            },
            {"prediction": f"float32 [{policy.outputs}]: {_PREDICTED[policy.outputs]}"},
            {"messages": {0: "known"}, "positions": {0: "known"}},
            (torch.zeros(3, width), torch.arange(6, dtype=torch.float64).view(3, 2)),
        )
        return found
    if not isinstance(policy, LPAC):
        raise MastError(f"a policy of kind {config.kind} cannot be exported: expected mast or lpac")
    carry = Carry(policy)
    size, one = carry.size, torch.float64
    found["carry"] = Function(
        carry,
        {
            "message": f"float32 [{width}]: the robot's own",
            "position": "float64 [2]: where it is, metres from the corner of the world",
            "side": "float64 []: width of the world, metres",
            "heard": f"float32 [J, {size}]: what each of the J robots that it hears sent last; J may be 0",
            "degrees": "float32 [J]: how many robots each of those heard when it sent",
        },
        {
            "command": f"float32 [2]: {_PREDICTED[2]}",
            "sent": f"float32 [{size}]: what it sends next, in each layer z_0 .. z_{policy.config.hops - 1}",
        },
        {"heard": {0: "neighbours"}, "degrees": {0: "neighbours"}},
        (torch.zeros(width), torch.zeros(2, dtype=one), torch.ones((), dtype=one), torch.zeros(2, size), torch.ones(2)),
    )
    return found


_PREDICTED = {
    2: "velocity command x, y in units of the longest one; one longer than 1 is scaled back to length 1",
    3: "mean velocity command x, y in units of the longest one, and the speed that is expected of it, 0 to 1; "
    "exploration makes a command of the three",
}
