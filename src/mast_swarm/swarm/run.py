"""`mast swarm`: starts everything, keeps the world's time, and lets things go wrong as asked."""

from __future__ import annotations

import math
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch

from mast_swarm.errors import MastError, terminable
from mast_swarm.evaluate.policies import find_learned
from mast_swarm.files import new_folder
from mast_swarm.interop.manifest import sha256
from mast_swarm.interop.onnx import export, policy_folder
from mast_swarm.model.config import PolicyConfig
from mast_swarm.model.policy import config_of
from mast_swarm.robot.apart import sensing_radius
from mast_swarm.robot.exported import MANIFEST, read_manifest
from mast_swarm.robot.pilot import Pace
from mast_swarm.robot.trust import new_team
from mast_swarm.swarm.arena import Arena, Status
from mast_swarm.swarm.config import SwarmConfig
from mast_swarm.swarm.fleet import Fleet, free_ports
from mast_swarm.swarm.results import Log, check_unused
from mast_swarm.tasks import registry as tasks
from mast_swarm.zoo import CONFIG_FILE, WEIGHTS_FILE

_STARTING = 20.0  # seconds that processes have to get ready, and
_EACH = 3.0  # seconds more for each of them
_AHEAD = 0.5  # seconds from when all are ready until the mission begins
_PATIENCE = 10.0  # seconds that robots wait for the world, which is not the hardware that a short wait protects
_AFTER = 0.02  # of a control period: robots act so much after the world has moved

Show = Callable[[Log], None]


def swarm(
    config: SwarmConfig,
    *,
    tell: Callable[[str], None] = lambda line: None,
    show: Show = lambda log: None,
) -> tuple[Path, dict[str, Any]]:
    """Run a swarm to the end, or until interrupted; what happened is on disk either way. Gives the folder and the
    summary. tell: is given lines for people; show: the log after each control period."""
    task = tasks.find(config.task)
    if tasks.task_of(config.world) is not task:
        raise MastError(f"the settings are those of a world for {config.world.task}, not for {task.name}")
    if config.out is not None:
        check_unused(config.out)
    source = exported(config.policy, task.name, config.task, tell)
    manifest = read_manifest(source)
    _check_task(config.policy, manifest["task"], task.name)
    shape = tuple(manifest["observation"]["shape"])
    world = task.make(config.settled.fitted([shape]))
    if not world.config.shows(shape):
        raise MastError(f"the policy in '{source}' takes features of shape {list(shape)}, which this world has not")
    seed, scenario = config.start()
    longest = world.config.max_speed * world.config.dt
    reach = None if config.apart is None else sensing_radius(config.apart, longest)
    arena = Arena(world, shape, seed, scenario, reach)
    task.check_measured(arena.metrics())
    folder = config.out or new_folder(Path("runs") / f"swarm-{task.name}-{datetime.now():%Y%m%d-%H%M%S}")
    log = Log(folder, config, task, manifest, arena)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the cores belong to the robots
    try:
        with terminable(), tempfile.TemporaryDirectory(prefix="mast-swarm-") as scratch:
            Mission(config, arena, log, source, Path(scratch), tell, show).run()
    except KeyboardInterrupt as stopped:
        raise type(stopped)(f"interrupted; what happened until {log.time:g} s is in {folder}") from None
    finally:
        torch.set_num_threads(threads)
        summary = log.finish()
    return folder, summary


def _check_task(policy: str, trained_for: str | None, task: str) -> None:
    if trained_for not in (None, "", task):
        raise MastError(
            f"the policy '{policy}' was trained for {trained_for}, not for {task}: give --task {trained_for}, or "
            "another --policy"
        )


def exported(policy: str, task: str, given: str, tell: Callable[[str], None]) -> Path:
    """The folder of an exported policy: the one that is named, or one that is made of what is named."""
    if (Path(policy) / MANIFEST).exists():
        return Path(policy)
    name = find_learned(policy, task)
    source = policy_folder(name)
    weights = sha256(source / WEIGHTS_FILE)
    config = sha256(source / CONFIG_FILE)  # not all settings are in the weights
    folder = Path("runs") / "exports" / f"{task}-{source.name}-{weights[:8]}-{config[:4]}"
    if (folder / MANIFEST).exists() and read_manifest(folder)["weights"]["sha256"] == weights:
        return folder
    settings = config_of(source)
    _check_task(policy, settings.task, task)
    if not isinstance(settings, PolicyConfig):
        raise MastError(f"a policy of kind {settings.kind} is not run on robots: give a MAST policy (docs/robots.md)")
    tell(f"exporting {policy} to {folder}, once")
    export(name, folder, task=given if tasks.is_reference(given) else None)
    return folder


