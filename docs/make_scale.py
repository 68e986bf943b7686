"""Numbers and pictures of the page on large teams, for docs/make.py: what `mast bench` wrote to benchmarks/results."""

from __future__ import annotations

import json
from bisect import bisect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from blocks import DOCS, ROOT, table


def measured(benchmark: str, kind: str) -> list[dict[str, Any]]:
    """What `mast bench` found on the machines of a kind, cpu or cuda."""
    files = sorted((ROOT / "benchmarks/results").glob(f"{benchmark}-*.json"), key=lambda path: path.stem)
    found = [json.loads(path.read_text()) for path in files]
    return [result for result in found if result.get("machine", {}).get("kind") == kind]


def picked(result: dict[str, Any], columns: tuple[str, ...]) -> str:
    """A table of some columns of a benchmark."""
    from mast_swarm.view.scale import table_rows

    return table(list(columns), [[row[name] for name in columns] for row in table_rows(result)])


def machine_line(result: dict[str, Any]) -> str:
    """What was measured on, and how busy its CPU was, which launches the kernels of a GPU."""
    about = result["machine"]
    words = [about["device"], f"torch {about['torch']}"]
    if "precision" in result:
        words.append(result["precision"])
    if result.get("relay_radius") is not None:
        words.append(f"relay radius {result['relay_radius']}")
    if about["kind"] == "cpu":
        words.append(f"{about['threads']} threads")
    words.append(f"load {about['load']:g} when it began")
    return ", ".join(words) + ":"


STEP = ("robots", "step", "policy", "observe", "components", "motion", "metric", "robots/s", "memory")
PASS = ("robots", "forward alone", "dense forward", "floor")
WORLD = ("robots", "step", "motion", "metric", "observe", "robots/s", "memory")
DECENTRAL = ("robots", "step", "decide", "relay", "perceive", "floor", "central", "ratio", "robots/s", "memory")


def picture(benchmark: str, kind: str) -> str:
    """The name of the picture of a benchmark on the machines of a kind."""
    return f"scale-{kind}.png" if benchmark == "scale" else f"scale-{benchmark}-{kind}.png"


def bench_block(benchmark: str, kind: str, *tables: tuple[str, ...]) -> str:
    """The picture, of each machine of a kind the tables of these columns, and what they come to."""
    from mast_swarm.view.scale import conclusions

    found = measured(benchmark, kind)
    if not found:
        return "Not measured yet.\n"
    text = f"![Time and memory against the number of robots](pictures/{picture(benchmark, kind)})\n"
    for result in found:
        told = [*conclusions(result), *([most_to_gain(result)] if (benchmark, kind) == ("scale", "cpu") else [])]
        parts = [f"{machine_line(result)}\n", *(picked(result, columns) for columns in tables)]
        text += "\n" + "\n".join([*parts, "".join(f"- {sentence}\n" for sentence in told)])
    return text


def by_cells() -> str:
    """A captured step by every pair and by cells, measured one after the other."""
    folder = ROOT / "benchmarks/results/neighbours"
    pairs, cells = (json.loads((folder / f"{name}-nvidia-h200.json").read_text()) for name in ("pairs", "cells"))
    steps = {
        name: {row["agents"]: row["step_ms"] for row in found["rows"]} for name, found in (("p", pairs), ("c", cells))
    }
    rows = [[f"{agents:,}", f"{ms:.2f} ms", f"{steps['c'][agents]:.2f} ms"] for agents, ms in steps["p"].items()]
    return table(["robots", "every pair", "by cells from 513 robots on"], rows)


def most_to_gain(result: dict[str, Any]) -> str:
    """How far dense is above the arithmetic that both paths share."""
    rows = {row["agents"]: row for row in result["rows"]}
    large = [rows[dense["agents"]] for dense in result["against_dense"][-2:]]
    passes = " and ".join(f"{row['dense_ms'] / row['floor_ms']:.1f} ({row['agents']:,} robots)" for row in large)
    trained = result["training"]
    training = trained["dense_ms"] / (3 * rows[trained["agents"]]["floor_ms"])  # a product forwards is two backwards
    return f"a dense forward pass takes {passes} times the floor, a dense training step {training:.1f} times"


def summary() -> str:
    """What one GPU does in a step, of the largest team and of every robot alone."""
    from mast_swarm.view.scale import duration, memory, table_rows

    rows = []
    for result in measured("scale", "cuda"):
        largest = result["rows"][-1]
        cells = table_rows(result)[-1]
        forward = ["one forward pass of the policy", duration(largest["forward_ms"]), ""]
        step = ["a whole step: observe, components, policy, motion, metric", cells["step"], cells["memory"]]
        rows += [[f"{cells['robots']} robots, centralized", *row] for row in (forward, step)]
    for result in measured("decentral", "cuda"):
        radius = ", with a relay radius" if result.get("relay_radius") is not None else ""
        for row, cells in zip(result["rows"], table_rows(result), strict=True):
            what = "hear, pass on, decide" + (", move, observe, metric" if row.get("captured") else "") + radius
            rows.append([f"{cells['robots']} robots, decentralized", what, cells["step"], memory(row["peak_bytes"])])
    names = dict.fromkeys(result["machine"]["device"] for result in measured("scale", "cuda"))
    return table([f"one {' / '.join(names)}", "what", "time", "memory"], rows) if rows else "Not measured yet.\n"


