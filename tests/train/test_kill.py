"""A real process is killed at random moments and resumed; in the end nobody can tell."""

from __future__ import annotations

import json
import random
import shlex
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from mast_swarm.train import checkpoint

SETTINGS = shlex.split("""--recipe tiny --agents 10 --layers 2 --heads 2 --head-dim 8 --epochs 60 --environments 4
--steps 10 --carry 0.5 --replay 300 --batch 8 --ema 0.9 --validation 2 --validation-steps 4 --validate-every 3""")
HOW = ["--checkpoint-seconds", "0", "--device", "cpu"]
PATIENCE = 120.0  # s, for one process on a busy machine


def epochs(folder: Path) -> int:
    """Epochs that metrics.jsonl tells of."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def kill_when(process: subprocess.Popen[bytes], moment: Callable[[], bool], delay: float = 0.0) -> None:
    """SIGKILL as soon as `moment()` is true (and a delay after), or never if the process ends before."""
    until = time.monotonic() + PATIENCE
    while process.poll() is None and not moment():
        assert time.monotonic() < until, "the process does not get there"
        time.sleep(0.0002)
    time.sleep(delay)
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_a_killed_run_ends_bit_for_bit_like_one_never_stopped(
    tmp_path: Path, mast: list[str], alone: dict[str, str]
) -> None:
    rng = random.Random()
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    first = [*mast, "train", "navigation", *SETTINGS, *HOW, "--out"]
    again = [*mast, "train", "--resume", str(parts), *HOW]

    def start(command: list[str]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, env=alone, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    undisturbed = start([*first, str(whole)])
    # Before the first checkpoint, in the middle of an epoch, while a checkpoint is being written.
    kill_when(start([*first, str(parts)]), (parts / "config.json").exists)
    stops = [epochs(parts)]
    aim = rng.randint(1, 20)
    kill_when(start(again), lambda: epochs(parts) >= aim, rng.uniform(0, 0.1))
    stops.append(epochs(parts))
    aim = stops[-1] + rng.randint(1, 20)
    writing = parts / "checkpoint.writing"
    kill_when(start(again), lambda: epochs(parts) >= aim and writing.exists())
    stops.append(epochs(parts))
    assert stops[0] <= 1 and stops[-1] < 60, f"the kills came too late: {stops}"
    writing.write_bytes((parts / checkpoint.FILE).read_bytes()[:-1000])  # whatever that moment was: half a checkpoint
    last = start(again)
    for process in (last, undisturbed):
        _, told = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, told.decode()

    ours, theirs = checkpoint.read(parts), checkpoint.read(whole)
    assert ours.keys() == theirs.keys()
    for kind in ("learner.policy.", "learner.average.", "learner.optimiser.", "replay.", "worlds."):
        assert any(name.startswith(kind) for name in ours)
    different = [name for name in ours if not torch.equal(ours[name], theirs[name])]
    assert not different, f"after kills in epochs {stops}"
    assert checkpoint.about(parts) == checkpoint.about(whole)
    for name in ("best", "last"):
        assert (parts / name / "model.safetensors").read_bytes() == (whole / name / "model.safetensors").read_bytes()
    kept = [[json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()] for run in (whole, parts)]
    for one, other in zip(*kept, strict=True):
        assert (one["epoch"], one["loss"], one.get("success_rate")) == (
            other["epoch"],
            other["loss"],
            other.get("success_rate"),
        )
    assert not writing.exists()