class Mission:
    """One run, from the first process to the last."""

    def __init__(
        self,
        config: SwarmConfig,
        arena: Arena,
        log: Log,
        source: Path,
        scratch: Path,
        tell: Callable[[str], None],
        show: Show,
    ) -> None:
        self.config, self.arena, self.log, self.source, self.scratch = config, arena, log, source, scratch
        self.tell, self.show = tell, show
        self.fleet = Fleet(scratch, self.heard)
        self.period = 1 / config.hertz
        self.ready: set[int] = set()
        self.asking: list[int] = []  # robots that have asked what they sense and are not answered yet
        self.begins: float | None = None
        robots = config.robots + config.joining
        self.ports = free_ports(robots)
        if not config.unsigned:
            new_team(scratch / "team", robots)
        self.luck = random.Random(f"{config.seed} {config.episode} kills")
        self.next_robot = 0
        self.events = self._plan()

    def _plan(self) -> list[tuple[int, Callable[[], None]]]:
        """What happens when: control instant, and what is done then; in order."""
        config = self.config
        events: list[tuple[float, Callable[[], None]]] = [
            *((when, partial(self.launch, count)) for when, count in config.joins),
            *((when, partial(self.kill, count)) for when, count in config.kills),
            *((begin, self.arena.split) for begin, _ in config.partitions),
            *((end, self.arena.heal) for _, end in config.partitions),
        ]
        timed = [(math.ceil(when / config.dt - 1e-9), done) for when, done in events]
        return sorted(timed, key=lambda event: event[0])

    def run(self) -> None:
        """All of it. Whatever happens, no process is left."""
        try:
            self.tell(f"starting {self.config.robots} processes")
            self.launch(self.config.robots)
            self.arena.warm_up()
            self.gather()
            self.fly()
        finally:
            self.fleet.end()

    def launch(self, count: int) -> None:
        """Start processes."""
        for _ in range(count):
            self.fleet.start(self.next_robot, self.settings(self.next_robot))
            self.next_robot += 1

    def settings(self, robot: int) -> dict[str, Any]:
        """What a robot is told of itself."""
        config = self.config
        pace = Pace(
            rate=config.hertz,
            hop=config.hop / config.speed,
            patience=max(_PATIENCE, 4 * self.period),
            speed=config.speed,
            seed=config.start()[0],
        )
        places = {other: f"127.0.0.1:{port}" for other, port in enumerate(self.ports)}
        return {
            "folder": str(self.source.resolve()),
            "robot": robot,
            "listen": places.pop(robot),
            "peers": places,
            "team": None if config.unsigned else str(self.scratch / "team"),
            "transport": config.transport,
            "pace": asdict(pace),
            "relay_radius": config.relay_radius,
            "max_age": config.max_age,
            "safe": config.apart,
            "stamps": None if config.unsigned else str(self.scratch / f"robot-{robot}.stamp"),
            "map_side": self.arena.world.config.side,
            "loss": config.loss,
        }

    def gather(self) -> None:
        """Wait until all processes are ready."""
        first = set(range(self.config.robots))
        ends = time.monotonic() + _STARTING + _EACH * len(first)
        while not first <= self.ready:
            if time.monotonic() > ends:
                raise MastError(f"robots {_listed(first - self.ready)} did not get ready: is the machine overloaded?")
            self.fleet.listen(min(ends, time.monotonic() + 0.2))
        self.begins = time.monotonic() + _AHEAD
        for robot in sorted(self.ready):
            self.enter(robot)

    def enter(self, robot: int) -> None:
        """Let a robot that is ready take part."""
        assert self.begins is not None
        self.arena.status[robot] = Status.ALIVE
        self.fleet.tell(robot, {"start": self.begins + _AFTER * self.period})

    def fly(self) -> None:
        """The mission: the world moves at every control instant, and in between robots sense and command."""
        assert self.begins is not None
        for tick in range(self.config.steps + 1):
            moment = self.begins + tick * self.period
            while time.monotonic() < moment:
                self.answer()
                self.fleet.listen(moment)
            started = time.monotonic()
            if tick:
                self.log.moves()
                self.arena.move()
            self.log.instant(time.monotonic() - started)
            while self.events and self.events[0][0] <= tick:
                self.events.pop(0)[1]()
            self.show(self.log)
            if not self.arena.alive.any() and not self.fleet.members:
                raise MastError(f"no robot is left: {self.log.last_words()}")
        self.log.complete = True

    def answer(self) -> None:
        """Tell those who asked what they sense. Who asks after a control instant that the world has slept through is
        told after the world has moved: robots never see it stand still."""
        asking, self.asking = self.asking, []
        for robot in asking:
            if robot in self.fleet.members:
                self.fleet.tell(robot, *self.arena.sensed(robot))

    def kill(self, count: int) -> None:
        """SIGKILL to some that are alive, which the seed decides."""
        alive = [robot for robot in sorted(self.fleet.members) if self.arena.alive[robot]]
        for robot in sorted(self.luck.sample(alive, min(count, len(alive)))):
            self.fleet.kill(robot)

    def heard(self, robot: int, said: dict[str, Any]) -> None:
        """A robot has said something."""
        if "sense" in said:
            self.asking.append(robot)
        elif "command" in said:
            self.arena.command[robot] = said["command"]
            self.log.commanded(robot)
        elif "step" in said:
            self.log.step(robot, said["step"])
        elif "says" in said:
            self.log.says(robot, said["says"])
        elif "ready" in said:
            self.ready.add(robot)
            if self.begins is not None:  # it joins those that are under way
                self.enter(robot)
        elif "gone" in said:
            if self.begins is None:
                raise MastError(said["gone"])
            self.arena.status[robot] = Status.DEAD
            self.log.gone(robot, said["gone"])


def _listed(numbers: set[int]) -> str:
    return ", ".join(map(str, sorted(numbers)))
