"""A run that is told to stop midway through an epoch ends its step, and goes on as if nothing had been."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from mast_swarm import CoverageConfig, MastError, NavigationConfig, Policy
from mast_swarm.errors import Terminated
from mast_swarm.evaluate.actors import Central
from mast_swarm.tasks.registry import find
from mast_swarm.train import checkpoint, memory
from mast_swarm.train.config import TrainConfig, changed, from_run, in_tables, plain
from mast_swarm.train.run import _products, _signals, train
from mast_swarm.train.trainer import RunOptions, Stopped, Trainer
from shared import options, recipe


def asked_after(trainer: Trainer, steps: int) -> Trainer:
    """The same, which is told to stop during a step."""
    step, count = trainer._step, 0

    def counted(*args: Any, **kwargs: Any) -> None:
        nonlocal count
        count += 1
        if count == steps:
            trainer.stopping = signal.SIGINT
        step(*args, **kwargs)

    trainer._step = counted  # type: ignore[method-assign]
    return trainer


def patient(folder: Path, **kwargs: Any) -> RunOptions:
    """Options of a run that writes no checkpoint midway unless it is told to stop."""
    return options(folder, checkpoint_seconds=3600.0, **kwargs)


def same_end(one: Path, other: Path) -> None:
    ours, theirs = checkpoint.read(one), checkpoint.read(other)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == []
    assert checkpoint.about(one) == checkpoint.about(other)
    for name in ("best", "last"):
        assert (one / name / "model.safetensors").read_bytes() == (other / name / "model.safetensors").read_bytes()


CASES: dict[str, dict[str, Any]] = {
    "lsap": {},
    "informed": {"expert": "informed", "carry": 0.0, "updates": 2},
    "dhba": {"expert": "dhba-2", "policy.exploration_time": None},
    "gathered first": {"collect": 2, "keep_every": 2, "carry": 0.0, "policy.exploration_time": None},
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_stopped_midway_ends_bit_for_bit_like_one_never_stopped(
    small: TrainConfig, tmp_path: Path, case: str
) -> None:
    change = dict(CASES[case])
    policy = {k.removeprefix("policy."): change.pop(k) for k in list(change) if k.startswith("policy.")}
    config = replace(small, epochs=3, policy=replace(small.policy, **policy), **change)
    Trainer(config, patient(tmp_path / "whole")).run()
    parts = tmp_path / "parts"
    for number, steps in enumerate((2, 5, 1, 4)):
        trainer = Trainer.resume(patient(parts)) if number else Trainer(config, patient(parts))
        with pytest.raises(Stopped, match=r"^stopped in epoch \d after step \d+; checkpoint: .*; go on with `mast"):
            asked_after(trainer, steps).run()
        assert (parts / "last" / "model.safetensors").exists()
    Trainer.resume(patient(parts)).run()
    same_end(tmp_path / "whole", parts)
    assert (parts / "metrics.jsonl").read_text().count("\n") == 3


def test_a_run_stopped_midway_without_its_replay_gathers_it_again(small: TrainConfig, tmp_path: Path) -> None:
    policy = replace(small.policy, exploration_time=None)
    config = replace(small, collect=2, expert_share=1.0, policy=policy)
    for name, stops in (("whole", ()), ("parts", (8, 3, 13))):  # in the second epoch, again, and while it learns
        for steps in stops:
            out = tmp_path / name
            begun = (out / "config.json").exists()
            trainer = (
                Trainer.resume(patient(out, keep_replay=False))
                if begun
                else Trainer(config, patient(out, keep_replay=False))
            )
            with pytest.raises(Stopped):
                asked_after(trainer, steps).run()
        begun = bool(stops)
        given_ = patient(tmp_path / name, keep_replay=False)
        (Trainer.resume(given_) if begun else Trainer(config, given_)).run()
    same_end(tmp_path / "whole", tmp_path / "parts")


def test_a_run_resumed_without_its_replay_learns_once_there_is_a_sample(small: TrainConfig, tmp_path: Path) -> None:
    """The first step after it keeps none. An index of an empty replay would end all that the process has on a GPU."""
    config, given_ = replace(small, keep_every=3), patient(tmp_path / "run", keep_replay=False)
    with pytest.raises(Stopped):
        asked_after(Trainer(config, given_), 1).run()
    Trainer.resume(given_).run()
    assert (tmp_path / "run" / "metrics.jsonl").read_text().count("\n") == config.epochs


def test_a_stop_in_a_validation_does_it_again(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Trainer(small, patient(tmp_path / "whole")).run()
    trainer, real = Trainer(small, patient(tmp_path / "parts")), Trainer.validate

    def validate(self: Trainer) -> float | None:
        self.stopping = signal.SIGTERM
        return real(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "validate", validate)
        with pytest.raises(Stopped, match="in the validation of epoch 2"):
            trainer.run()
    assert (tmp_path / "parts" / "metrics.jsonl").read_text().count("\n") == 1
    Trainer.resume(patient(tmp_path / "parts")).run()
    same_end(tmp_path / "whole", tmp_path / "parts")


def test_what_no_file_can_hold_leaves_the_last_checkpoint(small: TrainConfig, tmp_path: Path) -> None:
    Trainer(small, patient(tmp_path / "whole")).run()
    trainer = Trainer(small, options(tmp_path / "parts"))
    trainer.collector.teacher.expert.mood = object()  # type: ignore[attr-defined]
    with pytest.raises(Stopped, match="has a object in mind that no file can hold"):
        asked_after(trainer, 9).run()
    about = checkpoint.about(tmp_path / "parts")
    assert (about["epoch"], about["within"]["step"]) == (1, 0)
    Trainer.resume(options(tmp_path / "parts")).run()
    same_end(tmp_path / "whole", tmp_path / "parts")


def test_a_second_signal_stops_at_once(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    trainer: Any = SimpleNamespace(stopping=0, processes=SimpleNamespace(first=True))
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with _signals(trainer):
        os.kill(os.getpid(), signal.SIGTERM)
        assert trainer.stopping == signal.SIGTERM
        os.kill(os.getpid(), signal.SIGTERM)  # the same one, passed on by torchrun
        monkeypatch.setattr("mast_swarm.train.run.AGAIN", -1.0)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(1)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before
    assert capfd.readouterr().err == "mast: ending the step, then writing a checkpoint; once more stops at once\n"


@pytest.mark.parametrize("kind", [KeyboardInterrupt, Terminated])
def test_a_run_that_is_stopped_before_it_begins_leaves_nothing(
    kind: type[KeyboardInterrupt], small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(*given: Any) -> None:
        raise kind

    monkeypatch.setattr("mast_swarm.train.run.Trainer", stopped)
    with pytest.raises(kind, match="interrupted before the run began; nothing was written"):
        train(small, tmp_path / "run", device="cpu")
    assert not (tmp_path / "run").exists()


def test_a_policy_of_a_run_is_no_run(small: TrainConfig, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text(json.dumps(plain(small)))
    Policy(small.policy).save(tmp_path / "run" / "best")
    with pytest.raises(MastError, match=f"is a policy that a run made: give the run, --resume {tmp_path / 'run'}"):
        from_run(tmp_path / "run" / "best")


def test_lines_and_a_missing_tensorboard(
    small: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("mast_swarm.train.run._has_board", lambda: False)
    train(small, tmp_path / "run", device="cpu")
    told = capsys.readouterr().out
    assert [line.split("  ")[0] for line in told.splitlines()[2:]] == ["epoch 1/3", "epoch 2/3", "epoch 3/3"]
    assert (
        told.count("TensorBoard is not installed (pip install 'mast-swarm[tensorboard]')") == 1
        and "success_rate" in told
    )
    train(None, tmp_path / "run", resume=True, device="cpu", epochs=4)
    told = capsys.readouterr().out
    assert "goes on after epoch 3 of 4" in told and "TensorBoard" not in told and told.count("epoch 4/4") == 1
    assert "on this CPU" not in told
    monkeypatch.setattr("mast_swarm.train.run._PATIENCE", 0.0)
    train(None, tmp_path / "run", resume=True, device="cpu")
    told = capsys.readouterr().out
    assert "is finished; --epochs 8 goes on" in told
    assert "on this CPU it takes about 0 hours or more, on a GPU minutes; the recipe tiny is made for a CPU" in told


@pytest.mark.parametrize("task", ["navigation", "coverage"])
def test_the_time_on_a_cpu_is_that_of_the_products(task: str) -> None:
    """Against torch's own count, of one pass forward and backward of robots in their world."""
    config = recipe("tiny", task)
    world = find(task).make(replace(config.world, agents=8))
    learned = Policy(config.policy)
    central = Central(learned, world)
    seen = world.observe(world.reset([0, 1]))
    central.start([0, 1])
    learned.train()
    with FlopCounterMode(display=False) as counted:
        found = learned(**central.given(seen), **central.extras)
        (found[0] if isinstance(found, tuple) else found).sum().backward()
    assert 0.5 < 6 * _products(learned) / (counted.get_total_flops() / 16) < 2


