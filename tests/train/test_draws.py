"""Which samples an epoch learns from, and as which mirror image: evenly, and each once where all are there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from mast_swarm.errors import MastError
from mast_swarm.model.policy import make
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.draws import draws
from mast_swarm.train.replay import Replay
from mast_swarm.train.team import Team
from shared import recipe

SAMPLES = 1_200_000  # more than float32 has numbers for


def passes(config: TrainConfig) -> torch.Tensor:
    """The numbers that choose the batches of a run's first epoch of learning, [updates * batch] float64."""
    return torch.cat(list(draws(config, config.collect, 0, 1, torch.device("cpu"))))


def test_a_pass_takes_each_sample_once_and_its_images_evenly() -> None:
    config = replace(
        recipe("tiny", "coverage"), collect=1, epochs=2, environments=1000, steps=1200, replay=SAMPLES, batch=1000
    )
    assert config.gathered() == SAMPLES
    uniform = passes(config)
    replay = Replay({"number": ((), torch.int64)}, SAMPLES, torch.device("cpu"))
    replay.push({"number": torch.arange(SAMPLES)})
    assert len(uniform) == SAMPLES and uniform.dtype == torch.float64
    assert torch.equal(replay.draw(uniform)["number"].sort().values, torch.arange(SAMPLES))
    images = np.bincount((replay.left(uniform) * 8).long().numpy(), minlength=8)
    assert images.shape == (8,) and abs(images / SAMPLES - 1 / 8).max() < 0.002


def test_drawing_at_random_reaches_all_of_a_large_replay() -> None:
    config = replace(recipe("tiny"), epochs=1, steps=3000, batch=400, replay=SAMPLES)
    uniform = passes(config)
    replay = Replay({"number": ((), torch.int64)}, SAMPLES, torch.device("cpu"))
    replay.push({"number": torch.arange(SAMPLES)})
    drawn = replay.draw(uniform)["number"]
    missed = 1 - len(drawn.unique()) / SAMPLES
    assert missed == pytest.approx(np.exp(-1), abs=0.005)  # as many draws as samples


def test_large_teams_are_refused_on_a_gpu_before_anything_is_made() -> None:
    config = replace(recipe("tiny"), world=NavigationConfig(agents=3000, scenario="clusters-1"))
    with pytest.raises(MastError, match=r"up to 2,048 robots.*--agents is 3,000.*--device cpu"):
        Team(config, make(config.policy), torch.device("cuda"), 1)
