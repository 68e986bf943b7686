"""Real traffic signals, and the windows that are taken of them by a rule.

The paper's five windows were never published. For each of its feature counts a window of 1024 m is taken from a city:
centred on a signal, holding exactly that many signals; of several such windows the one whose centre is northernmost
(then westernmost). Where a file covers no more than a window, its middle is the centre. OpenStreetMap counts signal
heads; city inventories count intersections.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from mast_swarm.errors import MastError
from mast_swarm.tasks.coverage.points import read_points

FOLDER = Path(__file__).parent / "cities"
SIDE = 1024.0


@dataclass(frozen=True)
class City:
    """A window of a city, and the paper's one that it stands for."""

    name: str
    file: str
    signals: int
    paper: str
    lpac: float  # the paper's costs
    mast: float


CITIES = (
    City("Newark", "newark.json", 47, "Philadelphia", 0.492, 0.328),
    City("San Francisco", "san-francisco.geojson", 30, "San Francisco", 0.444, 0.404),
    City("Oakland", "oakland.geojson", 22, "Minneapolis", 0.438, 0.386),
    City("San Jose", "san-jose.geojson", 9, "Portland", 0.195, 0.182),
    City("Palo Alto", "palo-alto.geojson", 6, "Seattle", 0.324, 0.277),
    City("Philadelphia", "philadelphia.json", 44, "Philadelphia", 0.492, 0.328),
)


def degrees(file: str) -> np.ndarray:
    """Latitude and longitude of the signals of a file, [P, 2]."""
    found = json.loads((FOLDER / file).read_text(encoding="utf-8"))
    if "elements" in found:  # Overpass JSON
        return np.array([(node["lat"], node["lon"]) for node in found["elements"]])
    return np.array([feature["geometry"]["coordinates"][::-1] for feature in found["features"]])


@cache
def window(file: str, signals: int, side: float = SIDE) -> tuple[float, float]:
    """The centre of a city's window, latitude and longitude rounded to 1e-6 degrees."""
    places = degrees(file)
    middle = tuple(float(v) for v in ((places.min(axis=0) + places.max(axis=0)) / 2).round(6))
    order = np.lexsort((places[:, 1], -places[:, 0]))
    candidates = [tuple(float(v) for v in places[i].round(6)) for i in order]
    if len(places) <= signals:
        candidates.insert(0, middle)
    for centre in candidates:
        if len(read_points(str(FOLDER / file), side, centre)) == signals:  # type: ignore[arg-type]
            return centre  # type: ignore[return-value]
    raise MastError(f"no {side:g} m window of {file} centred on a signal holds exactly {signals} signals")


@cache
def content(file: str) -> str:
    """What a file is known by, in 16 digits."""
    return hashlib.sha256((FOLDER / file).read_bytes()).hexdigest()[:16]
