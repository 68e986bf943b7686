"""A whole run in this process: what it writes, how it goes on, and how it stops when something is wrong."""

from __future__ import annotations

import errno
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from mast_swarm.errors import MastError
from mast_swarm.files import only_writer
from mast_swarm.model.policy import Policy
from mast_swarm.train import checkpoint
from mast_swarm.train.config import TrainConfig, from_run
from mast_swarm.train.learner import Learner
from mast_swarm.train.run import train
from mast_swarm.train.trainer import Trainer
from shared import Stopped, options, stop_after

CPU = torch.device("cpu")


def stopped(config: TrainConfig, folder: Path, epochs: int = 1, **kwargs: Any) -> bytes:
    """A run in `folder` that was stopped after some epochs; gives its checkpoint."""
    with pytest.raises(Stopped):
        Trainer(config, options(folder, **kwargs)).run(stop_after(epochs))
    return (folder / checkpoint.FILE).read_bytes()


def weights(folder: Path, name: str) -> dict[str, torch.Tensor]:
    return load_file(folder / name / "model.safetensors")


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def test_a_run_writes_its_policies_numbers_and_settings(small: TrainConfig, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    Trainer(small, options(tmp_path / "run")).run(told.append)
    assert rows(tmp_path / "run") == told
    assert [row["epoch"] for row in told] == [1, 2, 3]
    assert ["success_rate" in row for row in told] == [False, True, True]  # every second, and the last
    assert all(row["loss"] > 0 and row["samples_per_second"] > 0 for row in told)
    assert from_run(tmp_path / "run") == small
    assert Policy.load(tmp_path / "run" / "best").config == small.policy
    averaged = {k.removeprefix("learner.average."): v for k, v in checkpoint.read(tmp_path / "run").items()}
    last = weights(tmp_path / "run", "last")
    assert same(last, {name: averaged[name] for name in last})


def test_a_run_that_was_killed_in_its_first_step_goes_on_with_an_empty_replay(
    small: TrainConfig, tmp_path: Path
) -> None:
    killed = Trainer(small, options(tmp_path / "killed"))
    killed._prepare_folder()
    killed.save()
    killed.collector.close()
    Trainer.resume(options(tmp_path / "killed")).run()
    Trainer(small, options(tmp_path / "whole")).run()
    assert same(*(weights(tmp_path / name, "last") for name in ("killed", "whole")))


def test_the_best_policy_is_the_one_that_validated_best(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(small, epochs=3, validate_every=1, ema=None)
    rates, kept = iter((0.2, 0.5, 0.4)), []

    def rate(self: Any) -> list[float]:
        kept.append({name: value.clone() for name, value in self.team.policy.state_dict().items()})
        return [next(rates)]

    monkeypatch.setattr("mast_swarm.train.team.Validator.headlines", rate)
    trainer = Trainer(config, options(tmp_path))
    trainer.run()
    assert trainer.best == 0.5
    assert same(weights(tmp_path, "best"), kept[1]) and same(weights(tmp_path, "last"), kept[2])
    assert not same(kept[1], kept[2])


@pytest.mark.parametrize(
    "change", [{}, {"carry": 0.0, "ema": None, "updates": 2}, {"replay": 1000}, {"expert": "informed"}], ids=str
)
def test_a_run_that_was_stopped_ends_bit_for_bit_like_one_that_was_not(
    small: TrainConfig, tmp_path: Path, change: dict[str, Any]
) -> None:
    config = replace(small, epochs=4, **change)
    Trainer(config, options(tmp_path / "whole")).run()
    stopped(config, tmp_path / "parts", 1)
    with pytest.raises(Stopped):
        Trainer.resume(options(tmp_path / "parts")).run(stop_after(3))
    (tmp_path / "parts" / "checkpoint.writing").write_bytes(b"half a checkpoi")  # killed while it was written
    with open(tmp_path / "parts" / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 4, "loss": 9}\n{"epo')  # killed after an epoch without a checkpoint
    Trainer.resume(options(tmp_path / "parts")).run()
    assert same(checkpoint.read(tmp_path / "whole"), checkpoint.read(tmp_path / "parts"))
    assert checkpoint.about(tmp_path / "whole") == checkpoint.about(tmp_path / "parts")
    for name in ("best", "last"):
        assert same(weights(tmp_path / "whole", name), weights(tmp_path / "parts", name))
    for one, other in zip(rows(tmp_path / "whole"), rows(tmp_path / "parts"), strict=True):
        assert {k: one.get(k) for k in ("epoch", "loss", "success_rate")} == {
            k: other.get(k) for k in ("epoch", "loss", "success_rate")
        }
    assert not (tmp_path / "parts" / "checkpoint.writing").exists()


def test_a_finished_run_stays_as_it_is(small: TrainConfig, tmp_path: Path) -> None:
    Trainer(small, options(tmp_path)).run()
    before = weights(tmp_path, "last")
    shutil.rmtree(tmp_path / "last")  # killed just before the end
    train(None, tmp_path, resume=True, device="cpu")
    assert same(weights(tmp_path, "last"), before)


def test_a_run_that_lost_its_checkpoint_is_refused_and_left_alone(
    small: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped(small, tmp_path, 1)
    (tmp_path / checkpoint.FILE).unlink()
    told = (tmp_path / "metrics.jsonl").read_bytes()
    with pytest.raises(MastError, match=r"no checkpoint\.safetensors, so there is nothing to go on from: put the"):
        train(None, tmp_path, resume=True, device="cpu")
    assert (tmp_path / "metrics.jsonl").read_bytes() == told and not (tmp_path / checkpoint.FILE).exists()
    (tmp_path / "metrics.jsonl").unlink()  # now it looks like a run that was killed before it did anything
    train(None, tmp_path, resume=True, device="cpu")
    assert "stopped before its first checkpoint: begins at epoch 1" in capsys.readouterr().out
    assert [row["epoch"] for row in rows(tmp_path)] == [1, 2, 3]


@pytest.mark.parametrize(("cheap", "expected"), [(0.0, 0), (float("inf"), 2)])
def test_checkpoints_come_as_often_as_asked_or_where_they_cost_nothing(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cheap: float, expected: int
) -> None:
    monkeypatch.setattr("mast_swarm.train.trainer.CHEAP", cheap)
    with pytest.raises(Stopped):
        Trainer(small, options(tmp_path, checkpoint_seconds=3600.0)).run(stop_after(2))
    assert checkpoint.about(tmp_path)["epoch"] == expected


def test_a_run_goes_on_longer_than_it_was_meant_to(small: TrainConfig, tmp_path: Path) -> None:
    config = replace(small, schedule="constant", validate_every=1)  # nothing of which depends on the end
    Trainer(replace(config, epochs=4), options(tmp_path / "whole")).run()
    Trainer(replace(config, epochs=2), options(tmp_path / "parts")).run()
    train(None, tmp_path / "parts", resume=True, device="cpu", epochs=4)
    assert same(weights(tmp_path / "whole", "last"), weights(tmp_path / "parts", "last"))
    assert [row["epoch"] for row in rows(tmp_path / "parts")] == [1, 2, 3, 4]
    assert from_run(tmp_path / "parts").epochs == 4
    with pytest.raises(MastError, match=r"--epochs is 3, but .* is in epoch 4: give that or more"):
        train(None, tmp_path / "parts", resume=True, device="cpu", epochs=3)


def test_training_starts_from_a_policy(small: TrainConfig, tmp_path: Path) -> None:
    Policy(small.policy).save(tmp_path / "first")
    config = replace(small, start=str(tmp_path / "first"), ema=None)
    trainer = Trainer(config, options(tmp_path / "run"))
    assert same(dict(trainer.learner.policy.state_dict()), weights(tmp_path, "first"))
    with pytest.raises(Stopped):
        trainer.run(stop_after(1))
    shutil.rmtree(tmp_path / "first")  # no more needed
    Trainer.resume(options(tmp_path / "run")).run()
    assert len(rows(tmp_path / "run")) == 3
    wider = replace(small.policy, layers=3, heads=4)
    Policy(wider).save(tmp_path / "wider")
    with pytest.raises(MastError, match=r"does not fit the policy .*policy.heads 2 -> 4; policy.layers 2 -> 3; give"):
        Trainer(replace(small, start=str(tmp_path / "wider")), options(tmp_path / "other"))
    Policy(replace(small.policy, task="coverage")).save(tmp_path / "coverage")
    with pytest.raises(MastError, match="was trained for coverage, not for navigation: give another"):
        Trainer(replace(small, start=str(tmp_path / "coverage")), options(tmp_path / "other"))
    with pytest.raises(MastError, match="unknown policy 'mast-x': did you mean"):
        Trainer(replace(small, start="mast-x"), options(tmp_path / "other"))


def test_one_run_writes_to_a_folder(small: TrainConfig, tmp_path: Path) -> None:
    stopped(small, tmp_path)
    with only_writer(tmp_path), pytest.raises(MastError, match=r"process \d+ on .* writes to .*: wait for it"):
        train(None, tmp_path, resume=True, device="cpu")
    train(None, tmp_path, resume=True, device="cpu")


def test_the_replay_can_be_left_out(small: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = replace(small, replay=2000, epochs=2, steps=40)
    with_replay = stopped(config, tmp_path / "with")
    without = stopped(config, tmp_path / "without", keep_replay=False)
    assert not any(name.startswith("replay.") for name in checkpoint.read(tmp_path / "without"))
    sizes = Trainer(config, options(tmp_path)).checkpoint_bytes()
    filled = 4 * 40 / 2000  # the share of the replay that one epoch fills
    assert len(without) == pytest.approx(sizes[1], rel=0.25)  # names and settings stand in the file too
    assert len(with_replay) - len(without) == pytest.approx(filled * (sizes[0] - sizes[1]), rel=0.05)
    train(None, tmp_path / "without", resume=True, device="cpu", keep_replay=False)
    assert [row["epoch"] for row in rows(tmp_path / "without")] == [1, 2]
    assert "MB (with the replay" in capsys.readouterr().out


def test_resuming_with_other_settings_lists_them_and_refuses(small: TrainConfig, tmp_path: Path) -> None:
    before = stopped(small, tmp_path)
    wanted = replace(small, lr=0.5, policy=replace(small.policy, layers=3))
    with pytest.raises(MastError, match=r"other settings: lr 0\.001 -> 0\.5; policy\.layers 2 -> 3$"):
        train(wanted, tmp_path, resume=True, device="cpu")
    assert (tmp_path / checkpoint.FILE).read_bytes() == before
    assert Trainer.resume(options(tmp_path), small).epoch == 1


def test_resuming_where_there_is_nothing(small: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(MastError, match="nothing to resume"):
        train(None, tmp_path, resume=True, device="cpu")
    with pytest.raises(MastError, match="nothing to resume"):
        train(None, tmp_path / "absent", resume=True, device="cpu")
    assert not (tmp_path / "absent").exists()


@pytest.mark.parametrize("damage", ["truncated", "noise", "empty", "not ours", "misfit", "other version"])
def test_a_damaged_checkpoint_is_told_in_one_line(small: TrainConfig, tmp_path: Path, damage: str) -> None:
    good = stopped(small, tmp_path)
    path = tmp_path / checkpoint.FILE
    tensors, about = checkpoint.read(tmp_path), checkpoint.about(tmp_path)
    if damage == "not ours":
        save_file({"x": torch.zeros(1)}, path)
    elif damage == "misfit":
        checkpoint.write(tmp_path, {k: v for k, v in tensors.items() if k != "worlds.goals"}, about)
    elif damage == "other version":
        about["config"]["stepps"] = 3
        checkpoint.write(tmp_path, tensors, about)
    else:
        path.write_bytes({"truncated": good[: len(good) // 2], "noise": b"\xff" * 999, "empty": b""}[damage])
    told = {"misfit": "does not fit its own settings", "other version": "unknown setting 'stepps': did you mean steps"}
    with pytest.raises(MastError, match=told.get(damage, "is not a checkpoint of mast or is damaged")) as caught:
        train(None, tmp_path, resume=True, device="cpu")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["target", "features"])
def test_a_loss_that_is_not_finite_stops_the_run(small: TrainConfig, tmp_path: Path, field: str) -> None:
    before = stopped(small, tmp_path)
    trainer = Trainer.resume(options(tmp_path))
    trainer.replay.fields[field][:12] = float("nan")
    with pytest.raises(MastError, match=r"the loss is not finite in epoch 2: the batches .*last good checkpoint"):
        trainer.run()
    assert (tmp_path / checkpoint.FILE).read_bytes() == before
    batch = load_file(tmp_path / "bad-batch-0.safetensors")
    assert batch.keys() == trainer.replay.fields.keys()
    assert batch[field].isnan().any() and len(batch[field]) in (small.batch, 2 * small.batch)
    Trainer.resume(options(tmp_path)).run()  # and the last good checkpoint still is one


def test_the_batches_that_are_kept_are_those_that_were_learned(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = options(tmp_path, checkpoint_seconds=3600.0)
    trainer, real = Trainer(replace(small, replay=1000, steps=20), settings), Learner.update
    learned: list[torch.Tensor] = []

    def update(self: Learner, uniform: torch.Tensor) -> None:
        learned.append(self.replay.draw(uniform)["positions"])
        real(self, uniform)
        if len(learned) == 12:
            self.loss.fill_(float("nan"))

    monkeypatch.setattr(Learner, "update", update)
    with pytest.raises(MastError, match="not finite in epoch 1"):
        trainer.run()
    assert len(learned) == 12
    kept = load_file(tmp_path / "bad-batch-0.safetensors")["positions"]
    assert torch.equal(kept, torch.cat(learned[-2:]))
    assert checkpoint.about(tmp_path)["updates"] == 0


def test_weights_that_break_in_the_last_update_never_reach_a_checkpoint(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stopped(small, tmp_path)
    trainer, real = Trainer.resume(options(tmp_path, checkpoint_seconds=3600.0)), Learner.update

    def update(self: Learner, uniform: torch.Tensor) -> None:
        real(self, uniform)
        if self.done == 2 * small.steps - 1:  # the loss is still fine
            self.policy.head[-1].bias.data.fill_(float("inf"))

    monkeypatch.setattr(Learner, "update", update)
    with pytest.raises(MastError, match="not finite in epoch 2"):
        trainer.run()
    assert trainer.epoch == 1
    assert (tmp_path / checkpoint.FILE).read_bytes() == before


def test_other_errors_are_not_taken_for_a_broken_loss(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any) -> None:
        raise MastError("something else")

    monkeypatch.setattr("mast_swarm.train.collector.Collector.label", fail)
    with pytest.raises(MastError, match=r"^something else$"):
        Trainer(small, options(tmp_path)).run()


def test_out_of_gpu_memory_says_what_to_lower(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def update(self: Learner, uniform: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nMore details")

    monkeypatch.setattr(Learner, "update", update)
    with pytest.raises(MastError, match=r"20\.00 GiB.*lower --batch, --environments or --replay$"):
        train(small, tmp_path / "run", device="cpu")


def test_an_unwritable_output_is_found_before_training(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "one_epoch", lambda self: pytest.fail("it trained"))
    (tmp_path / "file").write_text("mine")
    with pytest.raises(MastError, match="cannot write to"):
        train(small, tmp_path / "file" / "run", device="cpu")
    with pytest.raises(MastError, match="already used"):
        train(small, tmp_path / "file", device="cpu")
    assert (tmp_path / "file").read_text() == "mine"
    monkeypatch.setattr(checkpoint, "free_bytes", lambda folder: 10**6)
    with pytest.raises(MastError, match=r"GB free but two checkpoints need .* GB: free some space, lower --replay"):
        train(small, tmp_path / "full", device="cpu")


def test_a_used_folder_is_refused_and_left_alone(small: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(MastError, match="is already used: give another --out, or go on with `mast train --resume"):
        train(small, tmp_path, device="cpu")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_full_disk_never_costs_the_last_good_checkpoint(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = stopped(small, tmp_path)

    def full(tensors: Any, path: Path, metadata: Any = None) -> None:
        Path(path).write_bytes(b"the first part")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "save_file", full)
        with pytest.raises(MastError, match="No space left on device; the last good checkpoint is kept in"):
            Trainer.resume(options(tmp_path)).run()
    assert (tmp_path / checkpoint.FILE).read_bytes() == before
    assert not (tmp_path / "checkpoint.writing").exists()
    Trainer.resume(options(tmp_path)).run()
    assert len(rows(tmp_path)) == 3


def test_a_folder_that_vanishes_ends_the_run_with_one_line(small: TrainConfig, tmp_path: Path) -> None:
    config, out = replace(small, epochs=5, validate_every=5), tmp_path / "run"

    def move_away(row: dict[str, Any]) -> None:
        if row["epoch"] == 2:
            out.rename(tmp_path / "moved")

    with pytest.raises(MastError, match=r"cannot write .*to .*run: .*No such file") as caught:
        Trainer(config, options(out)).run(move_away)
    assert "\n" not in str(caught.value)
    assert not out.exists()
    trainer = Trainer.resume(options(tmp_path / "moved"))
    assert trainer.epoch == 2
    trainer.run()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # TensorBoard's own thread
def test_a_folder_that_is_deleted_ends_the_command_with_one_line(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Trainer.one_epoch

    def one_epoch(self: Trainer) -> float:
        if self.epoch == 1:
            shutil.rmtree(tmp_path / "run")
        return real(self)

    monkeypatch.setattr(Trainer, "one_epoch", one_epoch)
    with pytest.raises(MastError, match="cannot write to"):
        train(replace(small, validate_every=5), tmp_path / "run", device="cpu")


def test_a_checkpoint_into_a_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(MastError, match="there is no earlier checkpoint"):
        checkpoint.write(tmp_path / "gone", {"x": torch.zeros(2)}, {})


def test_a_training_step_teaches(small: TrainConfig, tmp_path: Path) -> None:
    config = replace(small, epochs=12, steps=20, replay=1000, batch=32, lr=3e-3, carry=0.0)
    told: list[dict[str, Any]] = []
    Trainer(config, options(tmp_path, checkpoint_seconds=1e9)).run(told.append)
    assert told[-1]["loss"] < 0.7 * told[0]["loss"]
