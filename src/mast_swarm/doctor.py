"""What a bug report should say about a machine, and whether the package works on it: `mast doctor`."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import os
import platform
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from mast_swarm import __version__
from mast_swarm.errors import MastError
from mast_swarm.tasks import DEFAULT
from mast_swarm.tasks import registry as tasks

PACKAGE = "mast-swarm"
_MODULES = {"eclipse-zenoh": "zenoh", "pillow": "PIL"}  # of packages that are imported by another name
_WATCHED = 0.5  # s
_OURS = ("dev", "docs")  # extras for those who work on the package itself


def examine(test: bool = True, progress: Callable[[str], None] = lambda what: None) -> dict[str, Any]:
    """All that is known of this machine, and with `test` what a short self-test found."""
    found: dict[str, Any] = {
        "mast": __version__,
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "system": f"{platform.system()} {platform.release()}, {platform.machine()}",
        "cpu": _cpu(),
        "packages": _packages(),
        "threads": _threads(),
        "devices": _devices(),
        "extras": _extras(),
        "tasks of other packages that cannot be used": _broken_tasks(),
    }
    if test:
        checks = CHECKS if _version("torch") else ON_A_ROBOT
        found["self-test"] = [_tried(name, check, progress) for name, check in checks.items()]
    return found


def healthy(found: dict[str, Any]) -> bool:
    """Whether the self-test passed, as far as there was one."""
    return all(row["passed"] for row in found.get("self-test", ()))


def lines(found: dict[str, Any]) -> Iterator[str]:
    """The same as text, to be pasted into a bug report."""
    for name in ("mast", "python", "system"):
        yield f"{name:<12}{found[name]}"
    cpu = found["cpu"]
    yield f"{'cpu':<12}{cpu['name']}; {cpu['usable cores']} of {cpu['cores']} cores, {cpu['memory GB']} GB"
    if cpu["busy cores"] is not None:
        note = ": times measured now mean little" if cpu["busy cores"] > 0.5 * cpu["usable cores"] else ""
        yield f"{'busy':<12}{cpu['busy cores']} cores by other work{note}"
    yield f"{'threads':<12}{', '.join(f'{name} {value}' for name, value in found['threads'].items())}"
    yield f"{'devices':<12}{'; '.join(found['devices'])}"
    yield f"{'packages':<12}{', '.join(f'{name} {version}' for name, version in found['packages'].items())}"
    for name, state in found["extras"].items():
        yield f"{'extra':<12}{name}: {state}"
    for name, why in found["tasks of other packages that cannot be used"].items():
        yield f"{'task':<12}{name} cannot be used: {why}"
    for row in found.get("self-test", ()):
        said = f"ok, {row['seconds']:.1f} s" if row["passed"] else "FAILED"
        yield f"{'self-test':<12}{row['name']}: {said}{'; ' * bool(row['found'])}{row['found']}"


def _cpu() -> dict[str, Any]:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    info = Path("/proc/cpuinfo")
    named = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return {
        "name": named[1] if named else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "usable cores": usable,
        "memory GB": round(memory / 1e9, 1),
        "busy cores": _busy_cores(),
    }


def _busy_cores() -> float | None:
    """Cores that other processes keep busy just now; None where the system does not tell."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return None

    def worked() -> float:
        """Seconds of work of all cores so far."""
        user, nice, system, *rest = map(int, stat.read_text().split("\n")[0].split()[1:9])
        return (user + nice + system + sum(rest[2:])) / os.sysconf("SC_CLK_TCK")  # without idle and waiting for disks

    began, before, own = time.monotonic(), worked(), sum(os.times()[:2])
    time.sleep(_WATCHED)
    spent, ours = worked() - before, sum(os.times()[:2]) - own
    return max(0.0, round((spent - ours) / (time.monotonic() - began), 1))


def _packages() -> dict[str, str]:
    """The packages that this one needs, and their versions."""
    return {name: _version(name) or "missing" for name in _required(None)}


