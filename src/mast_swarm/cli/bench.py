"""`mast bench`: how quick this machine is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from mast_swarm.cli.reading import UNSET, parse
from mast_swarm.errors import unknown
from mast_swarm.evaluate.bench_config import DecentralBenchConfig, ScaleConfig, WorldBenchConfig
from mast_swarm.files import check_writable
from mast_swarm.tasks import DEFAULT
from mast_swarm.tasks import registry as tasks
from mast_swarm.train.config import recipe, recipes


@dataclass(frozen=True)
class TrainBenchConfig:
    """How long a training step takes on this machine, and where the time goes."""

    task: str = DEFAULT
    """The task, as `mast list` shows it, or path/to/file.py:TASK."""
    recipe: Annotated[str, UNSET] = ""
    """Whose shapes to measure: a recipe of the task; unset: its first."""
    compare: bool = False
    """Measure the update by torch's AdamW too, tensor by tensor."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""
    out: Path = Path("runs/bench")
    """Folder for the file, which bears the names of the task and the machine."""


def _bench_train(config: TrainBenchConfig) -> None:
    task = tasks.find(config.task)
    chosen = recipe(config.recipe or next(iter(recipes(task))), task)
    from rich.console import Console

    from mast_swarm.evaluate.actors import pick_device
    from mast_swarm.evaluate.measure import file_name
    from mast_swarm.files import write_json
    from mast_swarm.train.bench import bench_train
    from mast_swarm.view.terminal import train_table

    device = pick_device(config.device)
    check_writable(config.out)
    found = bench_train(chosen, device, compare=config.compare)
    made = config.out / f"{file_name(f'train-{task.name}', found['device'])}.json"
    write_json(made, found)
    Console().print(train_table(found))
    print(f"written: {made}")


def _bench_teams(config: ScaleConfig | WorldBenchConfig | DecentralBenchConfig) -> None:
    """Measure with a line for each team, show the table, write files that bear the machine's name."""
    from rich.console import Console

    from mast_swarm.evaluate import bench
    from mast_swarm.evaluate.actors import pick_device
    from mast_swarm.evaluate.measure import file_name
    from mast_swarm.files import write_json
    from mast_swarm.view import scale

    runs: dict[type, Any] = {
        ScaleConfig: bench.bench_scale,
        WorldBenchConfig: bench.bench_world,
        DecentralBenchConfig: bench.bench_decentral,
    }
    device = pick_device(config.device)
    check_writable(config.out)
    result = runs[type(config)](config, device, lambda row: print(scale.row_line(row), flush=True))
    Console().print(scale.bench_table(result))
    title = result["benchmark"] if result["task"] == DEFAULT else f"{result['benchmark']}-{result['task']}"
    made = config.out / (file_name(title, result["machine"]["device"]) + config.suffix(device.type))
    write_json(made.with_suffix(".json"), result)
    print(f"written: {made}.json")
    print(f"plot: {scale.scale_plot(result, made.with_suffix('.png'))}")
    for sentence in scale.conclusions(result):
        print(sentence)


_BENCHES: dict[str, tuple[type[Any], Callable[[Any], None], str]] = {
    "train": (TrainBenchConfig, _bench_train, "a training step, and where its time goes"),
    "scale": (ScaleConfig, _bench_teams, "a closed-loop step of ever larger teams: time, memory, a plot"),
    "world": (WorldBenchConfig, _bench_teams, "a step of the world alone: time, memory, a plot"),
    "decentral": (DecentralBenchConfig, _bench_teams, "a step of robots that decide alone: time, memory, a plot"),
}


def bench_verb(args: list[str]) -> None:
    given = args[0] if args else "--help"
    if given in _BENCHES:
        settings, run, _ = _BENCHES[given]
        run(parse(settings, args[1:], f"mast bench {given}"))
        return
    lines = [f"  {name:<10} {summary}" for name, (_, _, summary) in _BENCHES.items()]
    print("\n".join(["usage: mast bench WHAT [options]", "", "WHAT is one of", *lines]))
    if given not in ("-h", "--help"):
        raise unknown("benchmark", given, _BENCHES)
