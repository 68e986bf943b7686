"""The recipe `tiny`, from the command line to a policy that finds its goals on start states it has never seen."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from mast_swarm.evaluate.rollout import rollout
from mast_swarm.model.policy import Policy
from mast_swarm.train.config import from_run, recipe
from mast_swarm.world.navigation import Navigation


@pytest.mark.slow
def test_the_tiny_recipe_learns_on_a_cpu(tmp_path: Path, mast: list[str], alone: dict[str, str]) -> None:
    out = tmp_path / "run"
    command = [*mast, "train", "navigation", "--recipe", "tiny", "--device", "cpu", "--out", str(out)]
    began = time.monotonic()
    done = subprocess.run(command, env=alone, capture_output=True, timeout=400)
    seconds = time.monotonic() - began
    assert done.returncode == 0, done.stderr.decode()
    assert from_run(out) == recipe("tiny")
    told = done.stdout.decode()
    assert "epoch 25/25" in told and "samples/s" in told and "MB with the replay" in told and str(out / "best") in told

    world = Navigation(recipe("tiny").world)
    reached = {
        name: float(rollout(world, policy, range(100), 100).metrics["success_rate"][:, -1].mean())
        for name, policy in {
            "untrained": Policy(recipe("tiny").policy),
            "best": str(out / "best"),
            "last": str(out / "last"),
        }.items()
    }
    # Seen with several seeds: 0.00 untrained, 0.7 to 0.8 trained.
    assert reached["untrained"] < 0.1
    assert reached["best"] > 0.6 and reached["last"] > 0.6, reached
    assert seconds < 180, f"it took {seconds:.0f} s"