def test_settings_by_name_and_whole(tmp_path: Path) -> None:
    base = recipe("tiny")
    whole = in_tables(base, {"epochs": 2, "world": NavigationConfig(agents=5), "layers": 1, "policy": {"heads": 2}})
    found = changed(base, whole)
    assert (found.world.agents, found.policy.layers, found.policy.heads, found.epochs) == (5, 1, 2, 2)
    assert changed(base, in_tables(base, {"agents": 6})).world == replace(base.world, agents=6)
    with pytest.raises(MastError, match="world is a CoverageConfig: give a NavigationConfig"):
        in_tables(base, {"world": CoverageConfig()})
    with pytest.raises(MastError, match=r"unknown setting 'agent': did you mean"):
        train("navigation", tmp_path / "run", agent=5)


# What an expert has in mind.


@dataclass(frozen=True)
class Plan:
    prices: np.ndarray
    turn: int


class Expert:
    pass


numbers = st.floats() | st.integers() | st.booleans() | st.none() | st.text(max_size=3)
things = st.recursive(
    numbers,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(things)
def test_plain_things_are_kept_exactly(thing: Any) -> None:
    expert, other = Expert(), Expert()
    expert.thing = thing  # type: ignore[attr-defined]
    memory.give_back(other, *memory.keep(expert))
    assert repr(other.thing) == repr(thing)  # type: ignore[attr-defined]  NaN is not equal to itself


def test_arrays_chance_and_records_are_kept_exactly() -> None:
    expert, other = Expert(), Expert()
    shared = np.arange(6, dtype=np.uint64).reshape(2, 3) + np.uint64(2**63)
    expert.__dict__ = {
        "plan": Plan(np.array([1.5, np.nan]), 3),
        "twice": [shared, shared],
        "scalar": np.float32(0.1),
        "tensor": torch.linspace(0, 1, 7, dtype=torch.bfloat16),
        "rng": np.random.default_rng(3),
        "old": np.random.Generator(np.random.MT19937(3)),
        "torch": torch.Generator().manual_seed(5),
        "random": random.Random(4),
        "rule": max,
    }
    expert.rng.random(3)  # type: ignore[attr-defined]
    memory.give_back(other, *memory.keep(expert))
    ours, theirs = vars(expert), vars(other)
    assert theirs.keys() == ours.keys() - {"rule"}
    assert theirs["twice"][0] is theirs["twice"][1] and np.array_equal(theirs["twice"][0], shared)
    assert theirs["twice"][0].dtype == np.uint64 and theirs["twice"][0].flags.writeable
    assert type(theirs["plan"]) is Plan and np.array_equal(theirs["plan"].prices, [1.5, np.nan], equal_nan=True)
    assert type(theirs["scalar"]) is np.float32 and theirs["scalar"] == np.float32(0.1)
    assert torch.equal(theirs["tensor"], ours["tensor"])
    assert theirs["rng"].random() == ours["rng"].random() and theirs["old"].random() == ours["old"].random()
    assert torch.equal(torch.rand(3, generator=theirs["torch"]), torch.rand(3, generator=ours["torch"]))
    assert theirs["random"].random() == ours["random"].random()


@pytest.mark.parametrize(
    "thing", [object(), {1, 2}, torch.nn.Linear(1, 1), [lambda: 1], np.array([object()])], ids=type
)
def test_other_things_are_not_kept(thing: Any) -> None:
    expert = Expert()
    expert.thing = thing  # type: ignore[attr-defined]
    with pytest.raises(memory.Unkept):
        memory.keep(expert)
    whole = np.zeros(4)
    expert.thing = (whole, whole[1:])  # type: ignore[attr-defined]
    with pytest.raises(memory.Unkept, match="shares its memory"):
        memory.keep(expert)


def test_a_file_makes_no_classes_that_are_not_records() -> None:
    for told in ({"record": "subprocess:Popen", "of": []}, {"record": "nowhere:Thing", "of": []}):
        with pytest.raises(KeyError):
            memory.give_back(Expert(), {"thing": told}, {})
