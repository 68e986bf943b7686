"""What the paper states or draws and can be computed on the spot: frequencies, start states, attention, symmetries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from mast_swarm.comms.config import Channel
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.policies import load_policy
from mast_swarm.model.encoding import frequencies, near_origin, rotate
from mast_swarm.paper.cells import Cell
from mast_swarm.paper.experiment import FAILS, HOLDS, Experiment, Found, Row, Size, declare
from mast_swarm.paper.judge import Judged, either, judged
from mast_swarm.paper.navigation import SCENARIOS
from mast_swarm.space import components
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# Frequencies.


def _frequency_rows(found: Found) -> list[Row]:
    def longer() -> Judged:
        periods = {s: 2 * np.pi / frequencies(s, 16, 1000.0).numpy() for s in "gl"}
        over = {s: int((p > 100).sum()) for s, p in periods.items()}
        text = f"periods above 100 m: geometric {over['g']} of 16, linear {over['l']}"
        sums = {s: float(p.sum()) for s, p in periods.items()}
        why = f"the figure; periods add up to {sums['g']:.0f} m and {sums['l']:.0f} m"
        short = {s: int((p < 30).sum()) for s, p in periods.items()}
        verdict = either(over["g"] > over["l"])
        return text, text, verdict, f"{why}; below 30 m: {short['g']} and {short['l']}"

    return [judged(found, 4, longer)]


def _frequency_draw(found: Found, figure: Figure) -> None:
    left, right = figure.subplots(1, 2)
    for spacing, label in (("g", "geometric"), ("l", "linear")):
        omega = frequencies(spacing, 16, 1000.0).numpy()
        left.plot(range(1, 17), omega, marker="o", markersize=3, label=label)
        right.plot(range(1, 17), 2 * np.pi / omega, marker="o", markersize=3, label=label)
    left.set(xlabel="k", ylabel="frequency (rad/m)", yscale="log")
    right.set(xlabel="k", ylabel="period (m)", yscale="log")
    left.legend()


declare(
    Experiment(
        "frequencies",
        "geometric and linear frequencies",
        "fig:frequencies",
        _frequency_rows,
        draw=_frequency_draw,
        shape=(7.0, 3.2),
        notes="K = 16 frequencies of a head of 64, lambda = 1000 m.",
    )
)


# Start states.


def _start(scenario: str, agents: int = 100, seed: int = 2) -> tuple[Any, Any]:
    world = Navigation(NavigationConfig(agents=agents, scenario=scenario))
    state = world.reset([seed])
    return state, world.observe(state)


CLUSTERS = ("clusters-1", "clusters-5-1", "clusters-10-5")  # of the paper's first figure


def _start_rows(found: Found) -> list[Row]:
    def drawn(names: tuple[str, ...]) -> Judged:
        parts = {name: len(torch.unique(components(_start(name)[1].graph)[0])) for name in names}
        text = "parts of the graph: " + ", ".join(f"{name} {count}" for name, count in parts.items())
        return "-", text, HOLDS, "the figure"

    return [judged(found, 11, lambda: drawn(CLUSTERS)), judged(found, 31, lambda: drawn(SCENARIOS))]


def _start_draw(found: Found, figure: Figure) -> None:
    from mast_swarm.view.style import SCENE

    names = (*CLUSTERS, *SCENARIOS)
    for axes, name in zip(figure.subplots(3, 4).flat, (*names, None), strict=True):
        if name is None:
            axes.axis("off")
            continue
        state, seen = _start(name)
        places, goals = state.positions[0].numpy(), state.goals[0].numpy()
        for source, target in zip(seen.graph.source.tolist(), seen.graph.target.tolist(), strict=True):
            axes.plot(*places[[source, target]].T, color=SCENE["link"], linewidth=0.5, zorder=1)
        observed = np.zeros(len(goals), bool)
        observed[np.unique(seen.goals_seen.numpy())] = True
        axes.plot(*places.T, "o", color=SCENE["robot"], markersize=2, zorder=3)
        axes.plot(*goals[observed].T, "x", color=SCENE["seen"], markersize=3, zorder=2)
        axes.plot(*goals[~observed].T, "x", color=SCENE["unseen"], markersize=3, zorder=2)
        axes.set(aspect="equal", xticks=[], yticks=[])
        axes.set_title(name, loc="left", fontsize=9)
    figure.supxlabel(
        "blue: robots and their links; green: goals that some robot senses; red: goals that none senses", fontsize=8
    )


declare(
    Experiment(
        "starts",
        "start states of all scenarios",
        "fig:motion-planning-initialization, fig:scenarios-initialization",
        _start_rows,
        draw=_start_draw,
        shape=(10.0, 7.6),
    )
)


# Attention in a real state.


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
    state, seen = _start("circle", seed=5)
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
        "the attention mask and decentralised attention, from a real state",
        "fig:attention-mask, fig:attention-decentralized",
        _attention_rows,
        draw=_attention_draw,
        shape=(9.0, 4.7),
    )
)


# Symmetries, and what equals what.


def _decided(policy: Any, seen: Any, shift: float = 0.0, order: torch.Tensor | None = None) -> torch.Tensor:
    features, positions, component = seen.features, seen.positions.double() + shift, components(seen.graph)
    if order is not None:
        features, positions, component = features[:, order], positions[:, order], component[:, order]
    with torch.no_grad():
        return policy(features, positions, component)


def shift_error(shift: float = 1000.37) -> float:
    """How much commands of mast-m change when the whole team is shifted, at most, in units of u_max."""
    policy, (_, seen) = load_policy("mast-m").eval(), _start("clusters-5-5")
    return float((_decided(policy, seen, shift) - _decided(policy, seen)).abs().max())


def permutation_error() -> float:
    """The same when robots are counted in another order."""
    policy, (_, seen) = load_policy("mast-m").eval(), _start("clusters-5-5")
    order = torch.randperm(100, generator=torch.Generator().manual_seed(0))
    return float((_decided(policy, seen, order=order) - _decided(policy, seen)[:, order]).abs().max())


def decentral_error(steps: int = 3) -> float:
    """How much commands of robots that decide alone without delay differ from central ones, at most."""
    world = Navigation(NavigationConfig(agents=50))
    alone, central = (Loop(world, make_actor("mast-m", world, c)) for c in (Channel(delay=0.0), None))
    worst = 0.0
    with torch.inference_mode():
        alone.start([1, 2])
        central.start([1, 2])
        for _ in range(steps):
            alone.sense()
            central.sense()
            command = central.decide()
            worst = max(worst, float((alone.decide() - command).abs().max()))
            alone.move(command)
            central.move(command)
    return worst


def numpy_error() -> float:
    """How much commands of mast-m differ from the paper's equations in plain numpy, robot by robot, at most."""
    policy, (_, seen) = load_policy("mast-m").eval(), _start("clusters-5-5", agents=30)
    weights = {name: value.double().numpy() for name, value in policy.state_dict().items()}
    expected = plain_forward(policy.config, weights, seen)
    return float(np.abs(_decided(policy, seen)[0].double().numpy() - expected).max())


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


