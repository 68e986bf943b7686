"""The blocks and pictures of the page on large teams, and its example."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from PIL import Image

ROOT = Path(__file__).parents[2]


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import make_scale

    return make_scale


def test_what_was_not_measured_is_read_off_between_what_was(blocks: ModuleType) -> None:
    rows = [{"agents": size, "step_ms": ms} for size, ms in ((100, 5.0), (200, 6.0), (400, 10.0))]
    for size, ms in ((100, 5.0), (150, 5.5), (200, 6.0), (300, 8.0), (400, 10.0), (1_000, 22.0)):
        assert blocks.read_off(rows, "step_ms", size) == pytest.approx(ms)


def test_more_than_one_gpu_holds_is_not_faster_than_that_alone(blocks: ModuleType) -> None:
    one = blocks.measured("scale", "cuda")[0]["rows"]
    work = one[-1]["agents"] + 50_000  # a strip as large as the largest team, and its halos
    assert all(blocks.read_off(one, name, work) > one[-1][name] for name in ("step_ms", "peak_bytes"))


def test_a_floor_that_was_not_measured_is_a_dash(blocks: ModuleType) -> None:
    given = {"environments": 1, "agents": 100, "step_ms": 9.0, "parts_ms": {}, "central_ms": 3.0, "ratio": 3.0}
    rows = [given | {"peak_bytes": 1e6}, given | {"peak_bytes": 1e6, "floor_ms": 2.0}]
    lines = blocks.picked({"benchmark": "decentral", "rows": rows}, ("robots", "step", "floor")).splitlines()
    assert lines[2:] == ["| 1 x 100 | 9.00 ms | - |", "| 1 x 100 | 9.00 ms | 2.00 ms |"]


def test_every_picture_of_the_page_is_drawn(blocks: ModuleType, tmp_path: Path) -> None:
    shown = set(re.findall(r"pictures/(scale-[\w-]+\.png)", (ROOT / "docs/scale.md").read_text()))
    blocks.draw(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == shown and len(shown) == 7
    for name in shown:  # as drawn from today's files
        drawn, kept = (np.asarray(Image.open(at / name).convert("L"), int) for at in (tmp_path, ROOT / "docs/pictures"))
        assert drawn.shape == kept.shape and (np.abs(drawn - kept) > 60).mean() < 0.0005, (
            f"docs/pictures/{name} is of another size or of other numbers: run python docs/make.py --pictures"
        )


def test_the_example_of_strips_runs_in_two_processes(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs/scale.md").read_text(), re.DOTALL)
    (tmp_path / "step.py").write_text(example.replace("5_000", "400"))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "step.py"]
    alone = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=alone, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert all(re.search(rf"process {rank}: 200 robots, \d+ of others", done.stdout) for rank in (0, 1))