GPUS, LINK = 8, 450e9  # of one machine, and bytes per second that each can send the others over NVLink 4


def read_off(rows: Sequence[dict[str, Any]], name: str, robots: float) -> float:
    """A value for a team between two measured ones, on the line through both; beyond all, through the last two."""
    after = min(max(bisect([row["agents"] for row in rows], robots), 1), len(rows) - 1)
    low, high = rows[after - 1], rows[after]
    slope = (high[name] - low[name]) / (high["agents"] - low["agents"])
    return float(low[name] + slope * (robots - low["agents"]))


def strips_estimate() -> str:
    """A step over several GPUs from what one does and what halos weigh."""
    found = measured("scale", "cuda")
    if not found:
        return "Not measured yet: it takes the times of one GPU.\n"
    from mast_swarm.comms.strips import halo_bytes
    from mast_swarm.model.config import PolicyConfig
    from mast_swarm.tasks.navigation.config import NavigationConfig
    from mast_swarm.view.scale import duration, memory

    config, one, rows = PolicyConfig(), found[0]["rows"], []
    for robots in (1_000_000, 8_000_000, 32_000_000):
        side = NavigationConfig(agents=robots).side
        sent = halo_bytes(config, robots, side)
        halo = sent / (halo_bytes(config, 1, 1.0) / 2)  # robots; a world of one metre sends its robot to both sides
        work = robots / GPUS + halo
        step = read_off(one, "step_ms", work) + 1e3 * sent / LINK
        cells = [f"{robots:,}", f"{robots // GPUS:,}", f"{halo:,.0f}", memory(sent), duration(1e3 * sent / LINK)]
        rows.append([*cells, duration(step), memory(read_off(one, "peak_bytes", work))])
    head = [
        "robots",
        "robots per GPU",
        "robots in its halos",
        "bytes sent",
        "time to send at 450 GB/s",
        "step, estimated",
        "memory per GPU",
    ]
    return table(head, rows)


NAMES = {
    "mast-m": "MAST-M, central",
    "mast-m-alone": "MAST-M, alone",
    "dhba-8": "DHBA-8",
    "dhba-8-explore": "DHBA-8, exploring",
    "lsap": "LSAP",
    "mast-m-alone-near": "MAST-M, alone, relay radius",
}


RIVALS = ("explorer", "dhba-8-relay", "dhba-8-relay-explore")  # of which the smallest team alone was run


def success_files() -> list[dict[str, Any]]:
    """What `benchmarks.success_at_scale` found, by rising size of the team."""
    found = [json.loads(path.read_text()) for path in (DOCS / "results/navigation/scale").glob("*.json")]
    return sorted(found, key=lambda size: size["agents"])


def success_table() -> str:
    """A row a policy, a column a size of the team, at each of the instants."""
    sizes = success_files()
    if not sizes:
        return "Not measured yet.\n"
    head = [f"{size['agents']:,} robots, {size['episodes']} start states" for size in sizes]
    body = []
    for policy in [name for name in NAMES if any(name in size["policies"] for size in sizes)]:
        for t in (200.0, 800.0):
            cells = [_success(size, policy, t) for size in sizes]
            shown = ["not run" if cell is None else f"{cell[0]:.3f} ± {cell[1]:.3f}" for cell in cells]
            body.append([f"`{policy}`, t = {t:g} s", *shown])
    for policy in RIVALS:
        for t in (200.0, 800.0):
            cells = [_rival(size, policy, t) for size in sizes]
            body.append([f"`{policy}`, t = {t:g} s", *("not run" if cell is None else cell for cell in cells)])
    return "![Success rate against the size of the team](pictures/scale-success.png)\n\n" + table(["", *head], body)


def _success(size: dict[str, Any], policy: str, t: float) -> tuple[float, float] | None:
    rows = size["policies"].get(policy, {"success_rate": []})["success_rate"]
    return next(((row["mean"], row["ci95"]) for row in rows if row["t"] == t), None)


def _rival(size: dict[str, Any], policy: str, t: float) -> str | None:
    """Of a rival that was run elsewhere, on the same start states."""
    if (size["agents"], size["episodes"], size["seed"]) != (100, 108, 3):
        return None
    rows = json.loads((DOCS / "results/navigation/rivals.json").read_text())["rows"]
    (row,) = (r for r in rows if (r["policy"], r["metric"], r["t"]) == (policy, "success_rate", t))
    return f"{row['mean']:.3f} ± {row['ci95']:.3f}"


