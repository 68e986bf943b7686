"""Perception: the network that turns a robot's own observation into its message.

A perception is a module from features [B, N, ...] to messages [B, N, d_msg] that treats robots one by one: in
evaluation mode no statistic may run over robots, or information would leak between components. Register one with
`@perception`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mast_swarm.errors import MastError, unknown
from mast_swarm.kernels import USABLE, on_gpu
from mast_swarm.model.config import ModelConfig
from mast_swarm.model.lists import feed

convolution: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.model import convolution

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
            nn.LeakyReLU(inplace=True),
            nn.Linear(2 * config.width, config.message_width),
        )

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim != 3 or features.shape[-1] != self.inputs:
            raise MastError(f"features have shape {tuple(features.shape)}: expected [B, N, {self.inputs}]")
        return feed(self.mlp, features, features.dtype)


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
            layers += [nn.LeakyReLU(inplace=True)]
        self.convolutions = nn.Sequential(*layers)
        self.linear = nn.Linear(self.CHANNELS * (height - lost) * (width - lost), config.message_width)

    def forward(self, features: Tensor) -> Tensor:
        if features.ndim != 5 or tuple(features.shape[2:]) != self.shape:
            expected = ", ".join(map(str, self.shape))
            raise MastError(f"features have shape {tuple(features.shape)}: expected [B, N, {expected}]")
        images = features.flatten(0, 1)
        half = on_gpu(images) and torch.is_autocast_enabled(images.device.type)
        if half and convolution is not None and self.shape[0] <= _MOST_CHANNELS:
            maps = self._by_kernels(images.to(torch.get_autocast_dtype(images.device.type)))
        else:  # channels lie innermost in memory, which is what convolutions are fast with
            maps = self.convolutions(images.contiguous(memory_format=torch.channels_last)).permute(0, 2, 3, 1)
        weight = self.linear.weight.unflatten(1, (self.CHANNELS, *maps.shape[1:3])).permute(0, 2, 3, 1).flatten(1)
        messages = F.linear(maps.flatten(1), weight, self.linear.bias)
        return messages.unflatten(0, features.shape[:2])  # [B, N, d_msg]

    def _by_kernels(self, images: Tensor) -> Tensor:
        """What `convolutions` makes of images [M, C, H, W], with channels innermost: [M, H', W', 32].

        In training mode the running statistics of batch norm learn from the batch, as nn.BatchNorm2d's do.
        """
        layers: list[Any] = list(self.convolutions)
        weights, norms = [layer.weight for layer in layers[::3]], layers[1::3]
        room = max(4, 1 << (self.shape[0] - 1).bit_length()) - self.shape[0]  # the kernels take powers of two
        images = F.pad(images.permute(0, 2, 3, 1), (0, room)).contiguous()
        weights[0] = F.pad(weights[0], (0, 0, 0, 0, 0, room))
        bands, known = torch.stack([band(weight) for weight in weights]), None if self.training else _known(norms)
        if known is not None and not torch.is_grad_enabled():
            return convolution.convolutions_alone(images, bands, known)
        maps, statistics, _ = convolution.convolutions(
            images,
            bands,
            torch.stack([band(weight.detach().transpose(0, 1).flip(2, 3)) for weight in weights[1:]]),
            torch.stack([torch.stack((norm.weight, norm.bias)) for norm in norms]),
            known,
        )
        if self.training:
            with torch.no_grad():
                _learn(norms, statistics, images.shape)
        return maps


_MOST_CHANNELS = 8  # of images that the kernels take: their first layer is made for few


def band(weight: Tensor) -> Tensor:
    """A 3x3 convolution's weights [32, C, 3, 3] as matrices from windows of four pixels to pairs of them: [3, 128, 64].

    Of vertical tap y. Rows: pixel i of a window and channel, 4 C of them, and zeros up to 128; columns: pixel j of a
    pair and output. There stands the weight of tap [y, i - j], or zero where there is none.
    """
    taps = weight.permute(2, 3, 1, 0)  # [3, 3, C, 32]
    both = torch.stack((F.pad(taps, (0, 0, 0, 0, 0, 1)), F.pad(taps, (0, 0, 0, 0, 1, 0))), dim=3)  # [3, 4, C, 2, 32]
    full = both.flatten(3).flatten(1, 2)
    return F.pad(full, (0, 0, 0, 128 - full.shape[1]))


def _known(norms: list[Any]) -> Tensor:
    """The running statistics of nn.BatchNorm2d as the kernels take them: mean, variance, scale, shift, [L, 4, 32]."""
    scales = [norm.weight * torch.rsqrt(norm.running_var + norm.eps) for norm in norms]
    rows = [
        torch.stack((norm.running_mean, norm.running_var, scale, norm.bias - norm.running_mean * scale))
        for norm, scale in zip(norms, scales, strict=True)
    ]
    return torch.stack(rows)


def _learn(norms: list[Any], statistics: Tensor, images: torch.Size) -> None:
    """Move the running statistics towards those of a batch of images [M, H, W, C], as nn.BatchNorm2d does."""
    count, height, width, _ = images
    for layer, (norm, (mean, variance, _, _)) in enumerate(zip(norms, statistics, strict=True), start=1):
        pixels = count * (height - 2 * layer) * (width - 2 * layer)
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (pixels / (pixels - 1)), norm.momentum)
        norm.num_batches_tracked.add_(1)
