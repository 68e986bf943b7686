"""Cards: claims can be read, run again, and fail."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mast_swarm import CoverageConfig, zoo
from mast_swarm.cli import main
from mast_swarm.errors import MastError
from mast_swarm.evaluate.cards import Claim, Verdict, read_claims, verify
from mast_swarm.model.policy import Policy, load_learned
from shared import use_zoo


def test_every_shipped_policy_loads_and_has_a_card_with_a_short_and_a_full_claim():
    assert "navigation/mast-m" in zoo.policies()
    for name in zoo.policies():
        load_learned(name)
        claims = read_claims(zoo.policies()[name] / "card.md")
        assert any(claim.short for claim in claims)
        assert any(not claim.short for claim in claims)


def test_cards_for_navigation_show_fair_rivals_distance_and_collisions():
    rivals = {"dhba-8", "dhba-8-explore", "dhba-8-relay", "dhba-8-relay-explore", "explorer"}
    for name in (name for name in zoo.policies() if name.startswith("navigation/")):
        text = (zoo.policies()[name] / "card.md").read_text(encoding="utf-8")
        head, _, rows = text.partition("| way per robot | pairs that touch at 800 s |\n")
        assert "| delay of news |" in head.rpartition("\n")[2], name
        table = rows.partition("<!-- end -->")[0]
        also = {"searcher-250-relay-map", "dhba-8-relay-map"} if name.endswith("sharp") else set()
        assert all(f"| `{rival}` |" in table for rival in rivals | also), name


def test_the_zoo_keeps_within_its_size():
    sizes = [file.stat().st_size for file in Path(zoo.__file__).parent.rglob("*.safetensors")]
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
        said = capsys.readouterr().out
        assert said.startswith("holds: ") and "the card says 0.000 and allows no less than -0.020" in said
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
    cost = Claim("cost_time_average", 120.0, 0.38, 0.01, 0.03, {})
    assert Verdict("p", cost, 0.409, lower_is_better=True).holds
    assert not Verdict("p", cost, 0.411, lower_is_better=True).holds
    assert Verdict("p", cost, 0.2, lower_is_better=True).holds  # better than said is no fault


COST_CARD = """+++
[[claims]]
short = true
metric = "cost_time_average"
t = 0.6
mean = {mean}
ci95 = 0.1
within = 0.02
settings = {{ agents = 4, features = 3, side = 256, sigma = [20, 30], episodes = 2, steps = 3, delay = 0.2 }}
+++
# A policy for coverage
"""


@pytest.mark.parametrize("name", ["mast-m", "lpac-k3"])
def test_a_cost_holds_up_to_what_the_card_allows(tmp_path: Path, coverage_zoo: Path, capsys, monkeypatch, name: str):
    """Three control periods hardly change the cost, so that it is about 1: no worse than 1, far worse than 0.5."""
    shutil.copytree(coverage_zoo, tmp_path / "zoo")
    use_zoo(monkeypatch, tmp_path / "zoo")
    use_zoo(monkeypatch, tmp_path / "zoo")
    for mean, word in ((1.0, "holds"), (0.5, "FAILS")):
        (tmp_path / "zoo" / "coverage" / name / "card.md").write_text(COST_CARD.format(mean=mean))
        if word == "holds":
            main(["verify", f"coverage/{name}", "--device", "cpu"])
        else:
            with pytest.raises(SystemExit) as stopped:
                main(["verify", f"coverage/{name}", "--device", "cpu"])
            assert stopped.value.code == 1
        said = capsys.readouterr().out.splitlines()[0]
        assert said.startswith(f"{word}: coverage/{name} cost_time_average at t = 0.6 s: measured ")
        assert said.endswith(f"the card says {mean:.3f} and allows no more than {mean + 0.02:.3f}")


def test_a_claim_sets_the_evaluation_of_its_task():
    settings = {"density": "points:a.csv", "window": [1.0, 2.0], "episodes": 7}
    config = Claim("cost", 1.0, 0.5, 0.1, 0.1, settings).config("coverage", "p", Path("o"), "cpu")
    assert config.world == CoverageConfig(density="points:a.csv", window=(1.0, 2.0))
    assert (config.policy, config.episodes, config.steps) == (("p",), 7, 600)  # the task's own steps
    with pytest.raises(MastError, match="unknown setting 'densty': did you mean density"):
        Claim("cost", 1.0, 0.5, 0.1, 0.1, {"densty": "x"}).config("coverage", "p", Path("o"), "cpu")


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
