"""examples/ppo.py: a few iterations go through, weights move, and what is saved is a policy like any other."""

from __future__ import annotations

import importlib.util
import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("torchrl")

import mast_swarm
from mast_swarm import Policy
from strolling import own_tasks

EXAMPLE = Path(__file__).parents[2] / "examples" / "ppo.py"


@pytest.fixture(scope="module")
def ppo() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("ppo_example", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["ppo_example"] = module  # dataclasses look their module up there
    spec.loader.exec_module(module)
    with own_tasks():
        yield module
    del sys.modules["ppo_example"]


def test_ppo_learns_to_meet(ppo: Any, tmp_path: Path) -> None:
    """Three robots that hear each other always: some updates already bring them closer together."""
    settings = ppo.Settings(
        task=f"{EXAMPLE.with_name('rendezvous.py')}:TASK", out=tmp_path, agents=3, steps=16, environments=24,
        iterations=12, seeds=1, passes=2, minibatch=128, rate=3e-3, test_every=12, tests=8,
    )  # fmt: skip
    ppo.main(settings)
    result = json.loads((tmp_path / "ppo.json").read_text())
    (run,) = result["runs"]
    assert np.isfinite(run["tested"] + run["return"]).all() and len(run["return"]) == 12
    assert np.mean(run["return"][-3:]) > np.mean(run["return"][:3]) + 3.0  # metres of spread
    assert run["tested"][-1] < run["tested"][0] - 3.0
    assert (tmp_path / "ppo.png").stat().st_size > 10_000
    learned = mast_swarm.load_policy(str(tmp_path / "seed-0"))
    fresh = Policy(learned.config, seed=0).state_dict()  # type: ignore[arg-type]
    assert all(torch.isfinite(value).all() for value in learned.state_dict().values())
    assert any(not torch.equal(value, fresh[name]) for name, value in learned.state_dict().items())
    here = ppo.find(settings.task).make(ppo.find(settings.task).Config(agents=3))
    # The package's own rollout takes it, every robot alone too.
    ran = mast_swarm.rollout(here, learned, [0], 3, channel=mast_swarm.Channel(delay=1.0))
    assert np.isfinite(ran.metrics["spread"]).all()


def test_the_commands_of_its_docstring_are_its_options(ppo: Any) -> None:
    lines = [line for line in (ppo.__doc__ or "").splitlines() if line.startswith("python ")]
    assert len(lines) == 2
    known = {f"--{name.replace('_', '-')}" for name in vars(ppo.Settings())}
    for line in lines:
        assert {word for word in shlex.split(line) if word.startswith("--")} <= known
    shown = subprocess.run([sys.executable, str(EXAMPLE), "--help"], capture_output=True, text=True, check=True).stdout
    assert all(name in shown for name in known)


def test_a_policy_for_images_is_refused_in_words(ppo: Any, tmp_path: Path) -> None:
    small = replace(ppo.Settings(), task="coverage", out=tmp_path, agents=2, environments=1, steps=2)
    with pytest.raises(SystemExit, match="images"):
        ppo.learn(small, 0)
