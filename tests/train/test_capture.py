"""What a CUDA graph captures of a coverage step never asks for a value: tensors of the device `meta` have none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from mast_swarm.model.policy import Policy, make
from mast_swarm.space import dense as space_dense
from mast_swarm.space.graph import MatrixGraph
from mast_swarm.space.voronoi import _dense_moments, _in_turns
from mast_swarm.tasks.coverage import _dense as dense
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.world import Coverage
from mast_swarm.train.collector import Collector, sample_layout
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.replay import Replay
from shared import recipe

META = torch.device("meta")
CONFIG = CoverageConfig(seen_map=True)
ROBOTS, CELLS, PIXELS = CONFIG.agents, CONFIG.cells, CONFIG.pixels


def empty(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=kind, device=META)


@pytest.fixture(scope="module")
def step() -> dict[str, Any]:
    """A step of three environments, as far as CUDA goes its own way in it: what is observed, and what comes after."""
    batch = 3
    positions, density = empty(batch, ROBOTS, 2), empty(batch, CELLS, CELLS)
    seen, corner = (empty(batch, ROBOTS, *rest, kind=torch.int64) for rest in ((CELLS, CELLS // 64), (2,)))
    weights, share = empty(CONFIG.map_cells, PIXELS), empty(CONFIG.map_cells + 1, PIXELS)
    features = dense.pictures(density, seen, corner, weights, share, positions, CONFIG.communication_range, True)
    unpacked = dense.with_surroundings(
        empty(batch, ROBOTS, 2, PIXELS, PIXELS), corner, share, CELLS, positions, CONFIG.communication_range
    )
    marked = seen, empty(batch, CELLS, CELLS // 64, kind=torch.int64)
    dense.mark(corner, CONFIG.sensor_cells, *marked)
    sums = empty(batch, CELLS, CELLS // 8 + 1, 3, kind=torch.float64)
    return {
        "features": features,
        "unpacked": unpacked,
        "positions": positions,
        "graph": MatrixGraph(space_dense.near(positions, CONFIG.communication_range**2)),
        "marked": marked,
        "moments": _in_turns(_dense_moments, (positions.double(), density, sums, None), ROBOTS**2 * CELLS),
    }


def test_worlds_sense_and_move_without_waiting(step: dict[str, Any]) -> None:
    assert step["features"].shape == step["unpacked"].shape == (3, ROBOTS, *CONFIG.observation_shape)
    assert step["moments"].shape == (3, ROBOTS, 4)
    assert [tuple(part.shape) for part in step["marked"]] == [(3, ROBOTS, CELLS, CELLS // 64), (3, CELLS, CELLS // 64)]


@pytest.mark.parametrize("name", ["best", "lpac-k3-seen"])
def test_policies_decide_without_waiting(step: dict[str, Any], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "autocast", lambda *args, **kwargs: nullcontext())  # knows no such device
    policy = make(recipe(name, "coverage").policy).to(META)
    observation = SimpleNamespace(features=step["features"], positions=step["positions"], graph=step["graph"])
    if isinstance(policy, Policy):
        # The path is what a team of this size takes on CUDA.
        given: dict[str, Any] = {"component": space_dense.labels(step["graph"].adjacency()), "path": "dense"}
    else:
        given = policy.inputs(observation)
        del given["features"], given["positions"]
    assert policy(features=step["features"], positions=step["positions"], **given).shape == (3, ROBOTS, 2)


def test_the_replay_is_filled_and_drawn_from_without_waiting() -> None:
    replay = Replay({"value": ((2,), torch.float32)}, 8, torch.device("cpu"))
    replay.fields = {"value": empty(8, 2)}
    replay.pushed, replay.first = empty(kind=torch.int64), empty(1, 1, kind=torch.int64)
    replay.push({"value": empty(3, 2)})
    assert replay.draw(empty(5))["value"].shape == (5, 2)
    how = (replay.left(empty(5)) * 8).long()
    sample = {"features": empty(5, 4, 2, PIXELS, PIXELS, kind=torch.uint8), "positions": empty(5, 4, 2)}
    turned = Coverage(CONFIG).mirrored({**sample, "target": empty(5, 4, 2), "weight": empty(5, 4)}, how)
    assert turned["features"].shape == (5, 4, 2, PIXELS, PIXELS) and turned["target"].shape == (5, 4, 2)


def test_meta_tensors_tell_of_a_wait(step: dict[str, Any]) -> None:
    with pytest.raises((RuntimeError, NotImplementedError)):
        step["graph"].source  # noqa: B018  how many edges there are only the data know


def test_what_a_warm_up_moves_is_put_back(small_coverage: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    def warmed(work: Callable[[], None], device: torch.device, stream: None = None) -> Callable[[], None]:
        for _ in range(3):
            work()
        return work

    config, cpu = replace(small_coverage, replay=100), torch.device("cpu")
    made = [
        Collector(config, make(config.policy), Replay(sample_layout(config), config.replay, cpu), cpu, 0, 4)
        for _ in range(2)
    ]
    monkeypatch.setattr("mast_swarm.train.collector.captured", warmed)
    made[1].device = torch.device("cuda")  # as far as capturing goes
    for each in made:
        each.begin(0)
        for keep in (True, False, True):
            each.look(keep)
            each.label()
            each.move(keep)
    for name, value in vars(made[0].team.state).items():
        assert torch.equal(value, getattr(made[1].team.state, name)), name
    assert int(made[0].replay.pushed) == int(made[1].replay.pushed) == 8
    for name, field in made[0].replay.fields.items():
        assert torch.equal(field[:8], made[1].replay.fields[name][:8]), name
