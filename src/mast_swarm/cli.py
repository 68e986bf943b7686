"""The command `mast`: one sub-command per verb. Nothing heavy is imported until a verb runs."""

from __future__ import annotations

import inspect
import os
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import tyro

from mast_swarm.errors import MastError, unknown
from mast_swarm.evaluate.bench_config import DecentralBenchConfig, ScaleConfig, WorldBenchConfig
from mast_swarm.evaluate.config import DemoConfig, EvaluateConfig, defaults, demo_defaults
from mast_swarm.tasks import DEFAULT
from mast_swarm.tasks import registry as tasks
from mast_swarm.tasks.base import Task, imported
from mast_swarm.train.config import TrainConfig, from_run, from_toml, recipe, recipes

Config = TypeVar("Config")
_UNSET = tyro.conf.arg(help_behavior_hint="")  # the help says what happens without a value

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
    except (MemoryError, RuntimeError) as error:
        lacking = ("can't allocate memory", "out of memory")  # as torch says it, of a CPU's and of a GPU's
        if isinstance(error, RuntimeError) and not any(text in str(error) for text in lacking):
            raise
        print("mast: out of memory: give a smaller world, fewer --agents or a smaller --batch", file=sys.stderr)
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


def _parse(kind: type[Config], args: list[str], prog: str, default: Config | None = None) -> Config:
    """A config from the command line."""

    # tyro draws a box around a ValueError of a class; through a function our errors arrive as they are.
    def given(config: Any) -> Any:
        return config

    given.__annotations__["config"] = Annotated[kind, tyro.conf.arg(name="")]
    if default is not None:
        given.__defaults__ = (default,)
    return tyro.cli(given, args=args, prog=prog, description=kind.__doc__, config=(tyro.conf.FlagCreatePairsOff,))


def _task(args: list[str], verb_name: str) -> tuple[Task, list[str]]:
    """The task that a verb's first word names."""
    if args and args[0] in ("-h", "--help"):
        rows = "\n".join(f"  {name}: mast {verb_name} {name} --help shows its options" for name in tasks.names())
        print(
            f"usage: mast {verb_name} TASK [options]\n\n{_VERBS[verb_name][1]}\n\nTASK is one of\n{rows}\n"
            "  path/to/file.py:TASK: a task of your own"
        )
        raise SystemExit(0)
    if not args or args[0].startswith("-"):
        raise MastError(f"mast {verb_name} needs a task: mast {verb_name} {DEFAULT} ...")
    return tasks.find(args[0]), args[1:]


@verb("demo", "watch two teams solve the same task, side by side")
def demo(args: list[str]) -> None:
    given = _option(args, "--task") or DEFAULT
    task = tasks.find(given)
    shown = task.default_demo
    config = _parse(DemoConfig, args, "mast demo", demo_defaults(task, given))
    chosen = config.evaluation(shown.policies, config.out or Path("runs/demo"))
    if config.out is not None:
        _check_unused(config.out)
    elif Path("runs/demo").is_dir():
        from mast_swarm.evaluate.run import prepare

        prepare(task.name, chosen)  # the last demo stays if this one cannot begin
        _clear_demo(Path("runs/demo"))
    summary, made = _evaluate(task, chosen)
    last = max(row["t"] for row in summary["rows"])
    outcome = shown.outcome or f"has a {task.metric.words} of {{{task.metric.name}:.{task.metric.digits}f}}"
    for policy in dict.fromkeys(row["policy"] for row in summary["rows"]):
        rows = [row for row in summary["rows"] if row["policy"] == policy and row["t"] == last]
        print(f"{policy} {outcome.format(**{row['metric']: row['mean'] for row in rows})} after {last:g} s")
    print(f"open in a browser: {made['replay'].resolve()}")


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


