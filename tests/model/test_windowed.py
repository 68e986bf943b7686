"""Every path of attention in windows has one meaning: that of the mask of all pairs, in value and in gradient."""

from __future__ import annotations

import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor

from devices import DEVICE, GPU, HALF, few
from mast_swarm.errors import MastError
from mast_swarm.model import Policy, PolicyConfig, windowed
from mast_swarm.model.attention import Attention, allowed, attend_packed
from mast_swarm.model.encoding import make_encoding, rotate
from mast_swarm.model.windowed import choose, find_window

RADIUS = 100.0


def scatter(kind: str, batch: int, tokens: int, seed: int) -> Tensor:
    """Positions [B, T, 2] of one kind; environments differ in density."""
    rng = torch.Generator().manual_seed(seed)
    place = torch.rand(batch, tokens, 2, generator=rng)
    width = torch.linspace(150, 2000, batch)[:, None, None]
    if kind == "clustered":
        centre = torch.rand(batch, 1 + tokens // 10, 2, generator=rng) * width
        return centre[:, torch.arange(tokens) // 10] + 30 * place
    if kind == "one cell":
        return place * 50
    if kind == "far apart":
        return place * 50_000
    return place * width


def labels(kind: str | None, positions: Tensor, seed: int) -> Tensor | None:
    rng = torch.Generator().manual_seed(seed)
    batch, tokens, _ = positions.shape
    if kind == "labels":
        return torch.randint(0, 3, (batch, tokens), generator=rng)
    if kind == "matrix":
        return torch.rand(batch, tokens, tokens, generator=rng) < 0.6
    return None


@pytest.mark.parametrize("device", ["cpu", GPU])
@settings(deadline=None, max_examples=few(25, 5))
@given(
    kind=st.sampled_from(["uniform", "clustered", "one cell", "far apart"]),
    batch=st.integers(1, 3),
    tokens=st.integers(1, few(60, 12)),
    component=st.sampled_from([None, "labels", "matrix"]),
    turned=st.booleans(),
    rows=st.sampled_from([4096, 1]),
    seed=st.integers(0, 99),
)
def test_paths_agree_in_value_and_gradient(
    device: str, kind: str, batch: int, tokens: int, component: str | None, turned: bool, rows: int, seed: int
) -> None:
    heads, width = 2, 8
    positions = scatter(kind, batch, tokens, seed).to(device)
    label = labels(component, positions.cpu(), seed)
    label = None if label is None else label.to(device)
    rng = torch.Generator().manual_seed(seed)
    qkv = torch.randn(batch, tokens, 3 * heads * width, generator=rng).to(device).requires_grad_()
    weight = torch.randn(batch, tokens, heads * width, generator=rng).to(device)
    encoding = make_encoding(PolicyConfig(heads=heads, head_dim=width)).to(device)
    turn = encoding.rotation if turned else windowed.unturned
    mask = allowed(positions, RADIUS, label)
    expected = attend_packed(qkv, heads, turn(positions), mask)
    (grad,) = torch.autograd.grad(expected, qkv, weight)
    projections: Any = SimpleNamespace(qkv=torch.nn.Identity(), heads=heads)
    for path in ("lists", "kernel"):
        with patch.object(windowed, "_CPU_ROWS", rows):  # beyond so many the CPU sorts
            window = find_window(positions, RADIUS, label, path, turn)
        found = window.restore(window.attend(projections, window.arrange(qkv)))
        assert torch.allclose(found, expected, atol=1e-5), path
        (ours,) = torch.autograd.grad(found, qkv, weight)
        assert torch.allclose(ours, grad, atol=1e-5), path


@pytest.mark.kernels
@settings(deadline=None, max_examples=few(200, 20))
@example(
    kind="uniform", batch=2, tokens=20, component=None, turned=False, each=1, seed=0
)  # a tile ends in another environment
@given(
    kind=st.sampled_from(["uniform", "clustered", "one cell", "far apart"]),
    batch=st.integers(1, 3),
    tokens=st.integers(1, few(300, 40)),
    component=st.sampled_from([None, "labels"]),
    turned=st.booleans(),
    each=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**16),
)
def test_tiles_attend_as_all_pairs_do(
    kind: str, batch: int, tokens: int, component: str | None, turned: bool, each: int, seed: int
) -> None:
    """In half precision; tiles hold tokens of several rows of cells, and of several environments."""
    config = PolicyConfig(
        heads=2, head_dim=few(32, 16), attention_radius=RADIUS, encoding="rope-g" if turned else "none"
    )
    torch.manual_seed(seed)
    attention = Attention(config).requires_grad_(False)
    positions, h = scatter(kind, batch, tokens, seed), torch.randn(batch, tokens, config.width)
    label = labels(component, positions, seed)
    encoding = make_encoding(config)
    mask = allowed(positions, RADIUS, label)
    expected = attend_packed(attention.qkv(h), 2, encoding.rotation(positions.double()), mask)
    place, label, h, attention = (t if t is None else t.to(DEVICE) for t in (positions, label, h, attention))
    encoding = encoding.to(DEVICE)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=HALF), patch.object(windowed.tiles, "_EACH", each):
        pattern = windowed.prepare(config, place, label, encoding.rotation, "kernel")
        assert isinstance(pattern, windowed.Tiled)
        found = pattern.restore(pattern.attend(attention, pattern.arrange(h).to(HALF)))
    off = (found.float().cpu() - expected).norm() / expected.norm()
    assert found.dtype == HALF and off < (2e-2 if torch.bfloat16 == HALF else 3e-3)


