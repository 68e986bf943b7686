"""Tasks in other libraries: each adapter passes the checks of the library it is for, and shows what the world does."""

from __future__ import annotations

import importlib
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torchrl")
pytest.importorskip("pettingzoo")
pytest.importorskip("gymnasium")

from gymnasium.utils.env_checker import check_env
from gymnasium.vector import SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from pettingzoo.test import parallel_api_test, parallel_seed_test
from torchrl.collectors import Collector
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, check_env_specs, set_exploration_type

import mast_swarm
from mast_swarm.errors import MastError
from mast_swarm.interop.episodes import Episodes
from mast_swarm.interop.gymnasium import TeamEnv as GymnasiumEnv
from mast_swarm.interop.gymnasium import TeamVectorEnv
from mast_swarm.interop.pettingzoo import TeamParallelEnv
from mast_swarm.interop.torchrl import TeamEnv, make_actor, make_critic
from mast_swarm.model import LPAC, LPACConfig
from mast_swarm.tasks.registry import find, names
from mast_swarm.testing import check_world
from strolling import Config, own_tasks, strolling

EXAMPLES = Path(__file__).parents[2] / "examples"
TASKS = [*names(), *(f"{file}:TASK" for file in sorted(EXAMPLES.glob("*.py")) if "\nTASK = " in file.read_text())]
DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")),
]
SMALL = mast_swarm.PolicyConfig(layers=2, heads=2, head_dim=8, attention_radius=100.0)


def called(task: str) -> str:
    return Path(task.partition(":")[0]).stem


every_task = pytest.mark.parametrize("task", TASKS, ids=called)


@every_task
@pytest.mark.parametrize("device", DEVICES)
def test_torchrl_checks(task: str, device: str) -> None:
    env = TeamEnv(task, environments=3, steps=2, agents=4, device=device)
    assert isinstance(env, EnvBase) and env.batch_size == (3,) and env.device.type == device
    check_env_specs(env, seed=0)
    check_env_specs(env, break_when_any_done=False)  # past the end of episodes, so that some begin again
    assert env.rollout(1)["agents", "observation"].device.type == device


