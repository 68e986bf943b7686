"""The stack of equations in plain numpy, robot by robot, to compare policies with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mast_swarm.space import components


def plain_forward(config: Any, weights: Mapping[str, np.ndarray], seen: Any) -> np.ndarray:
    """The stack of SPEC's equations in float64 loops: features to predictions [N, outputs] of one environment."""

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        return (
            centred / np.sqrt(centred.var(-1, keepdims=True) + 1e-5) * weights[f"{name}.weight"]
            + weights[f"{name}.bias"]
        )

    def leaky(x: np.ndarray) -> np.ndarray:
        return np.where(x > 0, x, 0.01 * x)

    def mlp(prefix: str, x: np.ndarray) -> np.ndarray:
        layers = sorted(
            {
                int(n[len(prefix) + 1 :].split(".")[0])
                for n in weights
                if n.startswith(f"{prefix}.") and n.endswith(".weight")
            }
        )
        for number in layers[:-1]:
            x = leaky(linear(f"{prefix}.{number}", x))
        return linear(f"{prefix}.{layers[-1]}", x)

    def first(ending: str) -> str:
        return next(n.rsplit(".", 2)[0] for n in weights if ending in n)

    places = seen.positions[0].double().numpy()
    component = components(seen.graph)[0].numpy()
    robots, heads, width = len(places), config.heads, config.head_dim
    x = mlp(first("perception"), seen.features[0].double().numpy())
    count = width // 4
    omega = 2 * np.pi * config.wavelength ** (-np.arange(1, count + 1) / count)
    angle = np.stack((places[:, :1] * omega, places[:, 1:] * omega), axis=-1).reshape(robots, 2 * count)
    turn = np.exp(1j * angle)  # element 2k by w_k x, 2k + 1 by w_k y

    def turned(v: np.ndarray) -> np.ndarray:
        return (v[:, 0::2] + 1j * v[:, 1::2]) * turn

    for layer in range(config.layers):
        name = f"mast.blocks.{layer}"
        q, k, v = np.split(linear(f"{name}.attention.qkv", norm(f"{name}.norm1", x)), 3, axis=1)
        answer = np.zeros_like(q)
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            a, b = turned(q[:, part]), turned(k[:, part])
            for i in range(robots):
                near = np.linalg.norm(places - places[i], axis=1) < config.attention_radius
                allowed = np.nonzero(near & (component == component[i]))[0]
                score = (a[i] * b[allowed].conj()).real.sum(1) / np.sqrt(width)
                share = np.exp(score - score.max())
                answer[i, part] = share @ v[allowed, part] / share.sum()
        x = x + linear(f"{name}.attention.out", answer)
        x = x + mlp(f"{name}.mlp", norm(f"{name}.norm2", x))
    return mlp("head", norm("mast.norm", x)) * config.action_scale
