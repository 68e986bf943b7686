"""The blocks of docs/reproduce.md: what a full run takes on one GPU and on a hundred, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields

from blocks import DOCS, load, table

from mast_swarm.paper.cells import Cell, Store
from mast_swarm.paper.effort import TRIED, Work, needed, searched, told, work_of
from mast_swarm.paper.experiment import EXPERIMENTS, Size
from mast_swarm.paper.report import seconds_of
from mast_swarm.paper.run import kept_of
from mast_swarm.train.tune_config import TuneConfig

GPUS = 100


def declared() -> tuple[dict[str, Cell], dict[str, Cell]]:
    """The policies that are trained and all other cells of all experiments, by their keys."""
    every = {cell.key: cell for one in EXPERIMENTS.values() for cell in one.cells(Size()).values()}
    trained = {cell.needs.key: cell.needs for cell in every.values() if cell.needs is not None}
    trained |= {key: cell for key, cell in every.items() if cell.kind == "train"}
    return trained, {key: cell for key, cell in every.items() if key not in trained}


def longest(cells: Collection[Cell]) -> tuple[Cell, Work]:
    """The training that takes longest, and what it takes."""
    return max(((cell, work_of([cell], [])) for cell in cells), key=lambda found: found[1].seconds)


def measured(trained: Mapping[str, Cell]) -> list[tuple[float, str]]:
    """How long trainings took on an H200, as their results note it: seconds and labels."""
    store = Store(DOCS / "results")
    kept = [(store.load(cell), cell.label) for cell in trained.values()]
    return [
        (seconds, label)
        for found, label in kept
        if found is not None and "H200" in str(found.about.get("device")) and (seconds := seconds_of(found)) is not None
    ]


def _time(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.1f} min"


def arithmetic() -> str:
    trained, others = declared()
    rest = [cell for cell in others.values() if cell.kind != "search"]
    (search,) = (cell for cell in others.values() if cell.kind == "search")
    each = [work_of([cell], []) for cell in trained.values()]  # one at a time on a GPU, which takes longer for each
    training = Work(len(each), 0, 0, sum(one.epochs for one in each), sum(one.seconds for one in each))
    running, searching = work_of([], rest), work_of([], [search])
    paper = TuneConfig()
    full, most = searched("navigation", paper.trials, paper.most), paper.most * TRIED["navigation"]
    parts = (training, running, searching)
    whole = Work(*(sum(getattr(one, field.name) for one in parts) for field in fields(Work)))

    def row(what: str, number: int, work: Work) -> list[str]:
        return [what, str(number), str(work.epochs or "-"), _time(work.seconds), _time(work.seconds / GPUS)]

    body = [
        row("policies to train", training.trained, training),
        row("evaluations and the like", running.rest, running),
        row("trials of the declared search", searching.searched, searching),
        row("all of it", training.trained + running.rest + searching.searched, whole),
        row("trials of the paper's search, `mast tune navigation`", full.searched, full),
    ]
    last, chain = longest(trained.values())
    after = work_of([], [cell for cell in rest if cell.needs is not None and cell.needs.key == last.key][:1])
    bound = max(chain.seconds, training.seconds / GPUS) + max(searching.seconds, running.seconds / GPUS)
    known = measured(trained)
    slowest, label = max(known)
    plain = load("benchmarks/results/train-navigation-nvidia-h200.json")["all_epochs_s"]
    spent = sum(seconds for seconds, _ in known)
    words = (
        "No number of GPUs is quicker than the longest chain: the training of "
        f"`{last.label}`, {chain.epochs} epochs or {_time(chain.seconds)},",
        f"and its evaluation, {after.seconds:.0f} s. On a cluster all policies are trained first.",
        f"Then comes the rest, of which the declared search is one cell of {_time(searching.seconds)}.",
        f"So {GPUS} GPUs take about {_time(bound)}.",
        f"A trial of the paper's search takes at most {paper.most} epochs or {_time(most)}.",
        f"Measured: {len(known)} of the {len(trained)} trainings took {_time(spent)} on an H200",
        "(of the others no machine was noted).",
        f"The longest, `{label}`, took {_time(slowest)} with compiling and validations",
        "(where several ran at once on a GPU, each counts with its whole time);",
        f"steps and validations of the paper's 500 epochs by themselves take {plain:.0f} s, as [reckoned from single",
        "ones](training.md#speed).",
    )
    head = ["a full run from nothing", "number", "epochs", "one H200", f"divided by {GPUS}"]
    return table(head, body) + "\n" + "\n".join((*words, ""))


def work() -> str:
    """From nothing, and for what is missing now: of each experiment that lacks something, and of all."""
    every: dict[str, Cell] = {}
    missing: dict[str, Cell] = {}
    rows = []
    for name, experiment in EXPERIMENTS.items():
        found = kept_of(experiment, Store(DOCS / "results"), Size())
        whole = {cell.key: cell for cell in found.cells.values()}
        lacking = {found.cells[one].key: found.cells[one] for one in found.lacking()}
        every, missing = every | whole, missing | lacking
        if lacking:
            rows.append([f"`{name}`", told(needed(whole.values())), told(needed(lacking.values()))])
    nothing = told(needed(missing.values())) if missing else "nothing"
    whole_row = ["all experiments", told(needed(every.values())), nothing]
    return table(["", "from nothing", "missing now"], [*rows, whole_row])


NUMBERS: dict[str, Callable[[], str]] = {"hundred-gpus": arithmetic, "reproduce-work": work}
