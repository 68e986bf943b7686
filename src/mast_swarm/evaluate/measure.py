"""Measuring on this machine: time by parts, peak memory, what is free, and the arithmetic it can do."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mast_swarm.model.attention import product

# Dense bf16 of devices whose makers state it, operations per second; of others a large product is timed.
KNOWN_PEAKS = {"NVIDIA H200": 989e12, "NVIDIA H100 80GB HBM3": 989e12}
_SPARE = 0.9  # share of the free memory that may be used


class Clock:
    """Times the parts of one run: `mark(name)` ends the part of that name, `mark()` what is not counted.

    On a GPU marks are events in its queue: nothing waits until `laps` is asked for.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.names: list[str] = []
        self.marks: list[Any] = []

    def mark(self, name: str = "") -> None:
        if self.device.type == "cuda":
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.marks.append(event)
        else:
            self.marks.append(time.perf_counter())
        self.names.append(name)

    def laps(self) -> dict[str, float]:
        """Milliseconds of each part, in order."""
        if self.device.type == "cuda":
            self.marks[-1].synchronize()
        counted = [n for n, name in enumerate(self.names) if name]
        return {self.names[n]: self._between(self.marks[n - 1], self.marks[n]) for n in counted}

    def _between(self, begin: Any, end: Any) -> float:
        return begin.elapsed_time(end) if self.device.type == "cuda" else (end - begin) * 1e3


def medians(
    run: Callable[[Clock], None], device: torch.device, seconds: float, *, least: int = 3, most: int = 50, warm: int = 2
) -> dict[str, float]:
    """Median milliseconds of each part that `run` marks, and of the "whole", over runs that together take about
    `seconds`; `warm` runs before do not count."""
    found: list[dict[str, float]] = []
    began = time.perf_counter()
    for number in range(warm + most):
        if number == warm:
            began = time.perf_counter()
        clock = Clock(device)
        run(clock)
        laps = clock.laps()
        if number >= warm:
            found.append(laps | {"whole": sum(laps.values())})
        if len(found) >= least and time.perf_counter() - began > seconds:
            break
    return {name: statistics.median(laps[name] for laps in found) for name in found[0]}


class Memory:
    """The peak of memory in use: on a GPU of torch's tensors, on the CPU of the process above what it had at first.

    Elsewhere than on Linux the CPU's peak is that of the process so far: it cannot be forgotten.
    """

    def __init__(self, device: torch.device) -> None:
        self.device, self.idle = device, 0
        self.restart()
        if device.type == "cpu":
            self.idle = _resident("VmRSS")

    def restart(self) -> None:
        """Forget the peak so far."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        elif sys.platform == "linux":
            with contextlib.suppress(OSError, AttributeError):
                ctypes.CDLL(None).malloc_trim(0)  # what is free but kept for the next allocation is not in use
                Path("/proc/self/clear_refs").write_text("5")

    def peak(self) -> int:
        """Bytes."""
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device)
        return max(0, _resident("VmHWM") - self.idle)


def _resident(field: str) -> int:
    """Bytes of this process in memory: now (VmRSS) or at most (VmHWM). Elsewhere than on Linux always at most."""
    if sys.platform == "linux":
        found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
        return int(found[1]) * 1024 if found else 0
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


def free_memory(device: torch.device) -> float | None:
    """Bytes that may be used; None where nobody tells."""
    if device.type == "cuda":
        torch.cuda.empty_cache()
        return _SPARE * torch.cuda.mem_get_info(device)[0]
    try:
        found = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    except OSError:
        found = None
    return None if found is None else _SPARE * 1024 * int(found[1])


def machine(device: torch.device) -> dict[str, Any]:
    """What is measured on."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "kind": device.type,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "load": _load(),
    }


def _processor() -> str:
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def _load() -> float | None:
    """Processes that wanted a processor over the last minute, on average; None where the system does not say."""
    return round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None


def file_name(benchmark: str, device: str) -> str:
    """What the results of a benchmark on a device are called, without ending: scale-nvidia-h200."""
    return f"{benchmark}-{re.sub('[^a-z0-9]+', '-', device.lower()).strip('-')}"


def arithmetic(device: torch.device, precision: str) -> tuple[float, str]:
    """Operations per second that the device can do in fp32 or bf16, and where the number is from."""
    on_gpu, half = device.type == "cuda", precision == "bf16"
    if on_gpu and half and torch.cuda.get_device_name(device) in KNOWN_PEAKS:
        return KNOWN_PEAKS[torch.cuda.get_device_name(device)], "dense bf16 as its maker states"
    side, dtype = 8192 if on_gpu else 2048, torch.bfloat16 if half else torch.float32
    a, none = torch.ones((side, side), dtype=dtype, device=device), torch.zeros(side, dtype=dtype, device=device)

    spent = []
    for _ in range(8):
        clock = Clock(device)
        clock.mark()
        with torch.no_grad():
            product(a, a, none)
        clock.mark("product")
        spent.append(clock.laps()["product"])
    return 2 * side**3 / (min(spent) / 1e3), f"fastest product of two {side} x {side} matrices in the same run"
