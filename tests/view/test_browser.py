"""The replay in a real browser: headless Chromium opens the file and everything on it is used."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.spatial import cKDTree

from browsing import ActionChains, By, Keys, Player, Select, WebDriver
from mast_swarm.evaluate.recording import Recording
from mast_swarm.tasks.coverage.view import seen_by
from mast_swarm.view.replay import write_replay

MakeRecording = Callable[..., Recording]


@pytest.fixture(scope="module")
def pages(
    tmp_path_factory: pytest.TempPathFactory, make_recording: MakeRecording, make_cover: MakeRecording
) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    first = make_recording(robots=50, steps=80)
    second = make_recording(robots=50, steps=80, policy="dhba-4", delay=1.0, taking_part=0.5)
    bare = make_recording(robots=5, steps=0, attention_radius=None)
    crowd = [make_recording(robots=1000, steps=60, policy=policy) for policy in ("lsap", "mast-m")]
    sets = {"one": [first], "two": [first, second], "bare": [bare], "crowd": crowd}
    sets["cover"] = [make_cover(), make_cover("d-cvt")]
    return {name: write_replay(folder / f"{name}.html", what, name) for name, what in sets.items()}


@pytest.fixture
def two(browser: WebDriver, pages: dict[str, Path]) -> Iterator[Player]:
    player = Player(browser, pages["two"])
    yield player
    assert player.errors() == []


def test_two_policies_stand_side_by_side(two: Player) -> None:
    boxes = [panel.rect for panel in two.browser.find_elements(By.CSS_SELECTOR, ".panel")]
    assert len(boxes) == 2
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    assert boxes[0]["y"] == boxes[1]["y"]
    two.seek(60)
    assert two.picture(0) != two.picture(1)
    facts = [item.text for item in two.browser.find_elements(By.CSS_SELECTOR, "#facts li")]
    assert facts == ["navigation", "clusters", "50 robots", "seed 0"]
    about = [item.text for item in two.browser.find_elements(By.CSS_SELECTOR, ".about")]
    assert about == ["no delay", "delay 1 s per hop"]
    legend = [item.text for item in two.browser.find_elements(By.CSS_SELECTOR, "#values .name")]
    assert legend == ["lsap", "dhba-4"]


def test_play_moves_time_and_robots_and_pause_stops_them(two: Player) -> None:
    before = two.picture()
    two.find("#play").click()
    two.wait(lambda: two.time > 1)
    assert two.picture() != before
    assert two.find("#play").get_attribute("aria-label") == "Pause"
    two.press(Keys.SPACE)
    held = two.time
    time.sleep(0.2)
    assert two.time == held
    two.press(Keys.SPACE)
    two.wait(lambda: two.time > held)


def test_play_stops_at_the_end_and_starts_again(two: Player) -> None:
    two.seek(79.5)
    two.find("#play").click()
    two.wait(lambda: not two.run("return mastReplay.playing"))
    assert two.time == 80
    two.find("#play").click()
    assert two.time < 40


def test_scrubbing_by_slider_keys_and_curve(two: Player, make_recording: MakeRecording) -> None:
    two.run("const s = document.getElementById('scrub'); s.value = 40; s.dispatchEvent(new Event('input'))")
    assert two.time == 40
    two.press(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert two.time == 41
    ActionChains(two.browser).key_down(Keys.SHIFT).send_keys(Keys.ARROW_RIGHT).key_up(Keys.SHIFT).perform()
    assert two.time == 51
    slider = two.find("#scrub")
    ActionChains(two.browser).move_to_element(slider).click().perform()
    assert two.time == pytest.approx(40, abs=3)
    curve = two.find("#curve")
    ActionChains(two.browser).move_to_element_with_offset(curve, 60, 0).click().perform()
    assert two.time > 50
    two.press(Keys.HOME)
    assert two.time == 0
    two.press(Keys.END)
    two.settle()
    assert two.find("#clock").text.startswith("80.0 s")
    rate = make_recording(robots=50, steps=80, taking_part=0.5).metrics["success_rate"][-1]
    assert two.browser.find_elements(By.CSS_SELECTOR, ".rate")[1].text.startswith(f"{rate:.3f}")
    assert two.browser.find_elements(By.CSS_SELECTOR, "#values b")[1].text == f"{rate:.3f}"


def test_positions_are_interpolated(two: Player) -> None:
    where = []
    for t in (10, 10.5, 11):
        two.seek(t)
        where.append(two.run("return [...mastReplay.recordings[0].now]"))
    assert where[0] != where[2]
    assert where[1] == pytest.approx([(a + b) / 2 for a, b in zip(where[0], where[2], strict=True)], abs=1e-3)


def test_speed(two: Player) -> None:
    speed = Select(two.find("#speed"))
    assert [option.text for option in speed.options] == ["0.5×", "1×", "2×", "4×", "8×", "16×"]
    gone = {}
    for text in ("1×", "16×"):
        speed.select_by_visible_text(text)
        gone[text] = two.run(
            "mastReplay.seek(0); mastReplay.play(true); mastReplay.last = 0; mastReplay.loop(50);"
            "mastReplay.play(false); return mastReplay.time"
        )
    assert gone["16×"] == pytest.approx(16 * gone["1×"])
    two.run("document.activeElement.blur()")
    two.press("[")
    assert speed.first_selected_option.text == "8×"


@pytest.mark.parametrize("key", ["links", "trails", "windows", "goals"])
def test_each_toggle_changes_the_picture_and_back(two: Player, key: str) -> None:
    two.seek(30)
    before, button = two.picture(), two.find(f"#toggle-{key}")
    pressed = button.get_attribute("aria-pressed")
    button.click()
    changed = two.picture()
    assert changed != before
    assert button.get_attribute("aria-pressed") != pressed
    two.press(key[0])  # the first letter is the shortcut
    assert two.picture() == before


def test_a_robot_is_shown_on_hover_and_kept_on_click(two: Player) -> None:
    two.seek(20)
    before = two.picture()
    canvas = two.find(".stage canvas")
    mouse = ActionChains(two.browser, duration=0)
    mouse.move_to_element_with_offset(canvas, *two.spot(7)).perform()
    two.wait(lambda: two.run("return mastReplay.hovered") == 7)
    assert two.picture() != before
    assert two.find("#inspector-title").text == "Robot 7"
    heard = two.run(
        "const r = mastReplay.recordings[0], a = (r.index * r.robots + 7) * 3;"
        "return [...r.arrays.neighbours.slice(a, a + 3)].map((v) => v - 1)"
    )
    text = two.find("#inspected dl").text
    assert all(f"{robot}\u00a0(" in text or f"{robot} (" in text for robot in heard)
    mouse.click().perform()
    mouse.move_to_element(two.find("h1")).perform()
    two.settle()
    assert two.run("return [mastReplay.selected, mastReplay.hovered]") == [7, -1]
    assert len(two.browser.find_elements(By.CSS_SELECTOR, "#inspected dl")) == 2
    two.press(Keys.ESCAPE)
    assert two.picture() == before
    assert "Point at a robot to see whom it hears" in two.find("#inspected").text


def test_robots_can_be_chosen_with_the_keyboard(two: Player) -> None:
    two.run("document.querySelector('.stage canvas').focus()")
    two.press(Keys.ARROW_UP, Keys.ARROW_UP)
    assert two.run("return mastReplay.selected") == 1
    two.press(Keys.ARROW_DOWN)
    assert two.run("return mastReplay.selected") == 0


def test_zoom_pan_and_home(two: Player) -> None:
    before = two.picture()
    two.press("+")
    near = two.picture()
    assert near != before
    canvas = two.find(".stage canvas")
    ActionChains(two.browser).move_to_element(canvas).click_and_hold().move_by_offset(40, 20).release().perform()
    assert two.picture() != near
    assert two.run("return mastReplay.selected") == -1
    two.press("0")
    ActionChains(two.browser).move_to_element(two.find("h1")).perform()
    assert two.picture() == before


def test_light_and_dark(two: Player) -> None:
    button, seen = two.find("#theme"), []
    for _ in range(2):
        button.click()
        seen.append((two.run("return getComputedStyle(document.body).backgroundColor"), two.picture()))
    assert button.text == "Theme: dark"
    assert seen[0][0] != seen[1][0]
    assert seen[0][1] != seen[1][1]


def test_one_recording(browser: WebDriver, pages: dict[str, Path]) -> None:
    player = Player(browser, pages["one"])
    assert len(browser.find_elements(By.CSS_SELECTOR, ".panel")) == 1
    facts = [item.text for item in browser.find_elements(By.CSS_SELECTOR, "#facts li")]
    assert facts[-1] == "no delay"
    assert player.errors() == []


def test_a_single_frame_without_windows(browser: WebDriver, pages: dict[str, Path]) -> None:
    player = Player(browser, pages["bare"])
    assert not player.find("#toggle-windows").is_enabled()
    player.find("#play").click()
    player.wait(lambda: not player.run("return mastReplay.playing"))
    assert player.errors() == []


def test_a_thousand_robots_stay_fluid(browser: WebDriver, pages: dict[str, Path]) -> None:
    player = Player(browser, pages["crowd"])
    costs = []
    for t in range(20, 40):
        player.seek(t + 0.5)
        costs.append(player.run("return mastReplay.paintMs"))
    assert sorted(costs)[len(costs) // 2] < 50  # ms for both pictures; some 8 on an idle core
    assert player.errors() == []


@pytest.fixture
def cover(browser: WebDriver, pages: dict[str, Path]) -> Iterator[Player]:
    player = Player(browser, pages["cover"])
    yield player
    assert player.errors() == []


def test_coverage_shows_the_cost_of_each_instant(cover: Player, make_cover: MakeRecording) -> None:
    recordings, pictures = [make_cover(), make_cover("d-cvt")], set()
    assert cover.find("#curve-title").text == "Normalised cost"
    for t in (0, 7, 60):
        cover.run(
            "const s = document.getElementById('scrub'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))", t
        )
        pictures.add(cover.picture())
        costs = [f"{recording.metrics['cost'][t]:.3f}" for recording in recordings]
        rates = cover.browser.find_elements(By.CSS_SELECTOR, ".rate")
        assert [rate.text for rate in rates] == [f"{cost} normalised cost" for cost in costs]
        assert [item.text for item in cover.browser.find_elements(By.CSS_SELECTOR, "#values b")] == costs
        average = recordings[1].metrics["cost_time_average"][t]
        assert f"average {average:.3f}" in cover.browser.find_elements(By.CSS_SELECTOR, ".status")[1].text
    assert len(pictures) == 3


def test_coverage_colours_what_the_team_has_seen(cover: Player, make_cover: MakeRecording) -> None:
    recording = make_cover()
    for t in (0, 20, 60):
        cover.seek(t)
        address = cover.run("return mastReplay.recordings[0].map.toDataURL()")
        image = np.asarray(Image.open(io.BytesIO(base64.b64decode(address.split(",")[1]))).convert("RGB"))
        known = seen_by(recording, t)
        assert ((image[..., 0] > image[..., 2])[::-1] == known).all()  # the world's y points up, a picture's down
        share = recording.scene["density"][known].sum() / recording.scene["density"].sum()
        assert f"{100 * share:.0f} % of the density seen" in cover.find(".status").text


@pytest.mark.parametrize("key", ["links", "cells", "trails", "unseen"])
def test_each_coverage_toggle_changes_the_picture_and_back(cover: Player, key: str) -> None:
    cover.seek(30)
    before = cover.picture()
    cover.find(f"#toggle-{key}").click()
    assert cover.picture() != before
    cover.press(key[0])
    assert cover.picture() == before


def test_a_coverage_robot_tells_its_cell_and_whom_it_hears(cover: Player, make_cover: MakeRecording) -> None:
    recording = make_cover()
    robots = recording.positions[60].astype(float)
    middles = np.stack(np.meshgrid(*[np.arange(1.0, 512, 2)] * 2), axis=-1).reshape(-1, 2)
    shares = np.bincount(cKDTree(robots).query(middles)[1], minlength=len(robots)) / len(middles)
    apart = np.linalg.norm(robots[:, None] - robots, axis=-1)
    cover.seek(60)
    before = cover.picture()
    for robot in range(len(robots)):
        cover.run("mastReplay.select(arguments[0], true)", robot)
        cover.settle()
        assert cover.picture() != before
        told = dict(
            zip(
                *(
                    cover.run(
                        f"return [...document.querySelector('#inspected dl').querySelectorAll('{tag}')]"
                        ".map((e) => e.textContent)"
                    )
                    for tag in ("dt", "dd")
                ),
                strict=True,
            )
        )
        assert float(told["Cell"].split()[0]) == pytest.approx(100 * shares[robot], abs=0.2)
        heard = [other for other in np.argsort(apart[robot])[1:] if apart[robot, other] < 160]
        named = [int(part.split("\u00a0")[0]) for part in told["Hears"].split(", ")] if heard else []
        assert named == heard[:4]
        assert (f"and {len(heard) - 4} more" in told["Hears"]) == (len(heard) > 4)


def test_a_coverage_page_is_light_and_dark(cover: Player) -> None:
    button, seen = cover.find("#theme"), set()
    for _ in range(2):
        button.click()
        seen.add(cover.picture())
    assert len(seen) == 2
