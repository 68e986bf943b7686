"""The built page in a real browser. Skipped where there is no browser, or the page is not built."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from mast_swarm.play.config import SITE
from mast_swarm.play.server import folder_files, make_server, running

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


class Page:
    """The playground, open in the browser."""

    def __init__(self, browser: Any, url: str) -> None:
        from browsing import By, WebDriverWait

        self.browser, self.By = browser, By
        browser.get("about:blank")  # an address that differs behind the # alone would not load the page again
        browser.get(url)
        WebDriverWait(browser, 90, poll_frequency=0.05).until(
            lambda _: self.run("return !!(window.mastPlay && mastPlay.ready) || !!document.querySelector('.failure')")
        )

    def run(self, script: str, *given: Any) -> Any:
        return self.browser.execute_script(script, *given)

    def wait(self, script: str, *given: Any, seconds: float = 30) -> Any:
        """What an expression gives, once it gives something true."""
        from browsing import WebDriverWait

        return WebDriverWait(self.browser, seconds, poll_frequency=0.02).until(
            lambda _: self.run(f"return {script}", *given)
        )

    def ask(self, script: str, *given: Any) -> Any:
        """What an expression with a promise gives in the end."""
        found = self.browser.execute_async_script(
            f"const done = arguments[arguments.length - 1]; Promise.resolve({script})"
            ".then((value) => done({ value }), (error) => done({ error: String(error) }));",
            *given,
        )
        assert "error" not in found, found["error"]
        return found.get("value")

    def find(self, selector: str) -> Any:
        return self.browser.find_element(self.By.CSS_SELECTOR, selector)

    def spot(self, points: str, number: int) -> tuple[float, float]:
        """Where a robot ("positions") or a goal ("scene.goals") is, in pixels of the window."""
        return tuple(
            self.run(
                "const { view } = mastPlay.painter, p = mastPlay.shown." + points + ", i = 2 * arguments[0];"
                "const box = document.getElementById('canvas').getBoundingClientRect();"
                "return [box.left + view.x(p[i]), box.top + view.y(p[i + 1])]",
                number,
            )
        )

    def mouse(self, kind: str, x: float, y: float) -> None:
        """mousePressed, mouseMoved or mouseReleased."""
        button = "none" if kind == "mouseMoved" else "left"
        event = {"type": kind, "x": x, "y": y, "button": button, "clickCount": 1}
        self.browser.execute_cdp_cmd("Input.dispatchMouseEvent", event)

    def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            self.mouse(kind, x, y)

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]


@pytest.fixture
def page(browser: WebDriver, site: str) -> Page:
    """A page with few robots."""
    browser.get_log("browser")
    return Page(browser, f"{site}#robots=8&seed=3")