@verb("evaluate", "roll policies out on the same start states; tables, summary, curves")
def evaluate_verb(args: list[str]) -> None:
    task, rest = _task(args, "evaluate")
    config = _parse(EvaluateConfig, rest, f"mast evaluate {task.name}", defaults(task))
    from mast_swarm.evaluate.run import Interrupted

    try:
        _, made = _evaluate(task, config)
    except Interrupted as stopped:
        if not (stopped.folder / "summary.json").exists():
            raise
        again = f"the same command with --out {stopped.folder} --resume goes on"
        print(f"mast: interrupted; what was finished is in {stopped.folder}, {again}", file=sys.stderr)
        raise SystemExit(130) from None
    for what, path in made.items():
        print(f"{what}: {path}")


def _evaluate(task: Task, config: EvaluateConfig) -> tuple[dict[str, Any], dict[str, Path]]:
    """Run with progress bars, draw, show the table; the summary, and what each file is -> its path."""
    from rich.console import Console

    from mast_swarm.evaluate.run import evaluate
    from mast_swarm.view.report import report
    from mast_swarm.view.terminal import bars, result_table

    with bars() as bar:
        folder, summary = evaluate(task.name, config, bar(""))
    made = report(folder)
    Console().print(result_table(summary))
    return summary, made


@dataclass(frozen=True)
class TrainCommand:
    """Learn a policy by imitation. Start from a recipe and change what you like; `mast train --resume DIR` goes on."""

    train: Annotated[TrainConfig, tyro.conf.arg(name="")]
    """What to learn."""
    recipe: str = "best"
    """Where the settings start: best, or another that `mast list` shows for the task."""
    config: Path | None = None
    """A TOML file of settings that differ from the recipe, those of [world] and [policy] in tables of these names."""
    out: Path | None = None
    """Folder of the run; unset: a new one under runs/."""
    resume: Path | None = None
    """Go on with the run in this folder."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train."""
    checkpoint_seconds: float = 300.0
    """Least time between two checkpoints."""
    keep_replay: bool = True
    """Keep the replay in checkpoints (the run says how large they are); without it resuming is exact only where the
    expert alone has driven."""


@verb("train", "learn a policy by imitation, on a GPU or a laptop; resumable")
def train_verb(args: list[str]) -> None:
    stopped, settings = _option(args, "--resume"), _option(args, "--config")
    if stopped is not None and args[0].startswith("-"):
        chosen, rest = from_run(Path(stopped)), args
        task = tasks.task_of(chosen.world)
    else:
        task, rest = _task(args, "train")
        chosen = recipe(_option(rest, "--recipe") or "best", task) if stopped is None else from_run(Path(stopped))
    if tasks.task_of(chosen.world) is not task:
        raise MastError(
            f"the run in {stopped} learns {chosen.world.task}, not {task.name}: `mast train --resume {stopped}`"
        )
    if settings is not None:
        chosen = from_toml(Path(settings), chosen)
    command = _parse(TrainCommand, rest, f"mast train {task.name}", TrainCommand(train=chosen))
    if command.resume is not None and command.out is not None:
        raise MastError("--resume names the folder already: leave --out away")
    from mast_swarm.train.run import train

    folder = train(
        command.train,
        command.resume or command.out,
        resume=command.resume is not None,
        device=command.device,
        checkpoint_seconds=command.checkpoint_seconds,
        keep_replay=command.keep_replay,
    )
    if os.environ.get("RANK", "0") == "0":  # of torchrun's processes one speaks
        print(f"run: {folder}\nbest policy: {folder / 'best'}\nlast policy: {folder / 'last'}")


def _option(args: list[str], name: str) -> str | None:
    """The value given for an option, as `--name value` or `--name=value`; None without one."""
    for number, given in enumerate(args):
        if given == name:
            return args[number + 1] if number + 1 < len(args) else None
        if given.startswith(f"{name}="):
            return given.removeprefix(f"{name}=")
    return None


