"""The evaluation that `mast evaluate` runs: policies x start states, resumable, with progress."""

from __future__ import annotations

import dataclasses
import pickle
import platform
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch

from mast_swarm import __version__
from mast_swarm.comms.config import Channel
from mast_swarm.comms.relay import Relay
from mast_swarm.errors import MastError
from mast_swarm.evaluate import cost
from mast_swarm.evaluate.actors import Actor, Decentral, is_learned, make_actor, pick_device
from mast_swarm.evaluate.config import EvaluateConfig, Precision, precision_on, settled
from mast_swarm.evaluate.controlled import Talking
from mast_swarm.evaluate.measure import free_memory
from mast_swarm.evaluate.policies import fitting, known_by, labels
from mast_swarm.evaluate.recording import Recording, recording_name
from mast_swarm.evaluate.results import Results, episode_table
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.files import new_folder, only_writer, read_json
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.learned import Learned
from mast_swarm.pool import Job, pool
from mast_swarm.survey import Survey
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.world import World

Progress = Callable[[str, int, int], None]  # policy, steps done, steps in all
_STATES = 4  # times a state's memory that one control period takes: the next state, observations, activations
_TURNS = 8  # batches for each process, where there are several: each is kept, and tells how far it is, as it ends


class Interrupted(KeyboardInterrupt):
    """An evaluation that was stopped, by Ctrl-C or SIGTERM; what was finished is in `folder`."""

    def __init__(self, folder: Path, by: KeyboardInterrupt) -> None:
        super().__init__(str(folder))
        self.folder, self.by = folder, by


def prepare(task: str, config: EvaluateConfig) -> tuple[World[Any, Any], dict[str, Actor]]:
    """The world, and an actor per policy under the name that results give it; writes nothing.

    Whatever can be wrong with the settings shows here: policies are loaded and every start state is drawn once (one of
    them, in a world where that answers for all).
    """
    found = tasks.find(task)
    if tasks.task_of(config.world) is not found:
        raise MastError(f"the settings are those of a world for {config.world.task}, not for {task}: give both alike")
    if not config.policy:
        raise MastError("no policy was given: name at least one, see `mast list`")
    world, channel = _world(found, config)
    actors = [make_actor(policy, world, channel) for policy in config.policy]
    for actor in actors:
        if isinstance(actor, Talking):  # which may make the maps that its robots share only here
            actor.start(config.seeds()[:1])
    _check_memory(world, actors, config.batch or 1)
    tried = config.episodes if config.world.starts_may_fail else 1
    for seed, scenario in zip(config.seeds()[:tried], config.scenarios()[:tried], strict=True):
        start = world.reset([seed], [scenario])
    drawn = (config.loss or config.failure) and any(actor.channel is not None for actor in actors)
    known = config.world.start_states
    if known is not None and config.episodes > known and not drawn:
        raise MastError(
            f"start states in {config.world.scenario}: {known}, which {config.episodes} episodes would repeat; give "
            f"--episodes {known} or fewer, or write a start state as often as it is to count"
        )
    found.check_measured(world.metrics(start))
    if config.safe:
        world.kept_apart(start, start.positions * 0)
    return world, dict(zip(labels(config.policy, found.name), actors, strict=True))


def _world(task: tasks.Task, config: EvaluateConfig) -> tuple[World[Any, Any], Channel | None]:
    """The world, and what messages travel over, if they do."""
    world = task.make(fitting(config.world, config.policy), pick_device(config.device))
    if config.delay is None:
        return world, None
    return world, Channel(**{field.name: getattr(config, field.name) for field in dataclasses.fields(Channel)})


