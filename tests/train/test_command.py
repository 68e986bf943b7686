"""`mast train coverage`: its help, its flags, and a run that is gone on with."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from mast_swarm.train.config import from_run
from shared import mast, recipe

SETTINGS = shlex.split("""--agents 4 --features 3 --side 64 --communication-range 40 --sensor 16 --local-map 48
--sigma 6 8 --layers 1 --epochs 2 --environments 2 --steps 3 --replay 20 --batch 4 --validation 2 --validation-steps 3
--checkpoint-seconds 0 --device cpu""")


def test_the_help_has_the_flags_of_the_world_and_of_the_policy(capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("train", "coverage", "--help") == 0
    told = capsys.readouterr().out
    assert all(flag in told for flag in ("--side", "--sigma", "--heads", "--attention-radius", "--collect"))
    assert not any(flag in told for flag in ("--observed", "--hops", "--success-radius"))
    assert mast("train", "coverage", "--recipe", "lpac-k3", "--help") == 0
    told = capsys.readouterr().out
    assert "--hops" in told and "--heads" not in told
    assert mast("train", "navigation", "--help") == 0
    told = capsys.readouterr().out
    assert "--observed" in told and "--sigma" not in told


@pytest.mark.parametrize("kind", ["mast", "lpac"])
def test_a_run_from_the_command_line_is_gone_on_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    file, out = tmp_path / "kind.toml", tmp_path / "run"
    file.write_text(f'[policy]\nkind = "{kind}"\nobservation_dim = [5, 12, 12]')
    assert mast("train", "coverage", "--recipe", "tiny", "--config", file, *SETTINGS, "--out", out) == 0
    told = capsys.readouterr().out
    assert "epoch 2/2" in told and "cost" in told and str(out / "best") in told
    config = from_run(out)
    assert (config.policy.kind, config.world.side, config.world.sigma) == (kind, 64.0, (6.0, 8.0))
    assert json.loads((out / "best" / "config.json").read_text())["kind"] == kind
    # All settings come from the run, whichever its task.
    assert mast("train", "--resume", out, "--device", "cpu") == 0
    assert mast("train", "coverage", "--resume", out, "--device", "cpu") == 0
    assert mast("train", "navigation", "--resume", out) == 2
    assert "learns coverage, not navigation" in capsys.readouterr().err
    assert mast("train", "--resume", out, "--sigma", 6, 9, "--device", "cpu") == 2
    assert "world.sigma [6.0, 8.0] -> [6.0, 9.0]" in capsys.readouterr().err


def test_start_states_that_cannot_be_leave_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    given = ("--recipe", "tiny", "--agents", 6, "--device", "cpu", "--out", out)
    assert mast("train", "navigation", *given, "--scenarios", "clusters-5", "clusters-10") == 2
    assert "clusters-10" in capsys.readouterr().err
    assert not out.exists()  # the same --out can be given again


def test_a_recipe_of_another_task_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("train", "navigation", "--recipe", "lpac-k3") == 2
    assert "unknown recipe 'lpac-k3'" in capsys.readouterr().err
    assert mast("bench", "train", "--task", "coverage", "--recipe", "papr") == 2
    assert "unknown recipe 'papr': task coverage has paper, best" in capsys.readouterr().err
    assert mast("bench", "train", "--task", "coverge") == 2
    assert "unknown task 'coverge': did you mean coverage" in capsys.readouterr().err


def test_the_default_is_best() -> None:
    assert recipe("best", "coverage").policy.kind == "mast"