def _required(extra: str | None) -> list[str]:
    """The packages that an extra needs, or those that are always needed; other extras of ours by their names."""
    found = []
    for line in _requirements():
        marked = re.search(r"extra == ['\"]([^'\"]+)['\"]", line)
        if (marked[1] if marked else None) == extra:
            found.append(re.split(r"[ ;<>=!~(]", line.strip(), maxsplit=1)[0])
    return found


def _requirements() -> list[str]:
    try:
        return importlib.metadata.requires(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:  # run from its sources
        return []


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extras() -> dict[str, str]:
    """Each extra: works, or what is missing or broken."""
    try:
        names = importlib.metadata.metadata(PACKAGE).get_all("Provides-Extra") or []
    except importlib.metadata.PackageNotFoundError:
        return {}
    found = {}
    for extra in names:
        if extra in _OURS:
            continue
        wrong = [f"{name}: {why}" for name in _required(extra) if "[" not in name and (why := _wrong(name))]
        found[extra] = "works" if not wrong else f"{'; '.join(wrong)}; pip install '{PACKAGE}[{extra}]'"
    return found


def _wrong(package: str) -> str:
    """Why a package cannot be used; empty if it can."""
    if _version(package) is None:
        return "not installed"
    module = _MODULES.get(package, package.replace("-", "_"))
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        return "" if error.name == module else str(error)  # a tool without a module of its name
    except Exception as error:  # whatever an import may do
        return f"{type(error).__name__}: {error}"
    return ""


def _broken_tasks() -> dict[str, str]:
    try:
        return dict(tasks.broken())
    except ModuleNotFoundError:  # which one, the packages say; nothing runs tasks without it
        return {}


def _threads() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ("torch", "numba"):
        with contextlib.suppress(ModuleNotFoundError):  # as on a robot
            found[name] = importlib.import_module(name).get_num_threads()
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OMP_WAIT_POLICY")
    return found | {name: os.environ[name] for name in names if name in os.environ}


def _devices() -> list[str]:
    try:
        import torch
    except ModuleNotFoundError:
        return ["CPU alone (torch is not installed)"]
    if not torch.cuda.is_available():
        built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built without CUDA"
        return [f"CPU alone (torch {torch.__version__} {built})"]
    return [
        f"{torch.cuda.get_device_name(number)}, {torch.cuda.mem_get_info(number)[1] / 1e9:.0f} GB, "
        f"CUDA {torch.version.cuda}"
        for number in range(torch.cuda.device_count())
    ]


# The self-test. A check gives what it found, or raises what is wrong.


def _tried(name: str, check: Callable[[], str], progress: Callable[[str], None]) -> dict[str, Any]:
    progress(name)
    began = time.monotonic()
    try:
        told, passed = check(), True
    except Exception as error:  # anything may be wrong with a machine
        told, passed = f"{type(error).__name__}: {error}", False
    return {"name": name, "passed": passed, "seconds": round(time.monotonic() - began, 2), "found": told}


def _drive() -> str:
    """The task's expert does better than robots that stand still."""
    from mast_swarm.evaluate.rollout import rollout

    task = tasks.find(DEFAULT)
    world, steps = task.make(replace(task.Config(), agents=20)), 60
    began = time.monotonic()
    driven = rollout(world, task.expert, range(4), steps).metrics[task.metric.name]
    speed = 4 * steps / (time.monotonic() - began)
    first, last = float(driven[:, 0].mean()), float(driven[:, -1].mean())
    if not task.metric.better(last, first):
        raise MastError(f"{task.expert} brings {task.metric.words} from {first:.3f} to {last:.3f}")
    return f"{task.metric.words} {first:.2f} -> {last:.2f}, {speed:,.0f} environment steps/s"


def _agree() -> str:
    """A shipped policy commands the same in one pass and by every robot alone with no delay."""
    import torch

    from mast_swarm.comms.config import Channel
    from mast_swarm.evaluate.actors import make_actor
    from mast_swarm.evaluate.policies import load_policy

    task = tasks.find(DEFAULT)
    name = next(name for name in task.default_demo.policies if not task.has_controller(name))
    world, policy = task.make(replace(task.Config(), agents=20)), load_policy(name)
    state = world.reset([0, 1])
    with torch.inference_mode():
        central, alone = make_actor(policy, world), make_actor(policy, world, Channel(delay=0.0))
        for actor in (central, alone):
            actor.start([0, 1])
        seen = world.observe(state)
        difference = float((central.act(state, seen) - alone.act(state, seen)).abs().max())
    if not difference < 1e-3:
        raise MastError(f"commands of {name} differ by {difference:.1e}")
    return f"{name} in one pass and by every robot alone: commands differ by {difference:.0e}"


def _learn() -> str:
    """A few updates on the CPU bring the loss down, and the run can be resumed."""
    import torch

    from mast_swarm.train.config import changed, recipe
    from mast_swarm.train.trainer import RunOptions, Trainer

    few = {"epochs": 2, "environments": 4, "steps": 25, "batch": 16, "replay": 200, "lr": 3e-3, "clip": 1.0}
    small = {"layers": 1, "heads": 2, "head_dim": 16}
    short = {"validation": 1, "validation_steps": 1, "validate_every": 2}
    config = changed(recipe("tiny", tasks.find(DEFAULT)), {**few, **short, "world": {"agents": 8}, "policy": small})
    losses: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        options = RunOptions(Path(folder), torch.device("cpu"))
        Trainer(config, options).run(lambda row: losses.append(row["loss"]))
        if Trainer.resume(options).finished != 2:
            raise MastError("the run cannot be resumed")
    if not losses[1] < losses[0]:
        raise MastError(f"the loss went from {losses[0]:.3f} to {losses[1]:.3f}")
    return f"loss {losses[0]:.3f} -> {losses[1]:.3f}"


def _accelerate() -> str:
    """A GPU, where there is one, gives what the CPU gives."""
    import torch

    from mast_swarm.evaluate.rollout import rollout

    if not torch.cuda.is_available():
        return "there is none"
    task = tasks.find(DEFAULT)
    name = next(name for name in task.default_demo.policies if not task.has_controller(name))
    config = replace(task.Config(), agents=20)
    places = [rollout(task.make(config, device), name, [0], 3).state.positions.cpu() for device in ("cpu", "cuda")]
    difference = float((places[0] - places[1]).abs().max())
    if not difference < 0.1:
        raise MastError(f"robots of {name} are {difference:.2g} m apart after 3 steps on the GPU and on the CPU")
    return f"within {difference:.1g} m of the CPU after 3 steps"


def _talk() -> str:
    """Two robots with keys from files hear and believe each other."""
    from mast_swarm.robot import Format, Node, Trust, VirtualNetwork
    from mast_swarm.robot.trust import new_team

    network = VirtualNetwork()
    with tempfile.TemporaryDirectory() as folder:
        new_team(Path(folder), 2)
        trusts = [Trust.load(Path(folder), robot) for robot in range(2)]
    form = Format(trusts[0].team.identity, bytes(8), 4)
    nodes = [Node(trust, form, lambda seen: seen, len, now=0, hop=1) for trust in trusts]
    ports = [network.join(robot) for robot in range(2)]
    for moment in range(1, 6):
        network.advance(moment)
        for robot, (node, port) in enumerate(zip(nodes, ports, strict=True)):
            node.control(moment, [float(robot)] * 4, (0.0, 0.0))
            for sender, data in port.poll():
                node.on_datagram(sender, data, moment)
            for to, data in node.due(moment, [1 - robot]):
                port.send(data, to)
    verified = min(node.counters.verified for node in nodes)
    if not verified or any(len(node.robot.known()) != 2 for node in nodes):
        raise MastError("two robots that send each other signed messages do not know each other")
    return f"two robots believe each other's signed messages, {verified} verified"


def _write() -> str:
    """The folder that results go to can be written."""
    folder = Path("runs") if Path("runs").is_dir() else Path()
    with tempfile.TemporaryFile(dir=folder):
        return f"{shutil.disk_usage(folder).free / 1e9:,.0f} GB free here"


CHECKS: dict[str, Callable[[], str]] = {
    "simulation": _drive,
    "policies": _agree,
    "training": _learn,
    "GPU": _accelerate,
    "disk": _write,
}
ON_A_ROBOT: dict[str, Callable[[], str]] = {"robots": _talk, "disk": _write}  # where there is no torch