def _check_memory(world: World[Any, Any], actors: list[Actor], environments: int) -> None:
    """Refuse so many environments at once that do not fit: before anything runs, with the estimate."""
    agents, free, kind = world.config.agents, free_memory(world.device), world.device.type
    density = agents / (world.config.side / 1000) ** 2
    size = f"{agents:,} robots" if environments == 1 else f"{environments:,} x {agents:,} robots"
    fewer = "give fewer --agents" if environments == 1 else "give a smaller --batch or fewer --agents"
    advice = f"{fewer}, or a smaller world"
    cost.check_fits(f"a world of {size} in {world.config.side:,.0f} m", environments * world.config.bytes, free, advice)
    for actor in actors:
        policy = getattr(actor, "policy", None)
        survey = getattr(getattr(actor, "controller", None), "survey", None)
        if isinstance(policy, Learned):
            survey = policy.survey(world.config.side)
        if isinstance(survey, Survey):
            advice = f"{fewer}, or a policy without maps"
            cost.check_fits(f"the maps of {size}", survey.bytes(environments, agents), free, advice)
        config = getattr(policy, "config", None)
        if not isinstance(config, PolicyConfig) or config.attention_radius is None:
            config = None  # of others the table alone is counted
        if actor.channel is not None:
            relay = Relay(actor.channel, world.config.dt)
            needed, what = cost.table_bytes(environments, agents, kind, relay.timing.layers), "a table of all pairs"
            if relay.radius is not None and relay.lists(agents, kind):
                needed = cost.list_bytes(environments, agents, density, relay.radius, kind)
                what = "lists of who is near"
            if config is not None:
                needed = cost.decentral_bytes(config, environments, agents, density, kind, needed)
            what = f"{size} that each decide alone, which keep {what},"
            less = Relay(dataclasses.replace(actor.channel, relay_radius=1.0), world.config.dt).lists(agents, kind)
            nearer = ", or --relay-radius auto" if less and config is not None and relay.radius is None else ""
            cost.check_fits(what, needed, free, f"{fewer}{nearer}, or leave --delay away")
        elif config is not None:
            cost.check_fits(f"a step of {size}", environments * cost.step_bytes(config, agents, density), free, fewer)


def evaluate(
    task: str | tasks.Task,
    config: EvaluateConfig | None = None,
    progress: Progress = lambda policy, done, total: None,
    **settings: Any,
) -> tuple[Path, dict[str, Any]]:
    """Run an evaluation to the end, or until interrupted; what was finished is on disk either way. Gives the folder and
    the summary.

    settings: in place of a config, by name as on the command line: evaluate(TASK, policy=[NAME], agents=20).
    """
    if config is None:
        config = settled(tasks.find(task), **settings)
    elif settings:
        raise MastError(f"{', '.join(settings)}: settings are given by name, or all of them as a config, not both")
    named = tasks.find(task).name
    world, actors = prepare(named, config)
    config = dataclasses.replace(config, precision=_precision(config, world.device.type))
    folder = config.out or new_folder(Path("runs") / f"evaluate-{named}-{datetime.now():%Y%m%d-%H%M%S}")
    resolved = _resolved(named, config)
    used = config.precision if any(map(is_learned, actors.values())) else "fp32"
    about = {**_about(named, world.device), "precision": used, "weights": resolved["weights"]}
    if config.resume and Results.complete(folder):  # nothing is written
        return folder, Results(folder, resolved, resume=True).summary()
    with only_writer(folder, stays=config.out is not None and folder.exists()):
        results = Results(folder, resolved, config.resume)
        if results.complete(folder):  # another process has ended it meanwhile
            return folder, results.summary()
        complete = False
        try:
            try:
                if config.ray is not None or config.jobs > 1:
                    _elsewhere(named, world, actors, config, resolved["weights"], results, progress)
                else:
                    for number, (name, actor) in enumerate(actors.items()):
                        _one_policy(world, number, name, actor, config, results, progress)
                complete = True
            finally:
                summary = results.finish(complete, about)
        except KeyboardInterrupt as stopped:
            raise Interrupted(folder, stopped) from None
        except torch.OutOfMemoryError:
            less = "give a smaller --batch, fewer --agents or --device cpu"
            raise MastError(f"the GPU is out of memory: {less}") from None
    return folder, summary


