"""Policies that are trained together become what they become alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mast_swarm.errors import MastError
from mast_swarm.model.policy import load_learned
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.family import FamilyTrainer, rows_of, trainable_together
from mast_swarm.train.trainer import RunOptions, Stopped, Trainer
from shared import recipe

CPU = torch.device("cpu")
PAPER = recipe("paper")
SMALL = replace(
    PAPER,
    world=NavigationConfig(agents=8),
    policy=replace(PAPER.policy, layers=1, heads=2, head_dim=16),
    environments=6,
    steps=6,
    epochs=2,
    batch=8,
    replay=60,
    validation=4,
    validation_steps=5,
)
KINDS = (("M", "rope-g", 250.0), ("L", "ape-l", None), ("M", "mlp", 500.0))


def member(variant: str, encoding: str, radius: float | None, **changes: object) -> TrainConfig:
    policy = replace(SMALL.policy, variant=variant, encoding=encoding, attention_radius=radius)
    return replace(SMALL, policy=policy, **changes)


def alone(config: TrainConfig, out: Path) -> list[dict]:
    Trainer(config, RunOptions(out, CPU)).run()
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("first", "changes"),
    [(0, {}), (1, {"clip": 0.05, "ema": 0.9, "carry": 0.5, "loss": "norm", "expert_share": 0.6})],
)
def test_members_learn_what_they_learn_alone(tmp_path: Path, first: int, changes: dict) -> None:
    """Whichever of them comes first: the second reads no components, the others do."""
    configs = [member(*kind, **changes) for kind in (*KINDS[first:], *KINDS[:first])]
    trainer = FamilyTrainer.begun(configs, RunOptions(tmp_path / "family", CPU))
    trainer.run()
    carried, by_expert, _ = trainer.collector._plan(1)
    asked, shared = trainer.collector.asked, int((by_expert & ~carried).sum())
    assert shared and asked is not None
    assert len(asked) == len(configs) * SMALL.environments - (len(configs) - 1) * shared  # which are asked about once
    for number, config in enumerate(configs):
        rows = alone(config, tmp_path / str(number))
        for ours, theirs in zip(rows_of(tmp_path / "family", number, "success_rate"), rows, strict=True):
            assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
            assert ours["success_rate"] == pytest.approx(theirs["success_rate"], abs=0.04)  # of 32 goals
        found = load_learned(tmp_path / "family" / "last" / str(number))
        expected = load_learned(tmp_path / str(number) / "last")
        assert found.config == expected.config
        torch.testing.assert_close(found.state_dict(), expected.state_dict(), rtol=1e-2, atol=2e-4)
        assert (tmp_path / "family" / "best" / str(number) / "config.json").exists()


def test_a_family_goes_on_where_it_stopped(tmp_path: Path) -> None:
    configs = [member(*kind) for kind in KINDS]
    FamilyTrainer.begun(configs, RunOptions(tmp_path / "whole", CPU)).run()
    stopped = FamilyTrainer.begun(configs, RunOptions(tmp_path / "parts", CPU))
    stopped.stopping, before = 2, len(KINDS)
    with pytest.raises(Stopped):
        stopped.run()
    again = FamilyTrainer.begun(configs, RunOptions(tmp_path / "parts", CPU))
    assert again.within.step == 1 and again.copies == before
    again.run()
    for number in range(before):
        ours, theirs = (load_learned(tmp_path / name / "last" / str(number)) for name in ("parts", "whole"))
        torch.testing.assert_close(ours.state_dict(), theirs.state_dict(), rtol=0, atol=0)
        kept = ("epoch", "loss", "success_rate")
        pairs = zip(*(rows_of(tmp_path / name, number, "success_rate") for name in ("parts", "whole")), strict=True)
        assert all({n: a[n] for n in kept} == {n: b[n] for n in kept} for a, b in pairs)
    with pytest.raises(MastError, match="other policies"):
        FamilyTrainer.begun(configs[:2], RunOptions(tmp_path / "parts", CPU))


def test_what_is_no_family_is_refused(tmp_path: Path) -> None:
    first, second = member(*KINDS[0]), member(*KINDS[1])
    assert trainable_together([first, second]) and not trainable_together([first, replace(second, lr=1.0)])
    with pytest.raises(MastError, match="differ in nothing but"):
        FamilyTrainer([first, replace(second, lr=1.0)], RunOptions(tmp_path, CPU))
    assert not trainable_together([replace(one, expert="informed") for one in (first, second)])
    with pytest.raises(MastError, match="train them one by one"):
        FamilyTrainer([replace(one, expert="informed") for one in (first, second)], RunOptions(tmp_path, CPU))


def test_an_epoch_that_goes_on_midway_keeps_its_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = FamilyTrainer([member(*kind) for kind in KINDS], RunOptions(tmp_path, CPU))
    for _ in trainer._steps(0, learns=False):
        pass
    learner = trainer.learner

    def warmed(work: Callable[[], None], device: torch.device) -> Callable[[], None]:
        for _ in range(3):
            work()
        return work

    monkeypatch.setattr("mast_swarm.train.learner.captured", warmed)
    learner._run = None  # as on a GPU, which captures the first update
    learner.loss_sum.fill_(7.0)
    learner.loss_sums.fill_(2.0)
    learner.update(torch.rand(SMALL.batch, dtype=torch.float64))
    assert float(learner.loss_sum) == pytest.approx(7 + float(learner.loss), rel=1e-5)
    assert float(learner.loss_sums.sum()) == pytest.approx(2 * len(KINDS) + float(learner.loss), rel=1e-5)
    trainer.collector.close()
