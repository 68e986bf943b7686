"""The unit of systemd in examples/: systemd finds no fault with it, and its command is one that `mast robot` takes."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import blocked
from mast_swarm.robot.command import _parser

UNIT = blocked.ROOT / "examples" / "mast-robot@.service"


def settings() -> list[tuple[str, str]]:
    lines = UNIT.read_text().replace("\\\n", " ").splitlines()
    return [tuple(line.split("=", 1)) for line in lines if re.match(r"\w+=", line)]  # type: ignore[misc]


def test_systemd_finds_no_fault(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    # Of the program and the network's target, which are not here, it would complain rightly.
    text = UNIT.read_text().replace("/opt/mast/bin/python", shutil.which("true") or "/bin/true")
    (tmp_path / "mast-robot@.service").write_text(text)
    ran = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / "mast-robot@3.service")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0 and "mast-robot@" not in ran.stderr, ran.stderr


def test_the_command_is_one_that_the_robot_takes() -> None:
    given = dict(settings())
    command = given["ExecStart"].replace("%i", "3").replace("$PEERS", "--peer 1=10.0.0.1:7000")
    program, *args = shlex.split(command)
    assert program.startswith("/opt/mast/") and args[:2] == ["-m", "mast_swarm.robot"]
    parsed = _parser("mast robot").parse_args(args[2:])
    assert parsed.robot == 3 and parsed.key == "${CREDENTIALS_DIRECTORY}/robot.key" and not parsed.unsigned
    assert parsed.stamps.startswith("${STATE_DIRECTORY}") and parsed.log.startswith("${LOGS_DIRECTORY}")


def test_it_is_hardened() -> None:
    given = settings()
    for name in ("DynamicUser", "NoNewPrivileges", "ProtectHome", "PrivateDevices", "RestrictNamespaces"):
        assert (name, "yes") in given
    assert ("ProtectSystem", "strict") in given and ("CapabilityBoundingSet", "") in given
