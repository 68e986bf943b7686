"""How a visitor meets the replay, in a real browser: it starts by itself, a link opens the same view, fingers work."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from browsing import ActionChains, Player, WebDriver, boxes, window
from mast_swarm.evaluate.recording import Recording
from mast_swarm.view.replay import write_replay

MakeRecording = Callable[..., Recording]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory, make_recording: MakeRecording) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    names = ("lsap", "dhba-4", "mast-m", "mast-l")
    four = [make_recording(robots=30, steps=60, policy=name) for name in names]
    four[3] = replace(four[3], delay=1.0, loss=0.1, failure=0.001)  # there is much to say of it
    return {
        "two": write_replay(folder / "two.html", four[:2]),
        "four": write_replay(folder / "four.html", four),
    }


def url(player: Player) -> str:
    return player.run("return location.hash")


def test_it_starts_by_itself(browser: WebDriver, pages: dict[str, Path]) -> None:
    browser.get("about:blank")
    browser.get(pages["two"].as_uri())
    started = "return !!window.mastReplay && mastReplay.playing && mastReplay.time > 0.5"
    for _ in range(500):
        if browser.execute_script(started):
            break
        time.sleep(0.02)
    assert browser.execute_script(started)
    assert "play=1" in browser.execute_script("return location.hash")


def test_those_who_ask_for_less_motion_start_it_themselves(browser: WebDriver, pages: dict[str, Path]) -> None:
    still = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", still)
    try:
        for view in ("", "#t=3&play=1"):
            player = Player(browser, pages["two"], view)
            time.sleep(0.3)
            assert not player.run("return mastReplay.playing") and player.time == (3 if view else 0)
        player.find("#play").click()
        player.wait(lambda: player.time > 3.2)
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_link_opens_the_same_view(browser: WebDriver, pages: dict[str, Path]) -> None:
    first = Player(browser, pages["two"])
    first.seek(21.5)
    first.run("mastReplay.select(7, true); mastReplay.magnify(2.5, [120, -60])")
    first.press("t")
    first.settle()
    first.wait(lambda: "robot=7" in url(first) and "turned=trails" in url(first))
    before, link = first.picture(), url(first)
    assert "t=21.5" in link and "play" not in link
    again = Player(browser, pages["two"], link)
    assert again.picture() == before and again.time == 21.5
    assert again.run("return [mastReplay.selected, mastReplay.playing, mastReplay.show.trails]") == [7, False, False]
    assert url(again) == link
    # Pasted into the page that is open: no reload, the same view.
    again.run("mastReplay.home(); mastReplay.select(-1, true); mastReplay.seek(3)")
    again.wait(lambda: url(again) == "#t=3&turned=trails")
    again.run("location.hash = arguments[0]", link)
    again.wait(lambda: again.time == 21.5)
    assert again.picture() == before
    assert again.errors() == []


@pytest.mark.parametrize(
    "view",
    ["#t=1e9&robot=999&zoom=-3&at=1", "#t=-5&robot=x&zoom=9&at=a,b&layer=7", "#t=0&turned=nothing,links2&head=0.5"],
)
def test_a_link_with_nonsense_opens_all_the_same(browser: WebDriver, pages: dict[str, Path], view: str) -> None:
    player = Player(browser, pages["two"], view)
    assert 0 <= player.time <= 60
    assert player.run("return [mastReplay.selected, mastReplay.zoom, mastReplay.show.links]") == [-1, 1, True]
    assert player.errors() == []


def test_a_link_that_was_cut_off_starts_like_none(browser: WebDriver, pages: dict[str, Path]) -> None:
    browser.get("about:blank")
    browser.get(pages["two"].as_uri() + "#t=")
    for _ in range(500):
        if browser.execute_script("return !!window.mastReplay && mastReplay.playing"):
            return
        time.sleep(0.02)
    raise AssertionError("it stands still")


def test_the_link_can_be_copied(browser: WebDriver, pages: dict[str, Path]) -> None:
    player = Player(browser, pages["two"], "#t=12&robot=4")
    player.run("navigator.clipboard.writeText = (text) => { window.copied = text; return Promise.resolve(); }")
    player.find("#link").click()
    player.wait(lambda: player.find("#link").text == "Copied")
    assert player.run("return window.copied") == pages["two"].as_uri() + "#t=12&robot=4"


@contextmanager
def phone(player: Player, width: int = 390, height: int = 844) -> Iterator[None]:
    """A narrow window under fingers."""
    touch = {"enabled": True, "maxTouchPoints": 5}
    player.browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", touch)
    metrics = {"width": width, "height": height, "deviceScaleFactor": 2, "mobile": True}
    player.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        player.wait(lambda: player.run("return innerWidth === arguments[0]", width))
        player.settle()
        yield
    finally:
        player.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        player.browser.execute_cdp_cmd("Emulation.setTouchEmulationEnabled", {"enabled": False})


def fingers(player: Player, kind: str, *points: tuple[float, float]) -> None:
    given: dict[str, Any] = {
        "type": kind,
        "touchPoints": [{"x": x, "y": y, "id": n} for n, (x, y) in enumerate(points)],
    }
    player.browser.execute_cdp_cmd("Input.dispatchTouchEvent", given)


def test_a_phone_is_spoken_to_in_its_own_words(browser: WebDriver, pages: dict[str, Path]) -> None:
    player = Player(browser, pages["two"])
    assert "Point at a robot" in player.find("#inspected").text and "space" in player.find(".keys").text
    assert not player.find(".fingers").is_displayed()
    with phone(player):
        player.wait(lambda: player.find("#inspected").text.startswith("Tap a robot to see whom it hears"))
        assert player.find(".fingers").is_displayed() and not player.find(".keys").is_displayed()
        said = player.run("return document.body.innerText")
        assert not any(word in said for word in ("Point at", "Click", "hover", "space"))
    player.wait(lambda: "Point at a robot" in player.find("#inspected").text)


def test_fingers_choose_move_and_zoom(browser: WebDriver, pages: dict[str, Path]) -> None:
    player = Player(browser, pages["two"])
    with phone(player):
        canvas = boxes(player, ".stage canvas")[0]
        middle = canvas["x"] + canvas["width"] / 2, canvas["y"] + canvas["height"] / 2
        dx, dy = player.spot(7)
        fingers(player, "touchStart", (middle[0] + dx, middle[1] + dy))
        fingers(player, "touchEnd")
        player.wait(lambda: player.run("return mastReplay.selected") >= 0)
        assert player.run("return [mastReplay.selected, mastReplay.hovered]") == [7, -1]
        assert boxes(player, "#inspector")[0]["y"] < boxes(player, "#curve")[0]["y"]  # right below the pictures
        x, y = middle
        fingers(player, "touchStart", (x - 30, y), (x + 30, y))
        for far in (45, 60, 90):
            fingers(player, "touchMove", (x - far, y), (x + far, y))
        fingers(player, "touchEnd")
        player.wait(lambda: player.run("return mastReplay.zoom") > 2)
        assert player.run("return mastReplay.zoom") == pytest.approx(3, rel=0.1)
        assert player.run("return mastReplay.selected") == 7  # a pinch is no tap
        player.settle()
        before = player.run("return [...mastReplay.centre]")
        fingers(player, "touchStart", (x, y))
        for way in (10, 25, 40):
            fingers(player, "touchMove", (x + way, y))
        fingers(player, "touchEnd")
        scale = player.run("return mastReplay.panels[0].view.scale")
        after = player.run("return [...mastReplay.centre]")
        assert after[0] == pytest.approx(before[0] - 40 / scale, abs=12 / scale) and after[1] == pytest.approx(
            before[1]
        )
        assert player.run("return [mastReplay.selected, scrollY]") == [7, 0]
    assert player.errors() == []


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (1440, 900), (1920, 1080), (760, 1000)])
def test_four_stand_two_by_two(browser: WebDriver, pages: dict[str, Path], width: int, height: int) -> None:
    player = Player(browser, pages["four"])
    with window(player, width, height):
        a, b, c, d = boxes(player, ".panel")
        assert a["y"] == b["y"] and c["y"] == d["y"] and a["x"] == c["x"] and b["x"] == d["x"]
        assert a["right"] < b["x"] and a["bottom"] < c["y"]
        assert len({round(stage["height"]) for stage in boxes(player, ".stage")}) == 1
        if width > 900:
            assert d["bottom"] <= boxes(player, ".controls")[0]["y"]
    assert player.errors() == []


def test_goals_differ_in_shape(browser: WebDriver, pages: dict[str, Path]) -> None:
    """In the key and in the picture: drawn in one colour, a goal that is seen and one that is not still differ."""
    player = Player(browser, pages["two"])
    time.sleep(0.1)
    found = player.run(
        "return [...document.querySelectorAll('#key li')].map((item) => {"
        "const canvas = item.querySelector('canvas'), { width, height } = canvas;"
        "const { data } = canvas.getContext('2d').getImageData(0, 0, width, height);"
        "return [item.textContent, [...data].filter((_, i) => i % 4 === 3).map((v) => +(v > 127)).join('')]; })"
    )
    drawn = dict(found)
    seen, unseen = drawn["Goal seen"], drawn["Goal unseen"]
    assert len(set(drawn.values())) == len(drawn)  # no two marks of the key have one shape
    differ = sum(one != other for one, other in zip(seen, unseen, strict=True))
    assert differ > 0.5 * min(seen.count("1"), unseen.count("1"))
    player.seek(0)
    both = [player.picture()]
    player.run("Object.assign(mastReplay.colours, { unseen: mastReplay.colours.seen }); mastReplay.touch()")
    both.append(player.picture())
    player.run("mastReplay.recordings[0].arrays.goals_seen.fill(0); mastReplay.touch()")
    both.append(player.picture())
    assert len(set(both)) == 3


def test_a_tab_that_is_left_with_a_mouse_lets_the_robot_go(browser: WebDriver, pages: dict[str, Path]) -> None:
    player = Player(browser, pages["two"])
    canvas = player.find(".stage canvas")
    ActionChains(player.browser, duration=0).move_to_element_with_offset(canvas, *player.spot(3)).perform()
    player.wait(lambda: player.run("return mastReplay.hovered") == 3)
    ActionChains(player.browser, duration=0).move_to_element(player.find("h1")).perform()
    player.wait(lambda: player.run("return mastReplay.hovered") == -1)
    assert "robot" not in url(player)  # a link keeps the robot that was chosen, not one in passing