def one_start() -> str:
    """100,000 robots on one start state: centralized, and each alone with a relay radius."""
    times, body = (50.0, 100.0, 200.0, 400.0, 800.0), []
    for name, file in (("centralized", "central"), ("each robot alone, 1 s per hop, relay radius `auto`", "alone")):
        rows = json.loads((DOCS / f"results/navigation/scale/one/{file}.json").read_text())["rows"]
        found = {row["t"]: f"{row['mean']:.3f}" for row in rows if row["metric"] == "success_rate"}
        body.append([name, *(found[t] for t in times)])
    from mast_swarm.view.scale import duration

    shown = table(["`mast-m`, 100,000 robots, one start state", *(f"t = {t:g} s" for t in times)], body)
    rows = [row for result in measured("decentral", "cuda") for row in result["rows"] if row["agents"] == 100_000]
    if not rows:
        return shown
    step = rows[0]["step_ms"]
    told = f"At {duration(step)} per step, as measured above, the 800 steps of robots alone take {0.8 * step:.0f} s.\n"
    return f"{shown}\n{told}"


def alone() -> str:
    """What one robot holds and computes when it decides alone."""
    found = json.loads((ROOT / "benchmarks/results/alone.json").read_text())
    rows = [
        ["news held, within the relay radius", f"{found['news_per_robot']:.0f}"],
        ["of it in the receptive field", f"{found['entries_in_field']:.0f}"],
        ["messages that anybody holds, per robot of the team", f"{found['messages_held_per_robot']:.0f}"],
    ]
    counts = zip(*(found[f"{which}rows_per_robot"] for which in ("", "different_", "new_")), strict=True)
    for layer, cells in enumerate(counts, start=1):
        name = f"rows of layer {layer}; different ones, over the robots counted; new ones among these"
        rows.append([name, "; ".join(f"{cell:.0f}" for cell in cells)])
    counted = table([f"{found['agents']:,} robots, {found['robots_counted']} of them counted", "per robot"], rows)
    small = found["small_team"]
    cells = zip(small["different_rows"], small["new_rows"], strict=True)
    body = [[str(layer), f"{different:,}", f"{new:,}"] for layer, (different, new) in enumerate(cells, start=1)]
    team = f"{small['agents']} robots without a relay radius, all counted"
    return counted + "\n" + table([f"{team}: layer", "different rows", "new ones among them"], body)


NUMBERS: dict[str, Callable[[], str]] = {
    "alone": alone,
    "scale-summary": summary,
    "scale-success": success_table,
    "scale-one": one_start,
    "scale-cpu": lambda: bench_block("scale", "cpu", STEP, PASS),
    "scale-gpu": lambda: bench_block("scale", "cuda", STEP, PASS),
    "scale-neighbours": by_cells,
    "scale-strips": strips_estimate,
    "scale-world-cpu": lambda: bench_block("world", "cpu", WORLD),
    "scale-world-gpu": lambda: bench_block("world", "cuda", WORLD),
    "scale-decentral-cpu": lambda: bench_block("decentral", "cpu", DECENTRAL),
    "scale-decentral-gpu": lambda: bench_block("decentral", "cuda", DECENTRAL),
}


def draw(folder: Path) -> None:
    """Each benchmark on the first machine of each kind, and the success rate, against the size of the team."""
    from mast_swarm.view.scale import scale_plot

    for benchmark in ("scale", "world", "decentral"):
        for kind in ("cpu", "cuda"):
            for result in measured(benchmark, kind)[:1]:
                scale_plot(result, folder / picture(benchmark, kind))
    if success_files():
        success_plot(folder / "scale-success.png")


def success_plot(path: Path) -> None:
    """Success rate against the size of the team, at t = 800 s in full lines and at 200 s in broken ones."""
    from matplotlib.figure import Figure

    from mast_swarm.view.scale import short
    from mast_swarm.view.style import policy_colour, style

    with style():
        figure = Figure(figsize=(6.4, 4.2), layout="constrained")
        axes = figure.add_subplot()
        for number, (policy, name) in enumerate(NAMES.items()):
            for t, line in ((800.0, "-"), (200.0, "--")):
                found = [(size["agents"], _success(size, policy, t)) for size in success_files()]
                shown = [(agents, *cell) for agents, cell in found if cell is not None]
                if shown:
                    agents, mean, half = zip(*shown, strict=True)
                    label = name if t == 800.0 else None
                    colour = policy_colour(number)
                    look = {"fmt": f"o{line}", "markersize": 5, "elinewidth": 1.2, "capsize": 3}
                    axes.errorbar(agents, mean, half, color=colour, label=label, **look)
        axes.set(xscale="log", xlabel="robots", ylabel="success rate", ylim=(0.79, 1.01))
        axes.set_yticks([0.8, 0.85, 0.9, 0.95, 1.0])
        axes.xaxis.set_major_formatter(lambda value, _: short(value))
        axes.minorticks_off()
        axes.plot([], [], "k-", label="t = 800 s")
        axes.plot([], [], "k--", label="t = 200 s")
        figure.legend(loc="outside lower center", ncols=3, fontsize=8, columnspacing=1.2)
        figure.savefig(path)
