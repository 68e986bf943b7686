"""Tasks as TorchRL environments, and MAST policies as TensorDict modules that TorchRL trains.

    env = TeamEnv("navigation", environments=32, agents=10)
    policy = Policy(PolicyConfig(task="navigation", attention_radius=100.0))
    env.rollout(100, make_actor(policy))

Keys of the robots, B environments of N, lie under "agents", as in TorchRL's own environments for teams: observation
[B, N, ...], position and landmark [B, N, 2] metres, hears [B, N, N] bool, component [B, N] int64 (of directed links
[B, N, N] bool: whose news can reach whom), action [B, N, 2] in units of max_speed, and reward [B, N, 1]. "goals"
[B, G, 2] metres are there where the task has some: a critic may see them. The task's metrics are under "metrics", each
[B, 1].
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from mast_swarm.errors import MastError
from mast_swarm.interop.episodes import Episodes
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.learned import Learned, seeded
from mast_swarm.model.policy import Policy
from mast_swarm.space import components, reachable
from mast_swarm.tasks.base import Task
from mast_swarm.tasks.world import World

try:
    from tensordict import TensorDict, TensorDictBase
    from tensordict.nn import TensorDictModule
    from torchrl.data import Binary, Bounded, Composite, Unbounded
    from torchrl.envs import EnvBase
    from torchrl.modules import IndependentNormal, ProbabilisticActor
except ImportError as error:
    raise MastError(f"this needs the package {error.name}: pip install 'mast-swarm[torchrl]'") from None

TEAM = "agents"  # what TorchRL calls the group of all robots


class TeamEnv(EnvBase):
    """B environments of a task as one batched TorchRL environment, on a CPU or a GPU.

    The arguments are those of `Episodes`. `set_seed` decides all start states that follow; a reset of some of the
    environments ("_reset") leaves the others where they are. Episodes end by truncation.
    """

    def __init__(
        self,
        task: str | Task | World[Any, Any],
        environments: int = 1,
        *,
        steps: int | None = None,
        seed: int = 0,
        device: torch.device | str = "cpu",
        **settings: Any,
    ) -> None:
        self.episodes = Episodes(task, environments, steps=steps, seed=seed, device=device, **settings)
        super().__init__(device=self.episodes.world.device, batch_size=(environments,))
        batch, agents, here = environments, self.episodes.agents, self.device
        seen = self._seen()
        action = Bounded(-1.0, 1.0, shape=(batch, agents, 2), device=here)
        reward = Unbounded(shape=(batch, agents, 1), device=here)
        flag = Binary(1, shape=(batch, 1), dtype=torch.bool, device=here)
        self.observation_spec = _spec(seen)
        self.action_spec = _group(batch, agents, here, action=action)
        self.reward_spec = _group(batch, agents, here, reward=reward)
        self.done_spec = Composite(
            done=flag.clone(), terminated=flag.clone(), truncated=flag.clone(), shape=(batch,), device=here
        )

    def _seen(self) -> TensorDict:
        """What there is to see now."""
        episodes, observation = self.episodes, self.episodes.observation
        batch, agents, graph = episodes.environments, episodes.agents, observation.graph
        team = {
            "observation": observation.features.clone(),  # whoever writes to it changes no world
            "position": observation.positions.clone(),
            "landmark": observation.landmark.clone(),
            "hears": graph.adjacency(),
            "component": reachable(graph) if graph.directed else components(graph),
        }
        metrics = {name: value.float()[:, None] for name, value in episodes.metrics.items()}
        found: dict[str, Any] = {
            TEAM: TensorDict(team, batch_size=(batch, agents)),
            "metrics": TensorDict(metrics, batch_size=(batch,)),
        }
        if observation.goals is not None:
            found["goals"] = observation.goals.clone()
        return TensorDict(found, batch_size=(batch,), device=self.device)

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
        some = None if tensordict is None else tensordict.get("_reset", None)
        self.episodes.reset(among=None if some is None else some.reshape(-1))
        return self._with_end()

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        reward = self.episodes.step(tensordict.get((TEAM, "action")))
        return self._with_end().set((TEAM, "reward"), reward[..., None])

    def _with_end(self) -> TensorDict:
        over = self.episodes.ended[:, None].to(self.device)
        return self._seen().update({"done": over, "terminated": torch.zeros_like(over), "truncated": over.clone()})

    def _set_seed(self, seed: int | None) -> None:
        if seed is not None:
            self.episodes.seed(seed)


def _group(batch: int, agents: int, device: Any, **specs: Any) -> Composite:
    return Composite({TEAM: Composite(specs, shape=(batch, agents), device=device)}, shape=(batch,), device=device)


def _spec(seen: TensorDictBase) -> Composite:
    """The spec of what a tensordict holds: numbers of any size, and bits."""
    specs: dict[str, Any] = {}
    for name, value in seen.items():
        if isinstance(value, TensorDictBase):
            specs[name] = _spec(value)
        elif value.dtype == torch.bool:
            specs[name] = Binary(value.shape[-1], shape=value.shape, device=value.device, dtype=torch.bool)
        else:
            specs[name] = Unbounded(shape=value.shape, device=value.device, dtype=value.dtype)
    return Composite(specs, shape=seen.batch_size, device=seen.device)


class Forward(nn.Module):
    """A policy's forward pass on the tensors of a `TeamEnv`, with any number of batch dimensions before the robots.

    The policy stays in evaluation mode also while it learns: statistics of a batch norm that run over robots would leak
    information between components (see `Learned`).
    """

    def __init__(self, policy: Policy) -> None:
        super().__init__()
        self.policy = policy

    def train(self, mode: bool = True) -> Forward:
        return super().train(False)

    def forward(self, *seen: Tensor) -> Tensor:
        batch = seen[1].shape[:-2]  # of positions
        return self.policy(*(part.flatten(0, len(batch) - 1) for part in seen)).unflatten(0, batch)


class Spread(nn.Module):
    """Commands are drawn around those of the policy: their mean, and a standard deviation that is learned, per axis."""

    def __init__(self, forward: Forward, scale: float) -> None:
        super().__init__()
        self.mean = forward
        self.log_scale = nn.Parameter(torch.full((2,), math.log(scale)))

    def forward(self, *seen: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.mean(*seen)  # [..., N, 2]
        return mean, self.log_scale.exp().expand_as(mean)


def make_actor(policy: Policy, *, scale: float = 0.5) -> ProbabilisticActor:
    """A policy as a TorchRL actor: commands are normally distributed around those that the policy gives.

    It trains the policy's own weights, so that afterwards `policy.save(folder)` is what every other command takes:
    evaluation over a channel with delays, export, and so on. scale: the standard deviation at first, in units of
    max_speed.
    """
    if not isinstance(policy, Policy):
        kind = policy.config.kind if isinstance(policy, Learned) else type(policy).__name__
        raise MastError(f"a policy of kind {kind} is no TorchRL actor: give a MAST policy")
    if policy.config.exploration_time is not None:
        raise MastError(
            "the policy explores, so that its prediction is no command: make one with exploration_time=None"
        )
    if scale <= 0:
        raise MastError(f"scale is {scale}: give a positive number of max_speeds")
    module = TensorDictModule(
        Spread(Forward(policy), scale).to(next(policy.parameters()).device),
        in_keys=_in_keys(policy.config),
        out_keys=[(TEAM, "loc"), (TEAM, "scale")],
    )
    return ProbabilisticActor(
        module,
        in_keys={"loc": (TEAM, "loc"), "scale": (TEAM, "scale")},
        out_keys=[(TEAM, "action")],
        distribution_class=IndependentNormal,
        distribution_kwargs={"upscale": 1.0},
        return_log_prob=True,
        log_prob_key=(TEAM, "action_log_prob"),
    )


def make_critic(config: PolicyConfig, *, seed: int = 0) -> TensorDictModule:
    """A network like a policy of these settings that gives each robot's value, ("agents", "state_value") [..., N, 1].

    It may see more than an actor does: with variant L it attends over gaps in the network, with C it sees all goals.
    """
    policy = Policy(config, seed=seed)
    last = policy.head[-1]
    assert isinstance(last, nn.Linear)
    with seeded(seed):
        policy.head[-1] = nn.Linear(last.in_features, 1)
    return TensorDictModule(Forward(policy), in_keys=_in_keys(config), out_keys=[(TEAM, "state_value")])


def _in_keys(config: PolicyConfig) -> list[Any]:
    """What `Policy.forward` takes, in its order."""
    keys: list[Any] = [(TEAM, "observation"), (TEAM, "position"), (TEAM, "component")]
    return [*keys, "goals"] if config.variant == "C" else keys
