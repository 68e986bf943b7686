"""The count of rows that nobody computed a control period before."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]


@torch.inference_mode()
def test_new_rows_are_those_that_were_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import alone

    monkeypatch.setattr(alone, "SETTLED", 8)
    setting, _, before, now = alone.listened(30, None)
    assert [new for _, new in alone.new_rows(setting, now, now)] == [0, 0, 0, 0]
    rows = alone.new_rows(setting, before, now)
    assert 0 < rows[0][1] < rows[0][0]  # some come again: messages move one hop per period
    assert rows[-1] == (30, 30)  # each robot's own: its window has its message of now
    near = alone.new_rows(setting, before, now, torch.arange(30) < 10)
    assert all(some <= every for a, b in zip(near, rows, strict=True) for some, every in zip(a, b, strict=True))
