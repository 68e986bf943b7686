"""What the replay shows of what robots know, in a real browser: ages, hops, believed places, attention, failures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from browsing import Player, Select, WebDriver
from mast_swarm import Channel, Navigation, NavigationConfig, Policy, PolicyConfig
from mast_swarm.errors import MastError
from mast_swarm.evaluate import knowledge
from mast_swarm.evaluate.recording import Recording
from mast_swarm.evaluate.rollout import rollout
from mast_swarm.view.replay import write_replay

ROBOTS, STEPS = 16, 30
TROUBLE = Channel(delay=1.0, loss=0.25, failure=0.01)


def record(policy: Any, channel: Channel | None = None) -> Recording:
    world = Navigation(NavigationConfig(agents=ROBOTS))
    return rollout(world, policy, [3], STEPS, channel=channel, record=1, name=None).recordings[0]


@pytest.fixture(scope="module")
def alone() -> Recording:
    """Robots that talk over a channel with losses, and some of which fail."""
    policy = Policy(PolicyConfig(layers=3, heads=2, head_dim=8, attention_radius=250.0), seed=1)
    kept = record(policy, TROUBLE)
    assert 1 <= (~kept.alive(STEPS)).sum() < ROBOTS // 2
    return kept


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, alone: Recording) -> Path:
    return write_replay(tmp_path_factory.mktemp("page") / "alone.html", alone)


@pytest.fixture
def player(browser: WebDriver, page: Path) -> Iterator[Player]:
    player = Player(browser, page)
    yield player
    assert player.errors() == []


def choose(player: Player, robot: int, t: float) -> None:
    player.run("mastReplay.select(arguments[0], true)", robot)
    player.seek(t)


def rows(player: Player) -> list[list[str]]:
    """The list of what the chosen robot knows, without its head: of whom, age, hops, share."""
    texts = player.run(
        "return [...document.querySelectorAll('.known > :not(.bar):not(.head)')].map((e) => e.textContent)"
    )
    return [texts[n : n + 4] for n in range(0, len(texts), 4)]


def facts(player: Player) -> dict[str, str]:
    pairs = player.run(
        "return [...document.querySelectorAll('#inspected dt')].map((e) => [e.textContent, e.nextSibling.textContent])"
    )
    return dict(pairs)


@pytest.mark.parametrize("t", [1, 7.4, STEPS])
def test_the_list_says_what_was_recorded(player: Player, alone: Recording, t: float) -> None:
    frame = int(t)
    for robot in range(0, ROBOTS, 3):
        choose(player, robot, t)
        age, hops = alone.known["age"][frame, robot].astype(int), alone.known["hops"][frame, robot]
        told = facts(player)
        if not alone.alive(frame)[robot]:
            assert told["State"].startswith("failed") and not rows(player) and "Has heard of" not in told
            continue
        others = [j for j in range(ROBOTS) if j != robot and age[j]]
        assert told["Has heard of"] == f"{len(others)} of {ROBOTS - 1} robots"
        if others and max(age[others]) > 1:
            assert told["Oldest news"].startswith(f"{max(age[others]) - 1} s, of robot ")
        attends, weights = alone.known["attends"][frame, robot], alone.known["weights"][frame, robot] / 255
        share = {int(a) - 1: weights[:, :, k].mean() for k, a in enumerate(attends) if a}
        listed = rows(player)
        assert len(listed) == min(len(others), 8)
        for of, old, links, part in listed:
            j = int(of)
            assert (old, links) == (f"{age[j] - 1} s", str(hops[j]))
            assert part == (f"{100 * share[j]:.1f} %" if j in share else "–")
        shown = [round(share.get(int(row[0]), 0.0), 9) for row in listed]
        assert shown == sorted(shown, reverse=True)


def test_robots_are_believed_where_they_were(player: Player, alone: Recording) -> None:
    frame, late = 20, 0
    player.seek(frame)
    for robot in np.flatnonzero(alone.alive(frame)):
        for j in range(ROBOTS):
            age = int(alone.known["age"][frame, robot, j]) - 1
            if age < 0 or j == robot:
                continue
            late += age > 3
            place = player.run(
                "return mastReplay.knowledge.believed(mastReplay.recordings[0], arguments[0], arguments[1])",
                int(robot),
                j,
            )
            assert place == pytest.approx(alone.positions[frame - age, j].tolist(), abs=0.1)
    assert late


def test_layers_heads_and_switches_change_the_picture(player: Player, alone: Recording) -> None:
    frame = 12
    robot = int(np.flatnonzero(alone.alive(frame))[0])
    choose(player, robot, frame)
    before, plain = player.picture(), rows(player)
    for key in ("n", "a"):
        player.press(key)
        assert player.picture() != before
        player.press(key)
        assert player.picture() == before
    Select(player.find("#attention-layer")).select_by_visible_text("layer 2")
    Select(player.find("#attention-head")).select_by_visible_text("head 1")
    player.settle()
    assert player.picture() != before and rows(player) != plain
    weights = alone.known["weights"][frame, robot, 1, 0] / 255
    for k, token in enumerate(alone.known["attends"][frame, robot].astype(int) - 1):
        if token not in (-1, robot) and [str(token)] in [row[:1] for row in rows(player)]:
            part = next(row[3] for row in rows(player) if row[0] == str(token))
            assert part == f"{100 * weights[k]:.1f} %"


def test_those_that_failed_are_crossed_out(player: Player, alone: Recording, page: Path) -> None:
    assert "Failed" in player.find("#key").text.split("\n")
    failed = int((~alone.alive(STEPS)).sum())
    player.seek(0)
    assert "failed" not in player.find(".status").text
    player.seek(STEPS)
    assert player.find(".status").text.startswith(f"{failed} failed · ")
    # In its middle the arms of the cross meet, in a colour that is not a robot's.
    robot = int(np.flatnonzero(~alone.alive(STEPS))[0])
    gone = player.run(
        "const { r, view, canvas } = mastReplay.panels[0], i = 2 * arguments[0];"
        "const c = canvas.getContext('2d');"
        "const [x, y] = [view.x(r.now[i]), view.y(r.now[i + 1])].map(Math.round);"
        "return [[...c.getImageData(x, y, 1, 1).data], mastReplay.colours.dead]",
        robot,
    )
    red, green, blue = gone[0][:3]
    expected = [int(float(part)) for part in gone[1].removeprefix("rgb(").removesuffix(")").split(",")]
    assert abs(red - expected[0]) + abs(green - expected[1]) + abs(blue - expected[2]) < 40


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory, alone: Recording) -> Callable[[str], Path]:
    """Pages of runs without messages, of long ones, and of files from before."""
    folder = tmp_path_factory.mktemp("others")
    old = replace(alone, knowledge="", known={})
    thin = {name: values[::3] if values.ndim else values for name, values in alone.known.items()}
    sets = {
        "pass": lambda: record("mast-c"),
        "controller": lambda: record("lsap"),
        "old": lambda: old,
        "thin": lambda: replace(alone, known=thin | {"every": np.array(3)}),
        "mean": lambda: replace(
            alone, known=alone.known | {"weights": alone.known["weights"].mean(3, keepdims=True).astype(np.uint8)}
        ),
        "large": lambda: replace(alone, known={}),
    }
    return lambda name: write_replay(folder / f"{name}.html", sets[name]())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pass", "One forward pass for all robots"),
        ("controller", "A controller that sends no messages"),
        ("old", "record again to see it"),
        ("large", "not kept in teams of more than 1,000"),
    ],
)
def test_what_is_not_known_is_said(browser: WebDriver, others: Callable[[str], Path], name: str, says: str) -> None:
    player = Player(browser, others(name))
    choose(player, 2, 5)
    assert says in player.find("#inspected").text
    assert not player.run("return document.querySelectorAll('.known .age').length")
    assert "Connected to" in facts(player)
    assert "News" not in player.find("#toggles").text
    if name == "pass":  # it has attention, and it sees the goals
        assert "goal " in player.find(".known").text and "% to itself" in player.find("#inspected").text
    assert player.errors() == []


def test_frames_between_those_that_were_kept(
    browser: WebDriver, others: Callable[[str], Path], alone: Recording
) -> None:
    player = Player(browser, others("thin"))
    robot = int(np.flatnonzero(alone.alive(8))[0])
    choose(player, robot, 8)
    assert "as of 6.0 s, kept every 3.0 s" in player.find("#inspected").text
    for of, old, links, _ in rows(player):
        assert old == f"{int(alone.known['age'][6, robot, int(of)]) - 1} s"
        assert links == str(alone.known["hops"][6, robot, int(of)])
    assert player.errors() == []


def test_the_mean_over_heads_is_called_so(browser: WebDriver, others: Callable[[str], Path]) -> None:
    player = Player(browser, others("mean"))
    choose(player, 2, 3)
    assert "mean over heads" in player.find("#choice").text
    assert not player.run("return !!document.getElementById('attention-head')")


def test_arrays_that_do_not_fit_are_named(alone: Recording, tmp_path: Path) -> None:
    wrong = {"age": alone.known["age"][:, 1:], "attends": alone.known["attends"][:5], "weights": alone.known["hops"]}
    for name, values in wrong.items():
        with pytest.raises(MastError, match=f"{name} of shape .*record again"):
            write_replay(tmp_path / "bad.html", replace(alone, known=alone.known | {name: values}))
    with pytest.raises(MastError, match="before it began"):
        write_replay(tmp_path / "bad.html", replace(alone, known=alone.known | {"age": alone.known["age"] + 9}))


def test_the_budget_bounds_what_a_page_holds() -> None:
    """100 robots and 200 frames are kept whole: 2 x 2 MB of ages and hops and 4 MB of attention before packing."""
    frames, robots, heads = 201, 100, 16
    assert frames * robots**2 <= knowledge.MOST_PAIRS
    assert frames * robots * heads * knowledge.TOKENS <= knowledge.MOST_WEIGHTS
