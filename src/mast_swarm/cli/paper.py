"""`mast reproduce` and `tune`: the paper's experiments, and its search for hyper-parameters."""

from __future__ import annotations

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
    from mast_swarm.train.tune import search_of, told, tune
    from mast_swarm.view.search import search_plots
    from mast_swarm.view.terminal import under_way

    with under_way() as shown:
        study = tune(args[0], config, drawn=search_plots, shown=shown)
    search = search_of(args[0], config)
    print(f"{told(study, config.trials)}; see {search.out}")
    if (search.out / "best.toml").exists():
        print(f"train with the best settings: {search.command}")
