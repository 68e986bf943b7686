"""Settings of an evaluation. No torch here: the command line reads these for its help."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro

from mast_swarm.errors import MastError, unknown
from mast_swarm.tasks.base import Task, WorldConfig

_MOST = 1_000_000  # episodes of one seed, and seeds: no two share a start state, and training draws from 2**40 up
_UNSET = tyro.conf.arg(help_behavior_hint="")  # the help says what happens without a value
Precision = Literal["auto", "fp32", "bf16"]
_World = Annotated[WorldConfig, tyro.conf.arg(name="")]  # the command line has the settings of the one that it is


@dataclass(frozen=True)
class EvaluateConfig:
    """Roll policies out on the same start states; write tables, a summary and curves to a folder."""

    world: _World
    """The world."""
    policy: tuple[str, ...]
    """Controllers and shipped policies (see `mast list`), policy folders, or file.py:NAME for a controller of yours."""
    episodes: int = 54
    """Start states. A scenario with variants goes round them."""
    steps: int = 200
    """Control periods per episode."""
    delay: Annotated[float | None, _UNSET, tyro.conf.DisallowNone] = None
    """Seconds that a message takes per hop: every robot decides alone. Unset: learned policies run centrally, and
    robots of controllers that talk hear at once."""
    loss: float = 0.0
    """Probability that a link loses a transmission (with --delay)."""
    failure: float = 0.0
    """Probability that a robot fails for good in a control period (with --delay); the same robots for every policy."""
    relay_radius: Annotated[float | Literal["auto"] | None, _UNSET, tyro.conf.DisallowNone] = None
    """Metres: robots neither keep nor pass on news from farther away (with --delay). Unset: from anywhere. auto: as far
    as each policy looks, and what robots move meanwhile."""
    max_age: Annotated[float | None, _UNSET, tyro.conf.DisallowNone] = None
    """Seconds: robots forget older news and do not pass it on (with --delay). Unset: news of any age counts."""
    safe: bool = False
    """Every robot runs the safety layer after its policy: none hits another that did not touch it at the start."""
    seed: int = 0
    """Chooses the start states (training never sees any of them), losses and failures."""
    record: int = 0
    """Keep this many episodes for `mast replay`."""
    out: Annotated[Path | None, _UNSET, tyro.conf.DisallowNone] = None
    """Folder for the results; unset: a new one under runs/."""
    resume: bool = False
    """Go on with a run that was stopped: what is finished in --out is kept."""
    batch: Annotated[int | None, _UNSET, tyro.conf.DisallowNone] = None
    """Environments at once; unset: chosen from the team's size and the device."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where worlds and learned policies run."""
    jobs: int = 1
    """Batches of episodes at a time, each in a process of its own with its share of the cores: on a CPU one per core is
    quickest, where there is work for minutes."""
    ray: Annotated[str | None, _UNSET, tyro.conf.DisallowNone] = None
    """HOST:PORT of a Ray cluster on which batches of episodes run, or auto; unset: on this machine."""
    gpus: float = 0.0
    """GPUs (or a share of one) that a batch asks of the Ray cluster."""
    precision: Precision = "auto"
    """Arithmetic of learned policies' products (positions and phases stay fp32); auto: bf16 on a GPU, fp32 on a CPU
    (with --ray: bf16 where --gpus asks for any). bf16 is faster on CPUs too that have instructions for it."""

    def __post_init__(self) -> None:
        self.world.check_apart("mast evaluate", vars(self))
        for given in self.policy:
            if not isinstance(given, str):
                raise MastError(
                    f"a policy is {getattr(given, '__name__', 'of type ' + type(given).__name__)}, but results on disk "
                    "call policies by name: put it in a file and give 'path/to/file.py:NAME', or use rollout(world, it)"
                )
        if len(set(self.policy)) != len(self.policy):
            raise MastError(f"a policy was given twice: {' '.join(self.policy)}")
        for name, value, least, most in (
            ("episodes", self.episodes, 1, _MOST),
            ("steps", self.steps, 1, None),
            ("record", self.record, 0, None),
            ("seed", self.seed, 0, _MOST),
            ("batch", 1 if self.batch is None else self.batch, 1, None),
            ("jobs", self.jobs, 1, None),
        ):
            if value < least or (most is not None and value > most):
                limits = f"{least} or more" if most is None else f"{least} to {most}"
                raise MastError(f"--{name} is {value}: give a whole number, {limits}")
        if self.precision not in get_args(Precision):
            raise MastError(f"precision is '{self.precision}': expected {', '.join(get_args(Precision))}")
        if self.delay is not None and not (math.isfinite(self.delay) and self.delay >= 0):
            raise MastError(f"--delay is {self.delay}: give seconds per hop, 0 or more")
        for name, share in (("loss", self.loss), ("failure", self.failure)):
            if not 0 <= share <= 1:
                raise MastError(f"--{name} is {share}: give a probability from 0 to 1")
        limited = (self.relay_radius, self.max_age) != (None, None)
        if self.delay is None and (self.loss or self.failure or limited):
            raise MastError(
                "--loss, --failure, --relay-radius and --max-age act on messages between robots: give --delay too "
                "(0 for instant)"
            )
        if self.resume and self.out is None:
            raise MastError("--resume needs to know which run: give its folder with --out")

    def seeds(self) -> list[int]:
        """One seed per episode. Those of two values of `seed` never overlap."""
        return [self.seed * _MOST + episode for episode in range(self.episodes)]

    def once_each(self) -> EvaluateConfig:
        """No start state twice, where there are fewer than episodes."""
        return replace(self, episodes=min(self.episodes, self.world.start_states or self.episodes))

    def scenarios(self) -> list[str]:
        """One scenario per episode, as the world has it for tests."""
        return self.world.scenarios(self.episodes)


