"""Coverage training on CUDA: everything that is captured there gives what the CPU gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mast_swarm.model.policy import make
from mast_swarm.train.collector import Collector, sample_layout
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.replay import Replay
from mast_swarm.train.trainer import RunOptions, Trainer

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def rolled(config: TrainConfig, device: torch.device, keep_every: int) -> Collector:
    replay = Replay(sample_layout(config), config.replay, device)
    made = Collector(config, make(config.policy).to(device), replay, device, 0, config.environments)
    made.begin(0)
    for step in range(12):
        keep = step % keep_every == 0
        made.look(keep)
        made.label()
        made.move(keep)
    return made


@pytest.mark.parametrize("share", [0.5, 1.0])
@pytest.mark.parametrize("kind", ["small_coverage", "small_lpac"])
def test_captured_rollouts_are_those_of_the_cpu(kind: str, share: float, request: pytest.FixtureRequest) -> None:
    config = replace(request.getfixturevalue(kind), expert_share=share, precision="fp32", replay=100)
    here, there = (rolled(config, torch.device(name), 3) for name in ("cpu", "cuda"))
    assert int(here.replay.pushed) == int(there.replay.pushed) == 4 * config.environments
    for name, value in vars(here.team.state).items():
        other = getattr(there.team.state, name).cpu()
        if value.is_floating_point():
            torch.testing.assert_close(other, value, rtol=1e-3, atol=2e-2)
        elif name not in ("seen", "seen_by_any", "box"):  # a rounding may move a sensor by one cell
            assert torch.equal(other, value)
    for name, field in here.replay.fields.items():
        other = there.replay.fields[name].cpu()
        if name in ("positions", "target"):
            torch.testing.assert_close(other, field, rtol=1e-3, atol=2e-2)
        elif name == "features":
            assert (other.int() - field.int()).abs().float().mean() < 0.5
        else:
            assert torch.equal(other, field)


@pytest.mark.parametrize("change", [{}, {"collect": 2, "expert_share": 1.0, "carry": 0.0}], ids=str)
@pytest.mark.parametrize("kind", ["small_coverage", "small_lpac"])
def test_a_run_learns_and_resumes(
    kind: str, change: dict[str, Any], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = replace(request.getfixturevalue(kind), epochs=4, **change)
    told: list[dict[str, Any]] = []
    Trainer(config, RunOptions(tmp_path, torch.device("cuda"), 0.0)).run(told.append)
    assert [row["epoch"] for row in told] == [1, 2, 3, 4] and 0 < told[-1]["cost_time_average"] < 2
    again = Trainer.resume(RunOptions(tmp_path, torch.device("cuda"), 0.0), config)
    assert again.epoch == 4 and again.learner.done > 0


@pytest.mark.parametrize("kind", ["small", "small_coverage"])
def test_robots_sense_beside_an_update_as_before_it(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """The same states, samples and weights, whether the GPU does both at once or one after the other."""
    config = replace(request.getfixturevalue(kind), epochs=2, expert_share=0.5)
    both = []
    for in_turn in (True, False):
        trainer = Trainer(config, RunOptions(tmp_path, torch.device("cuda"), 0.0))
        trainer.collector.in_turn = in_turn
        for _ in range(2):
            trainer.one_epoch()
        both.append(trainer)
    before, beside = both
    for name, value in before.learner.policy.state_dict().items():
        torch.testing.assert_close(beside.learner.policy.state_dict()[name], value, rtol=1e-2, atol=1e-3)
    torch.testing.assert_close(
        beside.collector.team.state.positions, before.collector.team.state.positions, rtol=0, atol=0.5
    )