def _precision(config: EvaluateConfig, device: str) -> Precision:
    """One arithmetic for a whole run: what was asked for, else that with which a stopped run began, else what suits the
    device, or on a cluster those that do the work."""
    if config.precision == "auto" and config.resume and config.out is not None:
        begun = (read_json(config.out / "config.json") or {}).get("precision")
        if begun in ("fp32", "bf16"):
            return begun
    if config.ray is not None:
        device = "cuda" if config.device == "cuda" or (config.device == "auto" and config.gpus) else "cpu"
    return precision_on(device, config.precision)


def _one_policy(
    world: World[Any, Any],
    number: int,
    name: str,
    actor: Actor,
    config: EvaluateConfig,
    results: Results,
    progress: Progress,
) -> None:
    instants = config.steps + 1
    finished = results.episodes(number)
    total, done = config.episodes * instants, len(finished) * instants
    progress(name, done, total)
    size = config.batch or _batch(world, config.seeds()[0], config.scenarios()[0], actor)
    for chosen in _runs([e for e in range(config.episodes) if e not in finished], size):

        def tick(count: int, together: int = len(chosen)) -> None:
            nonlocal done
            done += count * together
            progress(name, done, total)

        _keep(results, number, name, chosen, *_part(world, name, actor, config, chosen, tick))


def _number(value: float | str | None) -> float | str | None:
    """A setting as results have it: 30 and 30.0 are one."""
    return float(value) if isinstance(value, int) else value


def _part(
    world: World[Any, Any],
    name: str,
    actor: Actor,
    config: EvaluateConfig,
    chosen: list[int],
    tick: Callable[[int], None] = lambda count: None,
) -> tuple[pa.Table, list[Recording]]:
    """Some episodes of one policy: their table, and the recordings of those that are to be kept."""
    seeds, scenarios = config.seeds(), config.scenarios()
    keys = {
        "policy": name,
        "task": world.task,
        **{setting: getattr(config.world, setting) for setting in config.world.stated},
        "delay": None if actor.channel is None else float(actor.channel.delay),
        "loss": 0.0 if actor.channel is None else float(actor.channel.loss),
        "failure": float(config.failure),
        "relay_radius": None if actor.channel is None else _number(actor.channel.relay_radius),
        "max_age": None if actor.channel is None else _number(actor.channel.max_age),
        "safe": config.safe,
        "seed": config.seed,
    }
    ran = rollout(
        world,
        actor,
        [seeds[e] for e in chosen],
        config.steps,
        scenarios=[scenarios[e] for e in chosen],
        name=name,
        precision=config.precision,
        safe=config.safe,
        record=max(0, min(config.record - chosen[0], len(chosen))),
        progress=tick,
    )
    episodes = [{"start": scenarios[e], "episode": e, "episode_seed": seeds[e]} for e in chosen]
    return episode_table(keys, episodes, world.config.dt, ran.metrics), ran.recordings


def _keep(
    results: Results, number: int, name: str, chosen: list[int], table: pa.Table, recordings: list[Recording]
) -> None:
    for episode, recording in zip(chosen, recordings, strict=False):
        recording.save(results.folder / recording_name(number, name, episode))
    results.add(number, chosen[0], table)


