"""The command `mast`: one sub-command a verb. Nothing heavy is imported until a verb runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro

from mast_swarm.errors import MastError, unknown
from mast_swarm.train.config import TrainConfig, recipe

_VERBS: dict[str, tuple[Callable[[list[str]], None], str]] = {}


def verb(name: str, summary: str) -> Callable[[Callable[[list[str]], None]], Callable[[list[str]], None]]:
    """Decorator: registers a sub-command that takes the rest of the command line."""

    def register(function: Callable[[list[str]], None]) -> Callable[[list[str]], None]:
        _VERBS[name] = (function, summary)
        return function

    return register


def main(argv: Sequence[str] | None = None) -> None:
    """Entry point. Bad input: one line on stderr and status 2; Ctrl-C: status 130."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if not args or args[0] in ("-h", "--help"):
            print(_help())
        elif args[0] == "--version":
            from mast_swarm import __version__

            print(f"mast {__version__}")
        elif args[0] in _VERBS:
            _VERBS[args[0]][0](args[1:])
        else:
            raise unknown("command", args[0], _VERBS)
    except MastError as error:
        print(f"mast: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except BrokenPipeError:  # the reader of our output left, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(141) from None
    except KeyboardInterrupt:
        print("mast: interrupted; what was finished is kept", file=sys.stderr)
        raise SystemExit(130) from None


def _help() -> str:
    width = max(len(name) for name in _VERBS)
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in _VERBS.items()]
    return "\n".join(
        [
            "usage: mast COMMAND [options]",
            "",
            "MAST: a team of robots that act together with nobody in charge.",
            "",
            *lines,
            "",
            "mast COMMAND --help shows a command's options.",
        ]
    )


def _parse(kind: type, args: list[str], prog: str, default: Any = None) -> Any:
    return tyro.cli(kind, args=args, prog=prog, **({} if default is None else {"default": default}))


def _task(args: list[str], verb_name: str) -> tuple[str, list[str]]:
    """The task that a verb's first word names."""
    known = ["navigation"]
    if args and args[0] in ("-h", "--help"):
        print(f"usage: mast {verb_name} TASK [options]\n\nTASK is one of: {', '.join(known)}")
        raise SystemExit(0)
    if not args or args[0].startswith("-"):
        raise MastError(f"mast {verb_name} needs a task: mast {verb_name} {known[0]} ...")
    if args[0] not in known:
        raise unknown("task", args[0], known)
    return args[0], args[1:]


@dataclass(frozen=True)
class DemoConfig:
    """Two policies on the same start state, side by side in a replay that opens in any browser."""

    out: Path = Path("runs/demo")
    """Folder for the replay; made anew each time."""
    agents: int = 100
    """Number of robots."""
    scenario: str = "clusters-1-5"
    """How robots and goals start."""
    steps: int = 200
    """Control periods."""
    seed: int = 0
    """Chooses the start state."""


@verb("demo", "watch two teams solve the same task, side by side")
def demo(args: list[str]) -> None:
    config = _parse(DemoConfig, args, "mast demo")
    from mast_swarm.evaluate.config import EvaluateConfig
    from mast_swarm.world.config import NavigationConfig

    if config.out.exists():
        _clear_demo(config.out)
    world = NavigationConfig(agents=config.agents, scenario=config.scenario)
    _evaluate(
        "navigation",
        EvaluateConfig(
            world=world,
            policy=("lsap", "dhba-4"),
            episodes=1,
            steps=config.steps,
            seed=config.seed,
            record=1,
            out=config.out,
        ),
    )


def _clear_demo(folder: Path) -> None:
    """Remove what an earlier demo wrote; a folder with anything else in it is left alone."""
    import shutil

    made = {
        "config.json",
        "episodes.parquet",
        "summary.json",
        "curves.png",
        "frames.png",
        "replay.html",
        "parts",
    }
    strange = [p.name for p in folder.iterdir() if p.name not in made and not p.name.startswith("recording-")]
    if strange:
        raise MastError(f"{folder} holds {strange[0]}, which no demo wrote: give another --out")
    shutil.rmtree(folder)


@verb("evaluate", "roll policies out on the same start states; tables, summary, curves")
def evaluate_verb(args: list[str]) -> None:
    task, rest = _task(args, "evaluate")
    from mast_swarm.evaluate.config import EvaluateConfig

    _evaluate(task, _parse(EvaluateConfig, rest, f"mast evaluate {task}"))