@dataclass(frozen=True)
class ReplayConfig:
    """Make the HTML replay of recorded episodes (from `mast evaluate ... --record N`)."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="FOLDER")]]
    """A results folder with recordings."""
    episode: int = 0
    """Which recorded episode."""
    policy: Annotated[tuple[str, ...], _UNSET] = ()
    """Which policies, side by side in this order; unset: all that were recorded."""
    out: Annotated[Path | None, tyro.conf.DisallowNone, _UNSET] = None
    """The HTML file; unset: replay.html in the folder, made anew."""


@verb("replay", "make the HTML replay of recorded episodes")
def replay(args: list[str]) -> None:
    config = _parse(ReplayConfig, args, "mast replay")
    from mast_swarm.view.report import replay_folder

    print(f"replay: {replay_folder(config.folder, config.episode, config.policy, config.out)}")


@verb("play", "open the playground: drag, kill and cut off robots while they decide in your browser")
def play_verb(args: list[str]) -> None:
    from mast_swarm.play.config import PlayConfig

    config = _parse(PlayConfig, args, "mast play")
    from mast_swarm.play.run import play

    play(config)


@dataclass(frozen=True)
class VerifyConfig:
    """Run the evaluations that the cards of shipped policies state, and fail if a number does not hold."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Policies, as navigation/mast-m, or folders with a card; none: all that are shipped."""
    full: bool = False
    """Every claim of a card, not only the short ones: for a GPU, or a long evening."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""


@verb("verify", "check the numbers on the cards of the shipped policies")
def verify_verb(args: list[str]) -> None:
    config = _parse(VerifyConfig, args, "mast verify")
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


@dataclass(frozen=True)
class TrainBenchConfig:
    """How long a training step takes on this machine, and where the time goes."""

    task: str = DEFAULT
    """The task, as `mast list` shows it, or path/to/file.py:TASK."""
    recipe: Annotated[str, _UNSET] = ""
    """Whose shapes to measure: a recipe of the task; unset: its first."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run."""
    out: Path = Path("runs/bench")
    """Folder for the file, which bears the names of the task and the machine."""


def _bench_train(config: TrainBenchConfig) -> None:
    task = tasks.find(config.task)
    chosen = recipe(config.recipe or next(iter(recipes(task))), task)
    import json

    from mast_swarm.evaluate.actors import pick_device
    from mast_swarm.evaluate.measure import file_name
    from mast_swarm.files import write_json
    from mast_swarm.train.bench import bench_train

    device = pick_device(config.device)
    _writable(config.out)
    found = bench_train(chosen, device)
    made = config.out / f"{file_name(f'train-{task.name}', found['device'])}.json"
    write_json(made, found)
    print(json.dumps(found, indent=1))
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
    _writable(config.out)
    result = runs[type(config)](config, device, lambda row: print(scale.row_line(row), flush=True))
    Console().print(scale.bench_table(result))
    title = result["benchmark"] if result["task"] == DEFAULT else f"{result['benchmark']}-{result['task']}"
    made = config.out / (file_name(title, result["machine"]["device"]) + config.suffix(device.type))
    write_json(made.with_suffix(".json"), result)
    print(f"written: {made}.json")
    print(f"plot: {scale.scale_plot(result, made.with_suffix('.png'))}")
    for sentence in scale.conclusions(result):
        print(sentence)


