"""The replay is a ring: the newest samples are kept, and only what was pushed is ever drawn."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mast_swarm.errors import MastError
from mast_swarm.train.replay import Replay

CPU = torch.device("cpu")
LAYOUT = {"value": ((2,), torch.float32), "label": ((), torch.int16)}


def push(replay: Replay, numbers: range) -> None:
    label = torch.tensor(list(numbers))
    replay.push({"value": torch.stack((label, -label), dim=-1).float(), "label": label})


def everything(replay: Replay, count: int = 500) -> list[int]:
    """All labels that numbers from 0 to just below 1 choose."""
    drawn = replay.draw(torch.linspace(0, 1 - 2**-24, count))
    assert torch.equal(drawn["value"][:, 0], drawn["label"].float())
    assert torch.equal(drawn["value"][:, 1], -drawn["label"].float())
    return sorted(set(drawn["label"].tolist()))


@settings(deadline=None, max_examples=50)
@given(capacity=st.integers(1, 12), pushes=st.lists(st.integers(1, 12), min_size=1, max_size=8))
def test_the_newest_samples_are_drawn_and_nothing_else(capacity: int, pushes: list[int]) -> None:
    replay, pushed = Replay(LAYOUT, capacity, CPU), 0
    for count in pushes:
        count = min(count, capacity)
        push(replay, range(pushed, pushed + count))
        pushed += count
        assert everything(replay) == list(range(max(0, pushed - capacity), pushed))
    assert int(replay.pushed) == pushed


def test_draws_are_uniform_over_what_is_filled() -> None:
    replay = Replay(LAYOUT, 1000, CPU)
    push(replay, range(4))
    drawn = replay.draw(torch.tensor([0.0, 0.24, 0.26, 0.5, 0.74, 0.76, 1 - 2**-24]))
    assert drawn["label"].tolist() == [0, 0, 1, 2, 2, 3, 3]
    assert drawn["label"].dtype == torch.int16


def test_an_earlier_choice_can_be_drawn_again() -> None:
    replay, uniform = Replay(LAYOUT, 100, CPU), torch.rand(64, generator=torch.Generator().manual_seed(0))
    push(replay, range(20))
    before = replay.draw(uniform)
    push(replay, range(20, 30))
    assert not torch.equal(replay.draw(uniform)["label"], before["label"])
    assert torch.equal(replay.draw(uniform, before=10)["label"], before["label"])


@pytest.mark.parametrize("pushed", [3, 10, 14])
def test_a_restored_replay_goes_on_as_the_first_would_have(pushed: int) -> None:
    first, second = Replay(LAYOUT, 10, CPU), Replay(LAYOUT, 10, CPU)
    for start in range(0, pushed, 7):
        push(first, range(start, min(start + 7, pushed)))
    kept = first.tensors()
    assert len(kept["label"]) == min(pushed, 10)
    second.restore({name: value.clone() for name, value in kept.items()})
    for replay in (first, second):
        push(replay, range(100, 105))
    assert all(torch.equal(first.fields[name], second.fields[name]) for name in LAYOUT)
    assert everything(first) == everything(second)


def test_a_replay_beyond_all_memory_is_refused() -> None:
    with pytest.raises(MastError, match="lower --replay"):
        Replay({"value": ((10**6,), torch.float32)}, 10**9, CPU)


def test_what_a_choice_leaves_is_chance_again() -> None:
    replay = Replay({"x": ((), torch.float32)}, 5000, torch.device("cpu"))
    replay.push({"x": torch.arange(5000.0)})
    uniform = torch.rand(80_000, generator=torch.Generator().manual_seed(0))
    left = replay.left(uniform)
    assert float(left.min()) >= 0 and float(left.max()) < 1
    share = torch.bincount((left * 8).long(), minlength=8) / len(left)
    assert float((share - 1 / 8).abs().max()) < 0.01
    chosen = replay.draw(uniform)["x"]
    assert abs(float(torch.corrcoef(torch.stack((chosen.double(), left)))[0, 1])) < 0.02
