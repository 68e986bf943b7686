"""Policies in the form of the Hugging Face Hub: its own library reads what we write. No network."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("huggingface_hub")

import huggingface_hub
from huggingface_hub import HfApi, ModelCard

from mast_swarm import Policy, PolicyConfig, load_policy, policies
from mast_swarm.errors import MastError
from mast_swarm.evaluate.cards import read_claims
from mast_swarm.interop.hub import from_pretrained, push_to_hub, save_pretrained
from mast_swarm.model.config import LPACConfig
from mast_swarm.model.learned import Learned
from mast_swarm.model.lpac import LPAC

SMALL = PolicyConfig(task="navigation", layers=1, heads=2, head_dim=8)
COMMIT = "0123456789abcdef0123456789abcdef01234567"


def same(one: Learned, other: Learned) -> bool:
    weights = other.state_dict()
    return one.config == other.config and all(
        torch.equal(value, weights[name]) for name, value in one.state_dict().items()
    )


@pytest.mark.parametrize(
    "policy", [Policy(SMALL, seed=4), LPAC(LPACConfig(task="coverage", layers=1, width=8, message_dim=8), seed=4)]
)
def test_a_folder(policy: Learned, tmp_path: Path) -> None:
    folder = save_pretrained(policy, tmp_path / "p", license="apache-2.0", repo_id="me/small")
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "README.md"}
    assert same(policy, from_pretrained(folder))
    card = ModelCard.load(folder / "README.md")
    assert card.data.library_name == "mast-swarm" and card.data.pipeline_tag == "robotics"
    assert card.data.license == "apache-2.0" and policy.config.kind in card.data.tags
    assert 'from_pretrained("me/small")' in card.text and "| layers | 1 |" in card.text
    with pytest.raises(MastError, match="it is not empty"):
        save_pretrained(policy, folder)
    save_pretrained(policy, folder, overwrite=True)


@pytest.mark.parametrize("name", ["navigation/mast-m", "coverage/lpac-k3"])
def test_our_card_becomes_the_model_card(name: str, tmp_path: Path) -> None:
    shipped = policies()[name]
    policy = load_policy(name)
    folder = save_pretrained(policy, tmp_path / "p", card=shipped, repo_id=f"me/{name.partition('/')[2]}")
    card = ModelCard.load(folder / "README.md")
    ours = (shipped / "card.md").read_text(encoding="utf-8")
    assert ours.split("+++\n")[2].strip() in card.text and "+++" not in card.text
    claims, results = read_claims(shipped / "card.md"), card.data.eval_results
    assert [result.metric_value for result in results] == [claim.mean for claim in claims]
    assert {result.metric_type for result in results} == {claim.metric for claim in claims}
    assert results[0].task_name == name.partition("/")[0]
    assert (folder / "card.md").read_text(encoding="utf-8") == ours  # `mast verify FOLDER` reads it
    assert same(policy, from_pretrained(folder)) and same(policy, from_pretrained(name))


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache as the Hub's library keeps it; what is uploaded lies there as if it had been downloaded."""
    cache = tmp_path / "cache"

    def create_repo(self: HfApi, repo_id: str, **options: Any) -> str:
        huggingface_hub.utils.validate_repo_id(repo_id)
        folder = cache / f"models--{repo_id.replace('/', '--')}"
        (folder / "refs").mkdir(parents=True, exist_ok=True)
        (folder / "refs" / "main").write_text(COMMIT)
        return f"https://huggingface.co/{repo_id}"

    def upload_folder(self: HfApi, *, repo_id: str, folder_path: Path, commit_message: str, **options: Any) -> None:
        assert commit_message
        shutil.copytree(folder_path, cache / f"models--{repo_id.replace('/', '--')}" / "snapshots" / COMMIT)

    monkeypatch.setattr(HfApi, "create_repo", create_repo)
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    return cache


def test_up_and_down_again(hub: Path) -> None:
    policy = Policy(SMALL, seed=4)
    assert push_to_hub(policy, "me/small") == "https://huggingface.co/me/small"
    assert same(policy, from_pretrained("me/small", cache_dir=hub, local_files_only=True))
    assert same(policy, from_pretrained("me/small", cache_dir=hub, local_files_only=True, revision=COMMIT))


def test_bad_input_is_one_clear_line(hub: Path, tmp_path: Path) -> None:
    policy = Policy(SMALL, seed=4)
    with pytest.raises(MastError, match="cannot get 'me/other' from the Hub: ") as told:
        from_pretrained("me/other", cache_dir=hub, local_files_only=True)
    assert "\n" not in str(told.value)
    for name in ("me/a/b", "nofolder"):
        with pytest.raises(MastError, match=f"'{name}' is neither a folder nor a shipped policy"):
            from_pretrained(name, cache_dir=hub, local_files_only=True)
    with pytest.raises(MastError, match="cannot upload to 'me/a/b': "):
        push_to_hub(policy, "me/a/b")
    with pytest.raises(MastError, match="cannot read the card"):
        save_pretrained(policy, tmp_path / "p", card=tmp_path / "nothing.md")
    assert not (tmp_path / "p").exists()
    (tmp_path / "card.md").write_text("# no claims\n")
    with pytest.raises(MastError, match="does not begin with its claims"):
        push_to_hub(policy, "me/small", card=tmp_path)


def test_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(__import__("sys").modules, "huggingface_hub", None)
    with pytest.raises(MastError, match=r"pip install 'mast-swarm\[hub\]'"):
        from_pretrained("me/small", cache_dir=tmp_path)
    Policy(SMALL, seed=4).save(tmp_path / "p")
    assert from_pretrained(tmp_path / "p").config == SMALL  # a folder needs nothing
