"""What speed was aimed for and what is reached, for docs/make.py.

The numbers before and the aims are constants here; docs/scale.md says where they are from. Those of now are read from
the files of `mast bench` and of `benchmarks.against`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from blocks import load, table

EPOCHS = 500  # of the paper's recipe, which `mast bench train` measures unless told otherwise
TIMES_AS_FAST = 1.5  # what was aimed for on a CPU


class Aim(NamedTuple):
    """A number in milliseconds, or in bytes."""

    case: str
    before: str
    now: float
    aim: float
    note: str = ""  # beside the aim
    bytes: bool = False


def result(name: str) -> dict[str, Any]:
    return load(f"benchmarks/results/{name}.json")


def team(name: str, robots: int, environments: int = 1) -> dict[str, Any]:
    """The row of a team in a file."""
    rows = result(name)["rows"]
    (row,) = (r for r in rows if (r.get("environments", 1), r["agents"]) == (environments, robots))
    return row


def worlds_ms(found: dict[str, Any]) -> float:
    """A step of the worlds in coverage's training, without updates: its three parts, each timed alone."""
    return sum(found["parts_ms"][name] for name in ("sense_and_decide", "expert", "push_and_move"))


def aims() -> list[Aim]:
    """What was aimed for on one H200."""
    central, alone, near = "scale-nvidia-h200", "decentral-nvidia-h200", "decentral-nvidia-h200-near"
    whole = "{:,} robots, centralized: a step".format
    each = "{} robots, each alone: a step".format
    million = team(central, 1_000_000)
    training, coverage = result("train-navigation-nvidia-h200"), result("train-coverage-nvidia-h200")
    return [
        Aim(whole(100), "7.3 ms", team(central, 100)["step_ms"], 0.8),
        Aim(whole(1_000), "5.4 ms", team(central, 1_000)["step_ms"], 0.8),
        Aim(whole(10_000), "7.3 ms", team(central, 10_000)["step_ms"], 1.5),
        Aim(whole(100_000), "8.9 ms", team(central, 100_000)["step_ms"], 5),
        Aim(whole(1_000_000), "52 ms (48 ms of kernels)", million["step_ms"], 25),
        Aim("1,000,000 robots, centralized: memory", "8.00 GB", million["peak_bytes"], 6e9, bytes=True),
        Aim(each("100 x 100"), "11 to 12 ms", team(alone, 100, 100)["step_ms"], 4),
        Aim(each("1 x 1,000"), "12.5 ms", team(alone, 1_000)["step_ms"], 3),
        Aim(each("1 x 10,000"), "108 ms", team(alone, 10_000)["step_ms"], 25),
        Aim(f"{each('1 x 10,000')}, relay radius `auto`", "not measured", team(near, 10_000)["step_ms"], 25),
        Aim(f"{each('1 x 100,000')}, relay radius `auto`", "not possible", team(near, 100_000)["step_ms"], 300),
        Aim("training: 500 epochs of the paper", "304 s", 1e3 * training["all_epochs_s"], 2e5, ", hoped for 150 s"),
        Aim("training for coverage: a step of the worlds, without updates", "2.34 ms", worlds_ms(coverage), 1.5),
    ]


def verdict(reached: bool) -> str:
    return "reached" if reached else "**missed**"


def plain(value: float, unit: str) -> str:
    """An aim as it was set, without digits that it does not have."""
    return f"{value:g} {unit}"


def aim_table() -> str:
    from mast_swarm.view.scale import duration, memory

    rows = []
    for case, before, now, aim, note, in_bytes in aims():
        shown = memory(now) if in_bytes else duration(now)
        aimed = plain(aim / 1e9, "GB") if in_bytes else plain(aim / 1e3, "s") if aim >= 1e3 else plain(aim, "ms")
        rows.append([case, before, shown, aimed + note, verdict(now <= aim)])
    found = result("against")
    for row in found["rows"]:
        times = row["seconds"]
        for way, words in (("now", "fp32"), ("now_bf16", "`--precision bf16`")):
            faster = times[f"{way}_ratio"]
            case = f"CPU, {row['case']} robots, each alone: a step, {words}"
            if " x " not in row["case"]:
                case = f"CPU, {row['case']}, {words}"
            before, now = (duration(1e3 * times[name]) for name in ("before", way))
            reached = verdict(faster >= TIMES_AS_FAST)
            shown = f"{now}: {faster:.2f} times as fast"
            rows.append([case, f"{before}, fp32", shown, f"{TIMES_AS_FAST:g} times as fast", reached])
    return table(["case", "before", "now", "aim", "outcome"], rows)


def million() -> str:
    """Where the time of the largest team goes."""
    from mast_swarm.view.scale import duration

    row = team("scale-nvidia-h200", 1_000_000)
    parts = sorted(row["parts_ms"].items(), key=lambda part: -part[1])
    named = ", ".join(f"{name} {duration(spent)}" for name, spent in parts)
    return (
        f"**1,000,000 robots: {duration(row['step_ms'])}, aim 25 ms.** One kernel after the other, the parts take"
        f" {duration(sum(row['parts_ms'].values()))}: {named}.\n"
        f"The arithmetic of a forward pass would take {duration(row['floor_ms'])}, so most of it is something else.\n"
    )


