"""The benchmark of attacks: nothing false is used or passed on, each is counted, and a flood starves nobody."""

from __future__ import annotations

import pytest

pytest.importorskip("cryptography")

from benchmarks.robot_security import ATTACKS, attacked, flooded, fuzz


@pytest.mark.parametrize("attack", ATTACKS)
def test_attacks(attack: str) -> None:
    row = attacked(attack, 12)
    assert (row["used"], row["passed_on"], row["counted"], row["true_ones_kept"]) == (0, 0, 12, 12)


def test_an_attack_that_comes_through_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mast_swarm.robot.trust.Trust.verify", lambda *given: True)
    row = attacked("forged origin", 5)
    assert row["used"] > 0 < row["passed_on"] and row["counted"] == 0


def test_fuzzed_datagrams() -> None:
    told = fuzz(3000, lambda line: None)
    assert told["exceptions"] == told["false_news"] == 0 and sum(told["refused"].values()) > 2000


def test_who_floods_does_not_starve_the_others() -> None:
    row = flooded("bad signatures", 2.0)
    assert row["honest_known"] == 6 and row["age_median_s"] < 2 and row["rate_limited"] > 0
