"""The comparison of mean costs with the reference's table: its sums, and that it fails by its rule."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def means(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import coverage_means

    return coverage_means


def test_pooled_is_the_mean_over_all(means: ModuleType) -> None:
    parts = [np.random.default_rng(seed).normal(0.7, 0.1, count) for seed, count in ((0, 50), (1, 100))]
    known = [(values.mean(), values.std(ddof=1) / len(values) ** 0.5, len(values)) for values in parts]
    mean, error = means.pooled(known)
    whole = np.concatenate(parts)
    assert mean == pytest.approx(whole.mean())
    assert error == pytest.approx(whole.std(ddof=1) / len(whole) ** 0.5)


@pytest.mark.parametrize(
    ("starts", "off", "fails"), [("both", 0.019, False), ("both", 0.021, True), ("seed 0", 0.1, False)]
)
def test_a_mean_that_decides_and_is_off_fails(
    means: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    starts: str,
    off: float,
    fails: bool,
) -> None:
    """Every mean is the table's but one."""

    def exact(policy: str, dt: float) -> list[tuple[float, float]]:
        return [(aim, 0.01) for aim in means.TABLE[policy, dt]]

    def summary(policy: str, dt: float, seed: int) -> list[tuple[float, float]]:
        added = 0.0
        if (policy, dt) == ("d-cvt", 1.0):
            # `both` is a third of seed 0 and two thirds of seed 1.
            added = {"both": off, "seed 0": off if seed == 0 else -off / 2}[starts]
        return [(mean + added, error) for mean, error in exact(policy, dt)]

    monkeypatch.setattr(means, "on_reference_starts", exact)
    monkeypatch.setattr(means, "in_summary", summary)
    monkeypatch.setattr(sys, "argv", ["coverage_means", "--out", str(tmp_path)])
    if fails:
        with pytest.raises(SystemExit) as end:
            means.main()
        assert end.value.code == 1
        assert "d-cvt, dt 1, cost_time_average, both: 0.712" in capsys.readouterr().err
    else:
        means.main()
    assert (tmp_path / "coverage_means.json").exists()
