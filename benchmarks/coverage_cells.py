"""The cells of the paper's tests of coverage, and who is run on them. No torch here: the docs read these."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mast_swarm.tasks.coverage.config import CoverageConfig

ROOT = Path(__file__).parents[1]
SWEEP = ROOT / "docs" / "results" / "coverage" / "sweep"  # where the files of the cells are
SIDES = {1024: 32, 1448: 64, 1774: 96, 2048: 128}  # side in m: robots, and features
GRID = tuple(range(8, 65, 8))  # robots, and features, at 1024 m
CITIES = {"gridport": ("gridport.geojson", (45.0, -30.0)), "twogrids": ("twogrids.json", (-25.0, -15.0))}


@dataclass(frozen=True)
class Driver:
    """A policy and how it is run."""

    policy: str
    learned: bool = True
    alone: bool = False  # every robot by itself, on messages that take a control period a hop


# By the name that files give it. LPAC-K3 exchanges messages many times before it acts: it runs centrally, as if that
# took no time; `lpac-k3-alone` pays for each hop, as MAST-M does. `lpac-k3-seen` has MAST-M's fifth map as well.
DRIVERS = {
    "clairvoyant": Driver("clairvoyant", learned=False),
    "c-cvt": Driver("c-cvt", learned=False),
    "d-cvt": Driver("d-cvt", learned=False),
    "lpac-k3": Driver("lpac-k3"),
    "lpac-k3-alone": Driver("lpac-k3", alone=True),
    "lpac-k3-seen": Driver("lpac-k3-seen"),
    "lpac-k3-seen-alone": Driver("lpac-k3-seen", alone=True),
    "mast-m": Driver("mast-m", alone=True),
    "mast-m-central": Driver("mast-m"),
    "mast-m-paper": Driver("mast-m-paper", alone=True),
}
USUAL = ("clairvoyant", "c-cvt", "d-cvt", "lpac-k3", "mast-m")


def cell_name(agents: int, features: int, side: int = 1024) -> str:
    return f"n{agents}-f{features}-s{side}"


def city_world(city: str) -> CoverageConfig:
    """32 robots among the signals of a city."""
    file, window = CITIES[city]
    return CoverageConfig(density=f"points:{ROOT / 'docs' / 'cities' / file}", window=window)


def worlds() -> dict[str, dict[str, CoverageConfig]]:
    """The cells of each test by name. N = F = 32 at 1024 m is in two of them, and is one cell."""

    def gaussians(agents: int, features: int, side: int) -> tuple[str, CoverageConfig]:
        world = CoverageConfig(agents=agents, features=features, side=float(side))
        return cell_name(agents, features, side), world

    return {
        "sides": dict(gaussians(count, count, side) for side, count in SIDES.items()),
        "grid": dict(gaussians(agents, features, 1024) for agents in GRID for features in GRID),
        "cities": {city: city_world(city) for city in CITIES},
    }