@every_task
def test_pettingzoo_checks(task: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(TeamParallelEnv(task, agents=4, steps=5), num_cycles=10)
        parallel_seed_test(lambda: TeamParallelEnv(task, agents=4, steps=5), num_cycles=2)


@every_task
@pytest.mark.filterwarnings("ignore:.*")  # Gymnasium would like features to be bounded
def test_gymnasium_checks(task: str) -> None:
    check_env(GymnasiumEnv(task, agents=4, steps=5), skip_render_check=True)


@every_task
def test_a_batch_is_what_gymnasium_makes_of_single_environments(task: str) -> None:
    """Gymnasium has no check for vector environments; its own vector of single ones is the measure."""
    theirs = SyncVectorEnv([lambda: GymnasiumEnv(task, agents=4, steps=3)] * 2)
    ours = TeamVectorEnv(task, 2, agents=4, steps=3)
    assert ours.single_observation_space == theirs.single_observation_space
    assert ours.observation_space == theirs.observation_space and ours.action_space == theirs.action_space
    assert ours.metadata["autoreset_mode"] == theirs.metadata["autoreset_mode"]
    shown = [env.reset(seed=5) for env in (theirs, ours)]
    ours.action_space.seed(1)
    for step in range(5):
        for name, value in shown[0][0].items():
            if step < 4:  # then each draws a start of its own
                np.testing.assert_allclose(shown[1][0][name], value, rtol=1e-4, atol=1e-4)
        assert shown[1][0] in ours.observation_space
        action = ours.action_space.sample()
        (*theirs_gave, _), (*ours_gave, _) = theirs.step(action), ours.step(action)
        shown = [(theirs_gave[0], {}), (ours_gave[0], {})]
        if step < 4:
            np.testing.assert_allclose(ours_gave[1], theirs_gave[1], rtol=1e-3, atol=1e-3)
        np.testing.assert_array_equal(ours_gave[3], theirs_gave[3])
        assert ours_gave[1].dtype == np.float32 and list(ours_gave[3]) == [step == 2] * 2
    theirs.close()


def test_gymnasiums_wrappers_take_it() -> None:
    envs = RecordEpisodeStatistics(TeamVectorEnv("navigation", 2, agents=4, steps=3))
    envs.reset(seed=0)
    for _ in range(3):
        _, _, _, truncated, infos = envs.step(envs.action_space.sample())
    assert truncated.all() and list(infos["episode"]["l"]) == [3, 3]


@every_task
def test_rewards_add_up_to_what_was_gained(task: str) -> None:
    """The default reward: an episode's return is how much better the metric is at its end."""
    env = TeamEnv(task, environments=2, agents=4, steps=4)
    metric = find(task).drawn
    ran = env.rollout(4)
    measured = ran["metrics", metric.name][:, 0, 0], ran["next", "metrics", metric.name][:, -1, 0]
    gained = (measured[1] - measured[0]) * (-1 if metric.lower_is_better else 1)
    for robot in range(4):
        torch.testing.assert_close(ran["next", "agents", "reward"][:, :, robot, 0].sum(1), gained, rtol=0, atol=1e-3)
    assert ran["next", "done"][:, -1].all() and not ran["next", "done"][:, :-1].any()
    assert not ran["next", "terminated"].any()


@every_task
def test_the_mean_of_an_actor_is_the_policy(task: str) -> None:
    """Without chance a rollout in TorchRL is the package's own rollout."""
    env = TeamEnv(task, environments=2, agents=4, steps=4, seed=3)
    shape = tuple(env.observation_spec["agents", "observation"].shape[2:])
    image = {"observation_dim": shape, "perception": "cnn"} if len(shape) == 3 else {"observation_dim": shape[0]}
    policy = mast_swarm.Policy(replace(SMALL, **image), seed=1)
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        ran = env.rollout(4, make_actor(policy))
    ours = mast_swarm.rollout(env.episodes.world, policy, env.episodes.seeds, 4)
    for name, values in ours.metrics.items():
        torch.testing.assert_close(ran["next", "metrics", name][..., 0], torch.from_numpy(values[:, 1:]))


def test_chance_is_drawn_around_the_policy_and_its_weights_learn() -> None:
    env = TeamEnv("navigation", environments=64, agents=6, steps=4)
    policy = mast_swarm.Policy(SMALL, seed=1)
    actor = make_actor(policy, scale=0.25)
    assert {id(weight) for weight in policy.parameters()} < {id(weight) for weight in actor.parameters()}
    with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
        seen = env.rollout(4, actor)
    apart = seen["agents", "action"] - seen["agents", "loc"]
    assert float(apart.mean().abs()) < 0.03 and float(apart.std()) == pytest.approx(0.25, abs=0.02)
    likely = torch.distributions.Normal(seen["agents", "loc"], 0.25).log_prob(seen["agents", "action"]).sum(-1)
    torch.testing.assert_close(seen["agents", "action_log_prob"], likely, rtol=1e-4, atol=1e-4)
    actor.train()
    assert not policy.training  # robots' statistics never mix
    actor.get_dist(seen).log_prob(seen["agents", "action"]).sum().backward()
    assert all(weight.grad is not None and torch.isfinite(weight.grad).all() for weight in policy.parameters())


def test_a_critic_may_see_all_goals() -> None:
    env = TeamEnv("navigation", environments=2, agents=4, steps=3)
    critic = make_critic(replace(SMALL, variant="C"), seed=2)
    seen = env.rollout(3)
    value = critic(seen)["agents", "state_value"]
    assert value.shape == (2, 3, 4, 1)
    seen["goals"] = seen["goals"] + 30.0
    assert not torch.allclose(critic(seen)["agents", "state_value"], value)


def test_links_that_carry_one_way() -> None:
    env = TeamEnv("navigation", environments=2, agents=8, directed=True, observed=1, steps=2)
    policy = mast_swarm.Policy(replace(SMALL, observation_dim=6), seed=1)
    assert env.observation_spec["agents", "component"].dtype == torch.bool
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        ran = env.rollout(2, make_actor(policy))
    given = policy.inputs(env.episodes.world.observe(env.episodes.world.reset(env.episodes.seeds)))
    torch.testing.assert_close(ran["agents", "loc"][:, 0], policy(**given))


@given(among=st.lists(st.booleans(), min_size=3, max_size=3), steps=st.integers(1, 3))
@settings(max_examples=15, deadline=None)
def test_some_environments_begin_again(among: list[bool], steps: int) -> None:
    """The others go on as if nothing had happened."""
    with own_tasks():
        env, alone = (Episodes(strolling(), 3, agents=4, seed=1) for _ in range(2))
    for each in (env, alone):
        each.reset([0, 1, 2])
    command = torch.full((3, 4, 2), 0.3)
    for each in (env, alone):
        for _ in range(steps):
            each.step(command)
    chosen = torch.tensor(among)
    env.reset([7 + n for n in range(sum(among))], among=chosen)
    fresh = env.world.reset([7 + n for n in range(sum(among))]) if any(among) else None
    for name, value in vars(env.state).items():
        torch.testing.assert_close(value[~chosen], getattr(alone.state, name)[~chosen], rtol=0, atol=0)
        if fresh is not None:
            torch.testing.assert_close(value[chosen], getattr(fresh, name), rtol=0, atol=0)
    assert env.state.step.tolist() == [0 if again else steps for again in among]
    assert env.seeds == [7 + sum(among[:n]) if again else n for n, again in enumerate(among)]
    torch.testing.assert_close(env.observation.features, env.world.observe(env.state).features, rtol=0, atol=0)


def test_torchrl_resets_some_environments() -> None:
    env = TeamEnv(strolling(), environments=3, agents=4, steps=9)
    last = env.rollout(2)["next"][:, -1].clone()
    before = last["agents", "position"].clone()
    again = env.reset(last.set("_reset", torch.tensor([[True], [False], [True]])))
    torch.testing.assert_close(again["agents", "position"][1], before[1], rtol=0, atol=0)
    assert not torch.equal(again["agents", "position"][0], before[0])
    assert env.episodes.state.step.tolist() == [0, 2, 0]


def test_torchrls_collector_runs_episode_after_episode() -> None:
    env = TeamEnv(strolling(), environments=2, agents=4, steps=3)
    actor = make_actor(mast_swarm.Policy(replace(SMALL, observation_dim=4), seed=1))
    collector = Collector(env, actor, frames_per_batch=16, total_frames=32)
    batches = [batch.clone() for batch in collector]
    collector.shutdown()
    assert len(batches) == 2
    ends = torch.cat([batch["next", "done"][..., 0] for batch in batches], dim=1)  # [B, 16]
    assert ends.sum(1).tolist() == [5, 5] and ends[0].nonzero()[:, 0].tolist() == [2, 5, 8, 11, 14]
    apart = batches[0]["agents", "action"] - batches[0]["agents", "loc"]
    assert float(apart.std()) > 0.2  # it collects with chance


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("torchrl", "tensordict", "torchrl"), ("pettingzoo", "pettingzoo", "pettingzoo"), ("gymnasium",) * 3],
)
def test_without_the_package(module: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"mast_swarm.interop.{module}")
    with pytest.raises(MastError, match=rf"this needs the package {package}: pip install 'mast-swarm\[{extra}\]'"):
        importlib.import_module(f"mast_swarm.interop.{module}")


