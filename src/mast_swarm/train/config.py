"""Settings of a training run, and how files hold them. No torch here: the command line reads these for its help."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from enum import Enum
from inspect import isclass
from pathlib import Path, PurePath
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from mast_swarm.errors import MastError, unknown
from mast_swarm.evaluate.policies import suiting
from mast_swarm.files import plain as plain_setting
from mast_swarm.model.config import MODELS, ModelConfig
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import WorldConfig

# Every start state of every run has a seed of its own; these limits keep the seeds apart (see train/team.py).
MOST_EPOCHS, MOST_ENVIRONMENTS, MOST_SEED = 2**20, 2**12, 99_999
# The command line has the settings of the world and the policy that the recipe holds.
_World = Annotated[WorldConfig, tyro.conf.arg(name="")]
_Policy = Annotated[ModelConfig, tyro.conf.arg(name="")]


@dataclass(frozen=True)
class TrainConfig:
    """Learn a policy by imitation of an expert. Defaults: the paper's recipe where robots decide from few numbers."""

    world: _World
    """The world."""
    policy: _Policy
    """The policy."""
    epochs: int = 500
    """Rounds of rollouts and updates."""
    environments: int = 32
    """Environments rolled out at once (over all processes)."""
    steps: int = 200
    """Control periods per epoch; after each one batch is learned."""
    collect: int = 0
    """Epochs of rollouts alone, which come first; all others then learn alone. 0: every epoch does both."""
    keep_every: int = 1
    """Control periods from one sample that is kept to the next."""
    scenarios: tuple[str, ...] = ()
    """Scenarios that the start states of training go round, one per environment; empty: the world's own."""
    carry: float = 0.0
    """Share of environments (but for those the expert drove) that go on where the last epoch left them."""
    expert: str = ""
    """Who is imitated: any controller of the task, or another name of one; empty: the task's own expert."""
    expert_share: float = 0.5
    """Probability that the expert drives an environment in an epoch; the policy drives the others."""
    loss: Literal["square", "norm"] = "square"
    """Of a command's error: its square, whose least mean is the mean of what the expert might do, or its length, whose
    least mean is their geometric median: rather one of them than between them."""
    target_limit: float = 1.0
    """Longest target, in units of u_max. Above 1 targets tell how far goals are too; the world limits commands to 1."""
    weighted: bool = False
    """Weigh each robot's error by how much rests on it, where the world says that."""
    mirrored: bool = False
    """Learn from each sample as it is or, by chance, as one of its seven mirror images and rotations."""
    replay: int = 20_000
    """Samples kept (one sample: one environment at one instant)."""
    batch: int = 128
    """Samples per update (over all processes)."""
    updates: int = 1
    """Updates per control period; with --collect: passes over all samples per epoch."""
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
    start: Annotated[str, tyro.conf.arg(name="from", help_behavior_hint="")] = ""
    """A trained policy to start from, shipped or a folder: its weights, with a fresh optimiser; unset: random ones."""

    def __post_init__(self) -> None:
        self.world.check_apart("mast train", (*vars(self), "from"))
        for name, most in _COUNTS.items():
            value, flag = getattr(self, name), f"--{name.replace('_', '-')}"
            if value < 1:
                raise MastError(f"{flag} is {value}: give a whole number from 1")
            if most is not None and value > most:
                raise MastError(f"{flag} is {value}: give at most {most}")
        if not 0 <= self.collect < self.epochs:
            raise MastError(f"--collect is {self.collect}: give a number of epochs from 0 to below --epochs")
        if not 1 <= self.target_limit < math.inf:
            raise MastError(f"--target-limit is {self.target_limit}: give a number from 1, the limit of commands")
        for name in ("weighted", "mirrored"):
            if getattr(self, name) and name not in self.world.trains:
                raise MastError(f"--{name}: {self.world.task} has no means for it; leave it out")
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
        if self.collect and self.gathered() < self.batch:
            raise MastError(f"--collect gives {self.gathered()} samples, fewer than one --batch of {self.batch}")
        if not 0 <= self.seed <= MOST_SEED:
            raise MastError(f"--seed is {self.seed}: give a whole number from 0 to {MOST_SEED}")
        task = tasks.task_of(self.world)
        if self.policy.task == "":
            object.__setattr__(self, "policy", changed(self.policy, {"task": task.name}))
        if self.policy.task != task.name:
            raise MastError(f"the policy is for {self.policy.task}, the world is {task.name}'s: give both alike")
        if self.expert and not task.has_controller(task.experts.get(self.expert, self.expert)):
            raise unknown("expert", self.expert, [*task.experts, *task.controllers])
        if getattr(self.policy, "variant", None) == "C" and not self.world.goals:
            raise MastError(f"--variant C is a policy that sees the goals, and {self.world.task} has none: use M or L")
        shown = self.world.observation_shape
        if shown is not None and self.policy.observation_shape != shown:
            asked, given = (" x ".join(map(str, shape)) for shape in (self.policy.observation_shape, shown))
            raise MastError(
                f"the policy takes {asked} observed numbers, the world gives {given}: set --observation-dim to match "
                "what the world's settings make a robot observe"
            )

    def gathers(self, epoch: int) -> bool:
        """Whether an epoch, counted from 0, has rollouts."""
        return not self.collect or epoch < self.collect

    def learns(self, epoch: int) -> bool:
        """Whether an epoch, counted from 0, has updates."""
        return epoch >= self.collect

    def gathered(self, processes: int = 1) -> int:
        """Samples that each of the processes keeps of the epochs of rollouts alone."""
        kept = -(-self.steps // self.keep_every)
        return min(self.replay // processes, self.collect * (self.environments // processes) * kept)

    def updates_an_epoch(self, processes: int = 1) -> int:
        """Updates in an epoch that learns; the very first has nothing yet to learn from in its first step."""
        if not self.collect:
            return self.steps * self.updates
        return self.updates * (self.gathered(processes) // (self.batch // processes))


TOPICS = {  # how people find the settings
    "rollouts": (
        "environments",
        "steps",
        "collect",
        "keep_every",
        "carry",
        "expert",
        "expert_share",
        "target_limit",
        "scenarios",
    ),
    "learning": (
        *("epochs", "from", "replay", "batch", "updates", "lr", "schedule", "weight_decay", "clip", "ema"),
        *("loss", "weighted", "mirrored", "precision", "seed"),
    ),
    "validation": ("validation", "validation_steps", "validate_every"),
}
_COUNTS = {  # whole numbers from 1 up to what is said here
    "epochs": MOST_EPOCHS,
    "environments": MOST_ENVIRONMENTS,
    **dict.fromkeys(("steps", "keep_every", "replay", "batch", "updates")),
    **dict.fromkeys(("validation", "validation_steps", "validate_every")),
}


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
        return from_plain(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise MastError(f"no run in {folder}: nothing to resume; start with `mast train TASK --out DIR`") from None
    except (OSError, ValueError) as error:  # a MastError is a ValueError
        if (folder.parent / "config.json").exists() and folder.name in ("best", "last"):
            raise MastError(f"{folder} is a policy that a run made: give the run, --resume {folder.parent}") from None
        raise MastError(f"cannot read the settings of a run from {path}: {error}") from None


def plain(config: TrainConfig) -> dict[str, Any]:
    """The settings as JSON holds them; the policy says of which kind it is, and for which task."""
    own = {"policy": config.policy.to_dict(), **tasks.source(config.world.task)}
    return json.loads(json.dumps(asdict(config) | own, default=plain_setting))


def from_plain(given: Any) -> TrainConfig:
    """The reverse of `plain`."""
    if isinstance(given, Mapping):
        tasks.recall(given)
        given = {name: value for name, value in given.items() if name != "source"}
    policy = given.get("policy") if isinstance(given, Mapping) else None
    name = policy.get("task") if isinstance(policy, Mapping) else None
    if not isinstance(name, str) or name not in tasks.names():
        raise unknown("setting", f"policy.task = {name}", [f"policy.task = {task}" for task in tasks.names()])
    return changed(next(iter(recipes(tasks.find(name)).values())), given)


def changed(base: Any, given: Any, table: str = "") -> Any:
    """`base`, a TrainConfig or a table of one, with the given settings in place of its own.

    A setting that is itself a table of settings is given as a dict. A policy whose table gives another `kind` starts
    from that kind's own settings, but for what it observes.
    """
    if not isinstance(given, Mapping):
        raise MastError(f"{table.rstrip('.') or 'the whole'} is {given!r}: expected a table of settings")
    if isinstance(base, ModelConfig) and "kind" in given:
        base, given = _of_kind(base, given["kind"], table), {k: v for k, v in given.items() if k != "kind"}
    kinds = get_type_hints(type(base))
    new: dict[str, Any] = {}
    for key, value in given.items():
        name = f"{table}{key}"
        if key not in _names(base):
            raise unknown("setting", name, _all_names(base, table))
        own = getattr(base, key)
        new[key] = changed(own, value, f"{name}.") if is_dataclass(own) else _checked(name, kinds[key], value)
    return replace(base, **new)


def in_tables(base: TrainConfig, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as `changed` takes them, where those of the world and the policy may have come without saying whose they
    are (agents=5), or whole (world=NavigationConfig(agents=5))."""
    found = dict(settings)
    for table in ("world", "policy"):
        own, given = getattr(base, table), found.get(table, {})
        if isinstance(given, WorldConfig | ModelConfig):
            if not isinstance(given, type(own)):
                raise MastError(f"{table} is a {type(given).__name__}: give a {type(own).__name__}")
            given = {name: getattr(given, name) for name in _names(own)}
        if not isinstance(given, Mapping):
            continue  # `changed` says what is wrong
        loose = {name: found.pop(name) for name in _names(own) if name in found and name not in _names(base)}
        if loose or table in found:
            found[table] = {**given, **loose}
    return found


def _of_kind(base: ModelConfig, kind: Any, table: str) -> ModelConfig:
    """The policy itself, or the one of another kind for its task that observes the same."""
    known = kinds(base.task)
    if not isinstance(kind, str) or kind not in known:
        raise unknown("setting", f"{table}kind = {kind}", [f"{table}kind = {name}" for name in known])
    if kind == base.kind:
        return base
    return changed(known[kind], {"observation_dim": base.observation_dim, "perception": base.perception})


def kinds(task: str) -> dict[str, ModelConfig]:
    """The settings that learned policies of a task start from, by kind."""
    return tasks.find(task).part("policies") or {
        kind: model.from_dict({"task": task}) for kind, model in MODELS.items()
    }


def _names(base: Any) -> list[str]:
    return [f.name for f in fields(base)]


def _all_names(base: Any, table: str = "") -> list[str]:
    """The settings, those of tables as `table.setting`."""
    found: list[str] = []
    for name in _names(base):
        own = getattr(base, name)
        found += _all_names(own, f"{table}{name}.") if is_dataclass(own) else [f"{table}{name}"]
    return found


def _checked(name: str, kind: Any, value: Any) -> Any:
    """The value of a setting if it is of the kind that its dataclass declares."""
    options = get_args(kind) if isinstance(kind, UnionType) or get_origin(kind) is Union else (kind,)
    if NoneType in options and (value is None or value in ("none", "None")):
        return None
    for option in options:
        if option is float and type(value) in (int, float):
            return float(value)
        if type(value) is option or (get_origin(option) is Literal and value in get_args(option)):
            return value
        if isclass(option) and issubclass(option, PurePath | Enum) and isinstance(value, str | option):
            return option(value)  # type: ignore[arg-type]
        parts = get_args(option) if get_origin(option) is tuple else ()
        if len(parts) == 2 and parts[1] is Ellipsis and isinstance(value, list | tuple):
            return tuple(_checked(name, parts[0], element) for element in value)
        if parts and isinstance(value, list | tuple) and len(value) == len(parts):
            return tuple(_checked(name, part, element) for part, element in zip(parts, value, strict=True))
    raise MastError(f"{name} is {value!r}: expected {' or '.join(map(_words, options))}")


def _words(kind: Any) -> str:
    """What a kind of value is called."""
    if get_origin(kind) is tuple:
        return f"[{', '.join(map(_words, get_args(kind)))}]"
    return _WORDS.get(kind) or " or ".join(map(repr, get_args(kind)))


_WORDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text", NoneType: '"none"'}


def recipes(task: tasks.Task) -> Mapping[str, TrainConfig]:
    """The recipes of a task by name; of one that brings none, a small one that suits its world."""
    found = task.part("recipes")
    return (found() if callable(found) else found) or {"best": small_recipe(task)}


def recipe(name: str, task: tasks.Task) -> TrainConfig:
    """A recipe of a task by name."""
    found = recipes(task)
    if name not in found:
        raise MastError(f"unknown recipe '{name}': task {task.name} has {', '.join(found)}")
    return found[name]


def small_recipe(task: tasks.Task) -> TrainConfig:
    """For two CPU cores and some minutes: a small policy that suits the task's world."""
    return TrainConfig(
        world=task.Config(),
        policy=suiting(task),
        epochs=25,
        environments=16,
        steps=min(task.steps, 100),
        batch=48,
        lr=3e-3,
        schedule="cosine",
        clip=1.0,
        validation_steps=task.steps,
        validate_every=5,
    )
