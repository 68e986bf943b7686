"""The view of a task that brings none: pictures, and a page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from mast_swarm import MastError, Metric, Recording, register, rollout, write_replay
from mast_swarm.view.choose import task_view, view_of
from mast_swarm.view.default import DefaultView, linked
from mast_swarm.view.plots import _scale, frame, frames, metric_curves
from mast_swarm.view.style import SCENE
from strolling import Config, Strolling, own_tasks, strolling

if TYPE_CHECKING:
    from browsing import Player, WebDriver


@pytest.fixture(scope="module", autouse=True)
def known() -> Iterator[None]:
    with own_tasks():
        register(strolling())
        yield


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Eleven robots that meet: few hear another at first, everybody hears everybody at the end."""
    world = Strolling(Config(agents=11, reach=60.0))
    return rollout(world, "inwards", [3], 40, record=1).recordings[0]


def measured(recording: Recording, values: Any) -> Recording:
    """The same with another course of its metric."""
    return replace(recording, metrics={"spread": np.asarray(values, np.float32)})


def pixels(path: Path) -> np.ndarray:
    """[height, width, 3], 0..255."""
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def count(image: np.ndarray, colour: str) -> int:
    """Pixels that wear `colour` (a little off at most)."""
    return int((np.abs(image - np.rint(np.array(to_rgb(colour)) * 255)).max(axis=2) <= 3).sum())


def pairs(recording: Recording, index: int) -> int:
    """How many pairs are nearer than their reach."""
    p = recording.positions[index].astype(np.float64)
    near = np.linalg.norm(p[:, None] - p[None], axis=-1) < recording.settings["reach"]
    return int(np.triu(near, 1).sum())


# Pictures.


def test_a_task_without_a_view_has_the_default_one(recording: Recording) -> None:
    view = task_view("strolling")
    assert type(view) is DefaultView and view.metric.words == "spread (m)"
    assert type(view_of([recording])) is DefaultView
    assert type(task_view("navigation")).__name__ == "NavigationView"


def test_pictures_show_robots_and_links(recording: Recording, tmp_path: Path) -> None:
    assert pairs(recording, 0) < pairs(recording, 40) == 55  # links appear on the way
    image = pixels(frames([recording], tmp_path / "row.png"))
    assert image.std() > 5 and count(image, SCENE["robot"]) > 200
    start, end = (pixels(frame(recording, t, tmp_path / f"{t}.png")) for t in (0.0, 20.0))
    assert start.shape == end.shape and (start != end).any(axis=2).mean() > 0.003
    bare = replace(recording, frames={"links": np.zeros_like(recording.frames["links"])})
    without = pixels(frame(bare, 20.0, tmp_path / "bare.png"))
    assert count(end, SCENE["link"]) > count(without, SCENE["link"]) + 50  # one is in the legend


def drawn(recording: Recording, index: int) -> tuple[list[np.ndarray], list[np.ndarray], Any]:
    """The trails, the links and the axes of one picture."""
    axes = Figure().add_subplot()
    task_view(recording.task).draw(axes, recording, index, 1.0)
    trails, links = axes.collections[:2]
    return trails.get_segments(), links.get_segments(), axes


def test_a_picture_has_a_line_per_link_and_a_trail_per_robot(recording: Recording) -> None:
    for index in (0, 20, 40):
        trails, links, axes = drawn(recording, index)
        assert len(links) == pairs(recording, index)
        assert len(trails) == 11 and all(len(trail) == min(index, 8) + 1 for trail in trails)
        np.testing.assert_allclose([trail[-1] for trail in trails], recording.positions[index])
        np.testing.assert_allclose(axes.collections[2].get_offsets(), recording.positions[index])
        assert axes.get_title(loc="left") == f"t = {index} s"
        assert axes.get_title(loc="right") == f"spread (m) {recording.metrics['spread'][index]:.1f}"


def test_a_link_that_carries_one_way_is_a_line_too(recording: Recording) -> None:
    links = np.zeros_like(recording.frames["links"])
    links[0, 2, 1] = 1 << 2  # robot 2 hears robot 10
    one_way = replace(recording, frames={"links": links})
    assert np.argwhere(linked(one_way, 0)).tolist() == [[2, 10], [10, 2]]
    (line,) = drawn(one_way, 0)[1]
    np.testing.assert_allclose(line, recording.positions[0][[2, 10]])


