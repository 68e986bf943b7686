"""Threads on the CPU: torch's and those of compiled loops. Both are threads of OpenMP, mostly of the same copy of it.

Threads of OpenMP that wait for each other, or for work, do so by spinning, for milliseconds each time. Where other
programs want the cores too, a step then waits again and again for a thread that has no core, while one that has
nothing to do holds it: many times as long (`benchmarks/crowded.py`). Two rules keep clear of it: threads that wait
sleep (`sleep_while_waiting`), and little work is done by one thread (`enough_for`).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

ALONE = 32  # robots of all environments up to which one thread decides for them
_GRAIN = 1 << 15  # numbers that torch gives to one thread at least


@contextmanager
def compiled(threads: int | None = None) -> Iterator[None]:
    """So many threads for compiled loops; None: as many as torch may use."""
    import numba  # half a second; not everyone who has torch needs it

    before = numba.get_num_threads()
    most = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(threads or min(torch.get_num_threads(), most))
    try:
        yield
    finally:
        numba.set_num_threads(before)


@contextmanager
def enough_for(robots: int) -> Iterator[None]:
    """One thread, of torch and of compiled loops, for that many robots if they are few; else as many as there are."""
    if robots > ALONE:
        yield
        return
    import numba

    before = torch.get_num_threads(), numba.get_num_threads()
    torch.set_num_threads(1)
    numba.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        numba.set_num_threads(before[1])


def sleep_while_waiting() -> None:
    """What OMP_WAIT_POLICY=PASSIVE would have done, for an OpenMP that is loaded and has read its settings.

    Intel's and LLVM's OpenMP can be told. GNU's cannot, but it spins a few microseconds only while it has more threads
    than there are cores. So a thread of ours asks it for as many as there are cores, and then sleeps, as they do.
    """
    if os.name != "posix" or torch.get_num_threads() < 2:
        return
    openmp = ctypes.CDLL(None)
    if hasattr(openmp, "kmp_set_blocktime"):
        openmp.kmp_set_blocktime(0)
    elif hasattr(openmp, "omp_set_num_threads"):
        ready = threading.Event()
        threading.Thread(target=_sleeper, args=(openmp, ready), name="mast sleeper", daemon=True).start()
        ready.wait()


def _sleeper(openmp: ctypes.CDLL, ready: threading.Event) -> None:
    cores = os.cpu_count() or 1
    try:
        torch.get_num_threads()  # torch sets the number of a new thread once: before this does
        openmp.omp_set_num_threads(cores)  # of this thread alone
        torch.zeros(_GRAIN * cores + 1).add_(1)
    finally:
        ready.set()
    threading.Event().wait()  # OpenMP's threads go when this one does
