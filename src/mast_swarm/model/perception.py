"""Perception: the network that turns a robot's own observation into its message.

A perception is a module from features [B, N, ...] to messages [B, N, d_msg] that treats robots one by one: in
evaluation mode no statistic may run over robots, or information would leak between components. Register one with
`@perception`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mast_swarm.errors import MastError, unknown
from mast_swarm.model.config import ModelConfig

Perception = TypeVar("Perception", bound=type[nn.Module])
_REGISTERED: dict[str, type[nn.Module]] = {}


def perception(name: str) -> Callable[[Perception], Perception]:
    """Register a module class, built from a policy's config, under the name that the config's field gives."""

    def register(module: Perception) -> Perception:
        _REGISTERED[name] = module
        return module

    return register


def make_perception(config: ModelConfig) -> nn.Module:
    """The perception that `config.perception` names."""
    if config.perception not in _REGISTERED:
        raise unknown("perception", config.perception, _REGISTERED)
    return _REGISTERED[config.perception](config)


@perception("mlp")
class MLPPerception(nn.Module):
    """One hidden layer of width 2d: features [B, N, F] -> messages [B, N, d_msg]."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        if len(config.observation_shape) != 1:
            raise MastError(
                f"perception mlp takes numbers, but observation_dim is {config.observation_dim}: set perception to cnn"
            )
        (self.inputs,) = config.observation_shape
        self.mlp = nn.Sequential(
            nn.Linear(self.inputs, 2 * config.width),
            nn.LeakyReLU(),
            nn.Linear(2 * config.width, config.message_width),
        )

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim != 3 or features.shape[-1] != self.inputs:
            raise MastError(f"features have shape {tuple(features.shape)}: expected [B, N, {self.inputs}]")
        return self.mlp(features)


@perception("cnn")
class CNNPerception(nn.Module):
    """Three 3x3 convolutions with batch norm, and a linear layer: features [B, N, C, H, W] -> messages [B, N, d_msg].

    Images are not padded, as 1.8 million parameters of LPAC-K3 imply: 32 x 32 pixels become 26 x 26. The convolutions
    have no bias, which batch norm would take away again. Batch norm mixes robots in training mode; in evaluation mode,
    which a policy is in unless it learns (see `Learned`), its statistics are constants.
    """

    LAYERS, CHANNELS, KERNEL = 3, 32, 3

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.shape, lost = config.observation_shape, self.LAYERS * (self.KERNEL - 1)
        if len(self.shape) != 3 or min(self.shape[1:]) <= lost:
            raise MastError(
                f"perception cnn takes images of more than {lost} x {lost} pixels, but observation_dim is "
                f"{config.observation_dim}: give channels, height and width"
            )
        channels, height, width = self.shape
        layers: list[nn.Module] = []
        for inputs in (channels, *[self.CHANNELS] * (self.LAYERS - 1)):
            layers += [nn.Conv2d(inputs, self.CHANNELS, self.KERNEL, bias=False), nn.BatchNorm2d(self.CHANNELS)]
            layers += [nn.LeakyReLU()]
        self.convolutions = nn.Sequential(*layers)
        self.linear = nn.Linear(self.CHANNELS * (height - lost) * (width - lost), config.message_width)

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim != 5 or tuple(features.shape[2:]) != self.shape:
            expected = ", ".join(map(str, self.shape))
            raise MastError(f"features have shape {tuple(features.shape)}: expected [B, N, {expected}]")
        # Channels lie innermost in memory, which is what convolutions are fast with; the linear layer's weights follow.
        images = features.flatten(0, 1).contiguous(memory_format=torch.channels_last)
        maps = self.convolutions(images)  # [B N, 32, H', W']
        weight = self.linear.weight.unflatten(1, maps.shape[1:]).permute(0, 2, 3, 1).flatten(1)
        messages = F.linear(maps.permute(0, 2, 3, 1).flatten(1), weight, self.linear.bias)
        return messages.unflatten(0, features.shape[:2])  # [B, N, d_msg]
