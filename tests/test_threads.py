"""Threads that wait sleep, whichever of torch and the package is imported first; little work has one thread."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

from mast_swarm import Navigation, NavigationConfig, rollout, threads

# How long OpenMP's threads are on a core for each of 20 small sums that they share, with pauses between, milliseconds.
MEASURE = """
import os, time
def spent():
    others = set(os.listdir("/proc/self/task")) - {str(os.getpid())}
    return sum(int(open(f"/proc/self/task/{t}/schedstat").read().split()[0]) for t in others)
x = torch.zeros(1 << 17)
for _ in range(3):
    x.add_(1)
    time.sleep(0.02)
before = spent()
for _ in range(20):
    x.add_(1)
    time.sleep(0.02)
print((spent() - before) / 20e6)
"""
SETTINGS = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GOMP_SPINCOUNT", "KMP_BLOCKTIME", "MKL_NUM_THREADS")


def run(code: str, **settings: str) -> str:
    env = {name: value for name, value in os.environ.items() if name not in SETTINGS} | settings
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux says how long each thread was on a core")
def test_threads_that_wait_sleep_in_either_order_of_imports() -> None:
    plain = float(run("import torch" + MEASURE))
    if plain < 1:
        pytest.skip("the OpenMP of this machine does not spin, or has one core")
    for order in ("torch, mast_swarm", "mast_swarm, torch"):
        assert float(run(f"import {order}" + MEASURE)) < plain / 5


def test_what_the_user_has_set_stays() -> None:
    names = "; import threading; print('mast sleeper' in [t.name for t in threading.enumerate()])"
    assert run("import torch, mast_swarm" + names, GOMP_SPINCOUNT="300000") == "False"
    assert run("import torch, mast_swarm" + names, OMP_NUM_THREADS="1") == "False"
    assert run("import mast_swarm, os; print(os.environ['OMP_WAIT_POLICY'])", OMP_WAIT_POLICY="ACTIVE") == "ACTIVE"
    assert run("import mast_swarm, os; print(os.environ['OMP_WAIT_POLICY'])") == "PASSIVE"


def test_few_robots_have_one_thread() -> None:
    seen = []

    def watch(state: object, observation: object) -> Tensor:
        seen.append(torch.get_num_threads())
        return torch.zeros_like(state.positions)  # type: ignore[attr-defined]

    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for agents in (threads.ALONE // 2, threads.ALONE // 2 + 1):
            rollout(Navigation(NavigationConfig(agents=agents)), watch, [0, 1], 1)
            assert torch.get_num_threads() == 3
        assert seen == [1, 3]
        with pytest.raises(ZeroDivisionError), threads.enough_for(1):
            raise ZeroDivisionError
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
