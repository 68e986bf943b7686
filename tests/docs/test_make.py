"""Tables of the docs that several rows of a result file share."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_teams_of_one_setting_are_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    monkeypatch.syspath_prepend(str(ROOT))
    import make

    given = [(1.0, 1, 0, 24.0), (1.0, 1, 1, 21.5), (1.0, 1, 2, 23.0), (0.5, 1, 0, 9.0), (1.0, 2, 0, 15.0)]
    rows = [dict(zip(("delay", "threads", "team", "ratio"), row, strict=True)) for row in given]
    monkeypatch.setattr(make, "load", lambda path: {"rows": rows})
    assert make.decentral_benchmark().splitlines()[2:] == [
        "| 1 | 1 | 3 | 21.5x to 24.0x |",
        "| 0.5 | 1 | 1 | 9.0x |",
        "| 1 | 2 | 1 | 15.0x |",
    ]
