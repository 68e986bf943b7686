"""The replay of a swarm of processes, in a real browser: messages on their way, old news, and who is gone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from browsing import Player, WebDriver
from mast_swarm.evaluate.recording import Recording
from mast_swarm.view.replay import write_replay


@pytest.fixture(scope="module", params=["navigation", "coverage"])
def page(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    make_recording: Callable[..., Recording],
    make_cover: Callable[..., Recording],
) -> Path:
    """Robot 0 has not joined, robot 1 dies at 30 s, robot 2's news gets old; 3 hears 4 at all times."""
    plain = make_recording(robots=12, steps=60, delay=1.0) if request.param == "navigation" else make_cover()
    frames, robots = plain.positions.shape[:2]
    status, age = np.ones((frames, robots), np.uint8), np.full((frames, robots), 1.5, np.float32)
    status[:, 0], age[:, 0] = 0, -1
    status[30:, 1] = 2
    age[:, 2] = np.arange(frames)
    used = np.zeros((frames, robots, robots), bool)
    used[:, 3, 4] = True
    added = {"status": status, "age": age, "used": np.packbits(used, axis=2, bitorder="little")}
    swarm = replace(plain, frames=plain.frames | added)
    return write_replay(tmp_path_factory.mktemp("page") / "swarm.html", [swarm])


def test_a_swarm_shows_messages_old_news_and_the_dead(browser: WebDriver, page: Path) -> None:
    player = Player(browser, page)
    player.seek(10.5)
    before = player.picture()
    assert player.find(".status").text.startswith("11 of 12 alive · ")
    for key in ("m", "a"):
        player.press(key)
        assert player.picture() != before
        player.press(key)
        assert player.picture() == before
    player.run("mastReplay.select(2, true)")
    player.settle()
    assert "News" in player.find("#inspected").text and "10.0 s old on average" in player.find("#inspected").text
    player.run("mastReplay.select(0, true)")
    player.settle()
    assert "not there yet" in player.find("#inspected").text and "of nobody" in player.find("#inspected").text
    player.seek(40.5)
    player.run("mastReplay.select(1, true)")
    player.settle()
    assert player.find(".status").text.startswith("10 of 12 alive") and "dead" in player.find("#inspected").text
    assert {"Message", "Dead", "Not there yet", "News 60 s old"} <= set(player.find("#key").text.split("\n"))
    assert player.errors() == []


def test_other_replays_have_none_of_it(
    browser: WebDriver, make_recording: Callable[..., Recording], tmp_path: Path
) -> None:
    player = Player(browser, write_replay(tmp_path / "plain.html", [make_recording(robots=5, steps=3)]))
    assert "Dead" not in player.find("#key").text and "Messages" not in player.find("#toggles").text
    assert player.errors() == []
