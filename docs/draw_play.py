"""The pictures of docs/play.md, of the built page in a browser: make web && python docs/draw_play.py [FOLDER]."""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path
from typing import Any

from mast_swarm.play.config import SITE
from mast_swarm.play.server import folder_files, make_server, running

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "tests"))  # how tests drive a browser

NAVIGATION = "#task=navigation&start=clusters-5&robots=32&seed=4&delay=1"
COVERAGE = "#task=coverage&robots=16&seed=2"
# name: width, height, theme, address, control periods, the robot that is pointed at
PICTURES = {
    "play": (1440, 900, "light", NAVIGATION, 14, 5),
    "play-dark": (1440, 900, "dark", COVERAGE, 30, -1),
    "play-phone": (390, 844, "light", NAVIGATION, 14, 5),
    "play-phone-dark": (390, 844, "dark", NAVIGATION, 14, -1),
}


def draw(browser: Any, url: str, name: str, folder: Path) -> None:
    from playing import Page

    width, height, theme, address, steps, robot = PICTURES[name]
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": width < 500})
    page = Page(browser, url + address)
    page.run("mastPlay.theme(arguments[0])", theme)
    for _ in range(steps):  # one by one, so that the curve has all its points
        page.ask("mastPlay.advance(1)")
    if robot >= 0:
        page.run("mastPlay.point(arguments[0], true)", robot)
        page.wait("mastPlay.shown.focus && mastPlay.shown.focus.robot === arguments[0]", robot)
    page.run("mastPlay.dirty = true")
    page.wait("!mastPlay.dirty && mastPlay.going.size === 0")
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    (folder / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


def main() -> None:
    from browsing import chromium

    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DOCS / "pictures"
    with tempfile.TemporaryDirectory() as profile, chromium(Path(profile)) as browser:
        browser.set_script_timeout(300)
        with running(make_server("127.0.0.1", 0, folder_files(SITE))) as url:
            for name in PICTURES:
                draw(browser, url, name, folder)


if __name__ == "__main__":
    main()