def _elsewhere(
    task: str,
    world: World[Any, Any],
    actors: dict[str, Actor],
    config: EvaluateConfig,
    weights: dict[str, str],
    results: Results,
    progress: Progress,
) -> None:
    """In other processes or on a cluster: all policies at once, a job per batch of episodes; each is kept as it comes
    back. weights: what the policies are known by."""
    if config.ray is not None and tasks.source(task):
        raise MastError(f"task {task} is in a file, which the machines of a cluster cannot find: install it there")
    jobs: dict[str, tuple[int, list[int]]] = {}
    done = {name: len(results.episodes(number)) for number, name in enumerate(actors)}
    left = sum(config.episodes - count for count in done.values())
    for number, (name, actor) in enumerate(actors.items()):
        progress(name, done[name], config.episodes)
        finished = results.episodes(number)
        size = config.batch or _batch(world, config.seeds()[0], config.scenarios()[0], actor)
        if config.ray is None and config.batch is None:
            size = min(size, max(1, left // (_TURNS * config.jobs)))
        for chosen in _runs([e for e in range(config.episodes) if e not in finished], size):
            jobs[f"{name} {chosen[0]} to {chosen[-1]}"] = (number, chosen)
    if not jobs:
        return
    known, names = tasks.sendable(task), list(actors)
    packed = pickle.dumps(config)  # read where the task is known, whose settings are in it
    workers = pool(config.ray, config.jobs)
    try:
        given = [Job(job, _job, (known, packed, weights, *which), config.gpus) for job, which in jobs.items()]
        for job, found in workers.run(given):
            number, chosen = jobs[job.name]
            _keep(results, number, names[number], chosen, *found)
            done[names[number]] += len(chosen)
            progress(names[number], done[names[number]], config.episodes)
    finally:
        workers.close()


def _job(
    task: str | tasks.Task, packed: bytes, weights: dict[str, str], number: int, chosen: list[int]
) -> tuple[pa.Table, list[Recording]]:
    """What another process does: some episodes of the policy of that number, which is still what it was."""
    found = tasks.find(task)
    config: EvaluateConfig = pickle.loads(packed)
    world, channel = _world(found, config)
    actor, name = make_actor(config.policy[number], world, channel), labels(config.policy, found.name)[number]
    if known_by(config.policy, found.name).get(name) != weights.get(name):
        raise MastError(f"the files of {name} changed while it was evaluated: evaluate a copy that nobody writes to")
    return _part(world, name, actor, config, chosen)


def _runs(episodes: list[int], size: int) -> Iterator[list[int]]:
    """Split episodes into runs of neighbours, none longer than `size`."""
    run: list[int] = []
    for episode in episodes:
        if run and (len(run) == size or episode != run[-1] + 1):
            yield run
            run = []
        run.append(episode)
    if run:
        yield run


def _batch(world: World[Any, Any], seed: int, scenario: str, actor: Actor | None = None) -> int:
    """Environments at once: enough to fill the device, few enough that memory and the first result stay near. actor:
    who drives, where that is known."""
    cuda = world.device.type == "cuda"
    # Robots alone that compute a network each fill a CPU with a few: more at once gain nothing and are kept later.
    robots = 25_600 if cuda else 200 if isinstance(actor, Decentral) else 1_800
    # On a CPU little memory is quick memory; of a GPU's a step may take half.
    memory = int(free_memory(world.device) or 0) // 2 if cuda else 400_000_000
    start = world.reset([seed], [scenario])
    held = sum(part.nbytes for part in vars(start).values() if isinstance(part, torch.Tensor))
    return max(1, min(robots // world.config.agents, memory // (_STATES * held)))


def _resolved(task: str, config: EvaluateConfig) -> dict[str, Any]:
    """The settings as plain JSON, named as on the command line, less those that do not change a result."""
    plain = dataclasses.asdict(config)
    for name in ("out", "resume", "device", "batch", "jobs", "ray", "gpus"):
        plain.pop(name)
    known = {"weights": known_by(config.policy, task)}
    return {"task": task, **tasks.source(task), **plain.pop("world"), **plain, **known}


def _about(task: str, device: torch.device) -> dict[str, Any]:
    """What a reader needs to trust the numbers."""
    return {
        "task": task,
        "version": __version__,
        "device": torch.cuda.get_device_name() if device.type == "cuda" else platform.machine() + " CPU",
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
