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
from mast_swarm.files import readable

EARTH = 6_371_008.8  # mean radius, m
# WGS 84 by name, with a version or without: EPSG:4326, urn:ogc:def:crs:EPSG:8.9:4326, urn:ogc:def:crs:OGC:1.3:CRS84
_GLOBE = re.compile(r"(CRS:?84|WGS ?84|EPSG[:/]([\d.]*[:/])?4326)$", re.IGNORECASE)
_DEEPEST = 4  # objects that a cache may have put around the answer of a query
_METRES = {("x", "y")}
_DEGREES = {("latitude", "longitude"), ("lat", "lon"), ("lat", "lng")}


def read_points(path: str, side: float, window: tuple[float, float] | None, tag: str | None = None) -> np.ndarray:
    """Points [P, 2] in metres inside the square 0..side.

    Points on the globe are laid out around the window's middle (latitude, longitude), north up; those beyond the
    window are left out. Without a window the middle of the points is taken, and all of them must fit; points given in
    metres must all fit too. tag: of the places with tags those with this one, as highway=traffic_signals.
    """
    file = readable(path)
    given, globe = _read(path, file.stat().st_mtime_ns if file.exists() else 0, tag)
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
def _read(path: str, modified: int, tag: str | None) -> tuple[np.ndarray, bool]:
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
        points, globe = _from_json(path, content, _Tag(tag)), True
    elif tag is not None:
        raise MastError(f"{path} is a CSV file, whose points have no tags: leave out --tag")
    else:
        points, globe = _from_csv(path, text)
    if not len(points):
        which = f"no places with the tag {tag}" if tag else "no points"
        raise MastError(f"{path} has {which}: expected at least 1")
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


class _Tag:
    """Chooses places by a tag: KEY=VALUE, or KEY for any value; without one all."""

    def __init__(self, given: str | None) -> None:
        self.key, _, self.value = (given or "").partition("=")

    def on(self, tags: Any) -> bool:
        if not self.key:
            return True
        found = tags.get(self.key) if isinstance(tags, dict) else None
        return found is not None and (not self.value or self.value in str(found).split(";"))


def _unwrapped_json(content: Any) -> Any:
    """What a cache has wrapped around the answer of an Overpass query or a GeoJSON file: the one object inside it, at
    any depth, that has elements or features."""
    for _ in range(_DEEPEST):
        if not isinstance(content, dict | list) or (isinstance(content, dict) and {"elements", "type"} & {*content}):
            return content
        parts = list(content.values()) if isinstance(content, dict) else content
        inside = [part for part in parts if isinstance(part, dict | list) and _holds(part)]
        if len(inside) != 1:
            return content
        content = inside[0]
    return content


def _holds(content: Any, depth: int = 0) -> bool:
    """Whether elements or features are somewhere in it."""
    if depth > _DEEPEST or not isinstance(content, dict | list):
        return False
    if isinstance(content, dict) and any(isinstance(content.get(name), list) for name in ("elements", "features")):
        return True
    parts = list(content.values()) if isinstance(content, dict) else content[:10]
    return any(_holds(part, depth + 1) for part in parts)


def _from_json(path: str, content: Any, tag: _Tag) -> np.ndarray:
    """Latitude and longitude [P, 2] of GeoJSON points or of what an Overpass query gave."""
    content = _unwrapped_json(content)
    if isinstance(content, dict) and isinstance(content.get("elements"), list):
        return _from_overpass(path, content["elements"], tag)
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
    _collect(path, content, points, tag)
    return np.array(points, dtype=np.float64).reshape(-1, 2)


def _coordinate_system(content: dict[str, Any]) -> str:
    """The name of a GeoJSON object's coordinate system, which older files state in one of several ways."""
    stated = content.get("crs")
    properties = stated.get("properties") if isinstance(stated, dict) else None
    name = properties.get("name") if isinstance(properties, dict) else None
    return "CRS84" if stated is None else str(name or stated)


def _collect(path: str, item: Any, points: list[list[float]], tag: _Tag) -> None:
    """Appends latitude, longitude of every point in a GeoJSON object."""
    kind = item.get("type") if isinstance(item, dict) else None
    if kind in ("FeatureCollection", "GeometryCollection"):
        for part in _listed(path, item, "features" if kind == "FeatureCollection" else "geometries"):
            _collect(path, part, points, tag)
    elif kind == "Feature":
        if item.get("geometry") is not None and tag.on(item.get("properties")):  # a feature may be nowhere
            _collect(path, item["geometry"], points, tag)
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


def _from_overpass(path: str, elements: list[Any], tag: _Tag) -> np.ndarray:
    """Each place once: nodes, and ways and relations by their centre, the middle of their outline or of their nodes.

    Nodes that are there only because a way goes through them, without tags of their own, are no places.
    """
    nodes = {e.get("id"): e for e in elements if isinstance(e, dict) and e.get("type") == "node" and "lat" in e}
    through = {ref for e in elements if isinstance(e, dict) for ref in e.get("nodes") or ()}
    points = []
    for element in elements:
        if not isinstance(element, dict):
            raise MastError(f"{path} has an element {str(element)[:40]}: expected the JSON of an Overpass query")
        tags = element.get("tags")
        if not tag.on(tags) or (element.get("type") == "node" and element.get("id") in through and not tags):
            continue
        try:
            points.append(_place(element, nodes))
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            raise MastError(
                f"{path} has a {element.get('type')} without a place: end the query with `out center;`, or ask for "
                "nodes only"
            ) from None
    return np.array(points, dtype=np.float64).reshape(-1, 2)


def _place(element: dict[str, Any], nodes: dict[Any, Any]) -> list[float]:
    """Latitude and longitude of an element."""
    place = element.get("center") or element
    if "lat" not in place and "bounds" in element:
        box = element["bounds"]
        return [(float(box["minlat"]) + float(box["maxlat"])) / 2, (float(box["minlon"]) + float(box["maxlon"])) / 2]
    if "lat" in place:
        return [float(place["lat"]), float(place["lon"])]
    corners = element.get("geometry") or [nodes[ref] for ref in element["nodes"]]
    latitudes, longitudes = ([float(corner[name]) for corner in corners] for name in ("lat", "lon"))
    return [(min(latitudes) + max(latitudes)) / 2, (min(longitudes) + max(longitudes)) / 2]
