"""What a step is made of, kernel by kernel."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_the_parts_of_a_step_add_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import kernels

    monkeypatch.setattr(kernels, "MOST", 3)
    kernels.main(["--case", "together:1x20", "alone:2x10", "near:1x10", "--device", "cpu", "--out", str(tmp_path)])
    (file,) = tmp_path.iterdir()
    cases = json.loads(file.read_text())["cases"]
    assert [case["kind"] for case in cases] == ["together", "alone", "near"]
    for case in cases:
        rows, whole = case["kernels"], case["whole"]
        assert len(rows) == 4 and rows[-1]["kernel"].endswith(" others") and not case["captured"]
        assert rows[0]["ms"] >= rows[1]["ms"] >= rows[2]["ms"] > 0
        assert sum(row["ms"] for row in rows) == pytest.approx(whole["ms"])
        assert sum(row["launches"] for row in rows) == pytest.approx(whole["launches"])
    assert "2 x 10 robots, each alone" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        kernels.main(["--case", "alone:many"])
    assert "alone:many: give together:ENVIRONMENTSxROBOTS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("void at::native::vectorized_elementwise_kernel<4, float>(int)", "at::native::vectorized_elementwise_kernel"),
        ("_attend", "_attend"),
        ("aten::addmm", "aten::addmm"),
    ],
)
def test_names_of_kernels_are_told_plainly(name: str, plain: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks import kernels

    assert kernels.plain(name) == plain
