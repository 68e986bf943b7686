"""Settings of a training run, and the recipes. No torch here: the command line reads these for its help."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import tyro

from mast_swarm.errors import MastError, unknown
from mast_swarm.model.config import PolicyConfig
from mast_swarm.world.config import NavigationConfig

# Every start state of every run has a seed of its own; these limits keep the seeds apart (see train/team.py).
MOST_EPOCHS, MOST_ENVIRONMENTS, MOST_SEED = 2**20, 2**12, 99_999


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
    expert: Literal["clairvoyant", "informed"] = "clairvoyant"
    """Who is imitated: clairvoyant sees everything; informed knows what a robot's component knows, and explores."""
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
        for name, most in _COUNTS.items():
            value, flag = getattr(self, name), f"--{name.replace('_', '-')}"
            if value < 1:
                raise MastError(f"{flag} is {value}: give a whole number from 1")
            if most is not None and value > most:
                raise MastError(f"{flag} is {value}: give at most {most}")
        for name in ("carry", "expert_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise MastError(f"--{name.replace('_', '-')} is {getattr(self, name)}: give a share from 0 to 1")
        if not (0 < self.lr < math.inf and 0 <= self.weight_decay < math.inf):
            raise MastError(
                f"--lr {self.lr} and --weight-decay {self.weight_decay}: give a positive rate and decay >= 0"
            )
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise MastError(f"--clip is {self.clip}: give a positive gradient norm, as 1, or leave it unset")
        if self.ema is not None and not 0 < self.ema < 1:
            raise MastError(f"--ema is {self.ema}: give a decay between 0 and 1, as 0.999")
        if self.replay < self.environments:
            raise MastError(f"--replay {self.replay} does not hold one step of {self.environments} environments")
        if not 0 <= self.seed <= MOST_SEED:
            raise MastError(f"--seed is {self.seed}: give a whole number from 0 to {MOST_SEED}")
        if self.policy.observation_shape != self.world.observation_shape:
            raise MastError(
                f"the policy takes {self.policy.observation_dim} observed numbers, the world gives "
                f"{self.world.observation_dim}: set --observation-dim to match --observed"
            )


_COUNTS = {  # whole numbers from 1 up to what is said here
    "epochs": MOST_EPOCHS,
    "environments": MOST_ENVIRONMENTS,
    **dict.fromkeys(("steps", "replay", "batch", "updates", "validation", "validation_steps", "validate_every")),
}

PAPER = TrainConfig()
RECIPES: dict[str, TrainConfig] = {
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


def recipe(name: str) -> TrainConfig:
    """A recipe by name."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES)
    return RECIPES[name]


def from_toml(path: Path, base: TrainConfig) -> TrainConfig:
    """`base` with what a TOML file says in place of its own settings.

    Settings of the world and of the policy stand in tables [world] and [policy]; "none" unsets an optional one.
    """
    try:
        with open(path, "rb") as file:
            given = tomllib.load(file)
    except OSError as error:
        raise MastError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:  # not TOML, or not even text
        raise MastError(f"{path} is not TOML: {error}") from None
    try:
        return changed(base, given)
    except MastError as error:
        raise MastError(f"{path}: {error}") from None


def from_run(folder: Path) -> TrainConfig:
    """The settings of the run in a folder."""
    path = folder / "config.json"
    try:
        return changed(PAPER, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise MastError(f"no run in {folder}: nothing to resume; start with `mast train TASK --out DIR`") from None
    except (OSError, ValueError) as error:  # a MastError is a ValueError
        raise MastError(f"cannot read the settings of a run from {path}: {error}") from None


def plain(config: TrainConfig) -> dict[str, Any]:
    """The settings as JSON holds them; `changed(PAPER, ...)` of it gives them back."""
    return json.loads(json.dumps(asdict(config)))


_Config = TypeVar("_Config", TrainConfig, NavigationConfig, PolicyConfig)


def changed(base: _Config, given: Mapping[str, Any], table: str = "") -> _Config:
    """`base` with the given settings in place of its own; a dict where a setting is itself a table of settings."""
    if not isinstance(given, Mapping):
        raise MastError(f"{table.rstrip('.') or 'the whole'} is {given!r}: expected a table of settings")
    kinds = get_type_hints(type(base))
    new: dict[str, Any] = {}
    for key, value in given.items():
        name = f"{table}{key}"
        if key not in kinds:
            raise unknown("setting", name, _names(base, table))
        if is_dataclass(kinds[key]):
            new[key] = changed(getattr(base, key), value, f"{name}.")
        else:
            new[key] = _checked(name, kinds[key], value)
    return replace(base, **new)


def _names(base: Any, table: str = "") -> list[str]:
    """The settings, those of tables as `table.setting`."""
    found: list[str] = []
    for f in fields(base):
        own = getattr(base, f.name)
        found += _names(own, f"{table}{f.name}.") if is_dataclass(own) else [f"{table}{f.name}"]
    return found


def _checked(name: str, kind: Any, value: Any) -> Any:
    """The value of a setting if it is of the kind that its dataclass declares."""
    options = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    if NoneType in options and (value is None or value in ("none", "None")):
        return None
    for option in options:
        if option is float and type(value) in (int, float):
            return float(value)
        if type(value) is option or (get_origin(option) is Literal and value in get_args(option)):
            return value
    expected = " or ".join(_WORDS.get(option) or " or ".join(map(repr, get_args(option))) for option in options)
    raise MastError(f"{name} is {value!r}: expected {expected}")


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: '"none"'}
