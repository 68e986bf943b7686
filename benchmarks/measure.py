"""Small helpers of the benchmarks: interleaved timing, the machine's name, results on disk."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def medians(candidates: Mapping[str, Callable[[], Any]], repeats: int = 7, burst: int = 3) -> dict[str, float]:
    """Seconds of each candidate: the median of repeats that take turns, so that a noisy spell hits all alike.

    A turn is a few runs in a row, as a loop would do them: the first finds the caches full of the others' data.
    """
    for run in candidates.values():
        run()  # warm up: compile, fill caches
    times: dict[str, list[float]] = {name: [] for name in candidates}
    for _ in range(repeats):
        for name, run in candidates.items():
            for _ in range(burst):
                began = time.perf_counter()
                run()
                times[name].append(time.perf_counter() - began)
    return {name: statistics.median(found) for name, found in times.items()}


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    model = platform.processor() or platform.machine()
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    return {"cpu": model, "python": platform.python_version()}


def write(name: str, result: dict[str, Any]) -> None:
    """Print a result and write it to the file that --out names (benchmarks/results/NAME.json)."""
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"benchmark": name, "machine": machine(), **result}, indent=1)
    (folder / f"{name}.json").write_text(text + "\n")
    print(text)
