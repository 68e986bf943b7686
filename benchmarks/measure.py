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

RESULTS = Path(__file__).parent / "results"


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


def benchmark(name: str, about: str | None, measured: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Run a benchmark from the command line: its result, which is printed, and written to the folder that --out names.

    The command line is read first: --help, which shows `about`, and a wrong argument measure nothing.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}", description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"folder for {name}.json (default: %(default)s)")
    folder: Path = parser.parse_args().out
    result = {"benchmark": name, "machine": machine(), **measured()}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    print(told(result))
    print(f"written: {folder / name}.json")
    return result


def told(result: Mapping[str, Any]) -> str:
    """A result for people: a line for each value, and one for each row of a list of rows."""
    lines = []
    for name, value in result.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines += [f"{name}:", *(f"  {line(row)}" for row in value)]
        else:
            lines.append(f"{name}: {_cell(value)}")
    return "\n".join(lines)


def line(row: Mapping[str, Any]) -> str:
    """A row in one line: each value after its name."""
    return ", ".join(f"{name} {_cell(value)}" for name, value in row.items())


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"({line(value)})"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_cell, value))}]"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
