"""Attention in a real state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mast_swarm.evaluate.policies import load_policy
from mast_swarm.model.encoding import near_origin, rotate
from mast_swarm.paper.experiment import FAILS, HOLDS, Experiment, Found, Row, declare
from mast_swarm.paper.judge import Judged, judged
from mast_swarm.paper.properties.starts import start
from mast_swarm.space import components

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def attention_weights(policy: Any, state: Any, seen: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Of the first layer: window and component mask [N, N] bool, and the weights [H, N, N], of one environment."""
    positions = seen.positions
    component = components(seen.graph)
    x = policy.encoding.embed(policy.lift(policy.perceive(seen.features)), positions)
    block = policy.mast.blocks[0]
    _, h = block.before_attention(x, None)
    heads, width = policy.config.heads, policy.config.head_dim
    q, k, _ = block.attention.qkv(h).unflatten(-1, (3, heads, width)).unbind(2)  # [1, N, H, d_a] each
    rotation = policy.encoding.rotation(positions.double() - near_origin(positions))
    if rotation is not None:
        turn = rotation[0][:, :, None], rotation[1][:, :, None]
        q, k = rotate(q, turn), rotate(k, turn)
    scores = torch.einsum("bihd,bjhd->bhij", q, k) / width**0.5
    apart = torch.linalg.vector_norm(positions[0, :, None] - positions[0, None], dim=-1)
    near = apart < (policy.config.attention_radius or float("inf"))
    together = component[0][:, None] == component[0][None]
    return near, together, scores[0].masked_fill(~(near & together), -torch.inf).softmax(-1)


def _attention_state() -> tuple[Any, Any, Any]:
    state, seen = start("circle", seed=5)
    return load_policy("mast-m").eval(), state, seen


def _attention_rows(found: Found) -> list[Row]:
    def drawn() -> Judged:
        with torch.no_grad():
            near, together, share = attention_weights(*_attention_state())
        both = near & together
        inside = float(share.masked_fill(~both, 0).sum(-1).mean())
        text = f"{near.numel()} pairs: {int(near.sum())} near, {int(together.sum())} connected, {int(both.sum())} both"
        verdict = (
            HOLDS if abs(inside - 1) < 1e-5 and int(both.sum()) < min(int(near.sum()), int(together.sum())) else FAILS
        )
        return "-", text, verdict, "the figures, from a real state of mast-m: every weight lies within both masks"

    return [judged(found, 9, drawn)]


def _attention_draw(found: Found, figure: Figure) -> None:
    from matplotlib.colors import ListedColormap

    policy, state, seen = _attention_state()
    with torch.no_grad():
        near, together, share = attention_weights(policy, state, seen)
    order = torch.argsort(components(seen.graph)[0], stable=True)
    mask = (near.int() + 2 * together.int())[order][:, order]
    left, right = figure.subplots(1, 2)
    left.imshow(
        mask, cmap=ListedColormap(["white", "#DDE1E9", "#F6B84B", "#0072B2"]), interpolation="nearest", vmin=0, vmax=3
    )
    left.set_title("attention mask", loc="left")
    left.set(xlabel="robot j, by component", ylabel="robot i")
    left.grid(False)
    places = seen.positions[0].numpy()
    me = int(together.sum(1).argmax())
    mean = share[:, me].mean(0).numpy()
    for source, target in zip(seen.graph.source.tolist(), seen.graph.target.tolist(), strict=True):
        right.plot(*places[[source, target]].T, color="#DDE1E9", linewidth=0.6, zorder=1)
    mine = together[me].numpy()
    right.plot(*places[~mine].T, "o", color="#A9B4C2", markersize=3, zorder=2)
    right.plot(*places[mine].T, "o", color="#0072B2", markersize=3, zorder=2)
    for j in np.nonzero(mean > 1e-4)[0]:
        right.plot(*places[[me, j]].T, color="#D55E00", linewidth=0.4 + 6 * mean[j], alpha=0.7, zorder=3)
    circle = np.linspace(0, 2 * np.pi, 100)
    radius = policy.config.attention_radius or 0.0
    right.plot(
        places[me, 0] + radius * np.cos(circle),
        places[me, 1] + radius * np.sin(circle),
        ":",
        color="#5A6576",
        linewidth=1,
    )
    right.plot(*places[me], "*", color="#D55E00", markersize=9, zorder=4)
    right.set(aspect="equal", xticks=[], yticks=[])
    right.set_title("what one robot attends to alone", loc="left")
    text = (
        "left: blue both masks, grey near but in another component, amber connected but too far; right: width = weight "
        "in layer 1 (mean of heads), blue = its component"
    )
    figure.supxlabel(text, fontsize=7)


declare(
    Experiment(
        "attention",
        "the attention mask and decentralized attention, from a real state",
        "Figs. 2 and 4",
        _attention_rows,
        draw=_attention_draw,
        shape=(9.0, 4.7),
    )
)