def test_seeds_decide_all_starts() -> None:
    starts = []
    for _ in range(2):
        env = TeamEnv("navigation", environments=2, agents=4, steps=2)
        env.set_seed(11)
        starts.append([env.reset()["agents", "position"] for _ in range(3)])
    torch.testing.assert_close(torch.stack(starts[0]), torch.stack(starts[1]), rtol=0, atol=0)
    assert not torch.equal(starts[0][0], starts[0][1])
    world = env.episodes.world
    places = np.stack([info["position"] for info in TeamParallelEnv(world).reset(seed=4)[1].values()])
    np.testing.assert_array_equal(places, world.reset([4]).positions[0].numpy())


@pytest.mark.parametrize("kind", [GymnasiumEnv, TeamParallelEnv, lambda *a, **k: TeamVectorEnv(*a, num_envs=2, **k)])
def test_a_seeded_reset_decides_what_is_drawn_later(kind: Any) -> None:
    def drawn(first: int, before: int) -> list[list[int]]:
        env = kind("navigation", agents=4, steps=2)
        for _ in range(before):  # another history
            env.reset()
        env.reset(seed=np.int64(first) if kind not in (GymnasiumEnv, TeamParallelEnv) else first)
        found = []
        for _ in range(3):
            env.reset()
            found.append(list(env.episodes.seeds))
        return found

    assert drawn(5, 0) == drawn(5, 3) != drawn(6, 0)


def test_what_is_handed_out_is_not_the_world_itself() -> None:
    several = TeamParallelEnv("navigation", agents=4, steps=5)
    seen, told = several.reset(seed=1)
    env = TeamEnv("navigation", environments=2, agents=4, steps=5)
    given = env.reset()
    before = [one.episodes.state.positions.clone() for one in (several, env)]
    seen["robot_0"][:] = 1e6
    told["robot_0"]["position"][:] = 1e6
    for name in ("position", "observation", "landmark"):
        given["agents", name].fill_(1e6)
    given["goals"].fill_(1e6)
    after = [one.episodes.state.positions for one in (several, env)]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert float(env.episodes.state.goals.abs().max()) < 1e5


