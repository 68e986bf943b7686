"""The pictures of docs/replay.md, of the page in a browser: python docs/draw_replay.py RESULTS [FOLDER]; the command in
docs/replay.md writes the results."""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path
from typing import Any

from mast_swarm.view.replay import write_replay
from mast_swarm.view.report import load_recordings

DOCS = Path(__file__).parent
sys.path.append(str(DOCS.parent / "tests"))  # how tests drive a browser

VIEW = "#t=30&robot=20"
# name: width, height, theme, how many of the policies
PICTURES = {
    "replay": (1400, 860, "light", 2),
    "replay-phone": (390, 844, "light", 1),
    "replay-phone-dark": (390, 844, "dark", 1),
}


def draw(browser: Any, page: Path, name: str, folder: Path) -> None:
    from browsing import Player

    width, height, theme, _ = PICTURES[name]
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": width < 500})
    scheme = {"features": [{"name": "prefers-color-scheme", "value": theme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", scheme)
    player = Player(browser, page, VIEW)
    player.run("if (innerWidth < 500) scrollTo(0, 190)")  # to see the robot and what it knows
    player.wait(lambda: player.run("return !mastReplay.dirty && document.querySelector('#key canvas').width > 0"))
    taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    (folder / f"{name}.png").write_bytes(base64.b64decode(taken["data"]))


def main() -> None:
    from browsing import chromium

    recordings = load_recordings(Path(sys.argv[1]))
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else DOCS / "pictures"
    with tempfile.TemporaryDirectory() as place, chromium(Path(place) / "profile") as browser:
        for name, (*_, count) in PICTURES.items():
            page = write_replay(Path(place) / f"{name}.html", recordings[:count])
            draw(browser, page, name, folder)


if __name__ == "__main__":
    main()