def hundred() -> str:
    """The same of 100 environments of 100 robots alone."""
    from mast_swarm.view.scale import duration

    row, million = team("decentral-nvidia-h200", 100, 100), team("scale-nvidia-h200", 1_000_000)
    computed, layers = 1e4 * sum(row["rows_per_robot"]), result("scale-nvidia-h200")["layers"]
    return (
        f"**100 x 100 robots alone: {duration(row['step_ms'])}, aim 4 ms.** The arithmetic takes"
        f" {duration(row['floor_ms'])} at the peak rate of the GPU. So the aim asks for"
        f" {100 * row['floor_ms'] / 4:.0f} % of that rate on average over all kernels; what is reached is"
        f" {100 * row['floor_ms'] / row['step_ms']:.0f} %.\n"
        f"It computes {computed / 1e6:.2f} million rows of layers, {1e6 * row['step_ms'] / computed:.1f} ns each."
        f" A million robots together have {layers} million, {million['step_ms'] / layers:.1f} ns each:"
        f" so 4 ms asks for kernels that are {row['step_ms'] / 4:.1f} times as fast in both.\n"
    )


def unbounded() -> str:
    """The same of 10,000 robots alone without a relay radius."""
    from mast_swarm.view.scale import duration

    row, near = team("decentral-nvidia-h200", 10_000), team("decentral-nvidia-h200-near", 10_000)
    parts = row["parts_ms"]
    return (
        f"**1 x 10,000 robots alone without a relay radius: {duration(row['step_ms'])}, aim 25 ms.** Deciding takes"
        f" {duration(parts['decide'])}, relaying a table of all pairs {duration(parts['relay'])}. With the relay radius"
        f" `auto` a step takes {duration(near['step_ms'])}, which is within the aim.\n"
    )


# Kernels by what they do, the first that fits: words that their names begin with or hold.
KINDS = {
    "attention": ("_attend", "_levels", "_windows"),
    "two layers in one (MLPs, encoder, decoder)": ("_feed",),
    "sums and norms": ("_add_normed",),
    "products of libraries": ("nvjet", "gemm", "cutlass"),
    "rotation of queries and keys": ("_turn", "_phases"),
    "who is near (cells, sorts, distances)": ("_nearest", "_count", "_block", "_keys", "_offsets", "radix_sort"),
    "components": ("_join", "_hook", "_flatten", "_labels"),
    "relay and views": ("_sample", "_hop", "_hold", "_further", "_rows", "_meet", "_merge", "_mark"),
}
REST = "gathers, copies, and all else"


def kind(kernel: str) -> str:
    """What a kernel is for."""

    def fits(word: str) -> bool:
        return kernel.startswith(word) if word.startswith("_") else word in kernel

    return next((kind for kind, words in KINDS.items() if any(map(fits, words))), REST)


def profiles() -> str:
    """Milliseconds of a step by kinds of kernels, each case a column."""
    found = result("kernels-nvidia-h200")
    words = {"together": "centralized", "alone": "each alone", "near": "each alone, relay radius `auto`"}
    heads, columns = [f"{found['machine']['device']}, ms of kernels in a step"], []
    for case in found["cases"]:
        times = f"{case['environments']} x " if case["environments"] > 1 else ""
        heads.append(f"{times}{case['agents']:,} robots, {words[case['kind']]}")
        spent = dict.fromkeys((*KINDS, REST), 0.0)
        for row in case["kernels"]:
            spent[kind(row["kernel"])] += row["ms"]
        columns.append([*(f"{ms:.2f}" if ms else "-" for ms in spent.values()), f"{case['whole']['ms']:.1f}"])
    names = [*KINDS, REST, "all"]
    return table(heads, [list(row) for row in zip(names, *columns, strict=True)])


def training() -> str:
    """What 500 epochs are made of, and what a step would have to take."""
    found = result("train-navigation-nvidia-h200")
    step, update = found["whole_step_ms"], found["parts_ms"]["update"]
    validation = EPOCHS * found["validation_s"]
    steps = round(1e3 * (found["all_epochs_s"] - validation) / step)
    needed = {seconds: 1e3 * (seconds - validation) / steps for seconds in (200, 150)}
    kernels = sum(found["update_kernels_us"].values()) / 1e3
    return (
        f"**500 epochs of the paper: {found['all_epochs_s']:.0f} s, aim 200 s, hoped for 150 s.** {steps:,} steps of"
        f" {step:.2f} ms are {steps * step / 1e3:.0f} s of it, and validation {validation:.0f} s.\n"
        f"For 200 s a step would have to take {needed[200]:.2f} ms, for 150 s {needed[150]:.2f} ms. The update alone"
        f" takes {update:.2f} ms, and its kernels take {kernels:.2f} ms, some of them side by side.\n"
        f"All else adds {step - update:.2f} ms to a step. To sense and decide beside the update, not before it, has"
        f" brought {found['in_turn_step_ms'] - step:.2f} ms.\n"
    )


def evaluation() -> str:
    """`mast evaluate` from the start of the process to its end, before and now."""
    found = result("evaluate-nvidia-h200")
    rows = []
    for run in found["runs"]:
        version = f"{run['when']} (commit {run['commit']})"
        if "seconds" in run:
            success = "{mean:.3f} ± {ci95:.3f}".format(**run["success_rate_800_s"])
            rows.append([version, run["precision"], f"{run['seconds']:.1f} s", success])
        else:
            rows.append([version, run["precision"], f"stopped after {run['stopped_after_seconds']} s", "-"])
    head = [f"one {found['machine']['device']}", "precision", "time", "success rate at 800 s"]
    before, now = (next(run["seconds"] for run in found["runs"] if run["when"] == when) for when in ("before", "now"))
    return table(head, rows) + f"\nAs it comes, it is {before / now:.1f} times as fast as before.\n"


NUMBERS: dict[str, Callable[[], str]] = {
    "aims": aim_table,
    "aims-profiles": profiles,
    "aims-million": million,
    "aims-hundred": hundred,
    "aims-unbounded": unbounded,
    "aims-training": training,
    "evaluate-gpu": evaluation,
}
