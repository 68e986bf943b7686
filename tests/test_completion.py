"""What a shell is told while somebody types, and that bash understands the script."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from mast_swarm.cli.completion import words
from mast_swarm.cli.verbs import VERBS
from mast_swarm.tasks.registry import names
from shared import mast


def test_words_that_may_follow() -> None:
    assert {*VERBS, "--help"} <= {*words([])}
    assert words(["train"]) == names() == words(["demo", "--task"])
    assert {"--help", "--from", "--agents", "--layers", "--no-keep-replay"} <= {*words(["train", "navigation"])}
    assert words(["replay"]) == ["--help", "--episode", "--policy", "--out", "--task"]
    assert "tiny" in words(["train", "navigation", "--recipe"])
    assert {"lsap", "mast-m"} <= {*words(["evaluate", "navigation", "--agents", "5", "--policy"])}
    assert "clairvoyant" in words(["train", "coverage", "--expert"]) and "d-cvt" not in words(
        ["train", "coverage", "--from"]
    )
    assert words(["nothing"]) == words(["evaluate", "nothing", "--policy"]) == words(["evaluate", "nothing"]) == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(capsys: pytest.CaptureFixture[str]) -> None:
    assert mast("completion", "bash") == 0
    script = capsys.readouterr().out
    fake = 'mast() { [ "$*" = "completion words train navigation" ] && printf "%s\\n" --recipe --record --replay; }'
    typed = "COMP_WORDS=(mast train navigation --rec); COMP_CWORD=3; _mast; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", f"{fake}\n{script}\n{typed}"], capture_output=True, text=True, check=True)
    assert done.stdout == "--recipe --record\n"
    assert mast("completion", "zsh") == 0
    assert capsys.readouterr().out.endswith(script)
