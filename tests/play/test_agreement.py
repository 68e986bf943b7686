"""The page's numbers are Python's: the same start state gives the same commands and the same ways."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from mast_swarm import zoo
from mast_swarm.comms import Channel
from mast_swarm.evaluate.actors import Decentral, make_actor
from mast_swarm.evaluate.loop import Loop
from mast_swarm.model.policy import Policy, load_learned
from mast_swarm.play.run import site_files
from mast_swarm.play.server import make_server, running
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.world import Coverage
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.tasks.navigation.world import Navigation
from playing import Page

ROBOTS, SEED = 14, 5
WORLD = NavigationConfig(agents=ROBOTS, scenario="clusters-5")
NAMES = {"mast-m": "navigation/mast-m", "mast-l": "navigation/mast-l", "dhba-8": "dhba", "lsap": "lsap"}


def begun(policy: str, channel: Channel | None) -> Loop:
    loop = Loop(Navigation(WORLD), make_actor(policy, Navigation(WORLD), channel))
    loop.start([SEED])
    return loop


def given(loop: Loop, policy: str, channel: Channel) -> dict[str, Any]:
    """What the page is asked for to start as the loop does."""
    state: Any = loop.state
    told = {"delay": channel.delay, "loss": channel.loss, "seed": channel.seed, "maxAge": channel.max_age}
    return {
        "task": "navigation",
        "drives": NAMES[policy],
        "seed": SEED,
        "positions": state.positions[0].flatten().tolist(),
        "goals": state.goals[0].flatten().tolist(),
        "channel": told,
    }


def reset(page: Any, asked: dict[str, Any]) -> None:
    page.ask("mastPlay.simulation.ask('reset', { ...arguments[0], radius: undefined })", asked)


def array(values: Any, *shape: int) -> np.ndarray:
    """A typed array as the browser hands it over."""
    return np.array(list(values.values()) if isinstance(values, dict) else values, np.float64).reshape(*shape)


@pytest.mark.parametrize(
    ("policy", "channel", "steps"),
    [
        ("mast-m", Channel(delay=0.0), 12),
        ("mast-m", Channel(delay=1.0), 12),
        ("mast-l", Channel(delay=1.0), 8),
        ("mast-m", Channel(delay=0.4, loss=0.3, seed=7), 8),
        ("mast-m", Channel(delay=1.7, max_age=6.0), 10),
        ("mast-l", Channel(delay=0.0, loss=0.4), 5),
        ("dhba-8", Channel(), 25),
        ("lsap", Channel(), 25),
    ],
    ids=lambda value: str(value) if not isinstance(value, Channel) else f"delay {value.delay:g} loss {value.loss:g}",
)
def test_robots_go_the_same_way(calm: Any, policy: str, channel: Channel, steps: int) -> None:
    learned = policy.startswith("mast")
    loop = begun(policy, channel if learned else None)
    reset(calm, given(loop, policy, channel))
    with torch.inference_mode():
        loop.sense()
        expected = loop.decide()
        found = calm.ask("mastPlay.simulation.ask('commands')")
        assert np.abs(array(found["command"], ROBOTS, 2) - expected[0].numpy()).max() < 1e-4
        loop.move(expected)
        for _ in range(steps - 1):
            loop.step()
        loop.sense()
        loop.decide()
    after = calm.ask("mastPlay.advance(arguments[0])", steps)
    state: Any = loop.state
    assert np.abs(array(after["positions"], ROBOTS, 2) - state.positions[0].numpy()).max() < 1e-3
    assert after["metric"] == pytest.approx(float(loop.world.metrics(state)["success_rate"][0]), abs=1e-6)
    if learned:  # and everyone holds the same news
        assert isinstance(loop.actor, Decentral)
        stamps = calm.ask("mastPlay.simulation.ask('commands')")["stamps"]
        assert (array(stamps, ROBOTS, ROBOTS) == loop.actor.run.state.stamps[0].numpy()).all()


def test_a_policy_of_ones_own_that_remembers_where_it_was(browser: Any, site: str, tmp_path: Path) -> None:
    """Served as `mast play --policy FOLDER` does; its robots turn away from where they have been."""
    pytest.importorskip("onnx")
    shutil.copytree(zoo.policies()["navigation/mast-l"], tmp_path / "own" / "best")
    config = tmp_path / "own" / "best" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"exploration_memory": 3, "exploration_push": 4.0}))
    name = str(config.parent)
    loop = begun(name, Channel(delay=1.0))
    asked = given(loop, "mast-l", Channel(delay=1.0)) | {"drives": name}
    before = browser.current_window_handle
    browser.switch_to.new_window("tab")  # other tests of this file keep their page
    try:
        with running(make_server("127.0.0.1", 0, site_files((name,), tmp_path / "made"))) as url:
            page = Page(browser, f"{url}#robots=4&policy=lsap")
            assert page.find("#drivers [data-key$=best]").text == "best"
            reset(page, asked)
            with torch.inference_mode():
                for _ in range(14):
                    loop.step()
            after = page.ask("mastPlay.advance(14)")
    finally:
        browser.close()
        browser.switch_to.window(before)
    state: Any = loop.state
    assert np.abs(array(after["positions"], ROBOTS, 2) - state.positions[0].numpy()).max() < 1e-3


def test_attention_is_that_of_the_layers(calm: Any) -> None:
    """Without delay: the weights of a robot's own row in every layer and head, from the parts of the policy."""
    loop = begun("mast-m", Channel())
    reset(calm, given(loop, "mast-m", Channel()))
    robot, policy = 3, load_learned("navigation/mast-m")
    assert isinstance(policy, Policy)
    calm.ask("mastPlay.simulation.ask('focus', { robot: arguments[0] })", robot)
    knows = calm.ask("mastPlay.simulation.ask('look')")["focus"]["knows"]
    observation = loop.sense()
    given_ = policy.inputs(observation)
    component = given_["component"][0]
    members = torch.nonzero(component == component[robot])[:, 0]
    assert {one["robot"] for one in knows} == set(members.tolist()) and len(members) > 3
    weights = own_weights(policy, observation, members, members.tolist().index(robot))  # [L, H, K]
    for place, member in enumerate(members.tolist()):
        one = next(entry for entry in knows if entry["robot"] == member)
        assert one["age"] == 0
        assert np.abs(np.array(one["weights"]) - weights[:, :, place].numpy()).max() < 1e-4
    total = np.sum([one["weights"] for one in knows], axis=0)
    assert np.abs(total - 1).max() < 1e-4


