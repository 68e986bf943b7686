"""What all benchmarks share: a command line that is read before anything is measured, and rows that people can read."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import measure

    return measure


@pytest.mark.parametrize(("words", "code"), [(["--help"], 0), (["--ouf", "here"], 2)])
def test_help_and_wrong_words_measure_nothing(
    measure: ModuleType,
    words: list[str],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["speed", *words])
    with pytest.raises(SystemExit) as end:
        measure.benchmark("speed", "How fast it is.", lambda: pytest.fail("it was measured"))
    told = capsys.readouterr()
    assert end.value.code == code and "usage: python -m benchmarks.speed" in told.out + told.err
    assert code or "How fast it is." in told.out


def test_a_result_is_written_and_told(
    measure: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found: dict[str, Any] = {"robots": 3, "rows": [{"name": "a", "ms": 1.23456, "now": {"n": [1, 2.5]}}]}
    monkeypatch.setattr(sys, "argv", ["speed", "--out", str(tmp_path / "new")])
    result = measure.benchmark("speed", None, lambda: found)
    assert result == json.loads((tmp_path / "new/speed.json").read_text()) and result["rows"] == found["rows"]
    told = capsys.readouterr().out.splitlines()
    assert told[2:] == [
        "robots: 3",
        "rows:",
        "  name a, ms 1.235, now (n [1, 2.5])",
        f"written: {tmp_path / 'new/speed.json'}",
    ]