@pytest.mark.kernels
@settings(deadline=None, max_examples=few(100, 10))
@given(
    tokens=st.integers(1, few(300, 40)),
    shape=st.sampled_from([(1, 16), (2, 32), (4, 16), (2, 128)]),
    seed=st.integers(0, 2**16),
)
def test_tiles_turn_their_queries(tokens: int, shape: tuple[int, int], seed: int) -> None:
    """By the phases of each, in every head; keys are as they are given. Everyone sees all, in one run."""
    heads, width = shape
    rng, d = torch.Generator().manual_seed(seed), heads * width
    qkv = torch.randn(tokens, 3 * d, generator=rng).to(HALF)
    place, phase = torch.rand(tokens, 2, generator=rng), torch.rand(tokens, width // 2, generator=rng).double() * 6
    q, k, v = qkv.double().view(tokens, 3, heads, width).permute(1, 2, 0, 3)
    expected = torch.nn.functional.scaled_dot_product_attention(rotate(q, (phase.cos(), phase.sin())), k, v)
    there, runs = qkv.to(DEVICE), torch.tensor([[0, 0, tokens, tokens]], device=DEVICE).expand(tokens, 4)
    tables = phase.cos().float().to(DEVICE), phase.sin().float().to(DEVICE)
    begin, end = runs[:, :3].contiguous(), runs[:, 1:].contiguous()
    given_ = (tables, place.to(DEVICE), None, begin, end, tokens, 1e6, heads)
    found = windowed.tiles.attend_tiles(there[:, :d], there[:, d:], *given_)
    off = (found.double().cpu() - expected.transpose(0, 1).flatten(1)).norm() / expected.norm()
    assert found.dtype == HALF and off < (2e-2 if torch.bfloat16 == HALF else 3e-3)
    assert torch.equal(there.cpu(), qkv)


@pytest.mark.kernels
def test_where_tiles_fail_lists_attend_to_the_same() -> None:
    """In the pass in which they fail."""
    config = PolicyConfig(layers=1, heads=2, head_dim=16, attention_radius=RADIUS)
    torch.manual_seed(0)
    attention, encoding = Attention(config).requires_grad_(False).to(DEVICE), make_encoding(config).to(DEVICE)
    positions = scatter("uniform", 2, 20, 0).to(DEVICE)
    with torch.no_grad(), torch.autocast(DEVICE, dtype=HALF):
        pattern = windowed.prepare(config, positions, None, encoding.rotation, "kernel")
        h = torch.randn(2, 20, config.width, device=DEVICE).to(HALF)
        found = pattern.attend(attention, h)
        with patch.object(windowed, "tried", lambda name, quick, plain: plain()):
            instead = pattern.attend(attention, h)
    assert isinstance(pattern, windowed.Tiled)
    assert (instead.float() - found.float()).norm() < (2e-2 if torch.bfloat16 == HALF else 3e-3) * found.float().norm()


@pytest.mark.kernels
@pytest.mark.parametrize(("encoding", "message"), [("rope-g", None), ("ape-l", 16), ("mlp", None)])
def test_a_team_is_put_in_order_before_it_perceives(encoding: str, message: int | None) -> None:
    """In half precision, by tiles, whether robots perceive or bring their messages: as all pairs do in fp32, and what
    is given stays as it was."""
    config = PolicyConfig(
        layers=2, heads=2, head_dim=32, attention_radius=RADIUS, observation_dim=5, encoding=encoding,
        message_dim=message,
    )  # fmt: skip
    policy = Policy(config, seed=1).to(DEVICE)
    positions = scatter("uniform", 2, few(500, 20), 3)
    features = torch.randn(*positions.shape[:2], 5, generator=torch.Generator().manual_seed(0)).to(DEVICE)
    component = labels("labels", positions, 1)
    assert component is not None
    there, component = positions.to(DEVICE), component.to(DEVICE)
    with torch.no_grad():
        exact = policy(features, there, component, path="dense")
        messages = policy.perceive(features)
        kept = messages.clone(), features.clone(), there.clone()
        with torch.autocast(DEVICE, dtype=HALF):
            pattern = policy.pattern(there, component, "kernel")
            found = policy(features, there, component, path="kernel")
            brought = policy.decide(messages, there, component, path="kernel")
    assert isinstance(pattern, windowed.Tiled) and found.dtype == torch.float32
    for ours in (found, brought):
        assert (ours - exact).norm() < (3e-2 if torch.bfloat16 == HALF else 4e-3) * exact.norm()
    for before, after in zip(kept, (messages, features, there), strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("device", ["cpu", GPU])
@pytest.mark.parametrize("rows", few([4096, 64], [4096]))
@pytest.mark.parametrize("variant", few(["M", "L", "C"], ["M"]))
def test_a_policy_decides_alike_on_every_path(
    device: str, rows: int, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(windowed, "_CPU_ROWS", rows)
    config = PolicyConfig(
        variant=variant, layers=few(3, 2), heads=2, head_dim=16, attention_radius=RADIUS, observation_dim=5
    )
    policy = Policy(config, seed=1).to(device)
    tokens = few(150, 7)
    positions = scatter("uniform", 2, tokens, 3).to(device)
    features = torch.randn(2, tokens, 5, generator=torch.Generator().manual_seed(0)).to(device)
    given: dict[str, Any] = {"component": labels("labels", positions.cpu(), 1)}
    given["component"] = given["component"].to(device)
    if variant == "C":
        given["goals"] = scatter("uniform", 2, tokens, 4).to(device)
    results = {}
    for path in ("dense", "lists", "kernel"):
        with torch.no_grad():
            quiet = policy(features, positions, **given, path=path)
        policy.zero_grad()
        learning = policy(features, positions, **given, path=path)
        learning.square().mean().backward()
        gradients = torch.cat([p.grad.flatten() for p in policy.parameters() if p.grad is not None])
        results[path] = (quiet, learning.detach(), gradients)
    for path in ("lists", "kernel"):
        for ours, dense in zip(results[path], results["dense"], strict=True):
            assert torch.allclose(ours, dense, atol=1e-5), path


@pytest.mark.parametrize("rows", [4096, 64])
@pytest.mark.parametrize("path", ["dense", "kernel"])
def test_half_precision_on_the_cpu(path: str, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowed, "_CPU_ROWS", rows)
    config = PolicyConfig(layers=3, heads=2, head_dim=16, attention_radius=RADIUS, observation_dim=5)
    policy = Policy(config, seed=1)
    positions = scatter("uniform", 2, 150, 3)
    features = torch.randn(2, 150, 5, generator=torch.Generator().manual_seed(0))
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            exact = policy(features, positions, path=path)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                found = policy(features, positions, path=path)
        assert found.dtype == torch.float32 and not torch.equal(found, exact)
        assert torch.linalg.vector_norm(found - exact) < 0.03 * torch.linalg.vector_norm(exact)
    found.square().mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in policy.parameters() if p.grad is not None)


def test_a_wide_team_keeps_its_phases() -> None:
    """Two pairs of robots 100 km apart: each pair decides as if it were alone."""
    policy = Policy(PolicyConfig(layers=2, heads=2, head_dim=16, observation_dim=5), seed=1)
    pair = torch.tensor([[0.0, 0.0], [30.0, 40.0]])
    features = torch.randn(1, 4, 5, generator=torch.Generator().manual_seed(0))
    both = torch.cat((pair, pair + torch.tensor([98_304.0, 65_536.0])))[None]
    with torch.no_grad():
        alone = torch.cat((policy(features[:, :2], both[:, :2]), policy(features[:, 2:], both[:, 2:])), dim=1)
        assert torch.allclose(policy(features, both), alone, atol=1e-5)


def test_what_cannot_be_is_refused() -> None:
    cpu = torch.device("cpu")
    assert choose("auto", 100, RADIUS, cpu, 4, 64) == "dense"
    assert choose("auto", 100_000, RADIUS, cpu, 4, 64) == "kernel"
    assert choose("auto", 100_000, None, cpu, 4, 64) == "dense"
    with pytest.raises(MastError, match="without a window: use dense"):
        choose("lists", 100, None, cpu, 4, 64)
    with pytest.raises(MastError, match="attention path 'flash'"):
        choose("flash", 100, RADIUS, cpu, 4, 64)
    with pytest.raises(MastError, match="'kernel' cannot run on this meta device with heads of 64: use dense or lists"):
        choose("kernel", 100, RADIUS, torch.device("meta"), 4, 64)
    with pytest.raises(MastError, match="positions hold NaN"):
        find_window(torch.tensor([[[0.0, float("nan")]]]), RADIUS, None, "kernel")


CAPPED = """
import resource, torch
from mast_swarm.model import Policy, PolicyConfig, windowed
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation
from mast_swarm.evaluate.actors import make_actor
torch.set_num_threads(1)
policy = Policy(PolicyConfig(layers=1, heads=1, head_dim=8))
def step(agents):
    world = Navigation(NavigationConfig(agents=agents, scenario="clusters-1"))
    actor = make_actor(policy, world)
    state = world.reset([0])
    actor.start([0])
    state = world.step(state, actor.act(state, world.observe(state)))
    assert 0 <= float(world.metrics(state)["success_rate"][0]) <= 1
with torch.inference_mode():
    step(2_000)  # compiles
    used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 700 * 2**20,) * 2)  # a bit for each pair would be 4.9 GB
    step(200_000)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_is_n_by_n() -> None:
    """A whole step of 200,000 robots (neighbours, observation, components, policy, motion, metric) in 700 MB."""
    env = os.environ | {"NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", CAPPED], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_large_team_in_float64_finds_its_window_on_a_gpu() -> None:
    points = torch.rand((1, 5_000, 2), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1000
    here, there = (windowed.find_window(where, 30.0, None, "kernel") for where in (points, points.cuda()))
    assert torch.equal(here.lists.count, there.lists.count.cpu())
    assert here.order is not None and there.order is not None and torch.equal(here.order, there.order.cpu())
