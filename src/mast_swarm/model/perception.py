"""Perception: the network that turns a robot's own observation into its message.

A perception is a module from features [B, N, ...] to messages [B, N, d_msg] that treats robots one by one: no
statistic may run over robots, or information would leak between components. Register one with `@perception`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from torch import Tensor, nn

from mast_swarm.errors import MastError, unknown
from mast_swarm.model.config import PolicyConfig

Perception = TypeVar("Perception", bound=type[nn.Module])
_REGISTERED: dict[str, type[nn.Module]] = {}


def perception(name: str) -> Callable[[Perception], Perception]:
    """Register a module class, built from a `PolicyConfig`, under the name that the config's field gives."""

    def register(module: Perception) -> Perception:
        _REGISTERED[name] = module
        return module

    return register


def make_perception(config: PolicyConfig) -> nn.Module:
    """The perception that `config.perception` names."""
    if config.perception not in _REGISTERED:
        raise unknown("perception", config.perception, _REGISTERED)
    return _REGISTERED[config.perception](config)


@perception("mlp")
class MLPPerception(nn.Module):
    """One hidden layer of width 2d: features [B, N, F] -> messages [B, N, d_msg]."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.inputs = config.observation_dim
        self.mlp = nn.Sequential(
            nn.Linear(config.observation_dim, 2 * config.width),
            nn.LeakyReLU(),
            nn.Linear(2 * config.width, config.message_width),
        )

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim != 3 or features.shape[-1] != self.inputs:
            raise MastError(f"features have shape {tuple(features.shape)}: expected [B, N, {self.inputs}]")
        return self.mlp(features)
