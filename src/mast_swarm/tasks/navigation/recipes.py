"""Where the settings of a training run for navigation start. No torch here: the command line reads these."""

from __future__ import annotations

from dataclasses import replace

from mast_swarm.model.config import PolicyConfig
from mast_swarm.tasks.navigation.config import NavigationConfig
from mast_swarm.train.config import TrainConfig

MAST = PolicyConfig(task="navigation")
PAPER = TrainConfig(world=NavigationConfig(), policy=MAST)
# An expert that knows no more than the robots can leaves nothing to guess, and makes them quicker early; exploration
# finds the goals that are left late. All else together makes no clear difference: see the ablation in docs/training.md.
_EXPLORING = replace(MAST, exploration_time=100.0)
BEST = replace(
    PAPER,
    policy=_EXPLORING,
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
)
_OTHERS = ("clusters-20", "clusters-25", "circle", "two-lines", "text:MAST", "text:SWARM")
# As `best`, and further: robots decide rather than average, half of the start states are of other kinds, and robots
# that explore remember where they have been.
_REMEMBERING = replace(_EXPLORING, exploration_memory=80)
WIDE = replace(
    BEST,
    policy=_REMEMBERING,
    loss="norm",
    scenarios=("clusters",) * len(_OTHERS) + _OTHERS,
)
RECIPES: dict[str, TrainConfig] = {
    "paper": PAPER,
    # What the trials of a search start from: the paper searched with MLP encodings and no window, so as to favour none
    # of its own.
    "search": replace(PAPER, policy=replace(MAST, encoding="mlp", attention_radius=None), epochs=100),
    "best": BEST,
    "wide": WIDE,
    # As `wide`, with a better expert: near goals come first, and robots without a goal part from each other. The map
    # that its robots share is no part of training.
    "sharp": replace(
        WIDE, policy=replace(_REMEMBERING, exploration_push=4.0, exploration_survey=25.0), expert="searcher-250"
    ),
    # Small enough for two CPU cores and three minutes; it shows that learning works, not how well it can.
    "tiny": replace(
        PAPER,
        world=NavigationConfig(agents=16, scenario="clusters-1"),
        policy=replace(MAST, layers=2, heads=2, head_dim=32, exploration_time=100.0),
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
POLICIES = {MAST.kind: MAST}
"""What there is to learn, by kind, with the paper's sizes."""
