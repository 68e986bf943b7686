"""Put numbers and pictures into the docs: python docs/make.py [--check | --pictures].

A block `<!-- numbers: NAME -->` ... `<!-- end -->` in a page is written anew from the result files that NAME stands
for. With --check nothing is written, and a block that is not what its files say is an error (a test runs it).
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent
BLOCK = re.compile(r"(<!-- numbers: ([\w-]+) -->\n).*?(<!-- end -->)", re.S)


def load(path: str) -> dict[str, Any]:
    return json.loads((ROOT / path).read_text())


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def success(path: str, times: tuple[float, ...]) -> str:
    """A row a policy: the success rate and its 95 % interval at some instants."""
    rows = [row for row in load(path)["rows"] if row["metric"] == "success_rate" and row["t"] in times]
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    found = {(row["policy"], row["t"]): f"{row['mean']:.3f} ± {row['ci95']:.3f}" for row in rows}
    body = [[f"`{policy}`", *(found[policy, t] for t in times)] for policy in policies]
    return table(["policy", *(f"t = {t:g} s" for t in times)], body)


def paired(path: str, policy: str, t: float) -> str:
    """How much better a policy is than each other one on the same start states."""
    rows = [r for r in load(path)["paired"] if r["metric"] == "success_rate" and r["t"] == t and r["policy"] == policy]
    body = [[f"`{policy}` minus `{row['minus']}`", f"{row['mean']:+.3f} ± {row['ci95']:.3f}"] for row in rows]
    return table([f"paired difference at t = {t:g} s, {rows[0]['episodes']} start states", "success rate"], body)


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
                f"N = {robots}, {batch} environment{'s' * (batch > 1)} a call",
                f"{min(ratios):.1f}x to {max(ratios):.1f}x",
                f"{min(sums):.1f}x to {max(sums):.1f}x",
            ]
        )
    return table(["warm-started assignment against scipy", "median step", "whole trajectory"], rows)


def decentral_benchmark() -> str:
    rows = [
        [f"{row['delay']:g}", f"{row['threads']}", f"{row['ratio']:.1f}x"]
        for row in load("benchmarks/results/decentral.json")["rows"]
    ]
    return table(["tau / dt", "threads", "decentralised step / central forward"], rows)


NUMBERS: dict[str, Callable[[], str]] = {
    "baselines": lambda: success("docs/results/navigation-baselines.json", (50, 100, 200)),
    "mast-m": lambda: success("docs/results/navigation-mast-m.json", (50, 100, 200, 400, 800)),
    "mast-m-paired": lambda: paired("docs/results/navigation-mast-m.json", "mast-m", 800),
    "benchmark-world": world_benchmark,
    "benchmark-growth": growth_benchmark,
    "benchmark-assignment": assignment_benchmark,
    "benchmark-decentral": decentral_benchmark,
}


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]


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
    from mast_swarm.view.plots import frame
    from mast_swarm.world.config import NavigationConfig
    from mast_swarm.world.navigation import Navigation

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


def main() -> None:
    if "--pictures" in sys.argv:
        scenario_picture(DOCS / "pictures" / "scenarios.png")
        return
    stale = []
    for page in pages():
        text = page.read_text()
        if written(text) != text:
            stale.append(page.name)
            if "--check" not in sys.argv:
                page.write_text(written(text))
    if stale and "--check" in sys.argv:
        sys.exit(f"numbers differ from their files in {', '.join(stale)}: run python docs/make.py")


if __name__ == "__main__":
    main()
