"""Memory that tensors leave is kept for the next ones, unless the user wants it otherwise."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

# How many pages a round of 20 arrays of 2 MB asks the system for, once there were some rounds.
MEASURE = """
import resource
import numpy
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    [numpy.ones(1 << 18) for _ in range(20)]
before = faults()
for _ in range(5):
    [numpy.ones(1 << 18) for _ in range(20)]
print((faults() - before) / 5)
"""
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


def pages(code: str, **settings: str) -> float:
    env = {name: value for name, value in os.environ.items() if name not in SETTINGS} | settings
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return float(done.stdout)


@pytest.mark.skipif(
    sys.platform != "linux" or not hasattr(ctypes.CDLL(None), "mallopt"), reason="only glibc can be told"
)
def test_free_memory_is_kept_unless_the_user_has_set_when_it_goes() -> None:
    plain = pages(MEASURE)
    if plain < 1000:
        pytest.skip("memory is kept on this machine anyway")
    assert pages("import mast_swarm.space" + MEASURE) < plain / 20
    for settings in (
        {"MALLOC_TRIM_THRESHOLD_": "100000"},
        {"MALLOC_MMAP_THRESHOLD_": "100000"},
        {"GLIBC_TUNABLES": "glibc.malloc.trim_threshold=100000"},
    ):
        assert pages("import mast_swarm.space" + MEASURE, **settings) > 1000
