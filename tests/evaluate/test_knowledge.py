"""What a recording keeps of what robots know: against what they held, and against `explain`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mast_swarm import Channel, Navigation, NavigationConfig, Policy, PolicyConfig, explain
from mast_swarm.evaluate import knowledge
from mast_swarm.evaluate.actors import make_actor
from mast_swarm.evaluate.loop import Loop
from mast_swarm.evaluate.recording import Recording
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.model.config import LPACConfig
from mast_swarm.model.lpac import LPAC
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.tasks.coverage.world import Coverage
from mast_swarm.view.replay import write_replay

ROBOTS, STEPS, SEED = 14, 9, 3
TROUBLE = Channel(delay=1.0, loss=0.2, failure=0.02)
SMALL = PolicyConfig(layers=3, heads=2, head_dim=8, attention_radius=250.0)


def world(agents: int = ROBOTS) -> Navigation:
    return Navigation(NavigationConfig(agents=agents))


def recorded(policy: Any, channel: Channel | None, **given: Any) -> Recording:
    return rollout(world(), policy, [SEED, 8], STEPS, channel=channel, record=1, **given).recordings[0]


def each_frame(policy: Any, channel: Channel | None, look: Callable[[int, Loop], None]) -> None:
    """The same episode again, with a look at every frame after robots have decided."""
    loop = Loop(world(), make_actor(policy, world(), channel))
    with torch.inference_mode():
        loop.start([SEED])
        for frame in range(STEPS + 1):
            loop.sense()
            command = loop.decide()
            look(frame, loop)
            loop.move(command)


@pytest.mark.parametrize("policy", [Policy(SMALL, seed=1), "dhba-8-relay"], ids=["learned", "controller"])
def test_ages_are_those_of_what_robots_held(policy: Any) -> None:
    kept = recorded(policy, TROUBLE)
    assert kept.knowledge == "news" and kept.known["age"].dtype == kept.known["hops"].dtype == np.uint8
    failed = 0

    def look(frame: int, loop: Loop) -> None:
        nonlocal failed
        actor: Any = loop.actor
        state = actor.held if hasattr(actor, "held") else actor.run.state
        age, hops = kept.known["age"][frame].astype(int), kept.known["hops"][frame].astype(int)
        alive = state.alive[0].numpy()
        failed = (~alive).sum()
        assert (kept.alive(frame) == alive).all()
        stamps = state.stamps[0].numpy()
        assert (age[alive] == np.where(stamps >= 0, state.step - stamps + 1, 0)[alive]).all()
        assert (age[~alive] == 0).all() and (hops[~alive] == 0).all()
        other = (age > 0) & ~np.eye(ROBOTS, dtype=bool)
        assert (hops[~other] == 0).all() and (hops[other] >= 1).all()
        assert (hops <= np.maximum(age - 1, 0)).all()  # a period per hop at the least

    each_frame(policy, TROUBLE, look)
    assert failed and (kept.known["age"] > kept.known["hops"] + 2).any()  # some news was held up on its way


@pytest.mark.parametrize(
    ("policy", "channel"),
    [(Policy(SMALL, seed=1), TROUBLE), (Policy(SMALL, seed=1), None), ("mast-c", None), ("mast-m", Channel(delay=0.0))],
    ids=["alone", "pass", "goals", "zoo"],
)
def test_attention_is_what_explain_says(policy: Any, channel: Channel | None) -> None:
    kept = recorded(policy, channel)
    attends, weights = kept.known["attends"].astype(int), kept.known["weights"] / 255
    assert weights.shape[3] == kept.known["heads"]

    def look(frame: int, loop: Loop) -> None:
        actor: Any = loop.actor
        seen = actor if channel is not None else loop.observation
        for robot in np.flatnonzero(kept.alive(frame))[::5]:
            with torch.inference_mode(False):
                told = explain(actor.policy, seen, int(robot), world=None if channel is not None else loop.world)
            token = told.origins + ROBOTS * told.goals
            shares = dict(zip(token.tolist(), told.weights.transpose(2, 0, 1), strict=True))
            chosen = [t - 1 for t in attends[frame, robot] if t]
            most = sorted(shares, key=lambda t: -shares[t].mean())[: knowledge.TOKENS]
            assert sum(shares[t].mean() for t in chosen) == pytest.approx(sum(shares[t].mean() for t in most), abs=1e-4)
            for k, t in enumerate(chosen):
                np.testing.assert_allclose(weights[frame, robot, :, :, k], shares[t], atol=0.5 / 255 + 1e-3)

    each_frame(policy, channel, look)


def test_what_has_no_messages_says_so(tmp_path: Path) -> None:
    kept = recorded("lsap", None)
    assert kept.knowledge == "controller" and kept.known == {}
    kept.save(tmp_path / "a.npz")
    assert Recording.load(tmp_path / "a.npz").known == {}
    assert recorded(lambda state, observation: torch.zeros_like(state.positions), TROUBLE).knowledge == "controller"


def test_long_episodes_and_large_teams_keep_less(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(knowledge, "MOST_PAIRS", 4 * ROBOTS**2)
    monkeypatch.setattr(knowledge, "MOST_WEIGHTS", 0)
    whole = recorded(Policy(SMALL, seed=1), TROUBLE)
    assert int(whole.known["every"]) == 3 and len(whole.known["age"]) == 4  # of frames 0 to 9
    assert whole.known["weights"].shape == (4, ROBOTS, 3, 1, knowledge.TOKENS) and whole.known["heads"] == 2
    whole.save(tmp_path / "a.npz")
    again = Recording.load(tmp_path / "a.npz")
    assert again.known.keys() == whole.known.keys()
    assert all((again.known[name] == values).all() for name, values in whole.known.items())
    monkeypatch.undo()
    every = recorded(Policy(SMALL, seed=1), TROUBLE)
    assert (every.known["age"][::3] == whole.known["age"]).all()
    monkeypatch.setattr(knowledge, "MOST_PACKED", 100)
    mean = recorded(Policy(SMALL, seed=1), TROUBLE).known
    assert mean["weights"].shape == (STEPS + 1, ROBOTS, 3, 1, knowledge.TOKENS) and mean["heads"] == 2
    assert abs(mean["weights"] - every.known["weights"].mean(3, keepdims=True)).max() <= 0.5
    monkeypatch.setattr(knowledge, "MOST_ROBOTS", ROBOTS - 1)
    none = recorded(Policy(SMALL, seed=1), TROUBLE)
    assert none.known == {} and none.knowledge == "news"


def test_recording_changes_nothing() -> None:
    plain = rollout(world(), Policy(SMALL, seed=1), [SEED], STEPS, channel=TROUBLE)
    kept = rollout(world(), Policy(SMALL, seed=1), [SEED], STEPS, channel=TROUBLE, record=1)
    assert torch.equal(plain.state.positions, kept.state.positions)
    assert all((plain.metrics[name] == values).all() for name, values in kept.metrics.items())


def test_a_file_from_before_opens(tmp_path: Path) -> None:
    old = Recording.load(Path(__file__).parent.parent / "fixtures" / "recording_before.npz")
    assert old.knowledge == "" and old.known == {} and old.positions.shape == (5, 6, 2) and old.delay == 1.0
    assert "from before the age of news was kept" in write_replay(tmp_path / "old.html", old).read_text("utf-8")


def test_sums_over_neighbours_are_no_news() -> None:
    here = Coverage(CoverageConfig(agents=4))
    policy = LPAC(LPACConfig(task="coverage"))
    kinds = [knowledge._kind(make_actor(policy, here, channel)) for channel in (Channel(delay=0.2), None)]
    assert kinds == ["sums", "pass"]


@pytest.mark.parametrize("policy", [Policy(SMALL, seed=1), "dhba-8-relay"], ids=["learned", "controller"])
def test_robots_that_have_all_failed_are_recorded(policy: Any, tmp_path: Path) -> None:
    kept = recorded(policy, Channel(delay=1.0, failure=0.7))
    assert kept.frames["alive"][0].any() and not kept.frames["alive"][-1].any()
    assert not any(kept.known[name][-1].any() for name in kept.known.keys() - {"every", "heads"})
    kept.save(tmp_path / "recording.npz")
    write_replay(tmp_path / "replay.html", Recording.load(tmp_path / "recording.npz"))
