"""A real browser that opens replays: headless Chromium. What imports this is skipped where there is none."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")

if not (CHROMIUM and DRIVER):
    pytest.skip(
        "the replay is not opened: this machine has no chromium and chromedriver "
        "(Debian: apt-get install chromium chromium-driver)",
        allow_module_level=True,
    )
pytest.importorskip("selenium", reason="the replay is not opened: selenium is not installed")

from selenium import webdriver  # noqa: E402
from selenium.webdriver import ActionChains, Keys  # noqa: E402
from selenium.webdriver.chrome.options import Options  # noqa: E402
from selenium.webdriver.chrome.service import Service  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.remote.webdriver import WebDriver  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

# Tests take what is selenium's from here, where it is known to be installed.
__all__ = [
    "ActionChains",
    "By",
    "Keys",
    "Player",
    "Select",
    "WebDriver",
    "WebDriverWait",
    "boxes",
    "chromium",
    "window",
]
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--window-size=1280,800",
)


@contextmanager
def chromium(profile: Path) -> Iterator[WebDriver]:
    """The browser, with its settings in the folder `profile`."""
    options = Options()
    options.binary_location = str(CHROMIUM)
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    yield driver
    driver.quit()


class Player:
    """A replay that is open in the browser; unless told, it stands still at its start."""

    def __init__(self, browser: WebDriver, path: Path, view: str = "#t=0") -> None:
        self.browser = browser
        browser.get("about:blank")  # a page that differs in its view alone would not be opened anew
        browser.get(path.as_uri() + view)
        self.wait(lambda: self.run("return !!window.mastReplay && !mastReplay.dirty"))

    def run(self, script: str, *values: Any) -> Any:
        return self.browser.execute_script(script, *values)

    def wait(self, condition: Callable[[], Any], seconds: float = 10) -> None:
        WebDriverWait(self.browser, seconds, poll_frequency=0.02).until(lambda _: condition())

    def find(self, selector: str) -> Any:
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def press(self, *keys: str) -> None:
        ActionChains(self.browser).send_keys(*keys).perform()

    @property
    def time(self) -> float:
        return self.run("return mastReplay.time")

    def seek(self, t: float) -> None:
        self.run("mastReplay.seek(arguments[0])", t)
        self.settle()

    def settle(self) -> None:
        self.wait(lambda: self.run("return !mastReplay.dirty"))

    def picture(self, number: int = 0) -> str:
        self.settle()
        return self.run("return mastReplay.panels[arguments[0]].canvas.toDataURL()", number)

    def spot(self, robot: int, panel: int = 0) -> tuple[int, int]:
        """A robot's place on its canvas, from the centre of it, in pixels."""
        return tuple(
            self.run(
                "const { r, view } = mastReplay.panels[arguments[1]], i = 2 * arguments[0];"
                "return [view.x(r.now[i]) - view.width / 2, view.y(r.now[i + 1]) - view.height / 2]"
                ".map(Math.round)",
                robot,
                panel,
            )
        )

    def errors(self) -> list[str]:
        return [entry["message"] for entry in self.browser.get_log("browser")]


@contextmanager
def window(player: Player, width: int, height: int, ratio: int = 1) -> Iterator[None]:
    """The page in a window of another size, in pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": ratio, "mobile": False}
    player.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        player.wait(
            lambda: player.run(
                "const { width, clientWidth } = mastReplay.panels[0].canvas;"
                "return innerWidth === arguments[0] && Math.abs(width - arguments[1] * clientWidth) <= 1",
                width,
                ratio,
            )
        )
        player.settle()
        yield
    finally:
        player.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def boxes(player: Player, selector: str) -> list[dict[str, float]]:
    """Where the elements are in the window: x, y, width, height, right, bottom."""
    return player.run(
        "return [...document.querySelectorAll(arguments[0])].map((e) => e.getBoundingClientRect().toJSON())", selector
    )
