"""For benchmarks of many evaluations that keep in small files what they have, and go on after any stop."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import tyro

from mast_swarm import zoo
from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import EvaluateConfig
from mast_swarm.evaluate.run import evaluate
from mast_swarm.model.learned import CONFIG_FILE, WEIGHTS_FILE
from mast_swarm.view.terminal import bars


@dataclass(frozen=True)
class RunConfig:
    """What benchmarks that keep evaluations share."""

    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """Arithmetic of learned policies."""


def check_known(names: Iterable[str], drivers: Iterable[str]) -> None:
    """Raise an error that names the first policy that is not among the drivers."""
    known = list(drivers)
    for name in names:
        if name not in known:
            raise MastError(f"there is no policy '{name}' here: give some of {', '.join(known)}")


def read(path: Path, about: dict[str, Any]) -> dict[str, Any]:
    """What a file holds, or a blank one; a file of other settings than `about` is an error."""
    if not path.exists():
        return {**about, "policies": {}}
    found = json.loads(path.read_text(encoding="utf-8"))
    differing = [f"{name} {found.get(name)} -> {value}" for name, value in about.items() if found.get(name) != value]
    if differing:
        raise MastError(f"{path} was made with other settings ({'; '.join(differing)}): give another --out")
    return found


def weights(task: str, policy: str) -> str | None:
    """What a shipped policy is known by: its settings and weights in 16 digits. None where nothing is learned."""
    folder = zoo.policies().get(f"{task}/{policy}")
    if folder is None:
        return None
    content = b"".join((folder / name).read_bytes() for name in (CONFIG_FILE, WEIGHTS_FILE))
    return hashlib.sha256(content).hexdigest()[:16]


Taken = Callable[[Path, dict[str, Any]], dict[str, Any]]
"""What a benchmark takes from the folder and the summary of an evaluation."""


def run(settings: EvaluateConfig, name: str, scratch: Path, taken: Taken) -> dict[str, Any]:
    """An evaluation of one policy, in a folder of that name below `scratch` until it is finished: how it was run, and
    what is taken from it."""
    (policy,) = settings.policy
    known = weights(settings.world.task, policy)
    out = scratch / f"{name}-{known or 'fixed'}"
    resumed, began = out.exists(), time.monotonic()
    with bars() as bar:
        folder, summary = evaluate(settings.world.task, replace(settings, out=out, resume=True), bar(name))
    found = {
        "delay": settings.delay,
        "weights": known,
        **{key: summary[key] for key in ("version", "device")},
        "precision": "fp32" if known is None else summary["precision"],
        "seconds": None if resumed else round(time.monotonic() - began, 1),
        **taken(folder, summary),
    }
    shutil.rmtree(folder)
    return found


def command(main: Callable[[Any], None], config: type, name: str) -> None:
    """Run a benchmark from the command line: mistakes and interruptions end it with one line."""
    try:
        main(tyro.cli(config, prog=f"python -m benchmarks.{name}"))
    except MastError as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        sys.exit(f"{name}: interrupted; the same command goes on")
