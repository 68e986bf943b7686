"""What a policy promises: the symmetries, the masks and the limits of influence of SPEC 2."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from mast_swarm.errors import MastError
from mast_swarm.model import LPAC, Learned, Policy, PolicyConfig
from mast_swarm.model.attention import allowed, attend
from mast_swarm.model.config import ENCODINGS
from mast_swarm.space import Graph
from mast_swarm.tasks.coverage.recipes import MAST as COVERAGE

quick = settings(deadline=None, max_examples=15)
seeds = st.integers(0, 2**31)
encodings = st.sampled_from(ENCODINGS)


def make(**fields: Any) -> Policy:
    """A small policy whose robots influence each other strongly, in fp64 so that only real effects show."""
    policy = Policy(PolicyConfig(**{"layers": 2, "heads": 2, "head_dim": 16, **fields}), seed=3).double().eval()
    with torch.no_grad():
        for block in policy.mast.blocks:
            block.attention.qkv.weight.mul_(2.0)
    return policy.requires_grad_(False)


def team(seed: int, batch: int, robots: int, width: float = 600.0) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    features = torch.randn(batch, robots, 14, generator=rng, dtype=torch.float64)
    # Multiples of 1/64 m are exact in fp32 even 100 km away.
    positions = ((torch.rand(batch, robots, 2, generator=rng) - 0.5) * width * 64).round() / 64
    return features, positions.double()


def same(a: Tensor, b: Tensor, tolerance: float = 1e-9) -> bool:
    return torch.allclose(a, b, rtol=0, atol=tolerance)


def test_the_navigation_policy_has_2_38_million_parameters() -> None:
    assert sum(p.numel() for p in Policy().parameters()) == 2_380_546


@quick
@given(seeds, st.sampled_from(["rope-g", "rope-l", "none"]), st.sampled_from([0.0, 100.0, 100_000.0]))
def test_shifting_everyone_changes_nothing(seed: int, encoding: str, distance: float) -> None:
    policy = make(encoding=encoding)
    features, positions = team(seed, 2, 9)
    shifted = positions + torch.tensor([distance, -distance / 2])
    assert same(policy(features, positions), policy(features, shifted))


def test_shifting_by_100_km_changes_nothing_in_fp32() -> None:
    policy = make().float()
    features, positions = team(0, 1, 50)
    features, positions = features.float(), positions.float()
    assert same(policy(features, positions), policy(features, positions + 100_000.0), 1e-4)


@pytest.mark.parametrize("encoding", ["ape-g", "ape-l", "mlp"])
def test_absolute_encodings_know_where_they_are(encoding: str) -> None:
    policy = make(encoding=encoding)
    features, positions = team(1, 1, 5)
    assert not same(policy(features, positions), policy(features, positions + 120.0), 1e-4)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("axis", [0, 1])
def test_each_encoding_tells_positions_apart_on_both_axes(encoding: str, axis: int) -> None:
    policy = make(encoding=encoding, attention_radius=None)
    features, positions = team(2, 1, 5)
    moved = positions.clone()
    moved[:, 0, axis] += 37.0
    change = (policy(features, positions) - policy(features, moved)).abs().max()
    assert (change < 1e-12) if encoding == "none" else (change > 1e-4)


@quick
@given(seeds, encodings, st.integers(1, 12))
def test_permuting_robots_permutes_commands(seed: int, encoding: str, robots: int) -> None:
    policy = make(encoding=encoding)
    features, positions = team(seed, 1, robots)
    component = torch.randint(0, 2, (1, robots), generator=torch.Generator().manual_seed(seed))
    order = torch.randperm(robots, generator=torch.Generator().manual_seed(seed))
    straight = policy(features, positions, component)
    permuted = policy(features[:, order], positions[:, order], component[:, order])
    assert same(straight[:, order], permuted, 1e-6)  # the fp32 origin of the phases is summed in another order


@pytest.mark.parametrize("robots", [1, 2, 7, 40])
def test_any_number_of_robots(robots: int) -> None:
    command = make()(*team(4, 3, robots))
    assert command.shape == (3, robots, 2)
    assert torch.isfinite(command).all()


def test_influence_reaches_along_the_window_chain_and_no_farther() -> None:
    policy = make(layers=2, attention_radius=100.0)
    features, _ = team(5, 1, 4)
    positions = torch.tensor([[[0.0, 0.0], [90.0, 0.0], [180.0, 0.0], [270.0, 0.0]]], dtype=torch.float64)
    changed = features.clone()
    changed[:, 3] += 1.0
    difference = (policy(features, positions) - policy(changed, positions)).abs().amax(-1)[0]
    assert difference[0] == 0  # three windows away, two layers
    assert (difference[1:] > 1e-6).all()


def test_the_window_is_open_and_counts_in_metres() -> None:
    positions = torch.tensor([[[0.0, 0.0], [3.0, 4.0]]])
    at, above = allowed(positions, 5.0, None), allowed(positions, 5.001, None)
    assert at is not None and above is not None
    assert not at[0, 0, 1] and at[0, 0, 0] and above[0, 0, 1]


@quick
@given(seeds, st.integers(2, 10))
def test_other_components_have_no_influence(seed: int, robots: int) -> None:
    features, positions = team(seed, 1, robots)
    component = torch.randint(0, 3, (1, robots), generator=torch.Generator().manual_seed(seed))
    component[0, 0], component[0, 1] = 0, 1
    changed = features.clone()
    changed[component == 1] += 1.0
    policy = make()
    difference = (policy(features, positions, component) - policy(changed, positions, component)).abs()
    assert (difference[component != 1] == 0).all()
    assert difference[component == 1].max() > 1e-6
    # Variant L reads no components: the same weights now let the others through.
    window_only = make(variant="L", attention_radius=None)
    window_only.load_state_dict(policy.state_dict())
    difference = (window_only(features, positions, component) - window_only(changed, positions, component)).abs()
    assert difference[component != 1].max() > 1e-9


def test_labels_and_matrix_mean_the_same() -> None:
    features, positions = team(6, 2, 8)
    labels = torch.tensor([[0, 0, 2, 2, 2, 5, 5, 5], [0] * 8])
    matrix = labels[:, :, None] == labels[:, None, :]
    policy = make()
    assert torch.equal(policy(features, positions, labels), policy(features, positions, matrix))


def test_a_directed_mask_lets_information_through_one_way() -> None:
    policy = make(attention_radius=None)
    features, positions = team(7, 1, 2)
    hears = torch.tensor([[[False, True], [False, False]]])  # 0 hears 1; everyone sees itself without being told
    before = policy(features, positions, hears)
    for changed, unmoved in ((0, 1), (1, None)):
        other = features.clone()
        other[:, changed] += 1.0
        difference = (policy(other, positions, hears) - before).abs().amax(-1)[0]
        moved = [i for i in range(2) if i != unmoved and (changed == i or unmoved is None)]
        assert all(difference[i] > 1e-6 for i in moved)
        if unmoved is not None:
            assert difference[unmoved] == 0


@pytest.mark.parametrize("variant", ["M", "L", "C"])
def test_a_policy_takes_of_an_observation_what_it_may_see(variant: str) -> None:
    policy = make(variant=variant)
    features, positions = team(16, 1, 4)
    graph = Graph(torch.tensor([1, 2]), torch.tensor([0, 3]), 1, 4)  # 0 hears 1, 3 hears 2
    seen = SimpleNamespace(features=features, positions=positions, graph=graph, goals=positions)
    inputs = policy.inputs(seen)
    extra = {"M": {"component"}, "L": set(), "C": {"goals"}}[variant]
    assert inputs.keys() == {"features", "positions"} | extra
    assert policy(**inputs).shape == (1, 4, policy.outputs)
    if variant == "M":
        assert inputs["component"].tolist() == [[0, 0, 2, 2]]
        seen.graph = replace(graph, directed=True)
        assert policy.inputs(seen)["component"][0].int().tolist() == [
            [1, 1, 0, 0],
            [0, 1, 0, 0],
            [0, 0, 1, 0],
            [0, 0, 1, 1],
        ]


def test_environments_of_a_batch_do_not_mix() -> None:
    policy = make()
    features, positions = team(8, 3, 6)
    together = policy(features, positions)
    for b in range(3):
        assert same(together[b : b + 1], policy(features[b : b + 1], positions[b : b + 1]), 1e-12)


@quick
@given(seeds, encodings, st.integers(0, 6))
def test_clairvoyant_goals_are_a_set(seed: int, encoding: str, count: int) -> None:
    policy = make(variant="C", encoding=encoding)
    features, positions = team(seed, 1, 5)
    _, goals = team(seed + 1, 1, count)
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    command = policy(features, positions, goals=goals)
    assert command.shape == (1, 5, 2)
    assert same(command, policy(features, positions, goals=goals[:, order]), 1e-6)


def test_clairvoyant_goals_matter_and_are_asked_for() -> None:
    policy = make(variant="C")
    features, positions = team(9, 1, 5)
    _, goals = team(10, 1, 5)
    assert not same(policy(features, positions, goals=goals), policy(features, positions, goals=goals / 2), 1e-5)
    with pytest.raises(MastError, match="needs the goals"):
        policy(features, positions)


@pytest.mark.parametrize("variant", ["M", "L", "C"])
@pytest.mark.parametrize("encoding", ["rope-g", "mlp"])
@pytest.mark.parametrize("message_dim", [None, 8])
def test_gradients_reach_every_parameter(variant: str, encoding: str, message_dim: int | None) -> None:
    policy = make(variant=variant, encoding=encoding, message_dim=message_dim).requires_grad_(True)
    features, positions = team(11, 2, 6)
    policy(features, positions, goals=positions if variant == "C" else None).square().sum().backward()
    idle = [name for name, p in policy.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not idle


def test_a_short_message_is_lifted_at_the_receiver() -> None:
    policy = make(message_dim=8)
    features, positions = team(12, 1, 4)
    message = policy.perceive(features)
    assert message.shape == (1, 4, 8)
    assert torch.equal(policy.decide(message, positions), policy(features, positions))


def test_masked_attention_is_a_softmax_over_the_allowed_keys() -> None:
    rng = torch.Generator().manual_seed(13)
    q, k, v = torch.randn(3, 2, 2, 5, 8, generator=rng, dtype=torch.float64)
    mask = (torch.rand(2, 5, 5, generator=rng) < 0.5) | torch.eye(5, dtype=torch.bool)
    y = attend(q, k, v, mask)
    for b in range(2):
        for h in range(2):
            for i in range(5):
                keys = mask[b, i].nonzero()[:, 0]
                weights = torch.softmax(k[b, h, keys] @ q[b, h, i] / 8**0.5, dim=0)
                assert same(y[b, h, i], weights @ v[b, h, keys], 1e-12)


def test_bf16_autocast_keeps_positions_and_messages_in_fp32() -> None:
    policy = make().float()
    features, positions = team(14, 1, 20)
    features, positions = features.float(), positions.float()
    exact = policy(features, positions)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        message, rough = policy.perceive(features), policy(features, positions)
        far = policy(features, positions + 100_000.0)
    assert message.dtype == rough.dtype == torch.float32
    assert same(exact, rough, 0.05) and not torch.equal(exact, rough)
    assert same(rough, far, 0.02)


def test_initial_weights_come_from_the_seed_and_leave_the_global_state_alone() -> None:
    config = PolicyConfig(layers=1, heads=1, head_dim=8)
    before = torch.get_rng_state()
    a, b, c = Policy(config, seed=1), Policy(config, seed=1), Policy(config, seed=2)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.mast.blocks[0].attention.qkv.weight, c.mast.blocks[0].attention.qkv.weight)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: Policy(seed=3), "df4dbc51937171ef"),
        (lambda: Policy(COVERAGE, seed=2**63 + 5), "a0d2806f839390a3"),
        (lambda: LPAC(seed=3), "ed82099d56480a92"),
    ],
)
def test_initial_weights_are_those_they_have_always_been(made: Callable[[], Learned], expected: str) -> None:
    digest = hashlib.sha256()
    for name, tensor in made().state_dict().items():
        digest.update(name.encode() + tensor.numpy().tobytes())
    assert digest.hexdigest()[:16] == expected


def test_making_a_policy_leaves_the_generators_of_gpus_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    touched: list[str] = []
    for name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "set_rng_state", "_lazy_call"):
        monkeypatch.setattr(torch.cuda, name, lambda *args, name=name, **kwargs: touched.append(name))
    Policy(PolicyConfig(layers=1, heads=1, head_dim=8)), LPAC(), Policy.load("navigation/mast-m")
    assert not touched
    torch.manual_seed(0)
    assert touched  # what would be seen


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positions": torch.zeros(4, 2)}, r"positions have shape \(4, 2\)"),
        ({"positions": torch.zeros(1, 4, 3)}, r"positions have shape \(1, 4, 3\)"),
        ({"positions": torch.full((1, 4, 2), float("nan"))}, "positions hold NaN"),
        ({"positions": torch.zeros(1, 5, 2)}, r"messages have shape .*expected \(1, 5, 32\)"),
        ({"features": torch.zeros(1, 4, 13)}, r"features have shape .*\[B, N, 14\]"),
        ({"features": torch.full((1, 4, 14), float("inf"))}, "messages hold NaN or infinity"),
        ({"component": torch.zeros(1, 5, dtype=torch.long)}, "component labels have shape"),
        ({"component": torch.ones(1, 4, 3, dtype=torch.bool)}, "component matrix"),
    ],
)
def test_wrong_input_is_named(change: dict[str, Tensor], message: str) -> None:
    given = {"features": torch.zeros(1, 4, 14), "positions": torch.zeros(1, 4, 2), **change}
    with pytest.raises(MastError, match=message):
        make().float()(**given)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"head_dim": 6}, "multiple of 4"),
        ({"variant": "m"}, "unknown variant 'm'"),
        ({"encoding": "rope"}, "did you mean rope-"),
        ({"layers": 0}, "layers is 0"),
        ({"heads": 2.0}, "heads is 2.0"),
        ({"message_dim": 0}, "message_dim is 0"),
        ({"attention_radius": 0}, "attention_radius is 0"),
        ({"attention_radius": float("inf")}, "None for no window"),
        ({"wavelength": float("nan")}, "wavelength is nan"),
        ({"perception": "mpl"}, "unknown perception 'mpl': did you mean mlp"),
    ],
)
def test_wrong_configs_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(MastError, match=message):
        Policy(PolicyConfig(**fields))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("variant", ["M", "L", "C"])
def test_a_gpu_gives_the_same_commands_and_is_never_waited_for(variant: str) -> None:
    policy = make(variant=variant)
    features, positions = team(15, 2, 20)
    component = torch.randint(0, 3, (2, 20), generator=torch.Generator().manual_seed(0))
    expected = policy(features, positions, component, positions)
    policy = policy.cuda()
    given = [x.cuda() for x in (features, positions, component, positions)]
    torch.cuda.set_sync_debug_mode("error")
    try:
        command = policy(*given)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert same(command.cpu(), expected)