def reach(name: str, spacing: float = 200.0, robots: int = 40) -> int:
    """How many hops away, along a line of robots, a robot can be and still change the command of the first."""
    policy = load_policy(name, "coverage").eval()
    places = torch.stack((torch.arange(robots) * spacing, torch.zeros(robots)), dim=1)[None]
    shape = policy.config.observation_shape
    generator = torch.Generator().manual_seed(0)
    features = torch.rand((1, robots, *shape), generator=generator).requires_grad_(True)
    from mast_swarm.observation import Observation
    from mast_swarm.space import radius_graph

    seen = Observation(features=features, positions=places, graph=radius_graph(places, 256.0))
    extras = policy.surroundings(robots * spacing)
    policy(**policy.inputs(seen), **extras)[0, 0].sum().backward()
    assert features.grad is not None
    moved = features.grad[0].flatten(1).abs().amax(1) > 0
    return int(moved.nonzero().max())


def _property_cells(size: Size) -> Mapping[str, Cell]:
    return {}


def _property_rows(found: Found) -> list[Row]:
    def small(error: float, text: str, most: float = 1e-4) -> Judged:
        return "-", f"{error:.1e}", HOLDS if error < most else FAILS, text

    def scalable() -> Judged:
        from mast_swarm.space.neighbours import pairs_within

        shares = {}
        for agents in (1000, 4000):
            side = 1000.0 * (agents / 100) ** 0.5
            places = torch.rand(1, agents, 2, generator=torch.Generator().manual_seed(0)) * side
            pairs = pairs_within(places, 250.0, "cells")
            shares[agents] = len(pairs[0]) / agents
        text = ", ".join(f"{agents} robots: {count:.1f} pairs per robot" for agents, count in shares.items())
        flat = abs(shares[4000] / shares[1000] - 1) < 0.2
        return (
            "-",
            text,
            HOLDS if flat else FAILS,
            "pairs per robot do not grow with the team; times are in docs/scale.md",
        )

    def knows() -> Judged:
        from mast_swarm.tasks.coverage import TASK

        names = [name for name in ("clairvoyant", "c-cvt", "d-cvt") if TASK.has_controller(name)]
        return "-", ", ".join(names) + ", lpac-k3, mast-m", HOLDS if len(names) == 3 else FAILS, "all five can be run"

    def images() -> Judged:
        config = load_policy("mast-m-paper", "coverage").config
        text = f"{config.perception}, {config.observation_shape}, {config.message_width} numbers"
        return (
            text,
            text,
            either(config.perception == "cnn", config.message_width == 32),
            "settings of the shipped policy",
        )

    def fields() -> Judged:
        hops = {name: reach(name) for name in ("lpac-k3", "mast-m")}
        text = ", ".join(f"{name} {count} hops ({256 * count} m)" for name, count in hops.items())
        return (
            "-",
            text,
            either(hops["lpac-k3"] == 15, hops["mast-m"] == 8),
            "measured by gradients along a line of robots",
        )

    def relay() -> Judged:
        ages = relay_ages()
        return "-", ages[1], HOLDS if ages[0] else FAILS, "ages of news on a line of robots against ceil(h tau / dt)"

    judges: dict[int, Any] = {
        1: lambda: small(
            numpy_error(), "largest difference of mast-m to the equations in float64 numpy, robot by robot"
        ),
        2: lambda: small(shift_error(), "largest change of a command when the team is shifted by 1 km"),
        3: lambda: small(permutation_error(), "largest change of a command when robots are counted otherwise"),
        6: scalable,
        8: lambda: small(decentral_error(), "largest difference of decentralised commands at tau = 0 to central ones"),
        10: relay,
        39: knows,
        41: images,
        57: fields,
    }
    return [judged(found, claim, judge) for claim, judge in judges.items()]


