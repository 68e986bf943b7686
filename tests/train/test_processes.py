"""Several processes: each has its share of environments, replay and batch, and together they are one run."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from safetensors.torch import load_file, save_file

from mast_swarm.errors import MastError
from mast_swarm.train import checkpoint
from mast_swarm.train.collector import sample_layout
from mast_swarm.train.config import TrainConfig
from mast_swarm.train.learner import Learner
from mast_swarm.train.replay import Replay
from mast_swarm.train.trainer import RunOptions, Stopped, Trainer

CPU = torch.device("cpu")
PATIENCE = 120.0  # s, on a busy machine
SETTINGS = shlex.split("""--recipe tiny --agents 10 --layers 1 --heads 2 --head-dim 8 --epochs 40 --environments 4
--steps 5 --replay 40 --batch 8 --validation 2 --validation-steps 4 --validate-every 20 --checkpoint-seconds 0
--device cpu""")


def samples(config: TrainConfig) -> dict[str, torch.Tensor]:
    """A batch of made-up samples."""
    generator = torch.Generator().manual_seed(0)
    shapes = {name: shape for name, (shape, _) in sample_layout(config).items()}
    made = {name: torch.randn((config.batch, *shape), generator=generator) for name, shape in shapes.items()}
    made["positions"] *= 100
    made["component"] = (made["component"] > 0).long()
    return made


def gradients(config: TrainConfig, sample: dict[str, torch.Tensor], processes: int) -> dict[str, torch.Tensor]:
    """The gradients that one update on all the given samples leaves, and the weights after it."""
    count = len(sample["target"])
    replay = Replay(sample_layout(config), count, CPU)
    replay.push(sample)
    learner = Learner(config, replay, CPU, processes)
    learner.update((torch.arange(count) + 0.5) / count)  # chooses every sample once
    found = {name: p.grad.clone() for name, p in learner.policy.named_parameters() if p.grad is not None}
    assert found.keys() == dict(learner.policy.named_parameters()).keys()
    return found | {f"after.{name}": p.detach().clone() for name, p in learner.policy.named_parameters()}


def two_processes(rank: int, folder: Path, config: TrainConfig) -> None:
    """What each of the two does: gradients of its half of a batch; a whole run; the same run, stopped and resumed."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
    half = {name: value[rank::2] for name, value in samples(config).items()}
    save_file(gradients(config, half, 2), folder / f"gradients-{rank}.safetensors")

    whole = Trainer(config, RunOptions(folder / "whole", CPU, 0.0))
    whole.run()
    save_file({k: v.clone() for k, v in whole.learner.tensors().items()}, folder / f"whole-{rank}.safetensors")

    stopped = Trainer(config, RunOptions(folder / "parts", CPU, 3600.0))
    stopped._prepare_folder()
    for _ in range(2):
        stopped.one_epoch()
        stopped.save()
    stopped.one_epoch()
    if rank == 1:  # killed before process 0 had written: this file never counts
        checkpoint.write(folder / "parts", {}, {}, "checkpoint-1-3.safetensors")
    dist.barrier()
    resumed = Trainer.resume(RunOptions(folder / "parts", CPU, 3600.0))
    assert resumed.epoch == 2
    step = resumed._step

    def asked(*args: Any, **kwargs: Any) -> None:
        step(*args, **kwargs)
        if rank == 1 and resumed.within.step == 3:  # one of the two alone is told, and both stop
            resumed.stopping = signal.SIGTERM

    resumed._step = asked  # type: ignore[method-assign]
    with pytest.raises(Stopped, match="stopped in epoch 3 after step 4; checkpoint"):
        resumed.run()
    resumed = Trainer.resume(RunOptions(folder / "parts", CPU, 3600.0))
    assert (resumed.epoch, resumed.within.step) == (2, 4)
    resumed.run()
    save_file({k: v.clone() for k, v in resumed.learner.tensors().items()}, folder / f"parts-{rank}.safetensors")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def shared(small: TrainConfig, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainConfig, Path]:
    folder = tmp_path_factory.mktemp("two")
    config = replace(small, clip=None, epochs=4)
    mp.spawn(two_processes, (folder, config), nprocs=2)
    return config, folder


def test_the_gradients_equal_those_of_one_process_with_the_whole_batch(shared: tuple[TrainConfig, Path]) -> None:
    config, folder = shared
    expected = gradients(config, samples(config), 1)
    ours, theirs = (load_file(folder / f"gradients-{rank}.safetensors") for rank in (0, 1))
    alone = gradients(replace(config, batch=4), {name: value[::2] for name, value in samples(config).items()}, 1)
    assert expected.keys() == ours.keys()
    for name, value in expected.items():
        assert torch.equal(ours[name], theirs[name])
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-6)
    weight = "mast.blocks.0.mlp.0.weight"  # half the batch alone gives something else, so the test can fail
    assert not torch.allclose(alone[weight], expected[weight], rtol=1e-2, atol=1e-5)


