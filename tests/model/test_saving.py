"""Policy folders: what is saved comes back bit for bit, and a broken folder says what is wrong with it."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from mast_swarm import zoo
from mast_swarm.errors import MastError
from mast_swarm.interop.hub import from_pretrained
from mast_swarm.interop.onnx import policy_folder
from mast_swarm.model import LPAC, LPACConfig, Policy, PolicyConfig, learned, load_learned, policy
from mast_swarm.model.config import ModelConfig
from mast_swarm.tasks.coverage.recipes import MAST as COVERAGE
from mast_swarm.train import checkpoint
from shared import use_zoo

SMALL = PolicyConfig(layers=1, heads=2, head_dim=8, message_dim=4, encoding="mlp", attention_radius=None)


@pytest.mark.parametrize("config", [SMALL, PolicyConfig(variant="C", layers=1, heads=1, head_dim=8)])
def test_a_saved_policy_comes_back_bit_for_bit(tmp_path: Path, config: PolicyConfig) -> None:
    made = Policy(config, seed=5)
    made.save(tmp_path / "a" / "b")
    loaded = Policy.load(tmp_path / "a" / "b")
    assert loaded.config == config
    assert made.state_dict().keys() == loaded.state_dict().keys()
    assert all(torch.equal(x, y) for x, y in zip(made.parameters(), loaded.parameters(), strict=True))
    features, positions = torch.randn(1, 6, 14), torch.randn(1, 6, 2)
    assert torch.equal(made(features, positions, goals=positions), loaded(features, positions, goals=positions))
    assert sorted(f.name for f in (tmp_path / "a" / "b").iterdir()) == ["config.json", "model.safetensors"]
    assert [f.name for f in (tmp_path / "a").iterdir()] == ["b"]  # nothing temporary is left beside it


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(COVERAGE, layers=1, heads=1, head_dim=8, observation_dim=(2, 8, 8)),
        LPACConfig(width=8, layers=2, observation_dim=(2, 8, 8), action_scale=0.5),
        LPACConfig(width=8, layers=2, observation_dim=3, perception="mlp"),
        SMALL,
    ],
)
def test_a_folder_gives_back_the_kind_of_policy_that_was_saved(
    tmp_path: Path, config: PolicyConfig | LPACConfig
) -> None:
    made = policy.make(config, seed=5).train()
    made.perceive(torch.randn(4, 3, *config.observation_shape))  # statistics that training has moved
    made.eval().save(tmp_path / "p")
    loaded = load_learned(tmp_path / "p")
    assert type(loaded) is type(made) and loaded.config == config and not loaded.training
    ours, theirs = made.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert isinstance(loaded, Policy | LPAC)


def test_a_policy_of_another_kind_is_refused_by_the_class(tmp_path: Path) -> None:
    LPAC(LPACConfig(width=8, observation_dim=3, perception="mlp")).save(tmp_path / "p")
    with pytest.raises(MastError, match="is a policy of kind lpac: expected mast"):
        Policy.load(tmp_path / "p")
    with pytest.raises(MastError, match="kind is 'lpac': expected 'mast'"):
        PolicyConfig.from_dict({"kind": "lpac"})


def test_a_config_without_a_kind_is_a_mast_policy(tmp_path: Path) -> None:
    Policy(SMALL).save(tmp_path / "p")
    file = tmp_path / "p" / "config.json"
    fields = json.loads(file.read_text())
    assert fields.pop("kind") == "mast"
    file.write_text(json.dumps(fields))
    assert isinstance(load_learned(tmp_path / "p"), Policy)
    assert isinstance(load_learned("navigation/mast-m"), Policy)


def test_the_config_on_disk_is_plain_json(tmp_path: Path) -> None:
    Policy(SMALL).save(tmp_path / "p")

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    fields = json.loads((tmp_path / "p" / "config.json").read_text(), parse_constant=refuse)
    assert fields["attention_radius"] is None
    assert PolicyConfig.from_dict(fields) == SMALL


def test_a_used_folder_is_refused_and_left_alone(tmp_path: Path) -> None:
    Policy(SMALL, seed=1).save(tmp_path / "p")
    before = (tmp_path / "p" / "model.safetensors").read_bytes()
    with pytest.raises(MastError, match="not empty"):
        Policy(SMALL, seed=2).save(tmp_path / "p")
    assert (tmp_path / "p" / "model.safetensors").read_bytes() == before
    Policy(SMALL, seed=2).save(tmp_path / "p", overwrite=True)
    assert (tmp_path / "p" / "model.safetensors").read_bytes() != before
    assert [f.name for f in tmp_path.iterdir()] == ["p"]


def test_a_training_run_is_no_policy_and_says_where_its_policies_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"world": {}, "policy": {}}')
    for name in ("best", "last"):
        Policy(SMALL).save(tmp_path / name)
    for load in (Policy.load, from_pretrained, policy_folder):
        with pytest.raises(MastError, match=r"is a training run: give .*best or .*last"):
            load(tmp_path)
    assert Policy.load(tmp_path / "best").config == SMALL


def test_an_empty_folder_is_filled_and_a_file_is_not(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    Policy(SMALL).save(tmp_path / "empty")
    assert Policy.load(tmp_path / "empty").config == SMALL
    (tmp_path / "file").write_text("x")
    with pytest.raises(MastError, match="it is a file"):
        Policy(SMALL).save(tmp_path / "file")
    with pytest.raises(MastError, match="is a file"):
        Policy.load(tmp_path / "file")
    with pytest.raises(MastError, match="cannot save"):
        Policy(SMALL).save(tmp_path / "file" / "below")


def test_a_failed_save_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(learned, "save_file", fail)
    with pytest.raises(MastError, match="No space left"):
        Policy(SMALL).save(tmp_path / "p")
    assert list(tmp_path.iterdir()) == []


def edit_config(**fields: object) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), **fields}))

    return edit


def edit_weights(change: Callable[[dict[str, torch.Tensor]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return edit


def truncate(keep: int) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        file = folder / "model.safetensors"
        file.write_bytes(file.read_bytes()[:keep])

    return edit


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda f: (f / "config.json").unlink(), r"config\.json.*No such file"),
        (lambda f: (f / "config.json").write_text("{"), r"config\.json' is not JSON"),
        (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), r"config\.json' is not JSON"),
        (lambda f: (f / "config.json").write_text("[]"), r"config\.json' holds a JSON list"),
        (edit_config(lyaers=3), r"config\.json': unknown config key 'lyaers': did you mean layers"),
        (edit_config(layers="two"), r"config\.json': layers is 'two'"),
        (edit_config(kind="lpack"), r"config\.json': unknown kind of policy 'lpack': did you mean lpac"),
        (edit_config(kind=["lpac"]), r"config\.json': unknown kind of policy"),
        (edit_config(kind="lpac"), r"config\.json': unknown config key 'variant'"),
        (edit_config(observation_dim=[4, 32]), r"config\.json': observation_dim is \(4, 32\)"),
        (edit_config(perception="cnn9"), r"unknown perception 'cnn9'"),
        (edit_config(layers=2), r"model\.safetensors' lacks tensor 'mast\.blocks\.1\."),
        (edit_config(message_dim=5), r"tensor '\S+' has shape \[4, 32\], config\.json asks for \[5, 32\]"),
        (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors.*[Nn]o such file"),
        (truncate(0), r"model\.safetensors' is truncated"),
        (truncate(100), r"model\.safetensors' is truncated"),
        (truncate(-4), r"model\.safetensors' is truncated"),
        (edit_weights(lambda w: w.pop("lift.bias")), r"model\.safetensors' lacks tensor 'lift\.bias'"),
        (edit_weights(lambda w: w.update(extra=torch.zeros(1))), r"holds tensor 'extra'"),
        (edit_weights(lambda w: w["lift.bias"].fill_(float("nan"))), r"'lift\.bias' holds NaN"),
        (edit_weights(lambda w: w.update({"lift.bias": w["lift.bias"].half()})), r"is torch\.float16"),
    ],
)
def test_a_broken_folder_says_what_is_wrong(tmp_path: Path, spoil: Callable[[Path], object], message: str) -> None:
    Policy(SMALL).save(tmp_path / "p")
    spoil(tmp_path / "p")
    with pytest.raises(MastError, match=message) as caught:
        Policy.load(tmp_path / "p")
    assert "\n" not in str(caught.value)


def test_zoo_names_are_the_folders_that_hold_a_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_zoo(monkeypatch, tmp_path)
    with pytest.raises(MastError, match="unknown policy 'navigation/mast-m': none is known"):
        Policy.load("navigation/mast-m")
    Policy(SMALL).save(tmp_path / "navigation" / "mast-m")
    Policy(SMALL).save(tmp_path / "navigation" / "mast-l")
    (tmp_path / "navigation" / "notes").mkdir()
    use_zoo(monkeypatch, tmp_path)
    assert list(zoo.policies()) == ["navigation/mast-l", "navigation/mast-m"]
    assert Policy.load("navigation/mast-m").config == SMALL
    with pytest.raises(MastError, match="unknown policy 'navigation/mast-n': did you mean navigation/mast-"):
        Policy.load("navigation/mast-n")


def test_reading_a_config_loads_no_torch() -> None:
    code = "import sys, mast_swarm.model, mast_swarm.comms.config; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("config", [COVERAGE, LPACConfig()], ids=lambda config: config.kind)
def test_half_the_space_is_enough_and_gives_single_precision_again(tmp_path: Path, config: ModelConfig) -> None:
    whole = policy.make(config, seed=1)
    with torch.no_grad():
        whole.perception.convolutions[1].running_mean.normal_()  # type: ignore[index, union-attr]
    whole.save(tmp_path / "whole")
    whole.save(tmp_path / "half", half=True)
    whole.save(tmp_path / "half", half=True, overwrite=True)
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "half")]
    assert sizes[1] < 12e6 and sizes[1] == pytest.approx(sizes[0] / 2, rel=0.01)
    half = policy.load_learned(tmp_path / "half")
    assert half.config == config and half.dtype == torch.float32
    ours, theirs = half.state_dict(), whole.state_dict()
    parameters = dict(whole.named_parameters())
    for name, value in ours.items():
        assert value.dtype == theirs[name].dtype
        torch.testing.assert_close(value, theirs[name], rtol=2**-8 if name in parameters else 0, atol=0)
    assert any(not torch.equal(ours[name], theirs[name]) for name in parameters)


def test_others_may_read_what_is_saved(tmp_path: Path) -> None:
    Policy(PolicyConfig(layers=1, heads=1, head_dim=4)).save(tmp_path / "policy")
    checkpoint.write(tmp_path, {"weights": torch.ones(2)}, {})
    (tmp_path / "usual").touch()
    rights = {path.stat().st_mode for path in tmp_path.rglob("*") if path.is_file()}
    assert rights == {(tmp_path / "usual").stat().st_mode}


def test_weights_that_may_not_be_read_are_not_called_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Policy(PolicyConfig(layers=1, heads=1, head_dim=4)).save(tmp_path / "policy")

    def refuse(file: Path) -> None:
        raise OSError  # as safetensors does, without a reason

    monkeypatch.setattr("mast_swarm.model.policy.load_file", refuse)
    with pytest.raises(MastError, match=r"model\.safetensors': permission denied"):
        Policy.load(tmp_path / "policy")