def test_the_box_holds_all_that_is_shown(recording: Recording) -> None:
    view = task_view("strolling")
    assert view.times(recording) == [0.0, 8.0, 40.0]
    assert view.times(replace(recording, positions=recording.positions[:1])) == [0.0]
    p = recording.positions[:9].reshape(-1, 2)
    left, low, right, high = view.box(recording, [0, 8])
    assert left < p[:, 0].min() and right > p[:, 0].max() and low < p[:, 1].min() and high > p[:, 1].max()
    assert right - left == pytest.approx(high - low) == pytest.approx(1.08 * float(np.ptp(p, axis=0).max()), rel=1e-4)
    still = replace(recording, positions=np.zeros_like(recording.positions))
    assert 0 < view.box(still, [0])[2] < 1  # even where nobody moves


@pytest.mark.parametrize("robots", [1, 8, 9])
def test_teams_of_any_size_are_drawn(robots: int, tmp_path: Path) -> None:
    world = Strolling(Config(agents=robots))
    made = rollout(world, "inwards", [0], 2, record=1).recordings[0]
    assert made.frames["links"].shape == (3, robots, -(-robots // 8))
    assert pixels(frames([made], tmp_path / "a.png")).std() > 1
    assert write_replay(tmp_path / "a.html", [made]).stat().st_size > 10_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"frames": {}}, "the recording of inwards has no links; record again"),
        ({"metrics": {}}, "the recording of inwards has no spread; record again"),
        (
            {"frames": {"links": np.zeros((41, 11, 1), np.uint8)}},
            r"the recording of inwards has links that are uint8 of shape \(41, 11, 1\); expected uint8 \(41, 11, 2\)",
        ),
        ({"frames": {"links": np.zeros((41, 11, 2), bool)}}, "links that are bool of shape"),
        ({"metrics": {"spread": np.full(41, np.nan)}}, "has spread that are not finite numbers; record again"),
    ],
)
def test_what_cannot_be_drawn_is_refused(
    recording: Recording, change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    for draw in (
        lambda made: frames([made], tmp_path / "a.png"),
        lambda made: write_replay(tmp_path / "a.html", [made]),
    ):
        with pytest.raises(MastError, match=message):
            draw(replace(recording, **change))
    assert list(tmp_path.iterdir()) == []


# Curves.


def line(low: float, high: float) -> list[np.ndarray]:
    t = np.arange(11.0)
    mean = np.linspace(low, high, 11)
    return [t, mean, mean, mean]


@pytest.mark.parametrize(
    ("values", "limits", "scale"),
    [
        ((0.0, 200.0), (0.0, np.inf), (0.0, 204.0)),
        ((120.0, 200.0), (-np.inf, np.inf), (0.0, 204.0)),
        ((0.2, 0.4), (0.0, 1.0), (0.0, 1.02)),
        ((-50.0, -10.0), (-np.inf, np.inf), (-50.8, -9.2)),
        ((-50.0, 30.0), (-np.inf, np.inf), (-51.6, 31.6)),
        ((0.0, 0.0), (-np.inf, np.inf), (0.0, 0.02)),
    ],
)
def test_the_scale_of_a_plot_comes_from_data_and_limits(values: Any, limits: Any, scale: Any, tmp_path: Path) -> None:
    assert _scale([line(*values)], limits) == pytest.approx(scale)
    t, *rest = line(*values)
    path = metric_curves({"one": (t, *rest)}, tmp_path / "c.png", label="spread (m)", limits=limits)  # type: ignore[arg-type]
    assert pixels(path).std() > 1


# The page.


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, recording: Recording) -> Path:
    other = rollout(Strolling(Config(agents=11, reach=60.0)), "eastwards", [3], 40, record=1).recordings[0]
    return write_replay(tmp_path_factory.mktemp("pages") / "two.html", [recording, other])


@pytest.fixture
def player(browser: WebDriver, page: Path) -> Iterator[Player]:
    from browsing import Player

    made = Player(browser, page)
    yield made
    assert made.errors() == []


def texts(player: Player, selector: str) -> list[str]:
    return player.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)


