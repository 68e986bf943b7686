"""The Python in README and docs: each block runs as it stands, or is an excerpt of a file that has its lines."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.S | re.M)
RUN = ("README.md", "docs/training.md", "docs/tutorial.md")
EXCERPTS = {  # page -> whose lines its blocks are
    "docs/reproduce.md": "src/mast_swarm/paper/navigation/variants.py",
}
# Run or compared with a file by a test of their own, or what a reader's program looks like: compiled.
ELSEWHERE = ("docs/own-task.md", "docs/adapters.md", "docs/explain.md", "docs/scale.md", "docs/robots.md")
COMPILED = ("docs/communication.md", "docs/wire.md", "docs/architecture.md")


def blocks(page: str) -> list[str]:
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def test_every_page_with_python_is_accounted_for() -> None:
    pages = ["README.md", *(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))]
    assert {page for page in pages if blocks(page)} == {*RUN, *EXCERPTS, *ELSEWHERE, *COMPILED}


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN)
def test_python_runs_as_it_stands(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    known: dict[str, object] = {}
    for block in blocks(page):
        exec(compile(block, page, "exec"), known)


@pytest.mark.parametrize(("page", "file"), EXCERPTS.items())
def test_excerpts_are_those_of_the_file(page: str, file: str) -> None:
    lines = {re.sub(r"\s+", " ", line.partition("#")[0]).strip() for line in (ROOT / file).read_text().splitlines()}
    for block in blocks(page):
        for line in block.splitlines():
            words = re.sub(r"\s+", " ", line.partition("#")[0]).strip()
            assert words in lines or words in ("", "..."), f"{page} shows a line that {file} does not have: {line}"


@pytest.mark.parametrize("page", COMPILED)
def test_the_rest_is_python(page: str) -> None:
    for block in blocks(page):
        compile(block, page, "exec")
