"""The playground in a real browser: what mouse, fingers and keys do, and what the page says when it cannot run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mast_swarm.play.config import SITE
from mast_swarm.play.server import folder_files, make_server, running
from playing import Page

if TYPE_CHECKING:
    from browsing import WebDriver


def numbers(values: Any) -> list[float]:
    """A typed array as the browser hands it over."""
    return list(values.values()) if isinstance(values, dict) else list(values)


def shown(page: Page, what: str) -> list[float]:
    return numbers(page.run(f"return mastPlay.shown.{what}"))


@pytest.fixture
def quick(browser: WebDriver, site: str) -> Page:
    """A page whose robots need no network: quick."""
    browser.get_log("browser")
    return Page(browser, f"{site}#robots=8&seed=3&policy=dhba")


def press(page: Page, *keys: str) -> None:
    from browsing import ActionChains

    ActionChains(page.browser).send_keys(*keys).perform()


def test_it_plays_and_the_curve_grows(page: Page) -> None:
    assert page.run("return crossOriginIsolated")  # threads may be used
    assert page.find("#driver-about").text and page.find("#metric").text.endswith("%")
    page.find("#play").click()
    page.wait("mastPlay.shown.time >= 3", seconds=60)
    page.find("#play").click()
    points = page.run("return mastPlay.runs.at(-1).points.map((point) => [point.t, point.value])")
    assert [t for t, _ in points[:4]] == [0, 1, 2, 3] and all(0 <= value <= 1 for _, value in points)
    assert page.errors() == []


def test_robots_and_goals_are_dragged(quick: Page) -> None:
    box = quick.find("#canvas").rect
    for points, number in (("positions", 2), ("scene.goals", 1)):
        before, (x, y) = shown(quick, points), quick.spot(points, number)
        along, down = 60 if x < box["x"] + box["width"] / 2 else -60, 40 if y < box["y"] + box["height"] / 2 else -40
        quick.mouse("mouseMoved", x, y)
        quick.mouse("mousePressed", x, y)
        for share in (0.3, 0.7, 1.0):
            quick.mouse("mouseMoved", x + along * share, y + down * share)
        quick.mouse("mouseReleased", x + along, y + down)
        quick.wait("!mastPlay.drag")
        after, scale = shown(quick, points), quick.run("return mastPlay.painter.view.scale")
        assert after[2 * number] - before[2 * number] == pytest.approx(along / scale, abs=5)
        assert before[2 * number + 1] - after[2 * number + 1] == pytest.approx(down / scale, abs=5)
        others = [i for i in range(len(before)) if i // 2 != number]
        assert [before[i] for i in others] == [after[i] for i in others]
    assert quick.errors() == []


def tool(page: Page, key: str) -> None:
    page.find(f"#tools [data-key={key}]").click()


def free_spot(page: Page) -> tuple[float, float]:
    """A place in the picture without anything near."""
    return tuple(
        page.run(
            "const { view } = mastPlay.painter, box = document.getElementById('canvas').getBoundingClientRect();"
            "const p = [...mastPlay.shown.positions, ...mastPlay.shown.scene.goals];"
            "const away = (i, x, y) => Math.hypot(view.x(p[i]) - x, view.y(p[i + 1]) - y);"
            "for (let k = 0; k < 5000; k++) {"
            "  const x = 40 + (k * 37) % (box.width - 80), y = 40 + (k * 91) % (box.height - 80);"
            "  if (p.every((_, i) => i % 2 || away(i, x, y) > 45)) return [box.left + x, box.top + y];"
            "}"
        )
    )


def test_robots_and_goals_are_added_and_removed(quick: Page) -> None:
    tool(quick, "robot")
    quick.click(*free_spot(quick))
    quick.wait("mastPlay.shown.ids.length === 9")
    tool(quick, "goal")
    quick.click(*free_spot(quick))
    quick.wait("mastPlay.shown.scene.goals.length === 18")
    tool(quick, "erase")
    quick.click(*quick.spot("scene.goals", 0))
    quick.wait("mastPlay.shown.scene.goals.length === 16")
    quick.click(*quick.spot("positions", 4))
    quick.wait("mastPlay.shown.ids.length === 8")
    assert quick.run("return mastPlay.shown.ids") == [0, 1, 2, 3, 5, 6, 7, 8]  # names stay
    assert quick.ask("mastPlay.advance(3)")["time"] == 3
    assert quick.errors() == []


def test_a_team_that_changes_goes_on_over_messages(page: Page) -> None:
    page.ask("mastPlay.advance(2)")
    page.ask("mastPlay.ask('removeRobot', { robot: 1 })")
    page.ask("mastPlay.ask('addRobot', { x: 10, y: 10 })")
    after = page.ask("mastPlay.advance(3)")
    assert after["time"] == 5 and len(after["ids"]) == 8
    page.ask("mastPlay.ask('focus', { robot: 7 })")
    knows = page.run("return mastPlay.shown.focus.knows")
    assert any(one["robot"] == 7 and one["age"] == 0 for one in knows) and len(knows) > 1
    for _ in range(7):
        page.ask("mastPlay.ask('removeRobot', { robot: 0 })")
    assert len(page.ask("mastPlay.advance(1)")["ids"]) == 1
    assert page.errors() == []


def test_a_killed_robot_stands_still_and_is_silent(page: Page) -> None:
    page.ask("mastPlay.advance(4)")
    tool(page, "kill")
    page.click(*page.spot("positions", 3))
    page.wait("mastPlay.shown.alive[3] === 0")
    before = shown(page, "positions")
    page.ask("mastPlay.advance(4)")
    after = shown(page, "positions")
    assert before[6:8] == after[6:8] and before[:6] != after[:6]
    stamps = numbers(page.ask("mastPlay.simulation.ask('commands')")["stamps"])
    assert max(stamps[i * 8 + 3] for i in range(8) if i != 3) <= 4  # nothing newer has left it
    page.find("#mend").click()
    page.wait("mastPlay.shown.alive[3] === 1")
    assert page.errors() == []


def test_links_are_cut_and_mended(quick: Page) -> None:
    tool(quick, "cut")
    i, j = quick.run("return [...mastPlay.shown.links].slice(0, 2)")
    (ax, ay), (bx, by) = quick.spot("positions", i), quick.spot("positions", j)
    quick.click((ax + bx) / 2, (ay + by) / 2)
    quick.wait("mastPlay.shown.cuts.length === 2")
    a, b = shown(quick, "cuts")
    links = shown(quick, "links")
    assert (a, b) not in zip(links[::2], links[1::2], strict=True) and (b, a) not in zip(
        links[::2], links[1::2], strict=True
    )
    quick.ask("mastPlay.ask('mend')")
    assert shown(quick, "cuts") == [] and len(shown(quick, "links")) == len(links) + 4


def slide(page: Page, name: str, value: float) -> None:
    page.run(
        "const e = document.getElementById(arguments[0]); e.value = arguments[1]; e.dispatchEvent(new Event('input'))",
        name,
        value,
    )
    page.wait("mastPlay.going.size === 0")


def oldest(page: Page) -> float:
    page.ask("mastPlay.ask('focus', { robot: 0 })")
    return max(one["age"] for one in page.run("return mastPlay.shown.focus.knows"))


def test_delay_loss_age_and_window_are_set_live(page: Page) -> None:
    slide(page, "delay", 0)
    page.ask("mastPlay.advance(2)")
    assert oldest(page) == 0
    slide(page, "delay", 2)
    page.ask("mastPlay.advance(6)")
    assert oldest(page) >= 2
    slide(page, "age", 3)
    page.ask("mastPlay.advance(4)")
    assert oldest(page) <= 3
    slide(page, "radius", 25)
    page.ask("mastPlay.ask('focus', { robot: 0 })")
    assert page.run("return mastPlay.shown.radius") == 25
    near = [one for one in page.run("return mastPlay.shown.focus.knows") if one["weights"] and one["level"] == 1]
    x, y = shown(page, "positions")[:2]
    assert all((one["x"] - x) ** 2 + (one["y"] - y) ** 2 < 25**2 for one in near)
    slide(page, "loss", 0.95)
    page.ask("mastPlay.advance(5)")
    page.ask("mastPlay.ask('focus', { robot: 0 })")
    assert len(page.run("return mastPlay.shown.focus.knows")) < 8
    assert "loss=0.95" in page.browser.current_url and "delay=2" in page.browser.current_url
    assert page.errors() == []


def test_pointing_at_a_robot_shows_what_it_knows(page: Page) -> None:
    page.ask("mastPlay.advance(5)")
    page.click(*page.spot("positions", 2))
    page.wait("mastPlay.shown.focus && mastPlay.shown.focus.robot === 2")
    page.wait("document.querySelectorAll('#inspected .heads button').length === 16")
    assert page.find("#inspector-title").text == "Robot 2"
    known = page.run("return mastPlay.shown.focus.knows")
    rows = page.run("return [...document.querySelectorAll('.news .age')].map((e) => e.textContent)")
    assert len(rows) == len(known) - 1 and any(age != "0 s" for age in rows)
    page.find(".heads button:nth-child(3)").click()
    assert page.run("return [mastPlay.settings.layer, mastPlay.settings.head]") == [0, 1]
    page.find("#release").click()
    page.wait("mastPlay.focus === -1")
    assert page.errors() == []


def test_keys(quick: Page) -> None:
    from browsing import Keys

    press(quick, ".")
    quick.wait("mastPlay.shown.time === 1")
    press(quick, " ")
    quick.wait("mastPlay.playing && mastPlay.shown.time > 2")
    press(quick, " ", "4")
    quick.wait("mastPlay.own.drives === 'lsap' && !mastPlay.playing")
    press(quick, "k")
    assert quick.run("return mastPlay.tool") == "kill"
    quick.run("document.getElementById('canvas').focus()")
    press(quick, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    quick.wait("mastPlay.pinned === 1")
    press(quick, "x")
    quick.wait("mastPlay.shown.alive[1] === 0")
    press(quick, Keys.DELETE)
    quick.wait("mastPlay.shown.ids.length === 7 && mastPlay.pinned === -1")
    seed = quick.run("return mastPlay.own.seed")
    press(quick, "n")
    quick.wait(f"mastPlay.own.seed === {seed + 1} && mastPlay.shown && mastPlay.shown.time === 0")
    press(quick, "?")
    quick.wait("document.getElementById('helped').open")
    press(quick, Keys.ESCAPE)
    assert quick.errors() == []


def test_fingers(quick: Page) -> None:
    def touch(kind: str, *points: tuple[float, float]) -> None:
        told = [{"x": x, "y": y} for x, y in points]
        quick.browser.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": told})

    x, y = quick.spot("positions", 5)
    touch("touchStart", (x, y))
    touch("touchEnd")
    quick.wait("mastPlay.pinned === 5")
    before = shown(quick, "positions")
    touch("touchStart", (x, y))
    touch("touchMove", (x + 30, y + 10))
    touch("touchMove", (x + 60, y + 20))
    touch("touchEnd")
    quick.wait("!mastPlay.drag")
    assert shown(quick, "positions")[10] > before[10] + 5
    assert quick.errors() == []


def test_a_link_keeps_the_settings(browser: WebDriver, site: str) -> None:
    page = Page(browser, f"{site}#task=navigation&policy=lsap&robots=5&seed=9&start=circle&delay=0.3")
    first = shown(page, "positions")
    assert len(first) == 10
    again = Page(browser, page.browser.current_url)
    assert shown(again, "positions") == first
    strange = Page(browser, f"{site}#task=x&policy=y&robots=1e9&seed=-3&start=z&delay=NaN&loss=7&radius=0")
    assert strange.run("return mastPlay.ready") and len(shown(strange, "ids")) <= 150
    assert page.errors() == []


def test_what_matters_is_painted(browser: WebDriver, site: str) -> None:
    browser.get_log("browser")
    page = Page(browser, f"{site}#task=coverage&policy=d-cvt&robots=3&start=blank")
    assert max(shown(page, "scene.density")) == 0 and page.find("#metric").text == "1.00"
    tool(page, "paint")
    box = page.find("#canvas").rect
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse("mouseMoved", x, y)
    page.mouse("mousePressed", x, y)
    page.mouse("mouseMoved", x + 30, y)
    page.mouse("mouseReleased", x + 30, y)
    page.wait("Math.max(...mastPlay.shown.scene.density) > 0.2")
    after = page.ask("mastPlay.advance(10)")
    assert 0 < after["metric"] < 1.5 and after["metric"] != 1
    tool(page, "wipe")
    page.click(x, y)
    page.click(x + 30, y)
    page.wait("Math.max(...mastPlay.shown.scene.density) < 0.2")
    page.find("#tasks [data-key=navigation]").click()
    page.wait("mastPlay.shown && mastPlay.shown.scene.goals", seconds=60)
    assert page.errors() == []


@pytest.fixture(params=[(390, 844), (1440, 900)], ids=["phone", "desktop"])
def sized(browser: WebDriver, request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    width, height = request.param
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    yield width, height
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.parametrize("task", ["navigation&policy=dhba", "coverage&policy=clairvoyant&robots=6"])
def test_it_fits_the_window_in_both_themes(browser: WebDriver, site: str, sized: tuple[int, int], task: str) -> None:
    page = Page(browser, f"{site}#task={task}")
    page.ask("mastPlay.advance(1)")
    page.run("mastPlay.point(0, true)")
    page.wait("mastPlay.shown.focus && !mastPlay.dirty")
    assert page.run("return document.documentElement.scrollWidth") <= sized[0]
    if sized[0] > 900:
        assert page.run("return document.documentElement.scrollHeight") <= sized[1]
    stage = page.find("#stage").rect
    assert min(stage["width"], stage["height"]) > 340
    colours = []
    for scheme in ("light", "dark"):
        page.run("mastPlay.theme(arguments[0])", scheme)
        page.wait("!mastPlay.dirty")
        colours.append(page.run("return [getComputedStyle(document.body).backgroundColor, mastPlay.colours.robot]"))
    assert colours[0][0] != colours[1][0] and colours[0][1] != colours[1][1]


def test_a_browser_without_webassembly_is_told(browser: WebDriver, site: str) -> None:
    script = browser.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": "delete globalThis.WebAssembly"}
    )
    try:
        page = Page(browser, site)
        assert "needs WebAssembly" in page.find(".failure").text
    finally:
        browser.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", script)


def test_a_folder_without_policies_is_told(browser: WebDriver, site: str) -> None:
    files = {name: path for name, path in folder_files(SITE).items() if not name.startswith("policies/")}
    with running(make_server("127.0.0.1", 0, files)) as url:
        assert "policies.json" in Page(browser, url).find(".failure").text
    browser.get_log("browser")


def test_a_policy_that_cannot_be_loaded_is_told(browser: WebDriver, site: str) -> None:
    files = {name: path for name, path in folder_files(SITE).items() if not name.endswith("mast-l/team.onnx")}
    with running(make_server("127.0.0.1", 0, files)) as url:
        page = Page(browser, f"{url}#robots=5&policy=lsap")
        page.ask("mastPlay.drive('navigation/mast-l')")
        assert "team.onnx could not be loaded (404)" in page.find("#said").text
        page.ask("mastPlay.drive('lsap')")
        assert page.ask("mastPlay.advance(2)")["time"] == 2
    browser.get_log("browser")


def test_from_a_file_the_rules_that_need_no_network_run(browser: WebDriver, site: str) -> None:
    browser.get_log("browser")
    page = Page(browser, Path(SITE / "index.html").as_uri())
    assert page.find("#drivers [aria-checked=true]").text == "DHBA-8"
    assert "mast play" in page.find("#said").text
    assert not page.find("#drivers [data-key='navigation/mast-m']").is_enabled()
    assert page.ask("mastPlay.advance(5)")["time"] == 5
    assert page.errors() == []