def test_the_page_counts_links_and_names_the_metric(player: Player, recording: Recording) -> None:
    assert texts(player, "#curve-title") == ["Spread (m)"]
    assert texts(player, "#facts li") == ["strolling", "11 robots", "seed 3", "no delay"]
    assert texts(player, "#key li") == ["Robot", "Link"]  # nobody has a window
    assert texts(player, ".panel h2") == ["inwards", "eastwards"]
    for t in (0, 20, 40):
        player.seek(t)
        first, second = texts(player, ".status")
        assert first == f"{pairs(recording, t)} links"
        assert second == f"{pairs(recording, 0)} links"  # these keep their distances
        assert texts(player, "#values b")[0] == f"{recording.metrics['spread'][t]:.1f}"
        assert texts(player, ".rate")[0].startswith(f"{recording.metrics['spread'][t]:.1f}")


def test_robots_are_where_they_were(player: Player, recording: Recording) -> None:
    for t in (0, 17, 40):
        player.seek(t)
        now = np.array(player.run("return [...mastReplay.recordings[0].now]")).reshape(11, 2)
        np.testing.assert_allclose(now, recording.positions[t], atol=0.06)


def test_switches_change_the_picture(player: Player) -> None:
    player.seek(30)
    assert texts(player, "#toggles button") == ["Links", "Trails", "Windows"]
    pictures = {player.picture()}
    for key in ("l", "t"):
        player.press(key)
        pictures.add(player.picture())
    assert len(pictures) == 3
    assert not player.find("#toggle-windows").is_enabled()  # a controller has none
    before = player.picture()
    player.run("mastReplay.select(4, true)")
    assert player.picture() != before
    inspected = player.find("#inspected").text
    assert "Hears" in inspected


# The labels of the curve as they are painted: texts, and how far left they begin.
_AXIS = """
const found = [], c = CanvasRenderingContext2D.prototype, own = c.fillText;
c.fillText = function (text, x, y) {
  if (this.canvas.id === "curve" && this.textAlign === "right") found.push([text, x - this.measureText(text).width]);
  return own.call(this, text, x, y);
};
mastReplay.curve.paint(0, mastReplay.colours);
c.fillText = own;
return { found, bottom: mastReplay.curve.bottom, top: mastReplay.curve.top };
"""


@pytest.mark.parametrize(
    ("values", "limits", "expected", "labels"),
    [
        ((200.0, 3.0), (0.0, np.inf), (0.0, 200.0), ["0", "50", "100", "150", "200"]),
        ((200.0, 150.0), (-np.inf, np.inf), (0.0, 200.0), ["0", "50", "100", "150", "200"]),
        ((0.1, 0.4), (0.0, 1.0), (0.0, 1.0), ["0.0", "0.5", "1.0"]),
        ((-1.0, -5.0), (-np.inf, np.inf), (-5.0, -1.0), ["-5", "-4", "-3", "-2", "-1"]),
        ((-6.0, 3.0), (-10.0, 10.0), (-10.0, 10.0), ["-10", "-5", "0", "5", "10"]),
        ((0.0, 0.0), (-np.inf, np.inf), (0.0, 1.0), ["0.0", "0.5", "1.0"]),
    ],
)
def test_the_scale_of_the_pages_curve_comes_from_data_and_limits(
    values: Any, limits: Any, expected: Any, labels: list[str], recording: Recording, browser: WebDriver, tmp_path: Path
) -> None:
    from browsing import Player

    with own_tasks():
        register(strolling(metric=Metric("spread", unit="m", limits=limits)))
        made = write_replay(tmp_path / "a.html", [measured(recording, np.linspace(*values, 41))])
    player = Player(browser, made)
    axis = player.run(_AXIS)
    assert (axis["bottom"], axis["top"]) == pytest.approx(expected)
    assert [text for text, _ in axis["found"]] == labels
    assert all(left >= 0 for _, left in axis["found"]), axis["found"]  # whole on the canvas
    assert player.errors() == []


@pytest.mark.parametrize(("values", "longest"), [((2500.0, 12_000.0), "10000"), ((-0.02, -0.06), "-0.06")])
def test_long_numbers_have_room_beside_the_curve(
    values: Any, longest: str, recording: Recording, browser: WebDriver, tmp_path: Path
) -> None:
    from browsing import Player

    made = write_replay(tmp_path / "a.html", [measured(recording, np.linspace(*values, 41))])
    axis = Player(browser, made).run(_AXIS)
    assert longest in [text for text, _ in axis["found"]]
    assert min(left for _, left in axis["found"]) >= 0, axis["found"]
