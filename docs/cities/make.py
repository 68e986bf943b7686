"""Two made-up cities, written as the traffic signals at their crossings: python docs/cities/make.py

gridport.geojson: one street grid with an avenue of long blocks and a river that three bridges cross, as GeoJSON points.
twogrids.json: two grids that meet at an angle along a market street, as the JSON of an Overpass query.

No such places exist: they lie in the middle of the Atlantic. Everything comes from the seeds below.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
METRES_A_DEGREE = math.pi * 6_371_008.8 / 180  # of latitude
GRIDPORT = (45.0, -30.0)  # latitude, longitude of the middle
TWOGRIDS = (-25.0, -15.0)
EXTENT = 640.0  # m, from the middle to where a city ends


def crossings(rng: np.random.Generator, block_x: float, block_y: float, turn: float = 0.0) -> np.ndarray:
    """Crossings [P, 2] of a street grid in metres from the middle: blocks of about that size, turned by degrees."""
    reach = 1.5 * EXTENT
    columns, rows = (np.arange(-reach, reach, block) for block in (block_x, block_y))
    columns, rows = (streets + rng.normal(0, 6, len(streets)) for streets in (columns, rows))  # streets are not even
    grid = np.stack(np.meshgrid(columns, rows), axis=-1).reshape(-1, 2)
    grid += rng.normal(0, 3, grid.shape)  # nor are signals in the very middle of a crossing
    c, s = math.cos(math.radians(turn)), math.sin(math.radians(turn))
    return grid @ np.array([[c, s], [-s, c]])


def signalled(rng: np.random.Generator, points: np.ndarray, most: float, spread: float) -> np.ndarray:
    """The crossings that have a signal: nearly all in the middle of the city, fewer towards its edge."""
    distance = np.linalg.norm(points, axis=1)
    chance = most * np.exp(-((distance / spread) ** 2))
    inside = (np.abs(points) < EXTENT).all(axis=1)
    return points[inside & (rng.uniform(size=len(points)) < chance)]


def gridport() -> np.ndarray:
    """One grid; a river from north-west to south-east, and a north-south avenue whose blocks are longer."""
    rng = np.random.default_rng(1)
    points = crossings(rng, 74.0, 58.0)
    x, y = points[:, 0], points[:, 1]
    bank = np.abs(y - 160.0 + 0.45 * x - 60.0 * np.sin(x / 210.0))
    bridge = (np.abs(x[:, None] - np.array([-320.0, 40.0, 400.0])) < 45.0).any(axis=1)
    points = points[(bank > 70.0) | (bridge & (bank > 35.0))]
    avenue = np.abs(points[:, 0] - 40.0) < 45.0
    quiet = avenue & (np.round(points[:, 1] / 58.0) % 2 == 1)  # along the avenue only every second crossing stops it
    return signalled(rng, points[~quiet], most=0.97, spread=800.0)


def twogrids() -> np.ndarray:
    """A fine grid north of the market street, a coarse one turned by 36 degrees south of it, signals all along it."""
    rng = np.random.default_rng(2)
    slope, gap = math.tan(math.radians(36.0)), 30.0
    north, south = crossings(rng, 70.0, 70.0), crossings(rng, 120.0, 85.0, turn=36.0)
    side = [(points[:, 1] - slope * points[:, 0]) * math.cos(math.radians(36.0)) for points in (north, south)]
    along = np.arange(-800.0, 800.0, 65.0)
    market = np.stack([along * math.cos(math.radians(36.0)), along * math.sin(math.radians(36.0))], axis=1)
    points = np.concatenate([north[side[0] > gap], south[side[1] < -gap], market + rng.normal(0, 4, market.shape)])
    return signalled(rng, points, most=0.98, spread=750.0)


def degrees(points: np.ndarray, middle: tuple[float, float]) -> list[tuple[float, float]]:
    """Latitude and longitude of points [P, 2] in metres from the middle, to a decimetre."""
    latitude = middle[0] + points[:, 1] / METRES_A_DEGREE
    longitude = middle[1] + points[:, 0] / (METRES_A_DEGREE * math.cos(math.radians(middle[0])))
    return [(round(float(a), 6), round(float(b), 6)) for a, b in zip(latitude, longitude, strict=True)]


def geojson(places: list[tuple[float, float]]) -> str:
    """Points as a GeoJSON FeatureCollection, a line each."""
    features = [
        {
            "type": "Feature",
            "properties": {"highway": "traffic_signals"},
            "geometry": {"type": "Point", "coordinates": [longitude, latitude]},
        }
        for latitude, longitude in places
    ]
    lines = ",\n".join(json.dumps(feature) for feature in features)
    return f'{{"type": "FeatureCollection", "name": "Gridport, a made-up city", "features": [\n{lines}\n]}}\n'


def overpass(places: list[tuple[float, float]]) -> str:
    """Points as the answer to an Overpass query for nodes, a line each."""
    nodes = [
        {"type": "node", "id": number, "lat": latitude, "lon": longitude, "tags": {"highway": "traffic_signals"}}
        for number, (latitude, longitude) in enumerate(places, start=1)
    ]
    lines = ",\n".join(json.dumps(node) for node in nodes)
    return f'{{"version": 0.6, "generator": "Twogrids, a made-up city", "elements": [\n{lines}\n]}}\n'


def cities() -> dict[str, str]:
    """The files by name."""
    return {
        "gridport.geojson": geojson(degrees(gridport(), GRIDPORT)),
        "twogrids.json": overpass(degrees(twogrids(), TWOGRIDS)),
    }


if __name__ == "__main__":
    for name, text in cities().items():
        (HERE / name).write_text(text, encoding="utf-8")
