"""`mast reproduce` and `tune`: the paper's experiments, and its search for hyper-parameters."""

from __future__ import annotations

from pathlib import Path

from mast_swarm.cli.reading import parse, task_in
from mast_swarm.paper.config import ReproduceConfig
from mast_swarm.train.tune_config import TuneConfig


def reproduce_verb(args: list[str]) -> None:
    config = parse(ReproduceConfig, args, "mast reproduce")
    from mast_swarm.paper.run import reproduce

    reproduce(config)


def tune_verb(args: list[str]) -> None:
    task, rest = task_in(args, "tune")
    config = parse(TuneConfig, rest, f"mast tune {task.name}")
    from mast_swarm.train.tune import told, tune

    study = tune(task.name, config)
    print(f"{told(study)}; see {config.out or Path(f'runs/tune-{task.name}')}")
