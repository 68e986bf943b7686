"""`mast demo`, `evaluate`, `replay` and `verify`: what policies do, and what there is to see of it."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mast_swarm.cli.reading import UNSET, completed, given_in, option, own_names, parse, task_in
from mast_swarm.errors import MastError
from mast_swarm.evaluate.config import TOPICS, DemoConfig, EvaluateConfig, defaults, demo_defaults
from mast_swarm.tasks import DEFAULT
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Task


def demo(args: list[str]) -> None:
    given = option(args, "--task") or DEFAULT
    task = tasks.find(given)
    shown = task.default_demo
    topics = {"the world": own_names(demo_defaults(task, given).world, "task", "steps", "seed")}
    config = parse(DemoConfig, args, "mast demo", demo_defaults(task, given), topics)
    config = _usual(completed(config, args), task, args)
    chosen = config.evaluation(shown.policies, config.out or Path("runs/demo"))
    if config.out is not None:
        _check_unused(config.out)
    elif Path("runs/demo").is_dir():
        from mast_swarm.evaluate.run import prepare

        prepare(task.name, chosen)  # the last demo stays if this one cannot begin
        _clear_demo(Path("runs/demo"))
    summary, made = _evaluate(task, chosen)
    _tell_idle(config.delay, summary)
    last = max(row["t"] for row in summary["rows"])
    outcome = shown.outcome or f"has a {task.metric.words} of {{{task.metric.name}:.{task.metric.digits}f}}"
    for policy in dict.fromkeys(row["policy"] for row in summary["rows"]):
        rows = [row for row in summary["rows"] if row["policy"] == policy and row["t"] == last]
        print(f"{policy} {outcome.format(**{row['metric']: row['mean'] for row in rows})} after {last:g} s")
    print(f"open in a browser: {made['replay'].resolve()}")


def _usual(config: DemoConfig, task: Task, args: list[str]) -> DemoConfig:
    """The demo's settings; where so few robots cannot start as its own scenario has it, the world's usual one."""
    if given_in(args, ["scenario"]) or "scenario" not in own_names(config.world):
        return config
    try:
        task.make(config.world).draw(config.seed, config.world.scenario)
    except MastError:
        return replace(config, world=replace(config.world, scenario=task.Config().scenario))  # type: ignore[call-arg]
    return config


def _check_unused(folder: Path) -> None:
    """Refuse a folder with something in it: a demo begins anew, and clears none but its own."""
    try:
        used = folder.exists() and (not folder.is_dir() or any(folder.iterdir()))
    except OSError as error:
        raise MastError(f"cannot read {folder}: {error.strerror}; give another --out") from None
    if used:
        raise MastError(f"{folder} is already used: give another --out, or none for runs/demo, made anew each time")


def _clear_demo(folder: Path) -> None:
    """Remove what an earlier demo wrote; a folder with anything else in it is left alone."""
    import shutil

    made = {"config.json", "episodes.parquet", "summary.json", "parts", "curves.png", "frames.png", "replay.html"}
    strange = [p.name for p in folder.iterdir() if p.name not in made and not p.name.startswith((".", "recording-"))]
    if strange:
        raise MastError(f"{folder} holds {strange[0]}, which no demo wrote: move it, or give another --out")
    shutil.rmtree(folder)


def evaluate_verb(args: list[str]) -> None:
    task, rest = task_in(args, "evaluate")
    topics = {**TOPICS, "the world": own_names(task.Config)}
    config = completed(parse(EvaluateConfig, rest, f"mast evaluate {task.name}", defaults(task), topics), rest)
    if option(rest, "--episodes") is None:
        config = config.once_each()
    from mast_swarm.evaluate.run import Interrupted

    if config.resume and config.out is not None and not config.out.exists():
        print(f"{config.out} is not there yet: the run begins anew", file=sys.stderr)
    try:
        summary, made = _evaluate(task, config)
    except Interrupted as stopped:
        if (stopped.folder / "config.json").exists():  # which goes where nothing was finished
            again = f"the same command with --out {stopped.folder} --resume goes on"
            raise type(stopped.by)(f"interrupted; what was finished is in {stopped.folder}, {again}") from None
        raise type(stopped.by)("interrupted; nothing was finished yet, so nothing is kept") from None
    _tell_idle(config.delay, summary)
    for what, path in made.items():
        print(f"{what}: {path}")


def _evaluate(task: Task, config: EvaluateConfig) -> tuple[dict[str, Any], dict[str, Path]]:
    """Run with progress bars, show the tables, draw; the summary, and what each file is -> its path."""
    from rich.console import Console

    from mast_swarm.evaluate.policies import differing
    from mast_swarm.evaluate.run import Interrupted, evaluate
    from mast_swarm.view.report import report
    from mast_swarm.view.terminal import bars, paired_table, result_table

    for line in differing(config.world, config.policy):
        print(line, file=sys.stderr)
    with bars() as bar:
        folder, summary = evaluate(task.name, config, bar(""))
    console = Console()
    if not console.is_terminal:  # a file or a pipe has room
        console = Console(width=240)
    for table in (result_table(summary), paired_table(summary)):
        if table is not None:
            console.print(table)
    try:
        return summary, report(folder)
    except KeyboardInterrupt as stopped:
        raise Interrupted(folder, stopped) from None


def _tell_idle(delay: float | None, summary: dict[str, Any]) -> None:
    """Say so where somebody gave a delay and no policy sends messages."""
    if delay is not None and all(row["delay"] is None for row in summary["rows"]):
        print(f"--delay {delay:g} changed nothing: no policy here sends messages", file=sys.stderr)


@dataclass(frozen=True)
class ReplayConfig:
    """Make the HTML replay of recorded episodes (from `mast evaluate ... --record N`)."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER")]]
    """A results folder with recordings."""
    episode: int = 0
    """Which recorded episode."""
    policy: Annotated[tuple[str, ...], UNSET] = ()
    """Which policies, side by side in this order; unset: all that were recorded."""
    out: Annotated[Path | None, tyro.conf.DisallowNone, UNSET] = None
    """A file for a browser (.html), slides (.gif, .mp4, .png), Foxglove (.mcap), Rerun (.rrd); unset: replay.html."""
    task: Annotated[str | None, tyro.conf.DisallowNone, UNSET] = None
    """path/to/file.py:TASK, where the task's file has moved since."""