def _writable(folder: Path) -> None:
    """Make the folder before anything is measured."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MastError(f"cannot write to {folder}: {error.strerror}; give another --out") from None


_BENCHES: dict[str, tuple[type[Any], Callable[[Any], None], str]] = {
    "train": (TrainBenchConfig, _bench_train, "a training step, and where its time goes"),
    "scale": (ScaleConfig, _bench_teams, "a closed-loop step of ever larger teams: time, memory, a plot"),
    "world": (WorldBenchConfig, _bench_teams, "a step of the world alone: time, memory, a plot"),
    "decentral": (DecentralBenchConfig, _bench_teams, "a step of robots that decide alone: time, memory, a plot"),
}


@verb("bench", "measure speed on this machine: training, large teams, the world, every robot alone")
def bench_verb(args: list[str]) -> None:
    given = args[0] if args else "--help"
    if given in _BENCHES:
        settings, run, _ = _BENCHES[given]
        run(_parse(settings, args[1:], f"mast bench {given}"))
        return
    lines = [f"  {name:<10} {summary}" for name, (_, _, summary) in _BENCHES.items()]
    print("\n".join(["usage: mast bench WHAT [options]", "", "WHAT is one of", *lines]))
    if given not in ("-h", "--help"):
        raise unknown("benchmark", given, _BENCHES)


@dataclass(frozen=True)
class ListConfig:
    """What there is to name on the command line: tasks, how they start, controllers, shipped policies, recipes."""

    tasks: tyro.conf.Positional[tuple[str, ...]] = ()
    """Which tasks, or path/to/file.py:TASK; none: all that are installed."""


@verb("list", "what there is: tasks, scenarios, controllers, shipped policies, recipes")
def list_verb(args: list[str]) -> None:
    config = _parse(ListConfig, args, "mast list")
    from mast_swarm import zoo
    from mast_swarm.evaluate.cards import opening

    for task in [tasks.find(name) for name in config.tasks or tasks.names()]:
        shipped = [name for name in zoo.policies() if name.startswith(f"{task.name}/")]
        families = " (K: a number)" if task.families else ""
        sections: dict[str, list[tuple[str, str]]] = {
            f"controllers{families}": [(name, _about(task, name)) for name in task.controller_names],
            "trained policies": [(name.split("/", 1)[1], _sentence(opening(name))) for name in shipped],
        }
        starts = task.part("starts")
        if starts is not None:
            sections[starts.plural] = [(found.usage, found.summary) for found in starts]
        sections["recipes for training"] = [(name, "") for name in recipes(task)]
        print(f"task {task.name}")
        for title, rows in sections.items():
            if rows:
                print(f"  {title}")
            width = max((len(name) for name, _ in rows), default=0)
            for name, summary in rows:
                print(f"    {name:<{max(12, width)}} {summary}".rstrip())
    if not config.tasks:
        for name, why in tasks.broken().items():
            print(f"task {name} of another package cannot be used: {why}")


def _about(task: Task, controller: str) -> str:
    """The first sentence of a controller's docstring."""
    return _sentence(inspect.getdoc(imported(task.controllers[controller])) or "")


def _sentence(text: str) -> str:
    """The first sentence of a text, in one line and cut where that would be long."""
    if not text:
        return ""
    sentence = " ".join(text.split()).split(". ")[0].rstrip(".") + "."
    return textwrap.shorten(sentence, 130, placeholder=" ...")


@dataclass(frozen=True)
class ExportConfig:
    """Write what one robot computes as ONNX files that need no torch, with a manifest. Fails if they differ."""

    policy: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="POLICY")]]
    """A shipped policy as TASK/NAME, or a folder."""
    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """A new or empty folder for the files."""
    precision: Literal["fp32", "fp16", "int8"] = "fp32"
    """fp16: weights in half the space; int8: products in 8 bits but in perceive. The loss is measured and stated."""
    task: Annotated[str | None, tyro.conf.DisallowNone, _UNSET] = None
    """path/to/file.py:TASK, where the policy's task is not installed."""


@verb("export", "write what one robot computes as ONNX, for robots without torch")
def export_verb(args: list[str]) -> None:
    config = _parse(ExportConfig, args, "mast export")
    from mast_swarm.interop.onnx import export

    manifest = export(config.policy, config.folder, precision=config.precision, task=config.task)
    for name, file in manifest["files"].items():
        print(f"{config.folder / name}: {file['bytes'] / 1e6:.2f} MB")
    print(f"{config.folder / 'manifest.json'}: of weights {manifest['weights']['sha256']}")
    told = {"parity": "fp32 in onnxruntime against torch", "loss": f"{config.precision} against torch"}
    for key, what in told.items():
        if key in manifest:
            largest, mean = (manifest[key][f"{which}_command_difference"] for which in ("largest", "mean"))
            print(
                f"{key}: {what}, {manifest[key]['states']} states: commands differ by {largest:.1e} at most and by "
                f"{mean:.1e} on average, in units of the longest one"
            )