def test_starts_that_are_impossible_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    world = mast_swarm.Navigation(mast_swarm.NavigationConfig(agents=4))
    draw = world.draw

    def picky(seed: int, scenario: str) -> Any:
        if seed % 2:
            raise MastError("no place")
        return draw(seed, scenario)

    monkeypatch.setattr(world, "draw", picky)
    env = Episodes(world, 8)
    assert len(env.seeds) == 8 and not any(seed % 2 for seed in env.seeds)
    with pytest.raises(MastError, match="no place"):
        env.reset([1] * 8)


def test_what_a_robot_is_told() -> None:
    env = TeamParallelEnv("navigation", agents=6)
    seen, infos = env.reset(seed=2)
    state = env.episodes.world.reset([2])
    observation = env.episodes.world.observe(state)
    links = observation.graph.adjacency()[0]
    for i, name in enumerate(env.agents):
        np.testing.assert_array_equal(seen[name], observation.features[0, i].numpy())
        assert infos[name]["hears"] == [other for j, other in enumerate(env.agents) if links[i, j] and j != i]
        assert infos[name]["success_rate"] == float(env.episodes.world.metrics(state)["success_rate"][0])
    with pytest.raises(MastError, match="unknown robot that can act 'robot_9'"):
        env.step({"robot_9": np.zeros(2, dtype=np.float32)})
    with pytest.raises(MastError, match="no command for robot_1: give every robot one"):
        env.step({"robot_0": np.zeros(2, dtype=np.float32)})


def near_the_middle(world: Any, before: Any, command: torch.Tensor, after: Any) -> torch.Tensor:
    return before.positions.norm(dim=-1) - after.positions.norm(dim=-1)  # [B, N]


def test_a_reward_of_its_own() -> None:
    task = replace(strolling(), reward=near_the_middle)
    check_world(task.make(), task)
    env = TeamEnv(task, environments=2, steps=3)
    ran = env.rollout(3)
    gone = ran["agents", "position"].norm(dim=-1) - ran["next", "agents", "position"].norm(dim=-1)
    torch.testing.assert_close(ran["next", "agents", "reward"][..., 0], gone)
    parallel, single = TeamParallelEnv(task), GymnasiumEnv(task)
    parallel.reset(seed=0)
    single.reset(seed=0)
    command = np.full((5, 2), 0.5, dtype=np.float32)
    paid = parallel.step(dict(zip(parallel.agents, command, strict=True)))[1]
    assert len(set(paid.values())) > 1  # each robot its own
    assert single.step(command)[1] == pytest.approx(np.mean(list(paid.values())), abs=1e-5)


@pytest.mark.parametrize(
    ("wrong", "finding"),
    [
        (lambda *given: 1.0, "the task's reward is float: expected a tensor [3] or [3, 5]"),
        (lambda *given: torch.zeros(2), "the task's reward is [2]: expected a tensor [3] or [3, 5]"),
        (lambda *given: torch.full((3,), torch.nan), "the task's reward is not finite"),
    ],
)
def test_a_reward_is_checked(wrong: Any, finding: str) -> None:
    task = replace(strolling(), reward=wrong)
    with pytest.raises(MastError) as told:
        check_world(task.make(), task)
    assert str(told.value).splitlines()[1:] == [f"- metrics are finite numbers: {finding}"]


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda: TeamEnv("navigation", agent=4), "unknown setting of navigation 'agent': did you mean agents"),
        (lambda: TeamEnv("nowhere"), "unknown task 'nowhere'"),
        (lambda: TeamEnv("navigation", environments=0), "0 environments of 200 steps: give 1 or more of each"),
        (lambda: TeamEnv("navigation", agents=4, seed=-1), "seed is -1: give a whole number"),
        (lambda: TeamEnv(strolling().make(Config()), agents=4), "agents is given beside a world"),
        (lambda: Episodes("navigation", 2, agents=4).reset([1]), "1 seeds for 2 environments: give one for each"),
        (
            lambda: make_actor(mast_swarm.Policy(replace(SMALL, exploration_time=20.0))),
            "the policy explores, so that its prediction is no command",
        ),
        (
            lambda: make_actor(LPAC(LPACConfig(layers=1, width=8))),  # type: ignore[arg-type]
            "a policy of kind lpac is no TorchRL actor: give a MAST policy",
        ),
        (lambda: make_actor(mast_swarm.Policy(SMALL), scale=0.0), "scale is 0.0: give a positive number"),
        (lambda: TeamVectorEnv("navigation", 2, agents=4).reset(seed=[1, None]), "some environments are given no seed"),
        (lambda: TeamParallelEnv("navigation", agents=4).step({}), "the episode is over, or has not begun: call reset"),
    ],
)
def test_bad_input_is_one_clear_line(make: Any, line: str) -> None:
    mast_swarm.register(strolling())
    with pytest.raises(MastError, match=line) as told:
        make()
    assert "\n" not in str(told.value)
