"""The replay in windows of many sizes: pictures in full, names that can be read, controls in sight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from browsing import By, Player, WebDriver, boxes, window
from mast_swarm.evaluate.recording import Recording
from mast_swarm.view.replay import write_replay

MakeRecording = Callable[..., Recording]
# Policies and the seconds a hop takes: names as they are shipped, and one of the user's own.
FIVE = {
    "clairvoyant": None,
    "c-cvt": None,
    "lpac-k3-seen": 0.2,
    "mast-m-paper": 0.2,
    "coverage-mast-m-wide-window-of-512-m-seed-3": 0.2,
}


@pytest.fixture(scope="module")
def pages(
    tmp_path_factory: pytest.TempPathFactory, make_recording: MakeRecording, make_cover: MakeRecording
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    sets = {
        "two": [make_recording(robots=50, steps=80), make_recording(robots=50, steps=80, policy="dhba-4", delay=1.0)],
        "cover": [make_cover(), make_cover("d-cvt")],
        "five": [replace(make_cover(), policy=name, delay=delay) for name, delay in FIVE.items()],
    }
    return {name: write_replay(folder / f"{name}.html", what, name) for name, what in sets.items()}


@pytest.mark.parametrize("page", ["two", "cover", "five"])
@pytest.mark.parametrize(("width", "height"), [(900, 900), (600, 900), (600, 1600), (400, 800)])
def test_a_narrow_page_shows_square_pictures_in_full(
    browser: WebDriver, pages: dict[str, Path], page: str, width: int, height: int
) -> None:
    player = Player(browser, pages[page])
    with window(player, width, height, ratio=2):
        panels, stages, aside = (boxes(player, name) for name in (".panel", ".stage", "aside"))
        for number, (panel, stage) in enumerate(zip(panels, stages, strict=True)):
            assert stage["width"] == pytest.approx(stage["height"], abs=1.5)
            assert stage["bottom"] <= panel["bottom"] and stage["width"] > panel["width"] - 3
            if width <= 600 and number:
                assert panel["y"] >= panels[number - 1]["bottom"]
        assert aside[0]["y"] >= panels[-1]["bottom"]
        assert player.run("return document.documentElement.scrollWidth") <= width
        for _ in range(2):  # at the top and scrolled to the end
            assert boxes(player, ".controls")[0]["bottom"] == pytest.approx(height, abs=1)
            player.run("scrollTo(0, 1e6)")
        assert boxes(player, "aside")[0]["bottom"] <= boxes(player, ".controls")[0]["y"]
    assert player.errors() == []


@pytest.mark.parametrize("page", ["two", "cover", "five"])
@pytest.mark.parametrize(("width", "height"), [(1400, 950), (1400, 520)])
def test_a_wide_page_fits_its_window(
    browser: WebDriver, pages: dict[str, Path], page: str, width: int, height: int
) -> None:
    player = Player(browser, pages[page])
    with window(player, width, height):
        needed = player.run("const e = document.documentElement; return [e.scrollWidth, e.scrollHeight]")
        assert needed == [width, height]
        assert boxes(player, ".controls")[0]["bottom"] == pytest.approx(height, abs=1)
        stages = boxes(player, ".stage")
        assert len({(round(stage["width"]), round(stage["height"])) for stage in stages}) == 1
        assert min(stage["height"] for stage in stages) > 230
        if page != "five":
            assert max(stage["bottom"] for stage in stages) <= boxes(player, ".controls")[0]["y"]
    assert player.errors() == []


@pytest.mark.parametrize(("width", "height"), [(1400, 950), (1400, 520), (900, 900), (400, 800)])
def test_names_of_policies_are_shown_in_full(
    browser: WebDriver, pages: dict[str, Path], width: int, height: int
) -> None:
    player = Player(browser, pages["five"])
    with window(player, width, height):
        headers = boxes(player, ".panel header")
        names = boxes(player, ".panel h2 span:last-child")
        for selector in (".panel h2 span:last-child", ".status", ".about"):
            cut = f"return [...document.querySelectorAll('{selector}')].map((e) => e.scrollWidth - e.clientWidth)"
            assert all(over <= 0 for over in player.run(cut)), selector
        texts = [item.text for item in browser.find_elements(By.CSS_SELECTOR, ".panel h2")]
        assert texts == list(FIVE)
        for header, name, rate in zip(headers, names, boxes(player, ".rate"), strict=True):
            assert header["x"] < name["x"] and max(name["right"], rate["right"]) <= header["right"]
            assert name["right"] <= rate["x"] or name["bottom"] <= rate["y"]
        plain = [name["height"] for name, policy in zip(names, FIVE, strict=True) if len(policy) < 20]
        assert max(plain) < 30  # one line
    assert player.errors() == []


def test_pictures_do_not_jump_while_the_status_changes(browser: WebDriver, pages: dict[str, Path]) -> None:
    player, heights = Player(browser, pages["five"]), set()
    with window(player, 1400, 950):
        for t in range(0, 61, 10):
            player.seek(t)
            heights |= {round(stage["height"], 1) for stage in boxes(player, ".stage")}
    assert len(heights) == 1
