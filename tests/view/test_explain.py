"""What `explain` says of a robot's decision: against attention computed anew in numpy, and against what changes it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from PIL import Image

import mast_swarm
from mast_swarm import Channel, DecentralPolicy, Navigation, NavigationConfig, Policy, PolicyConfig, explain
from mast_swarm.comms.decentral import decide
from mast_swarm.errors import MastError
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.model.config import ENCODINGS, LPACConfig
from mast_swarm.model.lpac import LPAC

SMALL = PolicyConfig(layers=3, heads=2, head_dim=8, attention_radius=120.0)


def world(agents: int = 14, **fields: Any) -> Navigation:
    return Navigation(NavigationConfig(agents=agents, **fields))


def ran(policy: Policy, channel: Channel, periods: int = 6, agents: int = 14, seed: int = 1) -> DecentralPolicy:
    """Robots that have decided alone for some control periods."""
    here, run = world(agents), DecentralPolicy(policy, channel, 1.0)
    run.start([seed])
    state = here.reset([seed])
    for _ in range(periods):
        seen = here.observe(state)
        run.act(seen)
        state = here.step(state, torch.randn(1, agents, 2, generator=torch.Generator().manual_seed(seed)))
    return run


class Numpy:
    """The model of SPEC 2 for one environment in plain numpy, written from the paper's equations."""

    def __init__(self, policy: Policy) -> None:
        self.config = policy.config
        self.w = {name: value.double().numpy() for name, value in policy.state_dict().items()}

    def linear(self, name: str, x: np.ndarray) -> np.ndarray:
        return x @ self.w[f"{name}.weight"].T + self.w[f"{name}.bias"]

    def mlp(self, name: str, x: np.ndarray) -> np.ndarray:
        hidden = self.linear(f"{name}.0", x)
        return self.linear(f"{name}.2", np.where(hidden > 0, hidden, 0.01 * hidden))

    def norm(self, name: str, x: np.ndarray) -> np.ndarray:
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return x * self.w[f"{name}.weight"] + self.w[f"{name}.bias"]

    def omega(self, count: int) -> np.ndarray:
        k, wavelength = np.arange(1, count + 1), self.config.wavelength
        return 2 * np.pi * (wavelength ** (-k / count) if self.config.encoding.endswith("g") else k / wavelength)

    def turn(self, x: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Complex element 2k by w_k x, element 2k+1 by w_k y. x [T, H, d_a]."""
        w = self.omega(self.config.head_dim // 4)
        phase = np.stack([places[:, :1] * w, places[:, 1:] * w], axis=-1).reshape(len(places), 1, -1)
        turned = (x[..., 0::2] + 1j * x[..., 1::2]) * np.exp(1j * phase)
        return np.stack([turned.real, turned.imag], axis=-1).reshape(x.shape)

    def run(self, x: np.ndarray, places: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Tokens [T, d], lifted -> weights [L, H, T, T] and predictions [T, 2]."""
        config, weights = self.config, []
        if config.encoding.startswith("ape"):
            phase = [axis[:, None] * self.omega(config.width // 4) for axis in places.T]
            x = x + np.stack([np.sin(phase[0]), np.cos(phase[0]), np.sin(phase[1]), np.cos(phase[1])], -1).reshape(
                x.shape
            )
        if config.encoding == "mlp":
            x = x + self.mlp("encoding.mlp", places / config.wavelength)
        for layer in range(config.layers):
            name = f"mast.blocks.{layer}"
            qkv = self.linear(f"{name}.attention.qkv", self.norm(f"{name}.norm1", x))
            q, k, v = (part.reshape(len(x), config.heads, -1) for part in np.split(qkv, 3, axis=-1))
            if config.encoding.startswith("rope"):
                q, k = self.turn(q, places), self.turn(k, places)
            score = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(config.head_dim)
            score = np.where(mask, np.exp(score - score.max(-1, keepdims=True)), 0.0)
            weights.append(score / score.sum(-1, keepdims=True))
            x = x + self.linear(f"{name}.attention.out", np.einsum("hij,jhd->ihd", weights[-1], v).reshape(x.shape))
            x = x + self.mlp(f"{name}.mlp", self.norm(f"{name}.norm2", x))
        return np.stack(weights), self.mlp("head", self.norm("mast.norm", x))


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("variant", ["M", "L", "C"])
def test_weights_are_those_of_the_equations(encoding: str, variant: str) -> None:
    policy = Policy(dataclasses.replace(SMALL, encoding=encoding, variant=variant, message_dim=8), seed=2)
    here = world()
    seen = here.observe(here.reset([4, 5]))
    anew, places = Numpy(policy), seen.positions[1].double().numpy()
    messages = anew.mlp("perception.mlp", seen.features[1].double().numpy())
    x = anew.linear("lift", messages)
    if variant == "C":
        goals = seen.goals[1].double().numpy()
        x, places = np.concatenate([x, np.tile(anew.w["goal"], (len(goals), 1))]), np.concatenate([places, goals])
    mask = np.linalg.norm(places[:, None] - places, axis=-1) < SMALL.attention_radius
    if variant == "M":
        linked = seen.graph.adjacency()[1].numpy() | np.eye(14, dtype=bool)
        mask &= np.linalg.matrix_power(linked.astype(float), 14) > 0
    weights, predictions = anew.run(x, places, mask)
    for robot in (0, 9):
        told = explain(policy, seen, robot, environment=1)
        token = told.origins + 14 * told.goals  # as numpy numbers them
        np.testing.assert_allclose(told.weights, weights[:, :, robot][..., token], atol=2e-5)
        np.testing.assert_allclose(told.weights.sum(-1), 1.0, atol=1e-6)
        assert (told.weights[..., ~mask[robot][token]] == 0).all()
        np.testing.assert_allclose(told.prediction, predictions[robot], atol=2e-5)
        np.testing.assert_allclose(told.positions, places[token], atol=1e-4)
        assert told.goals.any() == (variant == "C") and not told.ages.any() and token[0] == robot


@given(seed=st.integers(0, 10**6), agents=st.integers(1, 16), radius=st.sampled_from([60.0, 120.0, None]))
@settings(max_examples=12, deadline=None)
def test_the_receptive_field_is_what_changes_the_command(seed: int, agents: int, radius: float | None) -> None:
    policy = Policy(dataclasses.replace(SMALL, layers=2, attention_radius=radius), seed=seed).double()
    here = world(agents, width=400.0)
    seen = here.observe(here.reset([seed]))
    given, robot = policy.inputs(seen), seed % agents
    told = explain(policy, seen, robot)
    before = policy(**given)[0, robot]
    depends = []
    for other in range(agents):
        features = given["features"].clone()
        features[0, other] += 0.5
        after = policy(**{**given, "features": features})[0, robot]
        if not torch.equal(after, before):
            depends.append(other)
    assert told.receptive_field.tolist() == depends
    assert (told.influence[told.windows < 0] == 0).all() and (told.influence[told.windows >= 0] > 0).all()
    assert sorted(told.origins.tolist()) == list(range(agents))


def test_influence_is_the_derivative() -> None:
    policy, here = Policy(SMALL, seed=2).double(), world()
    seen = here.observe(here.reset([4]))
    given, message = policy.inputs(seen), policy.perceive(seen.features).detach()
    told = explain(policy, seen, 3)

    def predicted(tokens: torch.Tensor) -> torch.Tensor:
        return policy.decide(tokens, given["positions"], given["component"], path="dense")[0, 3]

    slope = torch.autograd.functional.jacobian(predicted, message)[:, 0]  # [2, N, d_msg]
    np.testing.assert_allclose(told.influence, slope.square().sum((0, 2)).sqrt()[told.origins].numpy(), rtol=1e-6)


@pytest.mark.parametrize(
    "channel", [Channel(delay=1.0), Channel(delay=0.4, loss=0.3), Channel(delay=1.5, max_age=4.0), Channel()]
)
def test_what_a_robot_held_explains_what_it_decided(channel: Channel) -> None:
    policy = Policy(SMALL, seed=2)
    run = ran(policy, channel)
    assert run.state is not None
    predicted, stamps = decide(policy, run.state), run.state.stamps[0]
    for robot in range(14):
        told = explain(policy, run, robot)
        np.testing.assert_allclose(told.prediction, predicted[0, robot].numpy(), atol=1e-5)
        np.testing.assert_allclose(told.weights.sum(-1), 1.0, atol=1e-6)
        assert sorted(told.origins.tolist()) == (stamps[robot] >= 0).nonzero()[:, 0].tolist()
        np.testing.assert_array_equal(told.ages, run.state.step - stamps[robot][told.origins].numpy())
        # Other news in place of what it holds of each robot, and nothing else:
        for token, origin in enumerate(told.origins.tolist()):
            if robot % 7 == 0:
                slot = int(run.state.newest[0, robot, origin]) & ((1 << 20) - 1)
                messages = run.state.messages.clone()
                messages[0, slot, origin] = torch.randn(16, generator=torch.Generator().manual_seed(origin))
                other = decide(policy, dataclasses.replace(run.state, messages=messages))[0, robot]
                assert (told.windows[token] >= 0) == (not torch.equal(other, predicted[0, robot]))


def test_news_is_as_old_as_its_way_is_long() -> None:
    """On a still line news of a robot h hops away is ceil(h tau / dt) periods old."""
    places = torch.stack([torch.arange(6) * 50.0, torch.zeros(6)], dim=-1)[None]
    seen = mast_swarm.Observation(
        features=torch.randn(1, 6, 14), positions=places, graph=mast_swarm.radius_graph(places, 60.0)
    )
    policy = Policy(dataclasses.replace(SMALL, layers=2), seed=2)
    run = DecentralPolicy(policy, Channel(delay=0.7), 1.0)
    run.start([0])
    for _ in range(8):
        run.act(seen)
    told = explain(policy, run, 0)
    assert told.origins.tolist() == [0, 1, 2, 3, 4, 5]
    assert told.ages.tolist() == [0.0, 1.0, 2.0, 3.0, 3.0, 4.0]
    assert told.windows.tolist() == [0, 1, 1, 2, 2, -1]  # windows of 120 m
    assert told.receptive_field.tolist() == [0, 1, 2, 3, 4]
    assert str(told).startswith("robot 0 holds news of 5 others; its command depends on 4 of them, with news up to 3 s")


def test_other_ways_to_ask() -> None:
    here, policy = world(), Policy(SMALL, seed=2)
    state = here.reset([1])
    told = explain(policy, here.observe(state), 2)
    np.testing.assert_array_equal(told.weights, explain(policy, state, 2, world=here).weights)
    actor: Any = make_actor(policy, here, Channel(delay=1.0))
    actor.start([1])
    actor.act(state, here.observe(state))
    assert explain(policy, actor, 2).origins.tolist() == [2]  # nothing has reached it yet
    assert explain("mast-m-paper", state, 2, world=here).weights.shape == (4, 4, 14)


def test_the_plot(tmp_path: Path) -> None:
    policy = Policy(dataclasses.replace(SMALL, variant="C"), seed=2)
    here = world()
    assert explain(policy, here.observe(here.reset([1])), 2).plot(tmp_path / "goals.png") == tmp_path / "goals.png"
    policy = Policy(SMALL, seed=2)
    explain(policy, ran(policy, Channel(delay=1.0)), 3).plot(tmp_path / "delayed.png")
    alone = world(agents=1)
    explain(policy, alone.observe(alone.reset([1])), 0).plot(tmp_path / "alone.png")
    for name in ("goals", "delayed", "alone"):
        with Image.open(tmp_path / f"{name}.png") as picture:
            assert picture.width > 1500 and len(np.unique(np.asarray(picture.convert("L").resize((60, 30))))) > 5
    figure = Figure()
    explain(policy, alone.observe(alone.reset([1])), 0)._table(figure)
    assert figure.axes[0].get_ylim() == (0, 1)  # no age is negative, also where all news is new
    with pytest.raises(MastError, match=r"cannot write a plot as x\.txt"):
        explain(policy, alone.observe(alone.reset([1])), 0).plot(tmp_path / "x.txt")


def test_bad_input_is_one_clear_line() -> None:
    here, policy = world(4), Policy(SMALL, seed=2)
    state = here.reset([1])
    seen = here.observe(state)
    run = DecentralPolicy(policy, Channel(delay=1.0, failure=1.0), 1.0)
    wrong: dict[str, Any] = {
        "robot is 4: expected 0 to 3": (policy, seen, 4),
        "robot is -1: expected 0 to 3": (policy, seen, -1),
        "a state does not say what robots sense: give its world": (policy, state, 0),
        "nobody has decided yet: call start and act first": (policy, run, 0),
        "cannot explain Navigation: give an observation": (policy, here, 0),
        "a policy of kind lpac has no attention": (LPAC(LPACConfig(observation_dim=14, perception="mlp")), seen, 0),
        "a policy of kind function has no attention": (lambda: None, seen, 0),
    }
    for line, asked in wrong.items():
        with pytest.raises(MastError, match=line):
            explain(*asked)
    with pytest.raises(MastError, match="environment is 1: expected 0 to 0"):
        explain(policy, seen, 0, environment=1)
    run.start([1])
    run.act(seen)
    run.act(seen)
    with pytest.raises(MastError, match="robot 0 of environment 0 has failed"):
        explain(policy, run, 0)