def test_all_processes_end_with_the_same_weights(shared: tuple[TrainConfig, Path]) -> None:
    _, folder = shared
    ours, theirs = (load_file(folder / f"whole-{rank}.safetensors") for rank in (0, 1))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    kept = sorted(path.name for path in (folder / "whole").glob("checkpoint*"))
    assert kept == ["checkpoint-1-4.safetensors", "checkpoint.safetensors"]
    one, other = checkpoint.read(folder / "whole"), checkpoint.read(folder / "whole", kept[0])
    assert not torch.equal(one["worlds.positions"], other["worlds.positions"])  # each has its own worlds
    assert len(one["replay.target"]) == len(other["replay.target"]) == 20  # and half the replay


def test_a_stopped_run_of_two_processes_ends_like_one_never_stopped(shared: tuple[TrainConfig, Path]) -> None:
    _, folder = shared
    for rank in (0, 1):
        whole, parts = (load_file(folder / f"{run}-{rank}.safetensors") for run in ("whole", "parts"))
        assert whole.keys() == parts.keys()
        assert all(torch.equal(whole[name], parts[name]) for name in whole)
    assert sorted(path.name for path in (folder / "parts").glob("checkpoint-*")) == ["checkpoint-1-4.safetensors"]


def test_another_number_of_processes_is_refused(shared: tuple[TrainConfig, Path]) -> None:
    _, folder = shared
    with pytest.raises(MastError, match=r"was trained by 2 processes and there are 1: .* --nproc-per-node 2"):
        Trainer.resume(RunOptions(folder / "whole", CPU))


def descendants(pid: int) -> list[int]:
    """The processes that a process started, and theirs."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(child) for child in path.read_text().split()] if path.exists() else []
    return children + [inner for child in children for inner in descendants(child)]


def _epoch(out: Path) -> int:
    """The epoch of the checkpoint; -1 where there is none, or where another takes its place while it is read."""
    try:
        return checkpoint.about(out)["epoch"] if (out / checkpoint.FILE).exists() else -1
    except RuntimeError:
        return -1


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="finds the processes to kill in /proc")
def test_torchrun_trains_and_resumes_one_run(tmp_path: Path, mast: list[str], alone: dict[str, str]) -> None:
    out, entry = tmp_path / "run", tmp_path / "entry.py"
    entry.write_text(mast[-1])
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(entry)]
    command = [*torchrun, "train", "navigation", *SETTINGS, "--out", str(out)]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(command, env=alone, stdout=log, stderr=log)
    until = time.monotonic() + PATIENCE
    while _epoch(out) < 2:
        assert process.poll() is None and time.monotonic() < until, (tmp_path / "log").read_text()
        time.sleep(0.005)
    for pid in [*descendants(process.pid), process.pid]:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    reached = checkpoint.about(out)["epoch"]
    assert reached < 40, "killed too late"
    again = [*torchrun, "train", "--resume", str(out), "--checkpoint-seconds", "3600", "--device", "cpu"]
    with open(tmp_path / "log", "wb") as log:
        process = subprocess.Popen(again, env=alone, stdout=log, stderr=log)
    while (out / "metrics.jsonl").read_bytes().count(b"\n") < reached + 2:
        assert process.poll() is None and time.monotonic() < until, (tmp_path / "log").read_text()
        time.sleep(0.005)
    process.terminate()  # which torchrun passes on to its processes
    process.wait(PATIENCE)
    told = (tmp_path / "log").read_text()
    assert told.count("mast: stopped ") == 1 and f"go on with `mast train --resume {out}`" in told
    assert reached + 2 <= checkpoint.about(out)["epoch"] < 40
    done = subprocess.run(again, env=alone, capture_output=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stderr.decode()
    assert len((out / "metrics.jsonl").read_text().splitlines()) == 40
    ours, theirs = checkpoint.read(out), checkpoint.read(out, "checkpoint-1-40.safetensors")
    learned = [name for name in ours if name.startswith("learner.")]
    assert learned and all(torch.equal(ours[name], theirs[name]) for name in learned)
    last = load_file(out / "last" / "model.safetensors")
    assert all(torch.equal(last[name], ours[f"learner.policy.{name}"]) for name in last)