@dataclass(frozen=True)
class CheckConfig:
    """Check a world of your own: seeds, batches, shapes, dtypes, devices. Says what to mend."""

    task: tyro.conf.Positional[Annotated[str, tyro.conf.arg(metavar="TASK")]]
    """path/to/file.py:TASK, or the name of an installed task."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run besides the CPU; auto: a GPU too where there is one."""


@verb("check", "check a task of your own, and say what to mend")
def check_verb(args: list[str]) -> None:
    config = _parse(CheckConfig, args, "mast check")
    from mast_swarm.testing import check_task

    for line in check_task(tasks.find(config.task), config.device):
        print(line)
    print(f"{config.task}: all checks passed")


@dataclass(frozen=True)
class NewTeamConfig:
    """Make the keys of a new team: a folder with team.json for all robots, and keys/robot-N.key for robot N alone."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """The team's folder; it is made."""
    robots: int = 8
    """How many robots."""


@dataclass(frozen=True)
class AddRobotsConfig:
    """Add robots to a team. Every robot then needs the new team.json."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """The team's folder."""
    robots: int = 1
    """How many more."""


@dataclass(frozen=True)
class RevokeConfig:
    """Take robots out of a team, for good. The others refuse them once they have the new team.json."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """The team's folder."""
    robots: tyro.conf.Positional[Annotated[tuple[int, ...], tyro.conf.arg(metavar="NUMBER")]]
    """Their numbers."""


@dataclass(frozen=True)
class ShowTeamConfig:
    """Show who belongs to a team."""

    folder: tyro.conf.Positional[Annotated[Path, tyro.conf.arg(metavar="DIR")]]
    """The team's folder, or its team.json."""


_TEAM: dict[str, tuple[type[Any], str]] = {
    "new": (NewTeamConfig, "make a team and its keys"),
    "add": (AddRobotsConfig, "add robots"),
    "revoke": (RevokeConfig, "take robots out"),
    "show": (ShowTeamConfig, "show who belongs to it"),
}


@verb("team", "keys of a team of robots: new, add, revoke, show")
def team_verb(args: list[str]) -> None:
    given = args[0] if args else "--help"
    if given not in _TEAM:
        if given not in ("-h", "--help"):
            raise unknown("team command", given, _TEAM)
        lines = [f"  {name:<10} {summary}" for name, (_, summary) in _TEAM.items()]
        print("\n".join(["usage: mast team WHAT DIR [options]", "", "WHAT is one of", *lines]))
        return
    config = _parse(_TEAM[given][0], args[1:], f"mast team {given}")
    from mast_swarm.robot import trust

    if given == "show":
        team = trust.Team.load(config.folder)
    elif given == "revoke":
        team = trust.revoke(config.folder, config.robots)
    else:
        before = set() if given == "new" else set(trust.Team.load(config.folder).robots)
        team = (trust.new_team if given == "new" else trust.add_robots)(config.folder, config.robots)
        made = sorted(set(team.robots) - before)
        print(f"new: {', '.join(map(str, made))}; last key: {trust.key_file(config.folder, made[-1])}")
    print(f"team {team.identity.hex()}: {len(team.robots)} robots, {len(team.revoked)} revoked, made {team.created}")
    if given == "show":
        for number, key in sorted(team.robots.items()):
            print(f"  {number:>5}  {key.hex()}{'  revoked' if number in team.revoked else ''}")
    else:
        print(f"give {trust.TEAM_FILE} to every robot, and each key to its robot alone")


if __name__ == "__main__":
    main()