def replay(args: list[str]) -> None:
    config = parse(ReplayConfig, args, "mast replay")
    from mast_swarm.interop.recordings import WRITERS, export
    from mast_swarm.view.film import ENDINGS, film
    from mast_swarm.view.report import load_recordings, replay_folder

    if config.task is not None:
        tasks.find(config.task)
    if config.out is not None and config.out.suffix in WRITERS:
        made = export(load_recordings(config.folder, config.episode, config.policy), config.out)
    elif config.out is not None and config.out.suffix in ENDINGS:
        made = film(load_recordings(config.folder, config.episode, config.policy), config.out)
    elif config.out is not None and config.out.suffix not in ("", ".html", ".htm"):
        known = ", ".join((".html", *ENDINGS, *WRITERS))
        raise MastError(f"{config.out} is no kind of file that a replay can be: give one of {known}")
    else:
        made = replay_folder(config.folder, config.episode, config.policy, config.out)
    print(f"replay: {made}")


@dataclass(frozen=True)
class VerifyConfig:
    """Run the evaluations that the cards of shipped policies state, and fail if a number does not hold."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Policies, as navigation/mast-m, or folders with a card; none: all that are shipped."""
    full: bool = False
    """Every claim of a card, not only the short ones: for a GPU, or a long evening."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""


def verify_verb(args: list[str]) -> None:
    config = parse(VerifyConfig, args, "mast verify")
    from mast_swarm.evaluate.cards import verify
    from mast_swarm.view.terminal import bars

    failed = 0
    with bars() as tick:
        for verdict in verify(
            list(config.names or tasks.policies()), full=config.full, device=config.device, progress=tick
        ):
            failed += not verdict.holds
            print(verdict)
    if failed:
        raise SystemExit(1)
