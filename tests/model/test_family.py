"""A family of policies computes what each of its members computes alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from mast_swarm.errors import MastError
from mast_swarm.model import Policy, PolicyConfig
from mast_swarm.model.family import Family, related

SMALL = PolicyConfig(layers=2, heads=2, head_dim=16)
ROBOTS = 12


def config(variant: str, encoding: str, radius: float | None, wavelength: float = 1000.0) -> PolicyConfig:
    return replace(SMALL, variant=variant, encoding=encoding, attention_radius=radius, wavelength=wavelength)


MIXED = [
    config("M", "rope-g", 250.0),
    config("L", "rope-l", 500.0),
    config("M", "ape-g", None),
    config("L", "ape-l", 250.0, 500.0),
    config("M", "mlp", 1000.0),
    config("M", "mlp", None, 700.0),
]
SEEING = [config("C", encoding, radius) for encoding in ("rope-g", "ape-l", "mlp") for radius in (250.0, None)]


def given(count: int, goals: bool, seed: int = 0) -> dict[str, torch.Tensor]:
    """Of `count` environments."""
    chance = torch.Generator().manual_seed(seed)
    found = {
        "features": torch.randn(count, ROBOTS, SMALL.observation_shape[0], generator=chance),
        "positions": 900 * torch.rand(count, ROBOTS, 2, generator=chance),
        "component": torch.randint(3, (count, ROBOTS), generator=chance),
    }
    if goals:
        found["goals"] = 900 * torch.rand(count, 7, 2, generator=chance)
    return found


def of_member(found: dict[str, torch.Tensor], number: int, members: int) -> dict[str, torch.Tensor]:
    each = len(found["features"]) // members
    return {name: value[number * each : (number + 1) * each] for name, value in found.items()}


def masked(family: Family, found: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As `Family.inputs` gives components: one for members without the mask."""
    labels = found["component"].unflatten(0, (len(family.configs), -1))
    keep = torch.tensor([one.component_mask for one in family.configs])[:, None, None]
    return found | {"component": torch.where(keep, labels, 0).flatten(0, 1)}


@pytest.mark.parametrize("configs", [MIXED, SEEING, MIXED[:2], MIXED[2:4], MIXED[4:]])
def test_members_predict_and_learn_as_they_do_alone(configs: list[PolicyConfig]) -> None:
    family, goals = Family(configs, seed=3), configs[0].variant == "C"
    found = given(2 * len(configs), goals)
    together = family(**masked(family, found))
    together.square().sum().backward()
    gradients = {name: value.grad for name, value in family.named_parameters()}
    for number, one in enumerate(configs):
        alone = Policy(one, seed=3)
        expected = alone(**of_member(found, number, len(configs)))
        torch.testing.assert_close(together[2 * number : 2 * number + 2], expected, rtol=1e-4, atol=1e-6)
        expected.square().sum().backward()
        for name, parameter in alone.named_parameters():
            ours = gradients[name]
            assert ours is not None and parameter.grad is not None
            scale = float(parameter.grad.abs().max()) + 1e-6
            torch.testing.assert_close(ours[number], parameter.grad, rtol=1e-3, atol=1e-4 * scale, msg=name)
        member = family.member(number)
        assert member.config == one
        torch.testing.assert_close(member.state_dict(), alone.state_dict(), rtol=0, atol=0)


def test_policies_of_other_sizes_are_no_family() -> None:
    assert related(MIXED) and related(SEEING) and not related([*MIXED, *SEEING])
    assert not related([MIXED[0], replace(MIXED[0], layers=3)])
    assert not related([replace(MIXED[0], perception="cnn", observation_dim=(4, 32, 32))] * 2)
    with pytest.raises(MastError, match="may differ in variant, encoding"):
        Family([MIXED[0], replace(MIXED[0], layers=3)])


def test_labels_of_components_are_those_of_members_that_have_the_mask() -> None:
    from mast_swarm.tasks.navigation.config import NavigationConfig
    from mast_swarm.tasks.navigation.world import Navigation

    world = Navigation(NavigationConfig(agents=ROBOTS))
    observation = world.observe(world.reset([1, 2, 1, 2]))
    family = Family(MIXED[:2])
    labels = family.inputs(observation)["component"]
    expected = Policy(MIXED[0]).inputs(observation)["component"]
    assert torch.equal(labels[:2], expected[:2]) and not labels[2:].any() and expected[2:].any()
    with pytest.raises(MastError, match="needs the components"):
        family(observation.features, observation.positions)
    with pytest.raises(MastError, match="member by member"):
        family.save("anywhere")
    directed = Navigation(NavigationConfig(agents=ROBOTS, directed=True))
    observation = directed.observe(directed.reset([1, 2, 1, 2]))
    matrix, expected = (one.inputs(observation)["component"] for one in (family, Policy(MIXED[0])))
    assert torch.equal(matrix[:2], expected[:2]) and matrix[2:].all() and not expected[2:].all()
