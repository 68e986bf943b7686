"""`mast doctor`: what a bug report says, and that a machine on which something fails is told apart."""

from __future__ import annotations

import json
import platform
from typing import Any

import pytest
import torch

from mast_swarm import __version__, doctor
from shared import mast


def test_the_report_says_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("doctor", "--quick") == 0
    told = capsys.readouterr().out
    assert f"mast        {__version__}\n" in told and f"torch {torch.__version__}" in told
    for name in ("python", "system", "cpu", "busy", "threads", "devices", "packages", "extra"):
        assert f"\n{name} " in told
    assert platform.python_version() in told and platform.node() not in told.split()  # nobody's machine by name
    assert mast("doctor", "--quick", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["threads"]["torch"] == torch.get_num_threads() and found["packages"]["torch"] == torch.__version__
    assert 1 <= found["cpu"]["usable cores"] <= found["cpu"]["cores"]
    assert "self-test" not in found


def test_the_self_test_passes_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("doctor") == 0
    told = capsys.readouterr().out
    assert told.count("self-test") == len(doctor.CHECKS) == told.count(": ok, ")


def test_what_fails_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken() -> str:
        raise OSError("no such device")

    monkeypatch.setattr(doctor, "CHECKS", {"disk": broken, "luck": lambda: "some"})
    assert mast("doctor") == 1
    told = capsys.readouterr().out
    assert "disk: FAILED; OSError: no such device\n" in told and "luck: ok, 0.0 s; some\n" in told


@pytest.mark.parametrize(
    ("installed", "imported", "expected"),
    [(False, None, "not installed"), (True, RuntimeError("bad ABI"), "RuntimeError: bad ABI"), (True, None, "works")],
)
def test_extras_that_do_not_work(
    monkeypatch: pytest.MonkeyPatch, installed: bool, imported: Exception | None, expected: str
) -> None:
    def load(name: str) -> Any:
        if imported is not None:
            raise imported

    monkeypatch.setattr(doctor, "_requirements", lambda: ["numpy>=1", 'onnx>=1.17; extra == "export"'])
    monkeypatch.setattr(doctor.importlib.metadata, "metadata", lambda name: Names())
    monkeypatch.setattr(doctor, "_version", lambda name: "1.0" if installed else None)
    monkeypatch.setattr(doctor.importlib, "import_module", load)
    assert doctor._packages().keys() == {"numpy"}
    assert expected in doctor._extras()["export"]


class Names:
    def get_all(self, name: str) -> list[str]:
        return ["export"]
