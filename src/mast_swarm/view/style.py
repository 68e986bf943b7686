"""One look for every picture: the colours, and matplotlib's settings."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

# Okabe and Ito's palette, which people with any common colour vision can tell apart; the green and the
# vermillion come late because goals wear them.
POLICIES: Final = ("#0072B2", "#E69F00", "#CC79A7", "#56B4E9", "#D55E00", "#009E73", "#5F6B7A", "#B8A800")
DASHES: Final = ("-", "--", "-.", ":")  # one for each time the palette has been used up

# The paper's scene: blue robots, green goals that some robot sees, red goals that none sees, grey links.
SCENE: Final = {
    "robot": "#1F77B4",
    "seen": "#009E73",
    "unseen": "#D5371E",
    "reached": "#009E73",
    "link": "#A9B4C2",
    "cell": "#4A5464",
}

# What matters where: amber where the team has seen it, grey where it has not. Within each, darker is more; the two
# differ in saturation, so that they stay apart for every colour vision.
DENSITY: Final = {
    "density_low": "#FFF8E8",
    "density_mid": "#F6B84B",
    "density_high": "#A84A05",
    "hidden_low": "#E4E7EC",
    "hidden_high": "#7C8695",
}

INK: Final = "#1B2330"
SOFT: Final = "#5A6576"
LINE: Final = "#DDE1E9"

_LETTERS = 30  # of a line of a name


def policy_colour(number: int) -> str:
    """The colour of the policy that stands at place `number` (0, 1, ...) in a comparison."""
    return POLICIES[number % len(POLICIES)]


def policy_dash(number: int) -> str:
    """The line style that goes with `policy_colour`: changes each time the palette starts again."""
    return DASHES[number // len(POLICIES) % len(DASHES)]


def wrapped(name: str) -> str:
    """A policy's name in lines that fit beside or below one picture, and twice beside each other in a legend."""
    return textwrap.fill(name, _LETTERS)


@contextmanager
def style() -> Iterator[None]:
    """Within it, matplotlib draws in the project's look; outside, nothing has changed."""
    import matplotlib as mpl

    settings: dict[Any, Any] = {
        "figure.dpi": 160,
        "figure.facecolor": "white",
        "savefig.dpi": 160,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 10,
        "text.color": INK,
        "axes.titlesize": 11,
        "axes.titleweight": "bold",
        "axes.titlecolor": INK,
        "axes.labelcolor": SOFT,
        "axes.edgecolor": LINE,
        "axes.linewidth": 1.0,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": LINE,
        "grid.linewidth": 0.7,
        "xtick.color": LINE,
        "ytick.color": LINE,
        "xtick.labelcolor": SOFT,
        "ytick.labelcolor": SOFT,
        "xtick.labelsize": 9,
        "ytick.labelsize": 9,
        "lines.linewidth": 2.0,
        "lines.solid_capstyle": "round",
        "legend.frameon": False,
        "legend.fontsize": 9.5,
    }
    with mpl.rc_context(settings):
        yield
