"""Where the settings of a training run for coverage start. No torch here: the command line reads these."""

from __future__ import annotations

from dataclasses import replace

from mast_swarm.model.config import LPACConfig, PolicyConfig
from mast_swarm.tasks.coverage.config import CoverageConfig
from mast_swarm.train.config import TrainConfig

MAST = PolicyConfig(
    task="coverage",
    layers=8,
    heads=8,
    head_dim=32,
    message_dim=32,
    attention_radius=256.0,
    wavelength=1024.0,
    observation_dim=(4, 32, 32),
    perception="cnn",
)
"""The paper's MAST-M for coverage: messages of 32 floats, lifted to d = 256 at the receiver."""
LPAC = LPACConfig(task="coverage")
POLICIES = {config.kind: config for config in (MAST, LPAC)}
"""What there is to learn, by kind, with the paper's sizes."""

# 100,000 samples of the expert's own rollouts, one every 5 steps, then 100 passes over them.
PAPER = TrainConfig(
    world=CoverageConfig(),
    policy=MAST,
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
BEST = replace(
    PAPER,
    world=CoverageConfig(dt=1.0, seen_map=True),
    policy=replace(MAST, observation_dim=(5, 32, 32), action_scale=5.0),
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
TINY = replace(
    BEST,
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
        MAST,
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
RECIPES: dict[str, TrainConfig] = {
    "paper": PAPER,
    "best": BEST,
    # The baseline on the paper's four maps, and with the fifth as well. All else is as MAST-M has it, but for the
    # weight decay, which is that of its own paper.
    "lpac-k3": replace(
        BEST,
        world=CoverageConfig(dt=1.0),
        policy=replace(LPAC, action_scale=5.0),
        weight_decay=1e-3,
    ),
    "lpac-k3-seen": replace(
        BEST, policy=replace(LPAC, observation_dim=(5, 32, 32), action_scale=5.0), weight_decay=1e-3
    ),
    "tiny": TINY,
}
