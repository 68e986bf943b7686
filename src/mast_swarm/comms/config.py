"""The configuration of the channel between robots. Imports no torch."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Literal, Protocol

from mast_swarm.errors import MastError

_LARGEST = 10**6  # of the smaller number in a ratio that is taken for meant
_ROUNDING = 2.0**-49  # relative: what some sixteen operations on floats may add up to


class Team(Protocol):
    """What a world's config says of its robots."""

    @property
    def agents(self) -> int: ...
    @property
    def side(self) -> float: ...  # of the world, metres
    @property
    def max_speed(self) -> float: ...  # metres per second
    @property
    def dt(self) -> float: ...  # seconds


@dataclasses.dataclass(frozen=True)
class Channel:
    """How messages travel: how long a hop takes, how far news goes, and what can go wrong.

    Relay radius, maximum age, loss and failures are not in the paper. Loss and failures are drawn from `seed` and the
    environment's own seed alone, so an environment meets the same losses whatever batch it runs in.
    """

    delay: float = 0.0
    """Seconds a message takes for one hop (tau); 0: everything that can arrive arrives at once."""
    loss: float = 0.0
    """Probability that one transmission over one link, in one direction, is lost."""
    failure: float = 0.0
    """Probability that a robot fails in one control period; it then stands still and is silent for good."""
    seed: int = 0
    """Seed of losses and failures."""
    relay_radius: float | Literal["auto"] | None = None
    """Metres: a robot neither keeps nor passes on news from a place farther from it than this; None: from any place;
    auto: as far as the policy looks, and what robots move meanwhile."""
    max_age: float | None = None
    """Seconds: a robot forgets news that is older than this, and does not pass it on; None: news of any age counts."""

    def __post_init__(self) -> None:
        for name in ("delay", "loss", "failure"):
            _check_finite(name, getattr(self, name))
        if self.delay < 0:
            raise MastError(f"delay is {self.delay} s per hop: expected 0 or more")
        for name in ("loss", "failure"):
            if not 0 <= getattr(self, name) <= 1:
                raise MastError(f"{name} is {getattr(self, name)}: expected a probability from 0 to 1")
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise MastError(f"seed is {self.seed!r}: expected a whole number")
        if isinstance(self.relay_radius, str) and self.relay_radius != "auto":
            raise MastError(f"relay_radius is '{self.relay_radius}': expected metres, auto, or None for no limit")
        for name, unit in (("relay_radius", "m"), ("max_age", "s")):
            value = getattr(self, name)
            if value is not None and value != "auto":
                _check_finite(name, value)
                if value <= 0:
                    raise MastError(f"{name} is {value} {unit}: expected a positive number, or None for no limit")

    @property
    def radius(self) -> float | None:
        """The relay radius in metres; None: no limit."""
        if self.relay_radius == "auto":
            raise MastError(
                "the relay radius auto depends on the policy and the world: use rollout or evaluate, or "
                "channel.fitted(...) to set it"
            )
        return self.relay_radius

    def fitted(self, field: float | None, team: Team) -> Channel:
        """This channel with metres in place of auto. field: from how far away news can change a robot's command, metres
        (layers times attention radius); None: from anywhere, and there is no limit.

        News of a place on the edge of the field needs some hops to get here, each over about half the distance between
        robots, and is that old when it arrives. Meanwhile robots move: one that is in the field now may have been that
        much farther away when it kept the news.
        """
        if self.relay_radius != "auto":
            return self
        if field is None:
            return dataclasses.replace(self, relay_radius=None)
        hops = math.ceil(2 * field / (team.side / math.sqrt(team.agents)))
        age = math.ceil(hops * periods(self.delay, team.dt)) * team.dt
        age = age if self.max_age is None else min(age, self.max_age)
        return dataclasses.replace(self, relay_radius=field + team.max_speed * age)


def periods(seconds: float, dt: float) -> Fraction:
    """How many control periods of `dt` seconds a time takes, as the exact ratio that was meant.

    Floats carry rounding: 0.3 / 0.1 is not 3, nor is 0.1 * 0.2 a tenth of 0.2. Where a ratio of small whole numbers
    lies within rounding of the given one, it is that ratio. Otherwise the two numbers are read as their decimals say.
    """
    if seconds == 0:
        return Fraction(0)
    given = Fraction(seconds) / Fraction(dt)
    # The smaller number of the two is bounded, so that a very short time is not taken for none.
    meant = given.limit_denominator(_LARGEST) if given >= 1 else 1 / (1 / given).limit_denominator(_LARGEST)
    if abs(meant - given) <= _ROUNDING * given:
        return meant
    return Fraction(str(seconds)) / Fraction(str(dt))


def _check_finite(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise MastError(f"{name} is {value!r}: expected a finite number")
