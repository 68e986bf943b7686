"""Reinforcement learning: a MAST policy learns a task by PPO, with TorchRL, from the task's reward alone.

python examples/ppo.py --out runs/ppo
python examples/ppo.py --task navigation --agents 4 --out runs/ppo-navigation

Writes ppo.json (settings, curves of every seed, controllers on the same start states), ppo.png, and every seed's policy
as a folder that all other commands take, such as `mast evaluate ... --policy runs/ppo/seed-0 --delay 1`.
"""

import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import tyro
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

import mast_swarm
from mast_swarm.interop.torchrl import TeamEnv, make_actor, make_critic
from mast_swarm.tasks.registry import find


@dataclass(frozen=True)
class Settings:
    """PPO on a small team."""

    task: str = "examples/rendezvous.py:TASK"
    """A task's name, or path/to/file.py:TASK."""
    out: Path = Path("runs/ppo")
    """Folder for what is written."""
    agents: int = 6
    """Robots."""
    steps: int = 40
    """Control periods of an episode."""
    environments: int = 32
    """Episodes per iteration."""
    iterations: int = 40
    """Rollouts, each of which is learned from."""
    seeds: int = 5
    """Runs that differ in weights, start states and chance."""
    passes: int = 3
    """How often each rollout is gone through."""
    minibatch: int = 320
    """Instants of a team in one update."""
    rate: float = 1e-3
    """Learning rate of Adam at first; it falls to 0 in a straight line."""
    gamma: float = 0.97
    """What a reward is worth one control period later."""
    test_every: int = 5
    """Iterations between two tests, without chance, on start states that are never trained on."""
    tests: int = 32
    """Start states of a test."""


def tested(settings: Settings, world: mast_swarm.World, policy: object) -> float:
    """The task's metric at the end of an episode, the mean over the test's start states."""
    ran = mast_swarm.rollout(world, policy, range(settings.tests), settings.steps)
    return float(ran.metrics[find(settings.task).drawn.name][:, -1].mean())


def learn(settings: Settings, seed: int) -> dict[str, list[float]]:
    """One run: the tests' results, and how many instants of a team it had seen by then."""
    torch.manual_seed(seed)
    given = {"steps": settings.steps, "agents": settings.agents}
    env = TeamEnv(settings.task, settings.environments, seed=seed, **given)
    world = env.episodes.world
    features, *image = env.observation_spec["agents", "observation"].shape[2:]
    if image:
        raise SystemExit(
            f"robots of {settings.task} sense images: this example is for tasks whose features are numbers"
        )
    config = mast_swarm.PolicyConfig(
        task=world.task, layers=2, heads=2, head_dim=16, observation_dim=features, wavelength=world.config.side,
        attention_radius=world.config.side,
    )  # fmt: skip
    policy = mast_swarm.Policy(config, seed=seed)
    actor, critic = make_actor(policy), make_critic(config, seed=seed)
    loss = ClipPPOLoss(actor, critic, entropy_coeff=0.0)
    keys = {"reward": ("agents", "reward"), "value": ("agents", "state_value"), "action": ("agents", "action")}
    keys |= {"sample_log_prob": ("agents", "action_log_prob"), "done": ("agents", "done")}
    loss.set_keys(**keys, terminated=("agents", "terminated"))
    advantage = GAE(gamma=settings.gamma, lmbda=0.95, value_network=critic, deactivate_vmap=True)
    advantage.set_keys(**{key: keys[key] for key in ("reward", "value", "done")}, terminated=("agents", "terminated"))
    optimizer = torch.optim.Adam(loss.parameters(), lr=settings.rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, settings.iterations)
    found: dict[str, list[float]] = {"instants": [0], "tested": [tested(settings, world, policy)], "return": []}
    scale = None
    for iteration in range(1, settings.iterations + 1):
        with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
            seen = env.rollout(settings.steps, actor)  # [B, T]
            paid = seen["next", "agents", "reward"]
            found["return"].append(float(paid.sum(1).mean()))
            scale = scale or float(paid.std()) + 1e-8  # rewards of any task become about 1
            seen["next", "agents", "reward"] = paid / scale
            for key in ("done", "terminated"):  # robots end together
                seen["next", "agents", key] = seen["next", key][..., None, :].expand_as(paid)
            advantage(seen)
            gained = seen["advantage"]
            seen["advantage"] = (gained - gained.mean()) / (gained.std() + 1e-8)
        samples = seen.reshape(-1)
        for _ in range(settings.passes):
            for chosen in torch.randperm(len(samples)).split(settings.minibatch):
                losses = loss(samples[chosen])
                optimizer.zero_grad()
                (losses["loss_objective"] + losses["loss_critic"]).backward()
                torch.nn.utils.clip_grad_norm_(loss.parameters(), 1.0)
                optimizer.step()
        schedule.step()
        if iteration % settings.test_every == 0 or iteration == settings.iterations:
            found["instants"].append(iteration * settings.environments * settings.steps)
            found["tested"].append(tested(settings, world, policy))
            print(f"seed {seed} iteration {iteration}: {find(settings.task).drawn.words} {found['tested'][-1]:.3f}")
    policy.save(settings.out / f"seed-{seed}", overwrite=True)
    return found


def draw(result: dict, path: Path) -> None:
    """The curve: the mean over seeds, each seed, and what controllers reach."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 3.8), layout="constrained")
    runs = result["runs"]
    for number, run in enumerate(runs):
        axes.plot(run["instants"], run["tested"], color="tab:blue", alpha=0.35, lw=1, label="" if number else "a seed")
    mean = np.mean([run["tested"] for run in runs], axis=0)
    axes.plot(runs[0]["instants"], mean, color="tab:blue", lw=2, label=f"MAST by PPO, mean of {len(runs)} seeds")
    for style, (name, value) in zip(("--", ":", "-."), result["controllers"].items(), strict=False):
        axes.axhline(value, color="0.35", ls=style, lw=1.2, label=name)
    axes.set(xlabel="instants of a team seen", ylabel=f"{result['metric']} at the end", title=result["title"])
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(path, dpi=130)


def main(settings: Settings) -> None:
    settings.out.mkdir(parents=True, exist_ok=True)
    task, began = find(settings.task), time.perf_counter()
    world = task.make(task.Config(agents=settings.agents))
    result = {
        "title": f"{task.name}: {settings.agents} robots, {settings.steps * world.config.dt:g} s",
        "settings": {
            name: str(value) if isinstance(value, Path) else value for name, value in asdict(settings).items()
        },
        "metric": task.drawn.words,
        "controllers": {name: tested(settings, world, name) for name in task.default_policies},
        "runs": [],
    }
    for seed in range(settings.seeds):  # what is finished is kept, whatever happens to the rest
        result["runs"].append(learn(settings, seed))
        result["seconds"] = round(time.perf_counter() - began, 1)
        (settings.out / "ppo.json").write_text(json.dumps(result, indent=1) + "\n")
        draw(result, settings.out / "ppo.png")
    print(f"result: {settings.out / 'ppo.json'}\ncurve: {settings.out / 'ppo.png'}")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
