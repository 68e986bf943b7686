"""Cards: claims can be read, run again, and fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from mast_swarm.cli import main
from mast_swarm.errors import MastError
from mast_swarm.evaluate.cards import Claim, Verdict, read_claims, verify
from mast_swarm.model.policy import ZOO, Policy, zoo_names


def test_every_shipped_policy_loads_and_has_a_card_with_a_short_and_a_full_claim():
    assert "navigation/mast-m" in zoo_names()
    for name in zoo_names():
        Policy.load(name)
        claims = read_claims(ZOO / name / "card.md")
        assert any(claim.short for claim in claims)
        assert any(not claim.short for claim in claims)


def test_the_zoo_keeps_within_its_size():
    sizes = [file.stat().st_size for file in ZOO.rglob("*.safetensors")]
    assert max(sizes) < 12e6
    assert sum(sizes) < 60e6


CARD = """+++
[[claims]]
short = true
metric = "success_rate"
t = 4.0
mean = {mean}
ci95 = 0.1
within = 0.02
settings = {{ agents = 5, scenario = "clusters-1", episodes = 2, steps = 4 }}
+++
# A policy
"""


@pytest.mark.parametrize(("mean", "status"), [(0.0, None), (0.9, 1)])
def test_verify_runs_a_card_again(tmp_path: Path, policy_folder: Path, capsys, mean: float, status: int | None):
    folder = tmp_path / "mine"
    Policy.load(policy_folder).save(folder)
    (folder / "card.md").write_text(CARD.format(mean=mean))
    if status is None:
        main(["verify", str(folder), "--device", "cpu"])
        assert "holds" in capsys.readouterr().out
    else:  # what an untrained policy cannot reach
        with pytest.raises(SystemExit) as stopped:
            main(["verify", str(folder), "--device", "cpu"])
        assert stopped.value.code == status
        assert "FAILS" in capsys.readouterr().out


def test_full_claims_run_only_when_asked(tmp_path: Path, policy_folder: Path):
    folder = tmp_path / "mine"
    Policy.load(policy_folder).save(folder)
    (folder / "card.md").write_text(CARD.format(mean=0.0).replace("short = true", "short = false"))
    assert list(verify([str(folder)])) == []
    assert len(list(verify([str(folder)], full=True, device="cpu"))) == 1


def test_a_verdict_holds_down_to_what_the_card_allows():
    claim = Claim("success_rate", 200.0, 0.9, 0.01, 0.03, {})
    assert Verdict("p", claim, 0.871).holds
    assert not Verdict("p", claim, 0.869).holds


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("# no claims\n", "does not begin with its claims"),
        ("+++\nclaims = 3 = 4\n+++\n", "cannot be read"),
        ("+++\n[[claims]]\nmetric = 'x'\n+++\n", "cannot be read"),
        ("+++\nx = 1\n+++\n", "cannot be read"),
    ],
)
def test_a_card_without_claims_says_so(tmp_path, text, said):
    (tmp_path / "card.md").write_text(text)
    with pytest.raises(MastError, match=said):
        read_claims(tmp_path / "card.md")


def test_unknown_policy(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["verify", "navigation/mast-n"])
    assert stopped.value.code == 2
    assert "did you mean navigation/mast-m" in capsys.readouterr().err
