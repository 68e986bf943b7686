"""The docs site builds without a warning, the notebook runs, and what it shows is what it gives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).parent.parent.parent
NOTEBOOK = ROOT / "examples/first_steps.ipynb"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs", reason="the site needs the extra `docs`")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


def test_every_page_is_in_the_menu(site: Path) -> None:
    menu = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    for page in (ROOT / "docs").glob("*.md"):
        assert page.name in menu, f"{page.name} is not in the menu of mkdocs.yml"
        assert (site / page.with_suffix(".html").name).is_file()


def test_formulas_are_drawn_and_files_are_there(site: Path) -> None:
    model = (site / "model.html").read_text(encoding="utf-8")
    assert model.count("<math") > 20 and "$$" not in model
    for page in site.glob("*.html"):
        for target in re.findall(r'href="(files/[^"#]+)"', page.read_text(encoding="utf-8")):
            assert (site / unquote(target)).is_file(), f"{page.name} links to {target}"


def test_the_notebook_gives_what_it_shows(tmp_path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    kept = nbformat.read(NOTEBOOK, 4)
    run = nbformat.read(NOTEBOOK, 4)
    nbclient.NotebookClient(run, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    assert (tmp_path / "replay.html").is_file()
    for before, after in zip(kept.cells, run.cells, strict=True):
        assert [_shown(output) for output in after.get("outputs", [])] == [
            _shown(output) for output in before.get("outputs", [])
        ]


def _shown(output: dict) -> str:
    """What a cell shows, its numbers to two digits; of a picture that there is one."""
    if "image/png" in output.get("data", {}):
        return "a picture"
    text = output.get("text") or output.get("data", {}).get("text/plain", "")
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}", text)