def relay_ages() -> tuple[bool, str]:
    """Whether on a still line of robots news from h hops away is ceil(h tau / dt) periods old, for several tau."""
    from math import ceil

    from mast_swarm.comms.relay import Relay
    from mast_swarm.space import Graph

    robots, right, worst = 8, True, []
    for tau in (0.1, 0.3, 0.5, 1.0, 2.5):
        link = torch.arange(robots - 1)
        graph = Graph(torch.cat((link, link + 1)), torch.cat((link + 1, link)), 1, robots)
        relay = Relay(Channel(delay=tau), 1.0)
        state = relay.start([0], robots, 1)
        places = torch.zeros(1, robots, 2)
        for _ in range(30):
            state = relay.exchange(relay.sample(state, torch.zeros(1, robots, 1), places, graph), graph)
        state = relay.sample(state, torch.zeros(1, robots, 1), places, graph)
        ages = (state.step - state.stamps[0, 0].long()).tolist()
        expected = [ceil(round(h * tau, 9)) for h in range(robots)]
        right &= ages == expected
        worst.append(f"tau {tau:g}: {ages[-1]} periods at {robots - 1} hops")
    return right, "; ".join(worst)


def _property_draw(found: Found, figure: Figure) -> None:
    axes = figure.subplots()
    errors = {
        "equations in numpy": numpy_error(),
        "shift by 1 km": shift_error(),
        "permutation": permutation_error(),
        "alone, tau = 0": decentral_error(),
    }
    axes.barh(list(errors), [max(error, 1e-9) for error in errors.values()], color="#0072B2")
    axes.set(xscale="log", xlabel="largest difference of a command, in units of the longest one", xlim=(1e-9, 1))


declare(
    Experiment(
        "properties",
        "equations, symmetries, masks and receptive fields, computed on the spot",
        "fig:architecture-abstract, Algorithm 1, sections on equivariance",
        _property_rows,
        _property_cells,
        _property_draw,
        shape=(6.4, 2.6),
    )
)
