"""The table of aims says missed where the files say so, and its sentences follow from them."""

from __future__ import annotations

import copy
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import make_aims

    return make_aims


def given(blocks: ModuleType, monkeypatch: pytest.MonkeyPatch, name: str) -> dict[str, Any]:
    """A copy of a result file that the blocks read in its place."""
    kept, changed = blocks.result, copy.deepcopy(blocks.result(name))
    monkeypatch.setattr(blocks, "result", lambda wanted: changed if wanted == name else kept(wanted))
    return changed


def outcome(blocks: ModuleType, case: str) -> list[str]:
    (line,) = (line for line in blocks.aim_table().splitlines() if line.startswith(f"| {case} |"))
    return [cell.strip() for cell in line.strip("|").split("|")][2:]


@pytest.mark.parametrize(
    ("step_ms", "shown"),
    [(24.9, ["24.9 ms", "25 ms", "reached"]), (25.01, ["25.0 ms", "25 ms", "**missed**"])],
)
def test_an_aim_is_judged_by_what_was_measured(
    blocks: ModuleType, monkeypatch: pytest.MonkeyPatch, step_ms: float, shown: list[str]
) -> None:
    given(blocks, monkeypatch, "scale-nvidia-h200")["rows"][-1]["step_ms"] = step_ms
    assert outcome(blocks, "1,000,000 robots, centralized: a step") == shown


def test_memory_and_ratios_are_judged_too(blocks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    given(blocks, monkeypatch, "scale-nvidia-h200")["rows"][-1]["peak_bytes"] = 6.5e9
    row = given(blocks, monkeypatch, "against")["rows"][0]
    row["seconds"] = {"before": 0.3, "now": 0.2, "now_bf16": 0.25, "now_ratio": 1.5, "now_bf16_ratio": 1.2}
    assert outcome(blocks, "1,000,000 robots, centralized: memory") == ["6.50 GB", "6 GB", "**missed**"]
    case = "CPU, 1 x 100 robots, each alone: a step, "
    assert outcome(blocks, f"{case}fp32") == ["200 ms: 1.50 times as fast", "1.5 times as fast", "reached"]
    assert outcome(blocks, f"{case}`--precision bf16`")[-1] == "**missed**"


def test_a_run_is_its_steps_and_its_validation(blocks: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    found = given(blocks, monkeypatch, "train-navigation-nvidia-h200")
    found |= {"whole_step_ms": 2.0, "in_turn_step_ms": 2.25, "validation_s": 0.1, "all_epochs_s": 250.0}
    found["parts_ms"]["update"], found["update_kernels_us"] = 1.5, {"products": 800.0, "norms": 400.0}
    told = blocks.training()
    assert "100,000 steps of 2.00 ms are 200 s of it, and validation 50 s" in told
    assert "For 200 s a step would have to take 1.50 ms, for 150 s 1.00 ms" in told
    assert "1.50 ms, and its kernels take 1.20 ms" in told and "adds 0.50 ms" in told and "brought 0.25 ms" in told


def test_what_was_stopped_has_no_time(blocks: ModuleType) -> None:
    lines = blocks.evaluation().splitlines()
    assert lines[2].endswith("| fp32 | 41.7 s | 0.974 ± 0.005 |") and lines[4].endswith("| stopped after 42 s | - |")
    assert lines[-1] == "As it comes, it is 2.6 times as fast as before."
