"""Settings of a training run, and the recipes. No torch here: the command line reads these for its help."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import tyro

from mast_swarm.errors import MastError, unknown
from mast_swarm.model.config import PolicyConfig
from mast_swarm.world.config import NavigationConfig


@dataclass(frozen=True)
class TrainConfig:
    """Learn a policy by imitation of the expert that sees everything. Defaults: the paper's recipe."""

    world: Annotated[NavigationConfig, tyro.conf.arg(name="")] = field(default_factory=NavigationConfig)
    """The world."""
    policy: Annotated[PolicyConfig, tyro.conf.arg(name="")] = field(default_factory=PolicyConfig)
    """The policy."""
    epochs: int = 500
    """Rounds of rollouts and updates."""
    environments: int = 32
    """Environments rolled out at once (over all processes)."""
    steps: int = 200
    """Control periods an epoch; after each one batch is learned."""
    carry: float = 0.0
    """Share of environments (but for those the expert drove) that go on where the last epoch left them."""
    expert_share: float = 0.5
    """Probability that the expert drives an environment in an epoch; the policy drives the others."""
    replay: int = 20_000
    """Samples kept (one sample: one environment at one instant)."""
    batch: int = 128
    """Samples an update (over all processes)."""
    updates: int = 1
    """Updates a control period."""
    lr: float = 1e-4
    """Learning rate of AdamW (its peak, where it is scheduled)."""
    schedule: Literal["constant", "cosine"] = "constant"
    """constant, or cosine: 2 % linear warm-up, then half a cosine down to 1 % at the last update."""
    weight_decay: float = 0.0
    """Weight decay of AdamW."""
    clip: float | None = None
    """Largest gradient norm; unset: no clipping."""
    ema: float | None = None
    """Decay of the averaged weights that are validated and shipped; unset: the last weights."""
    precision: Literal["fp32", "bf16"] = "bf16"
    """Arithmetic of the network on a GPU (weights, positions and phases stay fp32); the CPU uses fp32."""
    validation: int = 32
    """Environments of the validation rollout after each epoch."""
    validation_steps: int = 200
    """Control periods of the validation rollout."""
    validate_every: int = 1
    """Epochs between two validations."""
    seed: int = 0
    """Decides everything random: weights, start states, drivers, batches."""

    def __post_init__(self) -> None:
        least_one = (
            "epochs",
            "environments",
            "steps",
            "replay",
            "batch",
            "updates",
            "validation",
            "validation_steps",
        )
        for name in (*least_one, "validate_every"):
            if getattr(self, name) < 1:
                raise MastError(f"--{name.replace('_', '-')} is {getattr(self, name)}: give a whole number from 1")
        for name in ("carry", "expert_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise MastError(f"--{name.replace('_', '-')} is {getattr(self, name)}: give a share from 0 to 1")
        if not self.lr > 0 or not self.weight_decay >= 0:
            raise MastError(
                f"--lr {self.lr} and --weight-decay {self.weight_decay}: give a positive rate and decay >= 0"
            )
        if self.ema is not None and not 0 < self.ema < 1:
            raise MastError(f"--ema is {self.ema}: give a decay between 0 and 1, as 0.999")
        if self.replay < self.environments:
            raise MastError(f"--replay {self.replay} does not hold one step of {self.environments} environments")
        if self.seed < 0:
            raise MastError(f"--seed is {self.seed}: give a whole number, 0 or more")
        if self.policy.observation_dim != self.world.observation_dim:
            raise MastError(
                f"the policy takes {self.policy.observation_dim} observed numbers, the world gives "
                f"{self.world.observation_dim}: set --observation-dim to match --observed"
            )


PAPER = TrainConfig()
RECIPES: dict[str, TrainConfig] = {
    "paper": PAPER,
    # A larger and more varied replay is what the paper's recipe lacks most, then the late states of an episode.
    "best": replace(
        PAPER,
        policy=PolicyConfig(exploration_time=100.0),
        epochs=800,
        environments=96,
        carry=0.75,
        expert_share=0.2,
        replay=1_000_000,
        batch=192,
        lr=4e-4,
        schedule="cosine",
        clip=1.0,
        ema=0.9995,
        validation=90,
        validation_steps=400,
        validate_every=20,
    ),
    # Small enough for two CPU cores and three minutes; it shows that learning works, not how well it can.
    "tiny": replace(
        PAPER,
        world=NavigationConfig(agents=20, scenario="clusters-1"),
        policy=PolicyConfig(layers=2, heads=2, head_dim=32, exploration_time=100.0),
        epochs=20,
        environments=16,
        steps=100,
        expert_share=0.5,
        replay=20_000,
        batch=64,
        lr=1e-3,
        schedule="cosine",
        clip=1.0,
        validation=32,
        validation_steps=100,
        validate_every=5,
    ),
}


def recipe(name: str) -> TrainConfig:
    """A recipe by name."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]