def _evaluate(task: str, config: Any) -> None:
    """Run, draw, and say where things are."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from mast_swarm.evaluate.run import evaluate
    from mast_swarm.view.report import report

    console = Console()
    columns = (TextColumn("{task.description:<16}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeRemainingColumn(), console=console) as bars:
        rows: dict[str, Any] = {}

        def tick(policy: str, done: int, total: int) -> None:
            if policy not in rows:
                rows[policy] = bars.add_task(policy, total=total)
            bars.update(rows[policy], completed=done)

        folder, summary = evaluate(task, config, tick)
    made = report(folder)
    console.print(_table(summary))
    for what, path in made.items():
        console.print(f"{what}: {path}", soft_wrap=True)


def _table(summary: dict[str, Any]) -> Any:
    """Success rates at the reported instants, a row a policy."""
    from rich.table import Table

    rows = [row for row in summary["rows"] if row["metric"] == "success_rate"]
    times = sorted({row["t"] for row in rows})
    last = times[-1]
    shown = [t for t in times if t in (50, 100, 200, 400, 800) or t == last]
    table = Table(title="success rate (mean ± 95 % interval)")
    table.add_column("policy")
    for t in shown:
        table.add_column(f"t = {t:g} s", justify="right")
    for policy in dict.fromkeys(row["policy"] for row in rows):
        found = {row["t"]: row for row in rows if row["policy"] == policy}
        table.add_row(policy, *(f"{found[t]['mean']:.3f} ± {found[t]['ci95']:.3f}" for t in shown))
    return table


@dataclass(frozen=True)
class TrainCommand:
    """Learn a policy by imitation. Start from a recipe and change what you like; `mast train --resume DIR` goes on."""

    train: Annotated[TrainConfig, tyro.conf.arg(name="")]
    """What to learn."""
    recipe: str = "best"
    """Where the settings start: best, paper or tiny."""
    out: Path | None = None
    """Folder of the run; unset: a new one under runs/."""
    resume: Path | None = None
    """Go on with the run in this folder."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    checkpoint_seconds: float = 60.0
    """Least time between two checkpoints."""
    keep_replay: bool = True
    """Keep the replay in checkpoints (about 7.4 kB a sample of 100 robots); without it resuming is not exact."""


@verb("train", "learn a policy by imitation, on a GPU or a laptop; resumable")
def train_verb(args: list[str]) -> None:
    resuming = "--resume" in args and (not args or args[0].startswith("-"))
    task, rest = ("navigation", args) if resuming else _task(args, "train")
    chosen = recipe(rest[rest.index("--recipe") + 1] if "--recipe" in rest[:-1] else "best")
    command = _parse(TrainCommand, rest, f"mast train {task}", TrainCommand(train=chosen))
    from mast_swarm.train.run import train

    if command.resume is not None and command.out is not None:
        raise MastError("--resume names the folder already: leave --out away")
    folder = train(
        None if resuming else command.train,
        command.resume or command.out,
        resume=command.resume is not None,
        device=command.device,
        checkpoint_seconds=command.checkpoint_seconds,
        keep_replay=command.keep_replay,
    )
    print(f"run: {folder}\nbest policy: {folder / 'best'}\nlast policy: {folder / 'last'}")


@dataclass(frozen=True)
class ReplayConfig:
    """Make the HTML replay of recorded episodes (from `mast evaluate ... --record N`)."""

    folder: tyro.conf.Positional[Path]
    """A results folder with recordings."""
    episode: int = 0
    """Which recorded episode."""
    policy: tuple[str, ...] = field(default=())
    """Which policies, side by side; unset: all that were recorded."""
    out: Path | None = None
    """The HTML file; unset: replay.html in the folder."""


@verb("replay", "make the HTML replay of recorded episodes")
def replay(args: list[str]) -> None:
    config = _parse(ReplayConfig, args, "mast replay")
    from mast_swarm.view.report import replay_folder

    print(f"replay: {replay_folder(config.folder, config.episode, config.policy, config.out)}")


@verb("list", "what there is: tasks, scenarios, controllers, shipped policies")
def list_verb(args: list[str]) -> None:
    if args:
        raise MastError("mast list takes no options")
    import mast_swarm.world.navigation  # noqa: F401  registers the task
    from mast_swarm import controllers
    from mast_swarm.model.policy import zoo_names
    from mast_swarm.world.base import tasks
    from mast_swarm.world.scenarios import scenarios

    for task in tasks():
        print(f"task {task}")
        print("  controllers:", ", ".join(controllers.names(task)))
        shipped = [name for name in zoo_names() if name.startswith(f"{task}/")]
        print("  policies:", ", ".join(shipped) if shipped else "none shipped yet")
        print("  scenarios:")
        for found in scenarios():
            print(f"    {found.usage:<12} {found.summary}")
