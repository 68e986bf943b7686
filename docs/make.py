"""Put numbers and pictures into the docs: python docs/make.py [--check | --pictures].

A block `<!-- numbers: NAME -->` ... `<!-- end -->` in a page is written anew from the result files that NAME stands
for. With --check nothing is written, and a block that is not what its files say is an error (a test runs it).
"""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import make_aims
import make_cards
import make_coverage
import make_reproduce
import make_robots
import make_scale
import make_sharp
import make_swarm
import make_trials
import make_wire
import pyarrow.parquet as pq
from blocks import DOCS, ROOT, load, table

from mast_swarm.evaluate.results import curves
from mast_swarm.paper.measured import bootstrap, difference

BLOCK = re.compile(r"(<!-- numbers: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)


def success(path: str, times: tuple[float, ...]) -> str:
    """One row per policy: the success rate and its 95 % interval at some instants."""
    rows = [row for row in load(path)["rows"] if row["metric"] == "success_rate" and row["t"] in times]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    found = {(row["policy"], row["t"]): f"{row['mean']:.3f} ± {row['ci95']:.3f}" for row in rows}
    body = [[f"`{policy}`", *(found[policy, t] for t in times)] for policy in policies]
    return table(["policy", *(f"t = {t:g} s" for t in times)], body)


def paired(path: str, t: float) -> str:
    """How much better a policy is than each that comes after it, on the same start states."""
    rows = [row for row in load(path)["paired"] if row["metric"] == "success_rate" and row["t"] == t]
    body = [[f"`{row['policy']}` minus `{row['minus']}`", f"{row['mean']:+.3f} ± {row['ci95']:.3f}"] for row in rows]
    return table([f"paired difference at t = {t:g} s, {rows[0]['episodes']} start states", "success rate"], body)


def at_end(path: Path, policy: str) -> tuple[float, float]:
    """Success rate of a policy at t = 800 s, and half its 95 % interval."""
    rows = json.loads(path.read_text())["rows"]
    (row,) = (r for r in rows if (r["policy"], r["metric"], r["t"]) == (policy, "success_rate", 800.0))
    return row["mean"], row["ci95"]


def ablation(times: tuple[float, ...]) -> str:
    """From the paper's recipe to `best`, a step a row: the success rate, and below it how much the step brings."""
    found = make_coverage.found("ablation")
    rows, before = [], None
    for name in found.cells:
        now = found.measured(name)
        rows.append([name, *(str(now.at("success_rate", t)) for t in times)])
        if before is not None:
            rows.append(["minus the row before", *(str(difference(now, before, "success_rate", t)) for t in times)])
        before = now
    return table(["trained by", *(f"t = {t:g} s" for t in times)], rows)


def seeds(times: tuple[float, ...]) -> str:
    """The success rates of policies trained with three seeds, and what each is above dhba-8 without delay."""
    found, rival = make_coverage.found("seeds"), make_coverage.found("baselines").measured("dhba-8")
    rows = []
    for recipe, way in itertools.product(("best", "paper"), ("alone", "centralized")):
        trained = [found.measured(f"{recipe} {seed} {way}") for seed in range(3)]
        rates = (", ".join(f"{one.at('success_rate', t).mean:.3f}" for one in trained) for t in times)
        gaps = ", ".join(str(difference(one, rival, "success_rate")) for one in trained)
        rows.append([f"`{recipe}`, {way}", *rates, gaps])
    return table(["recipe", *(f"{t:g} s" for t in times), f"minus `dhba-8` at {rival.end:g} s"], rows)


def play() -> str:
    """Frames and control periods of the playground per second."""
    head = ["policy", "robots", "delay", "CPU per frame", "CPU per control period", "against torch", "seen", "load"]
    body = [
        [
            f"`{row['policy']}`",
            str(row["robots"]),
            f"{row['delay_s']:g} s",
            f"{row['frame_cpu_ms']:.0f} ms",
            f"{row['period_cpu_ms']:.0f} ms",
            f"{row['ratio']:.1f}x",
            f"{row['frames_per_second']:.0f} frames/s, {row['periods_per_second']:.1f} periods/s",
            f"{row['load']:.0f}",
        ]
        for row in load("benchmarks/results/play.json")["rows"]
    ]
    return table(head, body)


def play_room() -> str:
    """What was seen of a hundred robots, and what bounds it."""
    found = load("benchmarks/results/play.json")
    rows = {(row["policy"], row["robots"], row["delay_s"]): row for row in found["rows"]}
    late, now = rows["mast-m", 100, 1.0], rows["mast-m", 100, 0.0]
    least = min(row["frames_per_second"] for row in (late, now))
    return (
        f"So 100 robots were drawn at {least:.0f} frames per second or more. With delay a control period took\n"
        f"{late['period_cpu_ms'] / 1000:.1f} s of CPU, so that {late['periods_per_second']:.1f} came per second:"
        " what bounds it is every robot's own view.\n"
    )


def delay_results() -> dict[str, list[tuple[float, float, float]]]:
    """For M and L: delay in seconds per hop, success rate at t = 800 s, half its interval; by rising delay."""
    found: dict[str, list[tuple[float, float, float]]] = {}
    for letter in "ml":
        paths = (DOCS / "results/navigation").glob(f"{letter}-delay-*.json")
        files = {float(path.stem.rsplit("-", 1)[1]): path for path in paths}
        found[f"mast-{letter}"] = [(delay, *at_end(files[delay], f"mast-{letter}")) for delay in sorted(files)]
    return found


def delays() -> str:
    found = delay_results()
    times = sorted({delay for rows in found.values() for delay, *_ in rows})
    body = []
    for policy, rows in found.items():
        known = {delay: f"{mean:.3f} ± {half:.3f}" for delay, mean, half in rows}
        central, half = at_end(DOCS / "results/navigation/central.json", policy)
        body.append([f"`{policy}`", f"{central:.3f} ± {half:.3f}", *(known.get(t, "not run") for t in times)])
    return table(["policy", "central", *(f"tau = {t:g} dt" for t in times)], body)


SCENARIOS = ("clusters-1", "clusters-5", "clusters-10", "clusters-20", "clusters-25", "circle", "two-lines", "text")


def scenario_results() -> str:
    """At the end, by scenario: ours, and the fair rivals."""
    rows = pq.read_table(DOCS / "results/tables/scenarios.parquet").to_pylist()
    ends = {r["policy"]: r for r in rows if (r["metric"], r["t"]) == ("success_rate", 800.0)}
    late, soon = ("mast-m", "mast-m-paper", "dhba-8-relay-explore"), ("dhba-8-explore", "dhba-8")
    body = []
    for name in SCENARIOS:
        found = (ends.get(f"{policy} {name}") for policy in (*late, *soon))
        cells = ("not run" if row is None else f"{row['mean']:.3f} ± {row['ci95']:.3f}" for row in found)
        body.append([f"`{name}`", *make_sharp.of_scenario(name), *cells])
    head = [f"`{policy}`, `--max-age 30`, 1 s per hop" for policy in (make_sharp.NAME, make_sharp.TEACHER)]
    head.append("first minus second, paired")
    head += [f"`{policy}`, 1 s per hop" for policy in late]
    return table(["scenario, t = 800 s", *head, *(f"`{policy}`, no delay" for policy in soon)], body)


def train_benchmark() -> str:
    found = load("benchmarks/results/train-navigation-nvidia-h200.json")
    names = {
        "update": "update: batch, forward, backward, AdamW",
        "sense_and_decide": "sense and decide",
        "expert": "expert, on the CPU beside the update",
        "push_and_move": "keep the samples, move",
    }
    rows = [[text, f"{found['parts_ms'][name]:.2f} ms"] for name, text in names.items()]
    rows.append(["whole step as training runs it", f"{found['whole_step_ms']:.2f} ms"])
    rows.append(["500 epochs of the paper", f"{found['all_epochs_s']:.0f} s"])
    rows += [
        [f"of an update on the GPU: {kind}", f"{microseconds / 1e3:.2f} ms"]
        for kind, microseconds in found.get("update_kernels_us", {}).items()
    ]
    return table([f"{found['device']}, shapes of the paper", "time"], rows)


def world_benchmark() -> str:
    found = load("benchmarks/results/world.json")
    size = f"{found['environments']} environments x {found['agents']} robots"
    row = [f"step, observations and metrics, {size}", "a loop over environments with scipy", f"{found['ratio']:.1f}x"]
    return table(["batched, one thread", "against", "ratio"], [row])


def growth_benchmark() -> str:
    rows = [
        [f"{row['agents']:,}", f"{row['step_ms']:.2f} ms", f"{row['peak_mb_above_start']:.1f} MB"]
        for row in load("benchmarks/results/world.json")["growth"]
    ]
    return table(["robots", "one step", "memory above an idle process"], rows)


def assignment_benchmark() -> str:
    rows = []
    cases: dict[tuple[int, int], list[dict[str, Any]]] = {}
    found = load("benchmarks/results/assignment.json")
    for row in found["against_scipy"]:
        cases.setdefault((row["robots"], row["batch"]), []).append(row)
    for (robots, batch), measured in cases.items():
        ratios = [row["ratio"] for row in measured]
        sums = [row["ratio_of_sums"] for row in measured]
        rows.append(
            [
                f"N = {robots}, {batch} environment{'s' * (batch > 1)} per call",
                f"{min(ratios):.1f}x to {max(ratios):.1f}x",
                f"{min(sums):.1f}x to {max(sums):.1f}x",
            ]
        )
    return table(["warm-started assignment against scipy", "median step", "whole trajectory"], rows)


def decentral_benchmark() -> str:
    cases: dict[tuple[float, int], list[float]] = {}
    for row in load("benchmarks/results/decentral.json")["rows"]:
        cases.setdefault((row["delay"], row["threads"]), []).append(row["ratio"])
    rows = []
    for (delay, threads), ratios in cases.items():
        between = f"{min(ratios):.1f}x" + (f" to {max(ratios):.1f}x" if len(ratios) > 1 else "")
        rows.append([f"{delay:g}", f"{threads}", f"{len(ratios)}", between])
    return table(["tau / dt", "threads", "teams", "decentralized step / centralized forward pass"], rows)


def against_benchmark() -> str:
    found = load("benchmarks/results/against.json")
    body = []
    for row in found["rows"]:
        times = row["seconds"]
        now = [f"{times[way]:.3f} s ({times[f'{way}_ratio']:.2f}x)" for way in ("now", "now_bf16")]
        body.append([row["case"], f"{times['before']:.3f} s", *now])
    head = ["robots, each alone", f"commit {found['before']}, fp32", "now, fp32", "now, `--precision bf16`"]
    return table(head, body)


def processes_benchmark() -> str:
    found = load("benchmarks/results/processes.json")
    body = [[row["way"], f"{row['seconds']:.1f} s", f"{row['faster']:.2f}x"] for row in found["rows"]]
    return table([f"{found['cells']} cells on {found['cores']} cores", "time", "times as fast"], body)


def crowded_benchmark() -> str:
    rows = []
    for row in load("benchmarks/results/crowded.json")["rows"]:
        times = row["step_ms"]
        now = [f"{times[order]:.0f} ms ({row['times_faster'][order]:.1f}x)" for order in row["times_faster"]]
        rows.append([row["execution"], f"{times['before']:.0f} ms", *now])
    return table(["20 robots", "`torch` first, before", "`torch` first", "`mast_swarm` first"], rows)


def relay_radius() -> str:
    rows = [
        [
            f"{row['agents']}",
            f"{row['delay_s']:g} s",
            f"{row['limit']}: {row['radius_m']:.0f} m",
            f"{100 * row['robots_with_the_same_news']:.1f} %",
            f"{100 * row['news_missing_or_older']:.3f} %",
            f"{100 * row['news_too_much']:.3f} %",
        ]
        for row in load("benchmarks/results/relay_radius.json")["rows"]
    ]
    head = ["robots", "delay per hop", "relay radius", "robots with the same news", "missing or older", "too much"]
    return table(head, rows)


def radius_success() -> str:
    """The success rate with the relay radius auto and without one, on the same start states."""
    folder = ROOT / "docs/results/navigation/radius"
    tables = [pq.read_table(folder / name / "episodes.parquet") for name in ("none", "auto")]
    (t, without), (_, limited) = (curves(one, "mast-m", "success_rate") for one in tables)
    rows = []
    for instant in (50, 100, 150, 200):
        at = list(t).index(instant)
        found = (without[:, at].mean(), limited[:, at].mean(), bootstrap(limited[:, at] - without[:, at]))
        rows.append([f"{instant} s", f"{found[0]:.3f}", f"{found[1]:.3f}", str(found[2])])
    return table(["at", "no limit", "auto", "difference"], rows)


def relay_lists() -> str:
    rows = [
        [f"{row['agents']:,}", row["kept"], f"{row['relay_ms']:,.0f} ms", f"{row['bytes'] / 1e6:.1f} MB"]
        for row in load("benchmarks/results/relay_lists.json")["rows"]
    ]
    return table(["robots", "what they hold is", "relay", "memory"], rows)


def ppo() -> str:
    """What PPO reaches: the mean over seeds, the least and the greatest; and the controllers."""
    result = load("docs/results/ppo/ppo.json")
    seeds = result["settings"]["seeds"]
    rows = []
    for name, at in (("MAST, not trained", 0), ("MAST, by PPO", -1)):
        ends = [run["tested"][at] for run in result["runs"]]
        rows.append([f"{name}, {seeds} seeds", f"{sum(ends) / seeds:.1f} ({min(ends):.1f} to {max(ends):.1f})"])
    rows += [[f"`{name}`", f"{value:.1f}"] for name, value in result["controllers"].items()]
    return table(["policy", f"{result['metric']} after {result['settings']['steps']} s"], rows)


NUMBERS: dict[str, Callable[[], str]] = {
    "baselines": lambda: success("docs/results/navigation/baselines.json", (50, 100, 200)),
    "mast-m": lambda: make_cards.beside(make_cards.RIVALS, (50, 100, 200, 400, 800)),
    "mast-m-paired": lambda: paired("docs/results/navigation/m-delay-1.json", 800),
    "ablation": lambda: ablation((50, 100, 200, 400, 800)),
    "seeds": lambda: seeds((50, 200, 800)),
    "nine-starts": lambda: success("docs/results/navigation/nine-starts.json", (50, 100, 200, 400, 800)),
    "variants": lambda: success("docs/results/navigation/central.json", (50, 200, 800)),
    "variants-paired": lambda: paired("docs/results/navigation/central.json", 800),
    "one-recipe": lambda: success("docs/results/navigation/paper-recipe-central.json", (50, 100, 200, 800)),
    "one-recipe-paired": lambda: paired("docs/results/navigation/paper-recipe-central.json", 800),
    "one-recipe-alone": lambda: success("docs/results/navigation/paper-recipe-alone.json", (50, 100, 200, 800)),
    "one-recipe-alone-paired": lambda: paired("docs/results/navigation/paper-recipe-alone.json", 800),
    "delays": delays,
    "ppo": ppo,
    "scenarios": scenario_results,
    "benchmark-train": train_benchmark,
    "benchmark-world": world_benchmark,
    "benchmark-growth": growth_benchmark,
    "benchmark-assignment": assignment_benchmark,
    "benchmark-decentral": decentral_benchmark,
    "benchmark-against": against_benchmark,
    "benchmark-crowded": crowded_benchmark,
    "benchmark-processes": processes_benchmark,
    "relay-radius": relay_radius,
    "radius-success": radius_success,
    "relay-lists": relay_lists,
    "play": play,
    "play-room": play_room,
    **make_aims.NUMBERS,
    **make_cards.NUMBERS,
    **make_coverage.NUMBERS,
    **make_scale.NUMBERS,
    **make_sharp.NUMBERS,
    **make_trials.NUMBERS,
    **make_swarm.NUMBERS,
    **make_reproduce.NUMBERS,
    **make_robots.NUMBERS,
    **make_wire.NUMBERS,
}


def pages() -> list[Path]:
    cards = sorted((ROOT / "src/mast_swarm/zoo").glob("*/*/card.md"))
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md")), *cards]


def written(text: str) -> str:
    """A page with all its blocks written anew."""
    return BLOCK.sub(lambda block: block[1] + NUMBERS[block[2]]() + block[3], text)


def scenario_picture(path: Path) -> None:
    """Six start states, drawn as everything else is."""
    import tempfile
    from dataclasses import replace

    from PIL import Image

    from mast_swarm.evaluate.actors import make_actor
    from mast_swarm.evaluate.rollout import rollout
    from mast_swarm.tasks.navigation.config import NavigationConfig
    from mast_swarm.tasks.navigation.world import Navigation
    from mast_swarm.view.plots import frame

    names = ("clusters-1", "clusters-5", "clusters-10-5", "circle", "two-lines", "text:MAST")
    pictures = []
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(names):
            world = Navigation(NavigationConfig(scenario=name))
            ran = rollout(world, make_actor("lsap", world, None), [2], 1, record=1)
            shown = replace(ran.recordings[0], policy=name)
            pictures.append(Image.open(frame(shown, 0.0, Path(folder) / f"{number}.png")).convert("RGB"))
        width, height = pictures[0].size
        sheet = Image.new("RGB", (3 * width, 2 * height), "white")
        for number, picture in enumerate(pictures):
            sheet.paste(picture, (number % 3 * width, number // 3 * height))
        sheet.resize((1500, round(1500 * sheet.height / sheet.width))).save(path, optimize=True)


def delay_picture(path: Path) -> None:
    """Success rate against delay for M and L."""
    from matplotlib.figure import Figure

    from mast_swarm.view.style import policy_colour, style

    with style():
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.add_subplot()
        for number, (policy, rows) in enumerate(delay_results().items()):
            delay, mean, half = zip(*rows, strict=True)
            colour = policy_colour(number)
            axes.errorbar(delay, mean, half, marker="o", capsize=3, color=colour, label=policy.upper())
            central, _ = at_end(DOCS / "results/navigation/central.json", policy)
            axes.axhline(central, linestyle=":", color=colour, linewidth=1.2, label=f"{policy.upper()}, central")
        axes.set(xlabel="delay per hop, in control periods", ylabel="success rate at t = 800 s", ylim=(0.9, 1.0))
        axes.legend(loc="lower left", ncols=2)
        figure.savefig(path)


def architecture_picture() -> None:
    from draw_architecture import draw

    draw()


def coverage_pictures(folder: Path) -> None:
    from draw_coverage import draw

    draw(folder)


def main() -> None:
    if "--pictures" in sys.argv:
        architecture_picture()
        scenario_picture(DOCS / "pictures" / "scenarios.png")
        delay_picture(DOCS / "pictures" / "delays.png")
        coverage_pictures(DOCS / "pictures")
        make_scale.draw(DOCS / "pictures")
        return
    stale = []
    for page in pages():
        text = page.read_text()
        if written(text) != text:
            stale.append(str(page.relative_to(ROOT)))
            if "--check" not in sys.argv:
                page.write_text(written(text))
    if stale and "--check" in sys.argv:
        sys.exit(f"numbers differ from their files in {', '.join(stale)}: run python docs/make.py")


if __name__ == "__main__":
    main()
