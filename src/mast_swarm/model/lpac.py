"""LPAC-K3: the baseline that talks over the communication graph alone, by graph filters instead of attention.

Every robot starts from what it perceives and where it is. A graph layer of K hops is

    Y = ReLU(sum over k = 0..K of A^k X W_k + b),    A = D^-1/2 Adj D^-1/2,

with Adj the communication graph without loops and D its degrees. A product with A is a graph shift: every robot adds
up what its neighbours hold. What a robot does thus depends on robots up to L K = 15 links away, and on no other.

On robots each graph shift is one exchange with the neighbours: a robot sends its X, then A X and A^2 X as it has them,
in every layer. With a delay of tau seconds per hop, news of a robot h links away is h tau old. `comms` runs it so.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from mast_swarm.errors import MastError
from mast_swarm.model.config import LPACConfig, ModelConfig
from mast_swarm.model.learned import Learned, Observed, check_finite, check_message, check_positions, seeded
from mast_swarm.model.perception import make_perception


def graph_shift(adjacency: Tensor) -> Tensor:
    """The matrix A: D^-1/2 Adj D^-1/2 from adjacency [B, N, N] bool, loops left out -> [B, N, N] float.

    A robot that hears nobody has a row of zeros.
    """
    links = adjacency & ~torch.eye(adjacency.shape[-1], dtype=torch.bool, device=adjacency.device)
    scale = links.sum(-1).clamp_min(1).float().rsqrt()  # [B, N]
    return links * scale[:, :, None] * scale[:, None, :]


class GraphLayer(nn.Module):
    """ReLU(sum over k = 0..K of A^k X W_k + b); the W_k lie side by side in one matrix.

    exact: in the precision of the input under autocast too.
    """

    def __init__(self, inputs: int, outputs: int, hops: int, exact: bool = False) -> None:
        super().__init__()
        self.hops, self.exact = hops, exact
        self.linear = nn.Linear((hops + 1) * inputs, outputs)

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        """x [B, N, inputs], shift [B, N, N] -> [B, N, outputs]."""
        shifted = [x]
        for _ in range(self.hops):
            shifted.append(self.hear(shifted[-1], shift))
        return self.combine(torch.stack(shifted, dim=2))

    def hear(self, x: Tensor, shift: Tensor) -> Tensor:
        """One graph shift: x [B, N, any], shift [B, N, N] -> [B, N, any]."""
        with self._precision(x):
            return shift @ x

    def combine(self, shifted: Tensor) -> Tensor:
        """From [B, N, K + 1, inputs], what A^0 .. A^K made of the input, to [B, N, outputs]."""
        with self._precision(shifted):
            return torch.relu(self.linear(shifted.flatten(2)))

    def _precision(self, x: Tensor) -> AbstractContextManager[Any]:
        return torch.autocast(x.device.type, enabled=False) if self.exact else nullcontext()


class LPAC(Learned):
    """Perception -> message and position -> graph layers -> MLP -> command. Initial weights depend on `seed` alone."""

    Config: ClassVar[type[ModelConfig]] = LPACConfig
    config: LPACConfig

    def __init__(self, config: LPACConfig | None = None, *, seed: int = 0) -> None:
        super().__init__()
        self.config = config = LPACConfig() if config is None else config
        width, hidden = config.width, config.head_width
        with seeded(seed):
            self.perception = make_perception(config)
            inputs = (config.message_width + 2, *[width] * (config.layers - 1))
            # bf16 would round a position of 1000 m to 4 m, so the layer that reads it is exact.
            self.layers = nn.ModuleList(GraphLayer(n, width, config.hops, k == 0) for k, n in enumerate(inputs))
            self.head = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, config.outputs))
        self.eval()

    def inputs(self, observation: Observed) -> dict[str, Tensor]:
        """What `forward` takes of an observation, by name."""
        adjacency = observation.graph.adjacency()
        return {"features": observation.features, "positions": observation.positions, "adjacency": adjacency}

    def surroundings(self, side: float) -> dict[str, float]:
        """The width of the world, in metres: positions are scaled to it."""
        return {"side": side}

    def forward(self, features: Tensor, positions: Tensor, adjacency: Tensor, side: float | None = None) -> Tensor:
        """Commands [B, N, 2] in units of u_max from features [B, N, ...], positions [B, N, 2] metres and adjacency
        [B, N, N] bool ([b, i, j]: i hears j; loops do not count). side: width of the world in metres, None for that of
        the config."""
        check_positions(positions)
        batch, robots, _ = positions.shape
        if adjacency.shape != (batch, robots, robots) or adjacency.dtype != torch.bool:
            given = f"{adjacency.dtype} {tuple(adjacency.shape)}"
            raise MastError(f"adjacency is {given}: expected bool {(batch, robots, robots)}")
        x = self.node_features(self.perceive(features), positions, side)
        shift = graph_shift(adjacency).to(self.dtype)
        for layer in self.layers:
            x = layer(x, shift)
        return self.act(x)

    def node_features(self, message: Tensor, positions: Tensor, side: float | None = None) -> Tensor:
        """What the first layer takes: [B, N, d_msg + 2], the message and the position scaled to the world."""
        check_message(message, positions, self.config.message_width)
        check_finite(positions=positions, messages=message)
        scale = self.config.position_scale if side is None else side
        return torch.cat((message, (positions / scale).to(message.dtype)), dim=-1)

    def act(self, x: Tensor) -> Tensor:
        """Commands [B, N, 2] from what the last layer gives, [B, N, width]."""
        return self.head(x).to(self.dtype) * self.config.action_scale
