"""Positional encodings: how a robot's place enters the transformer.

An encoding can do two things, and each of ours does at most one of them: add a vector to the embedding before
the first layer (APE, MLP-PE), or rotate the queries and keys of every head in every layer (RoPE).
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from mast_swarm.kernels import USABLE, on_gpu, tried
from mast_swarm.model.config import PolicyConfig

gpu: Any = None  # the module of GPU kernels, where there is a GPU and Triton
if USABLE:
    from mast_swarm.model import list_kernels as gpu

Rotation = tuple[Tensor, Tensor]
"""Cosine and sine of the phases, each [..., d_a/2] fp32."""


def frequencies(spacing: str, count: int, wavelength: float) -> Tensor:
    """Angular frequencies w_k in rad/m, k = 1..K with K = `count`, as [K] fp32.

    Geometric ("g"), eq. (frequencies_geometric): w_k = 2 pi lambda^(-k/K).
    Linear ("l"), eq. (frequencies_linear): w_k = 2 pi k / lambda.
    """
    k = torch.arange(1, count + 1, dtype=torch.float64)
    omega = wavelength ** (-k / count) if spacing == "g" else k / wavelength
    return (2 * math.pi * omega).float()


def phases(positions: Tensor, omega: Tensor) -> Tensor:
    """Phases w_k x and w_k y, alternating: positions [..., 2] metres, omega [K] -> [..., 2 K] rad."""
    x, y = positions[..., 0:1], positions[..., 1:2]  # [..., 1]
    return torch.stack((x * omega, y * omega), dim=-1).flatten(-2)  # [..., K, 2] -> [..., 2 K]


def turns(positions: Tensor, omega: Tensor) -> Rotation:
    """Cosine and sine of the phases of positions [..., 2] metres, [..., 2 K] each, in the dtype of omega.

    In fp64 up to whole turns: across 100 km an fp32 phase would be off by 0.03 rad.
    """
    angle = phases(positions.double(), omega.double()).remainder(2 * math.pi).to(omega.dtype)
    return angle.cos(), angle.sin()


def waves(positions: Tensor, omega: Tensor) -> Tensor:
    """sin w_k x, cos w_k x, sin w_k y, cos w_k y, for all k: positions [..., 2] metres, omega [K] -> [..., 4 K]."""
    angle = phases(positions.to(omega.dtype), omega)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(-2)  # [..., 2 K, 2] -> [..., 4 K]


def near_origin(positions: Tensor) -> Tensor:
    """A point near the team of each environment, [B, N, 2] -> [B, 1, 2], for phases to be relative to.

    At 100 km from the origin an fp32 phase is off by 0.03 rad; relative to this point it is not. Whole
    metres, so that the subtraction itself is exact (of teams that are themselves so wide, in fp64).
    """
    return positions.detach().mean(dim=-2, keepdim=True).round()


def rotate(x: Tensor, rotation: Rotation) -> Tensor:
    """Turn each complex element of `x` [..., d_a] by its phase; alternating elements are real and imaginary.

    The product with the fp32 tables is taken in fp32 whatever the dtype of `x`, and given back in that dtype.
    """
    cos, sin = rotation
    real, imaginary = x.unflatten(-1, (-1, 2)).unbind(-1)  # [..., d_a/2] each
    turned = torch.stack((real * cos - imaginary * sin, real * sin + imaginary * cos), dim=-1)
    return turned.flatten(-2).to(x.dtype)  # [..., d_a/2, 2] -> [..., d_a]


class Encoding(nn.Module):
    """No encoding, and the interface of the others."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Embeddings with their places added: x [..., d], positions [..., 2] metres -> [..., d]."""
        return x

    def rotation(self, positions: Tensor) -> Rotation | None:
        """What turns queries and keys, or None; `positions` [..., 2] metres relative to a nearby origin."""
        return None


class Rotary(Encoding):
    """RoPE, eq. (rope1): complex element 2k of each head turns by w_k x and element 2k+1 by w_k y.

    The K = d_a/4 frequencies are those of one head, so every head sees both axes.
    """

    omega: Tensor

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        spacing = config.encoding.removeprefix("rope-")
        omega = frequencies(spacing, config.head_dim // 4, config.wavelength)
        self.register_buffer("omega", omega, persistent=False)

    def rotation(self, positions: Tensor) -> Rotation:
        plain = positions.requires_grad or self.omega.dtype != torch.float32 or torch.compiler.is_compiling()
        if gpu is not None and on_gpu(positions) and not plain:
            return tried("phases", lambda: gpu.phases(positions, self.omega), lambda: turns(positions, self.omega))
        return turns(positions, self.omega)


class Absolute(Encoding):
    """APE, eq. (absolute_positional_encodings): adds sin w_k x, cos w_k x, sin w_k y, cos w_k y, K = d/4."""

    omega: Tensor

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        spacing = config.encoding.removeprefix("ape-")
        omega = frequencies(spacing, config.width // 4, config.wavelength)
        self.register_buffer("omega", omega, persistent=False)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return x + waves(positions, self.omega)


class MLPEncoding(Encoding):
    """MLP-PE, eq. (embedding_mlp): an MLP of the position, in units of lambda, is added."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__(config)
        self.scale = config.position_scale
        self.mlp = nn.Sequential(
            nn.Linear(2, 2 * config.width), nn.LeakyReLU(inplace=True), nn.Linear(2 * config.width, config.width)
        )

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        # bf16 would round a position of 1000 m to 4 m, so this MLP stays in fp32 under autocast.
        with torch.autocast(positions.device.type, enabled=False):
            return x + self.mlp((positions / self.scale).to(x.dtype))


_KINDS = {"rope": Rotary, "ape": Absolute, "mlp": MLPEncoding, "none": Encoding}


def make_encoding(config: PolicyConfig) -> Encoding:
    """The encoding that `config.encoding` names."""
    return _KINDS[config.encoding.split("-")[0]](config)
