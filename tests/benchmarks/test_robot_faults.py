"""The benchmark of faults: each fault happens, what it looks for is found, and a stopped one goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("cryptography")

from benchmarks.robot_faults import SECOND, TROUBLES, Config, Run, Trouble, main, one

from benchmarks import robot_faults

SHORT = 6


def ran(trouble: Trouble, seed: int = 3) -> dict[str, Any]:
    return Run(trouble, seed, robots=8).run(SHORT)


@pytest.mark.slow
def test_every_fault_happens_and_nothing_breaks() -> None:
    told = {name: ran(trouble) for name, trouble in TROUBLES.items()}
    for name, row in told.items():
        assert row["stamps_back"] == row["false_news"] == row["commands_missing"] == 0, name
        assert row["known_share"] > 0.5 and row["age_median_s"] >= 1, name
    assert told["loss"]["network"]["lost"] > 0 and "lost" not in told["none"]["network"]
    assert {"bad signature", "truncated"} & set(told["corruption"]["refused"])
    assert told["corruption"]["network"]["corrupted"] > 0 < told["disorder"]["network"]["duplicated"]
    assert told["none"] == ran(TROUBLES["none"])  # the same seed, the same run
    early = Run(TROUBLES["killed"], 3, robots=8)
    early.killed_at = {0: 2.5, 5: 4.5}
    row = early.run(SHORT)
    assert row["living"] == 6 and row["commands_missing"] == 0 < row["network"]["cut"]
    parted = ran(Trouble("", parted=(0, SHORT)))
    assert parted["network"]["cut"] > 0 and parted["known_share"] < told["none"]["known_share"]
    assert ran(Trouble("", skew=20 * SECOND))["refused"]["clock skew"] > 0


def test_what_goes_wrong_is_noticed() -> None:
    run = Run(TROUBLES["none"], 3, robots=8)
    run.run(3)
    run.newest += 10 * SECOND
    run._control(3)
    assert run.went_back > 0
    run.said = {}
    run._control(4)
    assert run.false > 0
    assert "division" in one("none", 3, lambda: 1 / 0)["crash"]


def test_a_stopped_one_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class InThisProcess:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def imap_unordered(self, function: Any, jobs: Any) -> Any:
            return map(function, jobs)

    asked: list[tuple[str, int]] = []

    def quick(fault: str, seed: int) -> dict[str, Any]:
        asked.append((fault, seed))
        if len(asked) == 3:
            raise KeyboardInterrupt
        return {"fault": fault, "seed": seed, "crash": None, "success": {"200": 0.5}}

    monkeypatch.setattr(robot_faults, "one", quick)
    context = type("Context", (), {"Pool": lambda self, workers: InThisProcess()})
    monkeypatch.setattr(robot_faults.multiprocessing, "get_context", lambda kind: context())
    config = Config(seeds=2, faults=("none", "loss"), out=tmp_path / "rows.json")
    with pytest.raises(KeyboardInterrupt):
        main(config)
    main(config)
    rows = json.loads(config.out.read_text())["rows"]
    assert [(row["fault"], row["seed"]) for row in rows] == [("none", 0), ("loss", 0), ("none", 1), ("loss", 1)]
    assert len(asked) == 5
    with pytest.raises(robot_faults.MastError, match="there is no fault 'rain'"):
        main(Config(faults=("rain",)))
