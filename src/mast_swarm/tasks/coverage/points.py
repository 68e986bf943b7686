"""Points of interest from files: CSV (x,y in metres, or latitude,longitude), GeoJSON points, Overpass JSON."""

from __future__ import annotations

import csv
import json
import math
import re
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from mast_swarm.errors import MastError

EARTH = 6_371_008.8  # mean radius, m
# WGS 84 by name, with a version or without: EPSG:4326, urn:ogc:def:crs:EPSG:8.9:4326, urn:ogc:def:crs:OGC:1.3:CRS84
_GLOBE = re.compile(r"(CRS:?84|WGS ?84|EPSG[:/]([\d.]*[:/])?4326)$", re.IGNORECASE)
_METRES = {("x", "y")}
_DEGREES = {("latitude", "longitude"), ("lat", "lon"), ("lat", "lng")}


def read_points(path: str, side: float, window: tuple[float, float] | None) -> np.ndarray:
    """Points [P, 2] in metres inside the square 0..side.

    Points on the globe are laid out around the window's middle (latitude, longitude), north up; those beyond the
    window are left out. Without a window the middle of the points is taken, and all of them must fit; points given in
    metres must all fit too.
    """
    file = Path(path)
    given, globe = _read(path, file.stat().st_mtime_ns if file.exists() else 0)
    if not globe and window is not None:
        raise MastError(f"{path} has x,y in metres: leave out --window, which is for latitude and longitude")
    middle = window or tuple((given.min(axis=0) + given.max(axis=0)) / 2)
    points = _to_metres(given, middle) + side / 2 if globe else given
    inside = _inside(points, side)
    if window is None and not inside.all():
        spread = np.ptp(points, axis=0)
        raise MastError(
            f"{path}: {int((~inside).sum())} of {len(points)} points lie outside the {side:g} m window; they spread "
            f"over {spread[0]:.0f} x {spread[1]:.0f} m ({_ranges(given, globe)}): give a larger --side"
            + (" or the middle of the window with --window LAT,LON" if globe else " or points within 0..side")
        )
    if window is not None and not inside.any():
        swapped = int(_inside(_to_metres(given[:, ::-1], window) + side / 2, side).sum())
        advice = (
            f"{swapped} of {len(points)} would with latitude and longitude swapped: swap them in the file or --window"
            if swapped
            else "give another --window or a larger --side"
        )
        raise MastError(
            f"{path}: no point lies in the {side:g} m window around latitude {window[0]:g}, longitude {window[1]:g}; "
            f"the file has {_ranges(given, globe)}: {advice}"
        )
    return points[inside]


def _inside(points: np.ndarray, side: float) -> np.ndarray:
    """Which of the points [P, 2] lie in the square 0..side."""
    return np.all((points >= 0) & (points <= side), axis=1)


def _ranges(points: np.ndarray, globe: bool) -> str:
    """Where points [P, 2] lie, in words."""
    names, ends = ("latitude", "longitude") if globe else ("x", "y"), (points.min(axis=0), points.max(axis=0))
    return ", ".join(
        f"{name} {low:.7g}" + f"..{high:.7g}" * bool(low < high) for name, low, high in zip(names, *ends, strict=True)
    )


def _unwrapped(longitudes: np.ndarray) -> np.ndarray:
    """Longitudes [P] on the shortest arc that holds them all: beyond 180 where that crosses the meridian of 180."""
    ordered = np.sort(longitudes)
    gaps = np.diff(ordered, prepend=ordered[-1] - 360)  # before each of them
    return np.where(longitudes < ordered[gaps.argmax()], longitudes + 360, longitudes)


def _to_metres(degrees: np.ndarray, middle: tuple[float, ...]) -> np.ndarray:
    """Latitude, longitude [P, 2] -> x, y [P, 2] in metres from the middle; exact to 1e-3 over a city."""
    offset = np.radians(degrees - np.array(middle))
    offset[:, 1] = (offset[:, 1] + math.pi) % (2 * math.pi) - math.pi  # the short way round
    return EARTH * np.stack([offset[:, 1] * math.cos(math.radians(middle[0])), offset[:, 0]], axis=1)


