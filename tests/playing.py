"""The playground that is open in a browser, as tests drive it."""

from __future__ import annotations

from typing import Any


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