def precision_on(device: str, precision: Precision = "auto") -> Literal["fp32", "bf16"]:
    """What a `Precision` is on a kind of device."""
    usual: Literal["fp32", "bf16"] = "bf16" if device == "cuda" else "fp32"
    return usual if precision == "auto" else precision


TOPICS = {  # how people find the settings
    "what is compared": ("policy", "safe", "episodes", "steps", "seed"),
    "messages": ("delay", "loss", "failure", "relay_radius", "max_age"),
    "results": ("record", "out", "resume"),
    "the machine": ("batch", "jobs", "device", "precision", "ray", "gpus"),
}


def defaults(task: Task) -> EvaluateConfig:
    """What `mast evaluate` does of a task where nothing else is said."""
    return EvaluateConfig(task.Config(), task.default_policies, episodes=task.episodes, steps=task.steps)


_TAKEN: dict[str, Callable[[Any], Any]] = {  # settings that may be given more simply than they are kept
    "policy": lambda given: tuple(given) if isinstance(given, list | tuple) else (given,),
    "out": lambda given: None if given is None else Path(given),
}


def settled(task: Task, **settings: Any) -> EvaluateConfig:
    """An evaluation of a task with these settings, those of its world among them; the rest as on the command line."""
    base = defaults(task)
    own: dict[str, dict[str, Any]] = {"world": {}, "evaluation": {}}
    for name, value in settings.items():
        if name not in (*vars(base.world), *vars(base)):
            raise unknown("setting", name, [*vars(base.world), *vars(base)])
        group = "world" if name in vars(base.world) else "evaluation"
        own[group][name] = _TAKEN.get(name, lambda given: tuple(given) if isinstance(given, list) else given)(value)
    if own["world"]:
        world = replace(own["evaluation"].get("world", base.world), **own["world"])
        own["evaluation"]["world"] = world if "world" in settings else world.completed(own["world"])
    config = replace(base, **own["evaluation"])
    return config if "episodes" in settings else config.once_each()


@dataclass(frozen=True)
class DemoConfig:
    """Two policies on the same start state, side by side in a replay that opens in any browser."""

    world: _World
    """The world."""
    task: str
    """What the team does, as `mast list` shows it, or path/to/file.py:TASK; each has options of its own."""
    steps: int = 200
    """Control periods."""
    seed: int = 0
    """Chooses the start state."""
    policy: Annotated[tuple[str, ...], _UNSET] = ()
    """Who plays, side by side: names from `mast list`, folders, or file.py:NAME; unset: the task's own two."""
    delay: Annotated[float | None, _UNSET, tyro.conf.DisallowNone] = None
    """Seconds that a message takes per hop between robots that run a learned policy; unset: a control period."""
    out: Annotated[Path | None, _UNSET, tyro.conf.DisallowNone] = None
    """Folder for the replay; unset: runs/demo, made anew each time."""

    def __post_init__(self) -> None:
        self.world.check_apart("mast demo", vars(self))

    def evaluation(self, policies: tuple[str, ...], out: Path) -> EvaluateConfig:
        """The evaluation of one episode that makes the demo; policies: whom it shows unless told otherwise."""
        return EvaluateConfig(
            world=self.world,
            policy=self.policy or policies,
            delay=self.world.dt if self.delay is None else self.delay,
            episodes=1,
            steps=self.steps,
            seed=self.seed,
            record=1,
            out=out,
        )


def demo_defaults(task: Task, name: str) -> DemoConfig:
    """What `mast demo` shows of a task, which the command line calls `name`."""
    demo = task.default_demo
    return DemoConfig(demo.config or task.Config(), name, steps=demo.steps)
