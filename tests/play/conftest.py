"""The built page in a real browser. Skipped where there is no browser, or the page is not built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from mast_swarm.play.config import SITE
from mast_swarm.play.server import folder_files, make_server, running
from playing import Page

if TYPE_CHECKING:
    from browsing import WebDriver


@pytest.fixture(scope="package")
def site() -> Iterator[str]:
    """The address of the page."""
    if not (SITE / ".ready").exists():
        pytest.skip("the page of the playground is not built: `make web` builds it (it needs node and npm)")
    with running(make_server("127.0.0.1", 0, folder_files(SITE))) as url:
        yield url


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory, site: str) -> Iterator[WebDriver]:
    from browsing import chromium  # skips what asks for it on a machine without one

    with chromium(tmp_path_factory.mktemp("profile")) as driver:
        driver.set_script_timeout(120)
        yield driver


@pytest.fixture
def page(browser: WebDriver, site: str) -> Page:
    """A page with few robots."""
    browser.get_log("browser")
    return Page(browser, f"{site}#robots=8&seed=3")


@pytest.fixture(scope="module")
def calm(browser: WebDriver, site: str) -> Page:
    """A page that is loaded once for all tests of a file, each of which begins a world of its own."""
    browser.get_log("browser")
    return Page(browser, f"{site}#robots=4&policy=lsap")
