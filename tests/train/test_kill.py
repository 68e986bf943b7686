"""A real process is ended at random moments, in every way, and resumed; in the end nobody can tell."""

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
HOW = ["--device", "cpu"]
PATIENCE = 120.0  # s, for one process on a busy machine


def epochs(folder: Path) -> int:
    """Epochs that metrics.jsonl tells of."""
    path = folder / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def end_when(process: subprocess.Popen[bytes], how: int, moment: Callable[[], bool], delay: float = 0.0) -> str:
    """Send a signal as soon as `moment()` is true (and a delay after); what the process said on stderr."""
    until = time.monotonic() + PATIENCE
    while process.poll() is None and not moment():
        assert time.monotonic() < until, "the process does not get there"
        time.sleep(0.0002)
    time.sleep(delay)
    process.send_signal(how)
    _, told = process.communicate(timeout=PATIENCE)
    if how != signal.SIGKILL:
        assert process.returncode == 128 + how, told.decode()
    return told.decode()


def logged(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard shows of a run, but for times: name -> (epoch, value)."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    names = [name for name in found.Tags()["scalars"] if name not in ("seconds", "samples_per_second")]
    return {name: [(event.step, event.value) for event in found.Scalars(name)] for name in names}


@pytest.mark.slow
def test_a_run_ended_in_every_way_ends_bit_for_bit_like_one_never_stopped(
    tmp_path: Path, mast: list[str], alone: dict[str, str]
) -> None:
    rng = random.Random()
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    first = [*mast, "train", "navigation", *SETTINGS, *HOW, "--out"]
    again = [*mast, "train", "--resume", str(parts), *HOW]
    said = tmp_path / "said"

    def start(command: list[str]) -> subprocess.Popen[bytes]:
        with open(said, "ab") as file:
            return subprocess.Popen(command, env=alone, stdout=file, stderr=subprocess.PIPE)

    undisturbed = subprocess.Popen([*first, str(whole)], env=alone, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    # Before the first checkpoint, midway through epochs in three ways, while a checkpoint is being written.
    end_when(start([*first, str(parts)]), signal.SIGKILL, (parts / "config.json").exists)
    stops = [epochs(parts)]
    ways = [signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
    rng.shuffle(ways)
    for how in ways:
        aim = stops[-1] + rng.randint(1, 10)
        told = end_when(start(again), how, lambda aim=aim: epochs(parts) >= aim, rng.uniform(0, 0.1))
        if how != signal.SIGKILL:
            assert f"checkpoint: {parts / checkpoint.FILE}; go on with `mast train --resume {parts}`" in told
        stops.append(epochs(parts))
    aim = stops[-1] + rng.randint(1, 5)
    writing = parts / "checkpoint.writing"
    often = [*again, "--checkpoint-seconds", "0"]
    end_when(start(often), signal.SIGKILL, lambda: epochs(parts) >= aim and writing.exists())
    stops.append(epochs(parts))
    assert stops[0] <= 1 and stops[-1] < 60, f"the kills came too late: {stops}"
    writing.write_bytes((parts / checkpoint.FILE).read_bytes()[:-1000])  # whatever that moment was: half a checkpoint
    last = start(again)
    for process in (last, undisturbed):
        _, told_last = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, told_last.decode()
    assert logged(parts) == logged(whole)
    assert [epoch for epoch, _ in logged(parts)["loss"]] == list(range(1, 61))
    lines = [line for line in said.read_text().splitlines() if line.startswith("epoch ")]
    shown = {int(line.split("/")[0].split()[1]) for line in lines}
    assert len(shown) >= 60 - 2  # a line for each, but for what a SIGKILL may have cut off after a checkpoint

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
