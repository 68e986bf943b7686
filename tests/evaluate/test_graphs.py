"""Control periods as one graph: the same states and metrics as one kernel after the other."""

from __future__ import annotations

import logging

import pytest
import torch

import mast_swarm
from mast_swarm.evaluate.actors import Central, make_actor
from mast_swarm.evaluate.graphs import CapturedLoop, capturable, capture
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.rollout import rollout

NAVIGATION = mast_swarm.NavigationConfig(agents=12)
on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are captured on a GPU")


def test_captured_steps_are_those_of_a_rollout() -> None:
    """On the CPU the work of a graph runs as it is, so its logic is tested everywhere."""
    world, seeds, steps = mast_swarm.Navigation(NAVIGATION), [3, 4], 6
    policy = mast_swarm.load_policy("navigation/mast-m")
    plain = rollout(world, policy, seeds, steps)
    with torch.inference_mode():
        loop = Loop(world, Central(policy, world))
        loop.start(seeds)
        whole = CapturedLoop(loop, steps + 1)
        for _ in range(steps):
            whole.step()
        whole.measure()
    assert torch.equal(loop.state.positions, plain.state.positions)
    assert torch.equal(loop.state.step, plain.state.step)
    for name, values in plain.metrics.items():
        assert torch.equal(whole.metrics[name].float(), torch.from_numpy(values))


def test_nothing_is_captured_on_a_cpu() -> None:
    world = mast_swarm.Navigation(NAVIGATION)
    loop = Loop(world, make_actor("mast-m", world))
    loop.start([0])
    assert capture(loop, 3) is None


@on_a_gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["navigation/mast-m", "navigation/mast-c", "coverage/mast-m", "coverage/lpac-k3"])
def test_a_captured_rollout_is_the_plain_one(name: str, precision: str) -> None:
    task = name.partition("/")[0]
    world = (
        mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=60), "cuda")
        if task == "navigation"
        else mast_swarm.Coverage(mast_swarm.CoverageConfig(agents=8, features=8), "cuda")
    )
    loop = Loop(world, make_actor(name, world), precision=precision)
    loop.start([0])
    assert capturable(loop)
    plain = rollout(world, name, range(5), 20, precision=precision, plain=True)
    quick = rollout(world, name, range(5), 20, precision=precision)
    torch.testing.assert_close(quick.state.positions, plain.state.positions, rtol=0, atol=1e-3)
    for metric, values in plain.metrics.items():
        assert quick.metrics[metric] == pytest.approx(values, abs=1e-3)


@on_a_gpu
def test_a_short_rollout_is_not_written_past_its_end() -> None:
    world = mast_swarm.Navigation(NAVIGATION, "cuda")
    ran = rollout(world, "mast-m", [0, 1], 1)
    assert ran.metrics["success_rate"].shape == (2, 2)


@on_a_gpu
def test_a_world_that_waits_for_the_gpu_runs_as_before(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting(mast_swarm.Navigation):
        def observe(self, state):
            float(state.positions.sum())  # asks the GPU for a number
            return super().observe(state)

    with caplog.at_level(logging.WARNING, "mast_swarm"):
        ran = rollout(Waiting(NAVIGATION, "cuda"), "mast-m", [0], 5)
    assert "cannot be captured" in caplog.text
    plain = rollout(mast_swarm.Navigation(NAVIGATION, "cuda"), "mast-m", [0], 5, plain=True)
    torch.testing.assert_close(ran.state.positions, plain.state.positions)
