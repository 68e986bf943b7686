"""Policies by the names that people give them: controllers, shipped policies, folders, and what is in a Python file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast_swarm import zoo
from mast_swarm.errors import MastError, unknown
from mast_swarm.files import read_json
from mast_swarm.model.config import PolicyConfig
from mast_swarm.tasks import DEFAULT
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import WorldConfig

if TYPE_CHECKING:
    from mast_swarm.model.learned import Learned


def load_policy(name: str | Path, task: str = DEFAULT) -> Learned:
    """A learned policy by the name it is shipped under (of `task`'s own the task may be left out), or from a folder."""
    from mast_swarm.model.policy import load_learned

    tasks.find(task)
    return load_learned(find_learned(name, task))


def fitting(config: Any, policies: Sequence[str]) -> Any:
    """The settings of a world with all observed that the learned ones of these policies take."""
    from mast_swarm.model.policy import config_of

    task = tasks.task_of(config)
    learned = [name for name in policies if not task.has_controller(name) and not tasks.is_reference(name)]
    return config.fitted(config_of(find_learned(name, task.name)).observation_shape for name in learned)


def find_learned(name: str | Path, task: str) -> str:
    """The full name or the folder of a learned policy; what is none is an error."""
    if not isinstance(name, str | Path):
        raise MastError(f"a policy to load is of type {type(name).__name__}: give a name from `mast list`, or a folder")
    name = str(name)
    shipped, own = _shipped(name, task), tasks.find(task)
    if shipped is None:
        zoo.check_no_run(Path(name))
    if shipped is not None or Path(name).exists():
        return shipped or name
    if own.has_controller(name):
        raise MastError(f"'{name}' is a controller, which has no weights to load: give its name where it is to drive")
    if name.split("/")[0] in tasks.names():
        raise unknown("policy", name, zoo.policies())
    if "/" in name:
        raise MastError(f"there is no policy folder '{name}': give one with config.json and model.safetensors")
    short = [full.removeprefix(f"{task}/") for full in zoo.policies() if full.startswith(f"{task}/")]
    raise unknown("policy", name, [*own.controller_names, *short])


def known_by(policies: Sequence[str], task: str) -> dict[str, str]:
    """By their labels what those among these policies are known by that have files: the settings and weights of learned
    ones, and the Python files of controllers, in 16 digits."""
    found, own, shipped = {}, tasks.find(task), zoo.policies()
    for label, policy in zip(labels(policies, task), policies, strict=True):
        if tasks.is_reference(policy):
            found[label] = zoo.content(Path(policy.partition(":")[0]))
        elif not own.has_controller(policy):
            name = find_learned(policy, task)
            found[label] = zoo.known_by(shipped.get(name) or Path(name))
    return found


def differing(config: WorldConfig, policies: Sequence[str]) -> list[str]:
    """A line for each of these policies that learned, as its run says, in a world of other scales than this one's."""
    found = []
    for policy, label in zip(policies, labels(policies, config.task), strict=True):
        if _shipped(policy, config.task) is not None or not Path(policy).is_dir():
            continue
        run = (read_json(Path(policy).resolve().parent / zoo.CONFIG_FILE) or {}).get("world")
        then = {name: run[name] for name in config.scales if name in run} if isinstance(run, dict) else {}
        options = [
            f"--{name.replace('_', '-')} {value}" for name, value in then.items() if value != getattr(config, name)
        ]
        if options:
            found.append(f"{label} learned in a world with other scales: give {' '.join(options)} for that one")
    return found


def _shipped(name: str, task: str) -> str | None:
    """The full name of a policy that comes with a package; None if there is none of that name."""
    return next((full for full in (name, f"{task}/{name}") if full in zoo.policies()), None)


def labels(policies: Sequence[str], task: str) -> list[str]:
    """What results call the policies: names as they are; what is in a Python file by its name there; folders by as much
    of their path's end as tells them apart.

    `best` and `last` are what training calls its folders, so those always carry the name of the run.
    """
    paths: dict[int, tuple[str, ...]] = {}
    found: list[str] = []
    for number, given in enumerate(policies):
        shipped = _shipped(given, task)
        if tasks.is_reference(given):
            file, _, name = given.partition(":")
            found.append(name or Path(file).stem)
            continue
        if not tasks.find(task).has_controller(given) and shipped is None:
            paths[number] = Path(given).resolve().parts
        found.append((shipped or given).removeprefix(f"{task}/"))
    depth = {number: 2 if path[-1] in ("best", "last") else 1 for number, path in paths.items()}
    while True:
        for number, path in paths.items():
            found[number] = str(Path(*path[-depth[number] :]))
        clashing = [n for n, path in paths.items() if found.count(found[n]) > 1 and depth[n] < len(path)]
        if not clashing:
            break
        for number in clashing:
            depth[number] += 1
    if len(set(found)) != len(found):
        raise MastError(f"a policy was given twice, or two have one name: {' '.join(policies)}")
    return found


def suiting(task: tasks.Task) -> PolicyConfig:
    """A small MAST policy for a task's world: two layers, a window of half the world, and a perception for what
    robots observe, which one look at the world tells."""
    world = task.make()
    shape = tuple(world.observe(world.reset([0])).features.shape[2:])
    if len(shape) not in (1, 3):
        raise MastError(
            f"the world of {task.name} has features of shape [B, N, {', '.join(map(str, shape))}]: policies take "
            "numbers [B, N, F] or images [B, N, C, H, W]"
        )
    side = world.config.side
    return PolicyConfig(
        task=task.name,
        layers=2,
        heads=2,
        head_dim=32,
        attention_radius=side / 2,
        wavelength=side,
        observation_dim=shape[0] if len(shape) == 1 else (shape[0], shape[1], shape[2]),
        perception="mlp" if len(shape) == 1 else "cnn",
    )
