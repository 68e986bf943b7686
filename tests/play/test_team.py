"""The graph of a whole team in onnxruntime, against every robot alone in the simulation; needs no browser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from mast_swarm.comms import Channel, DecentralPolicy
from mast_swarm.comms.decentral import decide
from mast_swarm.comms.held import RelayState, slot_of
from mast_swarm.interop.onnx import packages, write
from mast_swarm.interop.team import exact_halves, team_functions
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.policy import Policy
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation

RADIUS = 120.0


def lists(state: RelayState, radius: float | None, layers: int) -> dict[str, np.ndarray]:
    """The graph's inputs for one environment, as plainly as can be: a view per robot, and no row is merged."""
    robots = state.alive.shape[1]
    slots, held = slot_of(state.newest[0]).numpy(), (state.newest[0] >= 0).numpy()
    stored = state.positions.shape[1] * robots
    places = state.positions[0].reshape(stored, 2).numpy()
    views = []
    for robot in range(robots):
        entries = [int(slots[robot, j]) * robots + j for j in np.nonzero(held[robot])[0]]
        level = {int(slots[robot, robot]) * robots + robot: 0}
        for windows in range(1, layers + 1):
            front = [e for e in level if level[e] == windows - 1]
            for e in entries:
                apart = [np.hypot(*(places[e] - places[f])) for f in front]
                if e not in level and any(radius is None or away < radius for away in apart):
                    level[e] = windows
        views.append(sorted(level.items(), key=lambda item: item[1]))
    counts = [[sum(at <= most for _, at in view) for most in range(layers + 1)] for view in views]
    widths = [max(count[layers - layer] for count in counts) for layer in range(layers + 1)]
    entry, first, number = (np.zeros((robots, widths[0]), np.int64) for _ in range(3))
    allowed = np.zeros((robots, widths[1], widths[0]), bool)
    where: list[tuple[int, int, int]] = []  # level, view, column
    for v, view in enumerate(views):
        for c, (e, at) in enumerate(view):
            entry[v, c] = e
            if at < layers:
                where.append((at, v, c))
            for r in range(counts[v][layers - 1]):
                away = np.hypot(*(places[view[r][0]] - places[e]))
                allowed[v, r, c] = r == c or radius is None or away < radius
    where.sort()
    for row, (at, v, c) in enumerate(where):
        first[v, c] = row
        if at < layers - 1:
            number[v, c] = row
    above = [one for one in where if one[0] < layers - 1]
    rows = [len(where)] + [sum(at <= layers - layer for at, _, _ in where) for layer in range(2, layers + 1)]
    return {
        "messages": state.messages[0].reshape(stored, -1).numpy(),
        "positions": places,
        "entry": entry,
        "merged": first,
        "number": number,
        "first_view": np.array([v for _, v, _ in where]),
        "first_column": np.array([c for _, _, c in where]),
        "view": np.array([v for _, v, _ in above], np.int64),
        "column": np.array([c for _, _, c in above], np.int64),
        "allowed": allowed,
        "rows": np.array(rows),
        "widths": np.array(widths),
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"attention_radius": RADIUS, "layers": 3},
        {"attention_radius": None, "message_dim": 5, "variant": "L"},
        {"attention_radius": RADIUS, "layers": 4, "exploration_time": 50.0, "encoding": "ape-g"},
        {"attention_radius": RADIUS, "layers": 1},
    ],
    ids=str,
)
def test_it_computes_what_robots_alone_do(fields: dict[str, Any], tmp_path: Path) -> None:
    policy = Policy(PolicyConfig(**{"layers": 2, "heads": 2, "head_dim": 8, **fields}), seed=1)
    with torch.no_grad():
        for block in policy.mast.blocks:
            block.attention.qkv.weight.mul_(3.0)
    for name, function in team_functions(policy).items():
        write(packages(), function, tmp_path / f"{name}.onnx")
        exact_halves(packages(), tmp_path / f"{name}.onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "team.onnx")
    world = Navigation(NavigationConfig(agents=9, scenario="clusters-5"))
    run = DecentralPolicy(policy, Channel(delay=0.7), 1.0)
    run.start([2])
    state = world.reset([2])
    for _ in range(6):
        command = run.act(world.observe(state))
        assert run.state is not None
        given = lists(run.state, policy.config.attention_radius, policy.config.layers)
        read = [one.name for one in session.get_inputs()]  # few layers do not need all lists
        found, *weights = session.run(None, {name: given[name] for name in read})
        assert np.abs(found - decide(policy, run.state)[0].numpy()).max() < 1e-5
        assert len(weights) == policy.config.layers and np.allclose(weights[-1][:, :, 0].sum(-1), 1, atol=1e-5)
        state = world.step(state, command)


def test_weights_in_fewer_bits_are_stored_in_fewer_and_lose_nothing(tmp_path: Path) -> None:
    policy = Policy(PolicyConfig(layers=2, heads=4, head_dim=16))
    sizes = {}
    for dtype in (torch.float32, torch.bfloat16):
        rounded = policy.to(dtype).to(torch.float32)
        write(packages(), team_functions(rounded)["team"], tmp_path / "team.onnx")
        before = (tmp_path / "team.onnx").stat().st_size
        exact_halves(packages(), tmp_path / "team.onnx")
        sizes[dtype] = (tmp_path / "team.onnx").stat().st_size / before
    assert sizes[torch.float32] > 0.95 and sizes[torch.bfloat16] < 0.65