@lru_cache(maxsize=8)
def _read(path: str, modified: int) -> tuple[np.ndarray, bool]:
    """Points as they stand in the file and whether they are on the globe; read again only when the file changes."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MastError(f"cannot read points from {path}: {error}") from None
    if text.lstrip()[:1] in ("{", "["):
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise MastError(f"{path} is not valid JSON: {error}") from None
        points, globe = _from_json(path, content), True
    else:
        points, globe = _from_csv(path, text)
    if not len(points):
        raise MastError(f"{path} has no points: expected at least 1")
    if not np.isfinite(points).all():
        row = int(np.nonzero(~np.isfinite(points).all(axis=1))[0][0])
        raise MastError(f"{path}: point {row + 1} is {points[row].tolist()}, expected finite numbers")
    if globe:
        _check_degrees(path, points)
        points[:, 1] = _unwrapped(points[:, 1])
    return points, globe


def _check_degrees(path: str, points: np.ndarray) -> None:
    """Raise an error unless latitude, longitude [P, 2] are on the globe."""
    off = (np.abs(points) > (90, 180)).any(axis=1)
    if off.any():
        row = int(off.argmax())
        advice = (
            "the two seem to be swapped: swap them in the file"
            if (np.abs(points) <= (180, 90)).all()
            else "it seems to be in another coordinate system; convert it to WGS 84 (EPSG:4326) degrees"
        )
        raise MastError(
            f"{path}: point {row + 1} has latitude {points[row, 0]:g}, longitude {points[row, 1]:g}, which is not on "
            f"the globe: {advice}"
        )


def _from_csv(path: str, text: str) -> tuple[np.ndarray, bool]:
    try:
        rows = list(csv.reader(text.splitlines()))
    except csv.Error as error:
        raise MastError(f"{path} is not a CSV file: {error}") from None
    header = tuple(cell.strip().lower() for cell in rows[0]) if rows else ()
    pair = next((p for p in _METRES | _DEGREES if set(p) <= set(header)), None)
    if pair is None:
        raise MastError(f"{path} line 1: expected a header with x,y (metres) or latitude,longitude")
    columns = [header.index(name) for name in pair]
    points = []
    for number, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        try:
            points.append([float(row[column]) for column in columns])
        except (ValueError, IndexError):
            raise MastError(f"{path} line {number}: '{','.join(row)}' has no two numbers {','.join(pair)}") from None
    return np.array(points, dtype=np.float64).reshape(-1, 2), pair in _DEGREES


def _from_json(path: str, content: Any) -> np.ndarray:
    """Latitude and longitude [P, 2] of GeoJSON points or of Overpass nodes."""
    if isinstance(content, dict) and isinstance(content.get("elements"), list):
        return _from_overpass(path, content["elements"])
    kind = content.get("type") if isinstance(content, dict) else None
    if kind not in ("FeatureCollection", "Feature", "Point", "MultiPoint", "GeometryCollection"):
        raise MastError(
            f"{path}: found {'type ' + repr(kind) if kind else 'neither a type nor elements'}, expected GeoJSON points "
            "or the JSON of an Overpass query"
        )
    name = _coordinate_system(content)
    if not _GLOBE.search(name):
        raise MastError(f"{path} is in the coordinate system {name}: convert it to WGS 84 (EPSG:4326) degrees")
    points: list[list[float]] = []
    _collect(path, content, points)
    return np.array(points, dtype=np.float64).reshape(-1, 2)


def _coordinate_system(content: dict[str, Any]) -> str:
    """The name of a GeoJSON object's coordinate system, which older files state in one of several ways."""
    stated = content.get("crs")
    properties = stated.get("properties") if isinstance(stated, dict) else None
    name = properties.get("name") if isinstance(properties, dict) else None
    return "CRS84" if stated is None else str(name or stated)


def _collect(path: str, item: Any, points: list[list[float]]) -> None:
    """Appends latitude, longitude of every point in a GeoJSON object."""
    kind = item.get("type") if isinstance(item, dict) else None
    if kind in ("FeatureCollection", "GeometryCollection"):
        for part in _listed(path, item, "features" if kind == "FeatureCollection" else "geometries"):
            _collect(path, part, points)
    elif kind == "Feature":
        if item.get("geometry") is not None:  # a feature may be nowhere
            _collect(path, item["geometry"], points)
    elif kind in ("Point", "MultiPoint"):
        for position in [item.get("coordinates")] if kind == "Point" else _listed(path, item, "coordinates"):
            try:
                longitude, latitude = (float(number) for number in position[:2])
            except (TypeError, ValueError, OverflowError):
                raise MastError(
                    f"{path}: a point's coordinates are {position}, expected [longitude, latitude]"
                ) from None
            points.append([latitude, longitude])
    else:
        raise MastError(f"{path} has geometry of type {kind}: expected points only (Point or MultiPoint)")


def _listed(path: str, item: dict[str, Any], name: str) -> list[Any]:
    """The list that a GeoJSON object holds under a name."""
    found = item.get(name)
    if not isinstance(found, list):
        raise MastError(f"{path}: {name} of a {item['type']} are {str(found)[:40]}, expected a list")
    return found


def _from_overpass(path: str, elements: list[Any]) -> np.ndarray:
    """Nodes, and the centres of ways and relations where the query asked for them (out center)."""
    points = []
    for element in elements:
        place = element.get("center", element) if isinstance(element, dict) else {}
        try:
            points.append([float(place["lat"]), float(place["lon"])])
        except (KeyError, TypeError, ValueError, OverflowError):
            kind = element.get("type") if isinstance(element, dict) else element
            raise MastError(f"{path} has an element of type {kind} without lat and lon: query nodes only") from None
    return np.array(points, dtype=np.float64).reshape(-1, 2)
