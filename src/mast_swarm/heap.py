"""Memory on the CPU: what tensors leave is kept for the next ones.

A step makes and frees tensors of megabytes, and the next step the same ones again. The C library of Linux (glibc) hands
such memory back to the system in between. The system fills it with zeros, page by page, when it is asked for again,
which takes up to a sixth of a step.
"""

from __future__ import annotations

import ctypes
import os
import sys

KEPT = 256 << 20  # bytes that are free and kept at most
_LARGE = 32 << 20  # bytes of a piece that is handed back at once: the most that glibc takes for this
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_* of malloc.h
_SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")


def keep_free_memory() -> None:
    """Unless the user has told the C library when to hand memory back, or it cannot be told."""
    told = any(name in os.environ for name in _SETTINGS) or "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or told:
        return
    library = ctypes.CDLL(None)
    if hasattr(library, "mallopt"):  # musl has none
        library.mallopt(_TRIM_THRESHOLD, KEPT)
        library.mallopt(_MMAP_THRESHOLD, _LARGE)
