"""One robot of Algorithm 1, by example; `tests/comms/test_relay.py` runs networks of them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from mast_swarm.errors import MastError
from mast_swarm.robot import News, Robot

HERE = np.zeros(2)


def robot(name: int = 0, **rules: Any) -> Robot:
    """A robot that says what it senses, and whose command is what it knows: {origin: stamp}."""
    return Robot(name, lambda seen: np.array([seen]), ages, **{"hop": 3, **rules})


def ages(known: list[News]) -> dict[int, int]:
    return {news.origin: news.stamp for news in known}


def news(origin: int, stamp: int, x: float = 0.0) -> News:
    return News(origin, stamp, np.array([x, 0.0]), np.array([stamp]))


def test_what_it_senses_it_passes_on_a_hop_later_and_every_hop_after() -> None:
    one = robot(7)
    one.sense(10, 2.5, (1.0, 2.0))
    assert [len(one.offer(now)) for now in range(10, 20)] == [0, 0, 0, 1, 0, 0, 1, 0, 0, 1]
    (own,) = one.known()
    assert own.origin == 7 and own.stamp == 10 and own.message == 2.5 and own.position.tolist() == [1.0, 2.0]


def test_what_is_no_newer_is_not_kept() -> None:
    one = robot()
    assert one.hear(5, [news(1, 4)])
    assert not one.hear(6, [news(1, 4), news(1, 3)])
    assert one.hear(6, [news(1, 5), news(2, 1)])
    assert ages(one.known()) == {1: 5, 2: 1}


def test_an_older_one_that_waits_is_passed_on_once_before_the_newer() -> None:
    one = robot()
    one.hear(5, [news(1, 2)])
    one.hear(6, [news(1, 3)])
    assert ages(one.known()) == {1: 3}
    assert [ages(one.offer(now)).get(1) for now in range(6, 13)] == [None, None, 2, 3, None, None, 3]


def test_it_may_pass_on_sooner_than_again() -> None:
    one = robot(again=5)
    one.hear(0, [news(1, 0)])
    assert [now for now in range(20) if one.offer(now)] == [3, 8, 13, 18]
    assert not one.wants(20, news(1, 0)) and one.wants(20, news(1, 1))
    one.drop(1)
    assert one.known() == [] and one.wants(20, news(1, 0))


def test_what_waits_may_be_bounded() -> None:
    one = robot(hop=100, most=3)
    for now in range(10):
        one.hear(now, [news(1, now)])
    assert [ages(one.offer(now)).get(1) for now in (106, 107, 108, 109)] == [None, 7, 8, 9]


def test_of_two_that_are_due_together_the_newer_is_passed_on() -> None:
    for order in ([news(1, 2), news(1, 3)], [news(1, 3), news(1, 2)]):
        one = robot()
        one.hear(5, order)
        assert [ages(one.offer(now)).get(1) for now in (8, 11)] == [3, 3]
    late = robot()  # a clock that was not looked at for a while
    late.hear(5, [news(1, 2)])
    late.hear(6, [news(1, 3)])
    assert [ages(late.offer(now)).get(1) for now in (9, 10, 11, 12)] == [3, None, None, 3]


def test_three_robots_on_a_line_with_a_hop_of_six_tenths_of_a_period() -> None:
    """The example of docs/communication.md: a period is 5 ticks, a hop 3."""
    team = [robot(i, hop=3) for i in range(3)]
    seen = []
    for now in range(21):
        offers = [one.offer(now) for one in team]
        for i, one in enumerate(team):
            one.hear(now, [item for k in (i - 1, i + 1) if 0 <= k < 3 for item in offers[k]])
        if now % 5 == 0:
            for one in team:
                one.sense(now, 0.0, HERE)
            seen.append({origin: (now - stamp) // 5 for origin, stamp in team[2].decide().items()})
    assert seen == [{2: 0}, {2: 0, 1: 1}, {2: 0, 1: 1, 0: 2}, {2: 0, 1: 1, 0: 2}, {2: 0, 1: 1, 0: 2}]


def test_news_from_too_far_is_neither_kept_nor_passed_on() -> None:
    one = robot(relay_radius=10.0)
    one.sense(0, 0.0, HERE)
    assert not one.hear(1, [news(1, 0, x=10.5)])
    assert one.hear(1, [news(1, 0, x=10.0), news(2, 0, x=-9.0)])
    one.sense(2, 0.0, (2.0, 0.0))  # away from robot 2
    assert ages(one.known()) == {0: 2, 1: 0}
    assert ages(one.offer(4)) == {0: 0, 1: 0}  # its own first news waited for its turn


def test_news_too_old_is_forgotten_and_not_passed_on() -> None:
    one = robot(max_age=4)
    assert not one.hear(9, [news(1, 4)])
    assert one.hear(9, [news(1, 5), news(2, 8)])
    assert ages(one.known()) == {1: 5, 2: 8}
    assert ages(one.offer(12)) == {2: 8}
    one.sense(13, 0.0, HERE)
    assert ages(one.known()) == {0: 13}


def test_without_delay_only_this_moment_counts() -> None:
    one = robot(hop=0)
    one.sense(0, 0.0, HERE)
    assert one.hear(0, [news(1, 0)])
    assert ages(one.offer(0)) == ages(one.offer(0)) == {0: 0, 1: 0}
    one.sense(1, 0.0, HERE)
    assert ages(one.known()) == {0: 1}
    assert not one.hear(1, [news(1, 0)])


def test_its_own_news_comes_first_and_it_decides_on_all() -> None:
    one = Robot(3, lambda seen: seen, lambda known: [item.origin for item in known], hop=1)
    with pytest.raises(MastError, match="robot 3 decides before it has sensed: call sense first"):
        one.decide()
    one.sense(0, np.zeros(1), HERE)
    one.hear(0, [news(5, 0), news(1, 0)])
    assert one.decide() == [3, 1, 5]


@pytest.mark.parametrize("hop", [-1, 0.5, None])
def test_times_are_whole_numbers(hop: Any) -> None:
    with pytest.raises(MastError, match="expected a whole number"):
        robot(hop=hop)


def test_a_robot_needs_no_torch() -> None:
    script = "import sys, mast_swarm.robot; print([name for name in ('torch', 'scipy') if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout == "[]\n"