@torch.no_grad()
def own_weights(policy: Policy, observation: Any, members: torch.Tensor, row: int) -> torch.Tensor:
    """The attention of one row of a component over all of them, [L, H, K], written out."""
    from mast_swarm.model.encoding import rotate

    places = observation.positions[0, members].double()
    x, added = policy.lift(policy.perceive(observation.features)[0, members]), None
    turn = tuple(table[:, None] for table in policy.encoding.rotation(places))
    near, rows = torch.cdist(places, places) < policy.config.attention_radius, []
    for block in policy.mast.blocks:
        x, h = block.before_attention(x, added)
        q, k, v = block.attention.qkv(h).unflatten(-1, (3, policy.config.heads, -1)).unbind(1)
        q, k = rotate(q, turn), rotate(k, turn)
        score = torch.einsum("ihd,jhd->hij", q, k) / policy.config.head_dim**0.5
        weight = score.masked_fill(~near, -torch.inf).softmax(-1)
        rows.append(weight[:, row])
        x, added = block.after_attention(x, torch.einsum("hij,jhd->ihd", weight, v).flatten(1))
    return torch.stack(rows)


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (7, 7), (20, 33), (31, 12), (60, 60), (5, 1)])
def test_the_assignment_is_scipys(calm: Any, rows: int, columns: int) -> None:
    rng = np.random.default_rng(rows * columns)
    here, there = rng.uniform(-500, 500, (rows, 2)), rng.uniform(-500, 500, (columns, 2))
    found = calm.ask(
        "mastPlay.simulation.ask('assign', { rows: arguments[0], columns: arguments[1] })",
        here.flatten().tolist(),
        there.flatten().tolist(),
    )["columns"]
    chosen, cost = array(found, rows).astype(int), cdist(here, there) ** 2
    assert (chosen >= 0).sum() == min(rows, columns) == len(set(chosen[chosen >= 0]))
    best = cost[linear_sum_assignment(cost)].sum()
    assert cost[chosen >= 0, chosen[chosen >= 0]].sum() == pytest.approx(best, rel=1e-9)


COVERED = CoverageConfig(agents=6, side=320.0, features=5, dt=1.0, seen_map=True)


@pytest.mark.parametrize(
    ("policy", "channel", "steps"),
    [
        ("coverage/mast-m", Channel(), 6),
        ("coverage/mast-m", Channel(delay=1.0), 4),
        ("d-cvt", None, 8),
        ("c-cvt", None, 8),
        ("clairvoyant", None, 8),
    ],
    ids=lambda value: str(value.delay) if isinstance(value, Channel) else str(value),
)
def test_coverage_is_the_same(calm: Any, policy: str, channel: Channel | None, steps: int) -> None:
    world = Coverage(COVERED)
    loop = Loop(world, make_actor(policy.removeprefix("coverage/"), world, channel))
    loop.start([SEED])
    state: Any = loop.state
    asked = {
        "task": "coverage",
        "drives": policy,
        "seed": SEED,
        "positions": state.positions[0].flatten().tolist(),
        "density": state.density[0].flatten().tolist(),
        "side": 320,
        "dt": 1.0,
        "channel": {"delay": 0 if channel is None else channel.delay},
    }
    reset(calm, asked)
    with torch.inference_mode():
        for _ in range(steps):
            loop.step()
    after = calm.ask("mastPlay.simulation.ask('step', { steps: arguments[0] })", steps)
    state = loop.state
    assert np.abs(array(after["positions"], 6, 2) - state.positions[0].numpy()).max() < 1e-2
    assert after["metric"] == pytest.approx(float(state.cost[0]), rel=1e-3)
