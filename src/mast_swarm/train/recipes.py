"""Where the settings of a run start, by task. No torch here: the command line reads these for its help."""

from __future__ import annotations

from dataclasses import replace

from mast_swarm.errors import unknown
from mast_swarm.model.config import COVERAGE, LPACConfig, PolicyConfig
from mast_swarm.train.config import TrainConfig
from mast_swarm.world.config import CoverageConfig, NavigationConfig

PAPER = TrainConfig()
NAVIGATION: dict[str, TrainConfig] = {
    "paper": PAPER,
    # What helps most is an expert that knows no more than the robots can: nothing is then left to guess. After that a
    # larger and more varied replay, and the late states of an episode.
    "best": replace(
        PAPER,
        policy=PolicyConfig(exploration_time=100.0),
        epochs=312,
        environments=96,
        carry=0.6,
        expert="informed",
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
        world=NavigationConfig(agents=16, scenario="clusters-1"),
        policy=PolicyConfig(layers=2, heads=2, head_dim=32, exploration_time=100.0),
        epochs=25,
        environments=16,
        steps=100,
        batch=48,
        lr=3e-3,
        schedule="cosine",
        clip=1.0,
        validation=32,
        validation_steps=100,
        validate_every=5,
    ),
}

# 100,000 samples of the expert's own rollouts, one every 5 steps, then 100 passes over them.
_COVERAGE_PAPER = replace(
    PAPER,
    world=CoverageConfig(),
    policy=COVERAGE,
    epochs=110,
    environments=80,
    steps=625,
    collect=10,
    keep_every=5,
    expert_share=1.0,
    replay=100_000,
    batch=256,
    lr=3.3e-4,
    weight_decay=2e-9,
    validation_steps=600,
    validate_every=20,
)
# On-policy, so that what the policy does wrong is in what it learns from. A fifth map, so that it can tell what is
# empty from what it has yet to look at. Targets that tell how far the centroids are: the mean of commands that are all
# cut to length 1 is short wherever the expert cannot be guessed, and robots that follow it are slow. Errors weighted
# by mass: the weighted mean of the centroids that may be is where a robot serves its cell best; the plain mean counts
# a nearly empty cell, whose centroid may be anywhere, as much as a full one. And many worlds, in few and long steps
# and as mirror images, since the network fits those it has seen far better than others.
_COVERAGE_BEST = replace(
    _COVERAGE_PAPER,
    world=CoverageConfig(dt=1.0, seen_map=True),
    policy=replace(COVERAGE, observation_dim=(5, 32, 32), action_scale=5.0),
    epochs=200,
    environments=64,
    steps=120,
    collect=0,
    keep_every=1,
    expert_share=0.25,
    target_limit=40.0,
    weighted=True,
    mirrored=True,
    replay=400_000,
    batch=64,
    updates=2,
    lr=4e-4,
    schedule="cosine",
    weight_decay=1e-4,
    clip=1.0,
    ema=0.9998,
    validation=64,
    validation_steps=120,
    validate_every=20,
)
# A quarter of the world, for two CPU cores and two minutes.
_COVERAGE_TINY = replace(
    _COVERAGE_BEST,
    world=CoverageConfig(
        agents=8,
        features=8,
        side=256.0,
        resolution=2.0,
        sigma=(10.0, 15.0),
        dt=1.0,
        communication_range=96.0,
        sensor=32.0,
        local_map=96.0,
        pixels=12,
        seen_map=True,
    ),
    policy=replace(
        COVERAGE,
        layers=2,
        heads=2,
        head_dim=32,
        attention_radius=96.0,
        wavelength=256.0,
        observation_dim=(5, 12, 12),
        action_scale=5.0,
    ),
    epochs=20,
    environments=16,
    steps=60,
    target_limit=10.0,
    replay=20_000,
    batch=32,
    updates=1,
    lr=2e-3,
    ema=None,
    validation=32,
    validation_steps=60,
    validate_every=5,
)
RECIPES: dict[str, dict[str, TrainConfig]] = {
    "navigation": NAVIGATION,
    "coverage": {
        "paper": _COVERAGE_PAPER,
        "best": _COVERAGE_BEST,
        # The baseline on the paper's four maps, and with the fifth as well. All else is as MAST-M has it, but for the
        # weight decay, which is that of its own paper.
        "lpac-k3": replace(
            _COVERAGE_BEST,
            world=CoverageConfig(dt=1.0),
            policy=LPACConfig(action_scale=5.0),
            weight_decay=1e-3,
        ),
        "lpac-k3-seen": replace(
            _COVERAGE_BEST, policy=LPACConfig(observation_dim=(5, 32, 32), action_scale=5.0), weight_decay=1e-3
        ),
        "tiny": _COVERAGE_TINY,
    },
}


def recipe(name: str, task: str = "navigation") -> TrainConfig:
    """A recipe of a task by name."""
    if name not in RECIPES[task]:
        raise unknown("recipe", name, RECIPES[task])
    return RECIPES[task][name]
